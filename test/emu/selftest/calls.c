/* calls.c - sends and receives, groups, arguments, streams, capture, memory. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "selftest.h"

/* Everybody sends to everybody, twice, sizes far over what lies in flight; pairs in order. */
static void test_send_recv(void) {
    static const size_t counts[] = {40000, 3};
    struct buffer send[MAX], recv[MAX];
    size_t all = counts[0] + counts[1];
    foreach (l) {
        send[l] = make(ncclFloat, all);
        fill(&send[l], first + l, ncclSum);
        recv[l] = make(ncclFloat, all * (size_t)nranks);
    }
    ncclGroupStart();
    foreach (l) {
        for (int r = 0; r < nranks; r++) {
            size_t offset = 0;
            for (int part = 0; part < 2; offset += counts[part++]) {
                OK(ncclRecv(at(&recv[l], (size_t)r * all + offset), counts[part], ncclFloat, r, comms[l], streams[l]));
                OK(ncclSend(at(&send[l], offset), counts[part], ncclFloat, r, comms[l], streams[l]));
            }
        }
    }
    OK(ncclGroupEnd());
    synchronize();
    foreach (l) {
        for (size_t i = 0; i < recv[l].n; i++)
            store(host(&recv[l]), ncclFloat, i, input((int)(i / all), i % all, ncclSum));
        check(equal(&recv[l]), "sends and receives");
        drop(&send[l]);
        drop(&recv[l]);
    }
}

/* What is sent to oneself has both ends in one group; a message of nothing is one. */
static void test_own_and_empty(void) {
    foreach (l) {
        struct buffer b = make(ncclFloat, 4), c = make(ncclFloat, 4);
        const int me = first + l;
        fill(&b, me, ncclSum);
        IS(ncclSend(at(&b, 0), 4, ncclFloat, me, comms[l], streams[l]), ncclInvalidUsage);
        IS(ncclRecv(at(&c, 0), 4, ncclFloat, me, comms[l], streams[l]), ncclInvalidUsage);
        IS(ncclRecv(NULL, 0, ncclFloat, me, comms[l], streams[l]), ncclInvalidUsage);
        ncclGroupStart();
        OK(ncclRecv(NULL, 0, ncclFloat, me, comms[l], streams[l]));
        OK(ncclRecv(at(&c, 0), 4, ncclFloat, me, comms[l], streams[l]));
        OK(ncclSend(NULL, 0, ncclFloat, me, comms[l], streams[l]));
        OK(ncclSend(at(&b, 0), 4, ncclFloat, me, comms[l], streams[l]));
        OK(ncclGroupEnd());
        CU(cuStreamSynchronize(streams[l]));
        for (size_t i = 0; i < c.n; i++) store(host(&c), ncclFloat, i, input(me, i, ncclSum));
        check(equal(&c), "sent to itself");
        drop(&b);
        drop(&c);
    }
    if (nlocal < nranks) return;
    CU(cuCtxSetCurrent(contexts[1]));
    OK(ncclRecv(NULL, 0, ncclFloat, 0, comms[1], streams[1]));
    usleep(20000);
    check(cuStreamQuery(streams[1]) == CUDA_ERROR_NOT_READY, "nothing was received, and nobody has sent it");
    CU(cuCtxSetCurrent(contexts[0]));
    OK(ncclSend(NULL, 0, ncclFloat, 1, comms[0], streams[0]));
    synchronize();
}

/* Two ranks connect at their first message, for which the call itself waits until both have come; later ones find them connected. */
static struct first_send {
    ncclComm_t comm;
    _Atomic int returned;
} first_send;

static void *send_first(void *unused) {
    CU(cuCtxSetCurrent(contexts[0]));
    OK(ncclSend(NULL, 0, ncclFloat, 1, first_send.comm, streams[0]));
    first_send.returned = 1;
    return NULL;
}

static void test_connecting(void) {
    ncclComm_t made[MAX];
    pthread_t thread;
    if (nlocal < nranks) return;
    make_comms(made, NULL);
    first_send.comm = made[0];
    pthread_create(&thread, NULL, send_first, NULL);
    usleep(30000);
    check(!first_send.returned, "a first message did not wait for its other end");
    CU(cuCtxSetCurrent(contexts[1]));
    OK(ncclRecv(NULL, 0, ncclFloat, 0, made[1], streams[1]));
    pthread_join(thread, NULL);
    CU(cuCtxSetCurrent(contexts[0]));
    OK(ncclSend(NULL, 0, ncclFloat, 1, made[0], streams[0]));
    CU(cuStreamSynchronize(streams[0]));
    CU(cuCtxSetCurrent(contexts[1]));
    OK(ncclRecv(NULL, 0, ncclFloat, 0, made[1], streams[1]));
    synchronize();
    foreach (l) OK(ncclCommDestroy(made[l]));
}

