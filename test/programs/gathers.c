/* gathers.c - ncclGather and ncclScatter, which older libraries lack, and the same with a configuration of the call's own, which most lack. */
#include "messages.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "coll_config.h"
#include "real/nccl_later.h"

typedef __typeof__(ncclGather) rooted;
typedef __typeof__(ncclGatherConfig) configured;

/* A gather to a root and a scatter from it. */
struct both {
    int root;
    size_t count, bytes; /* of a block */
    ncclDataType_t datatype;
    bool in_place;
    struct messages in, out;      /* what moves, as messages */
    CUdeviceptr whole[2];         /* the root's blocks behind each other, received and sent */
    CUdeviceptr mine, scattered;  /* this rank's block */
    unsigned char *image, *block; /* on the host */
};

static void both_open(struct part *part, struct both *b, uint64_t seed) {
    const int n = part->box->nranks, rank = self(part)->rank;
    const size_t bytes = b->bytes, own = (size_t)b->root * bytes;
    b->in_place = seed % 2;
    b->in = b->out = (struct messages){0};
    for (int r = 0; r < n; r++) messages_add(&b->in, r, b->root, bytes);
    for (int r = 0; r < n; r++) messages_add(&b->out, b->root, r, bytes);
    messages_open(part, &b->in);
    messages_open(part, &b->out);
    messages_fill(part, &b->in, seed);
    messages_fill(part, &b->out, seed + 1);
    b->image = malloc((size_t)n * bytes + 1);
    b->block = malloc(bytes + 1);
    CHECK(b->image && b->block);
    for (int w = 0; w < 2; w++) CU_OK(cuMemAlloc(&b->whole[w], (size_t)n * bytes + 1));
    b->mine = b->in.send + b->in.message[rank].send_at;
    b->scattered = b->out.recv + b->out.message[rank].recv_at;
    if (rank != b->root) return;
    for (int r = 0; r < n && bytes; r++) {
        CU_OK(cuMemcpyDtoH(b->block, b->out.send + b->out.message[r].send_at, bytes));
        box_upload(b->whole[1] + (size_t)r * bytes, b->block, bytes);
    }
    if (!b->in_place) return;
    if (bytes) {
        CU_OK(cuMemcpyDtoH(b->block, b->mine, bytes));
        box_upload(b->whole[0] + own, b->block, bytes);
    }
    b->mine = b->whole[0] + own;
    b->scattered = b->whole[1] + own;
}

/* After synchronizing: what the root has goes to where the lists have it. */
static void both_close(struct part *part, struct both *b) {
    const int n = part->box->nranks, rank = self(part)->rank;
    const size_t bytes = b->bytes;
    if (rank == b->root && bytes) {
        CU_OK(cuMemcpyDtoH(b->image, b->whole[0], (size_t)n * bytes));
        for (int r = 0; r < n; r++)
            box_upload(b->in.recv + b->in.message[r].recv_at, b->image + (size_t)r * bytes, bytes);
        CU_OK(cuMemcpyDtoH(b->block, b->whole[1] + (size_t)b->root * bytes, bytes));
        if (b->in_place) box_upload(b->out.recv + b->out.message[rank].recv_at, b->block, bytes);
    }
    messages_check(part, &b->in);
    messages_check(part, &b->out);
    for (int w = 0; w < 2; w++) CU_OK(cuMemFree(b->whole[w]));
    messages_close(&b->in);
    messages_close(&b->out);
    free(b->image);
    free(b->block);
}

/* What the root alone needs, the others leave out. */
static void *of_root(const struct part *part, const struct both *b, int w) {
    return part->rank[0].rank == b->root ? (void *)b->whole[w] : NULL;
}

/* --- gathers --- */
static void gathers(struct part *part, const struct settings *s) {
    rooted *gather = (rooted *)dlsym(RTLD_DEFAULT, "ncclGather"),
           *scatter = (rooted *)dlsym(RTLD_DEFAULT, "ncclScatter");
    if (!gather || !scatter) box_skip("NCCL has no ncclGather");
    const ncclComm_t comm = comm_open(part);
    const CUstream stream = stream_open();
    const size_t sizes[] = {0, 1, 7, 120, 481, s->small, 4 * s->small + 1, s->middle, s->large};
    for (long k = 0; k < s->repeat; k++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int root = 0; root < part->box->nranks; root++) {
                struct both b = {.root = root, .count = sizes[i], .bytes = sizes[i], .datatype = ncclInt8};
                doing(part, "%zu bytes, root %d", sizes[i], root);
                both_open(part, &b, s->seed + (uint64_t)k + i + (uint64_t)root);
                part_barrier(part);
                NCCL_OK(gather((void *)b.mine, of_root(part, &b, 0), b.count, b.datatype, root, comm, stream));
                NCCL_OK(scatter(of_root(part, &b, 1), (void *)b.scattered, b.count, b.datatype, root, comm, stream));
                stream_sync(stream);
                both_close(part, &b);
            }
    comm_close(part, comm);
    stream_close(stream);
}

