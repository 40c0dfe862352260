/* stream.c - streams: a queue and, from its first work on, a thread each. */
#include "emu.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

/* Work that must have been done on another stream of the context: the legacy stream's rule. */
struct dependency {
    struct emu_stream *stream;
    uint64_t submitted;
};

struct emu_entry {
    struct emu_entry *next;
    struct emu_op op;
    uint64_t number; /* in the stream's queue */
    struct dependency *after;
    int count;
};

static uint64_t next_id;
static _Thread_local struct emu_stream *per_thread[EMU_MAX_DEVICES];

/* Seen with driver 580: of a stream that is destroyed with work under way the next one has the queue, and what was launched early on
 * the old one does not begin before the first kernel on the new one has ended; here, any that runs there. */
static void inherit(struct emu_stream *stream) {
    for (struct emu_stream *old = stream->context->left; old; old = old->left) old->heir = stream;
    stream->context->left = NULL;
}

static void leave_queue(struct emu_stream *stream) {
    if (stream->completed == stream->submitted) return;
    stream->left = stream->context->left;
    stream->context->left = stream;
}

static void wait_for_heir(const struct emu_stream *stream, const struct emu_op *op) {
    const bool early = op->kind == EMU_OP_KERNEL && op->kernel.early;
    while (early && stream->heir && stream->heir->in_kernel) pthread_cond_wait(&stream->heir->further, &emu.lock);
}

struct emu_stream *emu_stream_new(struct emu_context *context, unsigned flags, int priority) {
    struct emu_stream *stream = emu_object_new(EMU_STREAM, sizeof *stream);
    if (!stream) return NULL;
    stream->context = context;
    stream->flags = flags;
    stream->blocking = !(flags & CU_STREAM_NON_BLOCKING);
    stream->priority = priority;
    stream->id = ++next_id;
    stream->queue = emu_queue_next(context);
    stream->tail = &stream->head;
    pthread_cond_init(&stream->work, NULL);
    pthread_cond_init(&stream->further, NULL);
    inherit(stream);
    return stream;
}

/* What is queued still runs; then the thread goes. */
void emu_stream_end(struct emu_stream *stream) {
    emu_object_end(stream);
    stream->ending = true;
    pthread_cond_signal(&stream->work);
}

void emu_wait_until(struct emu_stream *stream, uint64_t submitted) {
    while (stream->completed < submitted) pthread_cond_wait(&stream->further, &emu.lock);
    emu_late_flush_stream(stream);
}

static void *worker(void *argument) {
    struct emu_stream *stream = argument;
    emu_lock();
    for (;;) {
        while (!stream->head && !stream->ending) pthread_cond_wait(&stream->work, &emu.lock);
        struct emu_entry *entry = stream->head;
        if (!entry) break;
        emu_queue_wait(stream->queue, entry->number);
        stream->running = entry->number;
        for (int i = 0; i < entry->count; i++) emu_wait_until(entry->after[i].stream, entry->after[i].submitted);
        if (!emu_queue_holds(&entry->op)) emu_queue_take(stream->queue, entry->number);
        wait_for_heir(stream, &entry->op);
        stream->in_kernel = entry->op.kind == EMU_OP_KERNEL;
        emu_unlock();
        emu_op_run(&entry->op, &(struct emu_issuer){.stream = stream});
        emu_op_free(&entry->op);
        emu_lock();
        emu_queue_take(stream->queue, entry->number);
        stream->head = entry->next;
        if (!stream->head) stream->tail = &stream->head;
        stream->completed++;
        stream->in_kernel = false;
        pthread_cond_broadcast(&stream->further);
        pthread_cond_broadcast(&emu.progress);
        free(entry->after);
        free(entry);
    }
    stream->worker = false;
    emu_unlock();
    return NULL;
}

static void start_worker(struct emu_stream *stream) {
    stream->worker = emu_thread(worker, stream);
    if (!stream->worker) emu_say("no thread for a stream: its work will not run");
}

