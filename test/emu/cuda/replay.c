/* replay.c - runs an instantiated graph: a node when all that it depends on is done, in a seeded order, and branches
 * beside each other, for a node may wait for another one that no edge leads to (two ranks of a collective).
 *
 * Where streams share queues (queue.c), a graph has one on each GPU: nodes go into it in some order that the edges allow, and
 * what waits at its head holds up all behind it, branch or not.  A GPU may be kinder; no graph may count on that. */
#include "emu.h"

#include <stdlib.h>

struct run;
struct step {
    struct run *run;
    int index;
};

struct run {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct emu_plan *plan;
    const uint64_t *versions;
    struct emu_stream *stream;
    struct step *steps;
    int *waiting; /* of each node: dependencies that are not done */
    int *ready, nready;
    int done;
    int *behind; /* of each node: the one before it in its queue, or -1; NULL without queues */
    bool *taken; /* it has left its queue */
    int left;    /* nodes that have not */
};

/* The node leaves its queue, with run->lock held; the last one lets go of the stream's. */
static void take(struct run *run, int index) {
    if (run->taken[index]) return;
    run->taken[index] = true;
    if (--run->left > 0) return;
    emu_lock();
    emu_queue_take(run->stream->queue, run->stream->running);
    emu_unlock();
}

static void finish(struct run *run, int index) {
    pthread_mutex_lock(&run->lock);
    for (int i = 0; i < run->plan->nnext[index]; i++) {
        int next = run->plan->next[index][i];
        if (--run->waiting[next] == 0) run->ready[run->nready++] = next;
    }
    run->done++;
    take(run, index);
    pthread_cond_signal(&run->changed);
    pthread_mutex_unlock(&run->lock);
}

static void kernel_done(void *argument, CUresult result) {
    struct step *step = argument;
    struct emu_context *context = step->run->plan->ops[step->index].context;
    if (result != CUDA_SUCCESS) {
        emu_lock();
        context->sticky = result;
        emu_unlock();
    }
    finish(step->run, step->index);
}

static void run_here(struct run *run, int index) {
    struct emu_op op = run->plan->ops[index];
    if (op.kind == EMU_OP_RECORD || op.kind == EMU_OP_WAIT) op.event.version = run->versions[index];
    emu_op_run(&op, &(struct emu_issuer){run->stream, run->plan, index});
    finish(run, index);
}

static void *helper(void *argument) {
    struct step *step = argument;
    run_here(step->run, step->index);
    return NULL;
}

static void start_kernel(struct run *run, int index) {
    struct emu_op *op = &run->plan->ops[index];
    if (op->context->sticky != CUDA_SUCCESS || op->context->abandoned) {
        finish(run, index);
        return;
    }
    emu_late_flush(&(struct emu_issuer){run->stream, run->plan, index});
    emu_speed_pass(run->stream, op->takes);
    emu_op_submit(op, kernel_done, &run->steps[index]);
}

/* Nodes that may block get a thread of their own, unless nothing else is to be done meanwhile. */
static void start(struct run *run, int index, bool alone) {
    struct emu_op *op = &run->plan->ops[index];
    if (op->kind == EMU_OP_KERNEL) {
        start_kernel(run, index);
        return;
    }
    bool blocks = op->kind == EMU_OP_HOST || op->kind == EMU_OP_WAIT || op->kind == EMU_OP_MEMOP;
    if (!blocks || alone || !emu_thread(helper, &run->steps[index])) run_here(run, index);
}

/* Puts the nodes into the queues of their GPUs, in a drawn order. */
static bool line_up(struct run *run, uint64_t *random) {
    const int count = run->plan->count;
    int *waiting = malloc((size_t)count * sizeof *waiting), *ready = malloc((size_t)count * sizeof *ready);
    int last[EMU_MAX_DEVICES], nready = 0;
    run->behind = malloc((size_t)count * sizeof *run->behind);
    if (waiting && ready && run->behind) {
        for (int d = 0; d < EMU_MAX_DEVICES; d++) last[d] = -1;
        for (int i = 0; i < count; i++)
            if (!(waiting[i] = run->plan->indegree[i])) ready[nready++] = i;
        while (nready) {
            const int pick = (int)(emu_random(random) % (uint64_t)nready), index = ready[pick];
            const struct emu_context *context = run->plan->ops[index].context;
            ready[pick] = ready[--nready];
            run->behind[index] = context ? last[context->device] : -1;
            if (context) last[context->device] = index;
            for (int i = 0; i < run->plan->nnext[index]; i++)
                if (--waiting[run->plan->next[index][i]] == 0) ready[nready++] = run->plan->next[index][i];
        }
    }
    free(waiting);
    free(ready);
    return run->behind;
}

/* One of the nodes that may begin, as an index into run->ready, or -1. */
static int pick(const struct run *run, uint64_t *random) {
    const int first = run->nready ? (int)(emu_random(random) % (uint64_t)run->nready) : 0;
    for (int k = 0; k < run->nready; k++) {
        const int place = (first + k) % run->nready, behind = run->behind ? run->behind[run->ready[place]] : -1;
        if (behind < 0 || run->taken[behind]) return place;
    }
    return -1;
}

void emu_graph_run(struct emu_plan *plan, const uint64_t *versions, struct emu_stream *stream) {
    static _Atomic uint64_t launches;
    struct run run = {.lock = PTHREAD_MUTEX_INITIALIZER,
                      .changed = PTHREAD_COND_INITIALIZER,
                      .plan = plan,
                      .versions = versions,
                      .stream = stream};
    uint64_t random =
        emu_config.seed * 0x51ed27 + (uint64_t)(emu_config.local_rank + 1) * 0x9e3779b97f4a7c15 + ++launches;
    size_t count = (size_t)plan->count;
    run.steps = calloc(count + 1, sizeof *run.steps);
    run.waiting = calloc(count + 1, sizeof *run.waiting);
    run.ready = calloc(count + 1, sizeof *run.ready);
    run.taken = calloc(count + 1, sizeof *run.taken);
    run.left = plan->count;
    if (run.steps && run.waiting && run.ready && run.taken && (!stream->queue || line_up(&run, &random))) {
        for (int i = 0; i < plan->count; i++) {
            run.steps[i] = (struct step){&run, i};
            run.waiting[i] = plan->indegree[i];
            if (!run.waiting[i]) run.ready[run.nready++] = i;
        }
        int started = 0;
        pthread_mutex_lock(&run.lock);
        while (run.done < plan->count) {
            const int place = pick(&run, &random);
            if (place < 0) {
                pthread_cond_wait(&run.changed, &run.lock);
                continue;
            }
            const int index = run.ready[place];
            run.ready[place] = run.ready[--run.nready];
            bool alone = !run.nready && run.done == started;
            started++;
            if (!emu_queue_holds(&plan->ops[index])) take(&run, index);
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
    free(run.taken);
    free(run.behind);
}