/* Several collectives, sends and communicators' worth of streams in one group, nested. */
static void test_groups(void) {
    struct buffer a[MAX], b[MAX], c[MAX];
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    foreach (l) {
        a[l] = make(ncclInt32, 1000);
        b[l] = make(ncclFloat16, 77);
        c[l] = make(ncclInt32, 10);
        fill(&a[l], first + l, ncclSum);
        fill(&b[l], first + l, ncclSum);
        fill(&c[l], first + l, ncclSum);
    }
    IS(ncclGroupEnd(), ncclInvalidUsage);
    for (int pass = 0; pass < 3; pass++) { /* simulated; spoiled; real */
        OK(ncclGroupStart());
        foreach (l) {
            OK(ncclGroupStart());
            OK(ncclAllReduce(at(&a[l], 0), at(&a[l], 0), 1000, ncclInt32, ncclSum, comms[l], streams[l]));
            OK(ncclAllReduce(at(&b[l], 0), at(&b[l], 0), 77, ncclFloat16, ncclSum, comms[l], side_streams[l]));
            OK(ncclBroadcast(at(&c[l], 0), at(&c[l], 0), 10, ncclInt32, 1, comms[l], streams[l]));
            OK(ncclGroupEnd());
        }
        if (pass == 0) OK(ncclGroupSimulateEnd(&info));
        if (pass == 1) {
            IS(ncclBroadcast(at(&c[0], 0), at(&c[0], 0), 10, ncclInt32, nranks, comms[0], streams[0]),
               ncclInvalidArgument);
            IS(ncclGroupEnd(), ncclInvalidArgument);
        }
        if (pass == 2) OK(ncclGroupEnd());
        synchronize();
        foreach (l) {
            if (pass == 2) {
                expect_sum(&a[l]);
                expect_sum(&b[l]);
                for (size_t i = 0; i < 10; i++) store(host(&c[l]), ncclInt32, i, input(1, i, ncclSum));
            }
            check(equal(&a[l]) && equal(&b[l]) && equal(&c[l]), "group, pass %d", pass);
        }
    }
    check(info.estimatedTime > 0, "simulated time");
    foreach (l) {
        drop(&a[l]);
        drop(&b[l]);
        drop(&c[l]);
    }
}

/* Peers whose first messages are only tried are connected no more. */
static void test_simulated_messages(void) {
    for (int connected = 0; connected < 2 && nranks > 1; connected++) {
        ncclComm_t made[MAX];
        ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
        make_comms(made, NULL);
        for (int pass = !connected; pass < 3; pass++) { /* made; simulated; made */
            OK(ncclGroupStart());
            foreach (l) {
                OK(ncclSend(NULL, 0, ncclFloat, (first + l + 1) % nranks, made[l], streams[l]));
                OK(ncclRecv(NULL, 0, ncclFloat, (first + l + nranks - 1) % nranks, made[l], streams[l]));
            }
            if (pass == 1) OK(ncclGroupSimulateEnd(&info));
            if (pass != 1) IS(ncclGroupEnd(), connected ? ncclSuccess : ncclInternalError);
            synchronize();
        }
        foreach (l) OK(ncclCommDestroy(made[l]));
    }
}

static void test_arguments(void) {
    struct buffer b;
    foreach (l) {
        if (l) break;
        b = make(ncclFloat, 4);
        void *p = at(&b, 0);
        CUstream s = streams[0];
        ncclComm_t comm = comms[0];
        int value;
        IS(ncclAllReduce(p, p, 4, ncclFloat, ncclSum, NULL, s), ncclInvalidArgument);
        IS(ncclAllReduce(NULL, p, 4, ncclFloat, ncclSum, comm, s), ncclInvalidArgument);
        IS(ncclAllReduce(p, NULL, 4, ncclFloat, ncclSum, comm, s), ncclInvalidArgument);
        OK(ncclAllReduce(NULL, NULL, 0, ncclFloat, ncclSum, comm, s));
        IS(ncclAllReduce(p, p, 4, ncclNumTypes, ncclSum, comm, s), ncclInvalidArgument);
        IS(ncclAllReduce(p, p, 4, (ncclDataType_t)-1, ncclSum, comm, s), ncclInvalidArgument);
        IS(ncclAllReduce(p, p, 4, ncclFloat, ncclNumOps, comm, s), ncclInvalidArgument);
        IS(ncclAllReduce(p, p, 4, ncclFloat, (ncclRedOp_t)-1, comm, s), ncclInvalidArgument);
        IS(ncclBroadcast(p, p, 4, ncclFloat, -1, comm, s), ncclInvalidArgument);
        IS(ncclReduce(p, p, 4, ncclFloat, ncclSum, nranks, comm, s), ncclInvalidArgument);
        IS(ncclSend(p, 4, ncclFloat, nranks, comm, s), ncclInvalidArgument);
        IS(ncclCommCount(comm, NULL), ncclInvalidArgument);
        IS(ncclCommCount(NULL, &value), ncclInvalidArgument);
        IS(ncclGetVersion(NULL), ncclInvalidArgument);
        OK(ncclGetVersion(&value));
        check(value >= NCCL_VERSION_CODE, "version %d", value);
        OK(ncclCommCount(comm, &value));
        check(value == nranks, "count %d", value);
        OK(ncclCommUserRank(comm, &value));
        check(value == first, "rank %d", value);
        OK(ncclCommCuDevice(comm, &value));
        check(value == first, "device %d", value);
        check(equal(&b), "a refused call wrote");
        drop(&b);
    }
}

