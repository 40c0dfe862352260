/* comms.c - communicators come and go, in all of NCCL's ways. */
#include "scenarios.h"

#include <string.h>
#include <time.h>

/* Sums int32 on a communicator of any ranks: rank r of n gives r + 1. */
static ncclResult_t sums_on(struct part *part, int i, ncclComm_t comm, CUdeviceptr buffer) {
    int n, r;
    NCCL_OK(ncclCommCount(comm, &n));
    NCCL_OK(ncclCommUserRank(comm, &r));
    uint32_t image[100];
    for (int k = 0; k < 100; k++) image[k] = (uint32_t)(r + 1 + k);
    struct rank *rank = part_enter(part, i);
    box_upload(buffer, image, sizeof image);
    return ncclAllReduce((void *)buffer, (void *)buffer, 100, ncclUint32, ncclSum, comm, rank->stream[0]);
}

static void sums_check(struct part *part, int i, ncclComm_t comm, CUdeviceptr buffer) {
    int n;
    NCCL_OK(ncclCommCount(comm, &n));
    uint32_t image[100];
    struct rank *rank = part_enter(part, i);
    CU_OK(cuStreamSynchronize(rank->stream[0]));
    CU_OK(cuMemcpyDtoH(image, buffer, sizeof image));
    for (int k = 0; k < 100; k++) {
        uint32_t want = (uint32_t)(n * (n + 1) / 2 + n * k);
        CHECK(image[k] == want, "rank %d: element %d is %u, expected %u", rank->rank, k, image[k], want);
    }
}

/* On every communicator of the part that is not NULL, three times. */
static void sums(struct part *part, ncclComm_t *comms) {
    CUdeviceptr buffer[BOX_RANKS];
    each_rank (part, i) CU_OK(cuMemAlloc(&buffer[i], 400));
    for (int round = 0; round < 3; round++) {
        part_group_start(part);
        for (int i = 0; i < part->count; i++)
            if (comms[i]) NCCL_OK(sums_on(part, i, comms[i], buffer[i]));
        part_group_end(part);
        for (int i = 0; i < part->count; i++)
            if (comms[i]) sums_check(part, i, comms[i], buffer[i]);
    }
    each_rank (part, i) CU_OK(cuMemFree(buffer[i]));
}

static void destroy(struct part *part, ncclComm_t *comms) {
    each_rank_in_group (part, i) {
        if (comms[i]) NCCL_OK(ncclCommDestroy(comms[i]));
    }
}

static void recreate(struct part *part, const struct options *o) {
    for (int round = 0; round < 6; round++) {
        ncclComm_t comms[BOX_RANKS];
        part_make_communicators(part, round, comms);
        sums(part, comms);
        part_destroy_communicators(part, comms);
    }
}

static void many(struct part *part, const struct options *o) {
    enum { COMMUNICATORS = 6 };
    ncclComm_t comms[COMMUNICATORS][BOX_RANKS];
    for (int c = 0; c < COMMUNICATORS; c++) part_make_communicators(part, c, comms[c]);
    for (int k = 0; k < 2 * COMMUNICATORS; k++) sums(part, comms[k * 5 % COMMUNICATORS]);
    for (int c = 0; c < COMMUNICATORS; c += 2) part_destroy_communicators(part, comms[c]);
    for (int c = 1; c < COMMUNICATORS; c += 2) sums(part, comms[c]);
    for (int c = COMMUNICATORS - 1; c > 0; c -= 2) part_destroy_communicators(part, comms[c]);
}

/* Halves, then one rank alone and the rest, then reversed order of ranks; the parent works on. */
static void split(struct part *part, const struct options *o) {
    int n = part->box->nranks;
    for (int kind = 0; kind < 3; kind++) {
        ncclComm_t parent[BOX_RANKS], comms[BOX_RANKS];
        part_comms(part, parent);
        each_rank_in_group (part, i) {
            int r = part->rank[i].rank;
            int color = kind == 0 ? r < n / 2 : kind == 1 ? (r == 0 ? NCCL_SPLIT_NOCOLOR : 1) : 0;
            NCCL_OK(ncclCommSplit(parent[i], color, kind == 2 ? n - r : r, &comms[i], NULL));
        }
        for (int i = 0; i < part->count; i++) CHECK((comms[i] == NULL) == (kind == 1 && part->rank[i].rank == 0));
        sums(part, comms);
        sums(part, parent);
        destroy(part, comms);
        sums(part, parent);
    }
}

