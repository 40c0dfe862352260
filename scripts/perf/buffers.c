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

static bool has(const struct row *row, int traits) {
    return collective_has(row->collective, traits);
}

static uint64_t send_message(const struct rank *rank, const struct row *row) {
    return block_bytes(row) * (has(row, BL_SCATTERS) ? rank->nranks : 1);
}

static uint64_t recv_message(const struct rank *rank, const struct row *row) {
    return block_bytes(row) * (has(row, BL_GATHERS) ? rank->nranks : 1);
}

static uint64_t larger_message(const struct rank *rank, const struct row *row) {
    uint64_t send = send_message(rank, row), recv = recv_message(rank, row);
    return send > recv ? send : recv;
}

/* In place everything lies in the recv allocation, and the smaller buffer is this rank's block of the larger. */
static CUdeviceptr in_place(const struct rank *rank, const struct row *row, int index, uint64_t message) {
    uint64_t larger = larger_message(rank, row);
    return rank->recv + GUARD + row->offset + index * larger + (message < larger ? rank->rank * message : 0);
}

CUdeviceptr buffer_send(const struct rank *rank, const struct row *row, int index) {
    if (row->place == IN_PLACE) return in_place(rank, row, index, send_message(rank, row));
    return rank->send + GUARD + row->offset + index * send_message(rank, row);
}

CUdeviceptr buffer_recv(const struct rank *rank, const struct row *row, int index) {
    if (row->place == IN_PLACE) return in_place(rank, row, index, recv_message(rank, row));
    return rank->recv + GUARD + row->offset + index * recv_message(rank, row);
}

/* Bytes of the recv allocation, from its data's start, that the row uses. */
static uint64_t used_bytes(const struct rank *rank, const struct row *row) {
    return row->group * (row->place == IN_PLACE ? larger_message(rank, row) : recv_message(rank, row));
}

/* Of collectives with a root, the other ranks have no part in what is sent, or in what is got; nor does every rank get a message. */
static bool is_left_out(const struct rank *rank, const struct row *row, bool of_result) {
    if (has(row, BL_PAIRED)) return of_result && row_sender(rank, row) < 0;
    return has(row, BL_ROOTED) && has(row, BL_REDUCES | BL_GATHERS) == of_result && rank->rank != row->root;
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
        else if (is_left_out(rank, row, false))
            continue; /* the result's buffer and no input: poison shows what was not written */
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
            c->rank->rank, collective_name(row->collective), bl_datatype_name(row->datatype), row_redop_name(row),
            (unsigned long long)row->count, row->place == IN_PLACE ? "in place" : "out of place", what,
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
    uint64_t step = 1 << 20;

    for (uint64_t done = 0; done < bytes; done += step) {
        uint64_t n = bytes - done < step ? bytes - done : step, i = 0;
        CUDA_TRY(c->part, cuMemcpyDtoHAsync(c->part->scratch, from + done, n, c->rank->stream));
        if (part_wait(c->part)) return -1;
        while (i < n && c->part->scratch[i] == POISON) i++;
        if (i == n) continue;
        fprintf(stderr, "beeline-perf: rank %d: %s was written, at byte %llu of %llu, through %s\n", c->rank->rank,
                what, (unsigned long long)(done + i), (unsigned long long)bytes,
                c->side == MEASURED ? c->row->route : "the baseline");
        ++*total;
        return 0;
    }
    return 0;
}

/* `bytes` from `from` on, but for this rank's block there, if it has one: poison still. */
static int check_around(struct check *c, const char *what, CUdeviceptr from, uint64_t bytes) {
    const uint64_t block = block_bytes(c->row), before = c->rank->rank * block;

    if (bytes == block) return 0;
    return compare_poison(c, what, from, before) ||
           compare_poison(c, what, from + before + block, bytes - before - block);
}

/* Of a rank that gets no result: poison still, and in place the input, from element `phase` on. */
static int check_untouched(struct check *c, int index, uint64_t phase) {
    const char *what =
        has(c->row, BL_PAIRED) ? "recvbuff of a rank without a message" : "recvbuff of a rank that is not the root";
    const CUdeviceptr recv = buffer_recv(c->rank, c->row, index);
    const uint64_t bytes = recv_message(c->rank, c->row);
    double tolerance = c->tolerance;

    if (c->row->place == OUT_OF_PLACE) return compare_poison(c, what, recv, bytes);
    c->tolerance = 0;
    int error = compare(c, what, buffer_send(c->rank, c->row, index), c->part->bench->pattern.input[c->rank->rank],
                        phase, c->row->count);
    c->tolerance = tolerance;
    return error || check_around(c, what, recv, bytes) ? -1 : 0;
}

/* Whose input a block of the result is. */
static int sender_of(const struct rank *rank, const struct row *row, int block) {
    if (has(row, BL_PAIRED)) return row_sender(rank, row);
    return has(row, BL_ROOTED) && !has(row, BL_GATHERS) ? row->root : block;
}

/* A message of the call; their inputs lie one behind the other. */
static int check_message(struct check *c, int index) {
    const struct pattern *pattern = &c->part->bench->pattern;
    const struct row *row = c->row;
    CUdeviceptr recv = buffer_recv(c->rank, row, index);
    uint64_t phase = index * send_message(c->rank, row) / pattern->size;

    if (is_left_out(c->rank, row, true)) return check_untouched(c, index, phase);
    if (has(row, BL_SCATTERS)) phase += c->rank->rank * row->count;
    for (int block = 0; block < (has(row, BL_GATHERS) ? c->rank->nranks : 1); block++) {
        const unsigned char *want =
            has(row, BL_REDUCES) ? pattern->result : pattern->input[sender_of(c->rank, row, block)];
        if (compare(c, "result", recv + block * block_bytes(row), want, phase, row->count)) return -1;
    }
    if (row->place == IN_PLACE && is_left_out(c->rank, row, false)) /* what it would send from lies around the result */
        return check_around(c, "sendbuff of a rank that is not the root", buffer_send(c->rank, row, index),
                            send_message(c->rank, row));
    return 0;
}

int buffers_check(struct part *part, const struct row *row, enum side side) {
    const struct pattern *pattern = &part->bench->pattern;
    bool by_nccl = side == BASELINE || !api_serves(row->route);

    for (int i = 0; i < part->count; i++) {
        struct rank *rank = &part->rank[i];
        struct check c = {part, rank, row, side, by_nccl ? pattern_nccl_tolerance(pattern) : 0};
        if (!has(row, BL_REDUCES)) c.tolerance = 0;
        CUDA_TRY(part, cuCtxSetCurrent(rank->context));
        for (int g = 0; g < row->group; g++)
            if (check_message(&c, g)) return -1;
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
