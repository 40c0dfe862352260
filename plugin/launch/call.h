/* call.h - one collective call, and the route that was selected for it. */
#ifndef BEELINE_CALL_H
#define BEELINE_CALL_H

#include "comm/comm.h"

struct bl_call {
    struct bl_comm *comm;
    const void *sendbuff;
    void *recvbuff;
    bool receives; /* of one end of a message: this is the other's end, whose buffer recvbuff is */
    struct bl_request request;
    struct bl_route route;
    CUstream stream;
};

static inline uint64_t bl_call_bytes(const struct bl_request *request) {
    return request->count * bl_datatype_size(request->datatype);
}

/* A send or receive. */
static inline bool bl_call_is_message(const struct bl_request *request) {
    return bl_collective_has(request->collective, BL_PAIRED);
}

/* Whether NCCL makes messages between two ranks of it. */
static inline bool bl_call_by_messages(const struct bl_request *request) {
    return bl_call_is_message(request) || request->collective == BL_ALLTOALL;
}

/* Of a send or receive: whether both ends are this rank's. */
static inline bool bl_call_to_itself(const struct bl_call *call) {
    return call->request.root == call->comm->rank;
}

/* A collective of no elements: NCCL checks its arguments, and never looks at its stream. */
static inline bool bl_call_is_nothing(const struct bl_request *request) {
    return request->count == 0 && !bl_call_is_message(request);
}

/* Of a call with two buffers the two ends that make a round of all ranks: each sends to the next, and receives of the one before. */
static inline void bl_call_around(const struct bl_call *call, struct bl_call ends[2]) {
    const int rank = call->comm->rank, nranks = call->comm->nranks;
    ends[0] = ends[1] = *call;
    ends[0].request.root = (rank + 1) % nranks;
    ends[1].request.root = (rank + nranks - 1) % nranks;
    ends[1].receives = true;
}

/* The call on a communicator of the real NCCL's, by its function for the collective; of a message the end that it is. */
ncclResult_t bl_call_real(const struct bl_call *call, ncclComm_t handle);

/* What the real NCCL returned says that it has taken the call. */
static inline bool bl_call_made(ncclResult_t result) {
    return result == ncclSuccess || result == ncclInProgress;
}

#endif
