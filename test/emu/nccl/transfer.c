/* transfer.c - messages from rank to rank: all of one call make progress together, those of one pair in order.  A message goes
 * through the ring of its pair behind a note of what was called. */
#include <sched.h>
#include <string.h>

#include "area.h"

enum { SPINS = 30 };

static void ring_copy(const struct emu_transfer *transfer, uint64_t at, void *data, size_t bytes) {
    struct emu_ring *ring = transfer->ring;
    const bool into = transfer->sends;
    unsigned char *from = data;
    while (bytes) {
        size_t offset = at % transfer->room, n = transfer->room - offset < bytes ? transfer->room - offset : bytes;
        memcpy(into ? ring->data + offset : from, into ? from : ring->data + offset, n);
        from += n;
        at += n;
        bytes -= n;
    }
}

/* Moves what can be moved now; *moved says whether anything was. */
static ncclResult_t progress(struct emu_transfer *transfer, bool *moved) {
    struct emu_ring *ring = transfer->ring;
    _Atomic uint64_t *mine = transfer->sends ? &ring->written : &ring->read;
    uint64_t at = *mine;
    uint64_t room = transfer->sends ? transfer->room - (at - ring->read) : ring->written - at;
    if (!transfer->noted) {
        struct emu_call_note note = transfer->note;
        if (room < sizeof note) return ncclSuccess;
        ring_copy(transfer, at, &note, sizeof note);
        if (memcmp(&note.key, &transfer->note.key, sizeof note.key))
            return emu_disagree(transfer->comm->rank, &transfer->note.key, transfer->peer, &note.key);
        transfer->note = note;
        at += sizeof note;
        room -= sizeof note;
        transfer->noted = *moved = true;
    }
    uint64_t left = transfer->bytes - transfer->done, n = left < room ? left : room;
    ring_copy(transfer, at, transfer->data + transfer->done, n);
    transfer->done += n;
    if (n) *moved = true;
    *mine = at + n;
    return ncclSuccess;
}

static bool complete(const struct emu_transfer *transfer) {
    return transfer->noted && transfer->done == transfer->bytes;
}

/* One look at every transfer; only the first that is not complete of each pair and direction may move. */
static ncclResult_t sweep(struct emu_transfer *transfers, int count, bool *moved, bool *all_complete) {
    bool busy[2][EMU_MAX_RANKS] = {{false}};
    *moved = false;
    *all_complete = true;
    for (int i = 0; i < count; i++) {
        struct emu_transfer *transfer = &transfers[i];
        bool *held = &busy[transfer->sends][transfer->peer];
        if (*held || complete(transfer)) continue;
        ncclResult_t result = progress(transfer, moved);
        if (result != ncclSuccess) return result;
        if (!complete(transfer)) *held = true, *all_complete = false;
    }
    return ncclSuccess;
}

ncclResult_t emu_transfer_all(ncclComm_t comm, struct emu_transfer *transfers, int count) {
    bool moved, done = false;
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < count; i++) transfers[i].comm = comm;
    for (int spin = 0; result == ncclSuccess && !done; spin++) {
        uint32_t doorbell = comm->area->doorbell;
        result = sweep(transfers, count, &moved, &done);
        if (moved) {
            spin = 0;
            atomic_fetch_add(&comm->area->doorbell, 1);
            emu_futex_wake(&comm->area->doorbell);
        } else if (result == ncclSuccess && !done) {
            ncclResult_t stopped = emu_area_stopped(comm);
            /* What a rank sent before it left is still taken. */
            if (stopped != ncclSuccess) result = sweep(transfers, count, &moved, &done);
            if (result == ncclSuccess && !moved && !done) result = stopped;
            if (spin < SPINS)
                sched_yield();
            else
                emu_futex_wait(&comm->area->doorbell, doorbell);
        }
    }
    return result;
}
