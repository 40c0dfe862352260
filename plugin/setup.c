/* setup.c - from a communicator that the real NCCL has made to one that Beeline serves, or that is left to NCCL.
 *
 *   1. identities      all-gather on NCCL; the verdict on them is a pure function
 *   2. bl_build        sockets, memory, table, self-test, voted on step by step (build.c)
 *   3. agreement       all-gather of the verdicts on NCCL: only if all are well is the communicator served
 *
 * 1 and 3 are made by every rank of every communicator of 2 to 16 ranks, whatever happened in between (see gather.h).
 */
#include "setup.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "copy.h"
#include "log.h"
#include "member.h"
#include "order.h"
#include "params.h"
#include "real.h"
#include "room.h"
#include "stats.h"
#include "thread.h"
#include "watch.h"

enum { HOPELESS_SECONDS = 2 };

static uint64_t from_now(uint64_t seconds) {
    return bl_clock_ns() + seconds * 1000000000u;
}

static void run_in_context(struct bl_member *member, void (*act)(struct bl_member *)) {
    if (!bl_context_push(member->comm)) {
        bl_member_fail(member, BL_FAILED, member->comm->rank, "its context cannot be made current");
        return;
    }
    act(member);
    bl_context_pop();
}

/* --- the beginning: what is known without any peer --- */

/* The context that is current if it is on the communicator's device, as NCCL has it; else the device's primary one. */
static CUresult find_context(struct bl_comm *comm, int ordinal) {
    const struct bl_driver *cu = bl_driver();
    CUcontext current = NULL;
    CUdevice device;
    CUresult status = cu->cuDeviceGet(&comm->device, ordinal);
    if (status != CUDA_SUCCESS) return status;
    if (cu->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current && cu->cuCtxGetDevice(&device) == CUDA_SUCCESS &&
        device == comm->device) {
        comm->context = current;
    } else {
        status = cu->cuDevicePrimaryCtxRetain(&comm->context, comm->device);
        comm->upkeep->context_retained = status == CUDA_SUCCESS;
    }
    if (status == CUDA_SUCCESS) comm->context_id = bl_context_id(comm->context);
    return status;
}

static bool wants_copy_engines(void) {
    const char *forced = bl_params()->allgather_algo;
    return bl_params()->copy_engines || (forced && !strcmp(forced, bl_kernel_name(BL_KERNEL_ALLGATHER_COPY)));
}

static void open_sockets_and_gather(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    struct bl_identity *identity = &member->identity;
    char why[160];
    bl_identity_fill(identity, comm->rank, comm->nranks, comm->device);
    identity->copy_engines = member->upkeep->copy_engines || wants_copy_engines();
    identity->copy_possible = bl_copy_possible(identity->copy_reason, sizeof(identity->copy_reason));
    if (bl_random(identity->cookie, sizeof(identity->cookie), why, sizeof(why)) ||
        bl_mesh_listen(&member->mesh, identity->socket, why, sizeof(why)))
        bl_identity_refuse(identity, true, "%s", why);
    if (member->upkeep->unlisted) bl_identity_refuse(identity, true, "its table of communicators is full");
    member->all = calloc((size_t)comm->nranks, sizeof(*member->all));
    if (!member->all || bl_gather_open(&member->gather, comm->rank, comm->nranks, sizeof(*identity), why, sizeof(why)))
        bl_member_fail(member, BL_FAILED, comm->rank, "%s", member->all ? why : "out of host memory");
    member->open = member->gather.buffer != 0;
}

static void begin(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    int ordinal = 0;
    member->begin = bl_clock_ns();
    member->exported = -1;
    member->verdict.magic = member->multicast.magic = BL_IDENTITY_MAGIC;
    bl_mesh_init(&member->mesh, 0, 0, NULL);
    if (BL_REAL(ncclCommCount, comm->handle, &comm->nranks) != ncclSuccess ||
        BL_REAL(ncclCommUserRank, comm->handle, &comm->rank) != ncclSuccess ||
        BL_REAL(ncclCommCuDevice, comm->handle, &ordinal) != ncclSuccess) {
        bl_member_fail(member, BL_FAILED, comm->rank, "NCCL does not tell rank and device");
        return;
    }
    if (comm->nranks < 2) {
        bl_member_fail(member, BL_DECLINED, -1, "Beeline serves 2 to %d ranks", BL_MAX_RANKS);
        return;
    }
    CUresult status = bl_driver() ? find_context(comm, ordinal) : CUDA_ERROR_NOT_INITIALIZED;
    if (status != CUDA_SUCCESS) {
        bl_member_fail(member, BL_FAILED, comm->rank, "no context: %s",
                       bl_driver() ? bl_driver_strerror(status) : bl_driver_error());
        return;
    }
    if (comm->nranks > BL_MAX_RANKS) {
        bl_member_fail(member, BL_DECLINED, -1, "Beeline serves 2 to %d ranks", BL_MAX_RANKS);
        return;
    }
    bl_mesh_init(&member->mesh, comm->rank, comm->nranks, &member->upkeep->cancel);
    run_in_context(member, open_sockets_and_gather);
}

