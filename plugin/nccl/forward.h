/* forward.h - what goes around a call that the real NCCL serves and that puts work on a stream.
 *
 * Threads: any, one at a time per communicator.  Unknown communicators are fine: nothing is done for them, nor for what the
 * real NCCL calls itself (ncclBcast is its ncclBroadcast), which is a part of that call's turn.
 */
#ifndef BEELINE_FORWARD_H
#define BEELINE_FORWARD_H

#include "nccl.h"

struct bl_comm;
struct bl_call;
struct bl_forward; /* the forwarded call that this thread is in */

/* Before the real call: an error is the caller's result, and the real call is not made. *forward is for bl_forward_after. */
ncclResult_t bl_forward_before(struct bl_forward **forward, ncclComm_t comm, cudaStream_t stream);

/* The same for a communicator that has been looked up, NULL if it is unknown; and the call if Beeline could have served it,
 * else NULL.  An error is for the caller to tell the group that is open. */
ncclResult_t bl_forward_known(struct bl_forward **forward, struct bl_comm *comm, cudaStream_t stream,
                              const struct bl_call *call);

/* A call that the open group has collected, and counted, has been made to the real NCCL after all, between bl_forward_known and this. */
ncclResult_t bl_forward_collected(const struct bl_forward *forward, ncclResult_t result);

/* After the real call, on the same thread; returns its result. */
ncclResult_t bl_forward_after(const struct bl_forward *forward, ncclResult_t result);

/* The same for one that puts nothing on a stream; and before such a one that NCCL does at a group's end, ahead of the group's calls. */
ncclResult_t bl_forward_plain(ncclResult_t result);
void bl_forward_preparing(void);

#endif
