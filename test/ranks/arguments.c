/* arguments.c - arguments at the edge, and calls that are not Beeline's: they get what the real NCCL gives. */
#include "scenarios.h"

#include <stdlib.h>
#include <string.h>

/* --- errors --- */

static void same(ncclResult_t beeline, ncclResult_t nccl, const char *what) {
    CHECK(beeline == nccl, "%s: %s, but the real NCCL says %s", what, ncclGetErrorString(beeline),
          ncclGetErrorString(nccl));
    CHECK(beeline != ncclSuccess, "%s was accepted", what);
}

#define SAME(what, ...) same(ncclAllReduce(__VA_ARGS__), pncclAllReduce(__VA_ARGS__), what)

static void errors(struct part *part, const struct options *o) {
    for (int i = 0; i < part->count; i++) {
        struct rank *rank = part_enter(part, i);
        CUdeviceptr p;
        CU_OK(cuMemAlloc(&p, 4096));
        void *buffer = (void *)p;
        ncclComm_t comm = rank->comm;
        CUstream stream = rank->stream[0];
        SAME("sendbuff NULL", NULL, buffer, 16, ncclFloat, ncclSum, comm, stream);
        SAME("recvbuff NULL", buffer, NULL, 16, ncclFloat, ncclSum, comm, stream);
        SAME("datatype 12", buffer, buffer, 16, (ncclDataType_t)12, ncclSum, comm, stream);
        SAME("datatype -1", buffer, buffer, 16, (ncclDataType_t)-1, ncclSum, comm, stream);
        SAME("datatype 1000", buffer, buffer, 16, (ncclDataType_t)1000, ncclSum, comm, stream);
        SAME("operation 1000", buffer, buffer, 16, ncclFloat, (ncclRedOp_t)1000, comm, stream);
        SAME("operation -1", buffer, buffer, 16, ncclFloat, (ncclRedOp_t)-1, comm, stream);
        SAME("comm NULL", buffer, buffer, 16, ncclFloat, ncclSum, NULL, stream);
#define BOTH(what, function, ...) same(function(__VA_ARGS__), p##function(__VA_ARGS__), what)
        const int root = rank->rank, none = part->box->nranks; /* who is the root needs both buffers */
        BOTH("all-gather: sendbuff NULL", ncclAllGather, NULL, buffer, 16, ncclFloat, comm, stream);
        BOTH("all-gather: recvbuff NULL", ncclAllGather, buffer, NULL, 16, ncclFloat, comm, stream);
        BOTH("reduce-scatter: recvbuff NULL", ncclReduceScatter, buffer, NULL, 16, ncclFloat, ncclSum, comm, stream);
        BOTH("all-to-all: sendbuff NULL", ncclAlltoAll, NULL, buffer, 16, ncclFloat, comm, stream);
        BOTH("broadcast: sendbuff NULL", ncclBroadcast, NULL, buffer, 16, ncclFloat, root, comm, stream);
        BOTH("broadcast: recvbuff NULL", ncclBroadcast, buffer, NULL, 16, ncclFloat, root, comm, stream);
        BOTH("broadcast: no such root", ncclBroadcast, buffer, buffer, 16, ncclFloat, none, comm, stream);
        BOTH("bcast: buffer NULL", ncclBcast, NULL, 16, ncclFloat, root, comm, stream);
        BOTH("reduce: sendbuff NULL", ncclReduce, NULL, buffer, 16, ncclFloat, ncclSum, root, comm, stream);
        BOTH("reduce: recvbuff NULL", ncclReduce, buffer, NULL, 16, ncclFloat, ncclSum, root, comm, stream);
        BOTH("reduce: root -1", ncclReduce, buffer, buffer, 16, ncclFloat, ncclSum, -1, comm, stream);
        CU_OK(cuStreamSynchronize(stream));
        CU_OK(cuMemFree(p));
    }
    part_barrier(part);
    scenario_works(part, 1);
}

