/* green.c - green contexts.  The box has eight multiprocessors. */
#include "cudatest.h"

#include <unistd.h>

enum { SMS = 8, PART = 3 };

static struct test_box box;
static CUfunction gate, count;

static CUgreenCtx make(CUdevResource *part) {
    CUdevResourceDesc desc = NULL;
    CUgreenCtx green = NULL;
    OK(cuDevResourceGenerateDesc(&desc, part, 1));
    OK(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    return green;
}

static void split(CUdevResource *part, CUdevResource *rest) {
    CUdevResource all;
    unsigned groups = 1;
    OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    CHECK(all.type == CU_DEV_RESOURCE_TYPE_SM && all.sm.smCount == SMS);
    OK(cuDevSmResourceSplitByCount(part, &groups, &all, rest, 0, PART));
    CHECK(groups == 1 && part->sm.smCount == PART && rest->sm.smCount == SMS - PART);
}

static void open_box(void) {
    test_box_open(&box, 1);
    OK(cuModuleGetFunction(&gate, box.module[0], "test_gate"));
    OK(cuModuleGetFunction(&count, box.module[0], "test_count"));
}

static CUresult launch(CUfunction function, unsigned blocks, CUstream stream) {
    struct bl_kernel_args args = test_args(&box, 0);
    void *parameters[] = {&args};
    return cuLaunchKernel(function, blocks, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

/* On a busy machine that may take long. */
static bool ends(CUstream stream) {
    return test_ends_within(stream, 20000);
}

static bool waits(CUstream stream) {
    return !test_ends_within(stream, 200);
}

/* Launches have the room of their partition, no more, and leave the others' alone; functions are the primary context's, and that
 * may be current. */
TEST(green_room, "1", "BEELINE_EMU_SMS=8", 3, ALWAYS) {
    CUdevResource part, rest;
    CUstream stream[3], plain = NULL;
    open_box();
    split(&part, &rest);
    CUgreenCtx green = make(&part), other = make(&rest);
    OK(cuGreenCtxStreamCreate(&stream[0], green, CU_STREAM_NON_BLOCKING, 0));
    OK(cuGreenCtxStreamCreate(&stream[1], green, CU_STREAM_NON_BLOCKING, 0));
    OK(cuGreenCtxStreamCreate(&stream[2], other, CU_STREAM_NON_BLOCKING, 0));
    OK(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
    OK(launch(gate, 2 * PART, stream[0]));
    CHECK(waits(stream[0]));
    OK(launch(count, 1, stream[1]));
    CHECK(waits(stream[1])); /* its own is full */
    OK(launch(count, 1, stream[2]));
    CHECK(ends(stream[2]));
    /* What may go anywhere queues behind what waits somewhere. */
    OK(launch(count, 1, plain));
    CHECK(waits(plain));
    OK(cuStreamWriteValue64(box.stream[0], box.staging[0], 1, 0));
    CHECK(ends(stream[0]) && ends(stream[1]) && ends(plain));
    for (int i = 0; i < 3; i++) OK(cuStreamDestroy(stream[i]));
    OK(cuStreamDestroy(plain));
    OK(cuGreenCtxDestroy(green));
    OK(cuGreenCtxDestroy(other));
    test_box_close(&box);
}

/* Which contexts the calls tell, and which may be current. */
TEST(green_current, "1", "BEELINE_EMU_SMS=8", 1, ALWAYS) {
    CUdevResource part, rest, back;
    CUgreenCtx found = NULL;
    CUcontext context = NULL, current = NULL;
    CUstream stream, made;
    CUevent event;
    open_box();
    split(&part, &rest);
    CUgreenCtx green = make(&part);
    EXPECT(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_DEFAULT, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    OK(cuCtxFromGreenCtx(&context, green));
    CHECK(context != box.context[0]);
    OK(cuGreenCtxGetDevResource(green, &back, CU_DEV_RESOURCE_TYPE_SM));
    CHECK(back.sm.smCount == PART);
    OK(cuStreamGetCtx(stream, &current));
    CHECK(current == context);
    OK(cuStreamGetCtx_v2(stream, &current, &found));
    CHECK(current == box.context[0] && found == green);
    OK(cuStreamGetGreenCtx(box.stream[0], &found));
    CHECK(!found);
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(launch(count, 1, stream));
    OK(cuEventRecord(event, stream));
    OK(cuStreamWaitEvent(box.stream[0], event, 0));
    OK(cuCtxPushCurrent(context));
    OK(cuCtxGetCurrent(&current));
    CHECK(current == context);
    OK(cuStreamGetGreenCtx(NULL, &found));
    CHECK(found == green);
    OK(launch(count, 1, stream));
    OK(launch(count, 1, box.stream[0]));
    OK(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    OK(cuStreamGetGreenCtx(made, &found));
    CHECK(found == green);
    OK(cuCtxSynchronize());
    OK(cuStreamDestroy(made));
    OK(cuCtxPopCurrent(&current));
    CHECK(current == context);
    OK(cuEventDestroy(event));
    OK(cuGreenCtxDestroy(green));
    EXPECT(launch(count, 1, stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT(cuStreamDestroy(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    test_box_close(&box);
}