static void shrink(struct part *part, const struct options *o) {
    if (part->box->nranks < 3) return;
    int gone = part->box->nranks - 1;
    ncclComm_t comms[BOX_RANKS] = {0};
    each_rank_in_group (part, i) {
        if (part->rank[i].rank == gone) continue;
        NCCL_OK(ncclCommShrink(part->rank[i].comm, &gone, 1, &comms[i], NULL, NCCL_SHRINK_DEFAULT));
    }
    sums(part, comms);
    destroy(part, comms);
}

static void config(struct part *part, const struct options *o) {
    ncclUniqueId id;
    box_unique_id(part, 1, &id);
    ncclComm_t comms[BOX_RANKS];
    each_rank_in_group (part, i) {
        ncclConfig_t settings = NCCL_CONFIG_INITIALIZER;
        settings.commName = "tp0"; /* for who runs this with BEELINE_COMMS */
        NCCL_OK(ncclCommInitRankConfig(&comms[i], part->box->nranks, id, part->rank[i].rank, &settings));
    }
    sums(part, comms);
    destroy(part, comms);
}

static void scalable(struct part *part, const struct options *o) {
    ncclUniqueId id[2];
    box_unique_id(part, 1, &id[0]);
    box_unique_id(part, 2, &id[1]);
    ncclComm_t comms[BOX_RANKS];
    each_rank_in_group (part, i) {
        ncclConfig_t settings = NCCL_CONFIG_INITIALIZER;
        NCCL_OK(ncclCommInitRankScalable(&comms[i], part->box->nranks, part->rank[i].rank, 2, id, &settings));
    }
    sums(part, comms);
    destroy(part, comms);
}

/* One id for several communicators, one after another, as with NCCL_COMM_ID: after a destroy and after an abort. */
static void same_id(struct part *part, const struct options *o) {
    ncclUniqueId id;
    box_unique_id(part, 1, &id);
    for (int round = 0; round < 4; round++) {
        ncclComm_t comms[BOX_RANKS];
        each_rank_in_group (part, i) NCCL_OK(ncclCommInitRank(&comms[i], part->box->nranks, id, part->rank[i].rank));
        sums(part, comms);
        for (int i = 0; i < part->count; i++) NCCL_OK(round % 2 ? ncclCommAbort(comms[i]) : ncclCommDestroy(comms[i]));
        part_barrier(part);
    }
}

static void nonblocking(struct part *part, const struct options *o) {
    ncclComm_t comms[BOX_RANKS];
    part_make_nonblocking(part, 1, comms);
    CUdeviceptr buffer[BOX_RANKS];
    each_rank (part, i) CU_OK(cuMemAlloc(&buffer[i], 400));
    for (int round = 0; round < 4; round++) {
        part_group_start(part);
        for (int i = 0; i < part->count; i++) NCCL_GOES(sums_on(part, i, comms[i], buffer[i]));
        if (part->count > 1) NCCL_GOES(ncclGroupEnd());
        part_settle(part, comms);
        for (int i = 0; i < part->count; i++) sums_check(part, i, comms[i], buffer[i]);
    }
    each_rank (part, i) {
        CU_OK(cuMemFree(buffer[i]));
        NCCL_GOES(ncclCommFinalize(comms[i]));
    }
    part_settle(part, comms);
    for (int i = 0; i < part->count; i++) NCCL_OK(ncclCommDestroy(comms[i]));
}

/* Beeline serves it, if Beeline is there. */
static void expect_served(struct part *part, ncclComm_t *comms) {
    for (int i = 0; i < part->count; i++) {
        bool served = !box_route(part->rank[i].comm, BL_ALLREDUCE, 1, ncclUint32, ncclSum);
        for (size_t count = 1; comms[i] && count < 1 << 16 && !served; count *= 4)
            served = strcmp(box_route(comms[i], BL_ALLREDUCE, count, ncclUint32, ncclSum), "nccl") != 0;
        CHECK(served || !comms[i], "rank %d: its child is NCCL's", part->rank[i].rank);
    }
}

/* A blocking one is done when finalize returns. */
static void finalize_behind_call(struct part *part, ncclComm_t *comms) {
    if (part->count > 1 || !comms[0]) return;
    CUdeviceptr buffer;
    CU_OK(cuMemAlloc(&buffer, 400));
    NCCL_OK(sums_on(part, 0, comms[0], buffer));
    NCCL_OK(ncclCommFinalize(comms[0]));
    sums_check(part, 0, comms[0], buffer);
    CU_OK(cuMemFree(buffer));
}

