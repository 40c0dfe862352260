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

static int call_all(const struct bl_call *calls, int count, const struct bl_way *way, uint64_t deadline) {
    if (way->range->algorithm == BL_ROUTE_NCCL) return bl_baseline_call(calls, way->baseline, count, deadline);
    for (int i = 0; i < count; i++) {
        if (!bl_context_push(calls[i].comm)) return bl_fail("its context cannot be made current");
        const ncclResult_t result = bl_launch_bare(&calls[i]);
        bl_context_pop();
        if (result != ncclSuccess) return bl_fail("a kernel could not be launched");
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

int bl_measure(struct bl_gauge *gauges, int count, enum bl_collective collective, const struct bl_way *way,
               uint64_t bytes, unsigned calls, uint64_t deadline, double *us) {
    struct bl_call call[BL_MAX_RANKS];
    for (int i = 0; i < count; i++) call[i] = call_of(&gauges[i], collective, way, bytes);
    if (call_all(call, count, way, deadline)) return -1;
    for (int i = 0; i < count; i++)
        if (record(gauges[i].begin, &gauges[i])) return -1;
    for (unsigned n = 0; n < calls; n++)
        if (call_all(call, count, way, deadline)) return -1;
    for (int i = 0; i < count; i++)
        if (record(gauges[i].end, &gauges[i])) return -1;
    for (int i = 0; i < count; i++) {
        float ms = 0;
        if (!bl_context_push(gauges[i].comm)) return bl_fail("its context cannot be made current");
        const int status = wait_for(&gauges[i], deadline, &ms);
        bl_context_pop();
        if (status) return status;
        us[i] = (double)ms * 1000 / calls;
    }
    return 0;
}
