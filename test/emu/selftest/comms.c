/* comms.c - how communicators come and go. */
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "selftest.h"

/* Polls until the communicator's state is no longer `while_`; at most some seconds. */
static ncclResult_t wait_async(ncclComm_t comm, ncclResult_t while_) {
    ncclResult_t state = while_;
    for (int i = 0; i < 20000 && state == while_; i++) {
        OK(ncclCommGetAsyncError(comm, &state));
        if (state == while_) usleep(500);
    }
    return state;
}

/* An all-reduce over communicators whose ranks are `rank_of`'s, of those present here. */
static void use(ncclComm_t *made, const int *sizes, const char *what) {
    struct buffer b[MAX];
    ncclGroupStart();
    foreach (l) {
        if (!made[l]) continue;
        b[l] = make(ncclInt32, 50);
        for (size_t i = 0; i < 50; i++) store(host(&b[l]), ncclInt32, i, 1);
        upload(&b[l]);
        OK(ncclAllReduce(at(&b[l], 0), at(&b[l], 0), 50, ncclInt32, ncclSum, made[l], streams[l]));
    }
    const ncclResult_t ended = ncclGroupEnd();
    check(ended == ncclSuccess || ended == ncclInProgress, "%s: the group ended with %d", what, ended);
    foreach (l)
        if (made[l]) check(wait_async(made[l], ncclInProgress) == ncclSuccess, "%s: launched", what);
    synchronize();
    foreach (l) {
        int count;
        if (!made[l]) continue;
        OK(ncclCommCount(made[l], &count));
        check(!sizes || count == sizes[l], "%s: %d ranks, not %d", what, count, sizes ? sizes[l] : 0);
        for (size_t i = 0; i < 50; i++) store(host(&b[l]), ncclInt32, i, count);
        check(equal(&b[l]), "%s: all-reduce", what);
        drop(&b[l]);
    }
}

static void destroy(ncclComm_t *made) {
    foreach (l)
        if (made[l]) OK(ncclCommDestroy(made[l]));
}

/* Even and odd ranks, in reverse; the last rank stays out. */
static void test_split(void) {
    ncclComm_t made[MAX];
    int sizes[MAX];
    OK(ncclGroupStart());
    foreach (l) {
        int rank = first + l, last = nranks - 1;
        OK(ncclCommSplit(comms[l], rank == last ? NCCL_SPLIT_NOCOLOR : rank % 2, -rank, &made[l], NULL));
        sizes[l] = (last + 1 - rank % 2) / 2;
    }
    OK(ncclGroupEnd());
    foreach (l) {
        int rank = first + l, got = -1;
        check(!made[l] == (rank == nranks - 1), "split: rank %d", rank);
        if (!made[l]) continue;
        OK(ncclCommUserRank(made[l], &got));
        check(got == sizes[l] - 1 - rank / 2, "split: rank %d has become %d", rank, got);
    }
    use(made, sizes, "split");
    destroy(made);
}

static void test_shrink(void) {
    ncclComm_t made[MAX] = {0}, parents[MAX];
    int excluded = nranks - 1, sizes[MAX];
    make_comms(parents, NULL);
    for (int flags = 0; flags < 2; flags++) {
        OK(ncclGroupStart());
        foreach (l) {
            sizes[l] = nranks - 1;
            if (first + l != excluded) OK(ncclCommShrink(parents[l], &excluded, 1, &made[l], NULL, flags));
        }
        OK(ncclGroupEnd());
        use(made, sizes, "shrink");
        destroy(made);
    }
    foreach (l) OK(ncclCommAbort(parents[l]));
}

static void test_scalable(void) {
    ncclComm_t made[MAX];
    ncclUniqueId ids[2];
    share_id(&ids[0]);
    share_id(&ids[1]);
    OK(ncclGroupStart());
    foreach (l) OK(ncclCommInitRankScalable(&made[l], nranks, first + l, 2, ids, NULL));
    OK(ncclGroupEnd());
    use(made, NULL, "scalable");
    destroy(made);
}

static void test_nonblocking(void) {
    ncclComm_t made[MAX], children[MAX];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    config.blocking = 0;
    share_id(&id);
    foreach (l) {
        ncclResult_t result = ncclCommInitRankConfig(&made[l], nranks, id, first + l, &config);
        check(result == ncclInProgress || result == ncclSuccess, "nonblocking init: %d", result);
        check(made[l] != NULL, "nonblocking init: no handle");
    }
    foreach (l) check(wait_async(made[l], ncclInProgress) == ncclSuccess, "nonblocking init");
    use(made, NULL, "nonblocking");
    foreach (l) {
        ncclResult_t result = ncclCommSplit(made[l], 0, first + l, &children[l], NULL);
        check(result == ncclInProgress || result == ncclSuccess, "nonblocking split: %d", result);
    }
    foreach (l) check(wait_async(made[l], ncclInProgress) == ncclSuccess, "nonblocking split");
    use(children, NULL, "nonblocking split");
    foreach (l) {
        ncclResult_t result = ncclCommFinalize(children[l]);
        check(result == ncclInProgress || result == ncclSuccess, "nonblocking finalize: %d", result);
        check(wait_async(children[l], ncclInProgress) == ncclSuccess, "nonblocking finalize");
    }
    destroy(children);
    destroy(made);
}

