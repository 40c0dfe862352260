/* copy.c - copies, fills and host functions: what goes into a stream besides kernels and memory operations. */
#include "emu.h"
#include "emulated.h"

#include <stdlib.h>
#include <string.h>

enum side { ANY, HOST, DEVICE };

/* Memory of the GPU must be known to it, in all its length, and what is mapped must be accessible to the GPU that copies
 * or fills; a host address may be anything. */
static bool good(const struct emu_context *context, uintptr_t address, size_t bytes, enum side side, bool write) {
    struct emu_range *range = emu_range_of(address);
    if (!range) return side != DEVICE && address - emu_arena >= emu_arena_size;
    if (range->kind == EMU_RESERVED || range->kind == EMU_MULTICAST || !emu_range_holds(range, address, 1))
        return false;
    if (range->kind == EMU_MAPPED && !((write ? range->writable : range->readable) >> context->device & 1))
        return false;
    if (emu_range_holds(range, address, bytes)) return true;
    /* Several mappings side by side are one buffer. */
    uintptr_t end = range->base + range->size;
    return range->kind == EMU_MAPPED && good(context, end, bytes - (end - address), side, write);
}

/* The context of the stream, and whether it is capturing. */
static CUresult context_of(CUstream handle, struct emu_context **context, bool *captures) {
    struct emu_stream *stream;
    emu_lock();
    CUresult result = emu_stream_of(handle, &stream);
    if (result == CUDA_SUCCESS) *context = stream->context;
    if (result == CUDA_SUCCESS) *captures = stream->capture;
    emu_unlock();
    return result;
}

static bool pageable(uintptr_t address) {
    return !emu_range_of(address);
}

static bool of_gpu(uintptr_t address) {
    struct emu_range *range = emu_range_of(address);
    return range && range->device >= 0;
}

/* Until the GPU begins what a call has left to it, in microseconds. */
static unsigned draw_late(void) {
    enum { MOST_US = 200 };
    static _Atomic uint64_t drawn;
    uint64_t state = (emu_config.seed + 1) * 0x9e3779b97f4a7c15u + ++drawn * 0xd1342543de82ef95u;
    return (unsigned)(emu_random(&state) % MOST_US);
}

static bool stage(struct emu_op *op, const void *src) {
    op->copy.staged = malloc(op->copy.bytes);
    if (op->copy.staged) memcpy(op->copy.staged, src, op->copy.bytes);
    return op->copy.staged;
}

/* As the real driver: a call without "async" returns when the host's part is done.  The end of what came from pageable
 * memory is still under way then, and all of a copy from GPU to GPU; only the default stream, and what waits for it, come after. */
static CUresult copy_on_default(struct emu_op *op, bool from_host, bool to_host) {
    enum { END = 64 << 10 };
    if (to_host || (from_host && !pageable((uintptr_t)op->copy.src))) return emu_enqueue_and_wait(NULL, op);
    size_t before = from_host && op->copy.bytes > END ? op->copy.bytes - END : 0;
    if (before) {
        struct emu_op first = *op;
        first.copy.bytes = before;
        EMU_TRY(emu_enqueue_and_wait(NULL, &first));
    }
    op->copy.dst = (char *)op->copy.dst + before;
    op->copy.src = (const char *)op->copy.src + before;
    op->copy.bytes -= before;
    op->copy.late_us = draw_late();
    if (from_host && !stage(op, op->copy.src)) return CUDA_ERROR_OUT_OF_MEMORY;
    return emu_enqueue(NULL, op);
}

static CUresult copy(uintptr_t dst, uintptr_t src, size_t bytes, enum side to, enum side from, CUstream stream,
                     bool async) {
    struct emu_context *context;
    bool captures;
    if (!bytes) return CUDA_SUCCESS;
    EMU_TRY(context_of(stream, &context, &captures));
    if (!dst || !src || !good(context, dst, bytes, to, true) || !good(context, src, bytes, from, false))
        return CUDA_ERROR_INVALID_VALUE;
    struct emu_op op = {.kind = EMU_OP_COPY, .copy = {.dst = (void *)dst, .src = (void *)src, .bytes = bytes}};
    if (!async) return copy_on_default(&op, !of_gpu(src), !of_gpu(dst));
    /* As the real driver: pageable memory has been read, or written, when the call returns. */
    if (!captures && pageable(dst)) return emu_enqueue_and_wait(stream, &op);
    if (!captures && pageable(src) && !stage(&op, op.copy.src)) return CUDA_ERROR_OUT_OF_MEMORY;
    return emu_enqueue(stream, &op);
}

