/* memop.c - stream memory operations: waits for values, writes of values and barriers, one by one and in batches.
 *
 * A batch is one entry of its stream, or one node of a graph, and goes through its operations in order.
 */
#include "emu.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#undef cuStreamBatchMemOp
#undef cuStreamWaitValue32
#undef cuStreamWaitValue64
#undef cuStreamWriteValue32
#undef cuStreamWriteValue64

enum { MOST = 255, COMPARISON = 3 };

static bool is_wide(const CUstreamBatchMemOpParams *p) {
    return p->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 || p->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

/* --- carrying out --- */
static bool holds(const CUstreamBatchMemOpParams *p, uint64_t word) {
    if (is_wide(p)) {
        uint64_t value = p->waitValue.value64;
        switch (p->waitValue.flags & COMPARISON) {
        case CU_STREAM_WAIT_VALUE_GEQ: return (int64_t)(word - value) >= 0;
        case CU_STREAM_WAIT_VALUE_EQ: return word == value;
        case CU_STREAM_WAIT_VALUE_AND: return (word & value) != 0;
        default: return ~(word | value) != 0;
        }
    }
    uint32_t now = (uint32_t)word, value = p->waitValue.value;
    switch (p->waitValue.flags & COMPARISON) {
    case CU_STREAM_WAIT_VALUE_GEQ: return (int32_t)(now - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ: return now == value;
    case CU_STREAM_WAIT_VALUE_AND: return (now & value) != 0;
    default: return (uint32_t) ~(now | value) != 0;
    }
}

static void count_wait(struct emu_context *context, int difference) {
    emu_lock();
    context->waits += difference;
    emu_unlock();
}

/* Holds up nobody but its stream.  A context that is dead or going gives it up. */
static CUresult wait_value(struct emu_context *context, const CUstreamBatchMemOpParams *p) {
    const void *word = (const void *)(uintptr_t)p->waitValue.address;
    CUresult result = CUDA_SUCCESS;
    uint64_t value = 0;
    count_wait(context, 1);
    for (useconds_t nap = 20; !context->abandoned && context->sticky == CUDA_SUCCESS; nap += nap < 200 ? 10 : 0) {
        if (!emu_late_load(word, is_wide(p), &value)) {
            emu_say("memory at %p was unmapped under a wait for its value", word);
            result = CUDA_ERROR_ILLEGAL_ADDRESS;
            break;
        }
        if (holds(p, value)) break;
        usleep(nap);
    }
    count_wait(context, -1);
    return result;
}

CUresult emu_memop_run(const struct emu_op *op, const struct emu_issuer *by) {
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < op->memop.count && result == CUDA_SUCCESS && !op->context->abandoned; i++) {
        const CUstreamBatchMemOpParams *p = &op->memop.list[i];
        void *word = (void *)(uintptr_t)p->writeValue.address;
        size_t bytes = is_wide(p) ? sizeof(uint64_t) : sizeof(uint32_t);
        switch (p->operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            emu_late_flush_place(by, word, bytes);
            result = wait_value(op->context, p);
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            if (!(p->writeValue.flags & CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)) emu_late_flush(by);
            emu_late_store(by, op->context, word, &p->writeValue.value64, bytes);
            break;
        default: /* a barrier; what other GPUs see, one of GPU scope does not touch */
            if (p->memoryBarrier.flags == CU_STREAM_MEMORY_BARRIER_TYPE_SYS) emu_late_flush(by);
        }
    }
    return result;
}

/* --- the calls --- */
static bool reachable(const struct emu_context *context, uintptr_t address, size_t bytes, bool write) {
    const struct emu_range *range = emu_range_of(address);
    if (!range || range->kind == EMU_RESERVED || range->kind == EMU_MULTICAST ||
        !emu_range_holds(range, address, bytes))
        return false;
    if (range->kind == EMU_PLAIN && context->peers >> range->context->device & 1) return true;
    return (write ? range->writable : range->readable) >> context->device & 1;
}

/* cuda.h names two errors of its own for these calls.  INVALID_VALUE: a word that is not aligned to its size, or that the
 * stream's GPU may not access, which the driver finds when it translates the address; flags and operations that there are
 * not; 256 operations or more; none.  NOT_SUPPORTED: what an attribute of the device denies, here flushes of remote writes
 * (CAN_FLUSH_REMOTE_WRITES).
 *
 * NO_MEMORY_BARRIER is taken, and is as weak as it says.  By cuda.h it is not supported in these (v2) forms: who needs to
 * run on hardware leaves it out. */
static CUresult check(const struct emu_context *context, const CUstreamBatchMemOpParams *p) {
    bool write = false;
    switch (p->operation) {
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        if (p->writeValue.flags & ~(unsigned)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) return CUDA_ERROR_INVALID_VALUE;
        write = true;
        break;
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        if (p->waitValue.flags & ~(unsigned)(COMPARISON | CU_STREAM_WAIT_VALUE_FLUSH)) return CUDA_ERROR_INVALID_VALUE;
        if (p->waitValue.flags & CU_STREAM_WAIT_VALUE_FLUSH) return CUDA_ERROR_NOT_SUPPORTED;
        break;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES: return CUDA_ERROR_NOT_SUPPORTED;
    case CU_STREAM_MEM_OP_BARRIER:
        return p->memoryBarrier.flags > CU_STREAM_MEMORY_BARRIER_TYPE_GPU ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    size_t bytes = is_wide(p) ? sizeof(uint64_t) : sizeof(uint32_t);
    uintptr_t address = (uintptr_t)p->waitValue.address;
    return address % bytes || !reachable(context, address, bytes, write) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* All of them, or none. */
static CUresult batch(CUstream handle, unsigned count, const CUstreamBatchMemOpParams *list, unsigned flags) {
    struct emu_stream *stream;
    if (!list || !count || count > MOST || flags) return CUDA_ERROR_INVALID_VALUE;
    emu_lock();
    CUresult result = emu_stream_of(handle, &stream);
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) result = check(stream->context, &list[i]);
    emu_unlock();
    if (result != CUDA_SUCCESS) return result;
    struct emu_op op = {.kind = EMU_OP_MEMOP, .memop = {.list = malloc(count * sizeof *list), .count = count}};
    if (!op.memop.list) return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(op.memop.list, list, count * sizeof *list);
    return emu_enqueue(handle, &op);
}

/* The forms from before CUDA 11.7 are there but off, unless an option of the kernel module says otherwise: who asks
 * cuGetProcAddress for too old a version gets these. */
#define FORMS(name, old_since, parameters, arguments, how)                                                             \
    EMU_CALL(name, old_since, parameters, arguments) {                                                                 \
        return CUDA_ERROR_NOT_SUPPORTED;                                                                               \
    }                                                                                                                  \
    EMU_CALL(name##_v2, 11070, parameters, arguments) {                                                                \
        return how;                                                                                                    \
    }
#define ONE(name, old_since, type, operation)                                                                          \
    FORMS(name, old_since, (CUstream stream, CUdeviceptr address, type value, unsigned flags),                         \
          (stream, address, value, flags), one(stream, address, operation, value, flags))

static CUresult one(CUstream stream, CUdeviceptr address, CUstreamBatchMemOpType type, uint64_t value, unsigned flags) {
    CUstreamBatchMemOpParams p;
    memset(&p, 0, sizeof p);
    p.waitValue.operation = type; /* a write has its members in the same places */
    p.waitValue.address = address;
    p.waitValue.value64 = value;
    p.waitValue.flags = flags;
    return batch(stream, 1, &p, 0);
}

FORMS(cuStreamBatchMemOp, 8000, (CUstream stream, unsigned count, CUstreamBatchMemOpParams *list, unsigned flags),
      (stream, count, list, flags), batch(stream, count, list, flags))
ONE(cuStreamWaitValue32, 8000, cuuint32_t, CU_STREAM_MEM_OP_WAIT_VALUE_32)
ONE(cuStreamWaitValue64, 9000, cuuint64_t, CU_STREAM_MEM_OP_WAIT_VALUE_64)
ONE(cuStreamWriteValue32, 8000, cuuint32_t, CU_STREAM_MEM_OP_WRITE_VALUE_32)
ONE(cuStreamWriteValue64, 9000, cuuint64_t, CU_STREAM_MEM_OP_WRITE_VALUE_64)
