/* faults.c - ways in which communicators end that are not the usual ones; one scenario a run, named on the command
 * line.
 *
 * Options as of test/ranks (test/harness/options.h).  A scenario runs on every part, and makes its own communicators.
 */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "options.h"
#include "sums.h"

/* --- scenarios --- */

/* A peer may die in the middle of the init: the others come out of it, all left to NCCL. */
static void survive(struct part *part) {
    ncclComm_t comms[BOX_RANKS];
    double begin = box_seconds();
    part_make_communicators(part, 1, comms);
    printf("rank %d survived: route %s after %.1f s\n", part->rank[0].rank,
           box_route(comms[0], BL_ALLREDUCE, ELEMENTS, ncclUint32, ncclSum), box_seconds() - begin);
    fflush(stdout);
    abort_all(part, comms);
}

/* The asynchronous error, once there is one. */
static ncclResult_t await_error(ncclComm_t comm) {
    ncclResult_t state = ncclSuccess;
    for (double limit = box_seconds() + 30; state == ncclSuccess && box_seconds() < limit; nap())
        NCCL_OK(ncclCommGetAsyncError(comm, &state));
    return state;
}

/* Rank 0 calls, the others never do: the kernel says so, the error can be read, and the kernel waits on until the abort. */
static void timeout(struct part *part) {
    ncclComm_t comms[BOX_RANKS];
    struct sums sums;
    part_make_communicators(part, 1, comms);
    sums_open(part, &sums);
    int zero = index_of(part, 0);
    if (zero >= 0) {
        NCCL_OK(sums_call(part, &sums, zero, comms[zero]));
        const ncclResult_t state = await_error(comms[zero]);
        CHECK(state == ncclRemoteError, "the error is %s", ncclGetErrorString(state));
        const char *text = ncclGetLastError(comms[zero]);
        CHECK(strstr(text, "rank 0") && strstr(text, "waited 1 s"), "it says: %s", text);
        CHECK(sums_call(part, &sums, zero, comms[zero]) == ncclRemoteError);
        CHECK(cu.cuStreamQuery(part_enter(part, zero)->stream[0]) == CUDA_ERROR_NOT_READY,
              "it went on without its peers");
        /* In a group, its end says so, too, and that group's error is not the next one's. */
        NCCL_OK(ncclGroupStart());
        CHECK(sums_call(part, &sums, zero, comms[zero]) == ncclRemoteError);
        CHECK(ncclGroupEnd() == ncclRemoteError);
        NCCL_OK(ncclGroupStart());
        NCCL_OK(ncclGroupEnd());
    }
    part_barrier(part);
    abort_all(part, comms);
    if (zero >= 0) CU_OK(cuStreamSynchronize(part_enter(part, zero)->stream[0]));
    sums_close(part, &sums);
}

/* An all-gather by the copy engines of which rank 0's part fails half way: it says so, so do all calls after it, and a capture
 * around it can be ended. */