/* The legacy stream waits for all blocking streams of its context, and they for it. */
static void add_dependencies(struct emu_entry *entry, struct emu_stream *stream) {
    struct emu_context *context = stream->context;
    if (!stream->legacy) {
        struct emu_stream *legacy = context->legacy;
        if (!stream->blocking || legacy->completed == legacy->submitted) return;
        entry->after = malloc(sizeof *entry->after);
        if (entry->after) entry->after[entry->count++] = (struct dependency){legacy, legacy->submitted};
        return;
    }
    for (struct emu_stream *s = NULL; (s = emu_object_of(EMU_STREAM, s));) {
        if (s == stream || s->context != context || !s->blocking) continue;
        if (s->completed == s->submitted) continue;
        struct dependency *more = realloc(entry->after, (size_t)(entry->count + 1) * sizeof *more);
        if (!more) return;
        entry->after = more;
        entry->after[entry->count++] = (struct dependency){s, s->submitted};
    }
}

static void push(struct emu_stream *stream, struct emu_entry *entry) {
    *stream->tail = entry;
    stream->tail = &entry->next;
    stream->submitted++;
    if (stream->queue) entry->number = stream->queue->put++;
    if (!stream->worker) start_worker(stream);
    pthread_cond_signal(&stream->work);
}

void emu_push(struct emu_stream *stream, struct emu_op *op) {
    struct emu_entry *entry = calloc(1, sizeof *entry);
    if (!entry) return;
    entry->op = *op;
    while (stream->submitted - stream->completed >= emu_config.depth) pthread_cond_wait(&stream->further, &emu.lock);
    add_dependencies(entry, stream);
    push(stream, entry);
}

void emu_push_after(struct emu_stream *stream, struct emu_stream *other, uint64_t submitted) {
    struct emu_entry *entry = calloc(1, sizeof *entry);
    struct dependency *after = malloc(sizeof *after);
    if (!entry || !after) {
        free(entry);
        free(after);
        return;
    }
    *after = (struct dependency){other, submitted};
    entry->after = after;
    entry->count = 1;
    push(stream, entry);
}

