/* buffers.c - where a row's data lies, how it is filled, and how every byte of it is checked.
 *
 * Each allocation is GUARD bytes, the data, GUARD bytes; the row's offset moves the data into the second guard.  What
 * no call may write is poisoned before and must be poison after.
 */
#include <stdlib.h>
#include <string.h>

#include "perf.h"

enum { SHOWN = 4 }; /* wrong elements told of for one row and rank: one a check */

/* Bytes of one message: what goes with `count`, and what a rank sends and receives. */
static uint64_t block_bytes(const struct row *row) {
    return row->count * bl_datatype_size(row->datatype);
}

static uint64_t send_message(const struct rank *rank, const struct row *row) {
    return row->collective == BL_REDUCESCATTER ? block_bytes(row) * rank->nranks : block_bytes(row);
}

static uint64_t recv_message(const struct rank *rank, const struct row *row) {
    return row->collective == BL_ALLGATHER ? block_bytes(row) * rank->nranks : block_bytes(row);
}

static uint64_t larger_message(const struct rank *rank, const struct row *row) {
    uint64_t send = send_message(rank, row), recv = recv_message(rank, row);
    return send > recv ? send : recv;
}

/* In place everything lies in the recv allocation, and the smaller buffer is this rank's block of the larger. */
static CUdeviceptr in_place(const struct rank *rank, const struct row *row, int index, bool small) {
    return rank->recv + GUARD + row->offset + index * larger_message(rank, row) +
           (small ? rank->rank * block_bytes(row) : 0);
}

CUdeviceptr buffer_send(const struct rank *rank, const struct row *row, int index) {
    if (row->place == IN_PLACE) return in_place(rank, row, index, row->collective == BL_ALLGATHER);
    return rank->send + GUARD + row->offset + index * send_message(rank, row);
}

CUdeviceptr buffer_recv(const struct rank *rank, const struct row *row, int index) {
    if (row->place == IN_PLACE) return in_place(rank, row, index, row->collective == BL_REDUCESCATTER);
    return rank->recv + GUARD + row->offset + index * recv_message(rank, row);
}

/* Bytes of the recv allocation, from its data's start, that the row uses. */
static uint64_t used_bytes(const struct rank *rank, const struct row *row) {
    return row->group * (row->place == IN_PLACE ? larger_message(rank, row) : recv_message(rank, row));
}

/* From element `phase` of this rank's input on. */
static int copy_in(struct part *part, struct rank *rank, CUdeviceptr to, uint64_t phase, uint64_t bytes) {
    const struct pattern *pattern = &part->bench->pattern;
    const unsigned char *from = pattern->input[rank->rank] + phase % PATTERN_PERIOD * pattern->size;
    uint64_t step = pattern->chunk * pattern->size;

    for (uint64_t done = 0; done < bytes; done += step)
        CUDA_TRY(part, cuMemcpyHtoDAsync(to + done, from, bytes - done < step ? bytes - done : step, rank->stream));
    return 0;
}

int buffers_fill(struct part *part, const struct row *row) {
    for (int i = 0; i < part->count; i++) {
        struct rank *rank = &part->rank[i];
        uint64_t bytes = send_message(rank, row);
        CUDA_TRY(part, cuCtxSetCurrent(rank->context));
        CUDA_TRY(part, cuMemsetD8Async(rank->recv, POISON, used_bytes(rank, row) + 2 * GUARD, rank->stream));
        if (row->place == OUT_OF_PLACE)
            CUDA_TRY(part, cuMemsetD8Async(rank->send, POISON, bytes * row->group + 2 * GUARD, rank->stream));
        for (int g = 0; g < row->group; g++)
            if (copy_in(part, rank, buffer_send(rank, row, g), g * bytes / part->bench->pattern.size, bytes)) return -1;
    }
    return part_wait(part);
}

struct check {
    struct part *part;
    struct rank *rank;
    const struct row *row;
    enum side side;
    double tolerance;
};

static void tell(const struct check *c, const char *what, uint64_t wrong, uint64_t index, const unsigned char *got,
                 const unsigned char *want) {
    const struct row *row = c->row;
    uint64_t is = 0, ought = 0;
    size_t size = bl_datatype_size(row->datatype);

    memcpy(&is, got, size);
    memcpy(&ought, want, size);
    fprintf(stderr,
            "beeline-perf: rank %d: %s %s %s, count %llu, %s %s, through %s: %llu wrong, the first at %llu: "
            "0x%0*llx, should be 0x%0*llx\n",
            c->rank->rank, bl_collective_name(row->collective), bl_datatype_name(row->datatype),
            bl_redop_name(row->redop), (unsigned long long)row->count,
            row->place == IN_PLACE ? "in place" : "out of place", what,
            c->side == MEASURED ? row->route : "the baseline", (unsigned long long)wrong, (unsigned long long)index,
            (int)size * 2, (unsigned long long)is, (int)size * 2, (unsigned long long)ought);
}

