/* teardown.c - takes down what setup.c made: nothing is freed while a kernel may use it. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "bootstrap.h"
#include "copy.h"
#include "group.h"
#include "log.h"
#include "order.h"
#include "params.h"
#include "setup.h"
#include "stats.h"
#include "upkeep.h"

enum { ABORT_SECONDS = 10, SETUP_ABORT_SECONDS = 5, POLL_NS = 200000 };

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
}

bool bl_context_push(const struct bl_comm *comm) {
    return comm->context && bl_driver() && bl_driver()->cuCtxPushCurrent(comm->context) == CUDA_SUCCESS;
}

void bl_context_pop(void) {
    CUcontext popped;
    bl_driver()->cuCtxPopCurrent(&popped);
}

static bool is_ours(const struct bl_comm *comm) {
    return comm && comm->upkeep && comm->upkeep->pid == getpid();
}

/* Calls that a capture on another stream of the process would forbid are fine here: none touches a captured stream. */
static CUstreamCaptureMode relax(void) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    bl_driver()->cuThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

static void unrelax(CUstreamCaptureMode mode) {
    bl_driver()->cuThreadExchangeStreamCaptureMode(&mode);
}

/* A wait for a context that may never come to rest is another thread's; who gives up first leaves `wait` to the other.
 */
struct wait {
    CUcontext context;
    CUevent event;    /* behind all of the communicator's work, if there is one; else the whole context is waited for */
    _Atomic int done; /* 1: the context is at rest, 2: the wait failed */
    _Atomic int users;
};

static void wait_leave(struct wait *wait) {
    if (atomic_fetch_sub(&wait->users, 1) == 1) free(wait);
}

static void *wait_main(void *arg) {
    struct wait *wait = arg;
    const struct bl_driver *cu = bl_driver();
    relax();
    CUresult status = cu->cuCtxPushCurrent(wait->context);
    if (status == CUDA_SUCCESS) status = wait->event ? cu->cuEventSynchronize(wait->event) : cu->cuCtxSynchronize();
    /* A broken context runs nothing any more. */
    bool busy = status == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED || status == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ||
                status == CUDA_ERROR_INVALID_CONTEXT;
    atomic_store(&wait->done, busy ? 2 : 1);
    wait_leave(wait);
    return NULL;
}

/* The event of order.h that is behind Beeline's last launch, replays included, or NULL.  A context cannot be waited for without
 * spoiling captures in it, so the event is better where there is one. */
static CUevent last_event(const struct bl_comm *comm) {
    const struct bl_order *order = &comm->order;
    const bool eager = order->many_streams || bl_params()->stream_events;
    return eager && (!order->captured_ever || bl_params()->graph_mixing) ? order->event : NULL;
}

/* Waits of the copy engines do not see that they are told to leave: they are let go one by one. */
static void let_copies_go(struct bl_comm *comm) {
    if (!comm->copy.emptier || !__atomic_load_n(&comm->control->abort, __ATOMIC_ACQUIRE) || !bl_context_push(comm))
        return;
    bl_copy_let_go(comm);
    bl_context_pop();
}

/* True once nothing of the communicator runs; false after `seconds` (0: for ever), or if nobody can tell.
 */
static bool at_rest(struct bl_comm *comm, unsigned seconds) {
    struct wait *wait = malloc(sizeof(*wait));
    pthread_t thread;
    if (!wait) return false;
    *wait = (struct wait){.context = comm->context, .event = last_event(comm), .users = 2};
    if (pthread_create(&thread, NULL, wait_main, wait)) {
        free(wait);
        return false;
    }
    pthread_detach(thread);
    for (uint64_t end = bl_clock_ns() + seconds * 1000000000ull;
         !atomic_load(&wait->done) && (!seconds || bl_clock_ns() < end);) {
        if (!comm->upkeep->rescuing) let_copies_go(comm);
        nap();
    }
    bool rest = atomic_load(&wait->done) == 1;
    wait_leave(wait);
    return rest;
}

static void tell_to_leave(struct bl_comm *comm) {
    struct bl_control *control = __atomic_load_n(&comm->control, __ATOMIC_ACQUIRE);
    if (control) __atomic_store_n(&control->abort, 1, __ATOMIC_RELEASE);
}

static bool has_run(const struct bl_comm *comm) {
    return comm->order.served || comm->order.captured_ever;
}

void bl_setup_drain(struct bl_comm *comm) {
    if (!is_ours(comm)) return;
    atomic_store(&comm->active, false);
    if (has_run(comm) && !comm->upkeep->stuck && !at_rest(comm, 0)) {
        comm->upkeep->stuck = true;
        bl_warn(
            "communicator %016llx rank %d: whether its last calls ended cannot be told (is a stream being captured?);"
            " its staging is not freed",
            (unsigned long long)comm->id, comm->rank);
    }
}

static void *rescue_main(void *arg) {
    struct bl_comm *comm = arg;
    relax();
    while (!atomic_load(&comm->upkeep->rescued)) {
        let_copies_go(comm);
        nap();
    }
    return NULL;
}

static void rescue_begin(struct bl_comm *comm) {
    struct bl_upkeep *upkeep = comm->upkeep;
    if (!comm->copy.emptier || !has_run(comm) || upkeep->rescuing) return;
    atomic_store(&upkeep->rescued, false);
    upkeep->rescuing = !pthread_create(&upkeep->rescue, NULL, rescue_main, comm);
}

