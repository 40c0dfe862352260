/* replay.c - runs an instantiated graph: a node when all that it depends on is done, in a seeded order, and branches
 * beside each other, for a node may wait for another one that no edge leads to (two ranks of a collective). */
#include "emu.h"

#include <stdlib.h>
#include <string.h>

struct run;
struct step {
    struct run *run;
    int index;
};

struct run {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct emu_exec *exec;
    const uint64_t *versions;
    const struct emu_stream *stream;
    struct step *steps;
    int *waiting; /* of each node: dependencies that are not done */
    int *ready, nready;
    int done;
};

static void finish(struct run *run, int index) {
    pthread_mutex_lock(&run->lock);
    for (int i = 0; i < run->exec->nnext[index]; i++) {
        int next = run->exec->next[index][i];
        if (--run->waiting[next] == 0) run->ready[run->nready++] = next;
    }
    run->done++;
    pthread_cond_signal(&run->changed);
    pthread_mutex_unlock(&run->lock);
}

static void kernel_done(void *argument, CUresult result) {
    struct step *step = argument;
    struct emu_context *context = step->run->exec->ops[step->index].context;
    if (result != CUDA_SUCCESS) {
        emu_lock();
        context->sticky = result;
        emu_unlock();
    }
    finish(step->run, step->index);
}

static void run_here(struct run *run, int index) {
    struct emu_op op = run->exec->ops[index];
    if (op.kind == EMU_OP_RECORD || op.kind == EMU_OP_WAIT) op.event.version = run->versions[index];
    emu_op_run(&op, &(struct emu_issuer){run->stream, run->exec, index});
    finish(run, index);
}

static void *helper(void *argument) {
    struct step *step = argument;
    run_here(step->run, step->index);
    return NULL;
}

static void start_kernel(struct run *run, int index) {
    struct emu_op *op = &run->exec->ops[index];
    if (op->context->sticky != CUDA_SUCCESS || op->context->abandoned) {
        finish(run, index);
        return;
    }
    emu_late_flush(&(struct emu_issuer){run->stream, run->exec, index});
    struct emu_launch launch = {.function = op->kernel.function,
                                .context = op->context,
                                .early = op->kernel.early,
                                .args = op->kernel.args,
                                .done = kernel_done,
                                .argument = &run->steps[index]};
    memcpy(launch.grid, op->kernel.grid, sizeof launch.grid);
    memcpy(launch.block, op->kernel.block, sizeof launch.block);
    emu_simt_submit(&launch);
}

/* Nodes that may block get a thread of their own, unless nothing else is to be done meanwhile. */
static void start(struct run *run, int index, bool alone) {
    struct emu_op *op = &run->exec->ops[index];
    pthread_attr_t attributes;
    pthread_t thread;
    if (op->kind == EMU_OP_KERNEL) {
        start_kernel(run, index);
        return;
    }
    bool blocks = op->kind == EMU_OP_HOST || op->kind == EMU_OP_WAIT || op->kind == EMU_OP_MEMOP;
    if (blocks && !alone) {
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        pthread_attr_setstacksize(&attributes, 1 << 20);
        int failed = pthread_create(&thread, &attributes, helper, &run->steps[index]);
        pthread_attr_destroy(&attributes);
        if (!failed) return;
    }
    run_here(run, index);
}

void emu_graph_run(struct emu_exec *exec, const uint64_t *versions, const struct emu_stream *stream) {
    static _Atomic uint64_t launches;
    struct run run = {.lock = PTHREAD_MUTEX_INITIALIZER,
                      .changed = PTHREAD_COND_INITIALIZER,
                      .exec = exec,
                      .versions = versions,
                      .stream = stream};
    uint64_t random = emu_config.seed * 0x51ed27 + ++launches;
    size_t count = (size_t)exec->count;
    run.steps = calloc(count + 1, sizeof *run.steps);
    run.waiting = calloc(count + 1, sizeof *run.waiting);
    run.ready = calloc(count + 1, sizeof *run.ready);
    if (run.steps && run.waiting && run.ready) {
        for (int i = 0; i < exec->count; i++) {
            run.steps[i] = (struct step){&run, i};
            run.waiting[i] = exec->indegree[i];
            if (!run.waiting[i]) run.ready[run.nready++] = i;
        }
        int started = 0;
        pthread_mutex_lock(&run.lock);
        while (run.done < exec->count) {
            if (!run.nready) {
                pthread_cond_wait(&run.changed, &run.lock);
                continue;
            }
            int pick = (int)(emu_random(&random) % (uint64_t)run.nready), index = run.ready[pick];
            run.ready[pick] = run.ready[--run.nready];
            bool alone = !run.nready && run.done == started;
            started++;
            pthread_mutex_unlock(&run.lock);
            start(&run, index, alone);
            pthread_mutex_lock(&run.lock);
        }
        pthread_mutex_unlock(&run.lock);
    }
    emu_late_leave_graph(stream);
    free(run.steps);
    free(run.waiting);
    free(run.ready);
}
