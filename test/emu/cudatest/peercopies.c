/* peercopies.c - copies between GPUs: from, to and beside a peer's memory, eager and captured, and an all-gather of them.
 */
#include "cudatest.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 40000 };

static bool all_are(CUdeviceptr from, unsigned char value, size_t bytes) {
    unsigned char *got = malloc(bytes);
    OK(cuMemcpyDtoH(got, from, bytes));
    bool same = true;
    for (size_t i = 0; i < bytes; i++) same &= got[i] == value;
    free(got);
    return same;
}

/* GPU 0 copies within its own memory, from its peer, to its peer, and between two of the peer's places. */
struct way {
    CUdeviceptr to, from;
};
static void ways_of(const struct test_box *box, struct way ways[5]) {
    ways[0] = (struct way){box->staging[0] + 3, box->result[0] + 1};
    ways[1] = (struct way){box->result[0], box->staging[0] + 100000};
    ways[2] = (struct way){box->result[0] + 5, box->staging[1] + 2};
    ways[3] = (struct way){box->staging[1] + 200001, box->result[0] + 4};
    ways[4] = (struct way){box->staging[1] + 300000, box->staging[1] + 400000};
}

static void around(CUdeviceptr to, unsigned char value) {
    unsigned char before = 0, after = 0;
    OK(cuMemcpyDtoH(&before, to - 1, 1));
    OK(cuMemcpyDtoH(&after, to + BYTES, 1));
    CHECK(before == value && after == value);
}

