/* handles.c - handles that are none, that come back as another's, and that have been destroyed. */
#include "team.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../emulated.h"

TEST(handles, "2", NULL, 1, ALWAYS) {
    struct test_box box;
    CUfunction function;
    int garbage[64] = {0};
    test_box_open(&box, 1);
    EXPECT(cuStreamDestroy(NULL), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(cuStreamDestroy(CU_STREAM_LEGACY), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(cuStreamDestroy(CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(cuStreamQuery((CUstream)garbage), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(cuEventSynchronize((CUevent)garbage), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(cuModuleGetFunction(&function, box.module[0], "no_such_kernel"), CUDA_ERROR_NOT_FOUND);
    EXPECT(cuModuleGetFunction(&function, (CUmodule)garbage, "test_copy"), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(cuGraphDestroy((CUgraph)garbage), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuGraphLaunch((CUgraphExec)garbage, box.stream[0]), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemFree(box.result[0] + 8), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemcpyHtoD(box.result[0] + TEST_RESULT - 4, garbage, 8), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemcpyHtoD((CUdeviceptr)(uintptr_t)garbage, garbage, 8), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemRelease((CUmemGenericAllocationHandle)(uintptr_t)garbage), CUDA_ERROR_INVALID_VALUE);
    test_box_close(&box);
}

static void count_late(void *counter) {
    usleep(20000);
    ++*(_Atomic int *)counter;
}

/* The next stream has the handle of the last one destroyed, at once, and is another: what that one had to do still comes to an
 * end, beside it. */
TEST(handles_again, "1", NULL, 3, ALWAYS) {
    static _Atomic int done;
    unsigned long long id[2] = {0, 0};
    struct test_box box;
    CUstream stream[3];
    CUevent event[3];
    test_box_open(&box, 1);
    OK(cuStreamCreate(&stream[0], CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&stream[1], CU_STREAM_NON_BLOCKING));
    CHECK(stream[0] != stream[1]);
    OK(cuStreamGetId(stream[0], &id[0]));
    OK(cuEventCreate(&event[0], CU_EVENT_DISABLE_TIMING));
    OK(cuLaunchHostFunc(stream[0], count_late, &done));
    OK(cuEventRecord(event[0], stream[0]));
    OK(cuStreamWaitEvent(box.stream[0], event[0], 0));
    OK(cuEventDestroy(event[0]));
    OK(cuStreamDestroy(stream[0]));
    OK(cuStreamCreate(&stream[2], CU_STREAM_NON_BLOCKING));
    CHECK(stream[2] == stream[0]);
    OK(cuStreamGetId(stream[2], &id[1]));
    CHECK(id[0] != id[1]);
    OK(cuStreamQuery(stream[2]));
    CHECK(done == 0);
    OK(cuEventCreate(&event[1], CU_EVENT_DISABLE_TIMING));
    CHECK(event[1] == event[0]);
    OK(cuEventQuery(event[1])); /* never recorded */
    OK(cuEventCreate(&event[2], CU_EVENT_DISABLE_TIMING));
    CHECK(event[2] != event[0]);
    OK(cuStreamSynchronize(box.stream[0])); /* it waits for the event's first life */
    CHECK(done == 1);
    OK(cuEventDestroy(event[1]));
    OK(cuEventDestroy(event[2]));
    OK(cuStreamDestroy(stream[1]));
    OK(cuStreamDestroy(stream[2]));
    test_box_close(&box);
}

/* --- each of these names something that has been destroyed, in its last call --- */
static struct test_box box;
static CUstream gone_stream(void) {
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamDestroy(stream));
    return stream;
}
static CUevent gone_event(void) {
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventDestroy(event));
    return event;
}
static CUgraphExec captured_copy(void) {
    struct bl_kernel_args args = test_args(&box, 0);
    args.count = 0;
    OK(cuStreamBeginCapture(box.stream[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(test_launch(&box, 0, "test_copy", 1, 1, &args));
    return test_end_capture(box.stream[0]);
}
static void ask_stream(void) {
    CUstreamCaptureStatus status;
    cuStreamIsCapturing(gone_stream(), &status);
}
static void use_stream(void) {
    cuMemsetD8Async(box.result[0], 0, 8, gone_stream());
}
static void end_stream(void) {
    cuStreamDestroy(gone_stream());
}
static void use_stream_of_context(void) {
    CUcontext context;
    CUstream stream;
    OK(cuCtxCreate(&context, NULL, 0, 0));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuCtxDestroy(context));
    OK(cuCtxSetCurrent(box.context[0]));
    cuStreamQuery(stream);
}
static void wait_event(void) {
    cuStreamWaitEvent(box.stream[0], gone_event(), 0);
}
static void end_event(void) {
    cuEventDestroy(gone_event());
}
static void record_event(void) {
    cuEventRecord(gone_event(), box.stream[0]);
}
static void get_function(void) {
    CUfunction function;
    OK(cuModuleUnload(box.module[0]));
    cuModuleGetFunction(&function, box.module[0], "test_copy");
}
static void launch_function(void) {
    CUfunction function;
    struct bl_kernel_args args = test_args(&box, 0);
    void *parameters[] = {&args};
    OK(cuModuleGetFunction(&function, box.module[0], "test_copy"));
    OK(cuModuleUnload(box.module[0]));
    cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, box.stream[0], parameters, NULL);
}
static void replay_function(void) {
    CUgraphExec exec = captured_copy();
    OK(cuModuleUnload(box.module[0]));
    cuGraphLaunch(exec, box.stream[0]);
}
static void launch_exec(void) {
    CUgraphExec exec = captured_copy();
    OK(cuGraphExecDestroy(exec));
    cuGraphLaunch(exec, box.stream[0]);
}
static void instantiate_graph(void) {
    CUgraph graph;
    CUgraphExec exec;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphDestroy(graph));
    cuGraphInstantiate(&exec, graph, 0);
}
static void ask_node(void) {
    CUgraph graph;
    CUgraphNode node;
    CUgraphNodeType type;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEmptyNode(&node, graph, NULL, 0));
    OK(cuGraphDestroy(graph));
    cuGraphNodeGetType(node, &type);
}
static void enter_context(void) {
    CUcontext context;
    OK(cuCtxCreate(&context, NULL, 0, 0));
    OK(cuCtxDestroy(context));
    cuCtxSetCurrent(context);
}
static void convert_green(void) {
    CUdevResource all;
    CUdevResourceDesc desc;
    CUgreenCtx green;
    CUcontext context;
    OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevResourceGenerateDesc(&desc, &all, 1));
    OK(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    OK(cuGreenCtxDestroy(green));
    cuCtxFromGreenCtx(&context, green);
}
static void release_memory(void) {
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = test_prop(0);
    OK(cuMemCreate(&handle, TEST_STAGING, &prop, 0));
    CUdeviceptr address = test_map(handle, TEST_STAGING, 1);
    OK(cuMemRelease(handle));
    OK(settled(cuMemsetD8(address, 1, 8))); /* the mapping keeps the memory, not the handle */
    cuMemRelease(handle);
}

/* The process ends in that call, with a line that names it and the kind of the handle. */
static void dies(void (*body)(void), const char *line) {
    char text[512] = "";
    int ends[2], status = 0;
    CHECK(!pipe(ends));
    pid_t child = fork();
    if (child == 0) {
        test_box_open(&box, 1);
        if (test_failures) _exit(1);
        dup2(ends[1], STDERR_FILENO);
        body();
        _exit(1);
    }
    close(ends[1]);
    for (size_t n = 0; n < sizeof text - 1;) {
        const ssize_t got = read(ends[0], text + n, sizeof text - 1 - n);
        if (got <= 0) break;
        n += (size_t)got;
    }
    close(ends[0]);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == EMULATED_GONE);
    CHECK(strstr(text, line) && strchr(text, '\n') == text + strlen(text) - 1);
    if (!strstr(text, line)) fprintf(stderr, "wanted '%s', got '%s'\n", line, text);
}

TEST(handles_gone, "1", NULL, 1, ALWAYS) {
    dies(ask_stream, " cuStreamIsCapturing: stream ");
    dies(use_stream, " cuMemsetD8Async: stream ");
    dies(end_stream, " cuStreamDestroy: stream ");
    dies(use_stream_of_context, " cuStreamQuery: stream ");
    dies(wait_event, " cuStreamWaitEvent: event ");
    dies(end_event, " cuEventDestroy: event ");
    dies(record_event, " cuEventRecord: event ");
    dies(get_function, " cuModuleGetFunction: module ");
    dies(launch_function, " cuLaunchKernel: function ");
    dies(replay_function, " cuGraphLaunch: function ");
    dies(launch_exec, " cuGraphLaunch: graph exec ");
    dies(instantiate_graph, " cuGraphInstantiateWithFlags: graph ");
    dies(ask_node, " cuGraphNodeGetType: graph node ");
    dies(enter_context, " cuCtxSetCurrent: context ");
    dies(convert_green, " cuCtxFromGreenCtx: green context ");
    dies(release_memory, " cuMemRelease: memory handle ");
}
