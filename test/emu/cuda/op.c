/* op.c - carries out one operation of a stream or graph, on the calling thread. */
#include "emu.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <time.h>

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

void emu_op_submit(const struct emu_op *op, void (*done)(void *, CUresult), void *argument) {
    struct emu_launch launch = {.function = op->kernel.function,
                                .context = op->context,
                                .sms = op->sms,
                                .early = op->kernel.early,
                                .memory = op->kernel.memory,
                                .args = op->kernel.args,
                                .done = done,
                                .argument = argument};
    memcpy(launch.grid, op->kernel.grid, sizeof launch.grid);
    memcpy(launch.block, op->kernel.block, sizeof launch.block);
    emu_simt_submit(&launch);
}

static CUresult run_kernel(struct emu_op *op) {
    struct wait wait = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    emu_op_submit(op, kernel_done, &wait);
    pthread_mutex_lock(&wait.lock);
    while (!wait.done) pthread_cond_wait(&wait.changed, &wait.lock);
    pthread_mutex_unlock(&wait.lock);
    return wait.result;
}

static void run_host(struct emu_op *op) {
    struct kernel *room = op->host.holds ? emu_simt_hold(op->context, op->sms, op->host.holds) : NULL;
    op->host.function(op->host.argument);
    emu_simt_release(room);
}

/* Between two GPUs of a broken box, what arrives is not what was sent. */
static void run_copy(struct emu_op *op, const struct emu_issuer *by) {
    if (op->copy.late_us) usleep(op->copy.late_us);
    const void *src = op->copy.staged ? op->copy.staged : op->copy.src;
    emu_late_store(by, op->context, op->copy.dst, src, op->copy.bytes);
    if (emu_config.topology != EMU_BROKEN || !op->copy.bytes) return;
    struct emu_range *to = emu_range_of((uintptr_t)op->copy.dst), *from = emu_range_of((uintptr_t)src);
    if (to && from && to->device >= 0 && from->device >= 0 && to->device != from->device)
        *(unsigned char *)op->copy.dst ^= 0x10;
}

static void fill(void *dst, unsigned width, uint32_t value, size_t count) {
    switch (width) {
    case 1: memset(dst, (int)value, count); break;
    case 2:
        for (size_t i = 0; i < count; i++) ((uint16_t *)dst)[i] = (uint16_t)value;
        break;
    default:
        for (size_t i = 0; i < count; i++) ((uint32_t *)dst)[i] = value;
    }
}

/* Late ones in blocks, which copies of one pattern make. */
static void run_set(struct emu_op *op, const struct emu_issuer *by) {
    enum { BLOCK = 1 << 20 };
    if (op->set.late_us) usleep(op->set.late_us);
    size_t bytes = op->set.count * op->set.width, block = bytes < BLOCK ? bytes : BLOCK;
    void *pattern = emu_late_is(op->context, op->set.dst) ? malloc(block) : NULL;
    if (!pattern) {
        fill(op->set.dst, op->set.width, op->set.value, op->set.count);
        return;
    }
    fill(pattern, op->set.width, op->set.value, block / op->set.width);
    for (size_t at = 0; at < bytes; at += block)
        emu_late_store(by, op->context, (char *)op->set.dst + at, pattern, bytes - at < block ? bytes - at : block);
    free(pattern);
}

CUresult emu_op_run(struct emu_op *op, const struct emu_issuer *by) {
    CUresult result = CUDA_SUCCESS;
    if (op->context && op->kind != EMU_OP_RECORD && op->kind != EMU_OP_WAIT) {
        if (op->context->sticky != CUDA_SUCCESS) return op->context->sticky; /* beyond help: its work drains undone */
        if (op->context->abandoned) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    switch (op->kind) {
    case EMU_OP_KERNEL:
    case EMU_OP_HOST:
    case EMU_OP_RECORD: emu_late_flush(by); break;
    default: break;
    }
    switch (op->kind) {
    case EMU_OP_EMPTY: break;
    case EMU_OP_KERNEL: result = run_kernel(op); break;
    case EMU_OP_COPY: run_copy(op, by); break;
    case EMU_OP_SET: run_set(op, by); break;
    case EMU_OP_HOST: run_host(op); break;
    case EMU_OP_RECORD: emu_event_complete(op->event.event, op->event.version, by->stream); break;
    case EMU_OP_WAIT: emu_event_wait(op->event.event, op->event.version, by->stream); break;
    case EMU_OP_MEMOP: result = emu_memop_run(op, by); break;
    case EMU_OP_GRAPH: emu_graph_run(op->graph.plan, op->graph.versions, by->stream); break;
    }
    emu_speed_pass(by->stream, op->takes);
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
    } else if (op->kind == EMU_OP_MEMOP) {
        copy.memop.list = malloc(op->memop.count * sizeof *copy.memop.list);
        if (copy.memop.list) memcpy(copy.memop.list, op->memop.list, op->memop.count * sizeof *copy.memop.list);
    }
    return copy;
}

void emu_op_free(struct emu_op *op) {
    if (op->kind == EMU_OP_KERNEL) free(op->kernel.args);
    if (op->kind == EMU_OP_COPY) free(op->copy.staged);
    if (op->kind == EMU_OP_MEMOP) free(op->memop.list);
    if (op->kind == EMU_OP_GRAPH) {
        free(op->graph.versions);
        emu_lock();
        emu_plan_done(op->graph.plan);
        emu_unlock();
    }
    op->kind = EMU_OP_EMPTY;
}
