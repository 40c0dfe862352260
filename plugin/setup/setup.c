/* setup.c - from a communicator that the real NCCL has made to one that Beeline serves, or that is left to NCCL.
 *
 * The ranks meet (meeting.h), and then build (build.c) step by step, each voted on; nothing is called on the communicator.
 */
#include "setup.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "member.h"
#include "launch/order.h"
#include "base/params.h"
#include "real/real.h"
#include "launch/room.h"
#include "base/selection.h"
#include "comm/stats.h"
#include "base/thread.h"
#include "comm/watch.h"
#include "base/clock.h"
#include "base/why.h"
#include "build.h"
#include "promise.h"
#include "steps.h"
#include "teardown.h"

static void run_in_context(struct bl_member *member, void (*act)(struct bl_member *)) {
    if (!bl_context_push(member->comm)) {
        bl_member_fail(member, BL_FAILED, member->comm->rank, "its context cannot be made current");
        return;
    }
    act(member);
    bl_context_pop();
}

/* --- the beginning: what is known without any peer --- */

static void begin(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    bl_mesh_init(&member->mesh, 0, 0, NULL);
    if (BL_REAL(ncclCommCount, comm->handle, &comm->nranks) != ncclSuccess ||
        BL_REAL(ncclCommUserRank, comm->handle, &comm->rank) != ncclSuccess)
        bl_member_fail(member, BL_DECLINED, -1, "NCCL has not made it");
    else if (comm->nranks < 2 || comm->nranks > BL_MAX_RANKS)
        bl_member_fail(member, BL_DECLINED, -1, "Beeline serves 2 to %d ranks", BL_MAX_RANKS);
    if (comm->nranks > BL_MAX_RANKS) return;
    if (!bl_selection_has(bl_params()->comms, member->resources->wishes.name, comm->nranks))
        bl_member_fail(member, BL_DECLINED, -1, "BEELINE_COMMS=%.120s leaves it out (%s%s%d ranks)", bl_params()->comms,
                       member->resources->wishes.name, *member->resources->wishes.name ? ", " : "", comm->nranks);
    bl_context_find(comm); /* here: the thread that builds may have another current, or none */
    bl_mesh_init(&member->mesh, comm->rank, comm->nranks, &member->resources->cancel);
    if (!member->resources->meeting.keyed)
        bl_member_fail(member, BL_DECLINED, -1, "%s", member->resources->meeting.why);
    if (member->resources->unlisted)
        bl_member_fail(member, BL_FAILED, comm->rank, "its table of communicators is full");
}

/* --- the middle: with the peers --- */
struct job {
    struct bl_member *members[BL_MAX_RANKS];
    int count;
    bool threaded;
    pthread_t thread;
};

static void *build_job(void *arg) {
    struct job *job = arg;
    const CUstreamCaptureMode mode = bl_driver_relax();
    bl_build(job->members, job->count, false);
    bl_driver_unrelax(mode);
    return NULL;
}

/* The members of one communicator go together; several communicators go at once, since another rank may have them in another
 * order. */
static void build(struct bl_member *members, int count) {
    struct job *jobs = calloc((size_t)count, sizeof(*jobs));
    int used = 0;
    for (int i = 0; i < count; i++) {
        const unsigned char *key = members[i].resources->meeting.key;
        const int nranks = members[i].comm->nranks;
        if (nranks < 2 || nranks > BL_MAX_RANKS || !members[i].resources->meeting.keyed) continue;
        if (!jobs) {
            bl_member_fail(&members[i], BL_FAILED, members[i].comm->rank, "out of host memory");
            continue;
        }
        int at = 0;
        while (at < used && memcmp(jobs[at].members[0]->resources->meeting.key, key, BL_SHA256_BYTES)) at++;
        if (at == used) used++;
        if (jobs[at].count < BL_MAX_RANKS)
            jobs[at].members[jobs[at].count++] = &members[i];
        else
            bl_member_fail(&members[i], BL_FAILED, members[i].comm->rank, "more ranks than it has use its id");
    }
    for (int i = 1; i < used; i++) jobs[i].threaded = bl_thread_start(&jobs[i].thread, build_job, &jobs[i]);
    for (int i = 0; i < used; i++)
        if (!jobs[i].threaded) build_job(&jobs[i]);
    for (int i = 1; i < used; i++)
        if (jobs[i].threaded) pthread_join(jobs[i].thread, NULL);
    free(jobs);
}

