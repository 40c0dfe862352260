/* collectives.c - collectives on host memory, piece by piece through the shared area.
 *
 * Every piece uses one half of the slots.  A rank that writes a half again has passed the barrier of the piece between,
 * at which everybody had done reading it: so one barrier a piece is enough.
 */
#include <string.h>

#include "area.h"

struct run {
    ncclComm_t comm;
    const struct emu_op *op;
    size_t size;     /* of an element */
    size_t piece;    /* elements at a time */
    size_t begin, n; /* the current piece */
    int half;
    const void *slots[EMU_MAX_RANKS];
};

static unsigned char *slot_at(struct run *run, int rank, size_t element) {
    return (unsigned char *)run->slots[rank] + element * run->size;
}

static const unsigned char *send_at(struct run *run, size_t element) {
    return (const unsigned char *)run->op->sendbuff + element * run->size;
}

static unsigned char *recv_at(struct run *run, size_t element) {
    return (unsigned char *)run->op->recvbuff + element * run->size;
}

static void copy(void *to, const void *from, size_t bytes) {
    if (to != from) memmove(to, from, bytes);
}

static ncclResult_t check_keys(struct run *run) {
    const struct emu_call_note *notes = run->comm->area->notes[run->half];
    for (int r = 1; r < run->comm->nranks; r++) {
        const struct emu_key *a = &notes[0].key, *b = &notes[r].key;
        if (memcmp(a, b, sizeof *a) == 0) continue;
        return emu_fail(
            ncclInternalError,
            "ranks disagree: rank 0 calls %s(count %llu, %s, %s, root %d), rank %d calls %s(count %llu, %s, %s, "
            "root %d)",
            emu_collective_name(a->collective), (unsigned long long)a->count, emu_datatype_name(a->datatype),
            emu_redop_name(a->redop), a->root, r, emu_collective_name(b->collective), (unsigned long long)b->count,
            emu_datatype_name(b->datatype), emu_redop_name(b->redop), b->root);
    }
    return ncclSuccess;
}

static void next_half(struct run *run) {
    run->half = run->comm->data_round++ & 1;
    for (int r = 0; r < run->comm->nranks; r++) run->slots[r] = emu_area_slot(run->comm, run->half, r);
}

static void say_note(struct run *run) {
    const struct emu_op *op = run->op;
    struct emu_call_note *note = &run->comm->area->notes[run->half][run->comm->rank];
    note->key = (struct emu_key){op->count, op->collective, op->datatype, op->redop.kind, op->peer};
    if (op->redop.kind == EMU_PREMULSUM)
        memcpy(note->scalar, op->redop.device_scalar ? op->redop.device_scalar : op->redop.scalar, run->size);
}

static void reduce_to(struct run *run, void *dst, const void *const *sources, size_t n) {
    const void *scalars[EMU_MAX_RANKS];
    int nranks = run->comm->nranks;
    for (int r = 0; r < nranks; r++) scalars[r] = run->comm->area->notes[run->half][r].scalar;
    emu_reduce(dst, sources, nranks, n, run->op->datatype, run->op->redop.kind, scalars);
}

static ncclResult_t meet(struct run *run) {
    ncclResult_t result = emu_area_barrier(run->comm);
    return result != ncclSuccess ? result : check_keys(run);
}

/* Each rank reduces its share of the piece in place, then all shares are collected. */
static size_t share(struct run *run, int rank) {
    return run->n * (size_t)rank / (size_t)run->comm->nranks;
}

static ncclResult_t allreduce(struct run *run) {
    int rank = run->comm->rank, nranks = run->comm->nranks;
    size_t first = share(run, rank), n = share(run, rank + 1) - first;
    const void *sources[EMU_MAX_RANKS];
    memcpy(slot_at(run, rank, 0), send_at(run, run->begin), run->n * run->size);
    ncclResult_t result = meet(run);
    if (result != ncclSuccess) return result;
    for (int r = 0; r < nranks; r++) sources[r] = slot_at(run, r, first);
    reduce_to(run, slot_at(run, rank, first), sources, n);
    if ((result = emu_area_barrier(run->comm)) != ncclSuccess) return result;
    for (int r = 0; r < nranks; r++) {
        size_t at = share(run, r);
        memcpy(recv_at(run, run->begin + at), slot_at(run, r, at), (share(run, r + 1) - at) * run->size);
    }
    return ncclSuccess;
}

static ncclResult_t reduce(struct run *run) {
    memcpy(slot_at(run, run->comm->rank, 0), send_at(run, run->begin), run->n * run->size);
    ncclResult_t result = meet(run);
    if (result == ncclSuccess && run->comm->rank == run->op->peer)
        reduce_to(run, recv_at(run, run->begin), run->slots, run->n);
    return result;
}

static ncclResult_t reduce_scatter(struct run *run) {
    int rank = run->comm->rank, nranks = run->comm->nranks;
    const void *sources[EMU_MAX_RANKS];
    for (int r = 0; r < nranks; r++)
        memcpy(slot_at(run, rank, (size_t)r * run->n), send_at(run, (size_t)r * run->op->count + run->begin),
               run->n * run->size);
    ncclResult_t result = meet(run);
    if (result != ncclSuccess) return result;
    for (int r = 0; r < nranks; r++) sources[r] = slot_at(run, r, (size_t)rank * run->n);
    reduce_to(run, recv_at(run, run->begin), sources, run->n);
    return ncclSuccess;
}

static ncclResult_t allgather(struct run *run) {
    memcpy(slot_at(run, run->comm->rank, 0), send_at(run, run->begin), run->n * run->size);
    ncclResult_t result = meet(run);
    for (int r = 0; r < run->comm->nranks && result == ncclSuccess; r++)
        memcpy(recv_at(run, (size_t)r * run->op->count + run->begin), slot_at(run, r, 0), run->n * run->size);
    return result;
}

static ncclResult_t broadcast(struct run *run) {
    int root = run->op->peer;
    bool is_root = run->comm->rank == root;
    if (is_root) memcpy(slot_at(run, root, 0), send_at(run, run->begin), run->n * run->size);
    ncclResult_t result = meet(run);
    if (result == ncclSuccess)
        copy(recv_at(run, run->begin), is_root ? send_at(run, run->begin) : slot_at(run, root, 0), run->n * run->size);
    return result;
}

static ncclResult_t (*const pieces[EMU_COLLECTIVES])(struct run *) = {
    [EMU_ALLREDUCE] = allreduce, [EMU_ALLGATHER] = allgather, [EMU_REDUCESCATTER] = reduce_scatter,
    [EMU_BROADCAST] = broadcast, [EMU_REDUCE] = reduce,
};

ncclResult_t emu_run_collective(ncclComm_t comm, const struct emu_op *op) {
    struct run run = {.comm = comm, .op = op, .size = emu_datatype_size(op->datatype)};
    size_t blocks = op->collective == EMU_REDUCESCATTER ? (size_t)comm->nranks : 1; /* that share one slot */
    ncclResult_t result = ncclSuccess;
    run.piece = EMU_CHUNK / run.size / blocks;
    for (run.begin = 0; run.begin < op->count && result == ncclSuccess; run.begin += run.n) {
        run.n = op->count - run.begin < run.piece ? op->count - run.begin : run.piece;
        next_half(&run);
        say_note(&run);
        result = pieces[op->collective](&run);
    }
    return result;
}
