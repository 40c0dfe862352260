/* blocks.c - all-gathers and reduce-scatters in place, one after another on the same data, as sharded training has them: what
 * one leaves, the next takes, with no event of the test's own between them.  All-gathers of several sizes go by
 * kernels, copy engines and NCCL, as the settings of the case say.
 */
#include "scenarios.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Of each rank a buffer of a block for every rank.  Its own block is fresh, what it has of the others may be stale:
 * element k of block b is scale * fresh(b, k), modulo 2^32, of an earlier scale. */
struct blocks {
    size_t count; /* elements of a block */
    uint32_t scale;
    CUdeviceptr buffer[BOX_RANKS];
};

static uint32_t fresh(size_t block, size_t k) {
    return (uint32_t)(block * 2654435761u + k * 40503u + 1) | 1; /* odd: no scale makes it zero */
}

static void blocks_open(struct part *part, struct blocks *blocks, size_t count) {
    const size_t n = (size_t)part->box->nranks;
    *blocks = (struct blocks){.count = count, .scale = 1};
    uint32_t *image = malloc(n * count * sizeof *image);
    CHECK(image);
    for (int i = 0; i < part->count; i++) {
        const size_t own = (size_t)part->rank[i].rank;
        part_enter(part, i);
        CU_OK(cuMemAlloc(&blocks->buffer[i], n * count * sizeof *image));
        for (size_t b = 0; b < n; b++)
            for (size_t k = 0; k < count; k++) image[b * count + k] = b == own ? fresh(b, k) : 0xeeeeeeee;
        box_upload(blocks->buffer[i], image, n * count * sizeof *image);
    }
    free(image);
}

static void blocks_close(struct part *part, struct blocks *blocks) {
    each_rank (part, i) CU_OK(cuMemFree(blocks->buffer[i]));
}

static void gather(struct part *part, struct blocks *blocks, const ncclComm_t *comms, const CUstream *stream) {
    each_rank_in_group (part, i) {
        void *own = (uint32_t *)blocks->buffer[i] + (size_t)part->rank[i].rank * blocks->count;
        NCCL_OK(ncclAllGather(own, (void *)blocks->buffer[i], blocks->count, ncclUint32, comms[i], stream[i]));
    }
}

static void scatter(struct part *part, struct blocks *blocks, const ncclComm_t *comms, const CUstream *stream) {
    each_rank_in_group (part, i) {
        void *own = (uint32_t *)blocks->buffer[i] + (size_t)part->rank[i].rank * blocks->count;
        NCCL_OK(
            ncclReduceScatter((void *)blocks->buffer[i], own, blocks->count, ncclUint32, ncclSum, comms[i], stream[i]));
    }
    blocks->scale *= (uint32_t)part->box->nranks;
}

static void reduce(struct part *part, struct blocks *blocks, const ncclComm_t *comms, const CUstream *stream) {
    const size_t count = (size_t)part->box->nranks * blocks->count;
    each_rank_in_group (part, i) {
        void *all = (void *)blocks->buffer[i];
        NCCL_OK(ncclAllReduce(all, all, count, ncclUint32, ncclSum, comms[i], stream[i]));
    }
    blocks->scale *= (uint32_t)part->box->nranks;
}

/* NCCL's or Beeline's, as the case says. */
static void broadcast(struct part *part, struct blocks *blocks, const ncclComm_t *comms, const CUstream *stream,
                      int root) {
    const size_t count = (size_t)part->box->nranks * blocks->count;
    each_rank_in_group (part, i) {
        void *all = (void *)blocks->buffer[i];
        NCCL_OK(ncclBroadcast(all, all, count, ncclUint32, root, comms[i], stream[i]));
    }
}

/* The caller has synchronized; every block is fresh, `gathered`, or each rank's own. */
static void blocks_check(struct part *part, const struct blocks *blocks, bool gathered) {
    const size_t n = (size_t)part->box->nranks, count = blocks->count;
    uint32_t *image = malloc(n * count * sizeof *image);
    CHECK(image);
    each_rank (part, i) {
        CU_OK(cuMemcpyDtoH(image, blocks->buffer[i], n * count * sizeof *image));
        for (size_t b = 0; b < n; b++) {
            if (!gathered && b != (size_t)part->rank[i].rank) continue;
            for (size_t k = 0; k < count; k++)
                if (image[b * count + k] != blocks->scale * fresh(b, k))
                    FAIL("rank %d, blocks of %zu: element %zu of block %zu is 0x%x, expected 0x%x", part->rank[i].rank,
                         count, k, b, image[b * count + k], blocks->scale * fresh(b, k));
        }
    }
    free(image);
}

