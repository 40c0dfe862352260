/* comm.c - communicator objects and what can be asked of them. */
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "area.h"

/* Destroyed communicators are used again, last in first out: an address that comes back, as malloc's do, is what a
 * table keyed by handles must cope with.  They are never freed, so late work of a replayed graph finds a changed
 * generation. */
static pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ncclComm *free_list;

ncclComm_t emu_comm_new(void) {
    pthread_mutex_lock(&free_lock);
    struct ncclComm *comm = free_list;
    if (comm) free_list = comm->next_free;
    pthread_mutex_unlock(&free_lock);
    if (!comm) {
        comm = calloc(1, sizeof *comm);
        if (!comm) return NULL;
        pthread_mutex_init(&comm->executing, NULL);
        pthread_mutex_init(&comm->launching, NULL);
    }
    comm->magic = EMU_COMM_MAGIC;
    comm->blocking = true;
    return comm;
}

void emu_comm_wait_zero(_Atomic uint32_t *word) {
    uint32_t value;
    while ((value = *word) != 0) emu_futex_wait(word, value);
}

enum { JOIN_US = 200 };

/* Whoever first hears that a nonblocking call has succeeded, or makes the next, gives up its job.  Two threads at
 * once free it twice in the real one: seen as a corrupted heap with 2.28.9. */
void emu_comm_join(ncclComm_t comm) {
    if (!atomic_load(&comm->worker_started)) return;
    if (atomic_exchange(&comm->joining, true)) {
        fprintf(stderr, "emulated NCCL: rank %d: two threads use a nonblocking communicator at once\n", comm->rank);
        abort();
    }
    usleep(JOIN_US);
    if (atomic_exchange(&comm->worker_started, false)) pthread_join(comm->worker, NULL);
    atomic_store(&comm->joining, false);
}

void emu_comm_release(ncclComm_t comm) {
    pthread_mutex_lock(&comm->launching);
    comm->generation++;
    emu_comm_wait_zero(&comm->running);
    if (comm->context && cuCtxPushCurrent(comm->context) == CUDA_SUCCESS) {
        if (comm->eager_event) cuEventDestroy(comm->eager_event);
        if (comm->capture_event) cuEventDestroy(comm->capture_event);
        emu_nvls_give(comm);
        cuCtxPopCurrent(NULL);
    }
    emu_area_detach(comm);
    emu_simulated_forget(comm);
    /* Of a call beside the end, whose launch will find another generation. */
    if (atomic_exchange(&comm->worker_started, false)) pthread_detach(comm->worker);
    memset(&comm->magic, 0, sizeof *comm - offsetof(struct ncclComm, magic));
    pthread_mutex_unlock(&comm->launching);
    pthread_mutex_lock(&free_lock);
    comm->next_free = free_list;
    free_list = comm;
    pthread_mutex_unlock(&free_lock);
}

ncclResult_t emu_comm_check(ncclComm_t comm) {
    if (!comm) return emu_fail(ncclInvalidArgument, "comm is NULL");
    if (comm->magic != EMU_COMM_MAGIC)
        return emu_fail(ncclInvalidArgument, "comm %p is not a communicator", (void *)comm);
    return ncclSuccess;
}

ncclResult_t emu_comm_settled(ncclComm_t comm) {
    ncclResult_t result = emu_comm_check(comm);
    if (result != ncclSuccess) return result;
    if (comm->async == ncclInProgress)
        return emu_fail(ncclInvalidArgument,
                        "Attempt to use communicator before the previous operation returned ncclSuccess");
    return (ncclResult_t)comm->async;
}

ncclResult_t emu_comm_ready(ncclComm_t comm) {
    ncclResult_t result = emu_comm_settled(comm);
    if (result != ncclSuccess) return result;
    emu_comm_join(comm);
    if (comm->aborted || comm->finalized || comm->revoked || comm->suspended)
        return emu_fail(ncclInvalidUsage, "rank %d: the communicator was %s", comm->rank,
                        comm->aborted     ? "aborted"
                        : comm->suspended ? "suspended"
                        : comm->finalized ? "finalized"
                                          : "revoked");
    return ncclSuccess;
}

int emu_comm_rank(ncclComm_t comm) {
    return comm && comm->magic == EMU_COMM_MAGIC ? comm->rank : -1;
}

void emu_comm_set_async(ncclComm_t comm, ncclResult_t result) {
    int before = comm->async;
    while ((before == ncclSuccess || before == ncclInProgress) &&
           !atomic_compare_exchange_weak(&comm->async, &before, result)) {
    }
}

EMU_API(ncclResult_t, ncclCommGetAsyncError, ncclComm_t comm, ncclResult_t *async_error) {
    struct emu_call call = NCCL_CALL(emu_comm_rank(comm));
    ncclResult_t result = emu_call_enter(&call, comm);
    if (result == ncclSuccess) result = emu_comm_check(comm);
    if (result == ncclSuccess && !async_error)
        result = emu_fail(ncclInvalidArgument, "ncclCommGetAsyncError: asyncError is NULL");
    if (result == ncclSuccess) *async_error = (ncclResult_t)comm->async;
    if (result == ncclSuccess && *async_error == ncclSuccess) emu_comm_join(comm);
    return emu_call_leave(&call, result);
}

/* The three questions differ in the member alone. */
#define QUERY(function, member)                                                                                        \
    EMU_API(ncclResult_t, function, const ncclComm_t comm, int *value) {                                               \
        struct emu_call call = NCCL_CALL(emu_comm_rank(comm));                                                         \
        ncclResult_t result = emu_call_enter(&call, comm);                                                             \
        if (result == ncclSuccess) result = emu_comm_settled(comm);                                                    \
        if (result == ncclSuccess && !value) result = emu_fail(ncclInvalidArgument, #function ": the result is NULL"); \
        if (result == ncclSuccess) *value = comm->member;                                                              \
        return emu_call_leave(&call, result);                                                                          \
    }

QUERY(ncclCommCount, nranks)
QUERY(ncclCommCuDevice, device)
QUERY(ncclCommUserRank, rank)
