/* event.c - events: a version a record, and the newest version that has happened. */
#include "emu.h"

#include <stdlib.h>
#include <time.h>

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

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

void emu_event_complete(struct emu_event *event, uint64_t version) {
    emu_lock();
    note_done(event, version);
    event->nanoseconds = now();
    pthread_cond_broadcast(&emu.progress);
    emu_unlock();
}

void emu_event_wait(struct emu_event *event, uint64_t version) {
    emu_lock();
    while (!emu_event_done(event, version)) pthread_cond_wait(&emu.progress, &emu.lock);
    emu_unlock();
}

static CUresult event_get(CUevent handle, struct emu_event **event) {
    *event = emu_object_get(handle, EMU_EVENT);
    if (!*event) return CUDA_ERROR_INVALID_HANDLE;
    if (!(*event)->context->object.alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return (*event)->context->sticky;
}

EMU_CALL(cuEventCreate, 2000, (CUevent * out, unsigned flags), (out, flags)) {
    struct emu_context *context;
    if (!out || flags & ~7u) return CUDA_ERROR_INVALID_VALUE;
    emu_lock();
    CUresult result = emu_context_need(&context);
    struct emu_event *event = result == CUDA_SUCCESS ? emu_object_new(EMU_EVENT, sizeof *event) : NULL;
    if (event) {
        event->context = context;
        event->flags = flags;
        *out = emu_object_handle(event);
    }
    if (result == CUDA_SUCCESS && (!event || !*out)) result = CUDA_ERROR_OUT_OF_MEMORY;
    emu_unlock();
    return result;
}

EMU_CALL(cuEventDestroy_v2, 2000, (CUevent handle), (handle)) {
    emu_lock();
    struct emu_event *event = emu_object_get(handle, EMU_EVENT);
    if (event) {
        free(event->deps);
        event->deps = NULL;
        emu_object_end(event);
    }
    emu_unlock();
    return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult record(CUevent handle, CUstream stream_handle, unsigned flags) {
    struct emu_event *event;
    struct emu_stream *stream;
    if (flags & ~CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
    emu_lock();
    CUresult result = event_get(handle, &event);
    if (result == CUDA_SUCCESS) result = emu_stream_of(stream_handle, &stream);
    if (result == CUDA_SUCCESS && stream->context != event->context) result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS && stream->legacy) result = emu_capture_legacy(stream->context);
    if (result == CUDA_SUCCESS) {
        struct emu_op op = {.kind = EMU_OP_RECORD, .context = stream->context, .event = {.event = event}};
        if (stream->capture && flags) {
            result = emu_capture_add(stream, &op); /* a node, which records when the graph runs */
        } else if (stream->capture) {
            result = emu_capture_record(stream, event);
        } else {
            event->capture = NULL;
            op.event.version = ++event->recorded;
            emu_push(stream, &op);
        }
    }
    emu_unlock();
    return result;
}

EMU_CALL(cuEventRecord, 2000, (CUevent event, CUstream stream), (event, stream)) {
    return record(event, stream, 0);
}

EMU_CALL(cuEventRecordWithFlags, 11010, (CUevent event, CUstream stream, unsigned flags), (event, stream, flags)) {
    return record(event, stream, flags);
}

EMU_CALL(cuStreamWaitEvent, 3020, (CUstream stream_handle, CUevent handle, unsigned flags),
         (stream_handle, handle, flags)) {
    struct emu_event *event;
    struct emu_stream *stream;
    if (flags & ~CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
    emu_lock();
    CUresult result = event_get(handle, &event);
    if (result == CUDA_SUCCESS) result = emu_stream_of(stream_handle, &stream);
    if (result == CUDA_SUCCESS && stream->legacy) result = emu_capture_legacy(stream->context);
    if (result == CUDA_SUCCESS) {
        struct emu_op op = {
            .kind = EMU_OP_WAIT, .context = stream->context, .event = {.event = event, .version = event->recorded}};
        bool handled = false;
        if (stream->capture && flags)
            result = emu_capture_add(stream, &op);
        else
            result = emu_capture_wait(stream, event, &handled);
        if (result == CUDA_SUCCESS && !handled && !stream->capture && !emu_event_done(event, event->recorded))
            emu_push(stream, &op);
    }
    emu_unlock();
    return result;
}

EMU_CALL(cuEventQuery, 2000, (CUevent handle), (handle)) {
    struct emu_event *event;
    emu_lock();
    CUresult result = event_get(handle, &event);
    if (result == CUDA_SUCCESS && event->capture) {
        event->capture->invalid = true;
        result = CUDA_ERROR_CAPTURED_EVENT;
    }
    if (result == CUDA_SUCCESS) result = emu_capture_unsafe();
    if (result == CUDA_SUCCESS && !emu_event_done(event, event->recorded)) result = CUDA_ERROR_NOT_READY;
    emu_unlock();
    return result;
}

EMU_CALL(cuEventSynchronize, 2000, (CUevent handle), (handle)) {
    struct emu_event *event;
    emu_lock();
    CUresult result = event_get(handle, &event);
    if (result == CUDA_SUCCESS && event->capture) {
        event->capture->invalid = true;
        result = CUDA_ERROR_CAPTURED_EVENT;
    }
    if (result == CUDA_SUCCESS) result = emu_capture_unsafe();
    if (result == CUDA_SUCCESS) {
        uint64_t version = event->recorded;
        while (!emu_event_done(event, version)) pthread_cond_wait(&emu.progress, &emu.lock);
        result = event->context->sticky;
    }
    emu_unlock();
    return result;
}

EMU_CALL(cuEventElapsedTime_v2, 2000, (float *milliseconds, CUevent first, CUevent last), (milliseconds, first, last)) {
    struct emu_event *a, *b;
    if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
    emu_lock();
    CUresult result = event_get(first, &a);
    if (result == CUDA_SUCCESS) result = event_get(last, &b);
    if (result == CUDA_SUCCESS) {
        if (a->capture || b->capture)
            result = CUDA_ERROR_CAPTURED_EVENT;
        else if (!a->recorded || !b->recorded || (a->flags | b->flags) & CU_EVENT_DISABLE_TIMING)
            result = CUDA_ERROR_INVALID_HANDLE;
        else if (!emu_event_done(a, a->recorded) || !emu_event_done(b, b->recorded))
            result = CUDA_ERROR_NOT_READY;
        else
            *milliseconds = (float)((double)(int64_t)(b->nanoseconds - a->nanoseconds) / 1e6);
    }
    emu_unlock();
    return result;
}
