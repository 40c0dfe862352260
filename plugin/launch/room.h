/* room.h - communicators share their GPU's multiprocessors without keeping each other out.
 *
 * A kernel of a collective waits for its peers, so one that finds no room on one GPU, while others that fill it wait for
 * what is behind it on another, is the end of a job.  NCCL's kernels take few multiprocessors, so that takes many of its
 * communicators; Beeline's launches may take all.  The rule, for each GPU:
 *
 *   A launch fits beside what may be in flight on the other communicators, or it is behind all of that.
 *
 * Why no job hangs whose ranks issue their calls in one order: docs/design.md.
 *
 * What fits: two of Beeline's blocks are resident on a multiprocessor (BL_KERNEL).  Kernels of NCCL need whole ones; while
 * one may be in flight, a quarter of the multiprocessors is left to them, and what its clusters of blocks may find no use for, however Beeline's blocks
 * are spread.  A launch that
 * does not find room for all of its blocks has fewer: as many as leave room for three more of the width of NCCL's kernels, or
 * that width, or what there is, or so few as surely are resident at once where it must be (bl_kernel_in_rounds); only where
 * next to nothing is, it is chained.  Where so many communicators have kernels of NCCL's now and then that these could fill
 * the GPU (5 on an H200), launches are no wider than those are: else one of them may fill one GPU, and NCCL's kernels
 * another, and keep each other out for good.  NCCL's own calls are not chained (but once, when a communicator's first makes
 * them so many, behind wide launches that are in flight then, wider than messages): what NCCL runs in any order goes on doing so.
 *
 * Messages between two ranks may be posted long before their other ends, in any order: so beside other communicators they are about as narrow
 * as the largest of NCCL's kernels, and never chained; where next to nothing is left they have the few places that no launch counts on.
 *
 * Captured launches are in flight whenever their graph is replayed, which nobody tells: they hold their room for good.
 *
 * A stream of a green context has some of the multiprocessors only.  From the first launch on such a stream on, all launches of
 * its GPU find room as if there were no others, and where messages go on beside the communicator's own kernel of NCCL's
 * (beside.h), that one is in flight, too.
 *
 * With NCCL_LAUNCH_ORDER_IMPLICIT=1, or where a communicator's config asks for it, each call, NCCL's, too, is behind all earlier ones
 * of its GPU.  Replays that nothing orders (comm->unmixed) leave no event that anything could be behind: beside graphs of such ones,
 * what does not fit is as narrow as messages are there.
 *
 * Threads: any.  What a launch takes is decided and said under a lock, which is held for a look at the other communicators' events,
 * never for a call that may wait.
 */
#ifndef BEELINE_ROOM_H
#define BEELINE_ROOM_H

#include "order.h"

/* The communicator comes to its context's GPU, with the events of order.h, which are bl_room's until bl_room_leave: other
 * threads look at them.  0, or -1 if there is no memory. */
int bl_room_enter(struct bl_comm *comm);

/* context_lives: or its events are gone with it. */
void bl_room_leave(struct bl_comm *comm, bool context_lives);

/* A launch of the kernel with at most *blocks on `stream`: says how many there is room for, or puts it behind what is in the
 * way.  To be followed by bl_room_taken, whatever happens. */
ncclResult_t bl_room_take(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn,
                          enum bl_kernel kernel, unsigned *blocks);

/* The same for a call of the real NCCL's, which is made in any case. */
ncclResult_t bl_room_take_nccl(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn);

/* Kinds of kernels (bl_turn_kernel) that NCCL launched in the communicator's context; those that it ever did, also for another communicator.  0
 * where that is not known. */
void bl_room_note_kinds(const struct bl_comm *comm, unsigned kinds);
unsigned bl_room_kinds(const struct bl_comm *comm);

/* The call is issued, and the communicator's event recorded behind it; or it never will be.  Of a launch of Beeline's while one of NCCL's is
 * still to come, as in a group, that says nothing yet. */
void bl_room_taken(struct bl_comm *comm);
void bl_room_taken_nccl(struct bl_comm *comm);

#endif
