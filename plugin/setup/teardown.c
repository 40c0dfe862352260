/* teardown.c - see teardown.h. */
#include "teardown.h"

#include <pthread.h>

#include "comm/context.h"
#include "launch/copy.h"
#include "base/log.h"
#include "launch/order.h"
#include "launch/room.h"
#include "comm/stats.h"
#include "base/thread.h"
#include "build.h"
#include "base/clock.h"

enum { POLL_NS = 200000 };

/* So long an abort waits for a set-up, and then for what leaves by itself; a thread waits on. */
static const uint64_t SETUP_NS = 300000000, REST_NS = 500000000;

static const uint64_t UNTOLD_NS = UINT64_C(5000000000); /* that destroy waits for replays that leave no event */

static void nap(void) {
    bl_nap(POLL_NS);
}

/* Waits of the copy engines do not see that they are told to leave: they are let go one by one. */
static void let_copies_go(struct bl_comm *comm) {
    const struct bl_control *control = __atomic_load_n(&comm->control, __ATOMIC_ACQUIRE);
    if (!comm->copy.drain_stream || !control || !__atomic_load_n(&control->abort, __ATOMIC_ACQUIRE)) return;
    if (!bl_context_push(comm)) return;
    bl_copy_let_go(comm);
    bl_context_pop();
}

static bool has_run(const struct bl_comm *comm) {
    return comm->order.served || comm->order.captured_ever;
}

/* Before `deadline` (bl_clock_ns) whatever may end ends; copy engines are let go meanwhile. */
static bool pass(struct bl_comm *comm, uint64_t deadline) {
    if (bl_clock_ns() > deadline) return false;
    if (!comm->resources->rescuing) let_copies_go(comm);
    nap();
    return true;
}

enum rest { AT_REST = 1, BUSY, UNKNOWN };

static int wait_for_context(void *context) {
    const struct bl_driver *cu = bl_driver();
    bl_driver_relax();
    CUresult status = cu->cuCtxPushCurrent(context);
    if (status == CUDA_SUCCESS) status = cu->cuCtxSynchronize();
    const bool refused = status == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ||
                         status == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED || status == CUDA_ERROR_INVALID_CONTEXT;
    return refused ? UNKNOWN : AT_REST; /* a broken context runs nothing any more */
}

/* Replays that nothing orders leave no event behind, so the context is waited for. */
static enum rest context_at_rest(struct bl_comm *comm, uint64_t deadline) {
    struct bl_errand *wait = bl_errand_begin(wait_for_context, comm->context);
    if (!wait) return UNKNOWN;
    while (!atomic_load(&wait->result) && pass(comm, deadline)) continue;
    const int result = atomic_load(&wait->result);
    bl_errand_leave(wait);
    return result ? (enum rest)result : BUSY;
}

static bool has_ended(struct bl_comm *comm) {
    const CUstreamCaptureMode mode = bl_driver_relax();
    CUresult status = CUDA_ERROR_INVALID_CONTEXT; /* which runs nothing any more */
    if (bl_context_push(comm)) {
        status = bl_order_query(comm);
        bl_context_pop();
    }
    bl_driver_unrelax(mode);
    return status != CUDA_ERROR_NOT_READY;
}

/* Whether it may have replays that leave no event. */
static bool has_untold(const struct bl_comm *comm) {
    return comm->order.captured_ever && comm->unmixed;
}

/* Whether the communicator's launches have ended. */
static enum rest at_rest(struct bl_comm *comm, uint64_t deadline) {
    if (!has_run(comm)) return AT_REST;
    if (has_untold(comm)) return context_at_rest(comm, deadline);
    while (!has_ended(comm))
        if (!pass(comm, deadline)) return BUSY;
    return AT_REST;
}

/* Set-up takes down itself what it has made when it is to end. */
static bool is_set_up(struct bl_comm *comm, uint64_t deadline) {
    for (; bl_resources_busy(comm); nap())
        if (bl_clock_ns() > deadline) return false;
    return true;
}

/* No thread is in a launch, and none will be. */
static bool deserted(struct bl_comm *comm, uint64_t deadline) {
    atomic_store(&comm->active, false);
    atomic_store(&comm->shares_room, false);
    while (atomic_load(&comm->users))
        if (!pass(comm, deadline)) return false;
    return true;
}

void bl_teardown_drain(struct bl_comm *comm) {
    if (!bl_resources_are_ours(comm)) return;
    deserted(comm, UINT64_MAX);
    /* What else the context runs may wait for the caller. */
    const uint64_t deadline = has_untold(comm) ? bl_clock_ns() + UNTOLD_NS : UINT64_MAX;
    if (comm->resources->stuck || at_rest(comm, deadline) == AT_REST) return;
    comm->resources->stuck = true;
    bl_warn("communicator %016llx rank %d: whether its last calls ended cannot be told (is a stream being captured, or "
            "busy while nothing orders replays?); its staging is not freed",
            (unsigned long long)comm->id, comm->rank);
}

