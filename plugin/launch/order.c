#include "order.h"

#include <pthread.h>

#include "base/log.h"
#include "base/why.h"

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

int bl_order_open(struct bl_comm *comm) {
    const struct bl_driver *cu = bl_driver();
    CUresult status = cu->cuEventCreate(&comm->order.event, CU_EVENT_DISABLE_TIMING);
    if (status == CUDA_SUCCESS) status = cu->cuEventCreate(&comm->order.fork, CU_EVENT_DISABLE_TIMING);
    if (status == CUDA_SUCCESS) return 0;
    return bl_fail("events that keep its calls in order (cuEventCreate): %s", bl_driver_strerror(status));
}

void bl_order_close(struct bl_comm *comm) {
    if (comm->order.event) bl_driver()->cuEventDestroy(comm->order.event);
    if (comm->order.fork) bl_driver()->cuEventDestroy(comm->order.fork);
    if (comm->beside.eager) bl_driver()->cuStreamDestroy(comm->beside.eager);
    if (comm->beside.captured) bl_driver()->cuStreamDestroy(comm->beside.captured);
    comm->order = (struct bl_order){0};
    comm->beside.eager = comm->beside.captured = NULL;
}

void bl_order_ask(CUstream stream, struct bl_order_turn *turn) {
    const struct bl_driver *cu = bl_driver();
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t capture = 0;
    unsigned long long id = 0;
    failure = CUDA_SUCCESS;
    /* The legacy stream cannot be asked while others capture, nor captured: an error means that it does not capture. */
    if (cu->cuStreamGetCaptureInfo(stream, &status, &capture, NULL, NULL, NULL, NULL) != CUDA_SUCCESS)
        status = CU_STREAM_CAPTURE_STATUS_NONE;
    const bool capturing = status != CU_STREAM_CAPTURE_STATUS_NONE;
    /* To ask a stream that captures for its id invalidates the capture (seen with driver 580). */
    if (capturing || !cu->cuStreamGetId || cu->cuStreamGetId(stream, &id) != CUDA_SUCCESS) id = 0;
    *turn = (struct bl_order_turn){capturing, capture, id};
}

bool bl_order_refuses(CUstream stream) {
    CUstreamCaptureStatus status;
    cuuint64_t capture;
    if (stream && stream != CU_STREAM_LEGACY) return false;
    return bl_driver()->cuStreamGetCaptureInfo(stream, &status, &capture, NULL, NULL, NULL, NULL) ==
           CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

ncclResult_t bl_order_check(const struct bl_comm *comm, const CUstream *streams, int count) {
    struct bl_order_turn first, other;
    bool alike = true;
    if (count == 1) return ncclSuccess;
    bl_order_ask(streams[0], &first);
    for (int i = 1; i < count && alike; i++) {
        bl_order_ask(streams[i], &other);
        alike = other.capturing == first.capturing && (!first.capturing || other.capture == first.capture);
    }
    if (alike) return ncclSuccess;
    bl_warn("communicator %016llx rank %d: the streams of a group are to be captured by one graph, all or none",
            (unsigned long long)comm->id, comm->rank);
    return ncclInvalidUsage;
}

/* Behind the last call without a word: the stream is in order by itself. */
static bool is_last_stream(const struct bl_order *order, const struct bl_order_turn *turn) {
    return turn->stream && turn->stream == order->last_stream;
}

ncclResult_t bl_order_wait(CUstream stream, const CUevent *events, int count, const struct bl_order_turn *turn) {
    const unsigned flags = turn->capturing ? CU_EVENT_WAIT_EXTERNAL : CU_EVENT_WAIT_DEFAULT;
    for (int i = 0; i < count; i++) CHECK_RETURN(bl_driver()->cuStreamWaitEvent(stream, events[i], flags));
    return ncclSuccess;
}

/* --- captures: another communicator's thread may look at them --- */
static pthread_mutex_t captures_lock = PTHREAD_MUTEX_INITIALIZER;

/* What is known of the turn's capture; NULL if no call of the communicator is in it.  No other ever has the same id. */
static struct bl_order_capture *capture_of(struct bl_order *order, const struct bl_order_turn *turn) {
    for (int i = 0; i < BL_ORDER_CAPTURES; i++)
        if (order->captures[i].lasts > 0 && order->captures[i].id == turn->capture) return &order->captures[i];
    return NULL;
}

/* In place of that which is forgotten: the one that began first. */
static struct bl_order_capture *new_capture(struct bl_order *order, const struct bl_order_turn *turn) {
    struct bl_order_capture *capture = &order->captures[order->next_capture++ % BL_ORDER_CAPTURES];
    *capture = (struct bl_order_capture){.id = turn->capture};
    return capture;
}

/* Whether what is captured next on the stream depends on the last call's nodes already: another edge would keep it
 * from starting early. */
static bool follows_last(const struct bl_order_capture *capture, CUstream stream) {
    CUstreamCaptureStatus status;
    cuuint64_t id;
    CUgraph graph;
    const CUgraphNode *nodes = NULL;
    const CUgraphEdgeData *edges = NULL;
    size_t count = 0;
    int found = 0;
    if (bl_driver()->cuStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, &edges, &count) != CUDA_SUCCESS)
        return false;
    for (int i = 0; i < capture->lasts; i++)
        for (size_t k = 0; k < count; k++) found += nodes[k] == capture->last[i];
    return found == capture->lasts;
}

