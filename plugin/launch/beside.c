#include "beside.h"

#include "base/log.h"
#include "order.h"
#include "room.h"

/* Of the communicators that have messages of both, or collectives that are to go on beside NCCL's calls. */
static void find_mixed(const struct bl_collected *calls, int count, const struct bl_turn *forwarded,
                       int forwarded_count) {
    for (int i = 0; i < count; i++)
        if (bl_call_is_message(&calls[i].call.request)) calls[i].call.comm->beside.messages = true;
    for (int i = 0; i < forwarded_count; i++)
        if (bl_turn_by_messages(&forwarded[i]) && forwarded[i].comm->beside.messages)
            atomic_store(&forwarded[i].comm->beside.state, BL_BESIDE_MIXED);
    for (int i = 0; i < count; i++) {
        calls[i].call.comm->beside.messages = false;
        if (calls[i].when == BL_BESIDE) atomic_store(&calls[i].call.comm->beside.state, BL_BESIDE_MIXED);
    }
}

/* Of the highest priority: the caller's streams may have it, and peers wait. */
static ncclResult_t open_stream(const struct bl_comm *comm, CUstream *stream) {
    if (*stream) return ncclSuccess;
    const CUstreamCaptureMode mode = bl_driver_relax();
    const CUresult status = bl_driver_urgent_stream(stream);
    bl_driver_unrelax(mode);
    if (status == CUDA_SUCCESS) return ncclSuccess;
    *stream = NULL;
    bl_warn("communicator %016llx rank %d: a stream beside NCCL's calls: %s", (unsigned long long)comm->id, comm->rank,
            bl_driver_strerror(status));
    return ncclUnhandledCudaError;
}

/* Another capture, which goes on, may hold the stream. */
static bool is_free(CUstream own, const struct bl_order_turn *caller) {
    struct bl_order_turn turn;
    bl_order_ask(own, &turn);
    return !turn.capturing || turn.capture == caller->capture;
}

/* The communicator's own stream goes on behind the others: one that is never captured, so that eager groups go on
 * together whatever one rank captures meanwhile, or one for captured groups, of one capture at a time. */
static ncclResult_t fork_visited(struct bl_comm *comm) {
    struct bl_beside *beside = &comm->beside;
    struct bl_order_turn caller;
    bl_order_ask(beside->streams[1], &caller);
    CUstream *own = caller.capturing ? &beside->captured : &beside->eager;
    ncclResult_t result = open_stream(comm, own);
    if (result != ncclSuccess || (caller.capturing && !is_free(*own, &caller))) return result;
    beside->streams[0] = *own;
    bl_order_keep(comm, &caller);
    result = bl_order_join(comm, beside->streams, beside->count);
    if (result == ncclSuccess) atomic_store(&beside->state, BL_BESIDE_APART);
    return result;
}

/* Of one that has ended the calls go nowhere. */
static ncclResult_t fork_one(struct bl_comm *comm) {
    struct bl_visit visit;
    if (!bl_comm_visit(comm, &visit)) return ncclSuccess;
    const ncclResult_t result = fork_visited(comm);
    bl_comm_leave(comm, &visit);
    return result;
}

/* Each once; Beeline has calls on all of them. */
static ncclResult_t fork_all(const struct bl_collected *calls, int count) {
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < count && result == ncclSuccess; i++) {
        struct bl_beside *beside = &calls[i].call.comm->beside;
        if (atomic_load(&beside->state) != BL_BESIDE_MIXED) continue;
        result = fork_one(calls[i].call.comm);
        if (atomic_load(&beside->state) == BL_BESIDE_MIXED && result == ncclSuccess)
            atomic_store(&beside->state, BL_BESIDE_NONE);
    }
    return result;
}

/* As far as it can: of a capture, so that the caller can end it. */
static void rejoin(struct bl_comm *comm) {
    struct bl_visit visit;
    if (!bl_comm_visit(comm, &visit)) return;
    bl_order_fork(comm, comm->beside.streams, comm->beside.count);
    bl_comm_leave(comm, &visit);
}

