#include "streams.h"

#include <stdlib.h>

#include "order.h"

/* The first is the communicator's own, of mixed groups: beside.h.  Kept for the next group. */
static bool add(struct bl_beside *beside, CUstream stream) {
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

bool bl_streams_list(const struct bl_collected *calls, int count) {
    bool listed = true;
    for (int i = 0; i < count && listed; i++) listed = add(&calls[i].call.comm->beside, calls[i].call.stream);
    return listed;
}

bool bl_streams_add(struct bl_comm *comm, CUstream stream) {
    return comm->beside.count == 0 || add(&comm->beside, stream);
}

static bool has_several(const struct bl_comm *comm) {
    return comm->beside.count > 2;
}

static ncclResult_t meet(struct bl_comm *comm) {
    return bl_order_meet(comm, comm->beside.streams + 1, comm->beside.count - 1);
}

static ncclResult_t check_and_meet(struct bl_comm *comm) {
    const ncclResult_t result = bl_order_check(comm, comm->beside.streams + 1, comm->beside.count - 1);
    return result == ncclSuccess ? meet(comm) : result;
}

/* Of a communicator that has ended the calls go nowhere. */
static ncclResult_t visit(struct bl_comm *comm, ncclResult_t (*what)(struct bl_comm *comm)) {
    struct bl_visit visit;
    if (!has_several(comm) || !bl_comm_visit(comm, &visit)) return ncclSuccess;
    const ncclResult_t result = what(comm);
    bl_comm_leave(comm, &visit);
    return result;
}

/* Each communicator once. */
static ncclResult_t visit_all(const struct bl_collected *calls, int count, ncclResult_t (*what)(struct bl_comm *comm)) {
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < count; i++) calls[i].call.comm->beside.meets = true;
    for (int i = 0; i < count && result == ncclSuccess; i++) {
        struct bl_comm *comm = calls[i].call.comm;
        if (comm->beside.meets) result = visit(comm, what);
        comm->beside.meets = false;
    }
    return result;
}

ncclResult_t bl_streams_meet(const struct bl_collected *calls, int count) {
    return visit_all(calls, count, check_and_meet);
}

ncclResult_t bl_streams_after_late(struct bl_comm *comm) {
    const ncclResult_t result = visit(comm, meet);
    comm->beside.count = 0;
    return result;
}

ncclResult_t bl_streams_after(const struct bl_collected *calls, int count, bool launched) {
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < count; i++) {
        struct bl_comm *comm = calls[i].call.comm;
        if (atomic_load(&comm->beside.state) == BL_BESIDE_APART || atomic_load(&comm->pending.set)) continue;
        if (launched && result == ncclSuccess) result = bl_streams_after_late(comm);
        comm->beside.count = 0; /* once */
    }
    return result;
}
