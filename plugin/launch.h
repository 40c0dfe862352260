/* launch.h - one collective call on Beeline's route: select, order, launch. */
#ifndef BEELINE_LAUNCH_H
#define BEELINE_LAUNCH_H

#include "comm.h"

struct bl_call {
    struct bl_comm *comm;
    const void *sendbuff;
    void *recvbuff;
    struct bl_request request;
    struct bl_route route;
    CUstream stream;
};

/* Launches call->route on call->stream: the caller has selected it.  The only path of a call that makes a driver call; it
 * allocates nothing and takes no lock. */
ncclResult_t bl_launch(const struct bl_call *call);

#endif