/* --- the end --- */
/* What is the same on all ranks, by rank 0. */
static void log_shared(const struct bl_member *member) {
    const struct bl_comm *comm = member->comm;
    const int version = bl_real_version();
    char multicast[280], limit[60] = "";
    const unsigned blocks = bl_identity_least(member->all, comm->nranks).max_blocks;
    if (blocks != UINT_MAX) snprintf(limit, sizeof(limit), ", at most %u blocks a launch (maxCTAs)", blocks);
    if (member->multicast.outcome == BL_WELL)
        snprintf(multicast, sizeof(multicast), "%.1f MiB", (double)comm->resources->nvls->multicast.bytes / (1 << 20));
    else
        snprintf(multicast, sizeof(multicast), "off (%s)", member->multicast.why);
    bl_info("communicator %016llx: rank %d of %d on %s (%s), link %s%s, staging %.1f MiB, multicast %s, NCCL %d.%d.%d, "
            "set up in %.1f ms",
            (unsigned long long)comm->id, comm->rank, comm->nranks, member->identity.pci, member->identity.gpu,
            bl_link_name(member->link), limit, (double)comm->memory->bytes / (1 << 20), multicast, version / 10000,
            version / 100 % 100, version % 100, (double)(bl_clock_ns() - member->begin) / 1e6);
    for (int c = 0; c < BL_COLLECTIVES; c++) {
        char ranges[512];
        bl_table_describe(&comm->table, (enum bl_collective)c, ranges, sizeof(ranges));
        bl_info("communicator %016llx: %s %s (%s)", (unsigned long long)comm->id, bl_collective_name(c), ranges,
                comm->table.source[c]);
    }
}

static void log_served(const struct bl_member *member) {
    const struct bl_comm *comm = member->comm;
    if (member->multicast.outcome == BL_FAILED && comm->rank == 0)
        bl_log_at(NULL, BL_LOG_WARN,
                  "communicator %016llx: BEELINE_MULTICAST=1, and multicast cannot be had: %s; other kernels serve",
                  (unsigned long long)comm->id, member->multicast.why);
    if (!bl_log_enabled(BL_LOG_INFO)) return;
    if (comm->rank == 0)
        log_shared(member);
    else
        bl_info("communicator %016llx: rank %d of %d on %s, as rank 0 says", (unsigned long long)comm->id, comm->rank,
                comm->nranks, member->identity.pci);
    bl_trace("communicator %016llx rank %d: met in %.2f ms, built in %.1f ms, agreed in %.2f ms",
             (unsigned long long)comm->id, comm->rank, (double)(member->met_at - member->begin) / 1e6,
             (double)(member->built_at - member->met_at) / 1e6, (double)(bl_clock_ns() - member->built_at) / 1e6);
}

/* One rank speaks up for all: rank 0, or rank 1 where rank 0 is the one that is gone.  One that could not meet its peers speaks
 * for itself. */
static void log_left(const struct bl_member *member) {
    const struct bl_comm *comm = member->comm;
    const struct bl_verdict *verdict = &member->verdict;
    const bool speaks = comm->rank == 0 || (comm->rank == 1 && member->peer_lost && verdict->culprit == 0) ||
                        (!member->met && verdict->culprit == comm->rank);
    const bool ended = atomic_load(&member->resources->cancel);
    bl_log(verdict->outcome == BL_FAILED && speaks && !ended ? BL_LOG_WARN : BL_LOG_INFO,
           "communicator %016llx of %d ranks is left to NCCL: %s", (unsigned long long)comm->id, comm->nranks,
           verdict->why);
    snprintf(member->resources->left_why, sizeof(member->resources->left_why), "%s", verdict->why);
    member->resources->left_apart = !member->met;
    bl_trace("communicator %016llx rank %d: left after %.2f ms, at step \"%s\"", (unsigned long long)comm->id,
             comm->rank, (double)(bl_clock_ns() - member->begin) / 1e6, member->step);
}

static void free_leftovers(struct bl_member *member) {
    bl_tune_release(member);
    if (member->resources->stuck) return;
    for (int kind = 0; kind < BL_SELFTEST_KINDS; kind++) bl_selftest_release(&member->tests[kind]);
    if (member->stream) bl_driver()->cuStreamDestroy(member->stream);
    if (member->verdict.outcome != BL_WELL) bl_build_undo(member->comm);
}

/* Its calls take room beside those of communicators that Beeline serves. */
static void share_room(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    if (!comm->order.event && bl_order_open(comm)) {
        bl_info("communicator %016llx rank %d: %s", (unsigned long long)comm->id, comm->rank, bl_why());
        return;
    }
    if (bl_room_enter(comm) == 0) atomic_store_explicit(&comm->shares_room, true, memory_order_release);
}

static void stand_by(struct bl_member *member) {
    const bool lives = !atomic_load(&member->resources->cancel) && !member->resources->unlisted;
    if (lives && member->comm->nranks > 1 && bl_context_find(member->comm) == CUDA_SUCCESS)
        run_in_context(member, share_room);
}

