/* streams.c - streams, events and contexts. */
#include "cudatest.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

struct log {
    _Atomic int next;
    int order[64];
};
struct note {
    struct log *log;
    int value, delay_us;
    const _Atomic bool *may; /* and waits for that, if there is one */
};

static void write_note(void *argument) {
    struct note *note = argument;
    usleep((useconds_t)note->delay_us);
    while (note->may && !*note->may) usleep(100);
    note->log->order[note->log->next++] = note->value;
}

TEST(streams, "2", NULL, 3, ALWAYS) {
    enum { N = 20 };
    struct log log = {0};
    struct note notes[N];
    struct test_box box;
    test_box_open(&box, 1);
    for (int i = 0; i < N; i++) {
        notes[i] = (struct note){&log, i, i % 3 * 300, NULL};
        OK(cuLaunchHostFunc(box.stream[0], write_note, &notes[i]));
    }
    EXPECT(cuStreamQuery(box.stream[0]), CUDA_ERROR_NOT_READY);
    OK(cuStreamSynchronize(box.stream[0]));
    OK(cuStreamQuery(box.stream[0]));
    for (int i = 0; i < N; i++) CHECK(log.order[i] == i);
    /* What is queued when a stream is destroyed still runs. */
    CUstream other;
    OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(cuLaunchHostFunc(other, write_note, &notes[2]));
    OK(cuStreamDestroy(other));
    OK(cuCtxSynchronize());
    CHECK(log.next == N + 1);
    test_box_close(&box);
}

TEST(legacy_stream, "1", NULL, 1, ALWAYS) {
    struct log log = {0};
    _Atomic bool may = false;
    struct note slow = {&log, 1, 0, &may}, fast = {&log, 2, 0, NULL}, beside = {&log, 3, 0, NULL};
    struct test_box box;
    CUstream blocking, blocking2;
    test_box_open(&box, 1);
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&blocking2, CU_STREAM_DEFAULT));
    OK(cuLaunchHostFunc(blocking, write_note, &slow));
    OK(cuLaunchHostFunc(NULL, write_note, &fast));            /* waits for blocking */
    OK(cuLaunchHostFunc(blocking2, write_note, &slow));       /* waits for the legacy stream */
    OK(cuLaunchHostFunc(box.stream[0], write_note, &beside)); /* waits for nobody */
    OK(cuStreamSynchronize(box.stream[0]));
    may = true;
    OK(cuCtxSynchronize());
    CHECK(log.order[0] == 3 && log.order[1] == 1 && log.order[2] == 2 && log.order[3] == 1);
    OK(cuStreamDestroy(blocking));
    OK(cuStreamDestroy(blocking2));
    test_box_close(&box);
}

/* What a call without "async" has left to the GPU: it comes before all of the default stream and of those that wait for it,
 * and other streams may still find what was there. */
TEST(unsettled, "1", NULL, 3, ALWAYS) {
    enum { TRIES = 100, WAYS = 3, READERS = 3 };
    struct test_box box;
    CUstream blocking;
    int before[WAYS][READERS] = {{0}};
    test_box_open(&box, 1);
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    CUdeviceptr word = box.result[0], source = word + 64;
    for (uint32_t i = 1; i < WAYS * READERS * TRIES; i++) {
        const int way = (int)(i % WAYS), reader = (int)(i / WAYS % READERS);
        uint32_t seen = 0, value = i;
        OK(settled(cuMemsetD32(source, value, 1)));
        OK(way == 0   ? cuMemcpyHtoD(word, &value, sizeof value)
           : way == 1 ? cuMemsetD32(word, value, 1)
                      : cuMemcpyDtoD(word, source, sizeof value));
        value = 0; /* has been read */
        OK(reader == 0   ? cuMemcpyDtoH(&seen, word, sizeof seen)
           : reader == 1 ? cuMemcpyDtoHAsync(&seen, word, sizeof seen, blocking)
                         : cuMemcpyDtoHAsync(&seen, word, sizeof seen, box.stream[0]));
        OK(cuStreamSynchronize(CU_STREAM_LEGACY));
        OK(cuStreamSynchronize(box.stream[0]));
        before[way][reader] += seen != i;
    }
    for (int way = 0; way < WAYS; way++) CHECK(before[way][0] == 0 && before[way][1] == 0 && before[way][2] > 0);
    OK(cuStreamDestroy(blocking));
    test_box_close(&box);
}

