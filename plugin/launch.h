/* launch.h - collective calls, on Beeline's route or on to the real NCCL, in order with the others. */
#ifndef BEELINE_LAUNCH_H
#define BEELINE_LAUNCH_H

#include "comm.h"
#include "order.h"

struct bl_call {
    struct bl_comm *comm;
    const void *sendbuff;
    void *recvbuff;
    struct bl_request request;
    struct bl_route route;
    CUstream stream;
};

/* Launches call->route, which the caller has selected, on call->stream, behind the communicator's earlier calls.  It
 * allocates nothing (but two events, once), takes no lock and, on one stream, makes two driver calls besides asking the
 * stream whether it is captured: the launch, and the record of an event behind it (order.h).  A message above the
 * kernel's capacity is launched in pieces. */
ncclResult_t bl_launch(const struct bl_call *call);

/* The same for several calls of one communicator that bl_fuser_add has put into one launch (at most BL_BATCH_MAX), on the
 * stream of the first; the streams of the others are joined with it before and behind the launch. */
ncclResult_t bl_launch_batch(const struct bl_call *const *calls, int count);

/* To be asked before anything of a group is launched: ncclInvalidUsage if some of the calls' streams are captured and
 * others are not, or by another capture. */
ncclResult_t bl_launch_batch_check(const struct bl_call *const *calls, int count);

/* Around a call that goes to the real NCCL, so that it takes its turn among Beeline's; `result` is what the real call, or
 * the end of its group, returned (ncclSuccess or ncclInProgress).  Nearly free while Beeline has launched nothing. */
ncclResult_t bl_forward_begin(struct bl_comm *comm, CUstream stream, struct bl_order_turn *turn);
ncclResult_t bl_forward_end(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn,
                            ncclResult_t result);

#endif
