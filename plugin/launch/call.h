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

/* For the statistics: it went to this kernel, or to NCCL (BL_KERNELS).  In a visit, for which teardown waits. */
static inline void bl_call_count(struct bl_comm *comm, const struct bl_request *request, int row) {
    comm->calls[row]++;
    comm->bytes[row] += bl_call_bytes(request);
}

/* What the real NCCL returned says that it has taken the call. */
static inline bool bl_call_made(ncclResult_t result) {
    return result == ncclSuccess || result == ncclInProgress;
}

#endif