/* NCCL looks where buffers lie, if it is asked to: the calls come back, and nothing is launched.  Buffers that it takes are Beeline's. */
static void pointers(struct part *part, const struct options *o) {
    for (int i = 0; i < part->count; i++) {
        struct rank *rank = part_enter(part, i);
        const ncclComm_t comm = rank->comm;
        const CUstream stream = rank->stream[0];
        const int root = rank->rank;
        CUdeviceptr mine, gone;
        CU_OK(cuMemAlloc(&mine, 4096));
        CU_OK(cuMemAlloc(&gone, 4096));
        CU_OK(cuMemFree(gone));
        void *const here = (void *)mine, *strange[] = {(void *)gone, malloc(4096), NULL};
        CHECK(strange[1]);
        if (part->count > 1) { /* another GPU's */
            part_enter(part, (i + 1) % part->count);
            CU_OK(cuMemAlloc((CUdeviceptr *)&strange[2], 4096));
            part_enter(part, i);
        }
        for (int k = 0; k < 3; k++) {
            void *const there = strange[k];
            SAME("sendbuff", there, here, 16, ncclFloat, ncclSum, comm, stream);
            SAME("recvbuff", here, there, 16, ncclFloat, ncclSum, comm, stream);
            BOTH("all-gather: recvbuff", ncclAllGather, here, there, 16, ncclFloat, comm, stream);
            BOTH("all-to-all: sendbuff", ncclAlltoAll, there, here, 16, ncclFloat, comm, stream);
            BOTH("broadcast: sendbuff", ncclBroadcast, there, here, 16, ncclFloat, root, comm, stream);
            BOTH("reduce: recvbuff", ncclReduce, here, there, 16, ncclFloat, ncclSum, root, comm, stream);
            BOTH("send", ncclSend, there, 16, ncclFloat, root ? 0 : 1, comm, stream);
            BOTH("receive", ncclRecv, there, 16, ncclFloat, root ? 0 : 1, comm, stream);
        }
        CU_OK(cuStreamSynchronize(stream));
        free(strange[1]);
        if (strange[2]) CU_OK(cuMemFree((CUdeviceptr)strange[2]));
        CU_OK(cuMemFree(mine));
    }
    part_barrier(part);
    scenario_works(part, 1);
}

static void zero_count(struct part *part, const struct options *o) {
    for (int k = 0; k < 4; k++) {
        struct call call = {0};
        scenario_call(part, &call, k, 0, 0);
        call_prepare(part, &call);
        call_issue(part, &call);
        part_synchronize(part);
        call_check_untouched(part, &call);
        call_free(part, &call);
        scenario_works(part, 10 + k);
    }
}

/* Counts whose size in bytes overflows, or is beyond any memory, are not Beeline's. */
static void huge_count(struct part *part, const struct options *o) {
    static const size_t counts[] = {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 4 + 2, SIZE_MAX / 8 + 1};
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        const char *route = box_route(part->rank[0].comm, BL_ALLREDUCE, counts[k], ncclFloat64, ncclSum);
        CHECK(route && strcmp(route, "nccl") == 0, "count %zu goes to %s", counts[k], route ? route : "(nobody tells)");
    }
}

/* What no algorithm covers goes to NCCL. */
static void not_covered(struct part *part, const struct options *o) {
    ncclComm_t comm = part->rank[0].comm;
    static const int bad[][2] = {{-1, 0}, {12, 0}, {1000, 0}, {7, -1}, {7, 5}, {7, 1000}};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        const char *route = box_route(comm, BL_ALLREDUCE, 16, bad[k][0], bad[k][1]);
        CHECK(route && strcmp(route, "nccl") == 0, "datatype %d, operation %d goes to %s", bad[k][0], bad[k][1],
              route ? route : "(nobody tells)");
    }
    const char *none = box_route(comm, BL_COLLECTIVES, 16, 7, 0);
    CHECK(none && strcmp(none, "nccl") == 0, "a collective that there is not goes to %s",
          none ? none : "(nobody tells)");
    CHECK(box_route(NULL, BL_ALLREDUCE, 16, 7, 0) == NULL ||
          strcmp(box_route(NULL, BL_ALLREDUCE, 16, 7, 0), "nccl") == 0);
}

/* --- other collectives, by value --- */

struct floats {
    CUdeviceptr in[BOX_RANKS], out[BOX_RANKS];
};

enum { COUNT = 50 };

/* Element k of rank r's input. */
static float input_at(int r, int k) {
    return (float)(r * 1000 + k);
}

static void floats_open(struct part *part, struct floats *f) {
    size_t most = (size_t)part->box->nranks * COUNT;
    float *image = malloc(most * sizeof *image);
    CHECK(image);
    each_rank (part, i) {
        CU_OK(cuMemAlloc(&f->in[i], most * sizeof *image));
        CU_OK(cuMemAlloc(&f->out[i], most * sizeof *image));
        for (size_t k = 0; k < most; k++) image[k] = input_at(part->rank[i].rank, (int)k);
        box_upload(f->in[i], image, most * sizeof *image);
        memset(image, 0xff, most * sizeof *image);
        box_upload(f->out[i], image, most * sizeof *image);
    }
    free(image);
}

static void floats_close(struct part *part, struct floats *f) {
    each_rank (part, i) {
        CU_OK(cuMemFree(f->in[i]));
        CU_OK(cuMemFree(f->out[i]));
    }
}

/* Each collective: how it is called on rank i, and element k of rank r's output; NAN where it has none. */
struct other {
    const char *name;
    ncclResult_t (*call)(const struct floats *f, int i, const struct rank *rank, int n);
    float (*want)(int r, int n, int k);
};

