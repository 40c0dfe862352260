#include "measure.h"

#include "base/clock.h"
#include "base/why.h"
#include "comm/context.h"
#include "launch/launch.h"

int bl_gauge_open(struct bl_gauge *gauge, struct bl_comm *comm, CUstream stream, uint64_t room,
                  const atomic_bool *cancel) {
    *gauge = (struct bl_gauge){.comm = comm, .stream = stream, .room = room, .cancel = cancel};
    BL_DRIVER_CHECK(bl_driver()->cuEventCreate(&gauge->begin, CU_EVENT_DEFAULT), "making an event (cuEventCreate)");
    BL_DRIVER_CHECK(bl_driver()->cuEventCreate(&gauge->end, CU_EVENT_DEFAULT), "making an event (cuEventCreate)");
    return bl_memory_scratch(&gauge->memory, comm->device, 2 * room);
}

void bl_gauge_close(struct bl_gauge *gauge) {
    if (gauge->begin) bl_driver()->cuEventDestroy(gauge->begin);
    if (gauge->end) bl_driver()->cuEventDestroy(gauge->end);
    bl_memory_release(&gauge->memory);
    *gauge = (struct bl_gauge){0};
}

static struct bl_call call_of(const struct bl_gauge *gauge, enum bl_collective collective, const struct bl_way *way,
                              uint64_t bytes) {
    struct bl_call call = {
        .comm = gauge->comm,
        .sendbuff = (const void *)(uintptr_t)gauge->memory.address[0],
        .recvbuff = (void *)(uintptr_t)(gauge->memory.address[0] + gauge->room),
        .request = {collective, bytes / bl_datatype_size(BL_BFLOAT16), BL_BFLOAT16, BL_SUM, 0},
        .stream = gauge->stream,
    };
    if (way->range->algorithm != BL_ROUTE_NCCL)
        bl_range_route(way->table, way->range, bl_range_kernel(way->range), bytes, &call.route);
    return call;
}

