/* call.h - one collective call, and the route that was selected for it. */
#ifndef BEELINE_CALL_H
#define BEELINE_CALL_H

#include "comm/comm.h"

struct bl_call {
    struct bl_comm *comm;
    const void *sendbuff;
    void *recvbuff;
    struct bl_request request;
    struct bl_route route;
    CUstream stream;
};

#endif