static ncclResult_t follow(struct bl_order_capture *capture, CUstream stream) {
    if (!follows_last(capture, stream))
        CHECK_RETURN(bl_driver()->cuStreamUpdateCaptureDependencies(stream, capture->last, NULL, (size_t)capture->lasts,
                                                                    CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
    return ncclSuccess;
}

/* Behind the last of the communicator's calls in the capture, or, if `ahead`, that ahead of the group whose calls go on beside NCCL's.  False: it has none. */
static bool follow_last(struct bl_comm *comm, bool ahead, CUstream stream, const struct bl_order_turn *turn,
                        ncclResult_t *result) {
    pthread_mutex_lock(&captures_lock);
    const bool kept = ahead && comm->order.before.id == turn->capture;
    struct bl_order_capture *capture = kept ? &comm->order.before : capture_of(&comm->order, turn);
    if (capture && capture->lasts) *result = follow(capture, stream);
    pthread_mutex_unlock(&captures_lock);
    return capture != NULL;
}

void bl_order_keep(struct bl_comm *comm, const struct bl_order_turn *turn) {
    pthread_mutex_lock(&captures_lock);
    const struct bl_order_capture *capture = turn->capturing ? capture_of(&comm->order, turn) : NULL;
    comm->order.before = capture ? *capture : (struct bl_order_capture){.id = turn->capture};
    pthread_mutex_unlock(&captures_lock);
}

bool bl_order_follow(struct bl_comm *other, CUstream stream, const struct bl_order_turn *turn, ncclResult_t *result) {
    const bool ahead = atomic_load(&other->beside.state) == BL_BESIDE_APART;
    return turn->capturing && follow_last(other, ahead, stream, turn, result);
}

static ncclResult_t before_captured(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn) {
    ncclResult_t result = ncclSuccess;
    if (follow_last(comm, false, stream, turn, &result) || comm->unmixed) return result;
    return bl_order_wait(stream, &comm->order.event, 1, turn);
}

static ncclResult_t before_eager(const struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn) {
    const struct bl_order *order = &comm->order;
    const bool replays = order->captured_ever && !comm->unmixed;
    const bool follows = !order->used || is_last_stream(order, turn);
    return follows && !replays ? ncclSuccess : bl_order_wait(stream, &order->event, 1, turn);
}

ncclResult_t bl_order_before(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn) {
    return turn->capturing ? before_captured(comm, stream, turn) : before_eager(comm, stream, turn);
}

/* A stream on which nothing is launched gathers what it is to wait for: a node for each group that it took part in. */
static ncclResult_t narrow(CUstream stream, CUgraph graph, const CUgraphNode *nodes, size_t count, CUgraphNode *all) {
    const struct bl_driver *cu = bl_driver();
    CHECK_RETURN(cu->cuGraphAddEmptyNode(all, graph, nodes, count));
    CHECK_RETURN(cu->cuStreamUpdateCaptureDependencies(stream, all, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    return ncclSuccess;
}

/* Notes the nodes that the call ends with, which the next one in this graph depends on.  None of a capture that something else has invalidated
 * meanwhile: the driver says nothing of it but that. */
static ncclResult_t note_nodes(struct bl_order_capture *capture, CUstream stream, CUgraph *graph) {
    CUstreamCaptureStatus status;
    cuuint64_t id;
    const CUgraphNode *nodes = NULL;
    const CUgraphEdgeData *edges; /* asked for because edges with data may not be left out */
    size_t count = 0;
    CHECK_RETURN(bl_driver()->cuStreamGetCaptureInfo(stream, &status, &id, graph, &nodes, &edges, &count));
    if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) count = 0;
    capture->lasts = count > BL_ORDER_NODES ? 1 : (int)count;
    if (count > BL_ORDER_NODES) return narrow(stream, *graph, nodes, count, capture->last);
    for (size_t i = 0; i < count; i++) capture->last[i] = nodes[i];
    return ncclSuccess;
}

/* One record of the event hangs behind the last call of each capture, and moves on with it: removing nodes from a graph
 * under capture is not allowed, moving edges is. */
static ncclResult_t move_record(struct bl_order_capture *capture, const struct bl_order_capture *before, CUgraph graph,
                                CUevent event) {
    const struct bl_driver *cu = bl_driver();
    CUgraphNode *record = &capture->record_node;
    if (!*record) {
        CHECK_RETURN(cu->cuGraphAddEventRecordNode(record, graph, capture->last, (size_t)capture->lasts, event));
        return ncclSuccess;
    }
    for (int i = 0; i < before->lasts; i++)
        CHECK_RETURN(cu->cuGraphRemoveDependencies(graph, &before->last[i], record, NULL, 1));
    for (int i = 0; i < capture->lasts; i++)
        CHECK_RETURN(cu->cuGraphAddDependencies(graph, &capture->last[i], record, NULL, 1));
    return ncclSuccess;
}

static ncclResult_t after_captured(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn) {
    struct bl_order *order = &comm->order;
    CUgraph graph;
    pthread_mutex_lock(&captures_lock);
    struct bl_order_capture *capture = capture_of(order, turn);
    if (!capture) capture = new_capture(order, turn);
    const struct bl_order_capture before = *capture;
    ncclResult_t result = note_nodes(capture, stream, &graph);
    if (result == ncclSuccess && capture->lasts && !comm->unmixed)
        result = move_record(capture, &before, graph, order->event);
    pthread_mutex_unlock(&captures_lock);
    return result;
}

ncclResult_t bl_order_after(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn) {
    struct bl_order *order = &comm->order;
    ncclResult_t result = ncclSuccess;
    if (turn->capturing) {
        result = after_captured(comm, stream, turn);
        order->captured_ever = true;
    } else if (atomic_load(&comm->beside.state) != BL_BESIDE_APART) {
        CHECK_RETURN(bl_driver()->cuEventRecord(order->event, stream));
    }
    order->used = true;
    order->last_stream = turn->stream;
    return result;
}

/* The event is behind the last call, replays included, but for what goes on beside NCCL's calls; of that nothing runs
 * which is being captured. */
CUresult bl_order_query(const struct bl_comm *comm) {
    const CUresult status = bl_driver()->cuEventQuery(comm->order.event);
    if (status != CUDA_SUCCESS || atomic_load(&comm->beside.state) != BL_BESIDE_APART || !comm->beside.eager)
        return status;
    return bl_driver()->cuStreamQuery(comm->beside.eager);
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

ncclResult_t bl_order_meet(struct bl_comm *comm, const CUstream *streams, int count) {
    const ncclResult_t result = bl_order_join(comm, streams, count);
    return result == ncclSuccess ? bl_order_fork(comm, streams, count) : result;
}
