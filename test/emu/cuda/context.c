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

static uint64_t ids;

static struct emu_context *context_new(CUdevice device, bool is_primary) {
    struct emu_context *context = emu_object_new(EMU_CONTEXT, sizeof *context);
    if (!context) return NULL;
    context->device = device;
    context->primary = is_primary;
    context->id = ++ids;
    context->legacy = emu_stream_new(context, 0, 0);
    if (context->legacy) context->legacy->legacy = true;
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
        c->id = ++ids;
        c->sticky = CUDA_SUCCESS;
        c->abandoned = false;
        c->peers = 0;
        c->legacy = emu_stream_new(c, 0, 0);
        if (c->legacy) c->legacy->legacy = true;
    }
    if (c) c->retained++;
    return c;
}

void emu_primary_release(struct emu_context *context) {
    if (--context->retained == 0) context_end(context);
}

EMU_CALL(cuDevicePrimaryCtxRetain, 7000, (CUcontext * context, CUdevice device), (context, device)) {
    if (!context) return CUDA_ERROR_INVALID_VALUE;
    if (device < 0 || device >= emu_config.devices) return CUDA_ERROR_INVALID_DEVICE;
    emu_lock();
    *context = (CUcontext)emu_primary_retain(device);
    emu_unlock();
    return *context ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EMU_CALL(cuDevicePrimaryCtxRelease_v2, 7000, (CUdevice device), (device)) {
    if (device < 0 || device >= emu_config.devices) return CUDA_ERROR_INVALID_DEVICE;
    emu_lock();
    struct emu_context *c = primary[device];
    CUresult result = c && c->retained ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS) emu_primary_release(c);
    emu_unlock();
    return result;
}

EMU_CALL(cuDevicePrimaryCtxGetState, 7000, (CUdevice device, unsigned *flags, int *active), (device, flags, active)) {
    if (device < 0 || device >= emu_config.devices) return CUDA_ERROR_INVALID_DEVICE;
    if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
    *flags = 0;
    *active = primary[device] && primary[device]->object.alive;
    return CUDA_SUCCESS;
}

static CUresult context_create(CUcontext *context, CUdevice device) {
    if (!context) return CUDA_ERROR_INVALID_VALUE;
    if (device < 0 || device >= emu_config.devices) return CUDA_ERROR_INVALID_DEVICE;
    if (depth == MAX_DEPTH) return CUDA_ERROR_OUT_OF_MEMORY;
    emu_lock();
    struct emu_context *c = context_new(device, false);
    emu_unlock();
    if (!c) return CUDA_ERROR_OUT_OF_MEMORY;
    c->retained = 1;
    *context = (CUcontext)(stack[depth++] = c);
    return CUDA_SUCCESS;
}

EMU_CALL(cuCtxCreate_v2, 3020, (CUcontext * context, unsigned flags, CUdevice device), (context, flags, device)) {
    return context_create(context, device);
}

EMU_CALL(cuCtxCreate_v4, 12050, (CUcontext * context, CUctxCreateParams *parameters, unsigned flags, CUdevice device),
         (context, parameters, flags, device)) {
    return context_create(context, device);
}

/* A context that is an argument: a primary one has its handle for good, and may be down. */
static CUresult valid(CUcontext handle, struct emu_context **context) {
    *context = emu_object_find(handle, EMU_CONTEXT);
    if (!*context) return CUDA_ERROR_INVALID_CONTEXT;
    if ((*context)->object.alive) return CUDA_SUCCESS;
    if (!(*context)->primary) emu_object_gone(*context, handle);
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

EMU_CALL(cuCtxDestroy_v2, 4000, (CUcontext context), (context)) {
    struct emu_context *c;
    emu_lock();
    CUresult result = valid(context, &c);
    if (result == CUDA_SUCCESS && (c->primary || c->green)) result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS) {
        context_end(c);
        if (depth && stack[depth - 1] == c) depth--;
    }
    emu_unlock();
    return result;
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
    CUresult result = valid(context, &c);
    if (result != CUDA_SUCCESS) return result;
    if (!depth) depth = 1;
    stack[depth - 1] = c;
    return CUDA_SUCCESS;
}

EMU_CALL(cuCtxPushCurrent_v2, 4000, (CUcontext context), (context)) {
    struct emu_context *c;
    CUresult result = valid(context, &c);
    if (result != CUDA_SUCCESS) return result;
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

EMU_CALL(cuCtxGetDevice, 2000, (CUdevice * device), (device)) {
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    struct emu_context *context = emu_current();
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    *device = context->device;
    return CUDA_SUCCESS;
}

EMU_CALL(cuCtxGetDevice_v2, 13000, (CUdevice * device, CUcontext context), (device, context)) {
    struct emu_context *c = emu_current();
    CUresult result = context ? valid(context, &c) : c ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS) return result;
    *device = c->device;
    return CUDA_SUCCESS;
}

EMU_CALL(cuCtxGetId, 12000, (CUcontext context, unsigned long long *id), (context, id)) {
    struct emu_context *c = emu_current();
    CUresult result = context ? valid(context, &c) : c ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS) *id = c->id;
    return result;
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

static CUresult synchronize(CUcontext which) {
    struct emu_context *context;
    emu_lock();
    CUresult result = which ? valid(which, &context) : emu_context_need(&context);
    if (result == CUDA_SUCCESS) context = base(context);
    if (result == CUDA_SUCCESS && emu_capture_any(context, true)) result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (result == CUDA_SUCCESS) {
        emu_context_wait(context);
        result = context->sticky;
    }
    emu_unlock();
    return result;
}

EMU_CALL(cuCtxSynchronize, 2000, (void), ()) {
    return synchronize(NULL);
}
EMU_CALL(cuCtxSynchronize_v2, 13000, (CUcontext context), (context)) {
    return synchronize(context);
}

EMU_CALL(cuCtxEnablePeerAccess, 4000, (CUcontext peer, unsigned flags), (peer, flags)) {
    struct emu_context *context, *other;
    emu_lock();
    CUresult result = emu_context_need(&context), found = valid(peer, &other);
    if (result == CUDA_SUCCESS) {
        if (flags)
            result = CUDA_ERROR_INVALID_VALUE;
        else if (found != CUDA_SUCCESS || other->device == context->device)
            result = CUDA_ERROR_INVALID_CONTEXT;
        else if (!emu_peer_possible(emu_config.visible[context->device], emu_config.visible[other->device]))
            result = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
        else if (context->peers >> other->device & 1)
            result = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
        else
            context->peers |= 1u << other->device;
    }
    emu_unlock();
    return result;
}

EMU_CALL(cuCtxDisablePeerAccess, 4000, (CUcontext peer), (peer)) {
    struct emu_context *context, *other;
    emu_lock();
    CUresult result = emu_context_need(&context), found = valid(peer, &other);
    if (result == CUDA_SUCCESS) {
        if (found != CUDA_SUCCESS)
            result = CUDA_ERROR_INVALID_CONTEXT;
        else if (!(context->peers >> other->device & 1))
            result = CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
        else
            context->peers &= ~(1u << other->device);
    }
    emu_unlock();
    return result;
}