static void rescue_end(struct bl_comm *comm) {
    struct bl_upkeep *upkeep = comm->upkeep;
    if (!upkeep->rescuing) return;
    atomic_store(&upkeep->rescued, true);
    pthread_join(upkeep->rescue, NULL);
    upkeep->rescuing = false;
}

void bl_setup_revoke(struct bl_comm *comm) {
    if (!is_ours(comm)) return;
    atomic_store(&comm->active, false);
    tell_to_leave(comm);
    rescue_begin(comm);
}

void bl_setup_let_go(struct bl_comm *comm) {
    if (!is_ours(comm) || !comm->upkeep->rescuing) return;
    CUstreamCaptureMode mode = relax();
    at_rest(comm, ABORT_SECONDS);
    unrelax(mode);
    rescue_end(comm);
}

struct bl_comm *bl_setup_detach(ncclComm_t handle, enum bl_end end) {
    if (!is_ours(bl_comm_find(handle))) return NULL;
    struct bl_comm *comm = bl_comm_remove(handle);
    if (!comm) return NULL; /* another thread was first */
    struct bl_upkeep *upkeep = comm->upkeep;
    atomic_store(&upkeep->cancel, true);
    /* Set-up leaves its own waits at once; one that sits in a call of the real NCCL is freed by the real abort alone. */
    const uint64_t end_of_wait = bl_clock_ns() + SETUP_ABORT_SECONDS * UINT64_C(1000000000);
    while (bl_setup_busy(comm) && (end == BL_END_DESTROY || bl_clock_ns() < end_of_wait)) nap();
    bl_group_drop(comm);
    if (end == BL_END_ABORT)
        bl_setup_revoke(comm);
    else
        bl_setup_drain(comm);
    return comm;
}

void bl_upkeep_release(struct bl_comm *comm) {
    struct bl_upkeep *upkeep = comm->upkeep;
    __atomic_store_n(&comm->control, NULL, __ATOMIC_RELEASE);
    while (atomic_load(&comm->readers)) nap();
    if (comm->copy.broken) upkeep->stuck = true; /* what it left on its streams may never end */
    if (upkeep->stuck || !bl_context_push(comm)) return;
    bl_copy_close(comm);
    if (upkeep->leaver) bl_leave(upkeep->leaver);
    upkeep->leaver = NULL;
    bl_memory_release(&upkeep->memory);
    bl_modules_close(upkeep->modules);
    upkeep->modules = NULL;
    bl_context_pop();
}

static void release(struct bl_comm *comm, enum bl_end end) {
    struct bl_upkeep *upkeep = comm->upkeep;
    while (bl_setup_busy(comm)) nap();
    if (upkeep->threaded) pthread_join(upkeep->thread, NULL);
    CUstreamCaptureMode mode = bl_driver() ? relax() : CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (end == BL_END_ABORT && has_run(comm) && !at_rest(comm, ABORT_SECONDS)) {
        upkeep->stuck = true;
        bl_warn("communicator %016llx rank %d: kernels still run %d s after the abort; its staging is not freed",
                (unsigned long long)comm->id, comm->rank, ABORT_SECONDS);
    }
    rescue_end(comm);
    bl_stats_log(comm);
    /* What hung on the real communicator ended with it, unless a group holds its end back. */
    if (upkeep->gather.pending && bl_group_open()) upkeep->stuck = true;
    if (!upkeep->stuck && bl_context_push(comm)) {
        bl_selftest_release(&upkeep->selftest);
        bl_gather_close(&upkeep->gather);
        bl_context_pop();
    }
    bl_upkeep_release(comm);
    if (bl_context_push(comm)) {
        bl_order_release(comm);
        bl_context_pop();
    }
    if (upkeep->context_retained) bl_driver()->cuDevicePrimaryCtxRelease(comm->device);
    if (bl_driver()) unrelax(mode);
    bl_comm_retire(comm);
}

/* Those that their owners destroyed behind our back. */
static pthread_mutex_t orphans_lock = PTHREAD_MUTEX_INITIALIZER;
static struct bl_comm *orphans;

void bl_setup_orphan(struct bl_comm *comm) {
    if (!comm) return;
    atomic_store(&comm->active, false);
    atomic_store(&comm->upkeep->cancel, true);
    if (!comm->context && !bl_setup_busy(comm)) { /* it took nothing of any GPU */
        release(comm, BL_END_DESTROY);
        return;
    }
    pthread_mutex_lock(&orphans_lock);
    comm->upkeep->next_orphan = orphans;
    orphans = comm;
    pthread_mutex_unlock(&orphans_lock);
}

static struct bl_comm *take_orphan(CUcontext context) {
    pthread_mutex_lock(&orphans_lock);
    struct bl_comm **at = &orphans;
    while (*at && ((*at)->context != context || !is_ours(*at))) at = &(*at)->upkeep->next_orphan;
    struct bl_comm *comm = *at;
    if (comm) *at = comm->upkeep->next_orphan;
    pthread_mutex_unlock(&orphans_lock);
    return comm;
}

void bl_setup_release_orphans(CUcontext context) {
    struct bl_comm *comm;
    while ((comm = take_orphan(context))) {
        bl_setup_drain(comm);
        release(comm, BL_END_DESTROY);
    }
}

void bl_setup_release(struct bl_comm *comm, enum bl_end end) {
    if (!comm) return;
    CUcontext context = comm->context;
    release(comm, end);
    if (end == BL_END_DESTROY) bl_setup_release_orphans(context);
}