/* Both forms of a copy; Async has a _v2 where the other has. */
#define COPY(name, form, since, dst_type, src_type, to, from)                                                          \
    EMU_CALL(name##form, since, (dst_type dst, src_type src, size_t bytes), (dst, src, bytes)) {                       \
        return copy((uintptr_t)dst, (uintptr_t)src, bytes, to, from, NULL, false);                                     \
    }                                                                                                                  \
    EMU_CALL(name##Async##form, since, (dst_type dst, src_type src, size_t bytes, CUstream stream),                    \
             (dst, src, bytes, stream)) {                                                                              \
        return copy((uintptr_t)dst, (uintptr_t)src, bytes, to, from, stream, true);                                    \
    }
COPY(cuMemcpy, , 4000, CUdeviceptr, CUdeviceptr, ANY, ANY)
COPY(cuMemcpyHtoD, _v2, 3020, CUdeviceptr, const void *, DEVICE, HOST)
COPY(cuMemcpyDtoH, _v2, 3020, void *, CUdeviceptr, HOST, DEVICE)
COPY(cuMemcpyDtoD, _v2, 3020, CUdeviceptr, CUdeviceptr, DEVICE, DEVICE)

EMU_CALL(cuMemcpyPeerAsync, 4000,
         (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t bytes, CUstream stream),
         (dst, to, src, from, bytes, stream)) {
    return copy(dst, src, bytes, DEVICE, DEVICE, stream, true);
}

static CUresult set(uintptr_t dst, uint32_t value, unsigned width, size_t count, CUstream stream, bool async) {
    struct emu_context *context;
    bool captures;
    if (!count) return CUDA_SUCCESS;
    EMU_TRY(context_of(stream, &context, &captures));
    if (dst % width || !good(context, dst, count * width, ANY, true)) return CUDA_ERROR_INVALID_VALUE;
    struct emu_op op = {.kind = EMU_OP_SET,
                        .set = {.dst = (void *)dst, .count = count, .width = width, .value = value}};
    if (async) return emu_enqueue(stream, &op);
    if (!of_gpu(dst)) return emu_enqueue_and_wait(NULL, &op);
    op.set.late_us = draw_late();
    return emu_enqueue(NULL, &op);
}

#define SET(name, type)                                                                                                \
    EMU_CALL(name##_v2, 3020, (CUdeviceptr dst, type value, size_t count), (dst, value, count)) {                      \
        return set(dst, value, sizeof value, count, NULL, false);                                                      \
    }                                                                                                                  \
    EMU_CALL(name##Async, 3020, (CUdeviceptr dst, type value, size_t count, CUstream stream),                          \
             (dst, value, count, stream)) {                                                                            \
        return set(dst, value, sizeof value, count, stream, true);                                                     \
    }
SET(cuMemsetD8, unsigned char)
SET(cuMemsetD16, unsigned short)
SET(cuMemsetD32, unsigned)

EMU_CALL(beelineEmulatedKernel, 0, (CUstream stream, CUhostFn function, void *argument, unsigned multiprocessors),
         (stream, function, argument, multiprocessors)) {
    if (!function) return CUDA_ERROR_INVALID_VALUE;
    struct emu_op op = {.kind = EMU_OP_HOST,
                        .host = {.function = function, .argument = argument, .holds = multiprocessors}};
    return emu_enqueue(stream, &op);
}

EMU_CALL(cuLaunchHostFunc, 10000, (CUstream stream, CUhostFn function, void *argument), (stream, function, argument)) {
    return beelineEmulatedKernel_body(stream, function, argument, 0);
}
