/* capture.c - stream capture: work becomes nodes of a graph, and what the real driver forbids meanwhile is refused. */
#include "emu.h"

#include <stdlib.h>
#include <string.h>

static uint64_t next_id;
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

void emu_set_deps(struct emu_node ***deps, int *ndeps, struct emu_node *const *from, int count) {
    struct emu_node **copy = count ? malloc((size_t)count * sizeof *copy) : NULL;
    if (copy) memcpy(copy, from, (size_t)count * sizeof *copy);
    free(*deps);
    *deps = copy;
    *ndeps = copy ? count : 0;
}

static void add_deps(struct emu_stream *stream, struct emu_node *const *from, int count) {
    for (int i = 0; i < count; i++) {
        bool known = false;
        for (int j = 0; j < stream->ndeps; j++) known |= stream->deps[j] == from[i];
        if (known) continue;
        struct emu_node **more = realloc(stream->deps, (size_t)(stream->ndeps + 1) * sizeof *more);
        if (!more) return;
        stream->deps = more;
        stream->deps[stream->ndeps++] = from[i];
    }
}

static CUresult usable(struct emu_capture *capture) {
    return capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult emu_capture_add(struct emu_stream *stream, struct emu_op *op) {
    CUresult result = usable(stream->capture);
    if (result != CUDA_SUCCESS) {
        emu_op_free(op);
        return result;
    }
    struct emu_node *node = emu_graph_add(stream->capture->graph, op, stream->deps, stream->ndeps);
    if (!node) return CUDA_ERROR_OUT_OF_MEMORY;
    emu_set_deps(&stream->deps, &stream->ndeps, &node, 1);
    return CUDA_SUCCESS;
}

CUresult emu_capture_record(struct emu_stream *stream, struct emu_event *event) {
    EMU_TRY(usable(stream->capture));
    event->capture = stream->capture;
    emu_set_deps(&event->deps, &event->ndeps, stream->deps, stream->ndeps);
    return CUDA_SUCCESS;
}

CUresult emu_capture_wait(struct emu_stream *stream, struct emu_event *event, bool *handled) {
    struct emu_capture *capture = stream->capture;
    *handled = capture || event->capture;
    if (!*handled) return CUDA_SUCCESS;
    if (capture && capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!event->capture) {
        if (!event->recorded) return CUDA_SUCCESS;
        capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (!event->capture->object.alive) return CUDA_ERROR_INVALID_VALUE; /* that capture is over */
    if (event->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (capture && capture != event->capture) {
        capture->invalid = event->capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (stream->legacy) {
        event->capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (!capture) stream->capture = event->capture; /* the stream joins */
    add_deps(stream, event->deps, event->ndeps);
    return CUDA_SUCCESS;
}

CUresult emu_capture_unsafe(void) {
    if (!emu.captures || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    for (struct emu_capture *capture = NULL; (capture = emu_object_of(EMU_CAPTURE, capture));) {
        if (!capture->object.alive || capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
        bool mine = pthread_equal(capture->thread, pthread_self());
        bool others = thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (!mine && !others) continue;
        capture->invalid = true;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return result;
}

bool emu_capture_any(const struct emu_context *context, bool invalidate) {
    bool any = false;
    for (struct emu_stream *stream = NULL; (stream = emu_object_of(EMU_STREAM, stream));) {
        if (!stream->object.alive || stream->context != context || !stream->capture) continue;
        any = true;
        if (invalidate) stream->capture->invalid = true;
    }
    return any;
}

/* The legacy stream would have to wait for a blocking stream that is capturing. */
static CUresult legacy_beside(const struct emu_stream *legacy, bool invalidate) {
    CUresult result = CUDA_SUCCESS;
    if (!legacy->legacy || !emu.captures) return result;
    for (struct emu_stream *stream = NULL; (stream = emu_object_of(EMU_STREAM, stream));) {
        if (!stream->object.alive || stream->context != legacy->context || !stream->capture) continue;
        if (!stream->blocking || stream->capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
        if (invalidate) stream->capture->invalid = true;
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    return result;
}

CUresult emu_capture_legacy(const struct emu_stream *legacy) {
    return legacy_beside(legacy, true);
}

CUresult emu_capture_refuse(struct emu_stream *stream) {
    if (!stream->capture) return CUDA_SUCCESS;
    stream->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static CUresult begin(CUstream handle, struct emu_graph *graph, CUstreamCaptureMode mode) {
    struct emu_stream *stream;
    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    EMU_TRY(emu_stream_of(handle, &stream));
    if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
    struct emu_capture *capture = emu_object_new(EMU_CAPTURE, sizeof *capture);
    if (!capture) return CUDA_ERROR_OUT_OF_MEMORY;
    capture->into_existing = graph;
    capture->graph = graph ? graph : emu_graph_new();
    capture->id = ++next_id;
    capture->origin = stream;
    capture->mode = mode;
    capture->thread = pthread_self();
    stream->capture = capture;
    emu.captures++;
    emu_set_deps(&stream->deps, &stream->ndeps, NULL, 0);
    return CUDA_SUCCESS;
}

EMU_LOCKED(cuStreamBeginCapture_v2, 10010, (CUstream stream, CUstreamCaptureMode mode), (stream, mode)) {
    return begin(stream, NULL, mode);
}

EMU_LOCKED(cuStreamBeginCaptureToGraph, 12030,
           (CUstream handle, CUgraph graph, const CUgraphNode *deps, const CUgraphEdgeData *edges, size_t ndeps,
            CUstreamCaptureMode mode),
           (handle, graph, deps, edges, ndeps, mode)) {
    struct emu_stream *stream;
    struct emu_graph *g = emu_object_get(graph, EMU_GRAPH);
    if (!g) return CUDA_ERROR_INVALID_VALUE;
    EMU_TRY(begin(handle, g, mode));
    EMU_TRY(emu_stream_of(handle, &stream));
    add_deps(stream, (struct emu_node *const *)deps, (int)ndeps);
    return CUDA_SUCCESS;
}

static void mark(const struct emu_node *node, bool *reached) {
    if (reached[node->index]) return;
    reached[node->index] = true;
    for (int i = 0; i < node->ndeps; i++) mark(node->deps[i], reached);
}

/* Every other stream of the capture must have come back to the origin. */
static bool joined(struct emu_capture *capture) {
    bool *reached = calloc((size_t)capture->graph->count + 1, 1), all = true;
    if (!reached) return false;
    for (int i = 0; i < capture->origin->ndeps; i++) mark(capture->origin->deps[i], reached);
    for (struct emu_stream *stream = NULL; (stream = emu_object_of(EMU_STREAM, stream));) {
        if (stream->capture != capture) continue;
        for (int i = 0; i < stream->ndeps; i++) all &= reached[stream->deps[i]->index];
    }
    free(reached);
    return all;
}

EMU_LOCKED(cuStreamEndCapture, 10000, (CUstream handle, CUgraph *graph), (handle, graph)) {
    struct emu_stream *stream;
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    EMU_TRY(emu_stream_of(handle, &stream));
    struct emu_capture *capture = stream->capture;
    if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream) {
        capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(capture->thread, pthread_self()))
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    CUresult result = usable(capture);
    if (result == CUDA_SUCCESS && !joined(capture)) result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    for (struct emu_stream *s = NULL; (s = emu_object_of(EMU_STREAM, s));) {
        if (s->capture != capture) continue;
        s->capture = NULL;
        emu_set_deps(&s->deps, &s->ndeps, NULL, 0);
    }
    emu_object_end(capture);
    emu.captures--;
    if (result != CUDA_SUCCESS && !capture->into_existing) emu_graph_end(capture->graph);
    *graph = result == CUDA_SUCCESS ? (CUgraph)capture->graph : NULL;
    return result;
}

static CUstreamCaptureStatus status_of(const struct emu_stream *stream) {
    return !stream->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
           : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                      : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

EMU_LOCKED(cuStreamGetCaptureInfo_v3, 12030,
           (CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **deps,
            const CUgraphEdgeData **edges, size_t *ndeps),
           (handle, status, id, graph, deps, edges, ndeps)) {
    struct emu_stream *stream;
    if (!status) return CUDA_ERROR_INVALID_VALUE;
    EMU_TRY(emu_stream_of(handle, &stream));
    EMU_TRY(legacy_beside(stream, false)); /* to ask invalidates nothing */
    *status = status_of(stream);
    if (edges) *edges = NULL;
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
    if (id) *id = stream->capture->id;
    if (graph) *graph = (CUgraph)stream->capture->graph;
    if (deps) *deps = (const CUgraphNode *)stream->deps;
    if (ndeps) *ndeps = (size_t)stream->ndeps;
    return CUDA_SUCCESS;
}

EMU_LOCKED(cuStreamIsCapturing, 10000, (CUstream stream, CUstreamCaptureStatus *status), (stream, status)) {
    return cuStreamGetCaptureInfo_v3_body(stream, status, NULL, NULL, NULL, NULL, NULL);
}

EMU_LOCKED(cuStreamGetCaptureInfo_v2, 11030,
           (CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **deps,
            size_t *ndeps),
           (handle, status, id, graph, deps, ndeps)) {
    return cuStreamGetCaptureInfo_v3_body(handle, status, id, graph, deps, NULL, ndeps);
}

EMU_LOCKED(cuStreamUpdateCaptureDependencies_v2, 12030,
           (CUstream handle, CUgraphNode *deps, const CUgraphEdgeData *edges, size_t ndeps, unsigned flags),
           (handle, deps, edges, ndeps, flags)) {
    struct emu_stream *stream;
    EMU_TRY(emu_stream_of(handle, &stream));
    if (!stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
    EMU_TRY(usable(stream->capture));
    EMU_TRY(emu_graph_check(stream->capture->graph, deps, ndeps));
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) emu_set_deps(&stream->deps, &stream->ndeps, NULL, 0);
    add_deps(stream, (struct emu_node *const *)deps, (int)ndeps);
    return CUDA_SUCCESS;
}

#undef cuStreamUpdateCaptureDependencies
EMU_LOCKED(cuStreamUpdateCaptureDependencies, 11030, (CUstream handle, CUgraphNode *deps, size_t ndeps, unsigned flags),
           (handle, deps, ndeps, flags)) {
    return cuStreamUpdateCaptureDependencies_v2_body(handle, deps, NULL, ndeps, flags);
}

EMU_CALL(cuThreadExchangeStreamCaptureMode, 10010, (CUstreamCaptureMode * mode), (mode)) {
    if (!mode || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
