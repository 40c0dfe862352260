/* lifecycle.c - the entry points that make and end communicators, and tell of their errors.
 *
 * The real function is always called, and its result is the caller's.  Beeline's side of a new communicator is made
 * after it, of one that ends is taken down around it.  Within the real NCCL's own calls (bl_real_depth) nothing but the
 * real function is called. */
#include "real/config.h"
#include "entry.h"
#include "group.h"
#include "base/log.h"
#include "base/params.h"
#include "setup/setup.h"
#include "setup/promise.h"
#include "setup/suspend.h"
#include "launch/turn.h"
#include "setup/teardown.h"
#include "setup/resources.h"

#include <stdlib.h>

/* `blocking` has been the first of the settings since there was a config; what is not set there, NCCL decides, and
 * shows by its result. */
static bool asks_nonblocking(const ncclConfig_t *config, ncclResult_t result) {
    return result == ncclInProgress || (config && config->blocking == 0);
}

/* Not inside of NCCL's own calls, nor where Beeline is switched off. */
static bool takes_part(void) {
    return bl_real_depth == 0 && bl_params()->enable;
}

/* Before the real init: its ranks will look for each other. */
static struct bl_setup_request announce(ncclComm_t *handle, const ncclUniqueId *ids, int count, int rank, int nranks) {
    struct bl_setup_request request = {.handle = handle};
    bl_meeting_none(&request.meeting, "its arguments are not valid");
    if (!takes_part() || !ids || count < 1 || rank < 0 || rank >= nranks) return request;
    bl_meeting_of_ids(&request.meeting, ids, (size_t)count * sizeof(*ids), rank, nranks);
    return request;
}

/* Beeline's side of the new communicator: now, at the end of the group, or in the background.  Returns what the caller
 * is to get: a nonblocking communicator is in progress as long as either side is. */
static ncclResult_t add(struct bl_setup_request *request, ncclResult_t result, bool nonblocking,
                        struct bl_wishes wishes) {
    if (!takes_part()) return result;
    if (!bl_call_made(result) || !request->handle) {
        bl_setup_forget(request, 1);
        return bl_group_heard(result);
    }
    request->made = *request->handle;
    request->nonblocking = nonblocking;
    request->wishes = wishes;
    bl_group_add_init(request);
    const struct bl_comm *comm = bl_group_open() ? NULL : bl_comm_find(request->made);
    return comm && bl_resources_busy(comm) ? ncclInProgress : result;
}

BL_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank) {
    struct bl_setup_request request = announce(comm, &commId, 1, rank, nranks);
    ncclResult_t result = BL_REAL(ncclCommInitRank, comm, nranks, commId, rank);
    return add(&request, result, asks_nonblocking(NULL, result), bl_config_wishes(NULL));
}

BL_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank,
                                              ncclConfig_t *config) {
    struct bl_setup_request request = announce(comm, &commId, 1, rank, nranks);
    ncclResult_t result = BL_REAL(ncclCommInitRankConfig, comm, nranks, commId, rank, config);
    return add(&request, result, asks_nonblocking(config, result), bl_config_wishes(config));
}

BL_EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId,
                                                ncclUniqueId *commIds, ncclConfig_t *config) {
    struct bl_setup_request request = announce(newcomm, commIds, nId, myrank, nranks);
    ncclResult_t result = BL_REAL(ncclCommInitRankScalable, newcomm, nranks, myrank, nId, commIds, config);
    return add(&request, result, asks_nonblocking(config, result), bl_config_wishes(config));
}

/* All ranks are this thread's, so they are set up together, under an id of our own. */
BL_EXPORT ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist) {
    ncclUniqueId id;
    const bool ours = takes_part() && comm && ndev > 0;
    struct bl_setup_request *requests = ours ? calloc((size_t)ndev, sizeof(*requests)) : NULL;
    const bool random = requests && bl_random(&id, sizeof(id)) == 0;
    for (int i = 0; requests && i < ndev; i++) requests[i] = announce(&comm[i], random ? &id : NULL, 1, i, ndev);
    ncclResult_t result = BL_REAL(ncclCommInitAll, comm, ndev, devlist);
    bl_group_heard(result);
    if (!requests) {
        if (ours && bl_call_made(result)) bl_warn("out of memory: %d communicators are left to NCCL", ndev);
        return result;
    }
    for (int i = 0; i < ndev; i++) {
        if (bl_call_made(result)) requests[i].made = comm[i];
        requests[i].nonblocking = result == ncclInProgress;
        requests[i].wishes = bl_config_wishes(NULL);
    }
    if (!bl_call_made(result))
        bl_setup_forget(requests, ndev);
    else if (bl_group_open())
        for (int i = 0; i < ndev; i++) bl_group_add_init(&requests[i]);
    else
        bl_setup_run(requests, ndev);
    free(requests);
    return result;
}

