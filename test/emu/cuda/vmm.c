/* vmm.c - the virtual memory calls.  Memory is a memfd whose name tells the GPU that owns it, so that the file
 * descriptor crosses processes as on the hardware, and a mapping in another process knows whose memory it is. */
#define _GNU_SOURCE
#include "emu.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "beeline-emu-gpu"
enum { HANDLE_TYPE = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR };

static bool aligned(size_t value) {
    return value % EMU_GRANULE == 0;
}

static CUresult check_prop(const CUmemAllocationProp *prop) {
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    if (prop->location.id < 0 || prop->location.id >= emu_config.devices) return CUDA_ERROR_INVALID_DEVICE;
    if (prop->requestedHandleTypes & ~HANDLE_TYPE) return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

EMU_CALL(cuMemGetAllocationGranularity,
         (size_t * granularity, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option),
         (granularity, prop, option)) {
    if (!granularity) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_prop(prop);
    if (result == CUDA_SUCCESS) *granularity = EMU_GRANULE;
    return result;
}

static struct emu_handle *handle_new(int fd, size_t size, int device) {
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

/* Memory lives while a handle or a mapping does. */
static void handle_drop(struct emu_handle *handle) {
    if (handle->references || handle->mappings) return;
    close(handle->fd);
    CUdevice device = emu_device_of_index(handle->device);
    if (!handle->imported && device >= 0) emu_used[device] -= handle->size;
    emu_object_end(handle);
}

EMU_CALL(cuMemCreate,
         (CUmemGenericAllocationHandle * out, size_t size, const CUmemAllocationProp *prop, unsigned long long flags),
         (out, size, prop, flags)) {
    CUresult result = check_prop(prop);
    if (result != CUDA_SUCCESS) return result;
    if (!out || !size || flags || !aligned(size)) return CUDA_ERROR_INVALID_VALUE;
    CUdevice device = prop->location.id;
    char name[64];
    snprintf(name, sizeof name, NAME "%d", emu_config.visible[device]);
    emu_lock();
    int fd = -1;
    if (size <= emu_config.memory && emu_used[device] <= emu_config.memory - size) fd = memfd_create(name, MFD_CLOEXEC);
    struct emu_handle *handle = NULL;
    if (fd >= 0 && !ftruncate(fd, (off_t)size) && emu_poison_fd(fd, size))
        handle = handle_new(fd, size, emu_config.visible[device]);
    if (handle) {
        handle->exportable = prop->requestedHandleTypes & HANDLE_TYPE;
        emu_used[device] += size;
        *out = (CUmemGenericAllocationHandle)(uintptr_t)handle;
    } else if (fd >= 0) {
        close(fd);
    }
    emu_unlock();
    return handle ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static struct emu_handle *handle_get(CUmemGenericAllocationHandle handle) {
    struct emu_handle *h = emu_object_get((void *)(uintptr_t)handle, EMU_HANDLE);
    return h && h->references ? h : NULL;
}

EMU_CALL(cuMemRelease, (CUmemGenericAllocationHandle handle), (handle)) {
    emu_lock();
    struct emu_handle *h = handle_get(handle);
    if (h) {
        h->references--;
        handle_drop(h);
    }
    emu_unlock();
    return h ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EMU_CALL(cuMemGetAllocationPropertiesFromHandle, (CUmemAllocationProp * prop, CUmemGenericAllocationHandle handle),
         (prop, handle)) {
    emu_lock();
    struct emu_handle *h = handle_get(handle);
    if (h && prop) {
        memset(prop, 0, sizeof *prop);
        prop->type = CU_MEM_ALLOCATION_TYPE_PINNED;
        prop->requestedHandleTypes = h->exportable ? HANDLE_TYPE : CU_MEM_HANDLE_TYPE_NONE;
        prop->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        prop->location.id = emu_device_of_index(h->device);
    }
    emu_unlock();
    return h && prop ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EMU_CALL(cuMemExportToShareableHandle,
         (void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags),
         (out, handle, type, flags)) {
    if (!out || flags) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    emu_lock();
    struct emu_handle *h = handle_get(handle);
    CUresult result = h && h->exportable ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    int fd = result == CUDA_SUCCESS ? fcntl(h->fd, F_DUPFD_CLOEXEC, 3) : -1;
    if (result == CUDA_SUCCESS && fd < 0) result = CUDA_ERROR_OPERATING_SYSTEM;
    if (result == CUDA_SUCCESS) *(int *)out = fd;
    emu_unlock();
    return result;
}

/* Index on the box of the GPU whose memory the descriptor is; -1 if it is none. */
static int owner_of_fd(int fd) {
    char link[64], target[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, target, sizeof target - 1);
    if (n < 0) return -1;
    target[n] = 0;
    const char *name = strstr(target, NAME);
    return name ? (int)strtol(name + strlen(NAME), NULL, 10) : -1;
}

EMU_CALL(cuMemImportFromShareableHandle,
         (CUmemGenericAllocationHandle * out, void *source, CUmemAllocationHandleType type), (out, source, type)) {
    struct stat st;
    int fd = (int)(intptr_t)source;
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    int owner = owner_of_fd(fd);
    if (owner < 0 || fstat(fd, &st)) return CUDA_ERROR_INVALID_VALUE;
    int here = emu_device_now();
    if (here >= 0 && !emu_peer_possible(emu_config.visible[here], owner)) return CUDA_ERROR_NOT_SUPPORTED;
    int mine = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (mine < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    emu_lock();
    struct emu_handle *handle = handle_new(mine, (size_t)st.st_size, owner);
    if (handle) {
        handle->imported = handle->exportable = true;
        *out = (CUmemGenericAllocationHandle)(uintptr_t)handle;
    } else {
        close(mine);
    }
    emu_unlock();
    return handle ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* A reservation has a range of its own, found through outer; its mappings' ranges take its granules over. */
static struct emu_range *reservation(uintptr_t address, size_t size) {
    for (struct emu_object *o = NULL; (o = emu_object_of(EMU_RANGE, o));) {
        struct emu_range *range = (struct emu_range *)o;
        if (o->alive && range->kind == EMU_RESERVED && emu_range_holds(range, address, size)) return range;
    }
    return NULL;
}

EMU_CALL(cuMemAddressReserve,
         (CUdeviceptr * out, size_t size, size_t alignment, CUdeviceptr address, unsigned long long flags),
         (out, size, alignment, address, flags)) {
    if (!out || !size || !aligned(size) || flags || (alignment & (alignment - 1))) return CUDA_ERROR_INVALID_VALUE;
    emu_lock();
    struct emu_range *range = emu_object_new(EMU_RANGE, sizeof *range);
    uintptr_t base = range ? emu_arena_take(size, alignment) : 0;
    if (base) {
        range->kind = EMU_RESERVED;
        range->base = range->outer = base;
        range->size = range->outer_size = size;
        range->device = -1;
        emu_arena_set(base, size, range);
        *out = base;
    } else if (range) {
        emu_object_end(range);
    }
    emu_unlock();
    return base ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static bool all_reserved(uintptr_t base, size_t size) {
    for (uintptr_t p = base; p < base + size; p += EMU_GRANULE) {
        struct emu_range *range = emu_range_of(p);
        if (!range || range->kind != EMU_RESERVED) return false;
    }
    return true;
}

EMU_CALL(cuMemAddressFree, (CUdeviceptr address, size_t size), (address, size)) {
    emu_lock();
    struct emu_range *range = reservation((uintptr_t)address, size);
    bool good = range && range->base == address && range->size == size && all_reserved(range->base, size);
    if (good) {
        emu_arena_give(range->base, size);
        emu_object_end(range);
    }
    emu_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EMU_CALL(cuMemMap,
         (CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
          unsigned long long flags),
         (address, size, offset, handle, flags)) {
    if (!size || !aligned(size) || !aligned(address) || offset || flags) return CUDA_ERROR_INVALID_VALUE;
    emu_lock();
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct emu_handle *h = handle_get(handle);
    if (h && size <= h->size && reservation((uintptr_t)address, size) && all_reserved((uintptr_t)address, size)) {
        struct emu_range *range = emu_object_new(EMU_RANGE, sizeof *range);
        void *p = mmap((void *)(uintptr_t)address, size, PROT_NONE, MAP_SHARED | MAP_FIXED, h->fd, (off_t)offset);
        if (range && p != MAP_FAILED) {
            range->kind = EMU_MAPPED;
            range->base = range->outer = (uintptr_t)address;
            range->size = range->outer_size = size;
            range->device = h->device;
            range->handle = h;
            h->mappings++;
            emu_arena_set(range->base, size, range);
            result = CUDA_SUCCESS;
        } else {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    emu_unlock();
    return result;
}

EMU_CALL(cuMemUnmap, (CUdeviceptr address, size_t size), (address, size)) {
    emu_lock();
    CUresult result = CUDA_SUCCESS;
    uintptr_t end = (uintptr_t)address + size;
    /* Whole mappings only. */
    for (uintptr_t p = (uintptr_t)address; p < end && result == CUDA_SUCCESS;) {
        struct emu_range *range = emu_range_of(p);
        if (!range || range->kind != EMU_MAPPED || range->base != p || p + range->size > end)
            result = CUDA_ERROR_INVALID_VALUE;
        else
            p += range->size;
    }
    for (uintptr_t p = (uintptr_t)address; p < end && result == CUDA_SUCCESS;) {
        struct emu_range *range = emu_range_of(p);
        emu_arena_set(p, range->size, reservation(p, range->size));
        emu_late_forget(range);
        mmap((void *)p, range->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        range->handle->mappings--;
        handle_drop(range->handle);
        emu_object_end(range);
        p += range->size;
    }
    emu_unlock();
    return size ? result : CUDA_ERROR_INVALID_VALUE;
}

static CUresult set_access(struct emu_range *range, const CUmemAccessDesc *desc) {
    CUdevice device = desc->location.id;
    if (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    if (device < 0 || device >= emu_config.devices) return CUDA_ERROR_INVALID_DEVICE;
    if (!emu_peer_possible(emu_config.visible[device], range->device)) return CUDA_ERROR_INVALID_DEVICE;
    uint32_t bit = 1u << device;
    range->readable &= ~bit;
    range->writable &= ~bit;
    if (desc->flags & CU_MEM_ACCESS_FLAGS_PROT_READ) range->readable |= bit;
    if (desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) range->writable |= bit;
    int protection = range->writable ? PROT_READ | PROT_WRITE : range->readable ? PROT_READ : PROT_NONE;
    return mprotect((void *)range->base, range->size, protection) ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

EMU_CALL(cuMemSetAccess, (CUdeviceptr address, size_t size, const CUmemAccessDesc *desc, size_t count),
         (address, size, desc, count)) {
    if (!desc || !count || !size) return CUDA_ERROR_INVALID_VALUE;
    emu_lock();
    CUresult result = CUDA_SUCCESS;
    for (uintptr_t p = (uintptr_t)address; p < (uintptr_t)address + size && result == CUDA_SUCCESS;) {
        struct emu_range *range = emu_range_of(p);
        if (!range || range->kind != EMU_MAPPED || range->base != p || range->size > (uintptr_t)address + size - p) {
            result = CUDA_ERROR_INVALID_VALUE;
            break;
        }
        for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) result = set_access(range, &desc[i]);
        p += range->size;
    }
    emu_unlock();
    return result;
}

EMU_CALL(cuMemGetAccess, (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address),
         (flags, location, address)) {
    struct emu_range *range = emu_range_of((uintptr_t)address);
    if (!flags || !location || !range || range->kind != EMU_MAPPED) return CUDA_ERROR_INVALID_VALUE;
    *flags = range->writable >> location->id & 1   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
             : range->readable >> location->id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                   : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

EMU_CALL(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * out, void *address), (out, address)) {
    emu_lock();
    struct emu_range *range = emu_range_of((uintptr_t)address);
    bool good = out && range && range->kind == EMU_MAPPED;
    if (good) {
        range->handle->references++;
        *out = (CUmemGenericAllocationHandle)(uintptr_t)range->handle;
    }
    emu_unlock();
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