static int begin_capture(const struct bl_call *call) {
    if (!bl_context_push(call->comm)) return bl_fail("its context cannot be made current");
    const CUresult status = bl_driver()->cuStreamBeginCapture(call->stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    bl_context_pop();
    BL_DRIVER_CHECK(status, "capturing calls (cuStreamBeginCapture)");
    return 0;
}

/* wanted: what was captured is all there; else it is thrown away. */
static int end_capture(const struct bl_call *call, bool wanted, CUgraphExec *exec) {
    const struct bl_driver *cu = bl_driver();
    CUgraph graph = NULL;
    if (!bl_context_push(call->comm)) return bl_fail("its context cannot be made current");
    CUresult status = cu->cuStreamEndCapture(call->stream, &graph);
    if (status == CUDA_SUCCESS && wanted) status = cu->cuGraphInstantiateWithFlags(exec, graph, 0);
    if (graph) cu->cuGraphDestroy(graph);
    bl_context_pop();
    if (!wanted) return 0;
    BL_DRIVER_CHECK(status, "capturing calls");
    return 0;
}

/* A call of each rank. */
static int call_each(const struct bl_call *call, int count, const struct bl_way *way, uint64_t deadline,
                     const atomic_bool *cancel) {
    if (way->range->algorithm == BL_ROUTE_NCCL) return bl_baseline_call(call, way->baseline, count, deadline, cancel);
    for (int i = 0; i < count; i++) {
        if (!bl_context_push(call[i].comm)) return bl_fail("its context cannot be made current");
        const ncclResult_t result = bl_launch_bare(&call[i]);
        bl_context_pop();
        if (result != ncclSuccess) return bl_fail("a kernel could not be launched");
    }
    return 0;
}

/* So many calls, as a graph of each rank: one by one the small ones would all take as long as a launch, and NCCL's as long as the thread that
 * it starts for each call on a communicator that does not block.  It makes its connections at a first call, which is not captured. */
static int capture(const struct bl_call *call, int count, const struct bl_way *way, unsigned calls, uint64_t deadline,
                   const atomic_bool *cancel, CUgraphExec *exec) {
    int begun = 0, status = 0;
    if (way->range->algorithm == BL_ROUTE_NCCL) status = call_each(call, count, way, deadline, cancel);
    while (begun < count && !status)
        if (!(status = begin_capture(&call[begun]))) begun++;
    for (unsigned n = 0; n < calls && !status; n++) status = call_each(call, count, way, deadline, cancel);
    for (int i = 0; i < begun; i++)
        if (end_capture(&call[i], !status, &exec[i])) status = -1;
    return status;
}

static int launch(const struct bl_call *call, const CUgraphExec *exec, int count) {
    for (int i = 0; i < count; i++) {
        if (!bl_context_push(call[i].comm)) return bl_fail("its context cannot be made current");
        const CUresult status = bl_driver()->cuGraphLaunch(exec[i], call[i].stream);
        bl_context_pop();
        BL_DRIVER_CHECK(status, "launching calls (cuGraphLaunch)");
    }
    return 0;
}

static int record(CUevent event, const struct bl_gauge *gauge) {
    if (!bl_context_push(gauge->comm)) return bl_fail("its context cannot be made current");
    const CUresult status = bl_driver()->cuEventRecord(event, gauge->stream);
    bl_context_pop();
    BL_DRIVER_CHECK(status, "recording an event (cuEventRecord)");
    return 0;
}

static int ask(const struct bl_gauge *gauge, uint64_t deadline, float *ms) {
    CUresult status;
    while ((status = bl_driver()->cuEventQuery(gauge->end)) == CUDA_ERROR_NOT_READY) {
        if (atomic_load(gauge->cancel)) return bl_fail("it is being destroyed");
        if (bl_clock_ns() > deadline) return bl_fail("a call does not end"), BL_MEASURE_LATE;
        bl_nap(20000);
    }
    BL_DRIVER_CHECK(status, "waiting for a call");
    if (__atomic_load_n(&gauge->comm->control->error, __ATOMIC_ACQUIRE))
        return bl_fail("a kernel has waited for too long (BEELINE_TIMEOUT)");
    status = bl_driver()->cuEventElapsedTime(ms, gauge->begin, gauge->end);
    if (status == CUDA_SUCCESS) return 0;
    return bl_driver_fail(status, "the time between events (cuEventElapsedTime)"), BL_MEASURE_UNTIMED;
}

static int wait_for(const struct bl_gauge *gauge, uint64_t deadline, float *ms) {
    if (!bl_context_push(gauge->comm)) return bl_fail("its context cannot be made current");
    const int status = ask(gauge, deadline, ms);
    bl_context_pop();
    return status;
}

/* Once so that the ranks begin together, and then timed. */
static int launch_timed(const struct bl_gauge *gauges, const struct bl_call *call, const CUgraphExec *exec, int count) {
    if (launch(call, exec, count)) return -1;
    for (int i = 0; i < count; i++)
        if (record(gauges[i].begin, &gauges[i])) return -1;
    if (launch(call, exec, count)) return -1;
    for (int i = 0; i < count; i++)
        if (record(gauges[i].end, &gauges[i])) return -1;
    return 0;
}

int bl_measure(const struct bl_gauge *gauges, int count, enum bl_collective collective, const struct bl_way *way,
               uint64_t bytes, unsigned calls, uint64_t deadline, double *us) {
    struct bl_call call[BL_MAX_RANKS] = {0};
    CUgraphExec exec[BL_MAX_RANKS] = {0};
    for (int i = 0; i < count; i++) call[i] = call_of(&gauges[i], collective, way, bytes);
    int status = capture(call, count, way, calls, deadline, gauges[0].cancel, exec);
    if (!status) status = launch_timed(gauges, call, exec, count);
    for (int i = 0; i < count && !status; i++) {
        float ms = 0;
        status = wait_for(&gauges[i], deadline, &ms);
        us[i] = (double)ms * 1000 / calls;
    }
    for (int i = 0; i < count; i++)
        if (exec[i]) bl_driver()->cuGraphExecDestroy(exec[i]);
    return status;
}