TEST(events, "2", NULL, 3, ALWAYS) {
    struct log log = {0};
    _Atomic bool may = false;
    struct note slow = {&log, 1, 20000, &may}, fast = {&log, 2, 0, NULL};
    struct test_box box;
    CUevent first, last;
    float ms = -1;
    test_box_open(&box, 2);
    OK(cuCtxSetCurrent(box.context[0]));
    OK(cuEventCreate(&first, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&last, CU_EVENT_DEFAULT));
    OK(cuEventQuery(last)); /* never recorded: done */
    OK(cuEventRecord(first, box.stream[0]));
    OK(cuLaunchHostFunc(box.stream[0], write_note, &slow));
    OK(cuEventRecord(last, box.stream[0]));
    EXPECT(cuEventQuery(last), CUDA_ERROR_NOT_READY);
    EXPECT(cuEventRecord(last, box.stream[1]), CUDA_ERROR_INVALID_HANDLE); /* another context's */
    may = true;
    OK(cuStreamWaitEvent(box.stream[1], last, 0)); /* waiting across contexts is fine */
    OK(cuLaunchHostFunc(box.stream[1], write_note, &fast));
    OK(cuStreamSynchronize(box.stream[1]));
    CHECK(log.order[0] == 1 && log.order[1] == 2);
    OK(cuEventSynchronize(last));
    OK(cuEventElapsedTime(&ms, first, last));
    CHECK(ms >= 20 && ms < 20000);
    OK(cuEventDestroy(first));
    OK(cuEventDestroy(last));
    test_box_close(&box);
}

/* A wait is for the record that was the last when it was asked for, whatever becomes of the event. */
TEST(event_again, "1", NULL, 3, ALWAYS) {
    struct log log = {0};
    _Atomic bool may = false;
    struct note slow = {&log, 1, 0, &may}, fast = {&log, 2, 0, NULL};
    struct test_box box;
    CUstream slow_stream, fast_stream;
    CUevent event;
    test_box_open(&box, 1);
    OK(cuStreamCreate(&slow_stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&fast_stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuLaunchHostFunc(slow_stream, write_note, &slow));
    OK(cuEventRecord(event, slow_stream));
    OK(cuStreamWaitEvent(box.stream[0], event, 0));
    OK(cuEventRecord(event, fast_stream));
    OK(cuEventSynchronize(event));
    CHECK(log.next == 0);
    may = true;
    OK(cuLaunchHostFunc(box.stream[0], write_note, &fast));
    OK(cuStreamSynchronize(box.stream[0]));
    CHECK(log.next == 2 && log.order[0] == 1 && log.order[1] == 2);
    OK(cuEventQuery(event));
    OK(cuEventRecord(event, slow_stream));
    OK(cuEventSynchronize(event));
    OK(cuEventDestroy(event));
    OK(cuStreamDestroy(slow_stream));
    OK(cuStreamDestroy(fast_stream));
    test_box_close(&box);
}

TEST(contexts, "2", NULL, 1, ALWAYS) {
    struct test_box box;
    CUcontext current = NULL, mine = NULL;
    CUdeviceptr p;
    CUdevice device = -1;
    test_box_open(&box, 2);
    struct bl_kernel_args args = test_args(&box, 0);
    args.count = 0;
    void *parameters[] = {&args};
    CUfunction function;
    OK(cuModuleGetFunction(&function, box.module[0], "test_copy"));
    OK(cuCtxSetCurrent(box.context[1]));
    /* The stream's context is not the current one. */
    EXPECT(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, box.stream[0], parameters, NULL), CUDA_ERROR_INVALID_HANDLE);
    OK(cuCtxPushCurrent(box.context[0]));
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, box.stream[0], parameters, NULL));
    EXPECT(cuLaunchKernel(function, 1, 1, 1, 65, 1, 1, 0, box.stream[0], parameters, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, box.stream[0], parameters, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, box.stream[0], NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxPopCurrent(&current));
    CHECK(current == box.context[0]);
    OK(cuCtxGetDevice(&device));
    CHECK(device == 1);
    OK(cuStreamGetCtx(box.stream[0], &current));
    CHECK(current == box.context[0]);
    OK(cuCtxCreate(&mine, NULL, 0, 0));
    OK(cuCtxGetCurrent(&current));
    CHECK(current == mine);
    OK(cuMemAlloc(&p, 100));
    OK(cuCtxDestroy(mine));
    EXPECT(cuCtxSetCurrent((CUcontext)&box), CUDA_ERROR_INVALID_CONTEXT);
    while (cuCtxPopCurrent(NULL) == CUDA_SUCCESS) {
    }
    EXPECT(cuMemAlloc(&p, 100), CUDA_ERROR_INVALID_CONTEXT);
    test_box_close(&box);
    EXPECT(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}