CUresult emu_stream_of(CUstream handle, struct emu_stream **out) {
    struct emu_context *context;
    *out = NULL;
    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        CUresult result = emu_context_need(&context);
        if (result != CUDA_SUCCESS) return result;
        if (handle != CU_STREAM_PER_THREAD) {
            *out = context->legacy;
            return CUDA_SUCCESS;
        }
        struct emu_stream **mine = &per_thread[context->device];
        if (!*mine || !(*mine)->object.alive || (*mine)->context != context) {
            *mine = emu_stream_new(context, 0, 0);
            if (*mine) (*mine)->object.orphan = true; /* nobody can destroy it */
        }
        *out = *mine;
        return *mine ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = emu_object_get(handle, EMU_STREAM);
    if (!*out) return CUDA_ERROR_INVALID_HANDLE;
    if (!(*out)->context->object.alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if ((*out)->green && !(*out)->green->object.alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return (*out)->context->sticky;
}

/* The default stream is that of the green context, where one is current. */
static struct emu_sms sms_of(const struct emu_stream *stream) {
    const struct emu_green *green = stream->legacy ? emu_current_green() : stream->green;
    return green ? green->sms : (struct emu_sms){0, (unsigned)emu_config.sms};
}

CUresult emu_stream_usable(CUstream handle, struct emu_stream **stream) {
    EMU_TRY(emu_stream_of(handle, stream));
    return emu_capture_legacy(*stream);
}

/* The same, for a call that waits for it. */
static CUresult stream_awaited(CUstream handle, struct emu_stream **stream) {
    EMU_TRY(emu_stream_usable(handle, stream));
    return emu_capture_refuse(*stream);
}

static CUresult enqueue(CUstream handle, struct emu_op *op, bool wait) {
    struct emu_stream *stream;
    emu_lock();
    CUresult result = wait ? stream_awaited(handle, &stream) : emu_stream_usable(handle, &stream);
    if (result == CUDA_SUCCESS) {
        op->context = stream->context;
        op->sms = sms_of(stream);
        if (stream->capture) {
            result = emu_capture_add(stream, op);
        } else {
            emu_push(stream, op);
            if (wait) {
                emu_wait_until(stream, stream->submitted);
                result = stream->context->sticky;
            }
        }
    } else {
        emu_op_free(op);
    }
    emu_unlock();
    return result;
}

CUresult emu_enqueue(CUstream handle, struct emu_op *op) {
    return enqueue(handle, op, false);
}
CUresult emu_enqueue_and_wait(CUstream handle, struct emu_op *op) {
    return enqueue(handle, op, true);
}

void emu_context_wait(struct emu_context *context) {
    struct dependency *before = NULL;
    int count = 0;
    for (struct emu_stream *stream = NULL; (stream = emu_object_of(EMU_STREAM, stream));) {
        if (stream->context != context) continue;
        struct dependency *more = realloc(before, (size_t)(count + 1) * sizeof *more);
        if (!more) break;
        before = more;
        before[count++] = (struct dependency){stream, stream->submitted};
    }
    for (int i = 0; i < count; i++) emu_wait_until(before[i].stream, before[i].submitted);
    free(before);
}

/* Which calls of a process do is drawn from the seed. */
void emu_context_may_wait(struct emu_context *context) {
    static uint64_t random;
    if (!random) random = emu_config.seed * 0x9e3779b9u + (uint64_t)(emu_config.local_rank + 1) * 0x27d4eb2fu + 1;
    const bool drawn = emu_random(&random) & 1;
    if (context && (emu_config.sync == EMU_SYNC_ALWAYS || (emu_config.sync == EMU_SYNC_DRAWN && drawn)))
        emu_context_wait(context);
}

/* What the context's streams have done and have yet to do. */
static uint64_t count_work(const struct emu_context *context, bool *idle) {
    uint64_t done = 0;
    *idle = true;
    for (struct emu_stream *stream = NULL; (stream = emu_object_of(EMU_STREAM, stream));) {
        if (stream->context != context) continue;
        done += stream->completed;
        *idle &= stream->completed == stream->submitted;
    }
    return done;
}

/* A context's end takes its work with it. Here it lets that finish first, unless for a while nothing but waits for values
 * is under way. */
void emu_context_drain(struct emu_context *context) {
    enum { STEP_NS = 50000000, PATIENCE = 60 /* steps */ };
    uint64_t before = 0;
    bool idle;
    for (int steps = 0;;) {
        uint64_t done = count_work(context, &idle);
        if (idle) break;
        if (done != before || !context->waits) steps = 0;
        before = done;
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += STEP_NS;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        if (pthread_cond_timedwait(&emu.progress, &emu.lock, &until) == ETIMEDOUT) steps++;
        if (steps > PATIENCE && !context->abandoned) {
            context->abandoned = true;
            emu_say("a context ended under a wait for a value that does not come");
        }
    }
    emu_context_wait(context);
}

CUresult emu_stream_create(CUstream *out, struct emu_context *context, struct emu_green *green, unsigned flags,
                           int priority) {
    emu_lock();
    struct emu_stream *stream = emu_stream_new(context, flags, priority > 0 ? 0 : priority < -5 ? -5 : priority);
    *out = stream ? emu_object_handle(stream) : NULL;
    if (stream) stream->green = green;
    emu_unlock();
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult create(CUstream *out, unsigned flags, int priority) {
    struct emu_context *context;
    if (!out || flags & ~1u) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = emu_context_need(&context);
    return result == CUDA_SUCCESS ? emu_stream_create(out, context, emu_current_green(), flags, priority) : result;
}

EMU_CALL(cuStreamCreate, 2000, (CUstream * stream, unsigned flags), (stream, flags)) {
    return create(stream, flags, 0);
}

EMU_CALL(cuStreamCreateWithPriority, 5050, (CUstream * stream, unsigned flags, int priority),
         (stream, flags, priority)) {
    return create(stream, flags, priority);
}

EMU_LOCKED(cuStreamDestroy_v2, 2000, (CUstream handle), (handle)) {
    struct emu_stream *stream = emu_object_get(handle, EMU_STREAM);
    if (!stream || stream->legacy) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->green && !stream->green->object.alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (stream->capture) stream->capture->invalid = true;
    leave_queue(stream);
    emu_stream_end(stream);
    return CUDA_SUCCESS;
}

/* Seen on hardware: this and the next are refused also of a stream that does not capture, while this thread captures. */
EMU_LOCKED(cuStreamSynchronize, 2000, (CUstream handle), (handle)) {
    struct emu_stream *stream;
    EMU_TRY(stream_awaited(handle, &stream));
    EMU_TRY(emu_capture_unsafe());
    if (stream->legacy) emu_push(stream, &(struct emu_op){.kind = EMU_OP_EMPTY, .context = stream->context});
    emu_wait_until(stream, stream->submitted);
    return stream->context->sticky;
}

EMU_LOCKED(cuStreamQuery, 2000, (CUstream handle), (handle)) {
    struct emu_stream *stream;
    EMU_TRY(stream_awaited(handle, &stream));
    EMU_TRY(emu_capture_unsafe());
    if (stream->completed < stream->submitted) return CUDA_ERROR_NOT_READY;
    emu_late_flush_stream(stream);
    return CUDA_SUCCESS;
}

/* The special streams are those of the context that is current. */
static struct emu_green *green_of(CUstream handle, const struct emu_stream *stream) {
    const bool special = !handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
    return special ? emu_current_green() : stream->green;
}

EMU_LOCKED(cuStreamGetCtx_v2, 12050, (CUstream handle, CUcontext *context, CUgreenCtx *green),
           (handle, context, green)) {
    struct emu_stream *stream;
    if (!context || !green) return CUDA_ERROR_INVALID_VALUE;
    EMU_TRY(emu_stream_of(handle, &stream));
    *context = (CUcontext)stream->context;
    *green = (CUgreenCtx)green_of(handle, stream);
    return CUDA_SUCCESS;
}

static CUcontext context_of(CUstream handle, const struct emu_stream *stream) {
    const struct emu_green *green = green_of(handle, stream);
    return (CUcontext)(green ? green->context : stream->context);
}

/* A fact of a stream. */
#define GETTER(symbol, since, type, fact)                                                                              \
    EMU_LOCKED(symbol, since, (CUstream handle, type * out), (handle, out)) {                                          \
        struct emu_stream *stream;                                                                                     \
        if (!out) return CUDA_ERROR_INVALID_VALUE;                                                                     \
        EMU_TRY(emu_stream_of(handle, &stream));                                                                       \
        *out = fact;                                                                                                   \
        return CUDA_SUCCESS;                                                                                           \
    }
GETTER(cuStreamGetCtx, 9020, CUcontext, context_of(handle, stream))
GETTER(cuStreamGetGreenCtx, 12040, CUgreenCtx, (CUgreenCtx)green_of(handle, stream))
GETTER(cuStreamGetDevice, 12080, CUdevice, stream->context->device)
GETTER(cuStreamGetFlags, 5050, unsigned, stream->flags)
GETTER(cuStreamGetPriority, 5050, int, stream->priority)

/* As driver 580 has it, a stream that captures may not be asked. */
EMU_LOCKED(cuStreamGetId, 12000, (CUstream handle, unsigned long long *id), (handle, id)) {
    struct emu_stream *stream;
    if (!id) return CUDA_ERROR_INVALID_VALUE;
    EMU_TRY(emu_stream_of(handle, &stream));
    EMU_TRY(emu_capture_refuse(stream));
    *id = stream->id;
    return CUDA_SUCCESS;
}