/* --- gathers_configured: to all roots, one by one, as a group, as a graph of one; without a configuration, with one that says nothing, and with one that
 * NCCL alone can heed --- */
enum { ROOTS = BOX_RANKS, WAYS = 3, REPLAYS = 3 };

static const struct {
    ncclDataType_t datatype;
    size_t bytes;
} elements[] = {{ncclInt8, 1}, {ncclFloat16, 2}, {ncclInt32, 4}, {ncclFloat64, 8}, {ncclBfloat16, 2}};
enum { ELEMENTS = sizeof elements / sizeof *elements };

struct configured_calls {
    configured *gather, *scatter;
    struct coll_config wide;
    ncclComm_t comm;
    CUstream stream;
};

/* The first root's calls have configuration k. */
static void issue_configured(struct part *part, const struct configured_calls *c, const struct both *all, int k) {
    const struct coll_config *const configs[] = {NULL, &coll_config_unset, &c->wide};
    for (int root = 0; root < part->box->nranks; root++) {
        const struct both *b = &all[root];
        const ncclCollConfig_t *config = (const ncclCollConfig_t *)configs[(k + root) % 3];
        NCCL_OK(
            c->gather((void *)b->mine, of_root(part, b, 0), b->count, b->datatype, root, c->comm, c->stream, config));
        NCCL_OK(c->scatter(of_root(part, b, 1), (void *)b->scattered, b->count, b->datatype, root, c->comm, c->stream,
                           config));
    }
}

static void run_configured(struct part *part, const struct configured_calls *c, const struct both *all, int k,
                           int way) {
    const bool grouped = way > 0, captured = way == 2;
    struct graph graph;
    if (captured) capture_begin(c->stream);
    if (grouped) NCCL_OK(ncclGroupStart());
    issue_configured(part, c, all, k);
    if (grouped) NCCL_OK(ncclGroupEnd());
    if (captured) capture_end(c->stream, &graph);
    for (int replay = 0; captured && replay < REPLAYS; replay++) CU_OK(cuGraphLaunch(graph.exec, c->stream));
    stream_sync(c->stream);
    if (captured) graph_close(&graph);
}

static void gathers_configured(struct part *part, const struct settings *s) {
    struct configured_calls c = {.gather = (configured *)dlsym(RTLD_DEFAULT, "ncclGatherConfig"),
                                 .scatter = (configured *)dlsym(RTLD_DEFAULT, "ncclScatterConfig"),
                                 .wide = coll_config_unset};
    const int n = part->box->nranks;
    const size_t counts[] = {1, 61, s->small, s->large / 4};
    if (!c.gather || !c.scatter) box_skip("NCCL has no ncclGatherConfig");
    c.wide.min_ctas = 4;
    c.comm = comm_open(part);
    c.stream = stream_open();
    messages_connect(part, s, n, c.comm, c.stream);
    for (int k = 0; k < WAYS * ELEMENTS * (int)(sizeof counts / sizeof *counts); k++) {
        const int way = k % WAYS, e = k / WAYS % ELEMENTS;
        const size_t count = counts[k / WAYS / ELEMENTS];
        struct both all[ROOTS];
        doing(part, "%zu elements of %zu bytes, way %d", count, elements[e].bytes, way);
        for (int root = 0; root < n; root++) {
            all[root] = (struct both){
                .root = root, .count = count, .bytes = count * elements[e].bytes, .datatype = elements[e].datatype};
            both_open(part, &all[root], s->seed + (uint64_t)(k * n + root));
        }
        part_barrier(part);
        run_configured(part, &c, all, k / WAYS, way);
        for (int root = 0; root < n; root++) both_close(part, &all[root]);
    }
    comm_close(part, c.comm);
    stream_close(c.stream);
}

const struct program gather_programs[] = {
    {"gathers", gathers},
    {"gathers_configured", gathers_configured},
    {0},
};
