/* room.h - communicators share their GPU's multiprocessors without keeping each other out.
 *
 * A kernel of a collective waits for its peers, so one that finds no room on one GPU, while others that fill it wait for
 * what is behind it on another, is the end of a job.  NCCL's kernels take few multiprocessors, so that takes many of its
 * communicators; Beeline's launches may take all.  The rule, for each GPU:
 *
 *   A launch fits beside what may be in flight on the other communicators, or it is behind all of that.
 *
 * Why no job hangs whose ranks issue their calls in one order: suppose that nothing goes on, and take, of the calls that have not
 * ended and are behind nothing that has not (their stream, their communicator, what they were chained to: all that was issued
 * before), the first of Beeline's.  On each GPU NCCL's kernels leave it a multiprocessor, and what else of Beeline's is resident was
 * launched while it was in flight, hence fits beside it, or is a replay, and those leave a few places.  So it has a place on every
 * GPU, and one place is enough: no block waits for a later one of its grid, on this GPU or another (crews.cuh: those that send are first,
 * and never wait).  So it ends.  Where only NCCL's calls are left, all is as with NCCL alone.
 *
 * What fits: two of Beeline's blocks are resident on a multiprocessor (BL_KERNEL).  Kernels of NCCL need whole ones; while
 * one may be in flight, a quarter of the multiprocessors is left to them, however Beeline's blocks are spread.  And while launches
 * of Beeline's may be in flight, or graphs hold some, no more communicators have kernels of NCCL than leave a multiprocessor free (4
 * on an H200): a further one is behind all of them.  Else it takes NCCL's kernels of five communicators on one GPU, and one wide launch on
 * another, which does not leave them a whole multiprocessor, to keep each other out for good.  A launch that does
 * not find room for all of its blocks has fewer: as many as leave room for three more of the width of NCCL's kernels, or that
 * width, or what there is; only where next to nothing is, it is chained.  So ranks that issue in different orders (threads with a communicator
 * each), to which NCCL promises nothing, live as they do with NCCL: dozens of communicators are never chained.
 * Captured launches are in flight whenever their graph is replayed, which nobody tells: they hold their room for good.
 *
 * With NCCL_LAUNCH_ORDER_IMPLICIT=1 each call, NCCL's, too, is behind all earlier ones of its GPU.
 *
 * Threads: any; a lock is held for a look at the other communicators' events, never for a call that may wait.
 */
#ifndef BEELINE_ROOM_H
#define BEELINE_ROOM_H

#include "order.h"

/* The communicator comes to its context's GPU, with the events of order.h, which are bl_room's until bl_room_leave: other
 * threads look at them.  0, or -1 if there is no memory. */
int bl_room_enter(struct bl_comm *comm);
void bl_room_leave(struct bl_comm *comm);

/* A launch of at most *blocks on `stream`: says how many there is room for, or puts it behind what is in the way. `fixed`:
 * ranks rely on the number, so it stays.  To be followed by bl_room_taken, whatever happens. */
ncclResult_t bl_room_take(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn, bool fixed,
                          unsigned *blocks);

/* The same for a call of the real NCCL's, which is made in any case. */
ncclResult_t bl_room_take_nccl(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn);

/* The call is issued, and the communicator's event recorded behind it; or it never will be. */
void bl_room_taken(struct bl_comm *comm);

#endif
