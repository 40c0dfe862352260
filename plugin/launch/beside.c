#include "beside.h"

#include "base/log.h"
#include "order.h"

/* A send or receive, or what Beeline knows nothing of. */
static bool goes_on_with_others(const struct bl_turn *turn) {
    return !turn->counted || bl_collective_has(turn->request.collective, BL_PAIRED);
}

static bool is_mixed(const struct bl_comm *comm, const struct bl_turn *forwarded, int forwarded_count) {
    for (int i = 0; i < forwarded_count; i++)
        if (forwarded[i].comm == comm && goes_on_with_others(&forwarded[i])) return true;
    return false;
}

/* The communicator's stream behind the caller's, or that behind it. */
static ncclResult_t link(struct bl_comm *comm, CUstream stream, bool fork) {
    const CUstream streams[] = {comm->order.side, stream};
    return fork ? bl_order_join(comm, streams, 2) : bl_order_fork(comm, streams, 2);
}

static ncclResult_t open_side(struct bl_comm *comm) {
    if (comm->order.side) return ncclSuccess;
    const CUstreamCaptureMode mode = bl_driver_relax();
    const CUresult status = bl_driver()->cuStreamCreate(&comm->order.side, CU_STREAM_NON_BLOCKING);
    bl_driver_unrelax(mode);
    if (status == CUDA_SUCCESS) return ncclSuccess;
    comm->order.side = NULL;
    bl_warn("communicator %016llx rank %d: a stream beside NCCL's calls (cuStreamCreate): %s",
            (unsigned long long)comm->id, comm->rank, bl_driver_strerror(status));
    return ncclUnhandledCudaError;
}

/* Whether an earlier one of these calls is on the communicator, and, with `stream`, on that. */
static bool seen(const struct bl_collected *calls, int count, const struct bl_comm *comm, const CUstream *stream) {
    for (int i = 0; i < count; i++)
        if (calls[i].call.comm == comm && (!stream || calls[i].own == *stream)) return true;
    return false;
}

static ncclResult_t fork_one(struct bl_collected *calls, int at, const struct bl_turn *forwarded, int forwarded_count) {
    struct bl_collected *collected = &calls[at];
    struct bl_comm *comm = collected->call.comm;
    const bool first = !seen(calls, at, comm, NULL), linked = seen(calls, at, comm, &collected->call.stream);
    struct bl_visit visit;
    if (!bl_comm_visit(comm, &visit)) return ncclSuccess; /* it has ended: the launch says so */
    ncclResult_t result = open_side(comm);
    if (result == ncclSuccess && !linked) result = link(comm, collected->call.stream, true);
    for (int i = 0; i < forwarded_count && result == ncclSuccess && first; i++)
        if (forwarded[i].comm == comm) result = link(comm, forwarded[i].stream, true);
    if (comm->order.side) {
        collected->own = collected->call.stream;
        collected->call.stream = comm->order.side;
        collected->beside = true;
    }
    bl_comm_leave(comm, &visit);
    return result;
}

ncclResult_t bl_beside_launch(struct bl_collected *calls, int count, const struct bl_turn *forwarded,
                              int forwarded_count) {
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < count && result == ncclSuccess; i++)
        if (is_mixed(calls[i].call.comm, forwarded, forwarded_count))
            result = fork_one(calls, i, forwarded, forwarded_count);
    return result == ncclSuccess ? bl_fuse_launch(calls, count, true) : result;
}

bool bl_beside(const struct bl_collected *calls, int count, const struct bl_comm *comm) {
    for (int i = 0; i < count; i++)
        if (calls[i].call.comm == comm) return calls[i].beside;
    return false;
}

ncclResult_t bl_beside_join(struct bl_collected *calls, int count, const struct bl_turn *forwarded,
                            int forwarded_count) {
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < count; i++) {
        struct bl_comm *comm = calls[i].call.comm;
        struct bl_visit visit;
        if (!calls[i].beside) continue;
        if (!bl_comm_visit(comm, &visit)) continue;
        const bool first = !seen(calls, i, comm, NULL);
        ncclResult_t one = seen(calls, i, comm, &calls[i].own) ? ncclSuccess : link(comm, calls[i].own, false);
        for (int k = 0; k < forwarded_count && one == ncclSuccess && first; k++)
            if (forwarded[k].comm == comm) one = link(comm, forwarded[k].stream, false);
        bl_comm_leave(comm, &visit);
        if (one != ncclSuccess) result = one;
    }
    return result;
}