/* All but the last rank wait in an all-reduce that the last never calls: it aborts. */
static void test_abort(void) {
    ncclComm_t made[MAX];
    struct buffer b[MAX];
    make_comms(made, NULL);
    ncclGroupStart();
    foreach (l) {
        b[l] = make(ncclFloat, 10);
        if (first + l < nranks - 1)
            OK(ncclAllReduce(at(&b[l], 0), at(&b[l], 0), 10, ncclFloat, ncclSum, made[l], streams[l]));
    }
    OK(ncclGroupEnd());
    foreach (l) {
        if (first + l == nranks - 1) {
            usleep(20000);
            OK(ncclCommAbort(made[l]));
        }
    }
    foreach (l) {
        if (first + l == nranks - 1) continue;
        check(wait_async(made[l], ncclSuccess) == ncclRemoteError, "no error after a remote abort");
        IS(ncclAllReduce(at(&b[l], 0), at(&b[l], 0), 10, ncclFloat, ncclSum, made[l], streams[l]), ncclRemoteError);
        CU(cuStreamSynchronize(streams[l]));
        IS(ncclCommDestroy(made[l]), ncclRemoteError); /* which it leaves to ncclCommAbort */
        OK(ncclCommAbort(made[l]));
    }
    foreach (l) {
        synchronize();
        drop(&b[l]);
    }
}

/* One's own abort, from another thread's view: an all-reduce that nobody else joins. */
static void test_abort_alone(void) {
    ncclComm_t made[MAX];
    struct buffer b[MAX];
    make_comms(made, NULL);
    foreach (l) {
        b[l] = make(ncclFloat, 10);
        if (first + l == 0) OK(ncclAllReduce(at(&b[l], 0), at(&b[l], 0), 10, ncclFloat, ncclSum, made[l], streams[l]));
    }
    foreach (l) OK(ncclCommAbort(made[l]));
    synchronize();
    foreach (l) drop(&b[l]);
}

static void test_revoke(void) {
    ncclComm_t made[MAX], children[MAX];
    struct buffer b[MAX];
    make_comms(made, NULL);
    ncclGroupStart();
    foreach (l) {
        b[l] = make(ncclFloat, 10);
        if (first + l) OK(ncclAllReduce(at(&b[l], 0), at(&b[l], 0), 10, ncclFloat, ncclSum, made[l], streams[l]));
    }
    OK(ncclGroupEnd());
    foreach (l) {
        IS(ncclCommRevoke(made[l], 1), ncclInvalidArgument);
        OK(ncclCommRevoke(made[l], NCCL_REVOKE_DEFAULT));
        IS(ncclAllReduce(at(&b[l], 0), at(&b[l], 0), 10, ncclFloat, ncclSum, made[l], streams[l]), ncclInvalidUsage);
        IS(ncclCommRevoke(made[l], NCCL_REVOKE_DEFAULT), ncclInvalidArgument);
        IS(ncclCommFinalize(made[l]), ncclInvalidArgument);
    }
    synchronize();
    OK(ncclGroupStart());
    foreach (l) OK(ncclCommSplit(made[l], 0, 0, &children[l], NULL));
    OK(ncclGroupEnd());
    use(children, NULL, "split of a revoked communicator");
    destroy(children);
    destroy(made);
    foreach (l) drop(&b[l]);
}

/* Ranks that disagree on a call are found, rather than waited for. */
static void test_mismatch(void) {
    ncclComm_t made[MAX];
    struct buffer b[MAX];
    make_comms(made, NULL);
    ncclGroupStart();
    foreach (l) {
        b[l] = make(ncclFloat, 10);
        OK(ncclAllReduce(at(&b[l], 0), at(&b[l], 0), first + l ? 10 : 9, ncclFloat, ncclSum, made[l], streams[l]));
    }
    OK(ncclGroupEnd());
    foreach (l) {
        ncclResult_t state = wait_async(made[l], ncclSuccess);
        check(state == ncclInternalError || state == ncclRemoteError, "ranks that disagree: %d", state);
    }
    synchronize();
    foreach (l) {
        OK(ncclCommAbort(made[l]));
        drop(&b[l]);
    }
}

