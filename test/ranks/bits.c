/* bits.c - an element of a sum has the same bits whatever it was part of: one vector, as one call, in pieces of many sizes,
 * in a group, by reduce-scatter and reduce, in place, at any address, captured.  The cases have small thresholds
 * (bits.tune), above which calls are NCCL's unless BEELINE_BATCH_INVARIANT=1.
 */
#include "scenarios.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Bytes of the vector: above all thresholds, and what the least staging holds at once. */
enum { BYTES = 200003, MARGIN = 64 };

struct vector {
    int datatype, redop;
    size_t size, count;
    CUdeviceptr from[BOX_RANKS], to[BOX_RANKS];
    unsigned char *image, *poison;
    unsigned char *want; /* the bits of the sum as one call */
    int turn, turns;     /* which of the vectors it is */
};

static const size_t lengths[] = {1,  2,   3,   5,   8,   15,  16,   17,   31,   60,
                                 61, 119, 120, 121, 240, 509, 1000, 1023, 2500, 5000};
enum { LENGTHS = sizeof lengths / sizeof *lengths, PIECES = 48 };

/* The k-th piece; the last is all that is left. */
static size_t piece_at(const struct vector *v, int k, size_t done) {
    const size_t left = v->count - done, length = k < PIECES - 1 ? lengths[k * 7 % LENGTHS] : left;
    return length < left ? length : left;
}

/* Ranks' buffers begin at addresses of their own. */
static CUdeviceptr at(const struct vector *v, const CUdeviceptr *buffer, const struct part *part, int i,
                      size_t element) {
    return buffer[i] + (size_t)(part->rank[i].rank % 3) * v->size + element * v->size;
}

static void upload(struct part *part, const struct vector *v) {
    each_rank (part, i) {
        ref_input(v->datatype, part->box->seed, part->rank[i].rank, v->count, v->image);
        box_upload(at(v, v->from, part, i, 0), v->image, v->count * v->size);
        box_upload(v->to[i], v->poison, v->count * v->size + MARGIN);
    }
}

static void open_vector(struct part *part, struct vector *v, int datatype, int redop) {
    const size_t size = ref_datatype_size(datatype), bytes = BYTES / size * size;
    *v = (struct vector){.datatype = datatype, .redop = redop, .size = size, .count = BYTES / size};
    v->image = malloc(bytes);
    v->want = calloc(1, bytes);
    v->poison = malloc(bytes + MARGIN);
    CHECK(v->image && v->want && v->poison);
    memset(v->poison, 0xa5, bytes + MARGIN);
    each_rank (part, i) {
        CU_OK(cuMemAlloc(&v->from[i], bytes + MARGIN));
        CU_OK(cuMemAlloc(&v->to[i], bytes + MARGIN));
    }
    upload(part, v);
}

static void close_vector(struct part *part, struct vector *v) {
    each_rank (part, i) {
        CU_OK(cuMemFree(v->from[i]));
        CU_OK(cuMemFree(v->to[i]));
    }
    free(v->image);
    free(v->want);
    free(v->poison);
}

/* --- what is issued --- */

static void reduce_all(struct part *part, const struct vector *v, size_t first, size_t count, bool in_place) {
    each_rank_in_group (part, i) {
        const CUdeviceptr from = at(v, v->from, part, i, first), to = in_place ? from : at(v, v->to, part, i, first);
        NCCL_OK(ncclAllReduce((void *)from, (void *)to, count, (ncclDataType_t)v->datatype, (ncclRedOp_t)v->redop,
                              part->rank[i].comm, part->rank[i].stream[0]));
    }
}

static void whole(struct part *part, const struct vector *v) {
    reduce_all(part, v, 0, v->count, false);
}

static void whole_in_place(struct part *part, const struct vector *v) {
    reduce_all(part, v, 0, v->count, true);
}

static void pieces(struct part *part, const struct vector *v) {
    size_t done = 0, count;
    for (int k = 0; (count = piece_at(v, k, done)); k++, done += count) reduce_all(part, v, done, count, false);
}

static void pieces_in_place(struct part *part, const struct vector *v) {
    size_t done = 0, count;
    for (int k = 3; (count = piece_at(v, k, done)); k++, done += count) reduce_all(part, v, done, count, true);
}

