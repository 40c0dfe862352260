/* copy.h - all-gather by the copy engines: what goes between GPUs uses no multiprocessor, so little is taken from kernels
 * that run beside it.
 *
 * In nranks - 1 steps a piece, each rank's copy engine puts a piece of its block, straight from sendbuff, into a slot of the
 * staging of the rank so many steps ahead.  From there it is copied to its place in recvbuff, which no peer can reach: within
 * a GPU that takes a kernel, allgather_ce.cu, made to fit beside others.  The hand-over is by stream memory operations on
 * two words a slot and peer in the staging, both zero at first:
 *   ready, at the receiver: the sender writes 1 when the slot is full; the receiver waits for 1 and puts back 0.
 *   busy, at the sender: it waits for 0 and puts 1 before it fills the slot; the receiver's kernel writes 0 when it is empty.
 * The write of ready comes with a barrier behind the copy; what it says is read by a kernel that begins behind the wait.
 * So a word alternates whatever the order of eager calls and replays of graphs, and nothing is counted.
 *
 * Streams may share a queue of the hardware, so a wait may hold up other streams: send_and_empty says why the communicator's own
 * calls do not hold up each other for ever.  Of several communicators that is true only where all ranks submit their calls in
 * one order.  A wait has no time limit: it ends when the peer comes, or when the communicator is aborted (bl_copy_let_go).
 * Then what the call still sends may meet a peer that has not aborted, whose results are undefined from there on.
 */
#ifndef BEELINE_COPY_H
#define BEELINE_COPY_H

#include "call.h"

/* Whether the driver has what it takes; else bl_why() says what it lacks. */
bool bl_copy_possible(void);

/* Streams and events, if the communicator's staging has slots.  0, or -1 and bl_why(). */
int bl_copy_open(struct bl_comm *comm);
void bl_copy_close(struct bl_comm *comm);

/* Puts the all-gather on call->stream, of which bl_order_ask has told; the context is current.  Neither allocates nor waits. */
ncclResult_t bl_copy_launch(const struct bl_call *call, const struct bl_order_turn *turn);

/* Of a communicator that was aborted: lets the wait pass that a stream stands at now; to be called until all have ended.
 * The context is current. */
void bl_copy_let_go(struct bl_comm *comm);

#endif
