/* dispatch.c - the room of a GPU: blocks and kernels that hold multiprocessors, in the order in which they came.  The box has
 * four multiprocessors for two blocks each. */
#include "team.h"

#include <stdatomic.h>
#include <unistd.h>

#include "../emulated.h"

enum { SMS = 4, KERNELS = 5 };

/* One GPU, a stream for each kernel, and how many of those that run on the host have begun and may end. */
static struct test_box box;
static CUstream stream[KERNELS];
static _Atomic int begun, open_gates;

static void hold(void *argument) {
    begun++;
    while (!open_gates) usleep(200);
}

static void start(void) {
    test_box_open(&box, 1);
    for (int i = 0; i < KERNELS; i++) OK(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
}

static void launch_on(int i, const char *kernel, unsigned blocks) {
    struct bl_kernel_args args = test_args(&box, 0);
    const CUstream own = box.stream[0];
    box.stream[0] = stream[i];
    OK(test_launch(&box, 0, kernel, blocks, 1, &args));
    box.stream[0] = own;
}

static void set_gate(uint64_t open) {
    OK(cuStreamWriteValue64(box.stream[0], box.staging[0], open, 0));
    OK(cuStreamSynchronize(box.stream[0]));
}

static bool runs_on(int i) {
    return cuStreamQuery(stream[i]) == CUDA_ERROR_NOT_READY;
}

/* What is to come may take long on a busy machine; what is not to come is looked for long enough. */
enum { SURELY_MS = 20000, A_WHILE_MS = 200 };

static bool ends_within(int i, int ms) {
    for (int tries = 0; tries < ms && runs_on(i); tries++) usleep(1000);
    return !runs_on(i);
}

static bool ends(int i) {
    return ends_within(i, SURELY_MS);
}

static bool stays(int i) {
    return !ends_within(i, A_WHILE_MS);
}

/* Until that many have begun; whether they have. */
static bool begin_within(int wanted, int ms) {
    for (int tries = 0; tries < ms && begun < wanted; tries++) usleep(1000);
    return begun >= wanted;
}

static bool begin(int wanted) {
    return begin_within(wanted, SURELY_MS);
}

static bool none_begins(int wanted) {
    return !begin_within(wanted, A_WHILE_MS);
}

static void stop(void) {
    open_gates = 1;
    set_gate(1);
    OK(cuCtxSynchronize());
    for (int i = 0; i < KERNELS; i++) OK(cuStreamDestroy(stream[i]));
    test_box_close(&box);
}

/* A grid that waits on every multiprocessor keeps out a kernel that needs one for itself, though half of all room is free: the
 * blocks are spread. */
TEST(grid_keeps_out, "1", NULL, 3, ALWAYS) {
    start();
    launch_on(0, "test_gate", SMS);
    CHECK(stays(0));
    OK(beelineEmulatedKernel(stream[1], hold, NULL, 1));
    CHECK(none_begins(1));
    set_gate(1);
    OK(cuStreamSynchronize(stream[0]));
    set_gate(0);
    while (!begin(1)) {
    }
    launch_on(2, "test_gate", 2 * SMS - 2); /* all that is left */
    CHECK(stays(2));
    OK(beelineEmulatedKernel(stream[3], hold, NULL, 1));
    CHECK(none_begins(2));
    stop();
}

/* What holds multiprocessors keeps blocks away from them. */
TEST(holder_keeps_out, "1", NULL, 3, ALWAYS) {
    start();
    OK(beelineEmulatedKernel(stream[0], hold, NULL, SMS - 1));
    CHECK(begin(1));
    launch_on(1, "test_gate", 2);
    CHECK(stays(1));
    launch_on(2, "test_count", 1);
    CHECK(stays(2));
    set_gate(1);
    CHECK(ends(1) && ends(2));
    launch_on(1, "test_count", 20); /* two at a time */
    CHECK(ends(1));
    OK(beelineEmulatedKernel(stream[2], hold, NULL, 2));
    CHECK(none_begins(2));
    stop();
    CHECK(begun == 2);
}

/* What comes later goes later, even where there would be room for it. */
TEST(dispatch_order, "1", NULL, 3, ALWAYS) {
    start();
    launch_on(0, "test_gate", 1);
    CHECK(stays(0));
    OK(beelineEmulatedKernel(stream[1], hold, NULL, SMS));
    CHECK(none_begins(1));
    launch_on(2, "test_count", 1);
    launch_on(3, "test_count", 1);
    OK(cuMemsetD8Async(box.result[0], 0, 8, stream[4])); /* needs no room */
    CHECK(ends(4));
    CHECK(stays(2) && runs_on(3));
    set_gate(1);
    CHECK(ends(0) && begin(1));
    CHECK(runs_on(2) && runs_on(3));
    stop();
}

/* Whether the calls that allocate, load and map wait for a kernel that is under way when they are called. */
static CUmodule module;
static CUdeviceptr memory, mapped;
static void *pinned;
static int page[1024];
static void allocate(void) {
    OK(cuMemAlloc(&memory, 8));
}
static void allocate_pinned(void) {
    OK(cuMemHostAlloc(&pinned, 8, 0));
}
static void load(void) {
    OK(cuModuleLoadData(&module, "any image"));
}
static void unload(void) {
    OK(cuModuleUnload(module));
}
static void enlist(void) {
    OK(cuMemHostRegister(page, sizeof page, 0));
}
static void delist(void) {
    OK(cuMemHostUnregister(page));
}
static void unmap(void) {
    test_unmap(mapped, TEST_STAGING);
}
static void map(void) {
    CUmemAllocationProp prop = test_prop(0);
    CUmemGenericAllocationHandle handle;
    OK(cuMemCreate(&handle, TEST_STAGING, &prop, 0));
    mapped = test_map(handle, TEST_STAGING, 1);
    OK(cuMemRelease(handle));
}
static void free_memory(void) {
    OK(cuMemFree(memory));
}
static void free_pinned(void) {
    OK(cuMemFreeHost(pinned));
}

/* 20 ms long; then it has ended. */
static void hold_a_while(void *argument) {
    usleep(20000);
    *(_Atomic bool *)argument = true;
}

static bool waits(void (*call)(void)) {
    static _Atomic bool ended;
    ended = false;
    OK(beelineEmulatedKernel(stream[0], hold_a_while, (void *)&ended, 1));
    call();
    const bool waited = ended;
    OK(cuStreamSynchronize(stream[0]));
    return waited;
}

/* Beside one that ends when the call has returned; if the call waits, nothing ends. */
static void goes_on(void (*call)(void)) {
    open_gates = 0;
    OK(beelineEmulatedKernel(stream[0], hold, NULL, 1));
    call();
    open_gates = 1;
    OK(cuStreamSynchronize(stream[0]));
}

static void (*const calls[])(void) = {allocate, allocate_pinned, load, unload, enlist, delist};
enum { CALLS = 6 };

TEST(sync_always, "1", "BEELINE_EMU_IMPLICIT_SYNC=always", 1, ALWAYS) {
    start();
    for (int i = 0; i < CALLS; i++) CHECK(waits(calls[i]));
    CHECK(waits(free_memory));
    CHECK(waits(free_pinned));
    goes_on(map);
    CHECK(waits(unmap));
    stop();
}
TEST(sync_never, "1", "BEELINE_EMU_IMPLICIT_SYNC=never", 1, ALWAYS) {
    start();
    for (int i = 0; i < CALLS; i++) goes_on(calls[i]);
    CHECK(waits(free_memory));
    CHECK(waits(free_pinned));
    goes_on(map);
    goes_on(unmap);
    stop();
}
/* Some of them, under each seed. */
TEST(sync_drawn, "1", NULL, 3, ALWAYS) {
    int got = 0;
    start();
    for (int i = 0; i < 5; i++) {
        for (int j = 0; j < CALLS; j++) got += waits(calls[j]);
        free_memory();
        free_pinned();
    }
    CHECK(got > 0 && got < 5 * CALLS);
    stop();
}

/* Captured, it is a kernel, and holds as much. */
TEST(holder_captured, "1", NULL, 1, ALWAYS) {
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    CUgraphNodeType type;
    size_t count = 1;
    start();
    OK(cuStreamBeginCapture(stream[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(beelineEmulatedKernel(stream[0], hold, NULL, SMS));
    OK(cuStreamEndCapture(stream[0], &graph));
    OK(cuGraphGetNodes(graph, &node, &count));
    OK(cuGraphNodeGetType(node, &type));
    CHECK(count == 1 && type == CU_GRAPH_NODE_TYPE_KERNEL);
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    OK(cuGraphLaunch(exec, stream[0]));
    CHECK(begin(1));
    launch_on(1, "test_count", 1);
    CHECK(stays(1));
    OK(cuGraphExecDestroy(exec));
    stop();
}
