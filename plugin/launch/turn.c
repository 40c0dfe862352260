#include "turn.h"

#include <stdlib.h>

#include "base/log.h"
#include "order.h"
#include "real/real.h"
#include "room.h"

static _Thread_local const struct bl_comm *settling; /* by this thread */

ncclResult_t bl_turn_settled(struct bl_comm *comm) {
    ncclResult_t state = ncclSuccess;
    if (!atomic_load_explicit(&comm->pending.set, memory_order_acquire) || settling == comm) return ncclSuccess;
    if (BL_REAL(ncclCommGetAsyncError, comm->handle, &state) != ncclSuccess) return ncclSuccess; /* NCCL's to say */
    if (state == ncclInProgress) {
        bl_warn("communicator %016llx rank %d: it is used before its last call, which is nonblocking, has ended",
                (unsigned long long)comm->id, comm->rank);
        return ncclInvalidArgument;
    }
    if (state == ncclSuccess) bl_turn_settle(comm);
    return ncclSuccess;
}

ncclResult_t bl_turn_begin(struct bl_comm *comm, CUstream stream, struct bl_order_turn *turn) {
    struct bl_visit visit;
    ncclResult_t result = bl_turn_settled(comm);
    if (result != ncclSuccess || !bl_comm_visit(comm, &visit)) return result;
    bl_order_ask(stream, turn);
    if (!atomic_load(&comm->bystander)) result = bl_order_before(comm, stream, turn);
    if (result == ncclSuccess) result = bl_room_take_nccl(comm, stream, turn);
    if (result != ncclSuccess) bl_room_taken(comm);
    bl_comm_leave(comm, &visit);
    return result;
}

/* Nothing of a bystander is put in order: its event is for its room alone. */
static ncclResult_t end_turn(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn) {
    struct bl_visit visit;
    if (!bl_comm_visit(comm, &visit)) {
        bl_room_taken(comm);
        return ncclSuccess;
    }
    const bool wanted = !turn->capturing || !atomic_load(&comm->bystander);
    const ncclResult_t result = wanted ? bl_order_after(comm, stream, turn) : ncclSuccess;
    bl_room_taken(comm);
    bl_comm_leave(comm, &visit);
    return result;
}

ncclResult_t bl_turn_end(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn, ncclResult_t result) {
    struct bl_pending *pending = &comm->pending;
    if (result == ncclSuccess) return end_turn(comm, stream, turn);
    if (result != ncclInProgress) { /* the call was not made */
        bl_room_taken(comm);
        return ncclSuccess;
    }
    pthread_mutex_lock(&pending->lock);
    pending->stream = stream;
    pending->turn = *turn;
    atomic_store(&pending->set, true);
    pthread_mutex_unlock(&pending->lock);
    return ncclSuccess;
}

bool bl_turn_keep(const struct bl_collected *call) {
    struct bl_comm *comm = call->call.comm;
    struct bl_pending *pending = &comm->pending;
    if (!atomic_load(&pending->set)) return false;
    pthread_mutex_lock(&pending->lock);
    struct bl_collected *more =
        atomic_load(&pending->set) ? realloc(pending->calls, ((size_t)pending->count + 1) * sizeof(*more)) : NULL;
    if (more) {
        pending->calls = more;
        pending->calls[pending->count++] = *call;
    }
    pthread_mutex_unlock(&pending->lock);
    return more;
}

/* Two threads may have heard of it: who comes second waits until all is done. */
void bl_turn_settle(struct bl_comm *comm) {
    struct bl_pending *pending = &comm->pending;
    if (!atomic_load_explicit(&pending->set, memory_order_acquire) || settling) return;
    pthread_mutex_lock(&pending->lock);
    if (atomic_load(&pending->set)) {
        settling = comm;
        ncclResult_t result = end_turn(comm, pending->stream, &pending->turn);
        if (result == ncclSuccess && pending->count) result = bl_fuse_launch(pending->calls, pending->count);
        if (result != ncclSuccess)
            bl_comm_break(comm, result, "Beeline: calls behind a nonblocking one on rank %d of %d failed", comm->rank,
                          comm->nranks);
        free(pending->calls);
        pending->calls = NULL;
        pending->count = 0;
        settling = NULL;
        atomic_store(&pending->set, false);
    }
    pthread_mutex_unlock(&pending->lock);
}
