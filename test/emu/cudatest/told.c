/* told.c - data that a copy brings to another GPU, and the flag that tells of it: what orders the two, and what does not.
 */
#include "cudatest.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES = 48 << 10, ROUNDS = 12, FLAG = 64 << 10 /* in the staging */ };

enum how {
    WRITE, /* the default */
    BARRIER,
    KERNEL,
    EVENT,
    EDGE,
    BATCH,
    NO_BARRIER,
    GPU_BARRIER,
    MEMSET,
    COPY,
    NO_EVENT,
    NO_EDGE,
    NO_WAIT
};

static void fill(CUdeviceptr to, unsigned value) {
    OK(settled(cuMemsetD32(to, value, BYTES / 4)));
}

static bool all_are(CUdeviceptr from, unsigned value) {
    unsigned *got = malloc(BYTES);
    OK(cuMemcpyDtoH(got, from, BYTES));
    bool same = true;
    for (int i = 0; i < BYTES / 4; i++) same &= got[i] == value;
    free(got);
    return same;
}

static CUstreamBatchMemOpParams write_op(CUdeviceptr address, unsigned value, unsigned flags) {
    return test_op32(CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value, flags);
}

static CUstreamBatchMemOpParams barrier_op(unsigned type) {
    CUstreamBatchMemOpParams p;
    memset(&p, 0, sizeof p);
    p.memoryBarrier.operation = CU_STREAM_MEM_OP_BARRIER;
    p.memoryBarrier.flags = type;
    return p;
}

struct sender {
    struct test_box *box;
    CUstream side;
    CUevent event, back;
    CUdeviceptr from, to, flag;
};

/* A copy and a flag of default order on two streams, which an edge of the graph joins or not. */
static void send_graph(struct sender *s, unsigned round, bool edge) {
    CUstream stream = s->box->stream[0];
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    if (edge) OK(cuMemcpyDtoDAsync(s->to, s->from, BYTES, stream));
    OK(cuEventRecord(s->event, stream));
    OK(cuStreamWaitEvent(s->side, s->event, 0));
    if (!edge) OK(cuMemcpyDtoDAsync(s->to, s->from, BYTES, stream));
    OK(cuStreamWriteValue32(s->side, s->flag, round, 0));
    OK(cuEventRecord(s->back, s->side));
    OK(cuStreamWaitEvent(stream, s->back, 0));
    CUgraphExec exec = test_end_capture(stream);
    OK(cuGraphLaunch(exec, stream));
    OK(cuGraphExecDestroy(exec)); /* which waits for nothing, and ends nothing */
}

static void send(struct sender *s, enum how how, unsigned round) {
    CUstream stream = s->box->stream[0];
    struct bl_kernel_args args = test_args(s->box, 0);
    CUstreamBatchMemOpParams batch[3];
    if (how == EDGE || how == NO_EDGE) {
        send_graph(s, round, how == EDGE);
        return;
    }
    OK(cuMemcpyDtoDAsync(s->to, s->from, BYTES, stream));
    switch (how) {
    case WRITE:
    case NO_WAIT: OK(cuStreamWriteValue32(stream, s->flag, round, CU_STREAM_WRITE_VALUE_DEFAULT)); break;
    case NO_BARRIER: OK(cuStreamWriteValue32(stream, s->flag, round, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)); break;
    case BARRIER:
    case GPU_BARRIER:
        batch[0] = barrier_op(how == BARRIER ? CU_STREAM_MEMORY_BARRIER_TYPE_SYS : CU_STREAM_MEMORY_BARRIER_TYPE_GPU);
        batch[1] = write_op(s->flag, round, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER);
        OK(cuStreamBatchMemOp(stream, 2, batch, 0));
        break;
    case BATCH: /* a weak write elsewhere before the strong one */
        batch[0] = write_op(s->flag + 64, round, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER);
        batch[1] = write_op(s->flag + 128, round, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER);
        batch[2] = write_op(s->flag, round, CU_STREAM_WRITE_VALUE_DEFAULT);
        OK(cuStreamBatchMemOp(stream, 3, batch, 0));
        memset(batch, 0xff, sizeof batch); /* it has been read */
        break;
    case MEMSET: OK(cuMemsetD32Async(s->flag, round, 1, stream)); break;
    case COPY: OK(cuMemcpyDtoDAsync(s->flag, s->from, 4, stream)); break; /* the data are the round */
    case KERNEL:                                                          /* what it copies is 1 less than the flag */
        args.sendbuff = (void *)(uintptr_t)(s->box->words[0] + 64);
        args.recvbuff = (void *)(uintptr_t)s->flag;
        args.count = 1;
        OK(cuMemsetD32Async(s->box->words[0] + 64, round - 1, 1, stream));
        OK(test_launch(s->box, 0, "test_copy", 1, 1, &args));
        break;
    case EVENT:
        OK(cuEventRecord(s->event, stream));
        OK(cuStreamWaitEvent(s->side, s->event, 0));
        OK(cuStreamWriteValue32(s->side, s->flag, round, 0));
        break;
    case NO_EVENT: OK(cuStreamWriteValue32(s->side, s->flag, round, 0)); break;
    case EDGE:
    case NO_EDGE: break;
    }
}

