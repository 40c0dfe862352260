/* launch.h - one collective call, on Beeline's route or on to the real NCCL, in order with the others. */
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

/* Around a call that goes to the real NCCL, so that it takes its turn among Beeline's; `result` is what the real call, or
 * the end of its group, returned (ncclSuccess or ncclInProgress).  Nearly free while Beeline has launched nothing. */
ncclResult_t bl_forward_begin(struct bl_comm *comm, CUstream stream, struct bl_order_turn *turn);
ncclResult_t bl_forward_end(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn,
                            ncclResult_t result);

#endif