static void do_ways(bool captured) {
    struct test_box box;
    struct way ways[5];
    CUgraph graph;
    CUgraphExec exec = NULL;
    CUstream other;
    test_box_open(&box, 2);
    ways_of(&box, ways);
    OK(cuCtxSetCurrent(box.context[0]));
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CUstream stream = box.stream[0];
    CUdeviceptr gate = box.staging[0] + TEST_STAGING - 64;
    for (unsigned i = 0; i < 5; i++) {
        CUdeviceptr to = ways[i].to, from = ways[i].from;
        bool first_byte = to == box.result[0]; /* nothing before it */
        if (captured) {
            CUgraphNode nodes[2];
            size_t count = 2;
            CUgraphNodeType type;
            OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
            OK(cuMemcpyDtoDAsync(to, from, BYTES, stream));
            OK(cuStreamEndCapture(stream, &graph));
            OK(cuGraphGetNodes(graph, nodes, &count));
            OK(cuGraphNodeGetType(nodes[0], &type));
            CHECK(count == 1 && type == CU_GRAPH_NODE_TYPE_MEMCPY);
            OK(cuGraphInstantiate(&exec, graph, 0));
            OK(cuGraphDestroy(graph));
        }
        for (unsigned time = 0; time < 3; time++) {
            unsigned char value = (unsigned char)(1 + i * 3 + time);
            OK(settled(cuMemsetD8(to - !first_byte, 0xee, BYTES + 2)));
            OK(settled(cuMemsetD8(from, value, BYTES)));
            OK(settled(cuMemsetD32(gate, 0, 1)));
            OK(cuStreamWaitValue32(stream, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
            OK(captured ? cuGraphLaunch(exec, stream) : cuMemcpyDtoDAsync(to, from, BYTES, stream));
            OK(cuMemsetD8Async(from, 0xdd, BYTES, stream)); /* it has been read */
            /* Asynchronous: the host is here, and another stream gets further. */
            EXPECT(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
            CHECK(all_are(to, 0xee, BYTES));
            OK(cuStreamWriteValue32(other, gate, 1, 0));
            OK(cuStreamSynchronize(stream));
            CHECK(all_are(to, value, BYTES));
            CHECK(all_are(from, 0xdd, BYTES));
            if (!first_byte) around(to, 0xee);
        }
        if (captured) OK(cuGraphExecDestroy(exec));
    }
    OK(cuMemcpyDtoDAsync(ways[0].to, ways[0].from, 0, stream));
    OK(cuStreamDestroy(other));
    test_box_close(&box);
}

TRIAL(peer_copies, "2", NULL, 3, ALWAYS, do_ways(false))
TRIAL(peer_copies_captured, "2", NULL, 3, ALWAYS, do_ways(true))

/* What a stream has written to a peer is what it reads there later, through any mapping, and the last write stays. */
TEST(peer_copy_order, "2", NULL, 10, ALWAYS) {
    enum { TIMES = 40 };
    struct test_box box;
    CUmemGenericAllocationHandle handle;
    unsigned got = 0;
    test_box_open(&box, 2);
    OK(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)box.staging[1]));
    CUdeviceptr again = test_map(handle, TEST_STAGING, 2), peer = box.staging[1];
    OK(cuMemRelease(handle));
    OK(cuCtxSetCurrent(box.context[0]));
    CUstream stream = box.stream[0];
    for (unsigned char time = 1; time <= TIMES; time++) {
        OK(cuMemsetD8Async(box.result[0], time, BYTES, stream));
        OK(cuMemcpyDtoDAsync(peer, box.result[0], BYTES, stream));
        OK(cuMemcpyDtoDAsync(time & 1 ? again + 65536 : peer + 65536, time & 2 ? again : peer, BYTES, stream));
        OK(cuMemsetD8Async(again + 70, (unsigned char)(time + 1), 500, stream));
        OK(cuMemsetD8Async(peer + 65536 + 70, (unsigned char)(time + 1), 500, stream));
        OK(cuStreamWriteValue32(stream, peer + 131072, time, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER));
        OK(cuStreamWriteValue32(stream, again + 131072, time + 1u, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER));
        OK(cuStreamWaitValue32(stream, peer + 131072, time + 1u, CU_STREAM_WAIT_VALUE_EQ));
        OK(cuStreamSynchronize(stream));
        for (CUdeviceptr at = 0; at <= 65536; at += 65536) {
            CHECK(all_are(peer + at, time, 70));
            CHECK(all_are(peer + at + 70, (unsigned char)(time + 1), 500));
            CHECK(all_are(peer + at + 570, time, BYTES - 570));
        }
        usleep(200);
        OK(cuMemcpyDtoH(&got, peer + 131072, 4));
        CHECK(got == time + 1u);
    }
    test_unmap(again, TEST_STAGING);
    test_box_close(&box);
}

/* A GPU copies and fills only what it may access. */
TEST(peer_copy_access, "2", NULL, 1, ALWAYS) {
    struct test_box box;
    test_box_open(&box, 2);
    OK(cuCtxSetCurrent(box.context[0]));
    CUstream stream = box.stream[0];
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READ};
    OK(cuMemSetAccess(box.staging[1], TEST_STAGING, &access, 1));
    EXPECT(cuMemcpyDtoDAsync(box.staging[1], box.result[0], 64, stream), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemsetD32Async(box.staging[1], 0, 1, stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemcpyDtoDAsync(box.result[0], box.staging[1], 64, stream));
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    OK(cuMemSetAccess(box.staging[1], TEST_STAGING, &access, 1));
    EXPECT(cuMemcpyDtoDAsync(box.result[0], box.staging[1], 64, stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemcpyDtoDAsync(box.result[1], box.staging[1], 64, box.stream[1])); /* its own GPU may still */
    EXPECT(cuMemcpyDtoDAsync(box.staging[0] + TEST_STAGING - 8, box.result[0], 64, stream), CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamSynchronize(stream));
    OK(cuStreamSynchronize(box.stream[1]));
    test_box_close(&box);
}

TEST(priority, "1", NULL, 1, ALWAYS) {
    struct test_box box;
    int least = 1, greatest = 1, priority = 1;
    unsigned flags = 0;
    test_box_open(&box, 1);
    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    CHECK(greatest < least);
    for (int asked = greatest - 1; asked <= least + 1; asked++) {
        CUstream stream;
        OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, asked));
        OK(cuStreamGetPriority(stream, &priority));
        CHECK(priority == (asked < greatest ? greatest : asked > least ? least : asked));
        OK(cuStreamGetFlags(stream, &flags));
        CHECK(flags == CU_STREAM_NON_BLOCKING);
        OK(cuMemsetD8Async(box.result[0], 9, BYTES, stream));
        OK(cuMemcpyDtoDAsync(box.staging[0], box.result[0], BYTES, stream));
        OK(cuStreamSynchronize(stream));
        CHECK(all_are(box.staging[0], 9, BYTES));
        OK(settled(cuMemsetD8(box.staging[0], 0, BYTES)));
        OK(cuStreamDestroy(stream));
    }
    EXPECT(cuStreamCreateWithPriority(NULL, 0, 0), CUDA_ERROR_INVALID_VALUE);
    test_box_close(&box);
}

/* An all-gather without a kernel: each rank's graph pushes its part to each peer on a stream a peer, tells it there, and
 * takes what came into its own result. "ready" says that a rank has taken the last, "here" that a part came; a graph resets
 * what it has waited for, before it tells anybody that this may be written again. */
enum { RANKS = 3, PART = 16 << 10, READY = 1 << 20, HERE = READY + 4096 };

static CUstreamBatchMemOpParams value_op(CUstreamBatchMemOpType type, CUdeviceptr address, unsigned value) {
    return test_op32(type, address, value, type == CU_STREAM_MEM_OP_WAIT_VALUE_32 ? CU_STREAM_WAIT_VALUE_EQ : 0);
}