/* Teardown takes `control` away, then waits for those who may still be looking: one of the two sees the other. */
bool bl_teardown_finalizing(struct bl_comm *comm) {
    if (!bl_resources_are_ours(comm) || !atomic_load(&comm->resources->finalized)) return false;
    atomic_fetch_add(&comm->users, 1);
    const bool looked = __atomic_load_n(&comm->control, __ATOMIC_SEQ_CST) && has_run(comm);
    const bool busy = looked && !has_ended(comm);
    atomic_fetch_sub(&comm->users, 1);
    return busy;
}

bool bl_teardown_finalize(struct bl_comm *comm) {
    if (bl_resources_are_ours(comm)) atomic_store(&comm->resources->finalized, true);
    return !bl_teardown_finalizing(comm);
}

static void *rescue_main(void *arg) {
    struct bl_comm *comm = arg;
    bl_driver_relax();
    while (!atomic_load(&comm->resources->rescued)) {
        let_copies_go(comm);
        nap();
    }
    return NULL;
}

static void rescue_begin(struct bl_comm *comm) {
    struct bl_resources *resources = comm->resources;
    if (!comm->copy.drain_stream || !has_run(comm) || resources->rescuing) return;
    atomic_store(&resources->rescued, false);
    resources->rescuing = bl_thread_start(&resources->rescue, rescue_main, comm);
}

static void rescue_end(struct bl_comm *comm) {
    struct bl_resources *resources = comm->resources;
    if (!resources->rescuing) return;
    atomic_store(&resources->rescued, true);
    pthread_join(resources->rescue, NULL);
    resources->rescuing = false;
}

void bl_teardown_revoke(struct bl_comm *comm) {
    if (!bl_resources_are_ours(comm)) return;
    atomic_store(&comm->resources->revoked, true);
    atomic_store(&comm->active, false);
    atomic_store(&comm->shares_room, false);
    bl_comm_tell_to_leave(comm);
    rescue_begin(comm);
}

void bl_teardown_let_go(struct bl_comm *comm) {
    if (!bl_resources_are_ours(comm) || !comm->resources->rescuing) return;
    /* While it is busy the thread goes on, until the release. */
    if (at_rest(comm, bl_clock_ns() + REST_NS) != BUSY) rescue_end(comm);
}

struct search {
    const struct bl_comm *of;
    bool found;
};

static void look(struct bl_comm *comm, void *arg) {
    struct search *search = arg;
    search->found = search->found || (comm != search->of && comm->id == search->of->id);
}

/* Whether this process has other ranks of the communicator that have not ended.  NCCL waits for the launches of all of them when the last one is destroyed,
 * and for nothing before: what a launch waits for may come behind that. */
static bool has_others(struct bl_comm *comm) {
    struct search search = {comm, false};
    bl_comm_each(look, &search);
    return search.found;
}

struct bl_comm *bl_teardown_detach(ncclComm_t handle, enum bl_end end) {
    if (!bl_resources_are_ours(bl_comm_find(handle))) return NULL;
    struct bl_comm *comm = bl_comm_remove(handle);
    if (!comm) return NULL; /* another thread was first */
    atomic_store(&comm->resources->cancel, true);
    /* Set-up leaves its own waits at once, but a thread may wait for the real init, which the real abort alone ends. */
    is_set_up(comm, end == BL_END_DESTROY ? UINT64_MAX : bl_clock_ns() + SETUP_NS);
    comm->resources->early = end == BL_END_DESTROY && has_others(comm);
    if (end == BL_END_ABORT)
        bl_teardown_revoke(comm);
    else if (!comm->resources->early)
        bl_teardown_drain(comm);
    return comm;
}

/* Nothing of it runs any more, on a thread or on the GPU, or it is stuck. */
static void free_all(struct bl_comm *comm) {
    struct bl_resources *resources = comm->resources;
    if (resources->threaded) pthread_join(resources->thread, NULL);
    const CUstreamCaptureMode mode = bl_driver_relax();
    rescue_end(comm);
    bl_stats_end(comm);
    bl_build_undo(comm);
    const bool lives = bl_context_push(comm);
    bl_room_leave(comm, lives);
    if (lives) {
        bl_order_close(comm);
        bl_context_pop();
    }
    if (lives && comm->context_retained) bl_driver()->cuDevicePrimaryCtxRelease(comm->device);
    bl_driver_unrelax(mode);
    pthread_mutex_lock(&comm->pending.lock);
    free(comm->pending.calls);
    comm->pending.calls = NULL;
    comm->pending.count = 0;
    atomic_store(&comm->pending.set, false);
    pthread_mutex_unlock(&comm->pending.lock);
    bl_comm_retire(comm);
}

