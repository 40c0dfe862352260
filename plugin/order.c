#include "order.h"

#include "log.h"
#include "params.h"

static _Thread_local char this_thread; /* its address tells one thread's CU_STREAM_PER_THREAD from another's */

#define CHECK_RETURN(expression)                                                                                       \
    do {                                                                                                               \
        CUresult status_ = (expression);                                                                               \
        if (status_ != CUDA_SUCCESS) {                                                                                 \
            bl_warn("ordering calls over streams: %s: %s", #expression, bl_driver_strerror(status_));                  \
            return ncclUnhandledCudaError;                                                                             \
        }                                                                                                              \
    } while (0)

static const void *thread_of(CUstream stream) {
    return stream == CU_STREAM_PER_THREAD ? &this_thread : NULL;
}

static bool is_last_stream(const struct bl_order *order, CUstream stream) {
    return stream == order->last_stream && thread_of(stream) == order->last_thread;
}

static CUresult event_create(CUevent *event) {
    return *event ? CUDA_SUCCESS : bl_driver()->cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
}

/* The nodes that the next captured call on `stream` will depend on. */
static CUresult capture_frontier(CUstream stream, CUgraph *graph, const CUgraphNode **nodes, size_t *count) {
    CUstreamCaptureStatus status;
    cuuint64_t id;
    const CUgraphEdgeData *edges; /* asked for because edges with data may not be left out */
    return bl_driver()->cuStreamGetCaptureInfo(stream, &status, &id, graph, nodes, &edges, count);
}

/* Records the event behind the last call, on the stream that it used, if that was not done at the call.  The one place
 * where a stream is named that the caller may have begun to capture, or destroyed, since. */
enum behind { BEHIND_RECORDED, BEHIND_CAPTURED, BEHIND_GONE };

static enum behind record_behind_last(struct bl_order *order) {
    CUstreamCaptureStatus status;
    if (order->recorded) return BEHIND_RECORDED;
    if (bl_driver()->cuStreamIsCapturing(order->last_stream, &status) != CUDA_SUCCESS) return BEHIND_GONE;
    if (status != CU_STREAM_CAPTURE_STATUS_NONE) return BEHIND_CAPTURED;
    return bl_driver()->cuEventRecord(order->event, order->last_stream) == CUDA_SUCCESS ? BEHIND_RECORDED : BEHIND_GONE;
}

static ncclResult_t before_captured(struct bl_order *order, CUstream stream, unsigned long long capture) {
    const struct bl_driver *cu = bl_driver();
    if (order->last_captured && order->capture == capture) {
        if (is_last_stream(order, stream)) return ncclSuccess;
        CHECK_RETURN(event_create(&order->fork));
        CHECK_RETURN(cu->cuEventRecord(order->fork, order->last_stream));
        CHECK_RETURN(cu->cuStreamWaitEvent(stream, order->fork, CU_EVENT_WAIT_DEFAULT));
        return ncclSuccess;
    }
    if (!bl_params()->graph_mixing) return ncclSuccess;
    CHECK_RETURN(event_create(&order->event));
    if (!order->captured_ever && order->used) record_behind_last(order);
    CHECK_RETURN(cu->cuStreamWaitEvent(stream, order->event, CU_EVENT_WAIT_EXTERNAL));
    return ncclSuccess;
}

static ncclResult_t before_eager(struct bl_order *order, CUstream stream) {
    const struct bl_driver *cu = bl_driver();
    if (order->captured_ever && bl_params()->graph_mixing) {
        CHECK_RETURN(cu->cuStreamWaitEvent(stream, order->event, CU_EVENT_WAIT_DEFAULT));
    } else if (order->used && !order->last_captured && !is_last_stream(order, stream)) {
        order->many_streams = true;
        CHECK_RETURN(event_create(&order->event));
        switch (record_behind_last(order)) {
        case BEHIND_RECORDED: CHECK_RETURN(cu->cuStreamWaitEvent(stream, order->event, CU_EVENT_WAIT_DEFAULT)); break;
        case BEHIND_GONE: CHECK_RETURN(cu->cuCtxSynchronize()); break; /* the stream is gone, its work may not be */
        case BEHIND_CAPTURED: break; /* neither may be asked of a stream under capture */
        }
    }
    return ncclSuccess;
}

void bl_order_ask(CUstream stream, struct bl_order_turn *turn) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t capture = 0;
    /* The legacy stream cannot be asked while others capture, nor captured: an error means that it does not capture. */
    if (bl_driver()->cuStreamGetCaptureInfo(stream, &status, &capture, NULL, NULL, NULL, NULL) != CUDA_SUCCESS)
        status = CU_STREAM_CAPTURE_STATUS_NONE;
    turn->capturing = status != CU_STREAM_CAPTURE_STATUS_NONE;
    turn->capture = capture;
}

