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

static inline uint64_t bl_call_bytes(const struct bl_request *request) {
    return request->count * bl_datatype_size(request->datatype);
}

/* What the real NCCL returned says that it has taken the call. */
static inline bool bl_call_made(ncclResult_t result) {
    return result == ncclSuccess || result == ncclInProgress;
}

#endif
