/* lifecycle.c - how communicators end. */
#include <stdlib.h>

#include "area.h"

static void drain(ncclComm_t comm) {
    emu_comm_wait_zero(&comm->pending);
    emu_comm_wait_zero(&comm->running);
}

static void *finalize_thread(void *argument) {
    ncclComm_t comm = argument;
    int expected = ncclInProgress;
    drain(comm);
    atomic_compare_exchange_strong(&comm->async, &expected, ncclSuccess);
    return NULL;
}

static ncclResult_t finalize(ncclComm_t comm) {
    ncclResult_t result = emu_comm_settled(comm);
    if (result != ncclSuccess) return result;
    if (comm->finalized || comm->revoked)
        return emu_fail(ncclInvalidArgument, "ncclCommFinalize: the communicator has already ended");
    emu_comm_join(comm);
    comm->finalized = true;
    if (comm->blocking) {
        drain(comm);
        return ncclSuccess;
    }
    comm->async = ncclInProgress;
    comm->worker_started = pthread_create(&comm->worker, NULL, finalize_thread, comm) == 0;
    if (!comm->worker_started) finalize_thread(comm);
    return ncclInProgress;
}

EMU_API(ncclResult_t, ncclCommFinalize, ncclComm_t comm) {
    NCCL_AROUND(comm, -1, comm ? finalize(comm) : ncclSuccess);
}

/* With `abort` whatever is at work leaves; without, it is waited for. */
static ncclResult_t destroy(ncclComm_t comm, bool abort) {
    if (!comm) return ncclSuccess;
    /* As the real one: what is in progress, or has failed, stays as it is; ncclCommAbort ends it. */
    ncclResult_t result = abort ? emu_comm_check(comm) : emu_comm_settled(comm);
    if (result != ncclSuccess) return result;
    if (abort) {
        comm->aborted = true;
        emu_area_stop(comm, true);
        ncclComm_t child = comm->child;
        if (child) {
            child->aborted = true;
            emu_area_stop(child, true);
        }
    }
    emu_comm_join(comm);
    if (!abort && !comm->revoked) drain(comm);
    emu_comm_release(comm);
    return ncclSuccess;
}

EMU_API(ncclResult_t, ncclCommDestroy, ncclComm_t comm) {
    NCCL_AROUND(comm, -1, destroy(comm, false));
}

EMU_API(ncclResult_t, ncclCommAbort, ncclComm_t comm) {
    NCCL_AROUND(comm, -1, destroy(comm, true));
}

static ncclResult_t revoke(ncclComm_t comm, int flags) {
    ncclResult_t result = emu_comm_check(comm);
    if (result != ncclSuccess) return result;
    if (flags != NCCL_REVOKE_DEFAULT) return emu_fail(ncclInvalidArgument, "ncclCommRevoke: flags %d", flags);
    if (comm->finalized || comm->aborted || comm->revoked)
        return emu_fail(ncclInvalidArgument, "ncclCommRevoke: the communicator has already ended");
    comm->revoked = true;
    emu_area_stop(comm, false);
    emu_comm_wait_zero(&comm->running);
    comm->async = ncclSuccess; /* quiescent: an error of an operation that the revocation stopped is settled */
    return ncclSuccess;
}

EMU_API(ncclResult_t, ncclCommRevoke, ncclComm_t comm, int flags) {
    NCCL_AROUND(comm, -1, revoke(comm, flags));
}
