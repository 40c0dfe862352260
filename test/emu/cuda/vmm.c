/* vmm.c - the virtual memory calls.  Memory is a memfd whose name tells the GPU that owns it, so that the file
 * descriptor crosses processes as on the hardware (share.c), and a mapping in another process knows whose memory it
 * is. */
#define _GNU_SOURCE
#include "emu.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool aligned(size_t value) {
    return value % EMU_GRANULE == 0;
}

static CUresult check_prop(const CUmemAllocationProp *prop) {
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    if (!emu_device_valid(prop->location.id)) return CUDA_ERROR_INVALID_DEVICE;
    return emu_handle_types(prop->requestedHandleTypes);
}

EMU_CALL(cuMemGetAllocationGranularity, 10020,
         (size_t * granularity, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option),
         (granularity, prop, option)) {
    if (!granularity) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_prop(prop);
    if (result == CUDA_ERROR_NOT_PERMITTED) result = CUDA_SUCCESS; /* to ask is */
    if (result == CUDA_SUCCESS) *granularity = EMU_GRANULE;
    return result;
}

struct emu_handle *emu_handle_new(int fd, size_t size, int device) {
    struct emu_handle *handle = emu_object_new(EMU_HANDLE, sizeof *handle);
    struct stat st;
    if (!handle) return NULL;
    if (!fstat(fd, &st)) handle->identity = st.st_ino;
    handle->fd = fd;
    handle->size = size;
    handle->device = device;
    handle->references = 1;
    return handle;
}

/* Memory lives while a handle, a mapping or a binding does; a multicast object while a handle or a mapping does. */
void emu_handle_drop(struct emu_handle *handle) {
    if (handle->references || handle->mappings) return;
    CUdevice device = emu_device_of_index(handle->device);
    if (handle->multicast) emu_multicast_end(handle->multicast);
    close(handle->fd);
    if (!handle->imported && device >= 0) emu_used[device] -= handle->size;
    emu_object_end(handle);
}