/* --- the gathers --- */
struct gathering {
    const void *(*piece)(const struct bl_member *member);
    size_t bytes;
    void (*came)(struct bl_member *member, const void *pieces);
};

static void fail(struct bl_member *member, const char *why) {
    bl_member_fail(member, BL_FAILED, member->comm->rank, "%s", why);
}

/* A peer that waits for us in some step may be late by its own time limit. */
static uint64_t gather_deadline(const struct bl_member *member) {
    uint64_t limit = bl_params()->setup_timeout;
    return from_now(member->bereft ? HOPELESS_SECONDS : 2 * limit);
}

/* For each member that takes part, in lockstep: NCCL needs the calls of one thread for several ranks in one group. */
static void gather(struct bl_member *members, int count, const struct gathering *what) {
    char why[200];
    bool posted[count + 1];
    for (int i = 0; i < count; i++) {
        struct bl_member *member = &members[i];
        if (atomic_load(&member->upkeep->aborted)) fail(member, "the communicator is being aborted");
        posted[i] = member->open && !atomic_load(&member->upkeep->aborted) && bl_context_push(member->comm);
        if (!posted[i]) continue;
        if (bl_gather_post_copy(&member->gather, what->piece(member), what->bytes, why, sizeof(why)))
            fail(member, why); /* and still takes part, with bytes that nobody will take for ours */
        bl_context_pop();
    }
    if (count > 1) BL_REAL(ncclGroupStart);
    for (int i = 0; i < count; i++) {
        if (!posted[i] || !bl_context_push(members[i].comm)) continue;
        if (bl_gather_post_call(&members[i].gather, members[i].comm->handle, what->bytes, why, sizeof(why))) {
            fail(&members[i], why);
            posted[i] = false;
        }
        bl_context_pop();
    }
    if (count > 1) {
        ncclResult_t result = BL_REAL(ncclGroupEnd);
        for (int i = 0; i < count && result != ncclSuccess && result != ncclInProgress; i++)
            if (posted[i]) fail(&members[i], BL_REAL(ncclGetErrorString, result));
    }
    for (int i = 0; i < count; i++) {
        struct bl_member *member = &members[i];
        if (!posted[i] || !bl_context_push(member->comm)) continue;
        const atomic_bool *cancel = &member->upkeep->cancel;
        uint64_t deadline = gather_deadline(member);
        posted[i] = !bl_gather_settle(member->comm->handle, deadline, cancel, why, sizeof(why)) &&
                    !bl_gather_post_result(&member->gather, what->bytes, why, sizeof(why));
        if (!posted[i]) fail(member, why);
        bl_context_pop();
    }
    for (int i = 0; i < count; i++) {
        struct bl_member *member = &members[i];
        if (!posted[i] || !bl_context_push(member->comm)) continue;
        if (bl_gather_wait(&member->gather, member->comm->handle, gather_deadline(member), &member->upkeep->cancel, why,
                           sizeof(why)))
            fail(member, why);
        else
            what->came(member, member->gather.host);
        bl_context_pop();
    }
}

static const void *identity_piece(const struct bl_member *member) {
    return &member->identity;
}

static void compare_settings(const struct bl_member *member) {
    static atomic_bool told;
    const char *own = member->identity.settings, *shared = member->all[0].settings;
    if (!strcmp(own, shared) || atomic_exchange(&told, true)) return;
    bl_warn("rank %d has other settings than rank 0, whose hold for all: rank 0 has \"%s\", this rank \"%s\"",
            member->comm->rank, shared, own);
}

static void identities_came(struct bl_member *member, const void *pieces) {
    struct bl_comm *comm = member->comm;
    char why[200];
    memcpy(member->all, pieces, sizeof(*member->all) * (size_t)comm->nranks);
    if (member->all[0].magic == BL_IDENTITY_MAGIC) memcpy(&comm->id, member->all[0].cookie, sizeof(comm->id));
    enum bl_fate fate = bl_identity_judge(member->all, comm->nranks, why, sizeof(why));
    /* The verdict is everybody's already, so it is no single rank's: -1. */
    if (fate != BL_WELL) bl_member_fail(member, fate, -1, "%s", why);
    member->gathered = fate == BL_WELL && member->verdict.fate == BL_WELL;
    if (member->gathered) compare_settings(member);
}

