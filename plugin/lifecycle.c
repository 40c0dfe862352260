/* lifecycle.c - the entry points that make and end communicators, and tell of their errors.
 *
 * The real function is always called, and its result is the caller's.  Beeline's side of a new communicator is made
 * after it, of one that ends is taken down around it.  Within the real NCCL's own calls (bl_real_depth) nothing but the
 * real function is called. */
#include "export.h"
#include "group.h"
#include "log.h"
#include "real.h"
#include "setup.h"
#include "turn.h"

#include <limits.h>
#include <stddef.h>
#include <stdlib.h>

/* Or will be: NCCL has taken the call. */
static bool made(ncclResult_t result) {
    return result == ncclSuccess || result == ncclInProgress;
}

/* `blocking` has been the first of the settings since there was a config; what is not set there, NCCL decides, and
 * shows by its result. */
static bool asks_nonblocking(const ncclConfig_t *config, ncclResult_t result) {
    return result == ncclInProgress || (config && config->blocking == 0);
}

/* The zero-CTA policy; a config of an older NCCL has no room for it. */
static bool asks_copy_engines(const ncclConfig_t *config) {
#ifdef NCCL_CTA_POLICY_ZERO
    const size_t needed = offsetof(ncclConfig_t, CTAPolicy) + sizeof(config->CTAPolicy);
    return config && config->size >= needed && config->CTAPolicy != NCCL_CONFIG_UNDEF_INT &&
           (config->CTAPolicy & NCCL_CTA_POLICY_ZERO) != 0;
#else
    return false;
#endif
}

static bool is_nonblocking(ncclComm_t handle) {
    const struct bl_comm *comm = bl_comm_find(handle);
    return comm && bl_setup_nonblocking(comm);
}

/* Beeline's side of the new communicator: now, at the end of the group, or in the background.  Returns what the caller
 * is to get: a nonblocking communicator is in progress as long as either side is. */
static ncclResult_t add(ncclComm_t *handle, ncclResult_t result, bool nonblocking, bool copy_engines) {
    if (bl_real_depth > 0 || !made(result) || !handle) return result;
    bl_group_add_init(&(struct bl_setup_request){handle, nonblocking, copy_engines});
    const struct bl_comm *comm = bl_group_open() ? NULL : bl_comm_find(*handle);
    return comm && bl_setup_busy(comm) ? ncclInProgress : result;
}

#ifdef BL_HAVE_ncclCommInitRank
BL_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank) {
    ncclResult_t result = BL_REAL(ncclCommInitRank, comm, nranks, commId, rank);
    return add(comm, result, asks_nonblocking(NULL, result), false);
}
#endif

#ifdef BL_HAVE_ncclCommInitRankConfig
BL_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank,
                                              ncclConfig_t *config) {
    ncclResult_t result = BL_REAL(ncclCommInitRankConfig, comm, nranks, commId, rank, config);
    return add(comm, result, asks_nonblocking(config, result), asks_copy_engines(config));
}
#endif

#ifdef BL_HAVE_ncclCommInitRankScalable
BL_EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId,
                                                ncclUniqueId *commIds, ncclConfig_t *config) {
    ncclResult_t result = BL_REAL(ncclCommInitRankScalable, newcomm, nranks, myrank, nId, commIds, config);
    return add(newcomm, result, asks_nonblocking(config, result), asks_copy_engines(config));
}
#endif

#ifdef BL_HAVE_ncclCommInitAll
/* All ranks are this thread's, so they are set up together. */
BL_EXPORT ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist) {
    ncclResult_t result = BL_REAL(ncclCommInitAll, comm, ndev, devlist);
    if (bl_real_depth > 0 || !made(result) || !comm || ndev < 1) return result;
    if (bl_group_open()) {
        for (int i = 0; i < ndev; i++) add(&comm[i], result, result == ncclInProgress, false);
        return result;
    }
    struct bl_setup_request *requests = calloc((size_t)ndev, sizeof(*requests));
    if (!requests) {
        bl_warn("out of memory: %d communicators are left to NCCL", ndev);
        return result;
    }
    for (int i = 0; i < ndev; i++) requests[i] = (struct bl_setup_request){&comm[i], result == ncclInProgress, false};
    bl_setup_run(requests, ndev);
    free(requests);
    return result;
}
#endif

/* The child of a nonblocking split or shrink exists only once NCCL says so, at a time of each rank's own: whether Beeline
 * takes part must not depend on that, so by its config, which is the same on all ranks, it does not. */