enum { CHAINS = 4 };

struct chains {
    struct blocks of[CHAINS];
};

/* Of elements of 4 bytes: by packets' size, by a line's, above what is left to kernels, and of -c: of several pieces, where there are such. */
static void chains_open(struct part *part, struct chains *chains, const struct options *o) {
    const size_t counts[CHAINS] = {1, 777, 33001, o->count[0]};
    for (int c = 0; c < CHAINS; c++) blocks_open(part, &chains->of[c], counts[c]);
}

static void chains_close(struct part *part, struct chains *chains) {
    part_synchronize(part);
    for (int c = 0; c < CHAINS; c++) {
        blocks_check(part, &chains->of[c], true);
        blocks_close(part, &chains->of[c]);
    }
}

/* One step of each chain after the other, so that routes change from call to call; ends with all gathered.  With `turn`, on
 * another stream each time. */
static void round_of(struct part *part, struct chains *chains, const ncclComm_t *comms, int first_stream, int turn) {
    CUstream stream[BOX_RANKS];
    int calls = 0;
#define NEXT_STREAM() part_streams(part, (first_stream + turn * calls++) % BOX_STREAMS, stream)
    for (int step = 0; step < 5; step++)
        for (int c = 0; c < CHAINS; c++) {
            struct blocks *blocks = &chains->of[c];
            NEXT_STREAM();
            switch (step) {
            case 1:
                if (c == 1) {
                    broadcast(part, blocks, comms, stream, part->box->nranks - 1);
                    NEXT_STREAM();
                }
                if (blocks->count < 1000) reduce(part, blocks, comms, stream);
                break;
            case 3: scatter(part, blocks, comms, stream); break;
            default: gather(part, blocks, comms, stream);
            }
        }
#undef NEXT_STREAM
}

/* --- scenarios --- */

static void eager(struct part *part, const struct options *o) {
    struct chains chains;
    ncclComm_t comms[BOX_RANKS];
    part_comms(part, comms);
    chains_open(part, &chains, o);
    for (int k = 0; k < 3; k++) round_of(part, &chains, comms, k, 0);
    for (int k = 0; k < 3; k++) round_of(part, &chains, comms, k, 1);
    chains_close(part, &chains);
}

/* What a launch of the captured round does to the scales. */
static void replay(struct part *part, struct graphs *graphs, struct chains *chains, const uint32_t *factor,
                   int stream) {
    graphs_launch(part, graphs, stream);
    for (int c = 0; c < CHAINS; c++) chains->of[c].scale *= factor[c];
}

static void capture(struct part *part, struct graphs *graphs, struct chains *chains, const ncclComm_t *comms,
                    uint32_t *factor) {
    uint32_t before[CHAINS];
    for (int c = 0; c < CHAINS; c++) before[c] = chains->of[c].scale, chains->of[c].scale = 1;
    graphs_begin(part, 0);
    round_of(part, chains, comms, 0, 0);
    graphs_end(part, 0, graphs);
    for (int c = 0; c < CHAINS; c++) factor[c] = chains->of[c].scale, chains->of[c].scale = before[c];
}

static void captured(struct part *part, const struct options *o) {
    struct chains chains;
    struct graphs graphs;
    uint32_t factor[CHAINS];
    ncclComm_t comms[BOX_RANKS];
    part_comms(part, comms);
    chains_open(part, &chains, o);
    capture(part, &graphs, &chains, comms, factor);
    for (int r = 0; r < 7; r++) {
        replay(part, &graphs, &chains, factor, r % 3 == 2);
        if (r % 3 == 1) round_of(part, &chains, comms, r, r % 2);
    }
    part_synchronize(part);
    for (int c = 0; c < CHAINS; c++) blocks_check(part, &chains.of[c], true);
    graphs_free(part, &graphs);
    round_of(part, &chains, comms, 0, 1);
    chains_close(part, &chains);
}

