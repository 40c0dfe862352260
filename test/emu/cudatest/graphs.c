/* graphs.c - capture and replay, and what is forbidden meanwhile. */
#include "cudatest.h"

#include <pthread.h>
#include <string.h>

static void captured_copy(struct test_box *box, CUdeviceptr from, uint64_t count) {
    struct bl_kernel_args args = test_args(box, 0);
    args.sendbuff = (void *)(uintptr_t)from;
    args.count = count;
    OK(test_launch(box, 0, "test_copy", 2, 32, &args));
    memset(&args, 0xff, sizeof args);
}

TEST(capture, "1", NULL, 3, ALWAYS) {
    enum { N = 64, TIMES = 5 };
    struct test_box box;
    CUgraph graph;
    CUgraphExec exec;
    CUstreamCaptureStatus status;
    uint64_t data[N] = {0};
    cuuint64_t id = 0;
    size_t nodes = 0;
    test_box_open(&box, 1);
    CUstream stream = box.stream[0];
    /* result = result + 1, twice, recorded; nothing happens until the graph is launched */
    OK(settled(cuMemcpyHtoD(box.result[0], data, sizeof data)));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    captured_copy(&box, box.result[0], N);
    captured_copy(&box, box.result[0], N);
    OK(cuStreamGetCaptureInfo(stream, &status, &id, NULL, NULL, NULL, NULL));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id != 0);
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphGetNodes(graph, NULL, &nodes));
    CHECK(nodes == 2);
    OK(cuStreamIsCapturing(stream, &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
    OK(cuMemcpyDtoH(data, box.result[0], sizeof data));
    CHECK(data[0] == 0);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph)); /* the instance has its own copy */
    for (int i = 0; i < TIMES; i++) {
        OK(cuGraphLaunch(exec, stream));
        captured_copy(&box, box.result[0], N); /* eager in between */
    }
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(data, box.result[0], sizeof data));
    for (int i = 0; i < N; i++) CHECK(data[i] == 3 * TIMES);
    OK(cuGraphExecDestroy(exec));
    test_box_close(&box);
}

