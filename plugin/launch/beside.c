#include "beside.h"

#include <stdlib.h>

#include "base/log.h"
#include "order.h"

/* A send or receive, or what Beeline knows nothing of. */
static bool goes_on_with_others(const struct bl_turn *turn) {
    return !turn->counted || bl_collective_has(turn->request.collective, BL_PAIRED);
}

/* Kept for the next group; behind the communicator's own, which is the first. */
static bool add_stream(struct bl_beside *beside, CUstream stream) {
    if (beside->count == 0) beside->count = 1;
    for (int i = 1; i < beside->count; i++)
        if (beside->streams[i] == stream) return true;
    if (beside->count >= beside->capacity) {
        const int larger = beside->capacity ? 2 * beside->capacity : 8;
        CUstream *moved = realloc(beside->streams, (size_t)larger * sizeof *moved);
        if (!moved) return false;
        beside->streams = moved;
        beside->capacity = larger;
    }
    beside->streams[beside->count++] = stream;
    return true;
}

static bool list_streams(const struct bl_collected *calls, int count, const struct bl_turn *forwarded,
                         int forwarded_count) {
    bool listed = true;
    for (int i = 0; i < forwarded_count; i++)
        if (goes_on_with_others(&forwarded[i])) forwarded[i].comm->beside.mixed = true;
    for (int i = 0; i < count && listed; i++)
        if (calls[i].call.comm->beside.mixed) listed = add_stream(&calls[i].call.comm->beside, calls[i].call.stream);
    for (int i = 0; i < forwarded_count && listed; i++)
        if (forwarded[i].comm->beside.count) listed = add_stream(&forwarded[i].comm->beside, forwarded[i].stream);
    return listed;
}

/* Of the highest priority: the caller's streams may have it, and peers wait. */
static ncclResult_t open_stream(struct bl_comm *comm) {
    if (comm->beside.stream) return ncclSuccess;
    const CUstreamCaptureMode mode = bl_driver_relax();
    const CUresult status = bl_driver_urgent_stream(&comm->beside.stream);
    bl_driver_unrelax(mode);
    if (status == CUDA_SUCCESS) return ncclSuccess;
    comm->beside.stream = NULL;
    bl_warn("communicator %016llx rank %d: a stream beside NCCL's calls: %s", (unsigned long long)comm->id, comm->rank,
            bl_driver_strerror(status));
    return ncclUnhandledCudaError;
}

/* Another capture, which goes on, may hold the communicator's own stream: this group then does without. */
static bool is_free(const struct bl_beside *beside) {
    struct bl_order_turn own, caller;
    bl_order_ask(beside->stream, &own);
    bl_order_ask(beside->streams[1], &caller);
    return !own.capturing || (caller.capturing && caller.capture == own.capture);
}

/* The communicator's own stream goes on behind the others. */
static ncclResult_t fork_visited(struct bl_comm *comm) {
    struct bl_beside *beside = &comm->beside;
    ncclResult_t result = bl_order_check(comm, beside->streams + 1, beside->count - 1);
    if (result == ncclSuccess) result = open_stream(comm);
    if (result != ncclSuccess) return result;
    beside->streams[0] = beside->stream;
    if (!is_free(beside)) {
        beside->count = 0;
        return ncclSuccess;
    }
    result = bl_order_join(comm, beside->streams, beside->count);
    atomic_store(&beside->apart, result == ncclSuccess);
    return result;
}

static ncclResult_t fork_one(struct bl_comm *comm) {
    ncclResult_t result = ncclSuccess;
    struct bl_visit visit;
    if (bl_comm_visit(comm, &visit)) {
        result = fork_visited(comm);
        bl_comm_leave(comm, &visit);
    } else {
        comm->beside.count = 0; /* it has ended: its calls go nowhere */
    }
    return result;
}

static ncclResult_t fork_all(const struct bl_turn *forwarded, int forwarded_count) {
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < forwarded_count && result == ncclSuccess; i++) {
        struct bl_comm *comm = forwarded[i].comm;
        if (comm->beside.mixed && comm->beside.count) result = fork_one(comm);
        comm->beside.mixed = false;
    }
    return result;
}

static void give_up(const struct bl_turn *forwarded, int forwarded_count) {
    for (int i = 0; i < forwarded_count; i++) {
        forwarded[i].comm->beside.mixed = false;
        forwarded[i].comm->beside.count = 0;
        atomic_store(&forwarded[i].comm->beside.apart, false);
    }
}

ncclResult_t bl_beside_launch(struct bl_collected *calls, int count, struct bl_turn *forwarded, int forwarded_count) {
    if (!count || !forwarded_count) return ncclSuccess;
    ncclResult_t result =
        list_streams(calls, count, forwarded, forwarded_count) ? fork_all(forwarded, forwarded_count) : ncclSystemError;
    if (result != ncclSuccess) {
        give_up(forwarded, forwarded_count);
        return result;
    }
    for (int i = 0; i < forwarded_count; i++) forwarded[i].beside = forwarded[i].comm->beside.count > 0;
    for (int i = 0; i < count; i++) {
        const struct bl_beside *beside = &calls[i].call.comm->beside;
        if (!beside->count) continue;
        calls[i].beside = true;
        calls[i].call.stream = beside->stream;
    }
    return bl_fuse_launch(calls, count, true);
}