struct child {
    enum bl_child how;
    struct bl_comm *parent;
    struct bl_setup_request request;
};

static struct child announce_child(enum bl_child how, ncclComm_t parent, ncclComm_t *handle, const ncclConfig_t *config,
                                   const void *facts, size_t bytes) {
    struct child child = {.how = how, .request = {.handle = handle, .child = true}};
    struct bl_setup_request *request = &child.request;
    bl_meeting_none(&request->meeting, "this rank has no part in it");
    if (!takes_part()) return child;
    child.parent = bl_comm_find(parent);
    const bool late = child.parent && child.parent->resources->nonblocking;
    request->nonblocking = config ? config->blocking == 0 : late; /* where a config does not say, it is blocking */
    if (late && facts && handle) {
        request->promise = bl_promise_new(child.parent, handle);
        if (!request->promise) {
            bl_meeting_none(&request->meeting, "a rank is out of memory");
            return child;
        }
        request->handle = &request->promise->made;
    }
    if (facts) bl_setup_child(&request->meeting, child.parent, how, facts, bytes);
    return child;
}

static ncclResult_t add_child(struct child *child, ncclResult_t result, const ncclConfig_t *config) {
    struct bl_setup_request *request = &child->request;
    if (!takes_part()) return result;
    if (!bl_call_made(result) || !request->handle) {
        bl_setup_forget(request, 1);
        return bl_group_heard(result);
    }
    if (request->promise) bl_promise_called(request->promise);
    if (child->parent) bl_setup_count_child(child->parent, child->how);
    request->wishes = config || !child->parent ? bl_config_wishes(config) : child->parent->resources->wishes;
    bl_group_add_init(request);
    return result;
}

BL_EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config) {
    const int32_t facts = color;
    struct child child = announce_child(BL_CHILD_SPLIT, comm, newcomm, config,
                                        color == NCCL_SPLIT_NOCOLOR ? NULL : &facts, sizeof(facts));
    ncclResult_t result = BL_REAL(ncclCommSplit, comm, color, key, child.request.handle, config);
    return add_child(&child, result, config);
}

/* Told to abort, NCCL ends what runs on the parent, and so do we: its peers that are shrunk away may never answer. */
BL_EXPORT ncclResult_t ncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount,
                                      ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags) {
    struct child child = announce_child(BL_CHILD_SHRINK, comm, newcomm, config, "", 0);
    const bool aborts = child.parent && shrinkFlags & NCCL_SHRINK_ABORT;
    if (aborts) bl_teardown_revoke(child.parent);
    ncclResult_t result =
        BL_REAL(ncclCommShrink, comm, excludeRanksList, excludeRanksCount, child.request.handle, config, shrinkFlags);
    if (aborts) bl_teardown_let_go(child.parent);
    return add_child(&child, result, config);
}

/* Whether NCCL ends the communicator.  One that has failed it leaves as it is, for an abort, and waits for nothing; nor does it end one of which something is
 * in progress.  `own` is an error that is Beeline's alone, of which NCCL knows nothing. */
static bool ends(struct bl_comm *known, ncclResult_t *own) {
    ncclResult_t state = ncclSuccess;
    *own = ncclSuccess;
    if (BL_REAL(ncclCommGetAsyncError, known->handle, &state) == ncclSuccess && state == ncclSuccess)
        *own = bl_comm_check(known);
    return state == ncclSuccess && *own == ncclSuccess;
}

/* Now, or behind the calls of the group that is open. */
static void drain(struct bl_comm *comm) {
    if (!bl_group_open() || !bl_group_add_finalized(comm)) bl_teardown_drain(comm);
}

/* The entry stays until Destroy.  A nonblocking one must not wait here: it is in progress until its launches have ended. */
BL_EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    struct bl_comm *known = bl_known(comm);
    const bool nonblocking = known && known->resources->nonblocking;
    ncclResult_t own = ncclSuccess;
    if (known && ends(known, &own) && !nonblocking) drain(known);
    if (own != ncclSuccess) return bl_group_heard(own);
    ncclResult_t result = bl_group_heard(BL_REAL(ncclCommFinalize, comm));
    return !nonblocking || !bl_call_made(result) || bl_teardown_finalize(known) ? result : ncclInProgress;
}

