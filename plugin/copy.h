/* copy.h - all-gather by the copy engines: what goes between GPUs uses no multiprocessor, so little is taken from kernels
 * that run beside it.  (Within a GPU the driver copies with a kernel, whatever it is asked for: measured on an H200.  So a
 * rank's own block needs multiprocessors for some microseconds; its stream has the highest priority, to get them soon.)
 *
 * Each rank copies its block, piece by piece, into slots of its own staging, from where every peer's copy engine fetches
 * it to its place in the peer's recvbuff.  The hand-over is by stream memory operations on two words a slot and peer in
 * the staging, both zero at first:
 *   ready, at the reader: the owner writes 1 when the slot holds a piece; the reader waits for 1 and puts back 0.
 *   busy, at the owner: the owner waits for 0 and puts 1 before it fills the slot; the reader writes 0 when it has fetched.
 * So a word alternates whatever the order of eager calls and replays of graphs, and nothing is counted.
 *
 * Such a wait has no time limit: it ends when the peer comes, or when the communicator is aborted (bl_copy_let_go).
 */
#ifndef BEELINE_COPY_H
#define BEELINE_COPY_H

#include "launch.h"

/* Whether the driver has what it takes. */
bool bl_copy_possible(void);

/* Streams and events, if the communicator's staging has slots.  0, or -1 with what failed in `why`. */
int bl_copy_open(struct bl_comm *comm, char *why, size_t size);
void bl_copy_close(struct bl_comm *comm);

/* Puts the all-gather on call->stream; the context is current.  Neither allocates nor waits. */
ncclResult_t bl_copy_launch(const struct bl_call *call);

/* Of a communicator that was aborted: lets the wait pass that a stream stands at now; to be called until all have ended.
 * The context is current. */
void bl_copy_let_go(struct bl_comm *comm);

#endif
