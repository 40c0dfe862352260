#include "turn.h"

#include <stdlib.h>

#include "base/log.h"
#include "comm/stats.h"
#include "order.h"
#include "real/real.h"
#include "room.h"
#include "streams.h"

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
    bl_turn_settle(comm, state);
    return bl_comm_check(comm);
}

ncclResult_t bl_turn_begin(struct bl_turn *turn) {
    struct bl_comm *comm = turn->comm;
    struct bl_visit visit;
    ncclResult_t result = bl_turn_settled(comm);
    if (result != ncclSuccess || !bl_comm_visit(comm, &visit)) return result;
    bl_order_ask(turn->stream, &turn->order);
    if (!atomic_load(&comm->shares_room)) result = bl_order_before(comm, turn->stream, &turn->order);
    if (result == ncclSuccess) result = bl_room_take_nccl(comm, turn->stream, &turn->order);
    if (result != ncclSuccess) bl_room_taken_nccl(comm);
    bl_comm_leave(comm, &visit);
    return result;
}

/* The callers' streams wait for each other, and for the communicator's own, which is behind them whenever it is used. */
static ncclResult_t join_streams(struct bl_comm *comm) {
    const struct bl_beside *beside = &comm->beside;
    const ncclResult_t result = bl_order_meet(comm, beside->streams + 1, beside->count - 1);
    return result == ncclSuccess ? bl_order_fork(comm, beside->streams, beside->count) : result;
}

ncclResult_t bl_turn_again(const struct bl_turn *turn) {
    struct bl_comm *comm = turn->comm;
    struct bl_visit visit;
    if (turn->follows || !comm->in_order || !bl_comm_visit(comm, &visit)) return ncclSuccess;
    const ncclResult_t result = bl_room_take_nccl(comm, turn->stream, &turn->order);
    bl_comm_leave(comm, &visit);
    return result;
}

/* Once.  Where they cannot, what comes would go on beside it, too. */
static ncclResult_t join_beside(const struct bl_turn *turn) {
    struct bl_comm *comm = turn->comm;
    if (atomic_load(&comm->beside.state) != BL_BESIDE_APART) return ncclSuccess;
    const ncclResult_t result = join_streams(comm);
    comm->beside.count = 0;
    atomic_store(&comm->beside.state, BL_BESIDE_NONE);
    if (result != ncclSuccess && !turn->order.capturing) {
        bl_comm_break(comm, result, "Beeline: streams of a group on rank %d of %d could not be joined", comm->rank,
                      comm->nranks);
        bl_comm_tell_to_leave(comm);
    }
    return result;
}

void bl_turn_count(struct bl_comm *comm, const struct bl_request *request, enum bl_reason why) {
    struct bl_visit visit;
    if (!comm->stats || !bl_comm_visit(comm, &visit)) return;
    bl_stats_count(comm, request, bl_stats_nccl(why));
    bl_comm_leave(comm, &visit);
}

/* Of a call that is on its stream.  Nothing of one that only shares room is put in order: its event is for its room alone. */
static ncclResult_t end_turn(const struct bl_turn *turn) {
    struct bl_comm *comm = turn->comm;
    struct bl_visit visit;
    ncclResult_t result = ncclSuccess;
    const bool lives = bl_comm_visit(comm, &visit);
    if (lives && turn->beside) result = join_beside(turn);
    if (lives && result == ncclSuccess && (!turn->order.capturing || !atomic_load(&comm->shares_room)))
        result = bl_order_after(comm, turn->stream, &turn->order);
    bl_room_taken_nccl(comm);
    if (lives) bl_comm_leave(comm, &visit);
    return result;
}

ncclResult_t bl_turn_end_beside(struct bl_comm *comm) {
    struct bl_turn turn = {.comm = comm, .stream = comm->beside.streams[1], .beside = true};
    struct bl_visit visit;
    if (!bl_comm_visit(comm, &visit)) return ncclSuccess;
    bl_order_ask(turn.stream, &turn.order);
    bl_comm_leave(comm, &visit);
    return end_turn(&turn);
}