static bool is_captured(struct bl_comm *comm) {
    struct bl_order_turn turn = {0};
    struct bl_visit visit;
    if (!bl_comm_visit(comm, &visit)) return false;
    bl_order_ask(comm->beside.streams[1], &turn);
    bl_comm_leave(comm, &visit);
    return turn.capturing;
}

/* Peers may have launched theirs; nothing of a capture runs, and what is wrong with a group is wrong on all ranks. */
static void give_up(const struct bl_collected *calls, int count, ncclResult_t error) {
    for (int i = 0; i < count; i++) {
        struct bl_comm *comm = calls[i].call.comm;
        const int was = atomic_exchange(&comm->beside.state, BL_BESIDE_NONE);
        if (was == BL_BESIDE_APART) rejoin(comm);
        if (was == BL_BESIDE_NONE || error == ncclInvalidUsage || is_captured(comm)) continue;
        bl_comm_break(comm, error, "Beeline: what goes on beside NCCL's calls of a group failed on rank %d of %d",
                      comm->rank, comm->nranks);
    }
}

/* Whether a kernel of NCCL's in the group may be the first of its kind in its GPU's context. */
static bool has_first_kernel(const struct bl_turn *forwarded, int forwarded_count) {
    bool first = false;
    for (int i = 0; i < forwarded_count && !first; i++)
        first = !forwarded[i].order.capturing && bl_turn_kernel(&forwarded[i]) & ~bl_room_kinds(forwarded[i].comm);
    return first;
}

ncclResult_t bl_beside_launch(struct bl_collected *calls, int count, struct bl_turn *forwarded, int forwarded_count,
                              bool wait, bool *late) {
    *late = false;
    if (!count || !forwarded_count) return ncclSuccess;
    find_mixed(calls, count, forwarded, forwarded_count);
    const ncclResult_t result = fork_all(calls, count);
    if (result != ncclSuccess) {
        give_up(calls, count, result);
        return result;
    }
    for (int i = 0; i < forwarded_count; i++)
        forwarded[i].beside = atomic_load(&forwarded[i].comm->beside.state) == BL_BESIDE_APART;
    bool behind_end = false;
    for (int i = 0; i < count; i++) {
        const struct bl_beside *beside = &calls[i].call.comm->beside;
        const bool apart = atomic_load(&beside->state) == BL_BESIDE_APART, put = calls[i].when == BL_BESIDE;
        if (put && !apart) calls[i].when = BL_BEHIND;
        if (!apart || !(put || bl_call_is_message(&calls[i].call.request))) continue;
        calls[i].when = BL_BESIDE;
        calls[i].call.stream = beside->streams[0];
        behind_end = behind_end || put;
    }
    *late = wait || behind_end || has_first_kernel(forwarded, forwarded_count);
    return *late ? ncclSuccess : bl_fuse_launch(calls, count, BL_BESIDE);
}

ncclResult_t bl_beside_launch_late(struct bl_collected *calls, int count, struct bl_turn *forwarded,
                                   int forwarded_count, bool made) {
    if (made) return bl_fuse_launch(calls, count, BL_BESIDE);
    for (int i = 0; i < count; i++) {
        struct bl_comm *comm = calls[i].call.comm;
        if (atomic_load(&comm->beside.state) == BL_BESIDE_APART) rejoin(comm);
        atomic_store(&comm->beside.state, BL_BESIDE_NONE);
    }
    for (int i = 0; i < forwarded_count; i++) forwarded[i].beside = false;
    return ncclSuccess;
}

ncclResult_t bl_beside_end(const struct bl_collected *calls, int count) {
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < count; i++) {
        struct bl_comm *comm = calls[i].call.comm;
        if (atomic_load(&comm->beside.state) != BL_BESIDE_APART || atomic_load(&comm->pending.set)) continue;
        const ncclResult_t one = bl_turn_end_beside(comm);
        if (one != ncclSuccess) result = one;
    }
    return result;
}