static const void *verdict_piece(const struct bl_member *member) {
    return &member->verdict;
}

static void verdicts_came(struct bl_member *member, const void *pieces) {
    struct bl_verdict verdicts[BL_MAX_RANKS];
    const int nranks = member->comm->nranks;
    memcpy(verdicts, pieces, sizeof(*verdicts) * (size_t)nranks);
    /* NCCL may end a call for a rank that died; what it left behind then is no agreement. */
    if (memcmp(&verdicts[member->comm->rank], &member->verdict, sizeof(*verdicts))) {
        fail(member, "the last all-gather ended without an agreement");
        return;
    }
    for (int rank = 0; rank < nranks; rank++) {
        struct bl_verdict *one = &verdicts[rank];
        one->why[sizeof(one->why) - 1] = 0;
        if (one->magic == BL_IDENTITY_MAGIC) continue;
        *one = (struct bl_verdict){.fate = BL_FAILED, .culprit = -1};
        snprintf(one->why, sizeof(one->why), "rank %d could not send its verdict", rank);
    }
    member->verdict = bl_verdict_choose(verdicts, nranks);
    member->agreed = true;
}

static const struct gathering identities = {identity_piece, sizeof(struct bl_identity), identities_came};
static const struct gathering verdicts = {verdict_piece, sizeof(struct bl_verdict), verdicts_came};

/* --- between the gathers --- */
struct job {
    struct bl_member *members[BL_MAX_RANKS];
    int count;
    bool threaded;
    pthread_t thread;
};

static void *build_job(void *arg) {
    struct job *job = arg;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    bl_driver()->cuThreadExchangeStreamCaptureMode(&mode);
    bl_build(job->members, job->count);
    bl_driver()->cuThreadExchangeStreamCaptureMode(&mode);
    return NULL;
}

/* The members of one communicator go together, found by the cookie of its rank 0; several communicators go at once,
 * since another rank may have them in another order. */
static void build(struct bl_member *members, int count) {
    struct job *jobs = calloc((size_t)count, sizeof(*jobs));
    int used = 0;
    for (int i = 0; i < count; i++) {
        if (!members[i].gathered) continue;
        if (!jobs) {
            bl_member_fail(&members[i], BL_FAILED, members[i].comm->rank, "out of host memory");
            continue;
        }
        int at = 0;
        while (at < used && memcmp(jobs[at].members[0]->all[0].cookie, members[i].all[0].cookie, BL_MESH_COOKIE)) at++;
        if (at == used) used++;
        if (jobs[at].count < BL_MAX_RANKS) jobs[at].members[jobs[at].count++] = &members[i];
    }
    for (int i = 1; i < used; i++) jobs[i].threaded = bl_thread_start(&jobs[i].thread, build_job, &jobs[i]);
    for (int i = 0; i < used; i++)
        if (!jobs[i].threaded) build_job(&jobs[i]);
    for (int i = 1; i < used; i++)
        if (jobs[i].threaded) pthread_join(jobs[i].thread, NULL);
    free(jobs);
}

/* --- the end --- */
static void log_served(const struct bl_member *member) {
    const struct bl_comm *comm = member->comm;
    const int version = bl_real_version();
    char routes[1200], multicast[280];
    size_t used = 0;
    if (member->multicast.fate == BL_FAILED && comm->rank == 0)
        bl_log_at(NULL, BL_LOG_WARN,
                  "communicator %016llx: BEELINE_MULTICAST=1, and multicast cannot be had: %s; other kernels serve",
                  (unsigned long long)comm->id, member->multicast.why);
    if (!bl_log_enabled(BL_LOG_INFO)) return;
    for (int c = 0; c < BL_COLLECTIVES && used < sizeof(routes); c++) {
        char ranges[256];
        bl_table_describe(&comm->table, (enum bl_collective)c, ranges, sizeof(ranges));
        used += (size_t)snprintf(routes + used, sizeof(routes) - used, "%s%s %s", c ? "; " : "",
                                 bl_collective_name((enum bl_collective)c), ranges);
    }
    if (member->multicast.fate == BL_WELL)
        snprintf(multicast, sizeof(multicast), "%.1f MiB", (double)comm->upkeep->leaver->multicast.bytes / (1 << 20));
    else
        snprintf(multicast, sizeof(multicast), "off (%s)", member->multicast.why);
    bl_log(BL_LOG_INFO,
           "communicator %016llx: rank %d of %d on %s (%s), link %s, %s (all_reduce: %s), staging %.1f MiB, "
           "multicast %s, NCCL %d.%d.%d, set up in %.1f ms (NCCL's first call %.1f)",
           (unsigned long long)comm->id, comm->rank, comm->nranks, member->identity.pci, member->identity.gpu,
           bl_link_name(member->link), routes, comm->table.source, (double)comm->memory->bytes / (1 << 20), multicast,
           version / 10000, version / 100 % 100, version % 100, (double)(bl_clock_ns() - member->begin) / 1e6,
           (double)(member->gathered_at - member->begin) / 1e6);
    bl_trace("communicator %016llx rank %d: built in %.1f ms, agreed in %.1f ms", (unsigned long long)comm->id,
             comm->rank, (double)(member->built_at - member->gathered_at) / 1e6,
             (double)(bl_clock_ns() - member->built_at) / 1e6);
}