static void end(struct bl_comm *comm) {
    bl_meeting_close(&comm->resources->meeting);
    atomic_store(&comm->resources->stage, BL_STAGE_DONE);
}

static void conclude(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    bl_mesh_close(&member->mesh);
    if (comm->context) run_in_context(member, free_leftovers);
    if (member->verdict.outcome == BL_WELL) {
        log_served(member);
        bl_stats_begin(comm, NULL, false);
        bl_room_enter(comm);
        bl_watch_add(comm);
        atomic_store(&comm->active, true);
        if (atomic_load(&member->resources->revoked)) atomic_store(&comm->active, false); /* meanwhile */
    } else if (bl_member_in_doubt(member)) {
        /* The others may have agreed, and serve: calls here must not go to NCCL, nor anywhere. */
        snprintf(comm->error_text, sizeof(comm->error_text),
                 "Beeline: rank %d of %d set its side up, and did not hear whether its peers did "
                 "(BEELINE_SETUP_TIMEOUT=%llu)",
                 comm->rank, comm->nranks, (unsigned long long)bl_params()->setup_timeout);
        atomic_store(&comm->async_error, ncclRemoteError);
        bl_stats_begin(comm, comm->error_text, true);
        bl_warn("communicator %016llx: %s: %s; its calls fail, abort it", (unsigned long long)comm->id,
                comm->error_text, member->verdict.why);
    } else {
        log_left(member);
        bl_stats_begin(comm, member->verdict.why, member->verdict.outcome == BL_FAILED);
        stand_by(member);
    }
    free(member->all);
    end(comm);
}

static void set_up(struct bl_comm **comms, int count) {
    static atomic_bool logged;
    struct bl_member *members = calloc((size_t)count, sizeof(*members));
    if (!members) {
        bl_warn("out of host memory: %d communicators are left to NCCL", count);
        for (int i = 0; i < count; i++) end(comms[i]);
        return;
    }
    if (!atomic_exchange(&logged, true)) bl_params_log();
    const CUstreamCaptureMode mode = bl_driver_relax();
    bl_nvls_release_look();
    for (int i = 0; i < count; i++) {
        members[i] = bl_member_of(comms[i], &comms[i]->resources->meeting);
        begin(&members[i]);
    }
    build(members, count);
    for (int i = 0; i < count; i++) conclude(&members[i]);
    bl_driver_unrelax(mode);
    free(members);
}

/* --- the requests --- */

static ncclComm_t handle_of(const struct bl_setup_request *request) {
    return request->child ? *request->handle : request->made;
}

/* In the table from now on, so that an abort from another thread finds it. */
static struct bl_comm *enlist(const struct bl_setup_request *request, bool nonblocking) {
    struct bl_comm *comm = bl_comm_new(), *stale = NULL;
    struct bl_resources *resources = calloc(1, sizeof(*resources));
    if (!comm || !resources) {
        free(comm);
        free(resources);
        bl_warn("out of host memory: a communicator is left to NCCL");
        return NULL;
    }
    *resources = (struct bl_resources){
        .pid = getpid(), .nonblocking = nonblocking, .wishes = request->wishes, .meeting = request->meeting};
    atomic_store(&resources->stage, BL_STAGE_RUNNING);
    comm->handle = handle_of(request);
    comm->id = bl_meeting_id(&request->meeting);
    comm->resources = resources;
    comm->unmixed = request->wishes.unmixed;
    comm->checked = request->wishes.checked;
    comm->in_order = request->wishes.in_order;
    comm->stats = bl_stats_new();
    /* One that does not fit takes part in set-up all the same, as a rank that cannot be served. */
    resources->unlisted = !bl_comm_insert(comm, &stale);
    bl_teardown_orphan(stale);
    return comm;
}

/* Waits for the real init. */
static bool comes_about(struct bl_comm *comm) {
    for (;; bl_nap(100000)) {
        ncclResult_t state = ncclSuccess, result = BL_REAL(ncclCommGetAsyncError, comm->handle, &state);
        if (result == ncclSuccess && state == ncclSuccess) return true;
        const bool waits = result == ncclSuccess && state == ncclInProgress;
        if (waits && !atomic_load(&comm->resources->cancel)) continue;
        if (waits)
            bl_fail("it is being destroyed");
        else
            bl_fail("NCCL reports: %s", BL_REAL(ncclGetErrorString, result ? result : state));
        return false;
    }
}

/* A rank may poll its communicators in any order, or wait for one before it looks at the next, so the real NCCL's
 * progress does not depend on polls, and neither may ours. */