/* Of a communicator that was told to leave: whether all has left by then. */
static bool has_left(struct bl_comm *comm, uint64_t deadline) {
    return is_set_up(comm, deadline) && deserted(comm, deadline) && at_rest(comm, deadline) != BUSY;
}

static int reap_aborted(void *comm) {
    has_left(comm, UINT64_MAX);
    free_all(comm);
    return 1;
}

static int reap_destroyed(void *arg) {
    struct bl_comm *comm = arg;
    if (comm->resources->early) bl_teardown_drain(comm);
    free_all(comm);
    return 1;
}

/* Keeps the context for longer than the caller may; false of one that is no device's primary one, which its owner may destroy. */
static bool keep_context(struct bl_comm *comm) {
    CUcontext primary = NULL;
    if (!comm->context || comm->context_retained) return true;
    if (bl_driver()->cuDevicePrimaryCtxRetain(&primary, comm->device) != CUDA_SUCCESS) return false;
    comm->context_retained = primary == comm->context;
    if (!comm->context_retained) bl_driver()->cuDevicePrimaryCtxRelease(comm->device);
    return comm->context_retained;
}

/* Of one whose set-up and launches have ended, or that was told to leave (BL_END_ABORT).
 * Nothing is freed under a launch, and nobody waits long for more than NCCL waits for: who aborts, for a launch, which may be
 * held up by whatever else is on its stream; who destroys, for the work of others, which the driver may wait for where memory
 * is freed. */
static void release(struct bl_comm *comm, enum bl_end end) {
    const uint64_t id = comm->id, most = REST_NS + (comm->resources->nvls ? BL_NVLS_RELEASE_NS : 0);
    const uint64_t deadline = bl_clock_ns() + most;
    const int rank = comm->rank;
    int (*reap)(void *) = end == BL_END_DESTROY ? reap_destroyed : reap_aborted;
    struct bl_errand *reaper = keep_context(comm) ? bl_errand_begin(reap, comm) : NULL;
    if (reaper) {
        while (!atomic_load(&reaper->result) && bl_clock_ns() < deadline) nap();
        if (!atomic_load(&reaper->result))
            bl_info("communicator %016llx rank %d: what has not ended yet is waited for in the background",
                    (unsigned long long)id, rank);
        bl_errand_leave(reaper);
    } else if (end == BL_END_DESTROY) {
        reap_destroyed(comm);
    } else if (has_left(comm, deadline)) {
        free_all(comm);
    } else {
        bl_warn(
            "communicator %016llx rank %d: what the abort has not ended yet is on a context of the caller's own, or "
            "there is no thread to wait for it: its staging is not freed",
            (unsigned long long)id, rank);
    }
}

/* Those that their owners destroyed behind our back. */
static pthread_mutex_t orphans_lock = PTHREAD_MUTEX_INITIALIZER;
static struct bl_comm *orphans;

void bl_teardown_orphan(struct bl_comm *comm) {
    if (!comm) return;
    atomic_store(&comm->active, false);
    atomic_store(&comm->resources->cancel, true);
    if (!comm->context && !bl_resources_busy(comm)) { /* it took nothing of any GPU */
        release(comm, BL_END_DESTROY);
        return;
    }
    pthread_mutex_lock(&orphans_lock);
    comm->resources->next_orphan = orphans;
    orphans = comm;
    pthread_mutex_unlock(&orphans_lock);
}

static struct bl_comm *take_orphan(CUcontext context) {
    pthread_mutex_lock(&orphans_lock);
    struct bl_comm **at = &orphans;
    while (*at && ((*at)->context != context || !bl_resources_are_ours(*at))) at = &(*at)->resources->next_orphan;
    struct bl_comm *comm = *at;
    if (comm) *at = comm->resources->next_orphan;
    pthread_mutex_unlock(&orphans_lock);
    return comm;
}

void bl_teardown_release_orphans(CUcontext context) {
    struct bl_comm *comm;
    while ((comm = take_orphan(context))) {
        is_set_up(comm, UINT64_MAX);
        bl_teardown_drain(comm);
        release(comm, BL_END_DESTROY);
    }
}

void bl_teardown_release(struct bl_comm *comm, enum bl_end end) {
    if (!comm) return;
    CUcontext context = comm->context;
    release(comm, end);
    if (end == BL_END_DESTROY) bl_teardown_release_orphans(context);
}