static void gather(struct test_box *box, int rank, CUstream side[RANKS], CUevent fork, CUevent join[RANKS]) {
    CUstream stream = box->stream[rank];
    CUdeviceptr own = box->staging[rank], result = box->result[rank], mine = box->words[rank];
    CUstreamBatchMemOpParams list[3 * RANKS];
    unsigned n = 0;
    const CUdeviceptr me = (CUdeviceptr)rank;
    for (CUdeviceptr i = 0; i < RANKS; i++)
        if (i != me) list[n++] = value_op(CU_STREAM_MEM_OP_WRITE_VALUE_32, box->staging[i] + READY + me * 64, 1);
    for (CUdeviceptr i = 0; i < RANKS; i++) {
        if (i == me) continue;
        list[n++] = value_op(CU_STREAM_MEM_OP_WAIT_VALUE_32, own + READY + i * 64, 1);
        list[n++] = value_op(CU_STREAM_MEM_OP_WRITE_VALUE_32, own + READY + i * 64, 0);
    }
    OK(cuStreamBatchMemOp(stream, n, list, 0));
    OK(cuEventRecord(fork, stream));
    for (CUdeviceptr i = 0; i < RANKS; i++) {
        CUdeviceptr place = i == me ? result + me * PART : box->staging[i] + me * PART;
        OK(cuStreamWaitEvent(side[i], fork, 0));
        OK(cuMemcpyDtoDAsync(place, mine, PART, side[i]));
        if (i != me) OK(cuStreamWriteValue32(side[i], box->staging[i] + HERE + me * 64, 1, 0));
        OK(cuEventRecord(join[i], side[i]));
    }
    for (CUdeviceptr i = 0; i < RANKS; i++) {
        if (i == me) continue;
        CUstreamBatchMemOpParams here[2] = {value_op(CU_STREAM_MEM_OP_WAIT_VALUE_32, own + HERE + i * 64, 1),
                                            value_op(CU_STREAM_MEM_OP_WRITE_VALUE_32, own + HERE + i * 64, 0)};
        OK(cuStreamBatchMemOp(stream, 2, here, 0));
        OK(cuMemcpyDtoDAsync(result + i * PART, own + i * PART, PART, stream));
    }
    for (int i = 0; i < RANKS; i++) OK(cuStreamWaitEvent(stream, join[i], 0));
}

TEST(gather_graph, "3", NULL, 10, ALWAYS) {
    enum { TIMES = 8 };
    struct test_box box;
    CUstream side[RANKS][RANKS];
    CUevent fork[RANKS], join[RANKS][RANKS];
    CUgraphExec exec[RANKS];
    test_box_open(&box, RANKS);
    for (int i = 0; i < RANKS; i++) {
        OK(cuCtxSetCurrent(box.context[i]));
        OK(cuMemFree(box.words[i]));
        OK(cuMemAlloc(&box.words[i], PART));
        OK(cuEventCreate(&fork[i], CU_EVENT_DISABLE_TIMING));
        for (int j = 0; j < RANKS; j++) {
            OK(cuEventCreate(&join[i][j], CU_EVENT_DISABLE_TIMING));
            OK(cuStreamCreateWithPriority(&side[i][j], CU_STREAM_NON_BLOCKING, -1));
        }
        OK(cuStreamBeginCapture(box.stream[i], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        gather(&box, i, side[i], fork[i], join[i]);
        exec[i] = test_end_capture(box.stream[i]);
    }
    for (unsigned time = 0; time < TIMES; time++) {
        for (int i = RANKS - 1; i >= 0; i--) {
            OK(cuCtxSetCurrent(box.context[i]));
            OK(cuMemsetD8Async(box.words[i], (unsigned char)(time * 10 + (unsigned)i + 1), PART, box.stream[i]));
            if (time == 5) /* an eager one in between */
                gather(&box, i, side[i], fork[i], join[i]);
            else
                OK(cuGraphLaunch(exec[i], box.stream[i]));
        }
        if (time & 1) continue; /* replays one after another, too */
        for (int i = 0; i < RANKS; i++) {
            OK(cuCtxSetCurrent(box.context[i]));
            OK(cuStreamSynchronize(box.stream[i]));
            for (unsigned j = 0; j < RANKS; j++)
                CHECK(all_are(box.result[i] + (CUdeviceptr)j * PART, (unsigned char)(time * 10 + j + 1), PART));
        }
    }
    for (int i = 0; i < RANKS; i++) {
        OK(cuCtxSetCurrent(box.context[i]));
        OK(cuStreamSynchronize(box.stream[i]));
        OK(cuGraphExecDestroy(exec[i]));
        OK(cuEventDestroy(fork[i]));
        for (int j = 0; j < RANKS; j++) {
            OK(cuEventDestroy(join[i][j]));
            OK(cuStreamDestroy(side[i][j]));
        }
    }
    test_box_close(&box);
}