/* Only the last of a communicator's is kept. */
static void keep_turn(const struct bl_turn *turn) {
    struct bl_pending *pending = &turn->comm->pending;
    pthread_mutex_lock(&pending->lock);
    pending->stream = turn->stream;
    pending->turn = turn->order;
    pending->beside = turn->beside;
    atomic_store(&pending->set, true);
    pthread_mutex_unlock(&pending->lock);
}

/* What Beeline has beside it is launched, for peers that have both; this rank has not.  Nothing of a capture runs yet. */
static void refuse_turn(const struct bl_turn *turn, ncclResult_t error) {
    struct bl_comm *comm = turn->comm;
    struct bl_visit visit;
    if (turn->beside && bl_comm_visit(comm, &visit)) {
        if (!turn->order.capturing) {
            bl_comm_break(comm, error,
                          "Beeline: NCCL ended a group on rank %d of %d with an error (%s), and a part of it runs",
                          comm->rank, comm->nranks, BL_REAL(ncclGetErrorString, error));
            bl_comm_tell_to_leave(comm);
        }
        if (join_beside(turn) == ncclSuccess) bl_order_after(comm, turn->stream, &turn->order);
        bl_comm_leave(comm, &visit);
    }
    bl_room_taken_nccl(comm);
}

/* Now, or when NCCL has launched them. */
static void note_kinds(struct bl_comm *comm, unsigned kinds, ncclResult_t result) {
    if (result == ncclSuccess) bl_room_note_kinds(comm, kinds);
    if (result == ncclInProgress) atomic_fetch_or(&comm->pending.kinds, kinds);
}

ncclResult_t bl_turn_end(const struct bl_turn *turn, ncclResult_t result) {
    if (bl_call_made(result) && turn->counted) bl_turn_count(turn->comm, &turn->request, turn->why);
    if (turn->counted && !turn->order.capturing) note_kinds(turn->comm, bl_turn_kernel(turn), result);
    if (turn->follows) return ncclSuccess;
    if (result == ncclSuccess) return end_turn(turn);
    if (result == ncclInProgress)
        keep_turn(turn);
    else
        refuse_turn(turn, result);
    return ncclSuccess;
}

bool bl_turn_keep(const struct bl_collected *call) {
    struct bl_pending *pending = &call->call.comm->pending;
    pthread_mutex_lock(&pending->lock);
    struct bl_collected *more = realloc(pending->calls, ((size_t)pending->count + 1) * sizeof(*more));
    if (more) {
        pending->calls = more;
        pending->calls[pending->count++] = *call;
    }
    pthread_mutex_unlock(&pending->lock);
    return more;
}

/* Two threads may have heard of it: who comes second waits until all is done. */
void bl_turn_settle(struct bl_comm *comm, ncclResult_t state) {
    struct bl_pending *pending = &comm->pending;
    if (!atomic_load_explicit(&pending->set, memory_order_acquire) || settling) return;
    pthread_mutex_lock(&pending->lock);
    if (atomic_load(&pending->set)) {
        const struct bl_turn turn = {
            .comm = comm, .stream = pending->stream, .order = pending->turn, .beside = pending->beside};
        settling = comm;
        note_kinds(comm, atomic_exchange(&pending->kinds, 0), state);
        ncclResult_t result = bl_turn_end(&turn, state);
        if (state == ncclSuccess && result == ncclSuccess && pending->count)
            result = bl_fuse_launch(pending->calls, pending->count, BL_BEHIND);
        if (state == ncclSuccess && result == ncclSuccess) result = bl_streams_after_late(comm);
        comm->beside.count = 0;                                     /* of what was not launched, too */
        if (state != ncclSuccess && pending->count) result = state; /* peers may have made those calls */
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
