/* switch.c - see switch.h. */
#define _GNU_SOURCE /* memfd_create */
#include "switch.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/params.h"
#include "base/why.h"

enum { CLAIM = 64 };

struct bl_switch_page {
    pthread_mutex_t lock;           /* a rank may die with it */
    _Atomic uint64_t point;         /* twice the call of the last change, plus 1 if Beeline serves from there on */
    uint64_t claimed[BL_MAX_RANKS]; /* the first call that each has not claimed */
    uint64_t passed[BL_MAX_RANKS];  /* calls that each had made when it claimed last */
};

int bl_switch_join(struct bl_comm *comm, int fd) {
    void *page = mmap(NULL, sizeof(struct bl_switch_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) return bl_fail("the page of BEELINE_SWITCH (mmap): %m");
    atomic_store(&comm->turnout.page, page);
    return 0;
}

int bl_switch_create(struct bl_comm *comm, int *fd) {
    pthread_mutexattr_t shared;
    *fd = memfd_create("beeline-switch", MFD_CLOEXEC);
    if (*fd < 0 || ftruncate(*fd, sizeof(struct bl_switch_page)))
        return bl_fail("the page of BEELINE_SWITCH (memfd_create): %m");
    if (bl_switch_join(comm, *fd)) return -1;
    struct bl_switch_page *page = atomic_load(&comm->turnout.page);
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&page->lock, &shared);
    pthread_mutexattr_destroy(&shared);
    atomic_init(&page->point, 1);
    return 0;
}

/* What a rank that died has left is whole: each change is one store. */
static void lock(struct bl_switch_page *page) {
    if (pthread_mutex_lock(&page->lock) == EOWNERDEAD) pthread_mutex_consistent(&page->lock);
}

static bool serves(struct bl_turnout *turnout, struct bl_switch_page *page, int rank) {
    const uint64_t call = turnout->calls + turnout->grouped;
    if (call >= turnout->claimed) {
        lock(page);
        turnout->claimed = page->claimed[rank] = call + CLAIM;
        page->passed[rank] = turnout->calls;
        pthread_mutex_unlock(&page->lock);
    }
    const uint64_t point = atomic_load_explicit(&page->point, memory_order_acquire);
    return (call >= point >> 1) == (point & 1);
}

/* An abort may take the page away, and waits for those who look. */
bool bl_switch_serves(struct bl_comm *comm) {
    if (!atomic_load_explicit(&comm->turnout.page, memory_order_relaxed)) return true;
    atomic_fetch_add(&comm->users, 1);
    struct bl_switch_page *page = atomic_load(&comm->turnout.page);
    const bool does = !page || serves(&comm->turnout, page, comm->rank);
    atomic_fetch_sub(&comm->users, 1);
    return does;
}

void bl_switch_count(struct bl_comm *comm, bool grouped) {
    comm->turnout.grouped += grouped;
    comm->turnout.calls += !grouped;
}

void bl_switch_group_ends(struct bl_comm *comm, bool made) {
    if (made) comm->turnout.calls += comm->turnout.grouped;
    comm->turnout.grouped = 0;
}

bool bl_switch_on(void) {
    const char *file = bl_params()->switch_file;
    return !file || access(file, F_OK) != 0;
}

void bl_switch_decide(struct bl_comm *comm, bool on) {
    struct bl_switch_page *page = atomic_load(&comm->turnout.page);
    if (!page || comm->rank) return;
    const uint64_t last = atomic_load(&page->point);
    uint64_t call = 0;
    bool passed = true;
    if ((last & 1) == on) return;
    lock(page);
    for (int rank = 0; rank < comm->nranks; rank++) {
        if (page->claimed[rank] > call) call = page->claimed[rank];
        passed = passed && page->passed[rank] >= last >> 1;
    }
    if (passed) atomic_store_explicit(&page->point, call << 1 | on, memory_order_release);
    pthread_mutex_unlock(&page->lock);
    if (passed)
        bl_warn("communicator %016llx: from call %llu on %s: BEELINE_SWITCH=%s %s", (unsigned long long)comm->id,
                (unsigned long long)call, on ? "Beeline serves" : "all are NCCL's", bl_params()->switch_file,
                on ? "is gone" : "is there");
}

void bl_switch_close(struct bl_comm *comm) {
    struct bl_switch_page *page = atomic_exchange(&comm->turnout.page, NULL);
    while (page && atomic_load(&comm->users)) sched_yield();
    if (page) munmap(page, sizeof(*page));
}
