/* memory.c - plain device memory, page-locked host memory, and questions about pointers.
 *
 * An allocation ends against an inaccessible page, begins behind one, and what alignment leaves over is filled with a
 * pattern that is looked at when it is freed.
 */
#include "emu.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { POISON = 0xe5, CANARY = 0xc9, ALIGNMENT = 256 };
static const size_t page = 4096;
uint64_t emu_used[EMU_MAX_DEVICES];
static uint64_t next_id;

/* Large memory is poisoned at about 256 places: every byte would cost the pages that nobody will touch. */
static const size_t all_below = (size_t)2 << 20, least_stride = 64 << 10, sample = 256, most_samples = 256;

void emu_poison(void *memory, size_t bytes) {
    char *p = memory;
    const size_t spread = bytes / most_samples / page * page, stride = spread > least_stride ? spread : least_stride;
    memset(p, POISON, bytes < all_below ? bytes : all_below / 16);
    for (size_t i = all_below / 16; bytes >= all_below && i + sample <= bytes; i += stride)
        memset(p + i, POISON, sample);
}

bool emu_poison_fd(int fd, size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return false;
    emu_poison(p, bytes);
    munmap(p, bytes);
    return true;
}

/* Room of `bytes` whose end is against a guard page. */
static struct emu_range *range_new(enum emu_range_kind kind, struct emu_context *context, size_t bytes) {
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t inner = (rounded + page - 1) / page * page;
    size_t outer = (inner + 2 * page + EMU_GRANULE - 1) & ~(EMU_GRANULE - 1);
    struct emu_range *range = emu_object_new(EMU_RANGE, sizeof *range);
    uintptr_t start = range ? emu_arena_take(outer, EMU_GRANULE) : 0;
    if (!start) return NULL;
    uintptr_t first = start + outer - page - inner;
    if (mprotect((void *)first, inner, PROT_READ | PROT_WRITE)) return NULL;
    range->kind = kind;
    range->base = first + inner - rounded;
    range->size = bytes;
    range->outer = start;
    range->outer_size = outer;
    range->context = context;
    range->device = kind == EMU_PLAIN ? emu_config.visible[context->device] : -1;
    range->readable = range->writable = kind == EMU_PLAIN ? 1u << context->device : ~0u;
    range->id = ++next_id;
    memset((void *)first, CANARY, range->base - first);
    memset((void *)(range->base + bytes), CANARY, rounded - bytes);
    emu_poison((void *)range->base, bytes);
    emu_arena_set(start, outer, range);
    if (kind == EMU_PLAIN) emu_used[context->device] += bytes;
    return range;
}

static bool canaries_live(const struct emu_range *range) {
    uintptr_t end = range->outer + range->outer_size - page;
    for (uintptr_t p = range->base & ~(page - 1); p < range->base; p++)
        if (*(unsigned char *)p != CANARY) return false;
    for (uintptr_t p = range->base + range->size; p < end; p++)
        if (*(unsigned char *)p != CANARY) return false;
    return true;
}

static void range_end(struct emu_range *range) {
    if (range->kind == EMU_REGISTERED) {
        emu_unregister(range);
    } else {
        if (!canaries_live(range))
            emu_say("CORRUPTION: bytes around the allocation at %p (%zu bytes) were overwritten", (void *)range->base,
                    range->size);
        if (range->kind == EMU_PLAIN) emu_used[range->context->device] -= range->size;
        emu_arena_set(range->outer, range->outer_size, NULL);
        emu_late_forget(range);
        emu_arena_give(range->outer, range->outer_size);
    }
    emu_object_end(range);
}

void emu_context_free_memory(struct emu_context *context) {
    for (struct emu_range *range = NULL; (range = emu_object_of(EMU_RANGE, range));) {
        if (!range->object.alive || range->context != context) continue;
        if (range->kind == EMU_RESERVED || range->kind == EMU_MAPPED || range->kind == EMU_MULTICAST) continue;
        range->object.orphan = true;
        range_end(range);
    }
}

