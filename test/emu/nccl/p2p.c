/* p2p.c - the sends and receives of one group. */
#include <stdlib.h>

#include "area.h"

bool emu_is_p2p(const struct emu_op *op) {
    return op->collective == EMU_SEND || op->collective == EMU_RECV;
}

/* Where it says whether the sender, or the receiver, of such messages has come. */
static _Atomic uint8_t *came(ncclComm_t comm, const struct emu_op *op, bool sender) {
    const bool sends = op->collective == EMU_SEND;
    return &comm->area->came[sender][sends ? comm->rank : op->peer][sends ? op->peer : comm->rank];
}

void emu_p2p_announce(const struct emu_task *task) {
    const struct emu_op *op = &task->op;
    ncclComm_t comm = task->comm;
    if (!emu_is_p2p(op)) return;
    pthread_mutex_lock(&comm->launching);
    if (emu_task_check(task) == ncclSuccess && !*came(comm, op, op->collective == EMU_SEND)) {
        *came(comm, op, op->collective == EMU_SEND) = 1;
        atomic_fetch_add(&comm->area->doorbell, 1);
        emu_futex_wake(&comm->area->doorbell);
    }
    pthread_mutex_unlock(&comm->launching);
}

/* A message to itself must find its other end in the group. */
static ncclResult_t pair_own(ncclComm_t comm, const struct emu_op *ops, int nops) {
    int sends = 0, receives = 0;
    for (int i = 0; i < nops; i++) {
        if (ops[i].peer != comm->rank) continue;
        sends += ops[i].collective == EMU_SEND;
        receives += ops[i].collective == EMU_RECV;
    }
    if (sends == receives) return ncclSuccess;
    return emu_fail(ncclInvalidUsage, sends > receives ? "Trying to send to self without a matching recv"
                                                       : "Trying to recv to self without a matching send");
}

ncclResult_t emu_p2p_connect(ncclComm_t comm, const struct emu_op *ops, int nops) {
    ncclResult_t result = pair_own(comm, ops, nops);
    for (int i = 0; i < nops && result == ncclSuccess; i++) {
        if (ops[i].peer == comm->rank) continue;
        const _Atomic uint8_t *other = came(comm, &ops[i], ops[i].collective == EMU_RECV);
        while (!*other && result == ncclSuccess) {
            const uint32_t doorbell = comm->area->doorbell;
            result = emu_area_stopped(comm);
            if (!*other && result == ncclSuccess) emu_futex_wait(&comm->area->doorbell, doorbell);
        }
    }
    return result;
}

ncclResult_t emu_run_p2p(ncclComm_t comm, const struct emu_op *ops, int nops) {
    struct emu_transfer *transfers = calloc((size_t)nops, sizeof *transfers);
    if (!transfers) return emu_fail(ncclSystemError, "out of memory");
    for (int i = 0; i < nops; i++) {
        const bool sends = ops[i].collective == EMU_SEND;
        const uint64_t bytes = ops[i].count * emu_datatype_size(ops[i].datatype);
        transfers[i] = (struct emu_transfer){
            .note = {.key = {.count = bytes, .collective = EMU_SEND}}, /* bytes are what has to agree */
            .ring = sends ? emu_area_ring(comm, EMU_P2P, comm->rank, ops[i].peer)
                          : emu_area_ring(comm, EMU_P2P, ops[i].peer, comm->rank),
            .room = EMU_RING,
            .sends = sends,
            .peer = ops[i].peer,
            .data = sends ? (unsigned char *)ops[i].sendbuff : ops[i].recvbuff,
            .bytes = bytes,
        };
    }
    ncclResult_t result = emu_transfer_all(comm, transfers, nops);
    free(transfers);
    return result;
}
