/* simulated.c - what a group that is only tried (ncclGroupSimulateEnd) leaves behind of its messages, as the real one (2.28, 2.30) does. */
#include <stdlib.h>

#include "emu_nccl.h"

/* Of a communicator that is there still. */
static bool counts(const struct emu_task *task) {
    return emu_is_p2p(&task->op) && task->generation == task->comm->generation;
}

static uint64_t peer_bit(const struct emu_task *task) {
    return task->op.peer == task->comm->rank ? 0 : (uint64_t)1 << task->op.peer;
}

/* Peers to which there was no message before are connected by the group's end, which a simulated one leaves out: of its communicators no later one
 * does it either. */
static void meet(const struct emu_task *tasks, bool simulated) {
    for (const struct emu_task *task = tasks; task; task = task->next) {
        if (!counts(task)) continue;
        struct emu_peers *peers = &task->comm->peers[task->op.collective == EMU_SEND];
        if (peer_bit(task) & ~peers->met && simulated) task->comm->stuck = true;
        peers->met |= peer_bit(task);
    }
    if (simulated) return;
    for (const struct emu_task *task = tasks; task; task = task->next) {
        if (!counts(task) || task->comm->stuck) continue;
        struct emu_peers *const peers = task->comm->peers;
        for (int sends = 0; sends < 2; sends++) peers[sends].connected = peers[sends].met;
    }
}

static void keep(struct emu_task *task) {
    struct emu_task **last = &task->comm->simulated;
    while (*last) last = &(*last)->next;
    task->next = NULL;
    *last = task;
}

/* They stay in their communicators' queues, which count those of a group anew. */
ncclResult_t emu_simulated_keep(const struct emu_task *tasks) {
    meet(tasks, true);
    for (const struct emu_task *task = tasks; task; task = task->next) {
        if (!counts(task)) continue;
        struct emu_task *const kept = malloc(sizeof *kept);
        if (!kept) return emu_fail(ncclSystemError, "out of memory");
        *kept = *task;
        keep(kept);
    }
    return ncclSuccess;
}

/* So each message of the next group is the first that is in its queue, and comes itself in a later group. */
ncclResult_t emu_simulated_take(struct emu_task *tasks) {
    meet(tasks, false);
    for (struct emu_task *task = tasks; task; task = task->next) {
        if (!counts(task)) continue;
        const bool sends = task->op.collective == EMU_SEND;
        if (peer_bit(task) & ~task->comm->peers[sends].connected)
            return emu_fail(ncclInternalError, "Rank %d has no transport for %s peer %d", task->comm->rank,
                            sends ? "send" : "recv", task->op.peer);
        struct emu_task **at = &task->comm->simulated, *first;
        while (*at && ((*at)->op.collective != task->op.collective || (*at)->op.peer != task->op.peer))
            at = &(*at)->next;
        if (!(first = *at)) continue;
        *at = first->next;
        const struct emu_op op = first->op;
        *first = *task;
        keep(first);
        task->op = op;
    }
    return ncclSuccess;
}

void emu_simulated_forget(ncclComm_t comm) {
    for (struct emu_task *task = comm->simulated, *next; task; task = next) {
        next = task->next;
        free(task);
    }
    comm->simulated = NULL;
}
