/* op.c - carries out one operation of a stream or graph, on the calling thread. */
#include "emu.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct wait {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
    CUresult result;
};

static void kernel_done(void *argument, CUresult result) {
    struct wait *wait = argument;
    pthread_mutex_lock(&wait->lock);
    wait->done = true;
    wait->result = result;
    pthread_cond_signal(&wait->changed);
    pthread_mutex_unlock(&wait->lock);
}

static CUresult run_kernel(struct emu_op *op) {
    struct wait wait = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct emu_launch launch = {.function = op->kernel.function,
                                .context = op->context,
                                .early = op->kernel.early,
                                .args = op->kernel.args,
                                .done = kernel_done,
                                .argument = &wait};
    memcpy(launch.grid, op->kernel.grid, sizeof launch.grid);
    memcpy(launch.block, op->kernel.block, sizeof launch.block);
    emu_simt_submit(&launch);
    pthread_mutex_lock(&wait.lock);
    while (!wait.done) pthread_cond_wait(&wait.changed, &wait.lock);
    pthread_mutex_unlock(&wait.lock);
    return wait.result;
}

/* Between two GPUs of a broken box, what arrives is not what was sent. */
static void run_copy(struct emu_op *op) {
    const void *src = op->copy.staged ? op->copy.staged : op->copy.src;
    memmove(op->copy.dst, src, op->copy.bytes);
    if (emu_config.topology != EMU_BROKEN || !op->copy.bytes) return;
    struct emu_range *to = emu_range_of((uintptr_t)op->copy.dst), *from = emu_range_of((uintptr_t)src);
    if (to && from && to->device >= 0 && from->device >= 0 && to->device != from->device)
        *(unsigned char *)op->copy.dst ^= 0x10;
}

static void run_set(struct emu_op *op) {
    switch (op->set.width) {
    case 1: memset(op->set.dst, (int)op->set.value, op->set.count); break;
    case 2:
        for (size_t i = 0; i < op->set.count; i++) ((uint16_t *)op->set.dst)[i] = (uint16_t)op->set.value;
        break;
    default:
        for (size_t i = 0; i < op->set.count; i++) ((uint32_t *)op->set.dst)[i] = op->set.value;
    }
}

static uint64_t memop_load(const CUstreamBatchMemOpParams *memop, bool wide) {
    void *p = (void *)(uintptr_t)memop->waitValue.address;
    return wide ? __atomic_load_n((uint64_t *)p, __ATOMIC_ACQUIRE) : __atomic_load_n((uint32_t *)p, __ATOMIC_ACQUIRE);
}

static bool memop_holds(const CUstreamBatchMemOpParams *memop, bool wide) {
    uint64_t now = memop_load(memop, wide), value = wide ? memop->waitValue.value64 : memop->waitValue.value;
    switch (memop->waitValue.flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return wide ? (int64_t)(now - value) >= 0 : (int32_t)((uint32_t)now - (uint32_t)value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ: return now == value;
    case CU_STREAM_WAIT_VALUE_AND: return now & value;
    default: return wide ? ~(now | value) : (uint32_t) ~(now | value);
    }
}

static void run_memop(struct emu_op *op) {
    CUstreamBatchMemOpParams *memop = &op->memop;
    void *p = (void *)(uintptr_t)memop->writeValue.address;
    switch (memop->operation) {
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        __atomic_store_n((uint32_t *)p, memop->writeValue.value, __ATOMIC_RELEASE);
        break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        __atomic_store_n((uint64_t *)p, memop->writeValue.value64, __ATOMIC_RELEASE);
        break;
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        while (!memop_holds(memop, memop->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64)) usleep(20);
        break;
    default: break;
    }
}

CUresult emu_op_run(struct emu_op *op) {
    CUresult result = CUDA_SUCCESS;
    if (op->context && op->context->sticky != CUDA_SUCCESS && op->kind != EMU_OP_RECORD && op->kind != EMU_OP_WAIT)
        return op->context->sticky; /* the context is beyond help: its work drains undone */
    switch (op->kind) {
    case EMU_OP_EMPTY: break;
    case EMU_OP_KERNEL: result = run_kernel(op); break;
    case EMU_OP_COPY: run_copy(op); break;
    case EMU_OP_SET: run_set(op); break;
    case EMU_OP_HOST: op->host.function(op->host.argument); break;
    case EMU_OP_RECORD: emu_event_complete(op->event.event, op->event.version); break;
    case EMU_OP_WAIT: emu_event_wait(op->event.event, op->event.version); break;
    case EMU_OP_MEMOP: run_memop(op); break;
    case EMU_OP_GRAPH: emu_graph_run(op->graph.exec, op->graph.versions); break;
    }
    if (result != CUDA_SUCCESS && op->context) {
        emu_lock();
        op->context->sticky = result;
        emu_unlock();
    }
    return result;
}

struct emu_op emu_op_copy(const struct emu_op *op) {
    struct emu_op copy = *op;
    if (op->kind == EMU_OP_KERNEL) {
        copy.kernel.args = malloc(op->kernel.function->argument_size);
        if (copy.kernel.args) memcpy(copy.kernel.args, op->kernel.args, op->kernel.function->argument_size);
    } else if (op->kind == EMU_OP_COPY && op->copy.staged) {
        copy.copy.staged = malloc(op->copy.bytes);
        if (copy.copy.staged) memcpy(copy.copy.staged, op->copy.staged, op->copy.bytes);
    }
    return copy;
}

void emu_op_free(struct emu_op *op) {
    if (op->kind == EMU_OP_KERNEL) free(op->kernel.args);
    if (op->kind == EMU_OP_COPY) free(op->copy.staged);
    if (op->kind == EMU_OP_GRAPH) free(op->graph.versions);
    op->kind = EMU_OP_EMPTY;
}