/* Of two parents, which ranks ask after in different orders: nobody's child may wait for a question. */
enum { PARENTS = 2 };
static void await_children(struct part *part, ncclComm_t parent[PARENTS][BOX_RANKS],
                           ncclComm_t child[PARENTS][BOX_RANKS], const int without[PARENTS]) {
    for (int k = 0; k < PARENTS; k++) {
        const int p = (part->rank[0].rank + k) % PARENTS;
        part_settle(part, parent[p]);
        for (int i = 0; i < part->count; i++)
            CHECK((child[p][i] == NULL) == (part->rank[i].rank == without[p]), "rank %d: %s child", part->rank[i].rank,
                  child[p][i] ? "a" : "no");
    }
    for (int p = 0; p < PARENTS; p++) {
        expect_served(part, child[p]);
        sums(part, child[p]);
        finalize_behind_call(part, child[p]);
        destroy(part, child[p]);
    }
}

/* Children whose own calls block: a config says so, or does not say.  A group that is simulated makes them, too. */
static void split_off(struct part *part, const ncclComm_t *parent, ncclComm_t *child, int without) {
    ncclConfig_t settings = NCCL_CONFIG_INITIALIZER;
    ncclSimInfo_t simulated = NCCL_SIM_INFO_INITIALIZER;
    const bool grouped = part->count > 1 || without >= 0;
    if (without < 0) settings.blocking = 1;
    if (grouped) NCCL_OK(ncclGroupStart());
    each_rank (part, i) {
        const int rank = part->rank[i].rank;
        NCCL_GOES(ncclCommSplit(parent[i], rank == without ? NCCL_SPLIT_NOCOLOR : 7, -rank, &child[i], &settings));
    }
    if (grouped) NCCL_GOES(without == 1 ? ncclGroupSimulateEnd(&simulated) : ncclGroupEnd());
}

static void shrink_off(struct part *part, const ncclComm_t *parent, ncclComm_t *child, int gone) {
    ncclConfig_t settings = NCCL_CONFIG_INITIALIZER;
    part_group_start(part);
    each_rank (part, i) {
        child[i] = NULL;
        if (part->rank[i].rank == gone) continue;
        NCCL_GOES(ncclCommShrink(parent[i], &gone, 1, &child[i], &settings, NCCL_SHRINK_DEFAULT));
    }
    if (part->count > 1) NCCL_GOES(ncclGroupEnd());
}

/* With all ranks, without one of the first two, and with the last one shrunk away. */
static void nonblocking_children(struct part *part, const struct options *o) {
    const int gone = part->box->nranks - 1, without[][PARENTS] = {{-1, -1}, {0, 1}, {gone, gone}};
    ncclComm_t parent[PARENTS][BOX_RANKS], child[PARENTS][BOX_RANKS];
    for (int p = 0; p < PARENTS; p++) part_make_nonblocking(part, p + 1, parent[p]);
    for (int kind = 0; kind < (gone < 2 ? 1 : 3); kind++) {
        memset(child, 0x5a, sizeof child);
        for (int p = 0; p < PARENTS; p++)
            (kind == 2 ? shrink_off : split_off)(part, parent[p], child[p], without[kind][p]);
        await_children(part, parent, child, without[kind]);
    }
    for (int p = 0; p < PARENTS; p++) destroy(part, parent[p]);
}

/* Rank 0 never splits: whoever waits for it may give up, and what NCCL has not made nobody gets.  Then all split, and give up
 * sooner or later: whoever has a child by then ends it. */
static void nonblocking_split_aborted(struct part *part, const struct options *o) {
    enum { ROUNDS = 12 };
    for (int round = 0; round < ROUNDS; round++) {
        ncclComm_t parent[BOX_RANKS], child[BOX_RANKS] = {0};
        part_make_nonblocking(part, round, parent);
        each_rank (part, i) {
            if (round == 0 && part->rank[i].rank == 0) continue;
            NCCL_GOES(ncclCommSplit(parent[i], 0, 0, &child[i], NULL));
            CHECK(round > 0 || !child[i], "a split without rank 0 is over at once");
        }
        nanosleep(&(struct timespec){.tv_nsec = 700000L * (round * 7 % ROUNDS)}, NULL);
        for (int i = 0; i < part->count; i++) NCCL_OK(ncclCommAbort(parent[i]));
        for (int i = 0; i < part->count; i++) {
            CHECK(round > 0 || !child[i], "a child came of nothing");
            if (child[i]) NCCL_OK(ncclCommAbort(child[i]));
        }
    }
}