EMU_LOCKED(cuMemCreate, 10020,
           (CUmemGenericAllocationHandle * out, size_t size, const CUmemAllocationProp *prop, unsigned long long flags),
           (out, size, prop, flags)) {
    EMU_TRY(check_prop(prop));
    if (!out || !size || flags || !aligned(size)) return CUDA_ERROR_INVALID_VALUE;
    CUdevice device = prop->location.id;
    char name[64];
    snprintf(name, sizeof name, EMU_NAME_GPU "%d", emu_config.visible[device]);
    int fd = -1;
    if (size <= emu_config.memory && emu_used[device] <= emu_config.memory - size) fd = memfd_create(name, MFD_CLOEXEC);
    struct emu_handle *handle = NULL;
    if (fd >= 0 && !ftruncate(fd, (off_t)size) && emu_poison_fd(fd, size))
        handle = emu_handle_new(fd, size, emu_config.visible[device]);
    if (!handle) {
        if (fd >= 0) close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    handle->types = prop->requestedHandleTypes;
    emu_used[device] += size;
    *out = (CUmemGenericAllocationHandle)(uintptr_t)handle;
    return CUDA_SUCCESS;
}

struct emu_handle *emu_handle_get(CUmemGenericAllocationHandle handle) {
    struct emu_handle *h = emu_object_get((void *)(uintptr_t)handle, EMU_HANDLE);
    if (h && !h->references) emu_object_gone(h, h); /* only what is mapped of it is left */
    return h;
}

EMU_LOCKED(cuMemRelease, 10020, (CUmemGenericAllocationHandle handle), (handle)) {
    struct emu_handle *h = emu_handle_get(handle);
    if (!h) return CUDA_ERROR_INVALID_VALUE;
    h->references--;
    emu_handle_drop(h);
    return CUDA_SUCCESS;
}

EMU_LOCKED(cuMemGetAllocationPropertiesFromHandle, 10020,
           (CUmemAllocationProp * prop, CUmemGenericAllocationHandle handle), (prop, handle)) {
    struct emu_handle *h = emu_handle_get(handle);
    if (!h || !prop || h->multicast)
        return CUDA_ERROR_INVALID_VALUE; /* of a multicast object there are none: a guess */
    memset(prop, 0, sizeof *prop);
    prop->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop->requestedHandleTypes = (CUmemAllocationHandleType)h->types;
    prop->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop->location.id = emu_device_of_index(h->device);
    return CUDA_SUCCESS;
}

/* Found at its addresses from now on. */
static struct emu_range *range_new(enum emu_range_kind kind, uintptr_t base, size_t size) {
    struct emu_range *range = emu_object_new(EMU_RANGE, sizeof *range);
    if (!range) return NULL;
    range->kind = kind;
    range->base = range->outer = base;
    range->size = range->outer_size = size;
    emu_arena_set(base, size, range);
    return range;
}

/* A reservation has a range of its own, found through outer; its mappings' ranges take its granules over. */
static struct emu_range *reservation(uintptr_t address, size_t size) {
    for (struct emu_range *range = NULL; (range = emu_object_of(EMU_RANGE, range));) {
        if (range->object.alive && range->kind == EMU_RESERVED && emu_range_holds(range, address, size)) return range;
    }
    return NULL;
}

EMU_LOCKED(cuMemAddressReserve, 10020,
           (CUdeviceptr * out, size_t size, size_t alignment, CUdeviceptr address, unsigned long long flags),
           (out, size, alignment, address, flags)) {
    if (!out || !size || !aligned(size) || flags || (alignment & (alignment - 1))) return CUDA_ERROR_INVALID_VALUE;
    uintptr_t base = emu_arena_take(size, alignment);
    struct emu_range *range = base ? range_new(EMU_RESERVED, base, size) : NULL;
    if (!range) return CUDA_ERROR_OUT_OF_MEMORY;
    range->device = -1;
    *out = base;
    return CUDA_SUCCESS;
}

static bool all_reserved(uintptr_t base, size_t size) {
    for (uintptr_t p = base; p < base + size; p += EMU_GRANULE) {
        struct emu_range *range = emu_range_of(p);
        if (!range || range->kind != EMU_RESERVED) return false;
    }
    return true;
}

EMU_LOCKED(cuMemAddressFree, 10020, (CUdeviceptr address, size_t size), (address, size)) {
    struct emu_range *range = reservation((uintptr_t)address, size);
    if (!range || range->base != address || range->size != size || !all_reserved(range->base, size))
        return CUDA_ERROR_INVALID_VALUE;
    emu_arena_give(range->base, size);
    emu_object_end(range);
    return CUDA_SUCCESS;
}

/* A multicast mapping has no memory of its own: whoever touches it on the host is stopped there. */
EMU_LOCKED(cuMemMap, 10020,
           (CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
            unsigned long long flags),
           (address, size, offset, handle, flags)) {
    const uintptr_t base = (uintptr_t)address;
    if (!size || !aligned(size) || !aligned(address) || offset || flags) return CUDA_ERROR_INVALID_VALUE;
    struct emu_handle *h = emu_handle_get(handle);
    if (!h) return CUDA_ERROR_INVALID_VALUE;
    if (h->multicast) EMU_TRY(emu_multicast_complete(h));
    if (size > h->size || !reservation(base, size) || !all_reserved(base, size)) return CUDA_ERROR_INVALID_VALUE;
    if (!h->multicast && mmap((void *)base, size, PROT_NONE, MAP_SHARED | MAP_FIXED, h->fd, 0) == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct emu_range *range = range_new(h->multicast ? EMU_MULTICAST : EMU_MAPPED, base, size);
    if (!range) return CUDA_ERROR_OUT_OF_MEMORY;
    range->device = h->device;
    range->handle = h;
    h->mappings++;
    return CUDA_SUCCESS;
}

static bool is_mapping(const struct emu_range *range) {
    return range && (range->kind == EMU_MAPPED || range->kind == EMU_MULTICAST);
}

/* Whole mappings only, from end to end. */
static bool all_mapped(uintptr_t base, size_t size) {
    for (uintptr_t p = base; p < base + size;) {
        const struct emu_range *range = emu_range_of(p);
        if (!is_mapping(range) || range->base != p || range->size > base + size - p) return false;
        p += range->size;
    }
    return size;
}

EMU_LOCKED(cuMemUnmap, 10020, (CUdeviceptr address, size_t size), (address, size)) {
    uintptr_t end = (uintptr_t)address + size;
    emu_context_may_wait(emu_current());
    if (!all_mapped((uintptr_t)address, size)) return CUDA_ERROR_INVALID_VALUE;
    for (uintptr_t p = (uintptr_t)address; p < end;) {
        struct emu_range *range = emu_range_of(p);
        emu_arena_set(p, range->size, reservation(p, range->size));
        emu_late_forget(range);
        mmap((void *)p, range->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        range->handle->mappings--;
        emu_handle_drop(range->handle);
        emu_object_end(range);
        p += range->size;
    }
    return CUDA_SUCCESS;
}

static CUresult set_access(struct emu_range *range, const CUmemAccessDesc *desc) {
    CUdevice device = desc->location.id;
    if (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    if (!emu_device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
    if (range->kind == EMU_MULTICAST ? !emu_multicast_has(range->handle->multicast, emu_config.visible[device])
                                     : !emu_peer_possible(emu_config.visible[device], range->device))
        return CUDA_ERROR_INVALID_DEVICE; /* for a device that is not of the team: a guess */
    uint32_t bit = 1u << device;
    range->readable &= ~bit;
    range->writable &= ~bit;
    if (desc->flags & CU_MEM_ACCESS_FLAGS_PROT_READ) range->readable |= bit;
    if (desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) range->writable |= bit;
    if (range->kind == EMU_MULTICAST) return CUDA_SUCCESS;
    int protection = range->writable ? PROT_READ | PROT_WRITE : range->readable ? PROT_READ : PROT_NONE;
    return mprotect((void *)range->base, range->size, protection) ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

EMU_LOCKED(cuMemSetAccess, 10020, (CUdeviceptr address, size_t size, const CUmemAccessDesc *desc, size_t count),
           (address, size, desc, count)) {
    if (!desc || !count || !all_mapped((uintptr_t)address, size)) return CUDA_ERROR_INVALID_VALUE;
    for (uintptr_t p = (uintptr_t)address; p < (uintptr_t)address + size; p += emu_range_of(p)->size)
        for (size_t i = 0; i < count; i++) EMU_TRY(set_access(emu_range_of(p), &desc[i]));
    return CUDA_SUCCESS;
}

EMU_CALL(cuMemGetAccess, 10020, (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address),
         (flags, location, address)) {
    struct emu_range *range = emu_range_of((uintptr_t)address);
    if (!flags || !location || !is_mapping(range)) return CUDA_ERROR_INVALID_VALUE;
    *flags = range->writable >> location->id & 1   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
             : range->readable >> location->id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                   : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

EMU_LOCKED(cuMemRetainAllocationHandle, 11000, (CUmemGenericAllocationHandle * out, void *address), (out, address)) {
    struct emu_range *range = emu_range_of((uintptr_t)address);
    if (!out || !is_mapping(range)) return CUDA_ERROR_INVALID_VALUE;
    range->handle->references++;
    *out = (CUmemGenericAllocationHandle)(uintptr_t)range->handle;
    return CUDA_SUCCESS;
}
