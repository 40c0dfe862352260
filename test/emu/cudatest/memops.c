/* memops.c - waits for values and writes of values: comparisons, who may release a wait, what is refused, what ends one. */
#include "cudatest.h"

#include <string.h>
#include <unistd.h>

enum { A_WHILE_US = 5000 };

static bool waits_still(CUstream stream) {
    usleep(A_WHILE_US);
    return cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
}

static CUresult wait_for(CUstream stream, CUdeviceptr address, bool wide, uint64_t value, unsigned flags) {
    return wide ? cuStreamWaitValue64(stream, address, value, flags)
                : cuStreamWaitValue32(stream, address, (unsigned)value, flags);
}

/* Each comparison: a word that does not satisfy it, and one that does. A 32-bit wait does not look at the next word. */
TEST(waits, "1", NULL, 1, ALWAYS) {
    static const struct {
        unsigned flags;
        bool wide;
        uint64_t value, no, yes;
    } waits[] = {
        {CU_STREAM_WAIT_VALUE_GEQ, false, 5, 0xf00000004, 5},
        {CU_STREAM_WAIT_VALUE_GEQ, false, 5, 0x80000005, 0x7fffffff},
        {CU_STREAM_WAIT_VALUE_GEQ, false, 0xfffffff0, 0xffffffef, 3}, /* cyclic */
        {CU_STREAM_WAIT_VALUE_GEQ, true, 0x100000005, 0xfffffffff00000ff, 0x100000005},
        {CU_STREAM_WAIT_VALUE_GEQ, true, 0x100000005, 0x000000009, 0x200000000},
        {CU_STREAM_WAIT_VALUE_GEQ, true, 0xfffffffffffffff0, 0xffffffffffffffef, 3},
        {CU_STREAM_WAIT_VALUE_EQ, false, 5, 6, 0x700000005},
        {CU_STREAM_WAIT_VALUE_EQ, true, 0x100000005, 5, 0x100000005},
        {CU_STREAM_WAIT_VALUE_AND, false, 6, 0xf00000009, 4},
        {CU_STREAM_WAIT_VALUE_AND, true, 0x100000000, 0xffffffff, 0x300000000},
        {CU_STREAM_WAIT_VALUE_NOR, false, 0xf0f0f0f0, 0x0f0f0f0f, 0xffffffff0f0f0f0e},
        {CU_STREAM_WAIT_VALUE_NOR, true, 0xffffffff, 0xffffffff00000000, 0x7fffffffffffffff},
    };
    struct test_box box;
    CUstream other;
    test_box_open(&box, 1);
    CUstream stream = box.stream[0];
    CUdeviceptr word = box.staging[0] + 64;
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        OK(cuStreamWriteValue64(other, word, waits[i].no, 0));
        OK(cuStreamSynchronize(other));
        OK(wait_for(stream, word, waits[i].wide, waits[i].value, waits[i].flags));
        if (!waits_still(stream)) {
            test_failures++;
            fprintf(stderr, "wait %zu does not wait\n", i);
        }
        OK(cuStreamWriteValue64(other, word, waits[i].yes, 0));
        OK(cuStreamSynchronize(stream));
        /* Satisfied already, it does not wait at all. */
        OK(wait_for(stream, word, waits[i].wide, waits[i].value, waits[i].flags));
        OK(cuStreamSynchronize(stream));
    }
    /* A 32-bit write leaves the next word alone. */
    uint64_t got = 0;
    OK(cuStreamWriteValue64(stream, word, ~0ull, 0));
    OK(cuStreamWriteValue32(stream, word, 7, 0));
    OK(cuMemcpyDtoHAsync(&got, word, 8, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(got == 0xffffffff00000007);
    OK(cuStreamDestroy(other));
    test_box_close(&box);
}

/* Whatever writes the word ends the wait; each in turn writes the number of its turn. */
TEST(writers, "2", NULL, 3, ALWAYS) {
    struct test_box box;
    CUstream other;
    unsigned turn = 0, value;
    uint64_t wide;
    test_box_open(&box, 2);
    OK(cuCtxSetCurrent(box.context[0]));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CUdeviceptr word = box.staging[0] + 64, source = box.result[0];
#define RELEASES(device, call)                                                                                         \
    turn++;                                                                                                            \
    OK(cuCtxSetCurrent(box.context[0]));                                                                               \
    OK(cuStreamWaitValue32(box.stream[0], word, turn, CU_STREAM_WAIT_VALUE_EQ));                                       \
    CHECK(waits_still(box.stream[0]));                                                                                 \
    OK(cuCtxSetCurrent(box.context[device]));                                                                          \
    OK(call);                                                                                                          \
    OK(cuStreamSynchronize(box.stream[0]))
    RELEASES(0, cuStreamWriteValue32(other, word, turn, 0));
    RELEASES(0, cuStreamWriteValue32(other, word, turn, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER));
    RELEASES(0, cuStreamWriteValue64(other, word, turn, 0));
    RELEASES(1, cuStreamWriteValue32(box.stream[1], word, turn, 0));
    RELEASES(0, cuMemsetD32Async(word, turn, 1, other));
    RELEASES(1, cuMemsetD32Async(word, turn, 1, box.stream[1]));
    RELEASES(0, cuMemsetD8Async(word, (unsigned char)turn, 1, other));
    RELEASES(0, cuMemsetD32(word, turn, 1)); /* of the host; the waiting stream is none of those that it waits for */
    value = turn + 1;
    RELEASES(0, cuMemcpyHtoD(word, &value, sizeof value));
    value = turn + 1;
    OK(settled(cuMemcpyHtoD(source, &value, sizeof value)));
    RELEASES(1, cuMemcpyDtoDAsync(word, source, sizeof value, box.stream[1]));
    wide = turn;
    OK(cuCtxSetCurrent(box.context[0]));
    OK(settled(cuMemcpyHtoD(source, &wide, sizeof wide)));
    struct bl_kernel_args args = test_args(&box, 1);
    OK(settled(cuMemcpyDtoD(box.staging[1], source, sizeof wide)));
    args.sendbuff = (void *)(uintptr_t)box.staging[1];
    args.recvbuff = (void *)(uintptr_t)word;
    args.count = 1;
    RELEASES(1, test_launch(&box, 1, "test_copy", 1, 1, &args));
#undef RELEASES
    OK(cuCtxSetCurrent(box.context[0]));
    OK(cuStreamDestroy(other));
    test_box_close(&box);
}

/* A wait holds up its stream, and nothing else: not the caller, not other streams, not kernels. */
TEST(waits_alone, "2", NULL, 1, ALWAYS) {
    enum { STREAMS = 8 };
    struct test_box box;
    CUstream waiting[STREAMS];
    CUevent event;
    unsigned got = 0;
    test_box_open(&box, 2);
    OK(cuCtxSetCurrent(box.context[0]));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CUdeviceptr word = box.staging[0], marks = box.result[0], data = box.result[0] + 4096;
    OK(settled(cuMemsetD32(marks, 0, 64)));
    for (int i = 0; i < STREAMS; i++) { /* without waiting: nothing has come yet */
        OK(cuStreamCreate(&waiting[i], CU_STREAM_NON_BLOCKING));
        OK(cuStreamWaitValue32(waiting[i], word, 1, CU_STREAM_WAIT_VALUE_GEQ));
        OK(cuMemsetD32Async(marks + (CUdeviceptr)i * 4, 1, 1, waiting[i]));
    }
    OK(cuEventRecord(event, waiting[0]));
    OK(cuStreamWaitEvent(box.stream[1], event, 0)); /* a stream that waits for one that waits, waits */
    OK(cuMemsetD32Async(marks + 128, 1, 1, box.stream[1]));
    struct bl_kernel_args args = test_args(&box, 0);
    args.sendbuff = args.recvbuff = (void *)(uintptr_t)data;
    args.count = 8;
    OK(test_launch(&box, 0, "test_copy", 1, 8, &args));
    OK(cuMemcpyDtoDAsync(data + 4096, data, 64, box.stream[0]));
    OK(cuStreamSynchronize(box.stream[0]));
    EXPECT(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    for (int i = 0; i < STREAMS; i++) {
        CHECK(waits_still(waiting[i]));
        OK(cuMemcpyDtoH(&got, marks + (CUdeviceptr)i * 4, 4));
        CHECK(got == 0);
    }
    OK(cuMemcpyDtoH(&got, marks + 128, 4));
    CHECK(got == 0);
    OK(cuStreamWriteValue32(box.stream[0], word, 1, 0));
    OK(cuEventSynchronize(event));
    OK(cuStreamSynchronize(box.stream[1]));
    OK(cuMemcpyDtoH(&got, marks + 128, 4));
    CHECK(got == 1);
    for (int i = 0; i < STREAMS; i++) {
        OK(cuStreamSynchronize(waiting[i]));
        OK(cuMemcpyDtoH(&got, marks + (CUdeviceptr)i * 4, 4));
        CHECK(got == 1);
        OK(cuStreamDestroy(waiting[i]));
    }
    OK(cuEventDestroy(event));
    test_box_close(&box);
}

TEST(memop_errors, "2", NULL, 1, ALWAYS) {
    enum { MOST = 256 };
    struct test_box box;
    static CUstreamBatchMemOpParams list[MOST];
    unsigned on_stack = 0;
    CUdeviceptr reserved = 0;
    int value = 0;
    test_box_open(&box, 2);
    OK(cuCtxSetCurrent(box.context[0]));
    CUstream stream = box.stream[0];
    CUdeviceptr word = box.staging[0] + 64;
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0));
    CHECK(value == 1);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 0));
    CHECK(value == 1);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 0));
    CHECK(value == 0);
    OK(cuMemAddressReserve(&reserved, TEST_STAGING, 0, 0, 0));
    const CUdeviceptr bad[] = {0,
                               word + 2,
                               word + 1,
                               reserved,
                               box.staging[0] + TEST_STAGING,
                               (CUdeviceptr)(uintptr_t)&on_stack,
                               box.result[1] /* no peer access */};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        EXPECT(cuStreamWaitValue32(stream, bad[i], 0, 0), CUDA_ERROR_INVALID_VALUE);
        EXPECT(cuStreamWriteValue32(stream, bad[i], 1, 0), CUDA_ERROR_INVALID_VALUE);
    }
    EXPECT(cuStreamWaitValue64(stream, word + 4, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuStreamWriteValue64(stream, word + 4, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuStreamWaitValue32(stream, word, 0, 4), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuStreamWaitValue32(stream, word, 0, CU_STREAM_WAIT_VALUE_FLUSH), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT(cuStreamWriteValue32(stream, word, 0, 2), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuStreamBatchMemOp(stream, 1, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; i < MOST; i++) list[i] = test_op32(CU_STREAM_MEM_OP_WRITE_VALUE_32, word, (unsigned)i + 1, 0);
    EXPECT(cuStreamBatchMemOp(stream, 256, list, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuStreamBatchMemOp(stream, 0, list, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuStreamBatchMemOp(stream, 1, list, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamBatchMemOp(stream, 255, list, 0));
    OK(cuMemcpyDtoHAsync(&on_stack, word, 4, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(on_stack == 255);
    /* Of a batch with an operation that is refused, nothing is done. */
    static const struct {
        unsigned type;
        CUresult error;
    } types[] = {{0, CUDA_ERROR_INVALID_VALUE},
                 {7, CUDA_ERROR_INVALID_VALUE},
                 {CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES, CUDA_ERROR_NOT_SUPPORTED}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        list[1] = test_op32((CUstreamBatchMemOpType)types[i].type, word, 0, 0);
        EXPECT(cuStreamBatchMemOp(stream, 2, list, 0), types[i].error);
    }
    memset(&list[1], 0, sizeof list[1]);
    list[1].memoryBarrier.operation = CU_STREAM_MEM_OP_BARRIER;
    list[1].memoryBarrier.flags = 2;
    EXPECT(cuStreamBatchMemOp(stream, 2, list, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemcpyDtoHAsync(&on_stack, word, 4, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(on_stack == 255);
    /* Memory that the GPU may read but not write; another GPU's, once that is allowed. */
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READ};
    OK(cuMemSetAccess(box.staging[1], TEST_STAGING, &access, 1));
    OK(cuStreamWaitValue32(stream, box.staging[1], 0, 0));
    EXPECT(cuStreamWriteValue32(stream, box.staging[1], 1, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxEnablePeerAccess(box.context[1], 0));
    OK(cuStreamWriteValue32(stream, box.result[1], 1, 0));
    OK(cuStreamSynchronize(stream));
    OK(cuCtxDisablePeerAccess(box.context[1]));
    OK(cuMemAddressFree(reserved, TEST_STAGING));
    EXPECT(cuStreamWaitValue32((CUstream)list, word, 0, 0), CUDA_ERROR_INVALID_HANDLE);
    test_box_close(&box);
}

/* A wait that nobody will satisfy, released by a fill: of another stream, or of the host; eager, and in a graph that is
 * launched again and again. */
TEST(memop_release, "1", NULL, 3, ALWAYS) {
    struct test_box box;
    CUstream other;
    CUevent fork, join;
    unsigned got;
    test_box_open(&box, 1);
    CUstream stream = box.stream[0];
    CUdeviceptr word = box.staging[0], mark = box.result[0];
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuEventRecord(fork, stream));
    OK(cuStreamWaitEvent(other, fork, 0));
    OK(cuStreamWaitValue32(stream, word, 1000, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuStreamWaitValue32(other, word + 4, 1000, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuEventRecord(join, other));
    OK(cuStreamWaitEvent(stream, join, 0));
    OK(cuMemsetD32Async(mark, 1, 1, stream));
    CUgraphExec exec = test_end_capture(stream);
    for (int i = 0; i < 6; i++) {
        OK(settled(cuMemsetD32(mark, 0, 1)));
        if (i < 4) {
            OK(cuGraphLaunch(exec, stream));
        } else {
            OK(cuStreamWaitValue32(stream, word, 1000, CU_STREAM_WAIT_VALUE_GEQ));
            OK(cuMemsetD32Async(mark, 1, 1, stream));
        }
        CHECK(waits_still(stream));
        OK(cuMemcpyDtoH(&got, mark, 4));
        CHECK(got == 0);
        if (i & 1)
            OK(settled(cuMemsetD32(word, 0x7fff0000, 2)));
        else
            OK(cuMemsetD32Async(word, 0x7fff0000, 2, other));
        OK(cuStreamSynchronize(stream));
        OK(cuMemcpyDtoH(&got, mark, 4));
        CHECK(got == 1);
        OK(settled(cuMemsetD32(word, 0, 2)));
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuEventDestroy(fork));
    OK(cuEventDestroy(join));
    OK(cuStreamDestroy(other));
    test_box_close(&box);
}

/* A process ends with waits under way, eager and in a graph, on a stream and on a destroyed one: nothing holds it up. */
TEST(memop_exit, "1", NULL, 1, ALWAYS) {
    struct test_box box;
    CUstream other;
    test_box_open(&box, 1);
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuStreamWaitValue32(other, box.staging[0], 1, CU_STREAM_WAIT_VALUE_GEQ));
    CUgraphExec exec = test_end_capture(other);
    OK(cuGraphLaunch(exec, other));
    OK(cuStreamWaitValue32(box.stream[0], box.staging[0], 1, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuMemcpyDtoDAsync(box.result[0], box.staging[0], 4096, box.stream[0]));
    OK(cuGraphExecDestroy(exec)); /* does not wait, nor does this */
    OK(cuStreamDestroy(other));
    CHECK(waits_still(box.stream[0]));
}

/* What waits on a destroyed stream goes on when it may; with its context it ends undone. */
TEST(memop_destroy, "1", NULL, 1, ALWAYS) {
    struct test_box box;
    CUstream stream;
    CUdeviceptr words;
    CUmemGenericAllocationHandle handle;
    unsigned got = 0;
    test_box_open(&box, 1);
    CUdeviceptr word = box.staging[0], mark = box.result[0];
    OK(settled(cuMemsetD32(mark, 0, 1)));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuMemsetD32Async(mark, 7, 1, stream));
    OK(cuStreamDestroy(stream));
    usleep(A_WHILE_US);
    OK(cuMemcpyDtoH(&got, mark, 4));
    CHECK(got == 0);
    OK(cuStreamWriteValue32(box.stream[0], word, 1, 0));
    OK(cuCtxSynchronize()); /* the destroyed stream's work, too */
    OK(cuMemcpyDtoH(&got, mark, 4));
    CHECK(got == 7);
    /* Memory that outlives the context shows what was not done. */
    const CUmemAllocationProp prop = test_prop(0);
    OK(cuMemCreate(&handle, TEST_STAGING, &prop, 0));
    words = test_map(handle, TEST_STAGING, 1);
    OK(settled(cuMemsetD32(words, 0, 2)));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamWaitValue32(stream, words, 1, CU_STREAM_WAIT_VALUE_GEQ));
    OK(cuMemsetD32Async(words + 4, 7, 1, stream));
    OK(cuStreamDestroy(stream));
    double start = test_seconds();
    OK(cuDevicePrimaryCtxRelease(0));
    CHECK(test_seconds() - start < 20);
    OK(cuDevicePrimaryCtxRetain(&box.context[0], 0));
    OK(cuCtxSetCurrent(box.context[0]));
    OK(cuMemcpyDtoH(&got, words + 4, 4));
    CHECK(got == 0);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamWriteValue32(stream, words, 1, 0));
    OK(cuStreamWaitValue32(stream, words, 1, 0));
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy(stream));
}

/* Memory that goes away under a wait is an error of the context, as on the GPU, and not the end of the process. */
TEST(memop_unmap, "1", NULL, 1, ALWAYS) {
    struct test_box box;
    test_box_open(&box, 1);
    OK(cuStreamWaitValue32(box.stream[0], box.staging[0], 1, CU_STREAM_WAIT_VALUE_GEQ));
    CHECK(waits_still(box.stream[0]));
    OK(cuMemUnmap(box.staging[0], TEST_STAGING));
    EXPECT(cuStreamSynchronize(box.stream[0]), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* A batch is one node, with its own copy of the operations, which keep their order; two GPUs take turns through graphs
 * that reset their own flags. */
TEST(memop_graph, "2", NULL, 3, ALWAYS) {
    enum { TIMES = 6 };
    struct test_box box;
    CUgraph graph[2];
    CUgraphExec exec[2];
    test_box_open(&box, 2);
    for (int i = 0; i < 2; i++) {
        CUdeviceptr own = box.staging[i] + 64, other = box.staging[1 - i] + 64;
        CUstreamBatchMemOpParams list[3] = {
            test_op32(CU_STREAM_MEM_OP_WRITE_VALUE_32, other, 1, 0),
            test_op32(CU_STREAM_MEM_OP_WAIT_VALUE_32, own, 1, CU_STREAM_WAIT_VALUE_EQ),
            test_op32(CU_STREAM_MEM_OP_WRITE_VALUE_32, own, 0, 0),
        };
        CUgraphNode nodes[4];
        size_t count = 4;
        CUgraphNodeType type;
        CUstream stream = box.stream[i];
        OK(cuCtxSetCurrent(box.context[i]));
        OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        OK(cuStreamBatchMemOp(stream, 3, list, 0));
        OK(cuMemcpyDtoDAsync(box.result[i], box.staging[1 - i] + 4096, 4, stream));
        for (int j = 0; j < 3; j++) list[j].waitValue.address += 64; /* a second meeting, when both have read */
        OK(cuStreamBatchMemOp(stream, 3, list, 0));
        memset(list, 0xff, sizeof list);
        EXPECT(cuStreamBatchMemOp(stream, 1, list, 0), CUDA_ERROR_INVALID_VALUE); /* which does not end the capture */
        OK(cuStreamWriteValue32(stream, box.result[i] + 64, 3, 0));
        OK(cuStreamEndCapture(stream, &graph[i]));
        OK(cuGraphGetNodes(graph[i], nodes, &count));
        CHECK(count == 4);
        for (size_t j = 0; j < count; j++) {
            OK(cuGraphNodeGetType(nodes[j], &type));
            CHECK(type == (j == 1 ? CU_GRAPH_NODE_TYPE_MEMCPY : CU_GRAPH_NODE_TYPE_BATCH_MEM_OP));
        }
        OK(cuGraphInstantiate(&exec[i], graph[i], 0));
        OK(cuGraphDestroy(graph[i]));
    }
    for (unsigned time = 1; time <= TIMES; time++) {
        unsigned got[2];
        for (int i = 0; i < 2; i++) {
            OK(cuCtxSetCurrent(box.context[i]));
            OK(cuMemsetD32Async(box.staging[i] + 4096, time * 10 + (unsigned)i, 1, box.stream[i]));
            OK(cuGraphLaunch(exec[i], box.stream[i]));
            if (i == 0) CHECK(waits_still(box.stream[0])); /* the other's turn has not come */
        }
        for (int i = 0; i < 2; i++) {
            OK(cuStreamSynchronize(box.stream[i]));
            OK(cuCtxSetCurrent(box.context[i]));
            OK(cuMemcpyDtoH(&got[i], box.result[i], 4));
            CHECK(got[i] == time * 10 + 1 - (unsigned)i);
            OK(cuMemcpyDtoH(&got[i], box.staging[i] + 64, 4));
            CHECK(got[i] == 0);
        }
    }
    for (int i = 0; i < 2; i++) OK(cuGraphExecDestroy(exec[i]));
    test_box_close(&box);
}
