/* buffers.c - where a row's data lies, how it is filled, and how every byte of it is checked.
 *
 * Each allocation is GUARD bytes, the data, GUARD bytes; the row's offset moves the data into the second guard.  What
 * no call may write is poisoned before and must be poison after.
 */
#include <stdlib.h>
#include <string.h>

#include "perf.h"

enum { SHOWN = 4 }; /* wrong elements told of for one row and rank: one a check */

/* Bytes of the data that a rank sends and receives, and where the two lie in place.  The messages of a group are one
 * range to fill and to check: only all-reduce is grouped, which treats every element alike. */
static uint64_t elements_of_call(const struct row *row) {
    return row->count * row->group;
}

static uint64_t bytes_of_call(const struct row *row) {
    return elements_of_call(row) * bl_datatype_size(row->datatype);
}

static uint64_t send_bytes(const struct rank *rank, const struct row *row) {
    return row->collective == BL_REDUCESCATTER ? bytes_of_call(row) * rank->nranks : bytes_of_call(row);
}

static uint64_t recv_bytes(const struct rank *rank, const struct row *row) {
    return row->collective == BL_ALLGATHER ? bytes_of_call(row) * rank->nranks : bytes_of_call(row);
}

/* In place everything lies in the recv allocation, and the smaller buffer is this rank's block of the larger. */
static CUdeviceptr block(const struct rank *rank, const struct row *row, bool small) {
    return rank->recv + GUARD + row->offset + (small ? rank->rank * bytes_of_call(row) : 0);
}

CUdeviceptr buffer_send(const struct rank *rank, const struct row *row) {
    if (row->place == IN_PLACE) return block(rank, row, row->collective == BL_ALLGATHER);
    return rank->send + GUARD + row->offset;
}

CUdeviceptr buffer_recv(const struct rank *rank, const struct row *row) {
    if (row->place == IN_PLACE) return block(rank, row, row->collective == BL_REDUCESCATTER);
    return rank->recv + GUARD + row->offset;
}

/* Bytes of the recv allocation, from its data's start, that the row uses. */
static uint64_t used_bytes(const struct rank *rank, const struct row *row) {
    uint64_t send = send_bytes(rank, row), recv = recv_bytes(rank, row);
    return row->place == IN_PLACE && send > recv ? send : recv;
}

static int copy_in(struct part *part, struct rank *rank, CUdeviceptr to, uint64_t bytes) {
    const struct pattern *pattern = &part->bench->pattern;
    uint64_t step = pattern->chunk * pattern->size;

    for (uint64_t done = 0; done < bytes; done += step)
        CUDA_TRY(part, cuMemcpyHtoDAsync(to + done, pattern->input[rank->rank],
                                         bytes - done < step ? bytes - done : step, rank->stream));
    return 0;
}

int buffers_fill(struct part *part, const struct row *row) {
    for (int i = 0; i < part->count; i++) {
        struct rank *rank = &part->rank[i];
        CUDA_TRY(part, cuCtxSetCurrent(rank->context));
        CUDA_TRY(part, cuMemsetD8Async(rank->recv, POISON, used_bytes(rank, row) + 2 * GUARD, rank->stream));
        if (row->place == OUT_OF_PLACE)
            CUDA_TRY(part, cuMemsetD8Async(rank->send, POISON, send_bytes(rank, row) + 2 * GUARD, rank->stream));
        if (copy_in(part, rank, buffer_send(rank, row), send_bytes(rank, row))) return -1;
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

static int check_result(struct check *c) {
    const struct pattern *pattern = &c->part->bench->pattern;
    const struct row *row = c->row;
    CUdeviceptr recv = buffer_recv(c->rank, row);

    if (row->collective == BL_ALLGATHER) {
        for (int peer = 0; peer < c->rank->nranks; peer++)
            if (compare(c, "result", recv + peer * bytes_of_call(row), pattern->input[peer], 0, row->count)) return -1;
        return 0;
    }
    uint64_t phase = row->collective == BL_REDUCESCATTER ? c->rank->rank * row->count : 0;
    return compare(c, "result", recv, pattern->result, phase, elements_of_call(row));
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
        uint64_t used = used_bytes(rank, row), sent = send_bytes(rank, row);
        if (compare_poison(&c, "the guard before the result", rank->recv, GUARD + row->offset)) return -1;
        if (compare_poison(&c, "the guard behind the result", rank->recv + GUARD + row->offset + used,
                           GUARD - row->offset))
            return -1;
        if (row->place == IN_PLACE) continue;
        c.tolerance = 0;
        if (compare(&c, "input (which must not change)", buffer_send(rank, row), pattern->input[rank->rank], 0,
                    sent / pattern->size))
            return -1;
        if (compare_poison(&c, "the guard before the input", rank->send, GUARD + row->offset)) return -1;
        if (compare_poison(&c, "the guard behind the input", rank->send + GUARD + row->offset + sent,
                           GUARD - row->offset))
            return -1;
    }
    return 0;
}