/* Compares device memory with a table, from element `phase` of the table on. */
static int compare(struct check *c, const char *what, CUdeviceptr from, const unsigned char *table, uint64_t phase,
                   uint64_t count) {
    const struct pattern *pattern = &c->part->bench->pattern;
    uint64_t *total = &c->part->bench->shared->wrong[c->side][c->rank->rank];

    for (uint64_t done = 0; done < count; done += pattern->chunk) {
        uint64_t n = count - done < pattern->chunk ? count - done : pattern->chunk;
        CUDA_TRY(c->part,
                 cuMemcpyDtoHAsync(c->part->scratch, from + done * pattern->size, n * pattern->size, c->rank->stream));
        if (part_wait(c->part)) return -1;
        const unsigned char *want = table + phase % PATTERN_PERIOD * pattern->size;
        size_t first = 0;
        uint64_t wrong = pattern_count_wrong(pattern, c->part->scratch, want, n, c->tolerance, &first);
        if (wrong && *total < SHOWN)
            tell(c, what, wrong, done + first, c->part->scratch + first * pattern->size, want + first * pattern->size);
        *total += wrong;
    }
    return 0;
}

static int compare_poison(struct check *c, const char *what, CUdeviceptr from, uint64_t bytes) {
    uint64_t *total = &c->part->bench->shared->wrong[c->side][c->rank->rank];

    CUDA_TRY(c->part, cuMemcpyDtoHAsync(c->part->scratch, from, bytes, c->rank->stream));
    if (part_wait(c->part)) return -1;
    for (uint64_t i = 0; i < bytes; i++) {
        if (c->part->scratch[i] == POISON) continue;
        fprintf(stderr, "beeline-perf: rank %d: %s was written, at byte %llu of %llu, through %s\n", c->rank->rank,
                what, (unsigned long long)i, (unsigned long long)bytes,
                c->side == MEASURED ? c->row->route : "the baseline");
        ++*total;
        return 0;
    }
    return 0;
}

/* Of each message of the call, whose inputs lie one behind the other. */
static int check_result(struct check *c) {
    const struct pattern *pattern = &c->part->bench->pattern;
    const struct row *row = c->row;

    for (int g = 0; g < row->group; g++) {
        CUdeviceptr recv = buffer_recv(c->rank, row, g);
        uint64_t phase = g * send_message(c->rank, row) / pattern->size;
        if (row->collective != BL_ALLGATHER) {
            if (row->collective == BL_REDUCESCATTER) phase += c->rank->rank * row->count;
            if (compare(c, "result", recv, pattern->result, phase, row->count)) return -1;
            continue;
        }
        for (int peer = 0; peer < c->rank->nranks; peer++)
            if (compare(c, "result", recv + peer * block_bytes(row), pattern->input[peer], phase, row->count))
                return -1;
    }
    return 0;
}

int buffers_check(struct part *part, const struct row *row, enum side side) {
    const struct pattern *pattern = &part->bench->pattern;
    bool by_nccl = side == BASELINE || !strcmp(row->route, "nccl") || !strcmp(row->route, "-");

    for (int i = 0; i < part->count; i++) {
        struct rank *rank = &part->rank[i];
        struct check c = {part, rank, row, side, by_nccl ? pattern_nccl_tolerance(pattern) : 0};
        if (row->collective == BL_ALLGATHER) c.tolerance = 0;
        CUDA_TRY(part, cuCtxSetCurrent(rank->context));
        if (check_result(&c)) return -1;
        uint64_t used = used_bytes(rank, row), sent = row->group * send_message(rank, row);
        if (compare_poison(&c, "the guard before the result", rank->recv, GUARD + row->offset)) return -1;
        if (compare_poison(&c, "the guard behind the result", rank->recv + GUARD + row->offset + used,
                           GUARD - row->offset))
            return -1;
        if (row->place == IN_PLACE) continue;
        c.tolerance = 0;
        if (compare(&c, "input (which must not change)", buffer_send(rank, row, 0), pattern->input[rank->rank], 0,
                    sent / pattern->size))
            return -1;
        if (compare_poison(&c, "the guard before the input", rank->send, GUARD + row->offset)) return -1;
        if (compare_poison(&c, "the guard behind the input", rank->send + GUARD + row->offset + sent,
                           GUARD - row->offset))
            return -1;
    }
    return 0;
}
