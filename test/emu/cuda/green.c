/* green.c - green contexts: some multiprocessors of a device, and streams that have no others.
 *
 * A green context has no memory, functions or events of its own: all of them are the primary context's, which it retains.  So its
 * CUcontext may be current in the primary one's place, and what is launched into its streams may be launched with either of
 * them current, by the primary context's functions.  That is how frameworks use them: they hand such a stream to code that knows
 * only the primary context.  A resource is a range of multiprocessors here; a descriptor is such a range and its device, as a number. */
#include "emu.h"

#include <string.h>

/* What a CUdevResource keeps for the driver. */
struct inside {
    CUdevice device;
    struct emu_sms sms;
};
enum { FIRST_BITS = 16 };

/* What partitions are made of: 8 multiprocessors from compute capability 9.0 on.  A box that has few of them has finer ones. */
static unsigned unit(void) {
    return emu_config.sms >= 16 ? 8 : 1;
}

static CUdevResource resource(CUdevice device, unsigned first, unsigned count) {
    CUdevResource made;
    memset(&made, 0, sizeof made);
    if (!count) return made;
    made.type = CU_DEV_RESOURCE_TYPE_SM;
    made.sm = (CUdevSmResource){.smCount = count, .minSmPartitionSize = unit(), .smCoscheduledAlignment = unit()};
    memcpy(made._internal_padding, &(struct inside){device, {first, count}}, sizeof(struct inside));
    return made;
}

static struct inside inside(const CUdevResource *from) {
    struct inside found;
    memcpy(&found, from->_internal_padding, sizeof found);
    return found;
}

EMU_CALL(cuDeviceGetDevResource, 12040, (CUdevice device, CUdevResource *out, CUdevResourceType type),
         (device, out, type)) {
    if (!emu_device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    *out = resource(device, 0, (unsigned)emu_config.sms);
    return CUDA_SUCCESS;
}

EMU_CALL(cuDevSmResourceSplitByCount, 12040,
         (CUdevResource * parts, unsigned *groups, const CUdevResource *input, CUdevResource *remaining, unsigned flags,
          unsigned least),
         (parts, groups, input, remaining, flags, least)) {
    if (!groups || !input || flags & ~3u) return CUDA_ERROR_INVALID_VALUE;
    if (input->type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    const struct inside all = inside(input);
    if (least > all.sms.count) return CUDA_ERROR_INVALID_VALUE;
    const unsigned size = least ? (least + unit() - 1) / unit() * unit() : unit(), most = all.sms.count / size;
    if (!most) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (!parts || *groups > most) *groups = most;
    for (unsigned i = 0; parts && i < *groups; i++) parts[i] = resource(all.device, all.sms.first + i * size, size);
    const unsigned used = *groups * size;
    if (remaining) *remaining = resource(all.device, all.sms.first + used, all.sms.count - used);
    return CUDA_SUCCESS;
}

/* Several resources are one if they lie side by side, in order. */
EMU_CALL(cuDevResourceGenerateDesc, 12040, (CUdevResourceDesc * out, CUdevResource *resources, unsigned count),
         (out, resources, count)) {
    if (!out || !resources || !count) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++)
        if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    struct inside all = inside(&resources[0]);
    for (unsigned i = 1; i < count; i++) {
        const struct inside next = inside(&resources[i]);
        if (next.device != all.device || next.sms.first != all.sms.first + all.sms.count)
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        all.sms.count += next.sms.count;
    }
    const uint64_t number = ((uint64_t)all.device << 2 * FIRST_BITS | all.sms.first) << FIRST_BITS | all.sms.count;
    *out = (CUdevResourceDesc)(uintptr_t)number;
    return CUDA_SUCCESS;
}

EMU_LOCKED(cuGreenCtxCreate, 12040, (CUgreenCtx * out, CUdevResourceDesc desc, CUdevice device, unsigned flags),
           (out, desc, device, flags)) {
    const uint64_t number = (uintptr_t)desc, mask = (1u << FIRST_BITS) - 1;
    const struct emu_sms sms = {(unsigned)(number >> FIRST_BITS & mask), (unsigned)(number & mask)};
    if (!out || flags != CU_GREEN_CTX_DEFAULT_STREAM || !sms.count) return CUDA_ERROR_INVALID_VALUE;
    if (!emu_device_valid(device) || (CUdevice)(number >> 3 * FIRST_BITS) != device) return CUDA_ERROR_INVALID_DEVICE;
    struct emu_green *green = emu_object_new(EMU_GREEN, sizeof *green);
    if (!green) return CUDA_ERROR_OUT_OF_MEMORY;
    green->sms = sms;
    green->primary = emu_primary_retain(device);
    green->context = emu_object_new(EMU_CONTEXT, sizeof *green->context);
    if (!green->primary || !green->context) return CUDA_ERROR_OUT_OF_MEMORY;
    green->context->device = device;
    green->context->green = green;
    *out = (CUgreenCtx)green;
    return CUDA_SUCCESS;
}

EMU_LOCKED(cuGreenCtxDestroy, 12040, (CUgreenCtx handle), (handle)) {
    struct emu_green *green = emu_object_get(handle, EMU_GREEN);
    if (!green) return CUDA_ERROR_INVALID_CONTEXT;
    emu_object_end(green->context);
    emu_object_end(green);
    emu_primary_release(green->primary);
    return CUDA_SUCCESS;
}

EMU_CALL(cuCtxFromGreenCtx, 12040, (CUcontext * out, CUgreenCtx handle), (out, handle)) {
    const struct emu_green *green = emu_object_get(handle, EMU_GREEN);
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (!green) return CUDA_ERROR_INVALID_CONTEXT;
    *out = (CUcontext)green->context;
    return CUDA_SUCCESS;
}

EMU_CALL(cuGreenCtxGetDevResource, 12040, (CUgreenCtx handle, CUdevResource *out, CUdevResourceType type),
         (handle, out, type)) {
    const struct emu_green *green = emu_object_get(handle, EMU_GREEN);
    if (!green) return CUDA_ERROR_INVALID_CONTEXT;
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    *out = resource(green->primary->device, green->sms.first, green->sms.count);
    return CUDA_SUCCESS;
}

EMU_CALL(cuGreenCtxStreamCreate, 12050, (CUstream * out, CUgreenCtx handle, unsigned flags, int priority),
         (out, handle, flags, priority)) {
    struct emu_green *green = emu_object_get(handle, EMU_GREEN);
    if (!green) return CUDA_ERROR_INVALID_CONTEXT;
    if (!out || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    return emu_stream_create(out, green->primary, green, flags, priority);
}