static void *background_main(void *arg) {
    struct bl_comm *comm = arg;
    if (comes_about(comm))
        set_up(&comm, 1);
    else
        bl_info("a nonblocking communicator did not come about: %s", bl_why());
    end(comm);
    return NULL;
}

static void set_up_in_background(struct bl_comm *comm) {
    struct bl_resources *resources = comm->resources;
    resources->threaded = bl_thread_start(&resources->thread, background_main, comm);
    if (resources->threaded) return;
    bl_warn("no thread can be made: a communicator is left to NCCL");
    end(comm);
}

void bl_setup_forget(const struct bl_setup_request *requests, int count) {
    for (int i = 0; i < count; i++) {
        struct bl_meeting meeting = requests[i].meeting;
        bl_meeting_close(&meeting);
        if (requests[i].promise) bl_promise_keep(requests[i].promise);
    }
}

static void enter(struct bl_promise *promise) {
    promise->comm = enlist(&promise->request, promise->request.nonblocking);
}

/* The owner may end the child as soon as it has the handle, but waits for its set-up. */
static int set_up_promised(void *arg) {
    struct bl_promise *promise = arg;
    if (!bl_promise_wait(promise, enter) || !promise->comm) {
        const struct bl_setup_request request = promise->request;
        bl_setup_forget(&request, 1);
        return 1;
    }
    const bool unlisted = promise->comm->resources->unlisted;
    set_up(&promise->comm, 1);
    if (unlisted) bl_teardown_release(promise->comm, BL_END_DESTROY);
    bl_promise_keep(promise);
    return 1;
}

static void promise_child(const struct bl_setup_request *request) {
    request->promise->request = *request;
    struct bl_errand *errand = bl_errand_begin(set_up_promised, request->promise);
    if (errand) {
        bl_errand_leave(errand);
    } else {
        bl_warn("no thread can be made: a communicator is left to NCCL");
        bl_setup_leave(request);
    }
}

/* NCCL makes it all the same. */
void bl_setup_leave(const struct bl_setup_request *request) {
    struct bl_setup_request left = *request;
    if (left.promise) bl_promise_leave(left.promise);
    left.promise = NULL;
    bl_setup_forget(&left, 1);
}

void bl_setup_run(const struct bl_setup_request *requests, int count) {
    struct bl_comm **comms = calloc((size_t)count, sizeof(*comms));
    int now = 0;
    for (int i = 0; i < count; i++) {
        if (requests[i].promise && bl_promise_begin(requests[i].promise)) {
            promise_child(&requests[i]);
            continue;
        }
        const ncclComm_t handle = handle_of(&requests[i]);
        ncclResult_t state = ncclSuccess;
        if (!handle) { /* a split that this rank has no part in */
            bl_setup_forget(&requests[i], 1);
            continue;
        }
        BL_REAL(ncclCommGetAsyncError, handle, &state);
        const bool nonblocking = requests[i].nonblocking || state == ncclInProgress;
        struct bl_comm *comm = comms ? enlist(&requests[i], nonblocking) : NULL;
        if (!comm) bl_setup_forget(&requests[i], 1);
        if (comm && requests[i].promise) bl_promise_keep(requests[i].promise);
        if (comm && nonblocking && !requests[i].child && !comm->resources->unlisted)
            set_up_in_background(comm);
        else if (comm)
            comms[now++] = comm;
    }
    if (now) set_up(comms, now);
    /* Not where set-up runs in the background: that thread may be an orphan's own. */
    for (int i = 0; i < now; i++) bl_teardown_release_orphans(comms[i]->context);
    for (int i = 0; i < now; i++)
        if (comms[i]->resources->unlisted) bl_teardown_release(comms[i], BL_END_DESTROY);
    free(comms);
}

static uint32_t *children(struct bl_resources *resources, enum bl_child how) {
    return how == BL_CHILD_SPLIT ? &resources->splits : &resources->shrinks;
}

void bl_setup_child(struct bl_meeting *meeting, const struct bl_comm *parent, enum bl_child how, const void *facts,
                    size_t bytes) {
    char call[32];
    if (!parent) {
        bl_meeting_none(meeting, "its parent is not known");
        return;
    }
    snprintf(call, sizeof(call), "%s %u", how == BL_CHILD_SPLIT ? "split" : "shrink",
             *children(parent->resources, how));
    const struct bl_meeting *known = &parent->resources->meeting;
    bl_meeting_of_parent(meeting, known, parent->rank, parent->nranks, call, facts, bytes);
}

void bl_setup_count_child(struct bl_comm *parent, enum bl_child how) {
    (*children(parent->resources, how))++;
}