/* The allocation that starts at `address`. */
static struct emu_range *allocation(uintptr_t address, enum emu_range_kind kind) {
    struct emu_range *range = emu_range_of(address);
    return range && range->base == address && range->kind == kind ? range : NULL;
}

/* The current context, for a call that allocates or frees. */
static CUresult context_of_call(struct emu_context **context) {
    EMU_TRY(emu_context_need(context));
    return emu_capture_unsafe();
}

static CUresult allocate(enum emu_range_kind kind, size_t bytes, CUdeviceptr *address) {
    struct emu_context *context;
    if (!address || !bytes) return CUDA_ERROR_INVALID_VALUE;
    EMU_TRY(context_of_call(&context));
    emu_context_may_wait(context);
    bool fits =
        kind != EMU_PLAIN || (bytes <= emu_config.memory && emu_used[context->device] <= emu_config.memory - bytes);
    struct emu_range *range = fits ? range_new(kind, context, bytes) : NULL;
    if (!range) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = range->base;
    return CUDA_SUCCESS;
}

static CUresult release(enum emu_range_kind kind, uintptr_t address) {
    struct emu_context *context;
    if (!address) return CUDA_SUCCESS;
    EMU_TRY(context_of_call(&context));
    struct emu_range *range = allocation(address, kind);
    if (!range) return CUDA_ERROR_INVALID_VALUE;
    emu_context_wait(range->context); /* as the real one: freeing waits for the device */
    if (range->object.alive) range_end(range);
    return CUDA_SUCCESS;
}

EMU_LOCKED(cuMemAlloc_v2, 3020, (CUdeviceptr * address, size_t bytes), (address, bytes)) {
    return allocate(EMU_PLAIN, bytes, address);
}

EMU_LOCKED(cuMemFree_v2, 3020, (CUdeviceptr address), (address)) {
    return release(allocation((uintptr_t)address, EMU_MANAGED) ? EMU_MANAGED : EMU_PLAIN, (uintptr_t)address);
}

EMU_LOCKED(cuMemAllocManaged, 6000, (CUdeviceptr * address, size_t bytes, unsigned flags), (address, bytes, flags)) {
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
    return allocate(EMU_MANAGED, bytes, address);
}

EMU_LOCKED(cuMemAllocHost_v2, 3020, (void **address, size_t bytes), (address, bytes)) {
    return allocate(EMU_HOST, bytes, (CUdeviceptr *)address);
}

EMU_LOCKED(cuMemHostAlloc, 2020, (void **address, size_t bytes, unsigned flags), (address, bytes, flags)) {
    if (flags & ~7u) return CUDA_ERROR_INVALID_VALUE;
    return allocate(EMU_HOST, bytes, (CUdeviceptr *)address);
}

EMU_LOCKED(cuMemFreeHost, 2000, (void *address), (address)) {
    return release(EMU_HOST, (uintptr_t)address);
}

