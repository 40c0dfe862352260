/* gather.c - all-gather of a few bytes on the real NCCL. */
#include "gather.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bootstrap.h"
#include "real.h"

#define CHECK_RETURN(expression, what)                                                                                 \
    do {                                                                                                               \
        CUresult status_ = (expression);                                                                               \
        if (status_ != CUDA_SUCCESS) {                                                                                 \
            snprintf(why, size, "%s failed: %s", what, bl_driver_strerror(status_));                                   \
            return -1;                                                                                                 \
        }                                                                                                              \
    } while (0)

static void pause_us(long us) {
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static size_t total(const struct bl_gather *gather) {
    return gather->piece * (size_t)(gather->nranks + BL_GATHERS);
}

/* What is sent lies behind the pieces that come, in a place of its own each time: an earlier one may still be under
 * way. */
static size_t send_offset(const struct bl_gather *gather) {
    return gather->piece * (size_t)(gather->nranks + gather->turn);
}

/* A rank that cannot take part would leave its peers waiting, so there is a second way to each thing that is needed. */
int bl_gather_open(struct bl_gather *gather, int rank, int nranks, size_t piece, char *why, size_t size) {
    const struct bl_driver *cu = bl_driver();
    *gather = (struct bl_gather){.rank = rank, .nranks = nranks, .piece = piece};
    gather->own_stream = cu->cuStreamCreate(&gather->stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
    if (!gather->own_stream) gather->stream = CU_STREAM_PER_THREAD;
    const unsigned flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
    CUresult locked = cu->cuMemHostAlloc(&gather->host, total(gather), flags);
    gather->page_locked = locked == CUDA_SUCCESS;
    if (!gather->page_locked) gather->host = malloc(total(gather));
    if (!gather->host) CHECK_RETURN(locked, "allocating host memory (cuMemHostAlloc)");
    CUresult allocated = cu->cuMemAlloc(&gather->device, total(gather));
    if (allocated == CUDA_SUCCESS) {
        gather->buffer = gather->device;
    } else {
        gather->device = 0;
        if (!gather->page_locked) CHECK_RETURN(allocated, "allocating memory (cuMemAlloc)");
        CHECK_RETURN(cu->cuMemHostGetDevicePointer(&gather->buffer, gather->host, 0),
                     "the device address of host memory (cuMemHostGetDevicePointer)");
    }
    return 0;
}

int bl_gather_post_copy(struct bl_gather *gather, const void *mine, size_t bytes, char *why, size_t size) {
    size_t at = send_offset(gather);
    memcpy((char *)gather->host + at, mine, bytes);
    if (gather->device)
        CHECK_RETURN(
            bl_driver()->cuMemcpyHtoDAsync(gather->device + at, (char *)gather->host + at, bytes, gather->stream),
            "copying to the device (cuMemcpyHtoDAsync)");
    return 0;
}

int bl_gather_post_call(struct bl_gather *gather, ncclComm_t handle, size_t bytes, char *why, size_t size) {
    size_t at = send_offset(gather);
    ncclResult_t result = BL_REAL(ncclAllGather, (const void *)(uintptr_t)(gather->buffer + at),
                                  (void *)(uintptr_t)gather->buffer, bytes, ncclInt8, handle, gather->stream);
    if (result == ncclSuccess || result == ncclInProgress) {
        gather->pending = true;
        return 0;
    }
    snprintf(why, size, "an all-gather on NCCL failed: %s", BL_REAL(ncclGetErrorString, result));
    return -1;
}

int bl_gather_post_result(struct bl_gather *gather, size_t bytes, char *why, size_t size) {
    gather->turn++;
    if (gather->device)
        CHECK_RETURN(bl_driver()->cuMemcpyDtoHAsync(gather->host, gather->device, bytes * (size_t)gather->nranks,
                                                    gather->stream),
                     "copying from the device (cuMemcpyDtoHAsync)");
    return 0;
}

/* 0: keep waiting; -1: NCCL failed; 1: NCCL is at rest. */
static int ask(ncclComm_t handle, char *why, size_t size) {
    ncclResult_t state = ncclSuccess;
    ncclResult_t result = BL_REAL(ncclCommGetAsyncError, handle, &state);
    if (result == ncclSuccess && state == ncclSuccess) return 1;
    if (result == ncclSuccess && state == ncclInProgress) return 0;
    snprintf(why, size, "NCCL reports: %s", BL_REAL(ncclGetErrorString, result != ncclSuccess ? result : state));
    return -1;
}

static bool too_late(uint64_t deadline, const atomic_bool *cancel, char *why, size_t size) {
    bool cancelled = cancel && atomic_load(cancel);
    if (!cancelled && bl_clock_ns() <= deadline) return false;
    snprintf(why, size, cancelled ? "the communicator is being destroyed" : "not every rank came in time");
    return true;
}

int bl_gather_settle(ncclComm_t handle, uint64_t deadline, const atomic_bool *cancel, char *why, size_t size) {
    int rest;
    while ((rest = ask(handle, why, size)) == 0) {
        if (too_late(deadline, cancel, why, size)) return -1;
        pause_us(100);
    }
    return rest < 0 ? -1 : 0;
}

int bl_gather_wait(struct bl_gather *gather, ncclComm_t handle, uint64_t deadline, const atomic_bool *cancel, char *why,
                   size_t size) {
    long nap = 5;
    for (;;) {
        CUresult status = bl_driver()->cuStreamQuery(gather->stream);
        if (status == CUDA_SUCCESS) break;
        if (status != CUDA_ERROR_NOT_READY) CHECK_RETURN(status, "waiting for the stream (cuStreamQuery)");
        if (nap >= 1000 && ask(handle, why, size) < 0) return -1;
        if (too_late(deadline, cancel, why, size)) return -1;
        pause_us(nap);
        if (nap < 1000) nap += nap / 4 + 1; /* a microsecond matters at first, a core later on */
    }
    gather->pending = false;
    return 0;
}

void bl_gather_close(struct bl_gather *gather) {
    const struct bl_driver *cu = bl_driver();
    if (gather->device) cu->cuMemFree(gather->device);
    if (gather->page_locked)
        cu->cuMemFreeHost(gather->host);
    else
        free(gather->host);
    if (gather->own_stream) cu->cuStreamDestroy(gather->stream);
    *gather = (struct bl_gather){0};
}