/* Eager calls on another stream while a capture is open, and two captures that are open at once. */
static void beside_capture(struct part *part, const struct options *o) {
    struct chains chains[3];
    struct graphs graphs[2];
    uint32_t factor[2][CHAINS];
    ncclComm_t comms[BOX_RANKS];
    part_comms(part, comms);
    for (int k = 0; k < 3; k++) chains_open(part, &chains[k], o);
    for (int k = 0; k < 2; k++) {
        graphs_begin(part, k);
        round_of(part, &chains[k], comms, k, 0);
        for (int c = 0; c < CHAINS; c++) factor[k][c] = chains[k].of[c].scale, chains[k].of[c].scale = 1;
    }
    round_of(part, &chains[2], comms, 2, 0);
    for (int k = 0; k < 2; k++) graphs_end_capture(part, k, &graphs[k]);
    for (int k = 0; k < 2; k++) graphs_instantiate(part, &graphs[k]);
    for (int r = 0; r < 3; r++) {
        for (int k = 0; k < 2; k++) replay(part, &graphs[k], &chains[k], factor[k], (k + r) % 2);
        round_of(part, &chains[2], comms, r, 0);
    }
    for (int k = 0; k < 2; k++) {
        chains_close(part, &chains[k]);
        graphs_free(part, &graphs[k]);
    }
    chains_close(part, &chains[2]);
}

static void two_communicators(struct part *part, const struct options *o) {
    struct chains chains[2];
    ncclComm_t comms[2][BOX_RANKS];
    part_comms(part, comms[0]);
    part_make_communicators(part, 1, comms[1]);
    for (int k = 0; k < 2; k++) chains_open(part, &chains[k], o);
    for (int r = 0; r < 4; r++) round_of(part, &chains[r % 2], comms[r % 2], r % 2, 0); /* two streams */
    for (int r = 0; r < 4; r++) round_of(part, &chains[r % 2], comms[r % 2], 2, 0);     /* one */
    for (int k = 0; k < 2; k++) chains_close(part, &chains[k]);
    part_destroy_communicators(part, comms[1]);
}

/* A reduce-scatter gives the owner the bits that an all-reduce of the whole gives, NaNs included; both through a gather. */
static void same_bits(struct part *part, const struct options *o) {
    enum { COUNT = 900 };
    const size_t n = (size_t)part->box->nranks;
    ncclComm_t comms[BOX_RANKS];
    part_comms(part, comms);
    for (int datatype = 0; datatype < REF_DATATYPES; datatype++)
        for (int redop = 0; redop < REF_REDOPS; redop += 1 + datatype % 2) {
            struct call whole = {.collective = BL_ALLREDUCE, .count = n * COUNT},
                        share = {.collective = BL_REDUCESCATTER, .count = COUNT};
            const size_t bytes = COUNT * ref_datatype_size(datatype);
            unsigned char *a = malloc(bytes), *b = malloc(bytes);
            CHECK(a && b);
            whole.datatype = share.datatype = datatype;
            whole.redop = share.redop = redop;
            whole.seed = share.seed = ref_mix(part->box->seed, (uint64_t)(datatype * REF_REDOPS + redop));
            call_prepare(part, &whole);
            call_prepare(part, &share);
            call_issue(part, &whole);
            call_issue(part, &share);
            part_synchronize(part);
            call_check(part, &whole);
            call_check(part, &share);
            each_rank (part, i) {
                CU_OK(cuMemcpyDtoH(a, call_recvbuff(&whole, i) + (size_t)part->rank[i].rank * bytes, bytes));
                CU_OK(cuMemcpyDtoH(b, call_recvbuff(&share, i), bytes));
                for (size_t k = 0; k < bytes; k++)
                    CHECK(a[k] == b[k], "rank %d, %s %s: byte %zu is %02x and %02x", part->rank[i].rank,
                          ref_datatype_name(datatype), ref_redop_name(redop), k, a[k], b[k]);
            }
            free(a);
            free(b);
            call_free(part, &whole);
            call_free(part, &share);
        }
}

/* --- what copy engines wait for --- */