static void finalized(struct part *part, const struct options *o) {
    ncclComm_t comms[BOX_RANKS];
    part_make_communicators(part, 1, comms);
    sums(part, comms);
    each_rank_in_group (part, i) NCCL_OK(ncclCommFinalize(comms[i]));
    destroy(part, comms);
}

/* As many as a process may come to have.  Those that do not fit are NCCL's; and there is room again once they are gone. */
static void budget(struct part *part, const struct options *o) {
    enum { MANY = 44 };
    static const size_t limit = (size_t)(800 + 2 * MANY) << 20; /* BEELINE_BUDGET, and granules */
    ncclComm_t comms[MANY][BOX_RANKS];
    for (int round = 0; round < 2; round++) {
        size_t before, after, all;
        part_enter(part, 0);
        CU_OK(cuMemGetInfo(&before, &all));
        for (int c = 0; c < MANY; c++) part_make_communicators(part, 1 + c, comms[c]);
        part_enter(part, 0);
        CU_OK(cuMemGetInfo(&after, &all));
        CHECK(before - after <= limit, "%zu MiB", (before - after) >> 20);
        for (int c = 0; c < MANY; c++) sums(part, comms[c]);
        for (int c = 0; c < MANY; c++) destroy(part, comms[c]);
        part_barrier(part);
    }
}

/* Aborted after use, with calls just issued; the next communicator works. */
static void aborted(struct part *part, const struct options *o) {
    ncclComm_t comms[BOX_RANKS];
    part_make_communicators(part, 1, comms);
    sums(part, comms);
    part_barrier(part);
    each_rank (part, i) NCCL_OK(ncclCommAbort(comms[i]));
    part_barrier(part);
    part_make_communicators(part, 3, comms);
    sums(part, comms);
    destroy(part, comms);
}

/* A rank that calls alone waits for its peers; abort gets it out, soon. */
static void aborted_while_waiting(struct part *part, const struct options *o) {
    ncclComm_t comms[BOX_RANKS];
    CUdeviceptr buffer = 0;
    part_make_communicators(part, 1, comms);
    struct rank *rank = part_enter(part, 0);
    if (rank->rank == 0) {
        CU_OK(cuMemAlloc(&buffer, 4096));
        NCCL_OK(ncclAllReduce((void *)buffer, (void *)buffer, 1024, ncclFloat, ncclSum, comms[0], rank->stream[0]));
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    part_barrier(part); /* nobody aborts while another is still in the init */
    each_rank (part, i) NCCL_OK(ncclCommAbort(comms[i]));
    if (buffer) {
        part_enter(part, 0);
        CU_OK(cuStreamSynchronize(rank->stream[0]));
        CU_OK(cuMemFree(buffer));
    }
    part_barrier(part);
    part_make_communicators(part, 3, comms);
    sums(part, comms);
    destroy(part, comms);
}

const struct scenario comm_scenarios[] = {
    {.name = "comm_recreate", .run = recreate, .no_communicators = true},
    {.name = "comm_many", .run = many, .no_communicators = true},
    {.name = "comm_split", .run = split},
    {.name = "comm_shrink", .run = shrink},
    {.name = "comm_config", .run = config, .no_communicators = true},
    {.name = "comm_scalable", .run = scalable, .no_communicators = true},
    {.name = "comm_same_id", .run = same_id, .no_communicators = true},
    {.name = "comm_nonblocking", .run = nonblocking, .no_communicators = true},
    {.name = "comm_nonblocking_children", .run = nonblocking_children},
    {.name = "comm_nonblocking_split_aborted", .run = nonblocking_split_aborted, .no_communicators = true},
    {.name = "comm_finalized", .run = finalized, .no_communicators = true},
    {.name = "comm_budget", .run = budget, .no_communicators = true},
    {.name = "comm_aborted", .run = aborted, .no_communicators = true},
    {.name = "comm_aborted_while_waiting", .run = aborted_while_waiting, .no_communicators = true},
    {0},
};
