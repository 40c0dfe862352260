/* queues.c - streams that share the queues of the hardware. */
#include "cudatest.h"

#include <unistd.h>

/* On a busy machine that may take long. */
static bool ends(CUstream stream) {
    return test_ends_within(stream, 20000);
}

static bool waits(CUstream stream) {
    return !test_ends_within(stream, 400);
}

/* With two connections every second stream has the same queue: what waits there holds up the others, kernels too, and nobody
 * of the other queue. */
TEST(queues, "1", "CUDA_DEVICE_MAX_CONNECTIONS=2", 1, ALWAYS) {
    struct test_box box;
    CUstream stream[4]; /* 0 and 2 share a queue, 1 and 3 do */
    unsigned got[2] = {7, 7};
    test_box_open(&box, 1);
    CUdeviceptr word = box.staging[0], marks = box.result[0];
    OK(settled(cuMemsetD32(marks, 0, 2)));
    for (int i = 0; i < 4; i++) OK(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
    OK(cuStreamWaitValue32(stream[0], word, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuMemsetD32Async(marks, 1, 1, stream[2]));
    OK(cuMemsetD32Async(marks + 4, 1, 1, stream[3]));
    OK(cuMemcpyDtoHAsync(got, marks, sizeof got, stream[3]));
    CHECK(ends(stream[3]));
    CHECK(got[0] == 0 && got[1] == 1);
    EXPECT(cuStreamQuery(stream[2]), CUDA_ERROR_NOT_READY);
    /* An event that is not there yet waits at the head, too. */
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(event, stream[0]));
    OK(cuStreamWaitEvent(stream[1], event, CU_EVENT_WAIT_DEFAULT));
    OK(cuMemsetD32Async(marks + 4, 2, 1, stream[3]));
    CHECK(waits(stream[3]));
    CUdeviceptr other;
    CUcontext second;
    OK(cuCtxCreate(&second, NULL, 0, 0)); /* another context has queues of its own */
    OK(cuMemAlloc(&other, 4));
    OK(cuStreamWriteValue32(CU_STREAM_PER_THREAD, word, 1, 0));
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    OK(cuMemFree(other));
    OK(cuCtxDestroy(second));
    OK(cuCtxSetCurrent(box.context[0]));
    for (int i = 0; i < 4; i++) {
        CHECK(ends(stream[i]));
        OK(cuStreamDestroy(stream[i]));
    }
    OK(cuMemcpyDtoH(got, marks, sizeof got));
    CHECK(got[0] == 1 && got[1] == 2);
    OK(cuEventDestroy(event));
    test_box_close(&box);
}

static CUresult launch(struct test_box *box, const char *kernel, int gate, bool early, CUstream stream) {
    struct bl_kernel_args args = test_args(box, 0);
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                   .value.programmaticStreamSerializationAllowed = early};
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream,
                             .attrs = &attribute,
                             .numAttrs = 1};
    CUfunction function = NULL;
    OK(cuModuleGetFunction(&function, box->module[0], kernel));
    args.staging[0] += 8 * gate; /* its word */
    void *parameters[] = {&args};
    return cuLaunchKernelEx(&config, function, parameters, NULL);
}

/* A stream is destroyed while a gate is shut on it, and another one is made, with a second gate on it.  What comes behind the first gate waits
 * for the second, too, where it was launched early, and only there. */
static void inherited(bool early) {
    struct test_box box;
    CUstream old, heir;
    CUevent event;
    test_box_open(&box, 1);
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamCreate(&old, CU_STREAM_NON_BLOCKING));
    OK(launch(&box, "test_gate", 0, false, old));
    OK(launch(&box, "test_count_behind", 0, early, old));
    OK(cuEventRecord(event, old));
    OK(cuStreamDestroy(old));
    OK(cuStreamCreate(&heir, CU_STREAM_NON_BLOCKING));
    OK(launch(&box, "test_gate", 1, false, heir));
    CHECK(waits(heir));
    OK(cuStreamWriteValue64(box.stream[0], box.staging[0], 1, 0));
    OK(cuStreamWaitEvent(box.stream[0], event, CU_EVENT_WAIT_DEFAULT));
    CHECK(early ? waits(box.stream[0]) : ends(box.stream[0]));
    CUstream other;
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuStreamWriteValue64(other, box.staging[0] + 8, 1, 0));
    CHECK(ends(heir) && ends(box.stream[0]));
    OK(cuStreamDestroy(heir));
    OK(cuStreamDestroy(other));
    OK(cuEventDestroy(event));
    test_box_close(&box);
}
TRIAL(queue_inherited, "1", NULL, 2, ALWAYS, inherited(false))
TRIAL(queue_inherited_early, "1", NULL, 2, ALWAYS, inherited(true))

/* A graph of two branches, of which one waits for what the other writes: only an edge says which comes first. */
static void branches(bool edge) {
    struct test_box box;
    CUstream branch;
    CUevent fork, join;
    test_box_open(&box, 1);
    CUstream stream = box.stream[0];
    CUdeviceptr word = box.staging[0];
    OK(cuStreamCreate(&branch, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cuMemsetD32Async(word, 0, 1, stream));
    OK(cuEventRecord(fork, stream));
    OK(cuStreamWaitEvent(branch, fork, CU_EVENT_WAIT_DEFAULT));
    OK(cuStreamWriteValue32(stream, word, 1, 0));
    if (edge) {
        OK(cuEventRecord(fork, stream));
        OK(cuStreamWaitEvent(branch, fork, CU_EVENT_WAIT_DEFAULT));
    }
    OK(cuStreamWaitValue32(branch, word, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuEventRecord(join, branch));
    OK(cuStreamWaitEvent(stream, join, CU_EVENT_WAIT_DEFAULT));
    CUgraphExec exec = test_end_capture(stream);
    for (int i = 0; i < 5; i++) {
        OK(cuGraphLaunch(exec, stream));
        if (!test_ends_within(stream, 3000)) _exit(1); /* nothing ends it any more */
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuStreamDestroy(branch));
    OK(cuEventDestroy(fork));
    OK(cuEventDestroy(join));
    test_box_close(&box);
}
TRIAL(queue_edge, "1", "CUDA_DEVICE_MAX_CONNECTIONS=4", 3, ALWAYS, branches(true))
TRIAL(queue_no_edge, "1", "CUDA_DEVICE_MAX_CONNECTIONS=4", 5, NOT_ALWAYS, branches(false))
TRIAL(branches, "1", NULL, 3, ALWAYS, branches(false))
