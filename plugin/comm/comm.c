/* comm.c - the side table: open addressing with linear probing, read without a lock and written under one.
 *
 * A slot's key is set last and stays until its communicator leaves; then the slot is a tombstone.  A reader that sees
 * its key takes the value and looks at the key again: an unchanged key vouches for the value. */
#include "comm.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"

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

void bl_comm_each(void (*visit)(struct bl_comm *comm, void *arg), void *arg) {
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < SLOTS; i++) {
        struct bl_comm *comm = atomic_load_explicit(&slots[i].comm, memory_order_relaxed);
        if (comm) visit(comm, arg);
    }
    pthread_mutex_unlock(&lock);
}

struct bl_comm *bl_comm_new(void) {
    struct bl_comm *comm = calloc(1, sizeof(*comm));
    if (comm) pthread_mutex_init(&comm->pending.lock, NULL);
    return comm;
}

void bl_comm_retire(struct bl_comm *comm) {
    pthread_mutex_lock(&lock);
    unsigned i = retirements++ % RETIRED;
    struct bl_comm *oldest = retired[i];
    retired[i] = comm;
    pthread_mutex_unlock(&lock);
    if (!oldest || atomic_load(&oldest->pins)) return; /* a group that never ends keeps its own */
    free(oldest->beside.streams);
    free(oldest->resources);
    free(oldest->stats);
    free(oldest);
}

void bl_comm_break(struct bl_comm *comm, ncclResult_t error, const char *format, ...) {
    static pthread_mutex_t words = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&words);
    const bool first = atomic_load(&comm->async_error) == ncclSuccess;
    if (first) {
        va_list list;
        va_start(list, format);
        vsnprintf(comm->error_text, sizeof(comm->error_text), format, list);
        va_end(list);
        atomic_store(&comm->async_error, error);
    }
    pthread_mutex_unlock(&words);
    if (first)
        bl_warn("communicator %016llx: %s; its calls fail from now on, abort it", (unsigned long long)comm->id,
                comm->error_text);
}

void bl_comm_tell_to_leave(struct bl_comm *comm) {
    struct bl_control *control = __atomic_load_n(&comm->control, __ATOMIC_ACQUIRE);
    if (control) __atomic_store_n(&control->abort, 1, __ATOMIC_RELEASE);
}

/* A launch needs the context of its stream current; a thread that drives several GPUs has another one. */
bool bl_comm_visit(struct bl_comm *comm, struct bl_visit *visit) {
    CUcontext current = NULL;
    atomic_fetch_add(&comm->users, 1);
    if (!atomic_load(&comm->active) && !atomic_load(&comm->shares_room)) {
        atomic_fetch_sub(&comm->users, 1);
        return false;
    }
    bl_driver()->cuCtxGetCurrent(&current);
    visit->pushed = current != comm->context && bl_driver()->cuCtxPushCurrent(comm->context) == CUDA_SUCCESS;
    return true;
}

void bl_comm_leave(struct bl_comm *comm, const struct bl_visit *visit) {
    CUcontext ours;
    if (visit->pushed) bl_driver()->cuCtxPopCurrent(&ours);
    atomic_fetch_sub(&comm->users, 1);
}

ncclResult_t bl_comm_check(struct bl_comm *comm) {
    ncclResult_t known = (ncclResult_t)atomic_load_explicit(&comm->async_error, memory_order_acquire);
    if (known != ncclSuccess) return known;
    /* Teardown takes `control` away, then waits for those who may still be reading it: one of the two sees the other. */
    atomic_fetch_add(&comm->users, 1);
    const struct bl_control *control = __atomic_load_n(&comm->control, __ATOMIC_SEQ_CST);
    uint32_t error = control ? __atomic_load_n(&control->error, __ATOMIC_ACQUIRE) : BL_KERNEL_OK;
    uint32_t peer = error ? __atomic_load_n(&control->waiting_peer, __ATOMIC_RELAXED) : 0;
    atomic_fetch_sub(&comm->users, 1);
    if (error == BL_KERNEL_TIMEOUT)
        bl_comm_break(comm, ncclRemoteError,
                      "Beeline: rank %d of %d has waited %.3g s for rank %u, which has not come (BEELINE_TIMEOUT)",
                      comm->rank, comm->nranks, (double)comm->args.timeout_ns / 1e9, peer);
    return (ncclResult_t)atomic_load_explicit(&comm->async_error, memory_order_acquire);
}
