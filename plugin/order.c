#include "order.h"

#include <stdio.h>

#include "log.h"
#include "params.h"

static _Thread_local CUresult failure; /* of the last of this thread's calls here that failed */

CUresult bl_order_failure(void) {
    return failure;
}

#define CHECK_RETURN(expression)                                                                                       \
    do {                                                                                                               \
        CUresult status_ = (expression);                                                                               \
        if (status_ != CUDA_SUCCESS) {                                                                                 \
            failure = status_;                                                                                         \
            bl_warn("ordering calls over streams: %s: %s", #expression, bl_driver_strerror(status_));                  \
            return ncclUnhandledCudaError;                                                                             \
        }                                                                                                              \
    } while (0)

int bl_order_open(struct bl_comm *comm, char *why, size_t size) {
    const struct bl_driver *cu = bl_driver();
    CUresult status = cu->cuEventCreate(&comm->order.event, CU_EVENT_DISABLE_TIMING);
    if (status == CUDA_SUCCESS) status = cu->cuEventCreate(&comm->order.fork, CU_EVENT_DISABLE_TIMING);
    if (status == CUDA_SUCCESS) return 0;
    snprintf(why, size, "events that keep its calls in order (cuEventCreate): %s", bl_driver_strerror(status));
    return -1;
}

void bl_order_close(struct bl_comm *comm) {
    if (comm->order.event) bl_driver()->cuEventDestroy(comm->order.event);
    if (comm->order.fork) bl_driver()->cuEventDestroy(comm->order.fork);
    comm->order = (struct bl_order){0};
}

void bl_order_ask(CUstream stream, struct bl_order_turn *turn) {
    const struct bl_driver *cu = bl_driver();
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    failure = CUDA_SUCCESS;
    cuuint64_t capture = 0;
    unsigned long long id = 0;
    /* The legacy stream cannot be asked while others capture, nor captured: an error means that it does not capture. */
    if (cu->cuStreamGetCaptureInfo(stream, &status, &capture, NULL, NULL, NULL, NULL) != CUDA_SUCCESS)
        status = CU_STREAM_CAPTURE_STATUS_NONE;
    const bool capturing = status != CU_STREAM_CAPTURE_STATUS_NONE;
    /* To ask a stream that captures for its id invalidates the capture (seen with driver 580). */
    if (capturing || !cu->cuStreamGetId || cu->cuStreamGetId(stream, &id) != CUDA_SUCCESS) id = 0;
    *turn = (struct bl_order_turn){capturing, capture, id};
}

/* Behind the last call without a word: the stream is in order by itself. */
static bool is_last_stream(const struct bl_order *order, const struct bl_order_turn *turn) {
    return turn->stream && turn->stream == order->last_stream;
}

/* Whether what is captured next on the stream depends on the last call's nodes already: another edge would keep it from starting
 * early. */
static bool follows_last(const struct bl_order *order, CUstream stream) {
    CUstreamCaptureStatus status;
    cuuint64_t id;
    CUgraph graph;
    const CUgraphNode *nodes = NULL;
    const CUgraphEdgeData *edges = NULL;
    size_t count = 0;
    int found = 0;
    if (bl_driver()->cuStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, &edges, &count) != CUDA_SUCCESS)
        return false;
    for (int i = 0; i < order->lasts; i++)
        for (size_t k = 0; k < count; k++) found += nodes[k] == order->last[i];
    return found == order->lasts;
}

bool bl_order_captured_by(const struct bl_comm *comm, const struct bl_order_turn *turn) {
    return turn->capturing && comm->order.last_captured && comm->order.capture == turn->capture;
}