ncclResult_t bl_order_before(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn) {
    return turn->capturing ? before_captured(&comm->order, stream, turn->capture) : before_eager(&comm->order, stream);
}

/* One record of the event hangs behind the last call of each capture, and moves on with it: removing nodes from a graph
 * under capture is not allowed, moving edges is. */
static ncclResult_t record_at_end(struct bl_order *order, CUstream stream, const struct bl_order_turn *turn) {
    const struct bl_driver *cu = bl_driver();
    CUgraph graph;
    const CUgraphNode *nodes;
    size_t count;
    CHECK_RETURN(capture_frontier(stream, &graph, &nodes, &count));
    if (count != 1) { /* the call is the stream's frontier; of NCCL's calls that is not said anywhere */
        bl_warn("a call captured on a stream with %zu ends: replays of its graph are not ordered against other calls",
                count);
        return ncclSuccess;
    }
    CUgraphNode call = nodes[0];
    if (order->last_captured && order->capture == turn->capture && order->record_node) {
        CHECK_RETURN(cu->cuGraphRemoveDependencies(graph, &order->last_node, &order->record_node, NULL, 1));
        CHECK_RETURN(cu->cuGraphAddDependencies(graph, &call, &order->record_node, NULL, 1));
    } else {
        CHECK_RETURN(cu->cuGraphAddEventRecordNode(&order->record_node, graph, &call, 1, order->event));
    }
    order->last_node = call;
    return ncclSuccess;
}

ncclResult_t bl_order_after(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn, bool launched) {
    struct bl_order *order = &comm->order;
    ncclResult_t result = ncclSuccess;
    if (turn->capturing) {
        if (bl_params()->graph_mixing) result = record_at_end(order, stream, turn);
        order->capture = turn->capture;
        order->captured_ever = true;
    } else {
        if (stream == CU_STREAM_PER_THREAD) order->many_streams = true; /* cannot be named from another thread */
        order->recorded = order->many_streams || (launched && bl_params()->stream_events) ||
                          (order->captured_ever && bl_params()->graph_mixing);
        if (order->recorded) {
            CHECK_RETURN(event_create(&order->event));
            CHECK_RETURN(bl_driver()->cuEventRecord(order->event, stream));
        }
    }
    order->used = true;
    order->last_captured = turn->capturing;
    order->last_stream = stream;
    order->last_thread = thread_of(stream);
    return result;
}

/* An event may be recorded again once all have been told to wait for it. */
ncclResult_t bl_order_join(struct bl_comm *comm, const CUstream *streams, int count) {
    const struct bl_driver *cu = bl_driver();
    if (count > 1) CHECK_RETURN(event_create(&comm->order.fork));
    for (int i = 1; i < count; i++) {
        CHECK_RETURN(cu->cuEventRecord(comm->order.fork, streams[i]));
        CHECK_RETURN(cu->cuStreamWaitEvent(streams[0], comm->order.fork, CU_EVENT_WAIT_DEFAULT));
    }
    return ncclSuccess;
}

ncclResult_t bl_order_fork(struct bl_comm *comm, const CUstream *streams, int count) {
    const struct bl_driver *cu = bl_driver();
    if (count > 1) CHECK_RETURN(cu->cuEventRecord(comm->order.fork, streams[0]));
    for (int i = 1; i < count; i++)
        CHECK_RETURN(cu->cuStreamWaitEvent(streams[i], comm->order.fork, CU_EVENT_WAIT_DEFAULT));
    return ncclSuccess;
}

void bl_order_release(struct bl_comm *comm) {
    if (comm->order.event) bl_driver()->cuEventDestroy(comm->order.event);
    if (comm->order.fork) bl_driver()->cuEventDestroy(comm->order.fork);
    comm->order = (struct bl_order){0};
}
