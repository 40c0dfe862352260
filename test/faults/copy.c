/* copy.c - plugin/launch/copy.c with planted faults: BEELINE_TEST_COPY_FAULT names parts of the hand-over between copy engines,
 * which are then left out of every batch of memory operations, or edges that are left out of graphs.  See copy_faults. */
#include <stdlib.h>
#include <string.h>

#include "cuda/driver.h"

static const struct bl_driver *faulty_driver(void);

#define bl_driver() faulty_driver()
#include "../../plugin/launch/copy.c"
#undef bl_driver

/* Whether operation i is on a word that the batch waits for before it. */
static bool is_marked(const CUstreamBatchMemOpParams *ops, unsigned i) {
    for (unsigned k = 0; k < i; k++)
        if (ops[k].operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 && ops[k].waitValue.address == ops[i].writeValue.address)
            return true;
    return false;
}

static const char *part_of(const CUstreamBatchMemOpParams *ops, unsigned i) {
    if (ops[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_32) return ops[i].waitValue.value ? "wait-ready" : "wait-empty";
    if (!is_marked(ops, i)) return ops[i].writeValue.value ? "tell-ready" : "end";
    return ops[i].writeValue.value ? "mark-busy" : "unmark-ready";
}

static bool left_out(const char *part) {
    const char *fault = getenv("BEELINE_TEST_COPY_FAULT");
    return fault && strstr(fault, part);
}

static CUresult batch(CUstream stream, unsigned count, CUstreamBatchMemOpParams *ops, unsigned flags) {
    CUstreamBatchMemOpParams left[2 * BL_MAX_RANKS + 1];
    unsigned kept = 0;
    for (unsigned i = 0; i < count; i++)
        if (!left_out(part_of(ops, i))) left[kept++] = ops[i];
    return kept ? bl_driver()->cuStreamBatchMemOp(stream, kept, left, flags) : CUDA_SUCCESS;
}

/* Edges between the branches of a captured call, but for those that fork and join them: "edge-sent" go to the drain stream's,
 * "edge-emptied" come from further back than the last record. */
static _Thread_local CUevent last_record;
static _Thread_local CUstream drain_stream;

static CUresult record(CUevent event, CUstream stream) {
    last_record = event;
    return bl_driver()->cuEventRecord(event, stream);
}

static CUresult wait_event(CUstream stream, CUevent event, unsigned flags) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id;
    bl_driver()->cuStreamGetCaptureInfo(stream, &status, &id, NULL, NULL, NULL, NULL);
    const bool captured = status != CU_STREAM_CAPTURE_STATUS_NONE;
    if (captured && event != last_record && left_out("edge-emptied")) return CUDA_SUCCESS;
    if (captured && stream == drain_stream && left_out("edge-sent")) return CUDA_SUCCESS;
    if (!captured) drain_stream = stream; /* forks */
    return bl_driver()->cuStreamWaitEvent(stream, event, flags);
}

static const struct bl_driver *faulty_driver(void) {
    static _Thread_local struct bl_driver faulty;
    if (!bl_driver()) return NULL;
    faulty = *bl_driver();
    if (faulty.cuStreamBatchMemOp) faulty.cuStreamBatchMemOp = batch;
    faulty.cuEventRecord = record;
    faulty.cuStreamWaitEvent = wait_event;
    return &faulty;
}