EMU_LOCKED(cuMemHostRegister_v2, 4000, (void *address, size_t bytes, unsigned flags), (address, bytes, flags)) {
    struct emu_context *context;
    if (!address || !bytes) return CUDA_ERROR_INVALID_VALUE;
    EMU_TRY(context_of_call(&context));
    emu_context_may_wait(context);
    if (emu_range_of((uintptr_t)address)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    struct emu_range *range = emu_object_new(EMU_RANGE, sizeof *range);
    if (!range) return CUDA_ERROR_OUT_OF_MEMORY;
    range->kind = EMU_REGISTERED;
    range->base = (uintptr_t)address;
    range->size = bytes;
    range->context = context;
    range->device = -1;
    range->readable = range->writable = ~0u;
    range->id = ++next_id;
    CUresult result = emu_register(range);
    if (result != CUDA_SUCCESS) emu_object_end(range);
    return result;
}

EMU_LOCKED(cuMemHostUnregister, 4000, (void *address), (address)) {
    struct emu_range *range = allocation((uintptr_t)address, EMU_REGISTERED);
    if (!range) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    emu_context_may_wait(range->context);
    if (range->object.alive) range_end(range);
    return CUDA_SUCCESS;
}

EMU_CALL(cuMemHostGetDevicePointer_v2, 3020, (CUdeviceptr * device, void *host, unsigned flags),
         (device, host, flags)) {
    if (!device || flags) return CUDA_ERROR_INVALID_VALUE;
    struct emu_range *range = emu_range_of((uintptr_t)host);
    if (!range || (range->kind != EMU_HOST && range->kind != EMU_REGISTERED)) return CUDA_ERROR_INVALID_VALUE;
    *device = (CUdeviceptr)(uintptr_t)host;
    return CUDA_SUCCESS;
}

EMU_CALL(cuMemHostGetFlags, 2030, (unsigned *flags, void *host), (flags, host)) {
    struct emu_range *range = emu_range_of((uintptr_t)host);
    if (!flags || !range || range->kind != EMU_HOST) return CUDA_ERROR_INVALID_VALUE;
    *flags = CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
}

EMU_LOCKED(cuMemGetInfo_v2, 3020, (size_t * available, size_t *total), (available, total)) {
    struct emu_context *context;
    if (!available || !total) return CUDA_ERROR_INVALID_VALUE;
    EMU_TRY(emu_context_need(&context));
    *total = emu_config.memory;
    *available = emu_config.memory - emu_used[context->device];
    return CUDA_SUCCESS;
}

EMU_CALL(cuMemGetAddressRange_v2, 3020, (CUdeviceptr * base, size_t *bytes, CUdeviceptr address),
         (base, bytes, address)) {
    struct emu_range *range = emu_range_of((uintptr_t)address);
    if (!range || range->kind == EMU_RESERVED) return CUDA_ERROR_NOT_FOUND;
    if (base) *base = range->base;
    if (bytes) *bytes = range->size;
    return CUDA_SUCCESS;
}

EMU_CALL(cuPointerGetAttribute, 4000, (void *value, CUpointer_attribute attribute, CUdeviceptr address),
         (value, attribute, address)) {
    struct emu_range *range = emu_range_of((uintptr_t)address);
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    if (!range || range->kind == EMU_RESERVED) return CUDA_ERROR_INVALID_VALUE;
    bool host = range->kind == EMU_HOST || range->kind == EMU_REGISTERED;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)value = (CUcontext)range->context; break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(unsigned *)value = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr *)value = address; break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!host) return CUDA_ERROR_INVALID_VALUE;
        *(void **)value = (void *)(uintptr_t)address;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(uint64_t *)value = range->id; break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned char *)value = range->kind == EMU_MANAGED; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)value = range->device < 0 ? range->context->device : emu_device_of_index(range->device);
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: *(int *)value = 0; break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr *)value = range->base; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)value = range->size; break;
    case CU_POINTER_ATTRIBUTE_MAPPED: *(int *)value = 1; break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(uint64_t *)value = range->kind == EMU_MAPPED ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0;
        break;
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

EMU_CALL(cuPointerGetAttributes, 7000,
         (unsigned count, CUpointer_attribute *attributes, void **values, CUdeviceptr address),
         (count, attributes, values, address)) {
    if (!attributes || !values) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        /* An address that CUDA does not know is no error here: its attributes are zero. */
        if (cuPointerGetAttribute_body(values[i], attributes[i], address) == CUDA_SUCCESS) continue;
        if (attributes[i] == CU_POINTER_ATTRIBUTE_CONTEXT)
            *(CUcontext *)values[i] = NULL;
        else if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
            *(unsigned *)values[i] = 0;
        else if (attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED)
            *(unsigned char *)values[i] = 0;
    }
    return CUDA_SUCCESS;
}
