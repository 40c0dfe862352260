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

/* So many calls, as a graph: launched one by one the small ones would all take as long as a launch. */
static int capture(const struct bl_call *call, unsigned calls, CUgraphExec *exec) {
    const struct bl_driver *cu = bl_driver();
    ncclResult_t result = ncclSuccess;
    CUgraph graph = NULL;
    BL_DRIVER_CHECK(cu->cuStreamBeginCapture(call->stream, CU_STREAM_CAPTURE_MODE_RELAXED),
                    "capturing calls (cuStreamBeginCapture)");
    for (unsigned n = 0; n < calls && result == ncclSuccess; n++) result = bl_launch_bare(call);
    CUresult status = cu->cuStreamEndCapture(call->stream, &graph);
    if (status == CUDA_SUCCESS && result == ncclSuccess) status = cu->cuGraphInstantiateWithFlags(exec, graph, 0);
    if (graph) cu->cuGraphDestroy(graph);
    BL_DRIVER_CHECK(status, "capturing calls");
    return result == ncclSuccess ? 0 : bl_fail("a kernel could not be launched");
}

/* Calls of NCCL's take longer than their launches do. */
static int call_all(const struct bl_call *call, const CUgraphExec *exec, int count, const struct bl_way *way,
                    unsigned calls, uint64_t deadline) {
    const bool of_nccl = way->range->algorithm == BL_ROUTE_NCCL;
    int status = 0;
    for (unsigned n = 0; of_nccl && n < calls && !status; n++)
        status = bl_baseline_call(call, way->baseline, count, deadline);
    for (int i = 0; !of_nccl && i < count && !status; i++) {
        if (!bl_context_push(call[i].comm)) return bl_fail("its context cannot be made current");
        const CUresult result = bl_driver()->cuGraphLaunch(exec[i], call[i].stream);
        bl_context_pop();
        if (result != CUDA_SUCCESS) status = bl_driver_fail(result, "launching calls (cuGraphLaunch)");
    }
    return status;
}

static int record(CUevent event, const struct bl_gauge *gauge) {
    if (!bl_context_push(gauge->comm)) return bl_fail("its context cannot be made current");
    const CUresult status = bl_driver()->cuEventRecord(event, gauge->stream);
    bl_context_pop();
    BL_DRIVER_CHECK(status, "recording an event (cuEventRecord)");
    return 0;
}

static int wait_for(const struct bl_gauge *gauge, uint64_t deadline, float *ms) {
    CUresult status;
    while ((status = bl_driver()->cuEventQuery(gauge->end)) == CUDA_ERROR_NOT_READY) {
        if (atomic_load(gauge->cancel)) return bl_fail("it is being destroyed");
        if (bl_clock_ns() > deadline) return bl_fail("a call does not end"), BL_MEASURE_LATE;
        bl_nap(20000);
    }
    BL_DRIVER_CHECK(status, "waiting for a call");
    status = bl_driver()->cuEventElapsedTime(ms, gauge->begin, gauge->end);
    if (status == CUDA_SUCCESS) return 0;
    return bl_driver_fail(status, "the time between events (cuEventElapsedTime)"), BL_MEASURE_UNTIMED;
}

/* Once so that the ranks begin together, and then timed. */
static int call_timed(struct bl_gauge *gauges, const struct bl_call *call, const CUgraphExec *exec, int count,
                      const struct bl_way *way, unsigned calls, uint64_t deadline) {
    if (call_all(call, exec, count, way, calls, deadline)) return -1;
    for (int i = 0; i < count; i++)
        if (record(gauges[i].begin, &gauges[i])) return -1;
    if (call_all(call, exec, count, way, calls, deadline)) return -1;
    for (int i = 0; i < count; i++)
        if (record(gauges[i].end, &gauges[i])) return -1;
    return 0;
}

int bl_measure(struct bl_gauge *gauges, int count, enum bl_collective collective, const struct bl_way *way,
               uint64_t bytes, unsigned calls, uint64_t deadline, double *us) {
    struct bl_call call[BL_MAX_RANKS] = {0};
    CUgraphExec exec[BL_MAX_RANKS] = {0};
    int status = 0;
    for (int i = 0; i < count; i++) call[i] = call_of(&gauges[i], collective, way, bytes);
    for (int i = 0; i < count && !status && way->range->algorithm != BL_ROUTE_NCCL; i++) {
        if (!bl_context_push(gauges[i].comm)) return bl_fail("its context cannot be made current");
        status = capture(&call[i], calls, &exec[i]);
        bl_context_pop();
    }
    if (!status) status = call_timed(gauges, call, exec, count, way, calls, deadline);
    for (int i = 0; i < count && !status; i++) {
        float ms = 0;
        if (!bl_context_push(gauges[i].comm)) return bl_fail("its context cannot be made current");
        status = wait_for(&gauges[i], deadline, &ms);
        bl_context_pop();
        us[i] = (double)ms * 1000 / calls;
    }
    for (int i = 0; i < count; i++)
        if (exec[i]) bl_driver()->cuGraphExecDestroy(exec[i]);
    return status;
}