/* One rank speaks up for all: rank 0, or rank 1 where rank 0 is the one that is gone. */
static void log_left(const struct bl_member *member) {
    const struct bl_comm *comm = member->comm;
    const struct bl_verdict *verdict = &member->verdict;
    const bool speaks = comm->rank == 0 || (comm->rank == 1 && !member->agreed && verdict->culprit == 0);
    const bool loud = verdict->fate == BL_FAILED && (speaks || !member->open);
    bl_log(loud ? BL_LOG_WARN : BL_LOG_INFO, "communicator %016llx of %d ranks is left to NCCL: %s",
           (unsigned long long)comm->id, comm->nranks, verdict->why);
}

static void free_leftovers(struct bl_member *member) {
    struct bl_upkeep *upkeep = member->upkeep;
    if (member->gather.pending || upkeep->stuck) {
        upkeep->gather = member->gather;
        upkeep->selftest = member->selftest;
        return;
    }
    bl_selftest_release(&member->selftest);
    bl_gather_close(&member->gather);
    if (member->verdict.fate != BL_WELL) bl_upkeep_release(member->comm);
}

/* Its calls take room beside those of communicators that Beeline serves. */
static void open_bystander(struct bl_member *member) {
    char why[160];
    struct bl_comm *comm = member->comm;
    if (!comm->order.event && bl_order_open(comm, why, sizeof(why))) {
        bl_info("communicator %016llx rank %d: %s", (unsigned long long)comm->id, comm->rank, why);
        return;
    }
    if (bl_room_enter(comm) == 0) atomic_store_explicit(&comm->bystander, true, memory_order_release);
}

static void stand_by(struct bl_member *member) {
    if (member->comm->context && !atomic_load(&member->upkeep->cancel)) run_in_context(member, open_bystander);
}

static void conclude(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    const bool untold = member->built && !member->agreed;
    bl_mesh_close(&member->mesh);
    if (member->exported >= 0) close(member->exported);
    if (comm->context) run_in_context(member, free_leftovers);
    if (member->verdict.fate == BL_WELL) {
        log_served(member);
        bl_room_enter(comm);
        bl_watch_add(comm);
        atomic_store(&comm->active, true);
        if (atomic_load(&member->upkeep->revoked)) atomic_store(&comm->active, false); /* meanwhile */
    } else if (untold) {
        /* The others may have agreed, and serve: calls here must not go to NCCL, nor anywhere. */
        snprintf(comm->error_text, sizeof(comm->error_text),
                 "Beeline: rank %d of %d set its side up, and did not hear whether its peers did "
                 "(BEELINE_SETUP_TIMEOUT=%llu)",
                 comm->rank, comm->nranks, (unsigned long long)bl_params()->setup_timeout);
        atomic_store(&comm->async_error, ncclRemoteError);
        bl_log(comm->rank == 0 ? BL_LOG_WARN : BL_LOG_INFO, "communicator %016llx: %s: %s; its calls fail, abort it",
               (unsigned long long)comm->id, comm->error_text, member->verdict.why);
    } else {
        log_left(member);
        stand_by(member);
    }
    free(member->all);
    atomic_store(&member->upkeep->stage, BL_STAGE_DONE);
}