enum { FOLLOWERS = 9 };

/* Streams that wait for what is on `stream`, as compute does for a gather: where queues are shared, in every one of them. */
static void follow(CUstream stream, CUstream *follower) {
    CUevent event;
    CU_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CU_OK(cuEventRecord(event, stream));
    for (int k = 0; k < FOLLOWERS; k++) {
        CU_OK(cuStreamCreate(&follower[k], CU_STREAM_NON_BLOCKING));
        CU_OK(cuStreamWaitEvent(follower[k], event, CU_EVENT_WAIT_DEFAULT));
    }
    CU_OK(cuEventDestroy(event));
}

/* Rank 0 gathers, eagerly or from a graph, and its peers never come: an abort ends that within seconds, as a revocation does,
 * and nothing is left. */
static void abandon(struct part *part, const struct options *o, ncclResult_t (*end)(ncclComm_t), bool lives) {
    for (int round = 0; round < 2; round++) {
        ncclComm_t comms[BOX_RANKS];
        struct blocks blocks;
        struct graphs graphs;
        CUstream stream[BOX_RANKS], follower[FOLLOWERS];
        part_make_communicators(part, 2 * round + 1, comms);
        blocks_open(part, &blocks, 150001);
        part_streams(part, 0, stream);
        struct rank *rank = part_enter(part, 0);
        if (rank->rank == 0) {
            void *own = (void *)blocks.buffer[0];
            const char *route = box_route(comms[0], BL_ALLGATHER, blocks.count, ncclUint32, ncclSum);
            CHECK(route && (!o->route || !strcmp(route, o->route)), "it goes to %s", route ? route : "?");
            if (round) CU_OK(cuStreamBeginCapture(stream[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
            NCCL_OK(ncclAllGather(own, own, blocks.count, ncclUint32, comms[0], stream[0]));
            if (round) {
                CU_OK(cuStreamEndCapture(stream[0], &graphs.graph[0]));
                CU_OK(cuGraphInstantiateWithFlags(&graphs.exec[0], graphs.graph[0], 0));
                CU_OK(cuGraphLaunch(graphs.exec[0], stream[0]));
            }
            follow(stream[0], follower);
            nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
            CHECK(cu.cuStreamQuery(stream[0]) == CUDA_ERROR_NOT_READY, "nobody came, and it ended");
        }
        part_barrier(part);
        double begin = box_seconds();
        each_rank (part, i) NCCL_OK(end(comms[i]));
        part_enter(part, 0);
        CU_OK(cuStreamSynchronize(stream[0]));
        CHECK(box_seconds() - begin < 8, "it took %.1f s", box_seconds() - begin);
        for (int k = 0; k < FOLLOWERS && rank->rank == 0; k++) CU_OK(cuStreamDestroy(follower[k]));
        if (rank->rank == 0 && round) {
            CU_OK(cuGraphExecDestroy(graphs.exec[0]));
            CU_OK(cuGraphDestroy(graphs.graph[0]));
        }
        part_barrier(part);
        if (lives) part_destroy_communicators(part, comms);
        /* Others work as ever. */
        part_make_communicators(part, 2 * round + 2, comms);
        gather(part, &blocks, comms, stream);
        each_rank (part, i) CU_OK(cuStreamSynchronize(stream[i]));
        blocks_check(part, &blocks, true);
        blocks_close(part, &blocks);
        part_destroy_communicators(part, comms);
    }
}

static void abandoned(struct part *part, const struct options *o) {
    abandon(part, o, ncclCommAbort, false);
}

static ncclResult_t revoke(ncclComm_t comm) {
    return ncclCommRevoke(comm, 0);
}

static void revoked(struct part *part, const struct options *o) {
    abandon(part, o, revoke, true);
}

/* --- who is to do without blocks --- */

enum { LARGE = 300000 }; /* bytes of a block that kernels do not get then */

/* All-gathers of the communicators that are not NULL, of which the last ranks' may be; where a large one goes. */
static void expect_route(struct part *part, ncclComm_t *comms, const char *wanted, const char *what) {
    for (int i = 0; i < part->count; i++) {
        const char *large = box_route(comms[i], BL_ALLGATHER, LARGE, ncclInt8, ncclSum);
        const char *small = box_route(comms[i], BL_ALLGATHER, 1000, ncclInt8, ncclSum);
        CHECK(large && !strcmp(large, wanted), "%s: large ones go to %s, expected %s", what, large, wanted);
        CHECK(small && !strncmp(small, "allgather_", 10), "%s: small ones go to %s", what, small);
    }
    struct call call = {.collective = BL_ALLGATHER, .count = LARGE, .seed = 5, .in_place = true};
    call_prepare(part, &call);
    part_group_start(part);
    for (int i = 0; i < part->count; i++) NCCL_OK(call_issue_rank(part, &call, i, comms[i], part->rank[i].stream[0]));
    part_group_end(part);
    part_synchronize(part);
    call_check(part, &call);
    call_free(part, &call);
}

static void make_config(struct part *part, int which, ncclConfig_t *config, ncclComm_t *comms) {
    ncclUniqueId id;
    box_unique_id(part, which, &id);
    each_rank_in_group (part, i)
        NCCL_OK(ncclCommInitRankConfig(&comms[i], part->box->nranks, id, part->rank[i].rank, config));
}

static void split(struct part *part, const ncclComm_t *parents, ncclConfig_t *config, ncclComm_t *comms) {
    each_rank_in_group (part, i) NCCL_OK(ncclCommSplit(parents[i], 0, part->rank[i].rank, &comms[i], config));
}

/* The zero-CTA policy of a config, with which long all-gathers are NCCL's; a split without a config inherits it, one with a config does
 * not. */
static void policy(struct part *part, const struct options *o) {
#ifdef NCCL_CTA_POLICY_ZERO
    ncclComm_t comms[2][BOX_RANKS], child[BOX_RANKS], grandchild[BOX_RANKS];
    ncclConfig_t zero = NCCL_CONFIG_INITIALIZER, both = NCCL_CONFIG_INITIALIZER, plain = NCCL_CONFIG_INITIALIZER;
    zero.CTAPolicy = NCCL_CTA_POLICY_ZERO;
    both.CTAPolicy = NCCL_CTA_POLICY_ZERO | NCCL_CTA_POLICY_EFFICIENCY;
    make_config(part, 3, &plain, comms[1]);
    const char *otherwise = box_route(comms[1][0], BL_ALLGATHER, LARGE, ncclInt8, ncclSum);
    CHECK(otherwise && strcmp(otherwise, "nccl"), "without the policy");
    /* The environment comes before configs, if NCCL knows what it says. */
    const char *said = getenv("NCCL_CTA_POLICY"), *large = said && !strcmp(said, "DEFAULT") ? otherwise : "nccl";
    make_config(part, 1, &zero, comms[0]);
    expect_route(part, comms[0], large, "the policy in a config");
    split(part, comms[0], NULL, child);
    expect_route(part, child, large, "inherited");
    split(part, child, NULL, grandchild);
    expect_route(part, grandchild, large, "inherited twice");
    part_destroy_communicators(part, grandchild);
    part_destroy_communicators(part, child);
    split(part, comms[0], &plain, child);
    expect_route(part, child, otherwise, "not inherited by a config of its own");
    part_destroy_communicators(part, child);
    split(part, comms[1], &both, child);
    expect_route(part, child, large, "the policy in a split's config");
    part_destroy_communicators(part, child);
    split(part, comms[1], NULL, child);
    expect_route(part, child, otherwise, "nothing to inherit");
    part_destroy_communicators(part, child);
    for (int k = 0; k < 2; k++) part_destroy_communicators(part, comms[k]);
#else
    box_skip("this nccl.h knows no policy");
#endif
}

const struct scenario block_scenarios[] = {
    {.name = "blocks_eager", .run = eager},
    {.name = "blocks_captured", .run = captured},
    {.name = "blocks_beside_capture", .run = beside_capture},
    {.name = "blocks_two_communicators", .run = two_communicators},
    {.name = "blocks_same_bits", .run = same_bits},
    {.name = "blocks_abandoned", .run = abandoned, .no_communicators = true},
    {.name = "blocks_revoked", .run = revoked, .no_communicators = true},
    {.name = "blocks_policy", .run = policy, .no_communicators = true},
    {0},
};
