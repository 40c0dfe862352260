/* area.c - the shared-memory file of a communicator: bootstrap, barriers, stopping. */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "area.h"

enum { SPINS = 30, MAX_LEFTOVERS = 64 };

/* Names whose ranks never all came; removed when the process ends. */
static char leftovers[MAX_LEFTOVERS][sizeof((struct ncclComm *)0)->name];
static _Atomic int nleftovers;

__attribute__((destructor)) static void remove_leftovers(void) {
    for (int i = 0; i < nleftovers && i < MAX_LEFTOVERS; i++) shm_unlink(leftovers[i]);
}

void emu_futex_wait(_Atomic uint32_t *word, uint32_t value) {
    /* The limit covers a stop that is set between a waiter's look at it and its sleep. */
    struct timespec limit = {0, 20 * 1000 * 1000};
    syscall(SYS_futex, word, FUTEX_WAIT, value, &limit, NULL, 0);
}

void emu_futex_wake(_Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static size_t slots_offset(void) {
    return (sizeof(struct emu_area) + 4095) & ~(size_t)4095;
}

static size_t rings_offset(int nranks) {
    return slots_offset() + 2 * (size_t)nranks * EMU_CHUNK;
}

static const size_t ring_bytes[] = {
    [EMU_P2P] = sizeof(struct emu_ring) + EMU_RING, [EMU_ONE_WAY] = sizeof(struct emu_ring) + EMU_AHEAD};

static size_t pairs(int nranks) {
    return (size_t)nranks * (size_t)nranks;
}

static size_t area_bytes(int nranks) {
    return rings_offset(nranks) + pairs(nranks) * (ring_bytes[EMU_P2P] + ring_bytes[EMU_ONE_WAY]);
}

unsigned char *emu_area_slot(ncclComm_t comm, int half, int rank) {
    return (unsigned char *)comm->area + slots_offset() + ((size_t)(half * comm->nranks + rank)) * EMU_CHUNK;
}

struct emu_ring *emu_area_ring(ncclComm_t comm, enum emu_rings rings, int source, int destination) {
    size_t before = rings == EMU_P2P ? 0 : pairs(comm->nranks) * ring_bytes[EMU_P2P];
    size_t at = (size_t)(source * comm->nranks + destination) * ring_bytes[rings];
    return (struct emu_ring *)((unsigned char *)comm->area + rings_offset(comm->nranks) + before + at);
}

static ncclResult_t control_stopped(ncclComm_t comm) {
    if (comm->aborted) return emu_fail(ncclInternalError, "rank %d: the communicator was aborted", comm->rank);
    uint32_t by = comm->area->aborted;
    if (by) return emu_fail(ncclRemoteError, "rank %d: rank %u left or aborted the communicator", comm->rank, by - 1);
    return ncclSuccess;
}

ncclResult_t emu_area_stopped(ncclComm_t comm) {
    if (comm->aborted || comm->area->aborted) return control_stopped(comm);
    if (comm->revoked) return emu_fail(ncclInternalError, "rank %d: the communicator was revoked", comm->rank);
    uint32_t by = comm->area->revoked;
    if (by) return emu_fail(ncclRemoteError, "rank %d: rank %u revoked the communicator", comm->rank, by - 1);
    return ncclSuccess;
}

void emu_area_stop(ncclComm_t comm, bool abort) {
    struct emu_area *area = comm->area;
    uint32_t nobody = 0;
    if (!area) return;
    atomic_compare_exchange_strong(abort ? &area->aborted : &area->revoked, &nobody, (uint32_t)comm->rank + 1);
    emu_futex_wake(&area->attached);
    emu_futex_wake(&area->doorbell);
    emu_futex_wake(&area->data.generation);
    emu_futex_wake(&area->control.generation);
}

static ncclResult_t barrier(ncclComm_t comm, struct emu_barrier *at, ncclResult_t (*stopped)(ncclComm_t)) {
    ncclResult_t result;
    uint32_t generation = at->generation;
    if (atomic_fetch_add(&at->arrived, 1) + 1 == (uint32_t)comm->nranks) {
        at->arrived = 0;
        atomic_fetch_add(&at->generation, 1);
        emu_futex_wake(&at->generation);
        return ncclSuccess;
    }
    for (int spin = 0; at->generation == generation; spin++) {
        /* A rank that left after this barrier does not undo it. */
        if ((result = stopped(comm)) != ncclSuccess) return at->generation != generation ? ncclSuccess : result;
        if (spin < SPINS)
            sched_yield();
        else
            emu_futex_wait(&at->generation, generation);
    }
    return ncclSuccess;
}

ncclResult_t emu_area_barrier(ncclComm_t comm) {
    return barrier(comm, &comm->area->data, emu_area_stopped);
}

ncclResult_t emu_area_exchange(ncclComm_t comm, const void *said, size_t bytes, void *heard) {
    int half = comm->control_round++ & 1;
    memcpy(comm->area->said[half][comm->rank], said, bytes);
    ncclResult_t result = barrier(comm, &comm->area->control, control_stopped);
    /* Nobody writes this half again before all have arrived at the next exchange. */
    for (int r = 0; r < comm->nranks && result == ncclSuccess; r++)
        memcpy((char *)heard + (size_t)r * bytes, comm->area->said[half][r], bytes);
    return result;
}

static ncclResult_t map_area(ncclComm_t comm) {
    size_t bytes = area_bytes(comm->nranks);
    int fd = shm_open(comm->name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return emu_fail(ncclSystemError, "shm_open %s: %s", comm->name, strerror(errno));
    struct stat status;
    void *address = MAP_FAILED;
    /* Only ever grown: a rank that is wrong about nranks must not cut it off under the others. */
    if (fstat(fd, &status) == 0 && (status.st_size >= (off_t)bytes || ftruncate(fd, (off_t)bytes) == 0))
        address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int error = errno;
    close(fd);
    if (address == MAP_FAILED)
        return emu_fail(ncclSystemError, "mapping %zu bytes of %s: %s", bytes, comm->name, strerror(error));
    comm->area = address;
    return ncclSuccess;
}

static uint64_t host_hash(void) {
    char name[256] = "";
    const char *id = getenv("NCCL_HOSTID");
    if (!id || !*id) gethostname(name, sizeof name - 1);
    uint64_t hash = 14695981039346656037u;
    for (const char *c = id && *id ? id : name; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    return hash;
}

/* Takes our place; everybody who finds something wrong says so to all. */
static ncclResult_t take_place(ncclComm_t comm) {
    struct emu_area *area = comm->area;
    struct emu_peer *self = &area->peers[comm->rank];
    uint32_t nranks = 0, taken = 0;
    if (!atomic_compare_exchange_strong(&area->nranks, &nranks, (uint32_t)comm->nranks) &&
        nranks != (uint32_t)comm->nranks)
        return emu_fail(ncclInvalidUsage, "rank %d says nranks %d, others say %u", comm->rank, comm->nranks, nranks);
    if (!atomic_compare_exchange_strong(&self->taken, &taken, 1))
        return emu_fail(ncclInvalidUsage, "rank %d joins twice", comm->rank);
    self->device = comm->device;
    self->host = host_hash();
    return emu_cuda(cuDeviceGetUuid(&self->gpu, comm->device), "cuDeviceGetUuid");
}

static ncclResult_t find_duplicates(ncclComm_t comm) {
    const struct emu_peer *peers = comm->area->peers;
    for (int i = 0; i < comm->nranks; i++)
        for (int j = 0; j < i; j++)
            if (peers[i].host == peers[j].host && memcmp(&peers[i].gpu, &peers[j].gpu, sizeof(CUuuid)) == 0)
                return emu_fail(ncclInvalidUsage, "Duplicate GPU detected : rank %d and rank %d both on CUDA device %d",
                                j, i, peers[i].device);
    return ncclSuccess;
}

static ncclResult_t wait_for_all(ncclComm_t comm) {
    struct emu_area *area = comm->area;
    uint32_t attached;
    while ((attached = area->attached) < (uint32_t)comm->nranks && !area->failed) {
        if (comm->aborted) return emu_fail(ncclInternalError, "rank %d: aborted while it was initialised", comm->rank);
        emu_futex_wait(&area->attached, attached);
    }
    if (!area->failed) return ncclSuccess;
    return emu_fail(ncclRemoteError, "rank %d: rank %u failed to join", comm->rank, area->failed - 1);
}

ncclResult_t emu_area_attach(ncclComm_t comm, ncclResult_t inject) {
    ncclResult_t result = map_area(comm);
    if (result != ncclSuccess) return result;
    struct emu_area *area = comm->area;
    result = inject != ncclSuccess ? inject : take_place(comm);
    if (result != ncclSuccess) area->failed = (uint32_t)comm->rank + 1;
    bool last = atomic_fetch_add(&area->attached, 1) + 1 == (uint32_t)comm->nranks;
    emu_futex_wake(&area->attached);
    if (last) shm_unlink(comm->name);
    if (result == ncclSuccess) result = wait_for_all(comm);
    if (area->attached < (uint32_t)comm->nranks) { /* others may still come, and must find that it failed */
        int i = atomic_fetch_add(&nleftovers, 1);
        if (i < MAX_LEFTOVERS) memcpy(leftovers[i], comm->name, sizeof comm->name);
    }
    return result != ncclSuccess ? result : find_duplicates(comm);
}

void emu_area_detach(ncclComm_t comm) {
    if (comm->area) munmap(comm->area, area_bytes(comm->nranks));
    comm->area = NULL;
}