static ncclResult_t add_child(const char *call, ncclComm_t parent, ncclComm_t *child, ncclResult_t result,
                              const ncclConfig_t *config) {
    const bool nonblocking =
        config && config->blocking != NCCL_CONFIG_UNDEF_INT ? config->blocking == 0 : is_nonblocking(parent);
    const struct bl_comm *known = bl_real_depth == 0 ? bl_comm_find(parent) : NULL;
    const bool copy_engines = config ? asks_copy_engines(config) : known && bl_setup_copy_engines(known);
    if (!nonblocking || bl_real_depth > 0) return add(child, result, false, copy_engines);
    bl_info("%s makes a nonblocking communicator: it is left to NCCL", call);
    return result;
}

#ifdef BL_HAVE_ncclCommSplit
BL_EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config) {
    ncclResult_t result = BL_REAL(ncclCommSplit, comm, color, key, newcomm, config);
    return add_child("ncclCommSplit", comm, newcomm, result, config);
}
#endif

#ifdef BL_HAVE_ncclCommShrink
/* Told to abort, NCCL ends what runs on the parent, and so do we: its peers that are shrunk away may never answer. */
BL_EXPORT ncclResult_t ncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount,
                                      ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags) {
    struct bl_comm *parent = bl_real_depth == 0 ? bl_comm_find(comm) : NULL;
    if (parent && shrinkFlags & NCCL_SHRINK_ABORT) bl_setup_revoke(parent);
    ncclResult_t result =
        BL_REAL(ncclCommShrink, comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags);
    if (parent && shrinkFlags & NCCL_SHRINK_ABORT) bl_setup_let_go(parent);
    return add_child("ncclCommShrink", comm, newcomm, result, config);
}
#endif

#ifdef BL_HAVE_ncclCommFinalize
/* The entry stays until Destroy.  A nonblocking one must not wait here: it is in progress until its launches have ended. */
BL_EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    struct bl_comm *known = bl_real_depth == 0 ? bl_comm_find(comm) : NULL;
    const bool nonblocking = known && bl_setup_nonblocking(known);
    if (known && !nonblocking) bl_setup_drain(known);
    ncclResult_t result = BL_REAL(ncclCommFinalize, comm);
    return !nonblocking || !made(result) || bl_setup_finalize(known) ? result : ncclInProgress;
}
#endif

/* Beeline's part of `call`, which ends the communicator, around the real one. */
#define END_AROUND(end, call)                                                                                          \
    do {                                                                                                               \
        struct bl_comm *ending = bl_real_depth == 0 ? bl_setup_detach(comm, end) : NULL;                               \
        ncclResult_t result = call;                                                                                    \
        bl_setup_release(ending, end);                                                                                 \
        return result;                                                                                                 \
    } while (0)

#ifdef BL_HAVE_ncclCommDestroy
BL_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    END_AROUND(BL_END_DESTROY, BL_REAL(ncclCommDestroy, comm));
}
#endif

#ifdef BL_HAVE_ncclCommAbort
BL_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm) {
    END_AROUND(BL_END_ABORT, BL_REAL(ncclCommAbort, comm));
}
#endif

#ifdef BL_HAVE_ncclCommRevoke
BL_EXPORT ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags) {
    struct bl_comm *known = bl_real_depth == 0 ? bl_comm_find(comm) : NULL;
    if (known) bl_setup_revoke(known);
    ncclResult_t result = BL_REAL(ncclCommRevoke, comm, revokeFlags);
    if (known) bl_setup_let_go(known);
    return result;
}
#endif

#ifdef BL_HAVE_ncclCommGetAsyncError
/* The real error comes first.  A nonblocking communicator is in progress until Beeline's side is made, too. */
BL_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError) {
    struct bl_comm *known = bl_real_depth == 0 && asyncError ? bl_comm_find(comm) : NULL;
    if (known && bl_setup_busy(known)) {
        *asyncError = ncclInProgress;
        return ncclSuccess;
    }
    ncclResult_t result = BL_REAL(ncclCommGetAsyncError, comm, asyncError);
    if (!known || result != ncclSuccess || *asyncError != ncclSuccess) return result;
    bl_turn_settle(known);
    *asyncError = bl_comm_check(known);
    if (*asyncError == ncclSuccess && bl_setup_finalizing(known)) *asyncError = ncclInProgress;
    return result;
}
#endif

#ifdef BL_HAVE_ncclGetLastError
BL_EXPORT const char *ncclGetLastError(ncclComm_t comm) {
    struct bl_comm *known = bl_real_depth == 0 ? bl_comm_find(comm) : NULL;
    if (known && bl_comm_check(known) != ncclSuccess) return known->error_text;
    return BL_REAL(ncclGetLastError, comm);
}
#endif