static void group(struct part *part, const struct vector *v) {
    NCCL_OK(ncclGroupStart());
    pieces(part, v);
    NCCL_OK(ncclGroupEnd());
}

/* Of each rank its block, and behind the blocks what they leave, as one call and as two. */
static void scatter(struct part *part, const struct vector *v) {
    const size_t n = (size_t)part->box->nranks, block = v->count / n;
    for (int half = 0; half < 2; half++) {
        const size_t first = half ? block / 2 : 0, count = half ? block - block / 2 : block / 2;
        each_rank_in_group (part, i) {
            const size_t own = n * first + (size_t)part->rank[i].rank * count;
            NCCL_OK(ncclReduceScatter((void *)at(v, v->from, part, i, n * first), (void *)at(v, v->to, part, i, own),
                                      count, (ncclDataType_t)v->datatype, (ncclRedOp_t)v->redop, part->rank[i].comm,
                                      part->rank[i].stream[0]));
        }
    }
}

/* To the last rank, in two calls of which one is small. */
static void reduce(struct part *part, const struct vector *v) {
    for (size_t first = 0, count = 100; first < v->count; first += count, count = v->count - first)
        each_rank_in_group (part, i)
            NCCL_OK(ncclReduce((void *)at(v, v->from, part, i, first), (void *)at(v, v->to, part, i, first), count,
                               (ncclDataType_t)v->datatype, (ncclRedOp_t)v->redop, part->box->nranks - 1,
                               part->rank[i].comm, part->rank[i].stream[0]));
}

/* --- what each leaves --- */

static bool has(const struct part *part, const struct vector *v, int i, size_t element,
                void (*way)(struct part *, const struct vector *)) {
    const size_t n = (size_t)part->box->nranks, rank = (size_t)part->rank[i].rank, block = v->count / n,
                 half = block / 2;
    if (way == reduce) return rank == n - 1;
    if (way != scatter) return true;
    if (element < n * half) return element / half == rank;
    return element < n * block && (element - n * half) / (block - half) == rank;
}

static const struct way {
    const char *name;
    void (*issue)(struct part *part, const struct vector *v);
    bool in_place;
} ways[] = {
    {"one call", whole, false},          {"one call in place", whole_in_place, true},
    {"pieces", pieces, false},           {"pieces in place", pieces_in_place, true},
    {"pieces of a group", group, false}, {"reduce-scatters", scatter, false},
    {"reduces", reduce, false},
};
enum { WAYS = sizeof ways / sizeof *ways };

/* How many elements have other bits than those of one call. */
static size_t differing(struct part *part, const struct vector *v, const struct way *way, bool fails) {
    size_t differ = 0;
    each_rank (part, i) {
        CU_OK(cuMemcpyDtoH(v->image, at(v, way->in_place ? v->from : v->to, part, i, 0), v->count * v->size));
        for (size_t k = 0; k < v->count; k++) {
            const bool same = !memcmp(v->image + k * v->size, v->want + k * v->size, v->size);
            if (same || !has(part, v, i, k, way->issue)) continue;
            CHECK(!fails, "rank %d, %s %s: element %zu has other bits in %s than in one call", part->rank[i].rank,
                  ref_datatype_name(v->datatype), ref_redop_name(v->redop), k, way->name);
            differ++;
        }
    }
    return differ;
}

/* The bits of one call, which are right, on the part's first rank. */
static void want(struct part *part, const struct vector *v) {
    whole(part, v);
    part_synchronize(part);
    part_enter(part, 0);
    CU_OK(cuMemcpyDtoH(v->want, at(v, v->to, part, 0, 0), v->count * v->size));
}

static void check_right(struct part *part, const struct vector *v) {
    ref_allreduce(v->datatype, v->redop, part->box->seed, part->box->nranks, v->count, v->image);
    const size_t wrong = ref_differ(v->datatype, v->want, v->image, v->count);
    CHECK(wrong == v->count, "%s %s: element %zu", ref_datatype_name(v->datatype), ref_redop_name(v->redop), wrong);
}