/* Initialisations that must fail, on all ranks, without a hang. */
static void test_bad_init(void) {
    ncclComm_t made[MAX], one;
    ncclConfig_t config = {0};
    ncclUniqueId id = {{0}};
    cuCtxSetCurrent(contexts[0]);
    IS(ncclCommInitRank(&one, 0, id, 0), ncclInvalidArgument);
    IS(ncclCommInitRank(&one, 2, id, 2), ncclInvalidArgument);
    IS(ncclCommInitRank(NULL, 1, id, 0), ncclInvalidArgument);
    IS(ncclCommInitRank(&one, 1, id, 0), ncclInvalidArgument);
    OK(ncclGetUniqueId(&id));
    IS(ncclCommInitRankConfig(&one, 1, id, 0, &config), ncclInvalidArgument);
    OK(ncclCommInitRank(&one, 1, id, 0));
    OK(ncclCommDestroy(one));
    IS(ncclCommDestroy(one), ncclInvalidArgument);
    OK(ncclCommDestroy(NULL));
    if (nlocal < nranks) return;

    int twice[] = {0, 0}, missing[] = {0, 1000};
    IS(ncclCommInitAll(made, 2, twice), ncclInvalidUsage);
    IS(ncclCommInitAll(made, 2, missing), ncclInvalidArgument);
    OK(ncclGetUniqueId(&id));
    OK(ncclGroupStart()); /* both ranks on one device */
    for (int r = 0; r < 2; r++) OK(ncclCommInitRank(&made[r], 2, id, r));
    IS(ncclGroupEnd(), ncclInvalidUsage);
    check(!made[0] && !made[1], "handles of a failed init");
    OK(ncclCommInitAll(made, nranks, NULL));
    use(made, NULL, "ncclCommInitAll");
    destroy(made);
}

/* A nonblocking init whose peers never come can be aborted. */
static void test_abort_init(void) {
    ncclComm_t comm;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    int count;
    config.blocking = 0;
    cuCtxSetCurrent(contexts[0]);
    OK(ncclGetUniqueId(&id));
    IS(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
    IS(ncclCommCount(comm, &count), ncclInvalidArgument);
    IS(ncclCommFinalize(comm), ncclInvalidArgument);
    IS(ncclCommDestroy(comm), ncclInvalidArgument);
    OK(ncclCommAbort(comm));
}

static ncclComm_t heir;
static void *make_heir(void *comm) {
    ncclUniqueId id;
    cuCtxSetCurrent(contexts[0]);
    OK(ncclCommDestroy(comm));
    OK(ncclGetUniqueId(&id));
    OK(ncclCommInitRank(&heir, 1, id, 0));
    return NULL;
}

/* What another thread ends beside an open group, the group's end leaves alone, and what has its address by then. */
static void test_heir(void) {
    ncclComm_t comm;
    ncclUniqueId id;
    pthread_t thread;
    struct buffer b;
    cuCtxSetCurrent(contexts[0]);
    b = make(ncclFloat, 10);
    fill(&b, 0, ncclSum);
    OK(ncclGetUniqueId(&id));
    OK(ncclCommInitRank(&comm, 1, id, 0));
    OK(ncclGroupStart());
    OK(ncclAllReduce(at(&b, 0), at(&b, 0), b.n, ncclFloat, ncclSum, comm, streams[0]));
    pthread_create(&thread, NULL, make_heir, comm);
    pthread_join(thread, NULL);
    check(heir == comm, "the next communicator has the address of the one that ended");
    IS(ncclGroupEnd(), ncclInvalidArgument);
    OK(ncclAllReduce(at(&b, 0), at(&b, 0), b.n, ncclFloat, ncclSum, heir, streams[0]));
    cuStreamSynchronize(streams[0]);
    OK(ncclCommDestroy(heir));
    drop(&b);
}

static void *thread_rank(void *argument) {
    int l = (int)(size_t)argument;
    if (cuCtxSetCurrent(contexts[l]) != CUDA_SUCCESS) return NULL;
    ncclAllReduce(NULL, NULL, 0, ncclFloat, ncclSum, comms[l], streams[l]);
    for (int i = 0; i < 20; i++) {
        struct buffer b = make(ncclFloat, 1 + (size_t)i * 100);
        fill(&b, first + l, ncclSum);
        if (ncclAllReduce(at(&b, 0), at(&b, 0), b.n, ncclFloat, ncclSum, comms[l], streams[l])) return NULL;
        cuStreamSynchronize(streams[l]);
        expect_sum(&b);
        if (!equal(&b)) return NULL;
        drop(&b);
    }
    return argument;
}

/* A thread a rank, without groups. */
static void test_threads(void) {
    pthread_t threads[MAX];
    for (int l = 0; l < nlocal; l++) pthread_create(&threads[l], NULL, thread_rank, (void *)(size_t)l);
    for (int l = 0; l < nlocal; l++) {
        void *result;
        pthread_join(threads[l], &result);
        check(result == (void *)(size_t)l, "thread of rank %d", first + l);
    }
}

void test_comms(void) {
    test_split();
    test_shrink();
    test_scalable();
    test_nonblocking();
    test_abort();
    test_abort_alone();
    test_revoke();
    test_mismatch();
    test_bad_init();
    test_abort_init();
    test_heir();
    test_threads();
    foreach (l) OK(ncclCommFinalize(comms[l]));
    foreach (l) IS(ncclCommFinalize(comms[l]), ncclInvalidArgument);
    foreach (l) OK(ncclCommDestroy(comms[l]));
}
