/* collectives.c - collectives on host memory, piece by piece through the shared area.
 *
 * Every piece uses one half of the slots.  A rank that writes a half again has passed the barrier of the piece between,
 * at which everybody had done reading it: so one barrier a piece is enough.
 *
 * The root of a broadcast and the others of a reduce wait for nobody while the ring of the pair has room, as with NCCL's buffers:
 * they may be done, and gone, before their peers have come.
 */
#include <stdlib.h>
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

ncclResult_t emu_disagree(int a_rank, const struct emu_key *a, int b_rank, const struct emu_key *b) {
    return emu_fail(ncclInternalError,
                    "ranks disagree: rank %d calls %s(count %llu, %s, %s, root %d) as number %llu, rank %d calls "
                    "%s(count %llu, %s, %s, root %d) as number %llu",
                    a_rank, emu_collective_name(a->collective), (unsigned long long)a->count,
                    emu_datatype_name(a->datatype), emu_redop_name(a->redop), a->root, (unsigned long long)a->number,
                    b_rank, emu_collective_name(b->collective), (unsigned long long)b->count,
                    emu_datatype_name(b->datatype), emu_redop_name(b->redop), b->root, (unsigned long long)b->number);
}

static ncclResult_t check_keys(struct run *run) {
    const struct emu_call_note *notes = run->comm->area->notes[run->half];
    for (int r = 1; r < run->comm->nranks; r++)
        if (memcmp(&notes[0].key, &notes[r].key, sizeof notes[0].key))
            return emu_disagree(0, &notes[0].key, r, &notes[r].key);
    return ncclSuccess;
}

static void next_half(struct run *run) {
    run->half = run->comm->data_round++ & 1;
    for (int r = 0; r < run->comm->nranks; r++) run->slots[r] = emu_area_slot(run->comm, run->half, r);
}

static struct emu_call_note note_of(const struct run *run) {
    const struct emu_op *op = run->op;
    struct emu_call_note note = {
        .key = {op->count, run->comm->collectives, op->collective, op->datatype, op->redop.kind, op->peer}};
    if (op->redop.kind == EMU_PREMULSUM)
        memcpy(note.scalar, op->redop.device_scalar ? op->redop.device_scalar : op->redop.scalar, run->size);
    return note;
}

static void reduce_to(struct run *run, void *dst, const void *const *sources, size_t n) {
    const void *scalars[EMU_MAX_RANKS];
    int nranks = run->comm->nranks;
    for (int r = 0; r < nranks; r++) scalars[r] = run->comm->area->notes[run->half][r].scalar;
    emu_reduce(dst, sources, nranks, n, run->op->datatype, run->op->redop.kind, scalars);
}

static ncclResult_t meet(struct run *run) {
    run->comm->area->notes[run->half][run->comm->rank] = note_of(run);
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

/* One message a peer of the root, between it and the root. */
static struct emu_transfer message(struct run *run, int source, int destination, void *data) {
    const bool sends = source == run->comm->rank;
    return (struct emu_transfer){.note = note_of(run),
                                 .ring = emu_area_ring(run->comm, EMU_ONE_WAY, source, destination),
                                 .room = EMU_AHEAD,
                                 .sends = sends,
                                 .peer = sends ? destination : source,
                                 .data = data,
                                 .bytes = run->n * run->size};
}

static ncclResult_t broadcast(struct run *run) {
    struct emu_transfer messages[EMU_MAX_RANKS];
    const int rank = run->comm->rank, root = run->op->peer;
    int count = 0;
    if (rank != root) {
        messages[count++] = message(run, root, rank, recv_at(run, run->begin));
    } else {
        copy(recv_at(run, run->begin), send_at(run, run->begin), run->n * run->size);
        for (int r = 0; r < run->comm->nranks; r++)
            if (r != root) messages[count++] = message(run, root, r, recv_at(run, run->begin));
    }
    return emu_transfer_all(run->comm, messages, count);
}

static ncclResult_t reduce_at_root(struct run *run) {
    struct emu_transfer messages[EMU_MAX_RANKS];
    const struct emu_call_note mine = note_of(run);
    const void *sources[EMU_MAX_RANKS], *scalars[EMU_MAX_RANKS];
    const size_t bytes = run->n * run->size;
    const int nranks = run->comm->nranks, root = run->op->peer;
    unsigned char *received = malloc((size_t)nranks * bytes);
    if (!received) return emu_fail(ncclSystemError, "out of memory");
    for (int r = 0, count = 0; r < nranks; r++) {
        sources[r] = r == root ? send_at(run, run->begin) : received + (size_t)r * bytes;
        scalars[r] = r == root ? mine.scalar : messages[count].note.scalar;
        if (r != root) messages[count++] = message(run, r, root, received + (size_t)r * bytes);
    }
    ncclResult_t result = emu_transfer_all(run->comm, messages, nranks - 1);
    if (result == ncclSuccess)
        emu_reduce(recv_at(run, run->begin), sources, nranks, run->n, run->op->datatype, run->op->redop.kind, scalars);
    free(received);
    return result;
}

static ncclResult_t reduce(struct run *run) {
    const int rank = run->comm->rank, root = run->op->peer;
    if (rank == root) return reduce_at_root(run);
    struct emu_transfer only = message(run, rank, root, (unsigned char *)send_at(run, run->begin));
    return emu_transfer_all(run->comm, &only, 1);
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
        if (op->collective != EMU_BROADCAST && op->collective != EMU_REDUCE) next_half(&run);
        result = pieces[op->collective](&run);
    }
    comm->collectives++;
    return result;
}