/* Eager and from a graph: in turn, where there are several vectors, since neither asks for the datatype. */
static size_t all_ways(struct part *part, const struct vector *v, bool fails) {
    size_t differ = 0;
    for (int w = 0; w < WAYS; w++)
        for (int captured = 0; captured < 2; captured++) {
            struct graphs graphs;
            if (v->turns > 1 && (w + v->turn) % 2 != captured) continue;
            upload(part, v);
            if (captured) graphs_begin(part, 0);
            ways[w].issue(part, v);
            if (captured) {
                graphs_end(part, 0, &graphs);
                graphs_launch(part, &graphs, 0);
            }
            part_synchronize(part);
            differ += differing(part, v, &ways[w], fails);
            if (captured) graphs_free(part, &graphs);
        }
    return differ;
}

static const enum bl_collective reducing[] = {BL_ALLREDUCE, BL_REDUCESCATTER, BL_REDUCE};

static long nccl_calls(void) {
    long calls = 0;
    for (int c = 0; c < 3; c++) calls += box_nccl_calls(collective_function(reducing[c]));
    return calls;
}

/* Where the largest of the calls go. */
static void check_routes(const struct part *part, const struct vector *v, bool to_nccl) {
    for (int c = 0; c < 3; c++) {
        const size_t count = reducing[c] == BL_REDUCESCATTER ? v->count / (size_t)part->box->nranks / 2 : v->count;
        const char *route = box_route(part->rank[0].comm, reducing[c], count, v->datatype, v->redop);
        CHECK(route && !strcmp(route, "nccl") == to_nccl, "%s goes to %s", collective_name(reducing[c]),
              route ? route : "?");
    }
}

static void each_vector(struct part *part, const struct options *o, void (*test)(struct part *, struct vector *)) {
    int datatypes = 0, redops = 0, turn = 0;
    for (int k = 0; k < REF_DATATYPES; k++) datatypes += o->datatypes[k];
    for (int k = 0; k < REF_REDOPS; k++) redops += o->redops[k];
    for (int datatype = 0; datatype < REF_DATATYPES; datatype++)
        for (int redop = 0; redop < REF_REDOPS; redop++) {
            struct vector v;
            if (!o->datatypes[datatype] || !o->redops[redop]) continue;
            open_vector(part, &v, datatype, redop);
            v.turn = turn++;
            v.turns = datatypes * redops;
            want(part, &v);
            test(part, &v);
            close_vector(part, &v);
        }
}

static void is_invariant(struct part *part, struct vector *v) {
    check_routes(part, v, false);
    check_right(part, v);
    all_ways(part, v, true);
}

static void any_size(struct part *part, const struct options *o) {
    part_barrier(part);
    const long before = nccl_calls();
    part_barrier(part);
    each_vector(part, o, is_invariant);
    CHECK(nccl_calls() == before, "NCCL was called");
}

/* Without the setting large calls are NCCL's; its averages are rounded more often, so that this test would see it. */
static void is_of_both(struct part *part, struct vector *v) {
    check_routes(part, v, true);
    const size_t differ = all_ways(part, v, false);
    CHECK(differ || part->box->nranks != 3 || v->redop != ref_redop("avg"), "all bits are the same");
}

static void by_both(struct part *part, const struct options *o) {
    const long before = nccl_calls();
    each_vector(part, o, is_of_both);
    CHECK(nccl_calls() > before, "NCCL was not called");
}

/* The file of BEELINE_SWITCH comes, and calls go on until it was seen: at least 2 s. */
static void switched(struct part *part, const struct options *o) {
    FILE *file = part->rank[0].rank == 0 ? fopen(getenv("BEELINE_SWITCH"), "w") : NULL;
    if (file) fclose(file);
    struct call call = {.collective = BL_ALLREDUCE, .datatype = ref_datatype("float"), .count = 50};
    call_prepare(part, &call);
    for (int k = 0; k < 500; k++) {
        call_issue(part, &call);
        if (k % 50) continue;
        part_synchronize(part);
        nanosleep(&(struct timespec){.tv_nsec = 250000000}, NULL);
    }
    part_synchronize(part);
    call_check(part, &call);
    call_free(part, &call);
}

const struct scenario bits_scenarios[] = {
    {.name = "bits_any_size", .run = any_size},
    {.name = "bits_by_both", .run = by_both},
    {.name = "bits_switched", .run = switched},
    {0},
};