BL_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    struct bl_comm *known = bl_known(comm);
    ncclResult_t own = ncclSuccess;
    struct bl_comm *ending = known && ends(known, &own) ? bl_teardown_detach(comm, BL_END_DESTROY) : NULL;
    if (own != ncclSuccess) return bl_group_heard(own);
    ncclResult_t result = bl_group_heard(BL_REAL(ncclCommDestroy, comm));
    if (ending) bl_promise_end(ending);
    bl_teardown_release(ending, BL_END_DESTROY);
    return result;
}

BL_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm) {
    struct bl_comm *ending = bl_real_depth == 0 ? bl_teardown_detach(comm, BL_END_ABORT) : NULL;
    ncclResult_t result = bl_group_heard(BL_REAL(ncclCommAbort, comm));
    if (ending) bl_promise_end(ending);
    bl_teardown_release(ending, BL_END_ABORT);
    return result;
}

BL_EXPORT ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags) {
    struct bl_comm *known = bl_known(comm);
    /* NCCL refuses it otherwise, and the communicator goes on. */
    const bool revokes = known && revokeFlags == NCCL_REVOKE_DEFAULT && !atomic_load(&known->resources->finalized) &&
                         !atomic_load(&known->resources->revoked);
    if (revokes) bl_teardown_revoke(known);
    ncclResult_t result = bl_group_heard(BL_REAL(ncclCommRevoke, comm, revokeFlags));
    if (revokes) bl_teardown_let_go(known);
    return result;
}

/* The real error comes first.  A nonblocking communicator is in progress until Beeline's side is made, too, and that of its
 * children. */
BL_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError) {
    struct bl_comm *known = bl_real_depth == 0 && asyncError ? bl_comm_find(comm) : NULL;
    if (known && bl_resources_busy(known)) {
        *asyncError = ncclInProgress;
        return ncclSuccess;
    }
    ncclResult_t result = BL_REAL(ncclCommGetAsyncError, comm, asyncError);
    if (!known || result != ncclSuccess || *asyncError == ncclInProgress) return result;
    const bool open = bl_resources_are_ours(known) && bl_promise_open(known, *asyncError);
    bl_turn_settle(known, *asyncError);
    if (*asyncError != ncclSuccess) {
        atomic_store(&known->active, false); /* NCCL refuses its calls from now on */
        return result;
    }
    *asyncError = bl_comm_check(known);
    if (*asyncError == ncclSuccess && (open || bl_teardown_finalizing(known))) *asyncError = ncclInProgress;
    return result;
}

BL_EXPORT const char *ncclGetLastError(ncclComm_t comm) {
    struct bl_comm *known = bl_known(comm);
    if (known && bl_comm_check(known) != ncclSuccess) return known->error_text;
    return BL_REAL(ncclGetLastError, comm);
}

BL_EXPORT ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags) {
    struct bl_comm *known = bl_known(comm);
    ncclResult_t result = bl_group_heard(BL_REAL(ncclCommSuspend, comm, flags));
    /* In a group NCCL may have done nothing yet, and kernels may run: the staging stays. */
    if (known && result == ncclSuccess && flags & NCCL_SUSPEND_MEM && !bl_group_open()) bl_suspend(known);
    return result;
}

BL_EXPORT ncclResult_t ncclCommResume(ncclComm_t comm) {
    struct bl_comm *known = bl_known(comm);
    struct bl_meeting meeting;
    if (!bl_suspended(known)) return bl_group_heard(BL_REAL(ncclCommResume, comm));
    bl_resume_announce(known, &meeting);
    ncclResult_t result = bl_group_heard(BL_REAL(ncclCommResume, comm));
    const ncclResult_t ours = bl_resume(known, &meeting, result == ncclSuccess);
    return result == ncclSuccess ? ours : result;
}

/* Beeline's staging is as NCCL's own buffers. */
BL_EXPORT ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value) {
    struct bl_comm *known = bl_known(comm);
    ncclResult_t result = BL_REAL(ncclCommMemStats, comm, stat, value);
    bool suspends = false;
    const uint64_t bytes = known && result == ncclSuccess && value ? bl_suspend_bytes(known, &suspends) : 0;
    const bool counts =
        stat == ncclStatGpuMemTotal || stat == (suspends ? ncclStatGpuMemSuspend : ncclStatGpuMemPersist);
    if (bytes && counts) *value += bytes;
    return result;
}