#define IN             ((void *)f->in[i])
#define OUT            ((void *)f->out[i])
#define SUM_OVER(n, k) ((float)((n) * ((n)-1) / 2 * 1000 + (n) * (k)))
#define CALL(name, ...)                                                                                                \
    static ncclResult_t name##_call(const struct floats *f, int i, const struct rank *rank, int n) {                   \
        return __VA_ARGS__;                                                                                            \
    }
#define WANT(name, ...)                                                                                                \
    static float name##_want(int r, int n, int k) {                                                                    \
        return __VA_ARGS__;                                                                                            \
    }

CALL(all_gather, ncclAllGather(IN, OUT, COUNT, ncclFloat, rank->comm, rank->stream[0]))
WANT(all_gather, input_at(k / COUNT, k % COUNT))
CALL(reduce_scatter, ncclReduceScatter(IN, OUT, COUNT, ncclFloat, ncclSum, rank->comm, rank->stream[0]))
WANT(reduce_scatter, k < COUNT ? SUM_OVER(n, r *COUNT + k) : -1)
CALL(reduce, ncclReduce(IN, OUT, COUNT, ncclFloat, ncclSum, n - 1, rank->comm, rank->stream[0]))
WANT(reduce, r == n - 1 && k < COUNT ? SUM_OVER(n, k) : -1)
CALL(broadcast, ncclBroadcast(IN, OUT, COUNT, ncclFloat, n - 1, rank->comm, rank->stream[0]))
WANT(broadcast, k < COUNT ? input_at(n - 1, k) : -1)
CALL(bcast, ncclBcast(OUT, COUNT, ncclFloat, 0, rank->comm, rank->stream[0]))
WANT(bcast, -1)
CALL(all_to_all, ncclAlltoAll(IN, OUT, COUNT, ncclFloat, rank->comm, rank->stream[0]))
WANT(all_to_all, input_at(k / COUNT, r *COUNT + k % COUNT))
CALL(gather, ncclGather(IN, OUT, COUNT, ncclFloat, 0, rank->comm, rank->stream[0]))
WANT(gather, r == 0 ? input_at(k / COUNT, k % COUNT) : -1)
CALL(scatter, ncclScatter(IN, OUT, COUNT, ncclFloat, 0, rank->comm, rank->stream[0]))
WANT(scatter, k < COUNT ? input_at(0, r *COUNT + k) : -1)

