/* later.c - what NCCL has had since the nccl.h that most builds have: suspend and resume, and collectives with a configuration of
 * their own.  Skipped where the NCCL at hand lacks it. */
#include "scenarios.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "coll_config.h"
#include "real/nccl_later.h"

enum { CALLS = 3 };

/* As declared in nccl.h or nccl_later.h, wherever it comes from. */
#define LATER(function)                                                                                                \
    __typeof__(function) *const my_##function = (__typeof__(function) *)dlsym(RTLD_DEFAULT, #function);                \
    if (!my_##function) box_skip("%s is not in this NCCL", #function)

static void prepare(struct part *part, struct call *calls) {
    static const size_t counts[CALLS] = {1, 500, 100003};
    for (int k = 0; k < CALLS; k++) {
        scenario_call(part, &calls[k], k, counts[k], 0);
        calls[k].in_place = false;
        call_prepare(part, &calls[k]);
    }
}

static void check(struct part *part, struct call *calls) {
    part_synchronize(part);
    for (int k = 0; k < CALLS; k++) {
        call_check(part, &calls[k]);
        call_refill(part, &calls[k]);
    }
}

static size_t available(void) {
    size_t bytes, all;
    CU_OK(cuMemGetInfo(&bytes, &all));
    return bytes;
}

/* Calls and replays before and after, and memory given back in between.  NCCL waits for all ranks in the very call, so a thread
 * cannot do it for two. */
static void suspended(struct part *part, const struct options *o) {
    LATER(ncclCommSuspend);
    LATER(ncclCommResume);
    LATER(ncclCommMemStats);
    if (part->count > 1) return;
    struct call calls[CALLS] = {0};
    struct graphs graphs;
    struct rank *rank = part_enter(part, 0);
    uint64_t suspends, total, persists, now;
    prepare(part, calls);
    graphs_begin(part, 0);
    for (int k = 0; k < CALLS; k++) call_issue(part, &calls[k]);
    graphs_end(part, 0, &graphs);
    graphs_launch(part, &graphs, 0);
    check(part, calls);
    for (int round = 0; round < 3; round++) {
        NCCL_OK(my_ncclCommMemStats(rank->comm, ncclStatGpuMemSuspend, &suspends));
        NCCL_OK(my_ncclCommMemStats(rank->comm, ncclStatGpuMemPersist, &persists));
        NCCL_OK(my_ncclCommMemStats(rank->comm, ncclStatGpuMemTotal, &total));
        CHECK(total == suspends + persists, "%zu and %zu of %zu", (size_t)suspends, (size_t)persists, (size_t)total);
        const size_t before = available();
        NCCL_OK(my_ncclCommSuspend(rank->comm, NCCL_SUSPEND_MEM));
        NCCL_OK(my_ncclCommMemStats(rank->comm, ncclStatGpuMemSuspended, &now));
        CHECK(now == 1);
        CHECK(available() >= before + suspends, "%zu bytes free, %zu before", available(), before);
        NCCL_OK(my_ncclCommResume(rank->comm));
        NCCL_OK(my_ncclCommMemStats(rank->comm, ncclStatGpuMemSuspended, &now));
        CHECK(now == 0);
        graphs_launch(part, &graphs, 0);
        check(part, calls);
        for (int k = 0; k < CALLS; k++) call_issue(part, &calls[k]);
        check(part, calls);
    }
    graphs_free(part, &graphs);
    for (int k = 0; k < CALLS; k++) call_free(part, &calls[k]);
}

/* Without graphs, whose calls would be Beeline's for good. */
static void suspended_plain(struct part *part, const struct options *o) {
    LATER(ncclCommSuspend);
    LATER(ncclCommResume);
    if (part->count > 1) return;
    struct rank *rank = part_enter(part, 0);
    for (int k = 0; k < 3; k++) {
        scenario_works(part, k);
        NCCL_OK(my_ncclCommSuspend(rank->comm, NCCL_SUSPEND_MEM));
        NCCL_OK(my_ncclCommResume(rank->comm));
    }
    scenario_works(part, 3);
}

/* For a box on which a rank does not get its memory again: all ranks are told, if there are graphs. */
static void resume_fails(struct part *part, const struct options *o) {
    LATER(ncclCommSuspend);
    LATER(ncclCommResume);
    ncclComm_t comms[BOX_RANKS];
    CUstream stream[BOX_RANKS];
    struct graphs graphs;
    struct chain chain;
    part_make_communicators(part, 1, comms);
    part_streams(part, 0, stream);
    chain_open(part, &chain, 1000);
    graphs_begin(part, 0);
    chain_allreduce(part, &chain, comms, stream);
    graphs_end(part, 0, &graphs);
    NCCL_OK(my_ncclCommSuspend(comms[0], NCCL_SUSPEND_MEM));
    CHECK(my_ncclCommResume(comms[0]) == ncclUnhandledCudaError);
    CHECK(strstr(ncclGetLastError(comms[0]), "could not be resumed"), "%s", ncclGetLastError(comms[0]));
    CHECK(ncclAllReduce((void *)chain.from[0], (void *)chain.to[0], 1, ncclInt32, ncclSum, comms[0], stream[0]) ==
          ncclUnhandledCudaError);
    NCCL_OK(ncclCommAbort(comms[0]));
    graphs_free(part, &graphs);
    chain_close(part, &chain);
}

static void await(ncclComm_t comm, ncclResult_t result) {
    while (result == ncclInProgress) NCCL_OK(ncclCommGetAsyncError(comm, &result));
    NCCL_OK(result);
}

/* Nonblocking on rank 1 alone: whether the staging is given back is for all to know. */
static void suspended_mixed(struct part *part, const struct options *o) {
    LATER(ncclCommSuspend);
    LATER(ncclCommResume);
    if (part->count > 1) return;
    ncclUniqueId id;
    ncclComm_t comm;
    CUstream stream[BOX_RANKS];
    struct chain chain;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    const struct rank *rank = part_enter(part, 0);
    config.blocking = rank->rank != 1;
    box_unique_id(part, 1, &id);
    const ncclResult_t made = ncclCommInitRankConfig(&comm, part->box->nranks, id, rank->rank, &config);
    await(comm, made);
    part_streams(part, 0, stream);
    chain_open(part, &chain, 1000);
    for (int k = 0; k < 3; k++) {
        chain_allreduce(part, &chain, &comm, stream);
        part_synchronize(part);
        chain_check(part, &chain);
        await(comm, my_ncclCommSuspend(comm, NCCL_SUSPEND_MEM));
        await(comm, my_ncclCommResume(comm));
    }
    NCCL_OK(ncclCommDestroy(comm));
    chain_close(part, &chain);
}

/* Destroyed as it is. */
static void suspended_destroyed(struct part *part, const struct options *o) {
    ncclComm_t comms[BOX_RANKS];
    LATER(ncclCommSuspend);
    if (part->count > 1) return;
    part_make_communicators(part, 1, comms);
    part_enter(part, 0);
    NCCL_OK(my_ncclCommSuspend(comms[0], NCCL_SUSPEND_MEM));
    NCCL_OK(ncclCommDestroy(comms[0]));
    scenario_works(part, 0);
}

/* Chains of calls with and without configuration, some of which only NCCL can heed: all in order. */
static void configured(struct part *part, const struct options *o) {
    LATER(ncclAllReduceConfig);
    struct coll_config tagged = coll_config_unset, wide = coll_config_unset;
    tagged.tag = 17;
    wide.min_ctas = 4;
    const struct coll_config *const configs[] = {NULL, &coll_config_unset, &wide, &tagged};
    struct chain chain;
    chain_open(part, &chain, 900);
    for (int k = 0; k < 12; k++) {
        each_rank_in_group (part, i) {
            struct rank *rank = &part->rank[i];
            NCCL_OK(my_ncclAllReduceConfig((void *)chain.from[i], (void *)chain.to[i], chain.count, ncclInt32, ncclSum,
                                           rank->comm, rank->stream[k % 2], (const ncclCollConfig_t *)configs[k % 4]));
        }
        chain_reduced(part, &chain);
    }
    each_rank_in_group (part, i) { /* of floats, whose bits NCCL may make others */
        struct rank *rank = &part->rank[i];
        void *buffer = (void *)chain.to[i];
        NCCL_OK(my_ncclAllReduceConfig(buffer, buffer, chain.count, ncclFloat, ncclSum, rank->comm, rank->stream[0],
                                       (const ncclCollConfig_t *)&wide));
    }
    chain_finish(part, &chain);
}

/* Of each collective that has such a function. */
#define CONFIGURED(function, ...)                                                                                      \
    do {                                                                                                               \
        LATER(function);                                                                                               \
        NCCL_OK(my_##function(from, to, call->count, __VA_ARGS__, rank->comm, rank->stream[0], config));               \
    } while (0)

static void issue_configured(struct part *part, const struct call *call, const ncclCollConfig_t *config) {
    each_rank_in_group (part, i) {
        const struct rank *rank = &part->rank[i];
        void *from = (void *)call_sendbuff(call, i), *to = (void *)call_recvbuff(call, i);
        switch (call->collective) {
        case BL_ALLREDUCE: CONFIGURED(ncclAllReduceConfig, ncclInt32, ncclSum); break;
        case BL_ALLGATHER: CONFIGURED(ncclAllGatherConfig, ncclInt32); break;
        case BL_REDUCESCATTER: CONFIGURED(ncclReduceScatterConfig, ncclInt32, ncclSum); break;
        case BL_ALLTOALL: CONFIGURED(ncclAlltoAllConfig, ncclInt32); break;
        case BL_BROADCAST: CONFIGURED(ncclBroadcastConfig, ncclInt32, call->root); break;
        case BL_REDUCE: CONFIGURED(ncclReduceConfig, ncclInt32, ncclSum, call->root); break;
        default: FAIL("%s has none", collective_name(call->collective));
        }
    }
}

static void configured_each(struct part *part, const struct options *o) {
    static const enum bl_collective collectives[] = {BL_ALLREDUCE, BL_ALLGATHER, BL_REDUCESCATTER,
                                                     BL_ALLTOALL,  BL_BROADCAST, BL_REDUCE};
    struct coll_config wide = coll_config_unset;
    wide.min_ctas = 4;
    const struct coll_config *const configs[] = {NULL, &coll_config_unset, &wide};
    for (int k = 0; k < 18; k++) {
        struct call call = {.collective = collectives[k / 3],
                            .datatype = ref_datatype("int32"),
                            .redop = ref_redop("sum"),
                            .count = 900,
                            .seed = part->box->seed + (uint64_t)k};
        call_prepare(part, &call);
        issue_configured(part, &call, (const ncclCollConfig_t *)configs[k % 3]);
        part_synchronize(part);
        call_check(part, &call);
        call_free(part, &call);
    }
}

static unsigned widest(CUgraph graph) {
    CUgraphNode nodes[64];
    size_t count = 64;
    unsigned blocks = 0;
    CU_OK(cuGraphGetNodes(graph, nodes, &count));
    for (size_t i = 0; i < count; i++) {
        CUgraphNodeType type;
        CUDA_KERNEL_NODE_PARAMS kernel;
        CU_OK(cuGraphNodeGetType(nodes[i], &type));
        if (type != CU_GRAPH_NODE_TYPE_KERNEL) continue;
        CU_OK(cuGraphKernelNodeGetParams(nodes[i], &kernel));
        if (kernel.gridDimX > blocks) blocks = kernel.gridDimX;
    }
    return blocks;
}

/* An all-reduce captured, looked at, and replayed: what is seen of its graph, alike on all ranks. */
static unsigned captured(struct part *part, ncclComm_t *comms, size_t count, unsigned (*look)(CUgraph)) {
    CUstream stream[BOX_RANKS];
    struct chain chain;
    struct graphs graphs;
    unsigned seen = 0;
    part_streams(part, 0, stream);
    chain_open(part, &chain, count);
    graphs_begin(part, 0);
    chain_allreduce(part, &chain, comms, stream);
    graphs_end(part, 0, &graphs);
    each_rank (part, i) {
        const unsigned one = look(graphs.graph[i]);
        CHECK(i == 0 || one == seen, "%u, %u", one, seen);
        seen = one;
    }
    graphs_launch(part, &graphs, 0);
    part_synchronize(part);
    chain_check(part, &chain);
    graphs_free(part, &graphs);
    chain_close(part, &chain);
    return seen;
}

/* maxCTAs bounds the blocks of whoever serves, of a child by split, too. */
static void max_ctas(struct part *part, const struct options *o) {
    static const unsigned limits[] = {1, 3};
    for (int round = 0; round < 2; round++) {
        ncclUniqueId id;
        ncclComm_t made[BOX_RANKS], comms[BOX_RANKS];
        box_unique_id(part, 1 + round, &id);
        each_rank_in_group (part, i) {
            ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
            config.maxCTAs = (int)limits[round];
            NCCL_OK(ncclCommInitRankConfig(&made[i], part->box->nranks, id, part->rank[i].rank, &config));
        }
        part_split(part, made, comms);
        for (int who = 0; who < 2; who++) { /* as much as Beeline serves with one block */
            const unsigned blocks = captured(part, who ? comms : made, 2000, widest);
            CHECK(blocks >= 1 && blocks <= limits[round], "%u blocks", blocks);
        }
        part_destroy_communicators(part, comms);
        part_destroy_communicators(part, made);
    }
}

/* ncclConfig_t of NCCL 2.32, nothing of it said. */
struct newest {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share, traffic_class;
    const char *name;
    int unsaid[6], graph_usage, unsaid_too[3], launch_order, last[4];
};

static struct newest newest_config(int graph_usage, int launch_order) {
    enum { NO = NCCL_CONFIG_UNDEF_INT };
    return (struct newest){.size = sizeof(struct newest),
                           .magic = 0xcafebeef,
                           .version = 23203,
                           .blocking = NO,
                           .cga_cluster_size = NO,
                           .min_ctas = NO,
                           .max_ctas = NO,
                           .split_share = NO,
                           .traffic_class = NO,
                           .unsaid = {NO, NO, NO, NO, NO, NO},
                           .graph_usage = graph_usage,
                           .unsaid_too = {NO, NO, NO},
                           .launch_order = launch_order,
                           .last = {NO, NO, NO, NO}};
}

void part_make_configured(struct part *part, int which, int graph_usage, int launch_order, ncclComm_t *comms) {
    struct newest config = newest_config(graph_usage, launch_order);
    ncclUniqueId id;
    box_unique_id(part, which, &id);
    each_rank_in_group (part, i)
        NCCL_OK(ncclCommInitRankConfig(&comms[i], part->box->nranks, id, part->rank[i].rank, (ncclConfig_t *)&config));
}

/* How many nodes are of events; a device can launch a graph that has none. */
static unsigned events_in(CUgraph graph) {
    CUgraphNode nodes[64];
    CUgraphExec exec;
    size_t count = 64;
    unsigned events = 0;
    CU_OK(cuGraphGetNodes(graph, nodes, &count));
    for (size_t i = 0; i < count; i++) {
        CUgraphNodeType type;
        CU_OK(cuGraphNodeGetType(nodes[i], &type));
        events += type == CU_GRAPH_NODE_TYPE_WAIT_EVENT || type == CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    }
    const CUresult status = cu.cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
    CHECK(status == (events ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS), "for launches by a device: %d", (int)status);
    if (status == CUDA_SUCCESS) CU_OK(cuGraphExecDestroy(exec));
    return events;
}

static unsigned events_captured(struct part *part, ncclComm_t *comms) {
    return captured(part, comms, 5000, events_in);
}

/* What a variable says in place of a config, if it says one of the numbers that NCCL knows; `otherwise` if not. */
static unsigned said(const char *variable, unsigned otherwise) {
    const char *text = getenv(variable);
    return text && (!strcmp(text, "0") || !strcmp(text, "1")) ? (unsigned)(*text - '0') : otherwise;
}

/* graphUsageMode: what never overlaps has no nodes of events, which graphs that a device launches, or bodies of loops, cannot have.  A
 * child has what its parent has, or what its own config says; the environment comes before all. */
static void graph_usage(struct part *part, const struct options *o) {
    static const int modes[] = {NCCL_CONFIG_UNDEF_INT, 2, 1, 0};
    for (int k = 0; k < 4; k++) {
        ncclComm_t made[BOX_RANKS], comms[BOX_RANKS];
        const unsigned events = 2 * said("NCCL_GRAPH_MIXING_SUPPORT", k < 2);
        part_make_configured(part, 1 + k, modes[k], NCCL_CONFIG_UNDEF_INT, made);
        CHECK(events_captured(part, made) == events, "graphUsageMode %d", modes[k]);
        part_split(part, made, comms);
        CHECK(events_captured(part, comms) == events, "graphUsageMode %d of the parent", modes[k]);
        part_destroy_communicators(part, comms);
        struct newest mixed = newest_config(2, NCCL_CONFIG_UNDEF_INT);
        each_rank_in_group (part, i)
            NCCL_OK(ncclCommSplit(made[i], 0, part->rank[i].rank, &comms[i], (ncclConfig_t *)&mixed));
        CHECK(events_captured(part, comms) == 2 * said("NCCL_GRAPH_MIXING_SUPPORT", 1), "of the child's own");
        part_destroy_communicators(part, comms);
        part_destroy_communicators(part, made);
    }
}

/* launchOrderImplicit: a captured call waits for the other communicators, too; one of a child does. */
static void launch_order(struct part *part, const struct options *o) {
    ncclComm_t first[BOX_RANKS], second[BOX_RANKS], child[BOX_RANKS];
    part_make_configured(part, 1, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, first);
    for (int order = 0; order < 2; order++) {
        const unsigned in_order = said("NCCL_LAUNCH_ORDER_IMPLICIT", (unsigned)order);
        part_make_configured(part, 2 + order, NCCL_CONFIG_UNDEF_INT, order, second);
        CHECK(events_captured(part, second) == 2 + in_order, "launchOrderImplicit %d", order);
        part_split(part, second, child);
        CHECK(events_captured(part, child) == 2 + 2 * in_order, "launchOrderImplicit %d of the parent", order);
        part_destroy_communicators(part, child);
        part_destroy_communicators(part, second);
    }
    part_destroy_communicators(part, first);
}

/* Replays that leave no event: who finds no room beside their graphs is narrow, since it cannot be behind them. */
static void untold_room(struct part *part, const struct options *o) {
    enum { COMMS = 6 };
    ncclComm_t comms[COMMS][BOX_RANKS];
    unsigned grid[COMMS];
    for (int k = 0; k < COMMS; k++) part_make_configured(part, 1 + k, 1, NCCL_CONFIG_UNDEF_INT, comms[k]);
    for (int k = 0; k < COMMS; k++) grid[k] = captured(part, comms[k], 500000, widest);
    CHECK(grid[0] > 8, "the first has %u blocks", grid[0]);
    CHECK(grid[COMMS - 1] <= 2, "the last has %u, the one before %u", grid[COMMS - 1], grid[COMMS - 2]);
    for (int k = 0; k < COMMS; k++) part_destroy_communicators(part, comms[k]);
}

const struct scenario later_scenarios[] = {
    {.name = "later_suspended", .run = suspended},
    {.name = "later_suspended_plain", .run = suspended_plain},
    {.name = "later_resume_fails", .run = resume_fails, .no_communicators = true},
    {.name = "later_suspended_mixed", .run = suspended_mixed, .no_communicators = true},
    {.name = "later_suspended_destroyed", .run = suspended_destroyed},
    {.name = "later_configured", .run = configured},
    {.name = "later_configured_each", .run = configured_each},
    {.name = "later_max_ctas", .run = max_ctas, .no_communicators = true},
    {.name = "later_graph_usage", .run = graph_usage, .no_communicators = true},
    {.name = "later_launch_order", .run = launch_order, .no_communicators = true},
    {.name = "later_untold_room", .run = untold_room, .no_communicators = true},
    {0},
};