/* From GPU 0 to GPU 1, which polls already. */
static void tell(enum how how) {
    struct test_box box;
    test_box_open(&box, 2);
    struct sender s = {.box = &box, .from = box.result[0], .to = box.staging[1], .flag = box.staging[1] + FLAG};
    OK(cuCtxSetCurrent(box.context[0]));
    OK(cuStreamCreate(&s.side, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&s.event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&s.back, CU_EVENT_DISABLE_TIMING));
    for (unsigned round = 1; round <= ROUNDS; round++) {
        OK(cuCtxSetCurrent(box.context[1]));
        if (how != NO_WAIT) OK(cuStreamWaitValue32(box.stream[1], s.flag, round, CU_STREAM_WAIT_VALUE_GEQ));
        OK(cuMemcpyDtoDAsync(box.result[1], s.to, BYTES, box.stream[1]));
        OK(cuCtxSetCurrent(box.context[0]));
        fill(s.from, round);
        send(&s, how, round);
        OK(cuStreamSynchronize(box.stream[1]));
        CHECK(all_are(box.result[1], round));
        if (how == BATCH) {
            unsigned got[33];
            OK(cuStreamSynchronize(box.stream[0]));
            OK(cuMemcpyDtoH(got, s.flag, sizeof got));
            CHECK(got[0] == round && got[16] == round && got[32] == round);
        }
        OK(cuStreamSynchronize(box.stream[0]));
        OK(cuStreamSynchronize(s.side));
    }
    OK(cuStreamDestroy(s.side));
    OK(cuEventDestroy(s.event));
    OK(cuEventDestroy(s.back));
    test_box_close(&box);
}

TRIAL(told_by_write, "2", NULL, 10, ALWAYS, tell(WRITE))
TRIAL(told_by_barrier, "2", NULL, 10, ALWAYS, tell(BARRIER))
TRIAL(told_by_kernel, "2", NULL, 10, ALWAYS, tell(KERNEL))
TRIAL(told_by_event, "2", NULL, 10, ALWAYS, tell(EVENT))
TRIAL(told_by_edge, "2", NULL, 10, ALWAYS, tell(EDGE))
TRIAL(told_batch, "2", NULL, 10, ALWAYS, tell(BATCH))
TRIAL(untold_no_barrier, "2", NULL, 5, NOT_ALWAYS, tell(NO_BARRIER))
TRIAL(untold_gpu_barrier, "2", NULL, 5, NOT_ALWAYS, tell(GPU_BARRIER))
TRIAL(untold_memset, "2", NULL, 5, NOT_ALWAYS, tell(MEMSET))
TRIAL(untold_copy, "2", NULL, 5, NOT_ALWAYS, tell(COPY))
TRIAL(untold_no_event, "2", NULL, 5, NOT_ALWAYS, tell(NO_EVENT))
TRIAL(untold_no_edge, "2", NULL, 5, NOT_ALWAYS, tell(NO_EDGE))
TRIAL(untold_no_wait, "2", NULL, 5, NOT_ALWAYS, tell(NO_WAIT))

/* Between processes, both ways at once, without the host in between: a rank sends again when the other has taken the last
 * (pushed to it, or left in the rank's own staging for the other to pull). */
enum { TAKEN = FLAG + 64 };

static void exchange(struct test_pair *pair, bool pull, unsigned flags) {
    struct test_box *box = &pair->box;
    CUstream stream = box->stream[pair->rank];
    CUdeviceptr data = box->result[pair->rank], taken = 0;
    unsigned *got = malloc(BYTES);
    OK(cuMemAlloc(&taken, (size_t)ROUNDS * BYTES));
    for (unsigned round = 1; round <= ROUNDS; round++) {
        OK(cuMemsetD32Async(data, round * 2 + (unsigned)pair->rank, BYTES / 4, stream));
        if (round > 1) OK(cuStreamWaitValue32(stream, pair->own + TAKEN, round - 1, CU_STREAM_WAIT_VALUE_GEQ));
        OK(cuMemcpyDtoDAsync(pull ? pair->own : pair->other, data, BYTES, stream));
        OK(cuMemsetD32Async(data, 0xdead, BYTES / 4, stream)); /* the copy has read it */
        OK(cuStreamWriteValue32(stream, pair->other + FLAG, round, flags));
        OK(cuStreamWaitValue32(stream, pair->own + FLAG, round, CU_STREAM_WAIT_VALUE_GEQ));
        OK(cuMemcpyDtoDAsync(taken + (size_t)(round - 1) * BYTES, pull ? pair->other : pair->own, BYTES, stream));
        OK(cuStreamWriteValue32(stream, pair->other + TAKEN, round, flags));
    }
    OK(cuStreamSynchronize(stream));
    for (unsigned round = 1; round <= ROUNDS; round++) {
        bool same = true;
        OK(cuMemcpyDtoH(got, taken + (size_t)(round - 1) * BYTES, BYTES));
        for (int i = 0; i < BYTES / 4; i++) same &= got[i] == round * 2 + 1u - (unsigned)pair->rank;
        CHECK(same);
    }
    free(got);
    OK(cuMemFree(taken));
}

static void push_both(struct test_pair *pair) {
    exchange(pair, false, CU_STREAM_WRITE_VALUE_DEFAULT);
}
static void pull_both(struct test_pair *pair) {
    exchange(pair, true, CU_STREAM_WRITE_VALUE_DEFAULT);
}
static void push_unordered(struct test_pair *pair) {
    exchange(pair, false, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER);
}
TRIAL(told_by_process, "2", NULL, 10, ALWAYS, test_pair_run(push_both))
TRIAL(pulled_by_process, "2", NULL, 10, ALWAYS, test_pair_run(pull_both))
TRIAL(untold_by_process, "2", NULL, 5, NOT_ALWAYS, test_pair_run(push_unordered))
