/* event.c - events: a version a record, and the newest version that has happened. */
#include "emu.h"

#include <stdlib.h>

static int find_early(const struct emu_event *event, uint64_t version) {
    for (int i = 0; i < event->nearly; i++)
        if (event->early[i] == version) return i;
    return -1;
}

bool emu_event_done(const struct emu_event *event, uint64_t version) {
    return version <= event->completed || find_early(event, version) >= 0;
}

static void note_done(struct emu_event *event, uint64_t version) {
    if (version != event->completed + 1) {
        uint64_t *more = realloc(event->early, ((size_t)event->nearly + 1) * sizeof *more);
        if (!more) return;
        event->early = more;
        event->early[event->nearly++] = version;
        return;
    }
    event->completed = version;
    for (int i; (i = find_early(event, event->completed + 1)) >= 0;) {
        event->completed++;
        event->early[i] = event->early[--event->nearly];
    }
}

void emu_event_complete(struct emu_event *event, uint64_t version, const struct emu_stream *stream) {
    emu_lock();
    note_done(event, version);
    event->nanoseconds = emu_config.speeds ? stream->clock : emu_nanoseconds();
    pthread_cond_broadcast(&event->further);
    emu_unlock();
}

void emu_event_wait(struct emu_event *event, uint64_t version, struct emu_stream *stream) {
    emu_lock();
    while (!emu_event_done(event, version)) pthread_cond_wait(&event->further, &emu.lock);
    if (stream->clock < event->nanoseconds) stream->clock = event->nanoseconds;
    emu_unlock();
}

static CUresult event_get(CUevent handle, struct emu_event **event) {
    *event = emu_object_get(handle, EMU_EVENT);
    if (!*event) return CUDA_ERROR_INVALID_HANDLE;
    if (!(*event)->context->object.alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return (*event)->context->sticky;
}

EMU_LOCKED(cuEventCreate, 2000, (CUevent * out, unsigned flags), (out, flags)) {
    struct emu_context *context;
    if (!out || flags & ~7u) return CUDA_ERROR_INVALID_VALUE;
    EMU_TRY(emu_context_need(&context));
    struct emu_event *event = emu_object_new(EMU_EVENT, sizeof *event);
    if (!event) return CUDA_ERROR_OUT_OF_MEMORY;
    event->context = context;
    event->flags = flags;
    pthread_cond_init(&event->further, NULL);
    *out = emu_object_handle(event);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EMU_LOCKED(cuEventDestroy_v2, 2000, (CUevent handle), (handle)) {
    struct emu_event *event = emu_object_get(handle, EMU_EVENT);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    free(event->deps);
    event->deps = NULL;
    emu_object_end(event);
    return CUDA_SUCCESS;
}

EMU_LOCKED(cuEventRecordWithFlags, 11010, (CUevent handle, CUstream stream_handle, unsigned flags),
           (handle, stream_handle, flags)) {
    struct emu_event *event;
    struct emu_stream *stream;
    if (flags & ~CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
    EMU_TRY(event_get(handle, &event));
    EMU_TRY(emu_stream_of(stream_handle, &stream));
    if (stream->context != event->context) return CUDA_ERROR_INVALID_HANDLE;
    EMU_TRY(emu_capture_legacy(stream));
    struct emu_op op = {.kind = EMU_OP_RECORD, .context = stream->context, .event = {.event = event}};
    if (stream->capture && flags) return emu_capture_add(stream, &op); /* a node, which records when the graph runs */
    if (stream->capture) return emu_capture_record(stream, event);
    event->capture = NULL;
    op.event.version = ++event->recorded;
    emu_push(stream, &op);
    return CUDA_SUCCESS;
}

EMU_LOCKED(cuEventRecord, 2000, (CUevent event, CUstream stream), (event, stream)) {
    return cuEventRecordWithFlags_body(event, stream, 0);
}

EMU_LOCKED(cuStreamWaitEvent, 3020, (CUstream stream_handle, CUevent handle, unsigned flags),
           (stream_handle, handle, flags)) {
    struct emu_event *event;
    struct emu_stream *stream;
    if (flags & ~CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
    EMU_TRY(event_get(handle, &event));
    EMU_TRY(emu_stream_usable(stream_handle, &stream));
    struct emu_op op = {
        .kind = EMU_OP_WAIT, .context = stream->context, .event = {.event = event, .version = event->recorded}};
    bool handled = false;
    if (stream->capture && flags) return emu_capture_add(stream, &op);
    EMU_TRY(emu_capture_wait(stream, event, &handled));
    if (!handled && !stream->capture && !emu_event_done(event, event->recorded)) emu_push(stream, &op);
    return CUDA_SUCCESS;
}

/* One whose state the host may ask for: not while it is of a capture, nor from a thread that captures. */
static CUresult event_ask(CUevent handle, struct emu_event **event) {
    EMU_TRY(event_get(handle, event));
    if ((*event)->capture) {
        (*event)->capture->invalid = true;
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    return emu_capture_unsafe();
}

EMU_LOCKED(cuEventQuery, 2000, (CUevent handle), (handle)) {
    struct emu_event *event;
    EMU_TRY(event_ask(handle, &event));
    return emu_event_done(event, event->recorded) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

EMU_LOCKED(cuEventSynchronize, 2000, (CUevent handle), (handle)) {
    struct emu_event *event;
    EMU_TRY(event_ask(handle, &event));
    uint64_t version = event->recorded;
    while (!emu_event_done(event, version)) pthread_cond_wait(&event->further, &emu.lock);
    return event->context->sticky;
}

EMU_LOCKED(cuEventElapsedTime_v2, 2000, (float *milliseconds, CUevent first, CUevent last),
           (milliseconds, first, last)) {
    struct emu_event *a, *b;
    if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
    EMU_TRY(event_get(first, &a));
    EMU_TRY(event_get(last, &b));
    if (a->capture || b->capture) return CUDA_ERROR_CAPTURED_EVENT;
    if (!a->recorded || !b->recorded || (a->flags | b->flags) & CU_EVENT_DISABLE_TIMING)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!emu_event_done(a, a->recorded) || !emu_event_done(b, b->recorded)) return CUDA_ERROR_NOT_READY;
    *milliseconds = (float)((double)(int64_t)(b->nanoseconds - a->nanoseconds) / 1e6);
    return CUDA_SUCCESS;
}