static void set_up(struct bl_comm **comms, int count) {
    static atomic_bool told;
    struct bl_member *members = calloc((size_t)count, sizeof(*members));
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (!members) {
        bl_warn("out of host memory: %d communicators are left to NCCL here, and their peers will wait", count);
        for (int i = 0; i < count; i++) atomic_store(&comms[i]->upkeep->stage, BL_STAGE_DONE);
        return;
    }
    if (!atomic_exchange(&told, true)) bl_params_log();
    bl_stats_arm();
    if (bl_driver()) bl_driver()->cuThreadExchangeStreamCaptureMode(&mode);
    bl_leave_look();
    for (int i = 0; i < count; i++) {
        members[i].comm = comms[i];
        members[i].upkeep = comms[i]->upkeep;
        begin(&members[i]);
    }
    gather(members, count, &identities);
    for (int i = 0; i < count; i++) members[i].gathered_at = bl_clock_ns();
    build(members, count);
    for (int i = 0; i < count; i++) {
        members[i].built_at = bl_clock_ns();
        members[i].built = members[i].gathered && members[i].verdict.fate == BL_WELL;
    }
    gather(members, count, &verdicts);
    for (int i = 0; i < count; i++) conclude(&members[i]);
    if (bl_driver()) bl_driver()->cuThreadExchangeStreamCaptureMode(&mode);
    free(members);
}

/* --- the requests --- */

/* In the table from now on, so that an abort from another thread finds it. */
static struct bl_comm *enlist(ncclComm_t handle, bool nonblocking, bool copy_engines) {
    struct bl_comm *comm = bl_comm_new(), *stale = NULL;
    struct bl_upkeep *upkeep = calloc(1, sizeof(*upkeep));
    if (!comm || !upkeep) {
        free(comm);
        free(upkeep);
        bl_warn("out of host memory: a communicator is left to NCCL here, and its peers will wait");
        return NULL;
    }
    *upkeep = (struct bl_upkeep){.pid = getpid(), .nonblocking = nonblocking, .copy_engines = copy_engines};
    atomic_store(&upkeep->stage, BL_STAGE_RUNNING);
    comm->handle = handle;
    comm->upkeep = upkeep;
    /* One that does not fit takes part in set-up all the same, as a rank that cannot be served. */
    upkeep->unlisted = !bl_comm_insert(comm, &stale);
    bl_setup_orphan(stale);
    return comm;
}

/* A rank may poll its communicators in any order, or wait for one before it looks at the next, so the real NCCL's
 * progress does not depend on polls, and neither may ours. */
static void *background_main(void *arg) {
    struct bl_comm *comm = arg;
    char why[160];
    if (bl_gather_settle(comm->handle, UINT64_MAX, &comm->upkeep->cancel, why, sizeof(why)) == 0)
        set_up(&comm, 1);
    else
        bl_info("a nonblocking communicator did not come about: %s", why);
    atomic_store(&comm->upkeep->stage, BL_STAGE_DONE);
    return NULL;
}

static void set_up_in_background(struct bl_comm *comm) {
    struct bl_upkeep *upkeep = comm->upkeep;
    upkeep->threaded = bl_thread_start(&upkeep->thread, background_main, comm);
    if (upkeep->threaded) return;
    bl_warn("no thread can be made: a communicator is left to NCCL here, and its peers will wait");
    atomic_store(&upkeep->stage, BL_STAGE_DONE);
}

void bl_setup_run(const struct bl_setup_request *requests, int count) {
    struct bl_comm **comms = calloc((size_t)count, sizeof(*comms));
    int now = 0;
    for (int i = 0; i < count; i++) {
        ncclComm_t handle = *requests[i].handle;
        ncclResult_t state = ncclSuccess;
        if (!handle) continue; /* a split that this rank has no part in */
        BL_REAL(ncclCommGetAsyncError, handle, &state);
        const bool nonblocking = requests[i].nonblocking || state == ncclInProgress;
        struct bl_comm *comm = comms ? enlist(handle, nonblocking, requests[i].copy_engines) : NULL;
        if (comm && comm->upkeep->nonblocking)
            set_up_in_background(comm);
        else if (comm)
            comms[now++] = comm;
    }
    if (now) set_up(comms, now);
    /* Not where set-up runs in the background: that thread may be an orphan's own. */
    for (int i = 0; i < now; i++) bl_setup_release_orphans(comms[i]->context);
    for (int i = 0; i < now; i++)
        if (comms[i]->upkeep->unlisted) bl_setup_release(comms[i], BL_END_DESTROY);
    free(comms);
}

bool bl_setup_busy(const struct bl_comm *comm) {
    return comm->upkeep->pid == getpid() && atomic_load(&comm->upkeep->stage) == BL_STAGE_RUNNING;
}

bool bl_setup_copy_engines(const struct bl_comm *comm) {
    return comm->upkeep->copy_engines;
}

bool bl_setup_nonblocking(const struct bl_comm *comm) {
    return comm->upkeep->nonblocking;
}