/* A sum of sums on alternating streams: right only if the calls keep their order. */
static void test_streams(void) {
    enum { CALLS = 6, N = 70000 };
    struct buffer b[MAX];
    foreach (l) {
        b[l] = make(ncclInt64, N);
        for (size_t i = 0; i < N; i++) store(host(&b[l]), ncclInt64, i, 1);
        upload(&b[l]);
    }
    double value = 1;
    for (int call = 0; call < CALLS; call++, value *= nranks) {
        ncclGroupStart();
        foreach (l)
            OK(ncclAllReduce(at(&b[l], 0), at(&b[l], 0), N, ncclInt64, ncclSum, comms[l],
                             call % 2 ? side_streams[l] : streams[l]));
        OK(ncclGroupEnd());
    }
    synchronize();
    foreach (l) {
        for (size_t i = 0; i < N; i++) store(host(&b[l]), ncclInt64, i, value);
        check(equal(&b[l]), "calls on two streams out of order");
        drop(&b[l]);
    }
}

/* Captured on two streams, replayed between eager calls; each multiplies by nranks. */
static void test_capture(void) {
    enum { REPLAYS = 3, N = 100 };
    struct buffer b[MAX];
    CUgraphExec graphs[MAX];
    CUevent fork[MAX], join[MAX];
    foreach (l) {
        b[l] = make(ncclInt64, N);
        for (size_t i = 0; i < N; i++) store(host(&b[l]), ncclInt64, i, 1);
        upload(&b[l]);
        CU(cuEventCreate(&fork[l], CU_EVENT_DISABLE_TIMING));
        CU(cuEventCreate(&join[l], CU_EVENT_DISABLE_TIMING));
    }
    foreach (l) {
        CU(cuStreamBeginCapture(streams[l], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        CU(cuEventRecord(fork[l], streams[l]));
        CU(cuStreamWaitEvent(side_streams[l], fork[l], 0));
    }
    for (int call = 0; call < 2; call++) {
        ncclGroupStart();
        foreach (l)
            OK(ncclAllReduce(at(&b[l], 0), at(&b[l], 0), N, ncclInt64, ncclSum, comms[l],
                             call ? side_streams[l] : streams[l]));
        OK(ncclGroupEnd());
    }
    CUgraph graph[MAX];
    foreach (l) {
        CU(cuEventRecord(join[l], side_streams[l]));
        CU(cuStreamWaitEvent(streams[l], join[l], 0));
        CU(cuStreamEndCapture(streams[l], &graph[l]));
    }
    foreach (l) {
        CU(cuGraphInstantiate(&graphs[l], graph[l], 0));
        CU(cuGraphDestroy(graph[l]));
    }
    foreach (l) check(equal(&b[l]), "capturing ran something");
    double value = 1;
    for (int replay = 0; replay < REPLAYS; replay++, value *= (double)nranks * nranks * nranks) {
        foreach (l) CU(cuGraphLaunch(graphs[l], streams[l]));
        ncclGroupStart();
        foreach (l) OK(ncclAllReduce(at(&b[l], 0), at(&b[l], 0), N, ncclInt64, ncclSum, comms[l], streams[l]));
        OK(ncclGroupEnd());
    }
    synchronize();
    foreach (l) {
        /* Up to 16^9 fits; a whole number of 64 bits holds it exactly, and so does a double. */
        for (size_t i = 0; i < N; i++) store(host(&b[l]), ncclInt64, i, value);
        check(equal(&b[l]), "replays");
        CU(cuGraphExecDestroy(graphs[l]));
        CU(cuEventDestroy(fork[l]));
        CU(cuEventDestroy(join[l]));
        drop(&b[l]);
    }
}

/* The root of a broadcast and the others of a reduce are done before their peers have called, two calls ahead, and may be gone;
 * what is too large for that waits. */
static void test_one_way(void) {
    enum { SMALL = 60000, LARGE = 1000000 };
    const int root = nranks - 1;
    ncclComm_t made[MAX];
    struct buffer sum[MAX], sent[MAX], large[MAX];
    if (nlocal < nranks) return;
    make_comms(made, NULL);
    foreach (l) {
        sum[l] = make(ncclInt32, SMALL);
        sent[l] = make(ncclInt32, SMALL);
        large[l] = make(ncclInt32, LARGE);
        fill(&sum[l], l, ncclSum);
        fill(&sent[l], l, ncclSum);
        fill(&large[l], l, ncclSum);
    }
    foreach (l) {
        if (l == root) continue;
        OK(ncclReduce(at(&sum[l], 0), at(&sum[l], 0), SMALL, ncclInt32, ncclSum, root, made[l], streams[l]));
        OK(ncclReduce(at(&sum[l], 0), at(&sum[l], 0), SMALL, ncclInt32, ncclMax, root, made[l], streams[l]));
        CU(cuStreamSynchronize(streams[l]));
    }
    foreach (l) {
        if (l != root) continue;
        OK(ncclReduce(at(&sum[l], 0), at(&sum[l], 0), SMALL, ncclInt32, ncclSum, root, made[l], streams[l]));
        CU(cuStreamSynchronize(streams[l]));
        expect_sum(&sum[l]);
        check(equal(&sum[l]), "reduce whose others had gone ahead");
        OK(ncclReduce(at(&sum[l], 0), at(&sum[l], 0), SMALL, ncclInt32, ncclMax, root, made[l], streams[l]));
        for (int call = 0; call < 2; call++)
            OK(ncclBroadcast(at(&sent[l], 0), at(&sent[l], 0), SMALL, ncclInt32, root, made[l], streams[l]));
        CU(cuStreamSynchronize(streams[l]));
        OK(ncclBroadcast(at(&large[l], 0), at(&large[l], 0), LARGE, ncclInt32, root, made[l], streams[l]));
        check(cuStreamQuery(streams[l]) == CUDA_ERROR_NOT_READY, "a broadcast of 4 MB waits for nobody");
    }
    foreach (l) {
        if (l == root) continue;
        for (int call = 0; call < 2; call++)
            OK(ncclBroadcast(NULL, at(&sent[l], 0), SMALL, ncclInt32, root, made[l], streams[l]));
        OK(ncclBroadcast(NULL, at(&large[l], 0), LARGE, ncclInt32, root, made[l], streams[l]));
    }
    synchronize();
    foreach (l) {
        for (size_t i = 0; i < SMALL; i++) store(host(&sent[l]), ncclInt32, i, input(root, i, ncclSum));
        for (size_t i = 0; i < LARGE; i++) store(host(&large[l]), ncclInt32, i, input(root, i, ncclSum));
        check(equal(&sent[l]) && equal(&large[l]), "broadcast whose root had gone ahead");
    }
    /* The root leaves before anybody comes. */
    foreach (l)
        if (l == root) {
            OK(ncclBroadcast(at(&sent[l], 0), at(&sent[l], 0), SMALL, ncclInt32, root, made[l], streams[l]));
            OK(ncclCommFinalize(made[l]));
            OK(ncclCommDestroy(made[l]));
        }
    foreach (l)
        if (l != root) OK(ncclBroadcast(NULL, at(&sent[l], 0), SMALL, ncclInt32, root, made[l], streams[l]));
    synchronize();
    foreach (l) {
        check(equal(&sent[l]), "broadcast whose root is gone");
        if (l != root) OK(ncclCommDestroy(made[l]));
        drop(&sum[l]);
        drop(&sent[l]);
        drop(&large[l]);
    }
}

static void test_memory(void) {
    foreach (l) {
        void *memory, *handle;
        ncclWindow_t window;
        OK(ncclMemAlloc(&memory, 1000));
        CU(cuMemsetD8((CUdeviceptr)memory, 1, 1000));
        CU(cuStreamSynchronize(CU_STREAM_LEGACY));
        OK(ncclCommRegister(comms[l], memory, 1000, &handle));
        OK(ncclCommDeregister(comms[l], handle));
        IS(ncclCommDeregister(comms[l], handle), ncclInvalidArgument);
        OK(ncclCommWindowRegister(comms[l], memory, 1000, &window, NCCL_WIN_COLL_SYMMETRIC));
        OK(ncclCommWindowDeregister(comms[l], window));
        OK(ncclMemFree(memory));
        IS(ncclMemFree(memory), ncclInvalidArgument);
        OK(ncclMemFree(NULL));
    }
}

void test_calls(void) {
    test_send_recv();
    test_own_and_empty();
    test_connecting();
    test_groups();
    test_simulated_messages();
    test_arguments();
    test_streams();
    test_capture();
    test_one_way();
    test_memory();
}
