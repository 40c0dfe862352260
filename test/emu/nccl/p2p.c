/* p2p.c - the sends and receives of one group: all make progress together, those of one pair in order. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "area.h"

enum { SPINS = 30 };

/* One send or receive at work; a message goes through the ring of its pair behind its length. */
struct transfer {
    struct emu_ring *ring;
    bool sends, header_done;
    unsigned char *data;
    uint64_t bytes, done;
    int peer;
};

static void ring_copy(struct emu_ring *ring, uint64_t at, void *data, size_t bytes, bool into) {
    unsigned char *from = data;
    while (bytes) {
        size_t offset = at % EMU_RING, n = EMU_RING - offset < bytes ? EMU_RING - offset : bytes;
        memcpy(into ? ring->data + offset : from, into ? from : ring->data + offset, n);
        from += n;
        at += n;
        bytes -= n;
    }
}

/* Moves what can be moved now; *moved says whether anything was. */
static ncclResult_t progress(struct transfer *transfer, bool *moved) {
    struct emu_ring *ring = transfer->ring;
    _Atomic uint64_t *mine = transfer->sends ? &ring->written : &ring->read;
    uint64_t at = *mine;
    uint64_t room = transfer->sends ? EMU_RING - (at - ring->read) : ring->written - at;
    if (!transfer->header_done) {
        uint64_t length = transfer->bytes;
        if (room < sizeof length) return ncclSuccess;
        ring_copy(ring, at, &length, sizeof length, transfer->sends);
        if (length != transfer->bytes)
            return emu_fail(ncclInternalError, "ranks disagree: ncclRecv of %llu bytes from rank %d, which sends %llu",
                            (unsigned long long)transfer->bytes, transfer->peer, (unsigned long long)length);
        at += sizeof length;
        room -= sizeof length;
        transfer->header_done = *moved = true;
    }
    uint64_t left = transfer->bytes - transfer->done, n = left < room ? left : room;
    ring_copy(ring, at, transfer->data + transfer->done, n, transfer->sends);
    transfer->done += n;
    if (n) *moved = true;
    *mine = at + n;
    return ncclSuccess;
}

static bool complete(const struct transfer *transfer) {
    return transfer->header_done && transfer->done == transfer->bytes;
}

/* One look at every transfer; only the first that is not complete of each pair and direction may move. */
static ncclResult_t sweep(struct transfer *transfers, int count, bool *moved, bool *all_complete) {
    bool busy[2][EMU_MAX_RANKS] = {{false}};
    *moved = false;
    *all_complete = true;
    for (int i = 0; i < count; i++) {
        struct transfer *transfer = &transfers[i];
        bool *held = &busy[transfer->sends][transfer->peer];
        if (*held || complete(transfer)) continue;
        ncclResult_t result = progress(transfer, moved);
        if (result != ncclSuccess) return result;
        if (!complete(transfer)) *held = true, *all_complete = false;
    }
    return ncclSuccess;
}

ncclResult_t emu_run_p2p(ncclComm_t comm, const struct emu_op *ops, int nops) {
    struct transfer *transfers = calloc((size_t)nops, sizeof *transfers);
    bool moved, done = false;
    ncclResult_t result = transfers ? ncclSuccess : emu_fail(ncclSystemError, "out of memory");
    for (int i = 0; i < nops && transfers; i++) {
        bool sends = ops[i].collective == EMU_SEND;
        transfers[i] = (struct transfer){
            .sends = sends,
            .peer = ops[i].peer,
            .ring = sends ? emu_area_ring(comm, comm->rank, ops[i].peer) : emu_area_ring(comm, ops[i].peer, comm->rank),
            .data = sends ? (unsigned char *)ops[i].sendbuff : ops[i].recvbuff,
            .bytes = ops[i].count * emu_datatype_size(ops[i].datatype),
        };
    }
    for (int spin = 0; result == ncclSuccess && !done; spin++) {
        uint32_t doorbell = comm->area->doorbell;
        result = sweep(transfers, nops, &moved, &done);
        if (moved) {
            spin = 0;
            atomic_fetch_add(&comm->area->doorbell, 1);
            emu_futex_wake(&comm->area->doorbell);
        } else if (result == ncclSuccess && !done) {
            ncclResult_t stopped = emu_area_stopped(comm);
            /* What a rank sent before it left is still taken. */
            if (stopped != ncclSuccess) result = sweep(transfers, nops, &moved, &done);
            if (result == ncclSuccess && !moved && !done) result = stopped;
            if (spin < SPINS)
                sched_yield();
            else
                emu_futex_wait(&comm->area->doorbell, doorbell);
        }
    }
    free(transfers);
    return result;
}