static void copy_half(struct part *part, bool captured) {
    enum { EACH = 300000 };
    ncclComm_t comms[BOX_RANKS];
    CUdeviceptr buffer;
    CUgraph graph;
    ncclResult_t state;
    struct rank *rank = part_enter(part, 0);
    CHECK(part->count == 1, "one rank a thread");
    part_make_communicators(part, 1, comms);
    CU_OK(cuMemAlloc(&buffer, (size_t)EACH * (size_t)part->box->nranks));
    const bool fails = rank->rank == 0;
    void *const all = (void *)buffer, *const own = (char *)all + (size_t)rank->rank * EACH;
    if (captured) CU_OK(cuStreamBeginCapture(rank->stream[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    ncclResult_t result = ncclAllGather(own, all, EACH, ncclInt8, comms[0], rank->stream[0]);
    CHECK(result == (fails ? ncclUnhandledCudaError : ncclSuccess), "it says %s", ncclGetErrorString(result));
    if (captured) {
        CU_OK(cuStreamEndCapture(rank->stream[0], &graph));
        CU_OK(cuGraphDestroy(graph));
    }
    NCCL_OK(ncclCommGetAsyncError(comms[0], &state));
    CHECK(state == result, "the error is %s", ncclGetErrorString(state));
    if (fails) {
        CHECK(strstr(ncclGetLastError(comms[0]), "failed half way"), "it says: %s", ncclGetLastError(comms[0]));
        CHECK(ncclAllGather(own, all, EACH, ncclInt8, comms[0], rank->stream[0]) == ncclUnhandledCudaError);
        CHECK(ncclAllGather(own, all, 1, ncclInt8, comms[0], rank->stream[0]) == ncclUnhandledCudaError);
    }
    part_barrier(part);
    abort_all(part, comms);
    CU_OK(cuStreamSynchronize(rank->stream[0]));
    CU_OK(cuMemFree(buffer));
}
static void copy_half_eager(struct part *part) {
    copy_half(part, false);
}
static void copy_half_captured(struct part *part) {
    copy_half(part, true);
}

/* Rank 0 waits for peers that do not come; revoked, it waits no longer. */
static void revoke(struct part *part) {
    ncclComm_t comms[BOX_RANKS];
    struct sums sums;
    const int zero = sums_alone(part, &sums, comms);
    each_rank (part, i) NCCL_OK(ncclCommRevoke(comms[i], 0));
    if (zero >= 0) CU_OK(cuStreamSynchronize(part_enter(part, zero)->stream[0]));
    part_barrier(part);
    destroy(part, comms);
    sums_close(part, &sums);
}

/* NCCL's files of settings are in the environment once it has been initialized, not before; what a program sets until then counts, too. */
static void late_settings(struct part *part) {
    ncclComm_t comms[BOX_RANKS];
    int version;
    NCCL_OK(ncclGetVersion(&version)); /* all that Beeline does has begun */
    setenv("NCCL_MAX_CTAS", "1", 1);
    part_make_communicators(part, 1, comms);
    each_rank (part, i) {
        const char *route = box_route(comms[i], BL_ALLGATHER, 140001, ncclInt8, 0);
        CHECK(!route || !strcmp(route, "nccl"), "by one block: %s", route); /* which would be slower than NCCL's */
    }
    destroy(part, comms);
}

/* The last rank is out of order; the others, which wait for it, shrink it away and go on. */
static void shrink_abort(struct part *part) {
    ncclComm_t comms[BOX_RANKS], fewer[BOX_RANKS] = {0};
    struct sums sums;
    const int n = part->box->nranks;
    int last = n - 1;
    part_make_communicators(part, 1, comms);
    sums_open(part, &sums);
    part_group_start(part);
    for (int i = 0; i < part->count; i++)
        if (part->rank[i].rank != last) NCCL_OK(sums_call(part, &sums, i, comms[i]));
    part_group_end(part);
    each_rank_in_group (part, i) {
        if (part->rank[i].rank != last) NCCL_OK(ncclCommShrink(comms[i], &last, 1, &fewer[i], NULL, NCCL_SHRINK_ABORT));
    }
    works(part, fewer, n - 1);
    part_barrier(part);
    destroy(part, fewer);
    abort_all(part, comms);
    sums_close(part, &sums);
}

/* Destroyed behind Beeline's back; the real NCCL may give the same handle again. */
static void stale(struct part *part) {
    for (int round = 0; round < 4; round++) {
        ncclComm_t comms[BOX_RANKS];
        part_make_communicators(part, round, comms);
        works(part, comms, part->box->nranks);
        each_rank_in_group (part, i) NCCL_OK(round < 3 ? pncclCommDestroy(comms[i]) : ncclCommDestroy(comms[i]));
    }
}

/* Opens a gate on the device's streams some time after it was asked to. */
static void *open_gate(void *word) {
    nanosleep(&(struct timespec){.tv_nsec = 800000000}, NULL);
    __atomic_store_n((uint32_t *)word, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* As `stale`, and each thread gets the handle that another one had, while the calls on the old communicators still wait: who
 * finds a stale communicator must not wait for the GPU of its owner, whose set-up waits for everybody. */
static void stale_exchanged(struct part *part) {
    ncclComm_t comms[BOX_RANKS], before[BOX_RANKS];
    struct sums sums;
    ncclUniqueId id;
    CUdeviceptr gate;
    uint32_t *word;
    pthread_t opener;
    const int n = part->box->nranks;
    struct rank *rank = part_enter(part, 0);
    CHECK(part->count == 1, "one rank a thread");
    part_make_communicators(part, 1, before);
    works(part, before, n);
    sums_open(part, &sums);
    CU_OK(cuMemHostAlloc((void **)&word, sizeof *word, 0));
    CU_OK(cuMemHostGetDevicePointer(&gate, word, 0));
    *word = 0;
    CU_OK(cuStreamWaitValue32(rank->stream[0], gate, 1, CU_STREAM_WAIT_VALUE_EQ));
    NCCL_OK(sums_call(part, &sums, 0, before[0]));
    /* The reference NCCL gives the last handle again first. */
    for (int turn = 0; turn < n; turn++) {
        if (turn == rank->rank) NCCL_OK(pncclCommDestroy(before[0]));
        part_barrier(part);
    }
    box_unique_id(part, 2, &id);
    NCCL_OK(ncclGroupStart());
    for (int turn = 0; turn < n; turn++) {
        if (turn == rank->rank) NCCL_OK(ncclCommInitRank(&comms[0], n, id, rank->rank));
        part_barrier(part);
    }
    CHECK(pthread_create(&opener, NULL, open_gate, word) == 0);
    NCCL_OK(ncclGroupEnd());
    CHECK((comms[0] == before[0]) == (rank->rank == n - 1 - rank->rank), "the handles were not exchanged");
    sums_check(part, &sums, 0, n);
    pthread_join(opener, NULL);
    CHECK(box_route(comms[0], BL_ALLREDUCE, ELEMENTS, ncclUint32, ncclSum) &&
              strcmp(box_route(comms[0], BL_ALLREDUCE, ELEMENTS, ncclUint32, ncclSum), "nccl"),
          "the new communicator is not served");
    works(part, comms, n);
    destroy(part, comms);
    part_enter(part, 0);
    CU_OK(cuMemFreeHost(word));
    sums_close(part, &sums);
}

/* Descriptors of this process. */
static int descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    CHECK(folder);
    while (readdir(folder)) count++;
    CHECK(closedir(folder) == 0);
    return count;
}

/* A communicator that cannot be set up, and one that can, leave no descriptor behind.  (The first two take what stays for good.) */
static void descriptors_kept(struct part *part) {
    int before = 0;
    for (int round = 0; round < 6; round++) {
        ncclComm_t comms[BOX_RANKS];
        part_make_communicators(part, round, comms);
        works(part, comms, part->box->nranks);
        destroy(part, comms);
        part_barrier(part);
        if (round == 1) before = descriptors();
    }
    CHECK(descriptors() == before, "%d descriptors, %d before", descriptors(), before);
}

static void churn(struct part *part) {
    for (int round = 0; round < 50; round++) {
        ncclComm_t comms[BOX_RANKS];
        part_make_communicators(part, round, comms);
        if (round % 10 == 0) works(part, comms, part->box->nranks);
        destroy(part, comms);
    }
}

/* Two communicators in one group, in another order on every other rank. */
static void crossed(struct part *part) {
    ncclComm_t comms[2][BOX_RANKS];
    ncclUniqueId id[2];
    for (int which = 0; which < 2; which++) box_unique_id(part, which, &id[which]);
    NCCL_OK(ncclGroupStart());
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < part->count; i++) {
            struct rank *rank = part_enter(part, i);
            int which = (k + rank->rank) % 2;
            NCCL_OK(ncclCommInitRank(&comms[which][i], part->box->nranks, id[which], rank->rank));
        }
    NCCL_OK(ncclGroupEnd());
    for (int which = 0; which < 2; which++) works(part, comms[which], part->box->nranks);
    for (int which = 0; which < 2; which++) destroy(part, comms[which]);
}

/* Nonblocking, and waited for in another order on every other rank. */
static void crossed_nonblocking(struct part *part) {
    ncclComm_t comms[2][BOX_RANKS];
    ncclUniqueId id[2];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    for (int which = 0; which < 2; which++) box_unique_id(part, which, &id[which]);
    for (int which = 0; which < 2; which++) {
        part_group_start(part);
        for (int i = 0; i < part->count; i++) {
            struct rank *rank = part_enter(part, i);
            NCCL_GOES(ncclCommInitRankConfig(&comms[which][i], part->box->nranks, id[which], rank->rank, &config));
        }
        if (part->count > 1) CHECK(ncclGroupEnd() != ncclInternalError);
    }
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < part->count; i++) {
            ncclResult_t state = ncclInProgress;
            for (double limit = box_seconds() + 40; state == ncclInProgress && box_seconds() < limit; nap())
                NCCL_OK(ncclCommGetAsyncError(comms[(k + part->rank[i].rank) % 2][i], &state));
            CHECK(state == ncclSuccess, "it ended with %s", ncclGetErrorString(state));
        }
    for (int which = 0; which < 2; which++) abort_all(part, comms[which]);
}

/* A stream is being captured in the strictest mode while communicators are made. */
static void capturing(struct part *part) {
    ncclComm_t comms[BOX_RANKS];
    CUgraph graph;
    struct rank *rank = part_enter(part, 0);
    CU_OK(cuStreamBeginCapture(rank->stream[1], CU_STREAM_CAPTURE_MODE_GLOBAL));
    part_make_communicators(part, 1, comms);
    part_enter(part, 0);
    CU_OK(cuStreamEndCapture(rank->stream[1], &graph));
    CU_OK(cuGraphDestroy(graph));
    part_barrier(part); /* the strictest mode binds the other threads, too */
    works(part, comms, part->box->nranks);
    destroy(part, comms);
}

/* --- multicast, with test/faults/multicast.tune --- */

static int rounds; /* -k */

static void has_multicast(struct part *part, ncclComm_t *comms, bool wanted) {
    for (int i = 0; i < part->count; i++) {
        const char *route = box_route(comms[i], BL_ALLREDUCE, 17, ncclFloat, ncclSum);
        CHECK(!strcmp(route, wanted ? "oneshot_nvls" : "oneshot_ll"), "the route is %s", route);
    }
}

/* That many communicators have no multicast, and the next one has, with all that the others gave back. */
static void multicast_lost(struct part *part) {
    for (int round = 0; round <= rounds; round++) {
        ncclComm_t comms[BOX_RANKS];
        part_make_communicators(part, round, comms);
        has_multicast(part, comms, round == rounds);
        works(part, comms, part->box->nranks);
        destroy(part, comms);
    }
}

static void multicast_churn(struct part *part) {
    for (int round = 0; round < 6; round++) {
        ncclComm_t comms[BOX_RANKS];
        part_make_communicators(part, round, comms);
        has_multicast(part, comms, true);
        if (round % 3 == 0) works(part, comms, part->box->nranks);
        if (round % 2)
            abort_all(part, comms);
        else
            destroy(part, comms);
    }
}

/* A variable that forbids it counts from when it is set; to unset it does not bring multicast back. */
static void multicast_setenv(struct part *part) {
    static const char *const variables[][2] = {{"NCCL_NVLS_ENABLE", "0"},
                                               {"TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"},
                                               {"NVSHMEM_DISABLE_NVLS", "1"},
                                               {"BEELINE_MULTICAST", "0"}};
    ncclComm_t comms[BOX_RANKS];
    part_make_communicators(part, 0, comms);
    has_multicast(part, comms, true);
    for (int v = 0; v < 4; v++) {
        ncclComm_t others[BOX_RANKS];
        part_barrier(part);
        if (index_of(part, 1) >= 0) CHECK(!setenv(variables[v][0], variables[v][1], 1));
        part_make_communicators(part, v + 1, others);
        has_multicast(part, others, false);
        works(part, comms, part->box->nranks);
        destroy(part, others);
        part_barrier(part);
        if (index_of(part, 1) >= 0) unsetenv(variables[v][0]);
    }
    destroy(part, comms);
}

/* Rank 0 leaves first, or gives up in the middle, while its peers' kernels are still at work on its memory; the last rank
 * leaves late. */
static void leave_in_turn(struct part *part, int which, ncclResult_t (*leave)(ncclComm_t comm)) {
    ncclComm_t comms[BOX_RANKS];
    CUdeviceptr in[BOX_RANKS];
    const int n = part->box->nranks;
    enum { LARGE = 100000 };
    part_make_communicators(part, which, comms);
    each_rank (part, i) CU_OK(cuMemAlloc(&in[i], (size_t)n * LARGE * 4));
    part_barrier(part);
    each_rank_in_group (part, i) {
        struct rank *rank = &part->rank[i];
        NCCL_OK(ncclReduceScatter((void *)in[i], (void *)in[i], LARGE, ncclUint32, ncclSum, comms[i], rank->stream[0]));
    }
    each_rank (part, i) {
        for (int k = 0; k < 2 * part->rank[i].rank; k++) nap();
        NCCL_OK(leave(comms[i]));
    }
    each_rank (part, i) {
        CU_OK(cuStreamSynchronize(part->rank[i].stream[0]));
        CU_OK(cuMemFree(in[i]));
    }
}

static void multicast_leave(struct part *part) {
    leave_in_turn(part, 0, ncclCommDestroy);
    for (int round = 1; round < 4; round++) leave_in_turn(part, round, ncclCommAbort);
}

/* The last rank dies while it is served, with its memory behind the object: the others' kernels say so, and they leave. */
static void multicast_died(struct part *part) {
    ncclComm_t comms[BOX_RANKS];
    struct sums sums;
    CHECK(part->count == 1, "one rank a process");
    part_make_communicators(part, 0, comms);
    has_multicast(part, comms, true);
    works(part, comms, part->box->nranks);
    part_barrier(part);
    if (index_of(part, part->box->nranks - 1) >= 0) raise(SIGKILL);
    sums_open(part, &sums);
    NCCL_OK(sums_call(part, &sums, 0, comms[0]));
    const ncclResult_t state = await_error(comms[0]);
    CHECK(state == ncclRemoteError, "the error is %s", ncclGetErrorString(state));
    const double begin = box_seconds();
    abort_all(part, comms);
    CU_OK(cuStreamSynchronize(part->rank[0].stream[0]));
    CHECK(box_seconds() - begin < 5, "the abort took %.1f s", box_seconds() - begin);
    printf("rank %d survived\n", part->rank[0].rank);
    fflush(stdout);
}

static const struct {
    const char *name;
    void (*run)(struct part *part);
} scenarios[] = {
    {"survive", survive},
    {"timeout", timeout},
    {"copy_half_eager", copy_half_eager},
    {"copy_half_captured", copy_half_captured},
    {"group_refused", group_refused},
    {"group_refused_nonblocking", group_refused_nonblocking},
    {"revoke", revoke},
    {"late_settings", late_settings},
    {"revoke_refused", revoke_refused},
    {"window_fails", window_fails},
    {"shrink_abort", shrink_abort},
    {"stale", stale},
    {"stale_exchanged", stale_exchanged},
    {"descriptors_kept", descriptors_kept},
    {"churn", churn},
    {"crossed", crossed},
    {"crossed_nonblocking", crossed_nonblocking},
    {"capturing", capturing},
    {"multicast_lost", multicast_lost},
    {"multicast_churn", multicast_churn},
    {"multicast_setenv", multicast_setenv},
    {"multicast_leave", multicast_leave},
    {"multicast_died", multicast_died},
};
enum { SCENARIOS = sizeof scenarios / sizeof *scenarios };

static int chosen;

static void body(struct part *part) {
    scenarios[chosen].run(part);
}

int main(int argc, char **argv) {
    static struct options options;
    options_read(&options, argc, argv);
    while (chosen < SCENARIOS && (!options.name || strcmp(scenarios[chosen].name, options.name))) chosen++;
    if (chosen == SCENARIOS) {
        fprintf(stderr, "no such scenario\n");
        return 2;
    }
    options.box.no_communicators = true;
    rounds = (int)options.calls;
    box_run(&options.box, body);
    return 0;
}
