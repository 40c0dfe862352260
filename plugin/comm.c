/* comm.c - the side table: open addressing with linear probing, read without a lock and written under one.
 *
 * A slot's key is set last and stays until its communicator leaves; then the slot is a tombstone.  A reader that sees
 * its key takes the value and looks at the key again: an unchanged key vouches for the value. */
#include "comm.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "log.h"

enum { SLOTS = 4096, MOST = SLOTS / 4 * 3, RETIRED = 64 };

static struct {
    _Atomic(ncclComm_t) key;
    _Atomic(struct bl_comm *) comm;
} slots[SLOTS];

static char tombstone_key;
#define TOMBSTONE ((ncclComm_t)&tombstone_key)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int used; /* slots that are not empty, tombstones among them */
static struct bl_comm *retired[RETIRED];
static unsigned retirements;

static unsigned slot_of(ncclComm_t handle) {
    uint64_t mixed = (uint64_t)(uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15);
    return (unsigned)(mixed >> 52) % SLOTS;
}

struct bl_comm *bl_comm_find(ncclComm_t handle) {
    if (!handle) return NULL;
    for (unsigned i = slot_of(handle), n = 0; n < SLOTS; i = (i + 1) % SLOTS, n++) {
        ncclComm_t key = atomic_load_explicit(&slots[i].key, memory_order_acquire);
        if (!key) return NULL;
        if (key != handle) continue;
        struct bl_comm *comm = atomic_load_explicit(&slots[i].comm, memory_order_acquire);
        if (atomic_load_explicit(&slots[i].key, memory_order_acquire) == handle) return comm;
    }
    return NULL;
}

/* Under the lock: where the handle is, or SLOTS. */
static unsigned slot_with(ncclComm_t handle) {
    for (unsigned i = slot_of(handle), n = 0; n < SLOTS; i = (i + 1) % SLOTS, n++) {
        ncclComm_t key = atomic_load_explicit(&slots[i].key, memory_order_relaxed);
        if (!key) break;
        if (key == handle) return i;
    }
    return SLOTS;
}

/* Under the lock.  Tombstones at the end of a run serve nobody: they become empty again. */
static struct bl_comm *clear(unsigned i) {
    struct bl_comm *comm = atomic_load_explicit(&slots[i].comm, memory_order_relaxed);
    atomic_store_explicit(&slots[i].key, TOMBSTONE, memory_order_release);
    atomic_store_explicit(&slots[i].comm, NULL, memory_order_release);
    if (atomic_load_explicit(&slots[(i + 1) % SLOTS].key, memory_order_relaxed)) return comm;
    for (; used && atomic_load_explicit(&slots[i].key, memory_order_relaxed) == TOMBSTONE;
         i = (i + SLOTS - 1) % SLOTS) {
        atomic_store_explicit(&slots[i].key, NULL, memory_order_release);
        used--;
    }
    return comm;
}

bool bl_comm_insert(struct bl_comm *comm, struct bl_comm **stale) {
    pthread_mutex_lock(&lock);
    unsigned old = slot_with(comm->handle);
    *stale = old < SLOTS ? clear(old) : NULL;
    unsigned i = slot_of(comm->handle);
    ncclComm_t key;
    while ((key = atomic_load_explicit(&slots[i].key, memory_order_relaxed)) && key != TOMBSTONE && used < SLOTS)
        i = (i + 1) % SLOTS;
    bool room = used < MOST || key == TOMBSTONE;
    if (room) {
        if (!key) used++;
        atomic_store_explicit(&slots[i].comm, comm, memory_order_release);
        atomic_store_explicit(&slots[i].key, comm->handle, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return room;
}

struct bl_comm *bl_comm_remove(ncclComm_t handle) {
    if (!handle) return NULL;
    pthread_mutex_lock(&lock);
    unsigned i = slot_with(handle);
    struct bl_comm *comm = i < SLOTS ? clear(i) : NULL;
    pthread_mutex_unlock(&lock);
    return comm;
}

void bl_comm_each(void (*visit)(struct bl_comm *comm)) {
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < SLOTS; i++) {
        struct bl_comm *comm = atomic_load_explicit(&slots[i].comm, memory_order_relaxed);
        if (comm) visit(comm);
    }
    pthread_mutex_unlock(&lock);
}

struct bl_comm *bl_comm_new(void) {
    return calloc(1, sizeof(struct bl_comm));
}

void bl_comm_retire(struct bl_comm *comm) {
    pthread_mutex_lock(&lock);
    unsigned i = retirements++ % RETIRED;
    struct bl_comm *oldest = retired[i];
    retired[i] = comm;
    pthread_mutex_unlock(&lock);
    if (oldest) free(oldest->upkeep);
    free(oldest);
}

/* The first who sees the kernel's error words it, for all. */
static void note_error(struct bl_comm *comm, uint32_t peer) {
    static pthread_mutex_t words = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&words);
    if (atomic_load(&comm->async_error) == ncclSuccess) {
        snprintf(comm->error_text, sizeof(comm->error_text),
                 "Beeline: rank %d of %d waited %.3g s for rank %u, which did not come (BEELINE_TIMEOUT)", comm->rank,
                 comm->nranks, (double)comm->args.timeout_ns / 1e9, peer);
        atomic_store(&comm->async_error, ncclRemoteError);
        bl_warn("communicator %016llx: %s; its calls fail from now on, abort it", (unsigned long long)comm->id,
                comm->error_text);
    }
    pthread_mutex_unlock(&words);
}

ncclResult_t bl_comm_check(struct bl_comm *comm) {
    ncclResult_t known = (ncclResult_t)atomic_load_explicit(&comm->async_error, memory_order_acquire);
    if (known != ncclSuccess) return known;
    /* Teardown takes `control` away, then waits for those who may still be reading it. */
    atomic_fetch_add(&comm->readers, 1);
    struct bl_control *control = __atomic_load_n(&comm->control, __ATOMIC_ACQUIRE);
    uint32_t error = control ? __atomic_load_n(&control->error, __ATOMIC_ACQUIRE) : BL_KERNEL_OK;
    uint32_t peer = error ? __atomic_load_n(&control->waiting_peer, __ATOMIC_RELAXED) : 0;
    if (error) __atomic_store_n(&control->abort, 1, __ATOMIC_RELEASE); /* by themselves the kernels wait on */
    atomic_fetch_sub(&comm->readers, 1);
    if (error == BL_KERNEL_TIMEOUT) note_error(comm, peer);
    return (ncclResult_t)atomic_load_explicit(&comm->async_error, memory_order_acquire);
}
