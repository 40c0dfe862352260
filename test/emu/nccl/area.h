/* area.h - the shared-memory file in which the ranks of one communicator meet.
 *
 * A file of zeros is a valid start, so whoever comes first creates it and nobody waits for an initialisation; whoever
 * comes last unlinks the name.  Threads: each rank is used by one thread at a time; stop words by any.
 */
#ifndef EMU_AREA_H
#define EMU_AREA_H

#include "emu_nccl.h"

#pragma GCC visibility push(hidden)

enum {
    EMU_MAX_RANKS = 64,
    EMU_CHUNK = 256 << 10, /* bytes of one rank's slot: collectives go through it piece by piece */
    EMU_RING = 64 << 10,   /* bytes of the ring of one (source, destination) pair, for sends, */
    EMU_AHEAD = 512 << 10, /* and for what a root sends or is sent: so far its peers may be behind, or it behind them */
    EMU_CONTROL = 64,      /* bytes that a rank may say in one control exchange */
};

struct emu_barrier {
    _Atomic uint32_t arrived, generation;
};

/* What a rank tells at bootstrap. */
struct emu_peer {
    _Atomic uint32_t taken;
    int32_t device;
    uint64_t host;
    CUuuid gpu;
};

/* What a rank is about to run: all must say the same. */
struct emu_key {
    uint64_t count;
    uint64_t number; /* of collectives on the communicator before */
    int32_t collective, datatype, redop, root;
};

/* Said along with it: the rank's own factor, where the operation has one. */
struct emu_call_note {
    struct emu_key key;
    unsigned char scalar[8];
};

struct emu_ring {
    _Atomic uint64_t written, read;
    unsigned char data[];
};
enum emu_rings { EMU_P2P, EMU_ONE_WAY };

struct emu_area {
    _Atomic uint32_t nranks; /* claimed by the first comer */
    _Atomic uint32_t attached;
    _Atomic uint32_t failed;   /* 1 + the rank that could not attach; settled once all are attached */
    _Atomic uint32_t aborted;  /* 1 + the rank that did */
    _Atomic uint32_t revoked;  /* likewise; stops data, not control */
    _Atomic uint32_t doorbell; /* of the rings */
    struct emu_barrier control, data;
    struct emu_peer peers[EMU_MAX_RANKS];
    struct emu_call_note notes[2][EMU_MAX_RANKS];
    unsigned char said[2][EMU_MAX_RANKS][EMU_CONTROL];
    _Atomic uint8_t came[2][EMU_MAX_RANKS][EMU_MAX_RANKS]; /* to receive, to send a message from one rank to another */
};

/* Attaches comm (name, rank, nranks, device set) and waits for all others; finds ranks that share a GPU or a rank
 * number. With inject != ncclSuccess it makes every rank fail, this one with that result. */
ncclResult_t emu_area_attach(ncclComm_t comm, ncclResult_t inject);
void emu_area_detach(ncclComm_t comm);

/* Every rank says `bytes` (at most EMU_CONTROL), everybody hears all: heard has nranks pieces of `bytes`. */
ncclResult_t emu_area_exchange(ncclComm_t comm, const void *said, size_t bytes, void *heard);

/* All ranks arrive, or ncclRemoteError once the data path was stopped. */
ncclResult_t emu_area_barrier(ncclComm_t comm);
/* Why the data path is stopped for this rank, ncclSuccess if it is not. */
ncclResult_t emu_area_stopped(ncclComm_t comm);

unsigned char *emu_area_slot(ncclComm_t comm, int half, int rank);
struct emu_ring *emu_area_ring(ncclComm_t comm, enum emu_rings rings, int source, int destination);

/* A message at work (transfer.c).  A receiver says in its note what it expects, and has the sender's afterwards. */
struct emu_transfer {
    struct emu_call_note note;
    struct emu_ring *ring;
    size_t room; /* of the ring */
    bool sends, noted;
    unsigned char *data;
    uint64_t bytes, done;
    int peer;
    ncclComm_t comm;
};
/* All of them, until they are done or the data path is stopped. */
ncclResult_t emu_transfer_all(ncclComm_t comm, struct emu_transfer *transfers, int count);
ncclResult_t emu_disagree(int a_rank, const struct emu_key *a, int b_rank, const struct emu_key *b);

/* Stops the data path of all ranks (abort: control as well) and wakes them. */
void emu_area_stop(ncclComm_t comm, bool abort);

void emu_futex_wait(_Atomic uint32_t *word, uint32_t value); /* at most some ms, shared between processes */
void emu_futex_wake(_Atomic uint32_t *word);

#pragma GCC visibility pop
#endif
