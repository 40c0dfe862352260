/* context.c - contexts, and each thread's stack of them. */
#include "emu.h"

enum { MAX_DEPTH = 64 };
static _Thread_local struct emu_context *stack[MAX_DEPTH];
static _Thread_local int depth;
static struct emu_context *primary[EMU_MAX_DEVICES]; /* one for good: retained again, it has the same handle */

static struct emu_context *base(struct emu_context *context) {
    return context->green ? context->green->primary : context;
}

struct emu_context *emu_current(void) {
    return depth ? base(stack[depth - 1]) : NULL;
}

struct emu_green *emu_current_green(void) {
    return depth ? stack[depth - 1]->green : NULL;
}

int emu_device_now(void) {
    struct emu_context *context = emu_current();
    return context ? context->device : -1;
}

CUresult emu_context_need(struct emu_context **context) {
    *context = emu_current();
    if (!*context) return CUDA_ERROR_INVALID_CONTEXT;
    if (!(*context)->object.alive || !stack[depth - 1]->object.alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return (*context)->sticky;
}

static void begin(struct emu_context *context) {
    static uint64_t ids;
    context->id = ++ids;
    context->legacy = emu_stream_new(context, 0, 0);
    if (context->legacy) context->legacy->legacy = true;
}

static struct emu_context *context_new(CUdevice device, bool is_primary) {
    struct emu_context *context = emu_object_new(EMU_CONTEXT, sizeof *context);
    if (!context) return NULL;
    context->device = device;
    context->primary = is_primary;
    begin(context);
    return context->legacy ? context : NULL;
}

/* Takes down all that lives in the context; what its user did not free himself stays on record for the leak report. */
static void context_end(struct emu_context *context) {
    emu_context_drain(context);
    for (struct emu_object *o = NULL; (o = emu_object_next(o));) {
        if (!o->alive) continue;
        if (o->kind == EMU_STREAM && ((struct emu_stream *)o)->context == context) {
            o->orphan = !((struct emu_stream *)o)->legacy;
            emu_stream_end((struct emu_stream *)o);
        } else if (o->kind == EMU_EVENT && ((struct emu_event *)o)->context == context) {
            o->orphan = true;
            emu_object_end(o);
        } else if (o->kind == EMU_MODULE && ((struct emu_module *)o)->context == context) {
            emu_module_end((struct emu_module *)o);
        }
    }
    emu_context_free_memory(context);
    emu_object_end(context);
}

struct emu_context *emu_primary_retain(CUdevice device) {
    struct emu_context *c = primary[device];
    if (!c) {
        c = primary[device] = context_new(device, true);
    } else if (!c->object.alive) {
        c->object.alive = true;
        c->sticky = CUDA_SUCCESS;
        c->abandoned = false;
        c->peers = 0;
        begin(c);
    }
    if (c) c->retained++;
    return c;
}

void emu_primary_release(struct emu_context *context) {
    if (--context->retained == 0) context_end(context);
}

EMU_LOCKED(cuDevicePrimaryCtxRetain, 7000, (CUcontext * context, CUdevice device), (context, device)) {
    if (!context) return CUDA_ERROR_INVALID_VALUE;
    if (!emu_device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
    *context = (CUcontext)emu_primary_retain(device);
    return *context ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EMU_LOCKED(cuDevicePrimaryCtxRelease_v2, 7000, (CUdevice device), (device)) {
    if (!emu_device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
    if (!primary[device] || !primary[device]->retained) return CUDA_ERROR_INVALID_CONTEXT;
    emu_primary_release(primary[device]);
    return CUDA_SUCCESS;
}

EMU_CALL(cuDevicePrimaryCtxGetState, 7000, (CUdevice device, unsigned *flags, int *active), (device, flags, active)) {
    if (!emu_device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
    if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
    *flags = 0;
    *active = primary[device] && primary[device]->object.alive;
    return CUDA_SUCCESS;
}

EMU_LOCKED(cuCtxCreate_v2, 3020, (CUcontext * context, unsigned flags, CUdevice device), (context, flags, device)) {
    if (!context) return CUDA_ERROR_INVALID_VALUE;
    if (!emu_device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
    struct emu_context *c = depth < MAX_DEPTH ? context_new(device, false) : NULL;
    if (!c) return CUDA_ERROR_OUT_OF_MEMORY;
    c->retained = 1;
    *context = (CUcontext)(stack[depth++] = c);
    return CUDA_SUCCESS;
}

EMU_LOCKED(cuCtxCreate_v4, 12050, (CUcontext * context, CUctxCreateParams *parameters, unsigned flags, CUdevice device),
           (context, parameters, flags, device)) {
    return cuCtxCreate_v2_body(context, flags, device);
}

/* A context that is an argument: a primary one has its handle for good, and may be down. */
static CUresult valid(CUcontext handle, struct emu_context **context) {
    *context = emu_object_find(handle, EMU_CONTEXT);
    if (!*context) return CUDA_ERROR_INVALID_CONTEXT;
    if ((*context)->object.alive) return CUDA_SUCCESS;
    if (!(*context)->primary) emu_object_gone(*context, handle);
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

EMU_LOCKED(cuCtxDestroy_v2, 4000, (CUcontext context), (context)) {
    struct emu_context *c;
    EMU_TRY(valid(context, &c));
    if (c->primary || c->green) return CUDA_ERROR_INVALID_CONTEXT;
    context_end(c);
    if (depth && stack[depth - 1] == c) depth--;
    return CUDA_SUCCESS;
}

EMU_CALL(cuCtxGetCurrent, 4000, (CUcontext * context), (context)) {
    if (!context) return CUDA_ERROR_INVALID_VALUE;
    *context = depth ? (CUcontext)stack[depth - 1] : NULL;
    return CUDA_SUCCESS;
}

EMU_CALL(cuCtxSetCurrent, 4000, (CUcontext context), (context)) {
    struct emu_context *c;
    if (!context) {
        if (depth) depth--;
        return CUDA_SUCCESS;
    }
    EMU_TRY(valid(context, &c));
    if (!depth) depth = 1;
    stack[depth - 1] = c;
    return CUDA_SUCCESS;
}

EMU_CALL(cuCtxPushCurrent_v2, 4000, (CUcontext context), (context)) {
    struct emu_context *c;
    EMU_TRY(valid(context, &c));
    if (depth == MAX_DEPTH) return CUDA_ERROR_OUT_OF_MEMORY;
    stack[depth++] = c;
    return CUDA_SUCCESS;
}

EMU_CALL(cuCtxPopCurrent_v2, 4000, (CUcontext * context), (context)) {
    if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (context) *context = (CUcontext)stack[depth];
    return CUDA_SUCCESS;
}

/* The same, or for NULL the current one. */
static CUresult valid_or_current(CUcontext handle, struct emu_context **context) {
    *context = emu_current();
    return handle ? valid(handle, context) : *context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EMU_CALL(cuCtxGetDevice_v2, 13000, (CUdevice * device, CUcontext context), (device, context)) {
    struct emu_context *c;
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    EMU_TRY(valid_or_current(context, &c));
    *device = c->device;
    return CUDA_SUCCESS;
}

EMU_CALL(cuCtxGetDevice, 2000, (CUdevice * device), (device)) {
    return cuCtxGetDevice_v2_body(device, NULL);
}

EMU_CALL(cuCtxGetId, 12000, (CUcontext context, unsigned long long *id), (context, id)) {
    struct emu_context *c;
    EMU_TRY(valid_or_current(context, &c));
    *id = c->id;
    return CUDA_SUCCESS;
}

EMU_CALL(cuCtxGetFlags, 7000, (unsigned *flags), (flags)) {
    if (!flags) return CUDA_ERROR_INVALID_VALUE;
    *flags = 0;
    return emu_current() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EMU_CALL(cuCtxGetApiVersion, 3020, (CUcontext context, unsigned *version), (context, version)) {
    if (!version) return CUDA_ERROR_INVALID_VALUE;
    *version = 13000;
    return CUDA_SUCCESS;
}

EMU_CALL(cuCtxGetStreamPriorityRange, 5050, (int *least, int *greatest), (least, greatest)) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return emu_current() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

EMU_LOCKED(cuCtxSynchronize_v2, 13000, (CUcontext which), (which)) {
    struct emu_context *context;
    EMU_TRY(which ? valid(which, &context) : emu_context_need(&context));
    context = base(context);
    if (emu_capture_any(context, true)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    emu_context_wait(context);
    return context->sticky;
}

EMU_LOCKED(cuCtxSynchronize, 2000, (void), ()) {
    return cuCtxSynchronize_v2_body(NULL);
}

EMU_LOCKED(cuCtxEnablePeerAccess, 4000, (CUcontext peer, unsigned flags), (peer, flags)) {
    struct emu_context *context, *other;
    EMU_TRY(emu_context_need(&context));
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    if (valid(peer, &other) != CUDA_SUCCESS || other->device == context->device) return CUDA_ERROR_INVALID_CONTEXT;
    if (!emu_peer_possible(emu_config.visible[context->device], emu_config.visible[other->device]))
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (context->peers >> other->device & 1) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    context->peers |= 1u << other->device;
    return CUDA_SUCCESS;
}

EMU_LOCKED(cuCtxDisablePeerAccess, 4000, (CUcontext peer), (peer)) {
    struct emu_context *context, *other;
    EMU_TRY(emu_context_need(&context));
    if (valid(peer, &other) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_CONTEXT;
    if (!(context->peers >> other->device & 1)) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    context->peers &= ~(1u << other->device);
    return CUDA_SUCCESS;
}
