/* queue.c - the queues by which a GPU gets its work.  Where CUDA_DEVICE_MAX_CONNECTIONS says how many there are, streams share
 * them in turn: what waits at the head of one, for an event, a value or the operation before it on its stream, holds up
 * everything behind it, whatever stream that is of.  A kernel leaves the queue when it begins; so do copies and host
 * functions.
 */
#include "emu.h"

#include <stdlib.h>

struct emu_queue *emu_queue_next(struct emu_context *context) {
    if (!emu_config.connections) return NULL;
    if (!context->queues) {
        context->queues = calloc((size_t)emu_config.connections, sizeof *context->queues);
        for (int i = 0; context->queues && i < emu_config.connections; i++)
            pthread_cond_init(&context->queues[i].further, NULL);
    }
    return context->queues ? &context->queues[context->streams++ % (unsigned)emu_config.connections] : NULL;
}

void emu_queue_wait(struct emu_queue *queue, uint64_t number) {
    while (queue && queue->taken != number) pthread_cond_wait(&queue->further, &emu.lock);
}

void emu_queue_take(struct emu_queue *queue, uint64_t number) {
    if (!queue || queue->taken != number) return;
    queue->taken++;
    pthread_cond_broadcast(&queue->further);
}

bool emu_queue_holds(const struct emu_op *op) {
    switch (op->kind) {
    case EMU_OP_KERNEL:
    case EMU_OP_COPY:
    case EMU_OP_SET:
    case EMU_OP_HOST: return false;
    default: return true;
    }
}