ncclResult_t bl_order_follow(struct bl_comm *comm, CUstream stream) {
    struct bl_order *order = &comm->order;
    if (!follows_last(order, stream))
        CHECK_RETURN(bl_driver()->cuStreamUpdateCaptureDependencies(stream, order->last, NULL, (size_t)order->lasts,
                                                                    CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
    return ncclSuccess;
}

static ncclResult_t before_captured(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn) {
    if (bl_order_captured_by(comm, turn)) return bl_order_follow(comm, stream);
    if (bl_params()->graph_mixing)
        CHECK_RETURN(bl_driver()->cuStreamWaitEvent(stream, comm->order.event, CU_EVENT_WAIT_EXTERNAL));
    return ncclSuccess;
}

static ncclResult_t before_eager(const struct bl_order *order, CUstream stream, const struct bl_order_turn *turn) {
    const bool replays = order->captured_ever && bl_params()->graph_mixing;
    if (replays || (order->used && !is_last_stream(order, turn)))
        CHECK_RETURN(bl_driver()->cuStreamWaitEvent(stream, order->event, CU_EVENT_WAIT_DEFAULT));
    return ncclSuccess;
}

ncclResult_t bl_order_before(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn) {
    return turn->capturing ? before_captured(comm, stream, turn) : before_eager(&comm->order, stream, turn);
}

/* Notes the nodes that the call ends with, which the next one in this graph depends on. */
static ncclResult_t note_nodes(struct bl_order *order, CUstream stream, CUgraph *graph) {
    CUstreamCaptureStatus status;
    cuuint64_t id;
    const CUgraphNode *nodes;
    const CUgraphEdgeData *edges; /* asked for because edges with data may not be left out */
    size_t count;
    CHECK_RETURN(bl_driver()->cuStreamGetCaptureInfo(stream, &status, &id, graph, &nodes, &edges, &count));
    if (count > BL_ORDER_NODES) { /* only what the caller joined by hand could be that wide */
        bl_warn("a call captured on a stream with %zu ends: replays of its graph are not ordered against other calls",
                count);
        count = BL_ORDER_NODES;
    }
    for (size_t i = 0; i < count; i++) order->last[i] = nodes[i];
    order->lasts = (int)count;
    return ncclSuccess;
}

/* One record of the event hangs behind the last call of each capture, and moves on with it: removing nodes from a graph
 * under capture is not allowed, moving edges is. */
static ncclResult_t after_captured(struct bl_order *order, CUstream stream, const struct bl_order_turn *turn) {
    const struct bl_driver *cu = bl_driver();
    const bool goes_on = order->last_captured && order->capture == turn->capture;
    CUgraphNode before[BL_ORDER_NODES];
    const int befores = goes_on ? order->lasts : 0;
    CUgraph graph;
    for (int i = 0; i < befores; i++) before[i] = order->last[i];
    if (!goes_on) order->record_node = NULL;
    ncclResult_t result = note_nodes(order, stream, &graph);
    if (result != ncclSuccess || !bl_params()->graph_mixing) return result;
    if (!order->record_node) {
        CHECK_RETURN(
            cu->cuGraphAddEventRecordNode(&order->record_node, graph, order->last, (size_t)order->lasts, order->event));
        return ncclSuccess;
    }
    for (int i = 0; i < befores; i++)
        CHECK_RETURN(cu->cuGraphRemoveDependencies(graph, &before[i], &order->record_node, NULL, 1));
    for (int i = 0; i < order->lasts; i++)
        CHECK_RETURN(cu->cuGraphAddDependencies(graph, &order->last[i], &order->record_node, NULL, 1));
    return ncclSuccess;
}

ncclResult_t bl_order_after(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn) {
    struct bl_order *order = &comm->order;
    ncclResult_t result = ncclSuccess;
    if (turn->capturing) {
        result = after_captured(order, stream, turn);
        order->capture = turn->capture;
        order->captured_ever = true;
    } else {
        CHECK_RETURN(bl_driver()->cuEventRecord(order->event, stream));
    }
    order->used = true;
    order->last_captured = turn->capturing;
    order->last_stream = turn->stream;
    return result;
}

/* An event may be recorded again once all have been told to wait for it. */
ncclResult_t bl_order_join(struct bl_comm *comm, const CUstream *streams, int count) {
    const struct bl_driver *cu = bl_driver();
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