/* So many fills of 8 bytes, one behind the other, the first with `value`, each with one more than the one before. */
static CUgraph captured_fills(struct test_box *box, int fills, uint8_t value) {
    CUgraph graph;
    OK(cuStreamBeginCapture(box->stream[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (int i = 0; i < fills; i++) OK(cuMemsetD8Async(box->result[0], (uint8_t)(value + i), 8, box->stream[0]));
    OK(cuStreamEndCapture(box->stream[0], &graph));
    return graph;
}

TEST(exec_update, "1", NULL, 3, ALWAYS) {
    struct test_box box;
    CUgraphExec exec;
    CUgraphExecUpdateResultInfo info;
    CUstream side;
    uint64_t before = 0, value = 0;
    test_box_open(&box, 1);
    const CUstream stream = box.stream[0];
    const CUdeviceptr gate = box.result[0] + 64;
    OK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    OK(settled(cuMemsetD32(gate, 0, 1)));
    CUgraph first = captured_fills(&box, 2, 0x10), second = captured_fills(&box, 2, 0x20),
            longer = captured_fills(&box, 3, 0x30), other;
    OK(cuGraphInstantiate(&exec, first, 0));
    /* What is under way when it is updated stays what it was. */
    OK(cuStreamWaitValue32(stream, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuGraphLaunch(exec, stream));
    OK(cuMemcpyDtoDAsync(box.result[0] + 8, box.result[0], 8, stream));
    OK(cuGraphExecUpdate(exec, second, &info));
    CHECK(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS && !info.errorNode);
    OK(cuGraphDestroy(second));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamWriteValue32(side, gate, 1, 0));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(&before, box.result[0] + 8, 8));
    OK(cuMemcpyDtoH(&value, box.result[0], 8));
    CHECK(before == 0x1111111111111111ull && value == 0x2121212121212121ull);
    /* What is not alike is refused, and leaves the instance as it is. */
    EXPECT(cuGraphExecUpdate(exec, longer, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED && !info.errorNode);
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    captured_copy(&box, box.result[0], 1);
    OK(cuMemsetD8Async(box.result[0], 1, 8, stream));
    OK(cuStreamEndCapture(stream, &other));
    EXPECT(cuGraphExecUpdate(exec, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED && info.errorNode);
    OK(cuMemsetD8Async(box.result[0], 0, 8, stream));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(&value, box.result[0], 8));
    CHECK(value == 0x2121212121212121ull);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(first));
    OK(cuGraphDestroy(longer));
    OK(cuGraphDestroy(other));
    OK(cuStreamDestroy(side));
    test_box_close(&box);
}

/* Graphs as nodes of another one: in the order that its edges say, each as it was when it was added. */
TEST(child_graphs, "1", NULL, 3, ALWAYS) {
    struct test_box box;
    CUgraph parent, empty;
    CUgraphNode first_node, second_node, end;
    CUgraphExec exec;
    CUgraphExecUpdateResultInfo info;
    uint64_t value = 0;
    test_box_open(&box, 1);
    CUgraph first = captured_fills(&box, 2, 0x10), second = captured_fills(&box, 3, 0x20);
    OK(cuGraphCreate(&parent, 0));
    OK(cuGraphCreate(&empty, 0));
    EXPECT(cuGraphAddChildGraphNode(&first_node, parent, NULL, 0, parent), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphAddChildGraphNode(&second_node, parent, NULL, 0, second));
    OK(cuGraphAddChildGraphNode(&end, parent, &second_node, 1, empty));
    OK(cuGraphAddChildGraphNode(&first_node, parent, &end, 1, first));
    EXPECT(cuGraphAddChildGraphNode(&end, empty, &first_node, 1, second), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphInstantiate(&exec, parent, 0));
    OK(cuGraphDestroy(first));
    OK(cuGraphDestroy(second));
    for (int i = 0; i < 3; i++) OK(cuGraphLaunch(exec, box.stream[0]));
    OK(cuStreamSynchronize(box.stream[0]));
    OK(cuMemcpyDtoH(&value, box.result[0], 8));
    CHECK(value == 0x1111111111111111ull);
    EXPECT(cuGraphExecUpdate(exec, empty, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(parent));
    OK(cuGraphDestroy(empty));
    test_box_close(&box);
}

TEST(capture_fork, "1", NULL, 3, ALWAYS) {
    struct test_box box;
    CUgraph graph;
    CUgraphExec exec;
    CUstream side;
    CUevent out, back;
    uint64_t value = 0;
    test_box_open(&box, 1);
    CUstream stream = box.stream[0];
    OK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&out, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&back, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuEventRecord(out, stream));
    OK(cuStreamWaitEvent(side, out, 0));
    EXPECT(cuStreamEndCapture(side, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    EXPECT(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    for (int join = 0; join < 2; join++) {
        OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        OK(cuMemsetD8Async(box.result[0], 1, 8, stream));
        OK(cuEventRecord(out, stream));
        OK(cuStreamWaitEvent(side, out, 0));
        OK(cuMemsetD8Async(box.result[0], 2, 8, side));
        OK(cuEventRecord(back, side));
        if (join) OK(cuStreamWaitEvent(stream, back, 0));
        if (join) OK(cuMemsetD8Async(box.result[0] + 4, 3, 4, stream));
        EXPECT(cuStreamEndCapture(stream, &graph), join ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    }
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH(&value, box.result[0], 8));
    CHECK(value == 0x0303030302020202ull);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuEventDestroy(out));
    OK(cuEventDestroy(back));
    OK(cuStreamDestroy(side));
    test_box_close(&box);
}

static void *allocate(void *argument) {
    CUdeviceptr p;
    CUstreamCaptureMode mode = *(CUstreamCaptureMode *)argument;
    CUcontext context;
    static CUresult result;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    result = cuMemAlloc(&p, 64);
    if (result == CUDA_SUCCESS) {
        CUresult freed = cuMemFree(p);
        CHECK(freed == CUDA_SUCCESS);
    }
    OK(cuDevicePrimaryCtxRelease(0));
    return &result;
}

static CUresult allocate_elsewhere(CUstreamCaptureMode mode) {
    pthread_t thread;
    void *result = NULL;
    pthread_create(&thread, NULL, allocate, &mode);
    pthread_join(thread, &result);
    return *(CUresult *)result;
}

TEST(capture_forbidden, "1", NULL, 1, ALWAYS) {
    struct test_box box;
    CUgraph graph;
    CUdeviceptr p;
    CUmodule module;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUstreamCaptureStatus status;
    CUstream blocking, other;
    unsigned long long id;
    test_box_open(&box, 1);
    CUstream stream = box.stream[0];
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
#define INVALIDATES(how, call, error)                                                                                  \
    OK(cuStreamBeginCapture(stream, how));                                                                             \
    EXPECT(call, error);                                                                                               \
    OK(cuStreamIsCapturing(stream, &status));                                                                          \
    CHECK(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED);                                                             \
    EXPECT(cuMemsetD8Async(box.result[0], 1, 8, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);                       \
    EXPECT(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
    INVALIDATES(CU_STREAM_CAPTURE_MODE_GLOBAL, cuMemAlloc(&p, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    INVALIDATES(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, cuMemAlloc(&p, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    INVALIDATES(CU_STREAM_CAPTURE_MODE_GLOBAL, cuModuleLoadData(&module, "x"), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    INVALIDATES(CU_STREAM_CAPTURE_MODE_RELAXED, cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    INVALIDATES(CU_STREAM_CAPTURE_MODE_RELAXED, cuStreamQuery(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    INVALIDATES(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, cuStreamSynchronize(other), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    INVALIDATES(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, cuStreamQuery(other), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    INVALIDATES(CU_STREAM_CAPTURE_MODE_RELAXED, cuStreamGetId(stream, &id), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    INVALIDATES(CU_STREAM_CAPTURE_MODE_RELAXED, cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    INVALIDATES(CU_STREAM_CAPTURE_MODE_GLOBAL, allocate_elsewhere(CU_STREAM_CAPTURE_MODE_GLOBAL),
                CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
#undef INVALIDATES
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuStreamSynchronize(other));
    OK(cuStreamQuery(other));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT(allocate_elsewhere(CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    EXPECT(allocate_elsewhere(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuMemAlloc(&p, 64));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuMemFree(p));
    /* The legacy stream would have to wait for the capturing one. */
    OK(cuStreamDestroy(other));
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    EXPECT(cuMemsetD8Async(box.result[0], 1, 8, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    EXPECT(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    OK(cuStreamDestroy(blocking));
    test_box_close(&box);
}

TEST(capture_events, "1", NULL, 1, ALWAYS) {
    struct test_box box;
    CUgraph graph;
    CUgraphExec exec;
    CUstream side;
    CUevent eager, captured, external;
    size_t nodes = 0;
    test_box_open(&box, 1);
    CUstream stream = box.stream[0];
    OK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&eager, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&captured, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&external, CU_EVENT_DISABLE_TIMING));
    /* An eager event is outside the capture, unless the wait says that it knows. */
    OK(cuEventRecord(eager, side));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT(cuStreamWaitEvent(stream, eager, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    EXPECT(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    /* Two captures do not mix. */
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuStreamBeginCapture(side, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(captured, side));
    EXPECT(cuStreamWaitEvent(stream, captured, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    EXPECT(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT(cuStreamEndCapture(side, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    /* External ones are nodes, and happen when the graph runs. */
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuEventRecord(captured, stream));
    EXPECT(cuEventQuery(captured), CUDA_ERROR_CAPTURED_EVENT);
    EXPECT(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuStreamWaitEvent(stream, eager, CU_EVENT_WAIT_EXTERNAL));
    OK(cuMemsetD8Async(box.result[0], 1, 8, stream));
    OK(cuEventRecordWithFlags(external, stream, CU_EVENT_RECORD_EXTERNAL));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphGetNodes(graph, NULL, &nodes));
    CHECK(nodes == 3);
    EXPECT(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH), CUDA_ERROR_INVALID_VALUE);
    OK(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        uint64_t value = 0;
        OK(cuMemsetD8Async(box.result[0], 0, 8, stream));
        OK(cuEventRecord(eager, side));
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamWaitEvent(side, external, 0));
        OK(cuMemcpyDtoHAsync(&value, box.result[0], 8, side));
        OK(cuStreamSynchronize(side));
        CHECK(value == 0x0101010101010101ull);
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuEventDestroy(eager));
    OK(cuEventDestroy(captured));
    OK(cuEventDestroy(external));
    OK(cuStreamDestroy(side));
    test_box_close(&box);
}

/* Four ranks in one graph: each rank's kernel waits for the others', which no edge tells. */
TEST(capture_ranks, "4", NULL, 5, ALWAYS) {
    enum { RANKS = 4, THREADS = 16, ROUNDS = 3, TIMES = 3 };
    struct test_box box;
    CUevent fork, join[RANKS];
    test_box_open(&box, RANKS);
    OK(cuCtxSetCurrent(box.context[0]));
    OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamBeginCapture(box.stream[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (int i = 0; i < RANKS; i++) OK(cuMemsetD8Async(box.staging[i], 0, TEST_STAGING, box.stream[0]));
    OK(cuEventRecord(fork, box.stream[0]));
    for (int i = 0; i < RANKS; i++) {
        struct bl_kernel_args args = test_args(&box, i);
        args.count = ROUNDS;
        OK(cuCtxSetCurrent(box.context[i]));
        OK(cuEventCreate(&join[i], CU_EVENT_DISABLE_TIMING));
        if (i) OK(cuStreamWaitEvent(box.stream[i], fork, 0));
        OK(test_launch(&box, i, "test_packets", 1, THREADS, &args));
        OK(cuEventRecord(join[i], box.stream[i]));
        if (i) OK(cuStreamWaitEvent(box.stream[0], join[i], 0));
    }
    OK(cuCtxSetCurrent(box.context[0]));
    CUgraphExec exec = test_end_capture(box.stream[0]);
    for (int i = 0; i < TIMES; i++) OK(cuGraphLaunch(exec, box.stream[0]));
    OK(cuStreamSynchronize(box.stream[0]));
    for (int i = 0; i < RANKS; i++) {
        uint64_t got[THREADS];
        OK(cuCtxSetCurrent(box.context[i]));
        OK(cuMemcpyDtoH(got, box.result[i], sizeof got));
        for (uint64_t j = 0; j < THREADS; j++) CHECK(got[j] == 4 * 1000 * 6 + ROUNDS * (600 + 4 * j));
        OK(cuEventDestroy(join[i]));
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuEventDestroy(fork));
    test_box_close(&box);
}