static const struct other others[] = {
#define OTHER(name)                                                                                                    \
    { #name, name##_call, name##_want }
    OTHER(all_gather), OTHER(reduce_scatter), OTHER(reduce), OTHER(broadcast),
    OTHER(bcast),      OTHER(all_to_all),     OTHER(gather), OTHER(scatter),
};

static void other_collectives(struct part *part, const struct options *o) {
    int n = part->box->nranks;
    float *image = malloc((size_t)n * COUNT * sizeof *image);
    CHECK(image);
    for (size_t c = 0; c < sizeof others / sizeof *others; c++) {
        struct floats f;
        floats_open(part, &f);
        each_rank_in_group (part, i) {
            struct rank *rank = &part->rank[i];
            ncclResult_t result = others[c].call(&f, i, rank, n);
            CHECK(result == ncclSuccess, "%s: %s", others[c].name, ncclGetErrorString(result));
        }
        part_synchronize(part);
        each_rank (part, i) {
            CU_OK(cuMemcpyDtoH(image, f.out[i], (size_t)n * COUNT * sizeof *image));
            for (int k = 0; k < n * COUNT; k++) {
                float want = others[c].want(part->rank[i].rank, n, k);
                if (want >= 0 && image[k] != want)
                    FAIL("%s: rank %d: element %d is %g, expected %g", others[c].name, part->rank[i].rank, k,
                         (double)image[k], (double)want);
            }
        }
        floats_close(part, &f);
        scenario_works(part, (int)c);
    }
    free(image);
}

/* Rank r sends to r+1 and receives from r-1. */
static void send_receive(struct part *part, const struct options *o) {
    int n = part->box->nranks;
    struct floats f;
    floats_open(part, &f);
    NCCL_OK(ncclGroupStart());
    for (int i = 0; i < part->count; i++) {
        struct rank *rank = part_enter(part, i);
        NCCL_OK(ncclSend((void *)f.in[i], COUNT, ncclFloat, (rank->rank + 1) % n, rank->comm, rank->stream[0]));
        NCCL_OK(ncclRecv((void *)f.out[i], COUNT, ncclFloat, (rank->rank + n - 1) % n, rank->comm, rank->stream[0]));
    }
    NCCL_OK(ncclGroupEnd());
    part_synchronize(part);
    float image[COUNT];
    each_rank (part, i) {
        CU_OK(cuMemcpyDtoH(image, f.out[i], sizeof image));
        for (int k = 0; k < COUNT; k++)
            CHECK(image[k] == input_at((part->rank[i].rank + n - 1) % n, k), "element %d", k);
    }
    floats_close(part, &f);
    scenario_works(part, 1);
}

/* A custom operator is NCCL's own. */
static void premulsum(struct part *part, const struct options *o) {
    int n = part->box->nranks;
    struct floats f;
    floats_open(part, &f);
    ncclRedOp_t op[BOX_RANKS];
    each_rank (part, i) {
        float half = 0.5f;
        NCCL_OK(ncclRedOpCreatePreMulSum(&op[i], &half, ncclFloat, ncclScalarHostImmediate, part->rank[i].comm));
    }
    const char *route = box_route(part->rank[0].comm, BL_ALLREDUCE, COUNT, ncclFloat, op[0]);
    CHECK(route && strcmp(route, "nccl") == 0, "a custom operator goes to %s", route ? route : "(nobody tells)");
    each_rank_in_group (part, i) {
        struct rank *rank = &part->rank[i];
        NCCL_OK(ncclAllReduce((void *)f.in[i], (void *)f.out[i], COUNT, ncclFloat, op[i], rank->comm, rank->stream[0]));
    }
    part_synchronize(part);
    float image[COUNT];
    each_rank (part, i) {
        CU_OK(cuMemcpyDtoH(image, f.out[i], sizeof image));
        for (int k = 0; k < COUNT; k++) CHECK(image[k] == SUM_OVER(n, k) / 2, "element %d is %g", k, (double)image[k]);
        NCCL_OK(ncclRedOpDestroy(op[i], part->rank[i].comm));
    }
    floats_close(part, &f);
    scenario_works(part, 1);
}

/* One rank: nothing to serve, and it works. */
static void one_rank(struct part *part, const struct options *o) {
    for (int i = 0; i < part->count; i++) {
        struct rank *rank = part_enter(part, i);
        ncclComm_t comm;
        ncclUniqueId id;
        NCCL_OK(ncclGetUniqueId(&id));
        NCCL_OK(ncclCommInitRank(&comm, 1, id, 0));
        const char *route = box_route(comm, BL_ALLREDUCE, 16, ncclFloat, ncclSum);
        CHECK(!route || strcmp(route, "nccl") == 0, "one rank goes to %s", route);
        CUdeviceptr p;
        float image[16], back[16];
        for (int k = 0; k < 16; k++) image[k] = (float)k;
        CU_OK(cuMemAlloc(&p, sizeof image));
        box_upload(p, image, sizeof image);
        NCCL_OK(ncclAllReduce((void *)p, (void *)p, 16, ncclFloat, ncclSum, comm, rank->stream[0]));
        CU_OK(cuStreamSynchronize(rank->stream[0]));
        CU_OK(cuMemcpyDtoH(back, p, sizeof back));
        CHECK(memcmp(image, back, sizeof back) == 0);
        CU_OK(cuMemFree(p));
        NCCL_OK(ncclCommDestroy(comm));
    }
}

/* Ranks' buffers differ in alignment and placement: the route must not. */
static void unequal_ranks(struct part *part, const struct options *o) {
    for (int k = 0; k < 12; k++) {
        struct call call = {0};
        scenario_call(part, &call, k, (size_t)(1 + k * k * 31), 0);
        size_t size = ref_datatype_size(call.datatype);
        call.in_place = false;
        int first = part->rank[0].rank;
        if (part->count == 1) { /* a thread or a process is one rank: its placement is its own */
            call.in_place = (first + k) % 2;
            call.send_offset = (unsigned)(size * (unsigned)((first * 3 + k) % 5));
            call.recv_offset = (unsigned)(size * (unsigned)((first * 5 + k) % 7));
        }
        call_prepare(part, &call);
        call_issue(part, &call);
        part_synchronize(part);
        call_check(part, &call);
        call_free(part, &call);
    }
}

const struct scenario argument_scenarios[] = {
    {.name = "argument_errors", .run = errors},
    {.name = "argument_pointers", .run = pointers},
    {.name = "argument_zero_count", .run = zero_count},
    {.name = "argument_huge_count", .run = huge_count},
    {.name = "argument_not_covered", .run = not_covered},
    {.name = "argument_unequal_ranks", .run = unequal_ranks},
    {.name = "other_collectives", .run = other_collectives},
    {.name = "other_send_receive", .run = send_receive},
    {.name = "other_premulsum", .run = premulsum},
    {.name = "other_one_rank", .run = one_rank},
    {0},
};
