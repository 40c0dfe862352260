/* rank.c - ranks: device, context, stream, communicators and buffers; waiting for them. */
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "perf.h"

int part_fail(struct part *part, const char *format, ...) {
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    shared_fail(part->bench->shared, "rank %d: %s", part->rank[0].rank, text);
    return -1;
}

/* Longer than for a result: who waits for one says which, and may have begun after who waits here. */
int part_barrier(struct part *part) {
    return shared_barrier(part->bench->shared, part->bench->parts, 1.25 * part->bench->options->timeout);
}

static int check_communicators(struct part *part) {
    for (int i = 0; i < part->count; i++) {
        for (int side = 0; side < SIDES; side++) {
            ncclResult_t result;
            if (!part->rank[i].comm[side]) continue;
            NCCL_TRY(part, side, CommGetAsyncError(part->rank[i].comm[side], &result));
            if (result != ncclSuccess)
                return part_fail(part, "communicator: %s: %s", nccl[side].GetErrorString(result),
                                 nccl[side].GetLastError(part->rank[i].comm[side]));
        }
    }
    return 0;
}

/* Polls, because a peer that failed must end the wait; and so notices the end sooner than a blocking wait. */
int part_wait(struct part *part) {
    double start = now(), checked = start;

    for (int i = 0; i < part->count; i++) {
        CUresult result;
        while ((result = cuda.cuStreamQuery(part->rank[i].stream)) == CUDA_ERROR_NOT_READY) {
            double time = now();
            if (atomic_load(&part->bench->shared->failed)) return -1;
            if (time - start > part->bench->options->timeout)
                return part_fail(part, "a result did not come within %g s", part->bench->options->timeout);
            if (time - checked > 0.1) {
                if (check_communicators(part)) return -1;
                checked = time;
            }
            if (time - start > 0.02)
                nanosleep(&(struct timespec){0, 20000}, NULL);
            else
                sched_yield();
        }
        if (result != CUDA_SUCCESS)
            return part_fail(part, "stream of rank %d: %s", part->rank[i].rank, api_cuda_error(result));
    }
    return 0;
}

static int open_device(struct part *part, struct rank *rank, int local) {
    struct shared *shared = part->bench->shared;
    size_t free_bytes, total;
    int devices;

    CUDA_TRY(part, cuDeviceGetCount(&devices));
    if (!devices) return part_fail(part, "the driver shows no GPU");
    CUDA_TRY(part, cuDeviceGet(&rank->device, local % devices));
    CUDA_TRY(part, cuDevicePrimaryCtxRetain(&rank->context, rank->device));
    CUDA_TRY(part, cuCtxSetCurrent(rank->context));
    CUDA_TRY(part, cuStreamCreate(&rank->stream, CU_STREAM_NON_BLOCKING));
    CUDA_TRY(part, cuMemGetInfo(&free_bytes, &total));
    uint64_t least = atomic_load(&shared->free_bytes);
    while (free_bytes < least && !atomic_compare_exchange_weak(&shared->free_bytes, &least, free_bytes)) continue;
    rank->event = calloc(MAX_SAMPLES + 1, sizeof *rank->event);
    if (!rank->event) return part_fail(part, "out of memory");
    for (int i = 0; i <= part->bench->options->samples; i++)
        CUDA_TRY(part, cuEventCreate(&rank->event[i], CU_EVENT_DEFAULT));
    return 0;
}

static int open_communicators(struct part *part, enum side side) {
    if (part->index == 0) NCCL_TRY(part, side, GetUniqueId(&part->bench->shared->id[side]));
    if (part_barrier(part)) return -1;
    if (part->count > 1) NCCL_TRY(part, side, GroupStart());
    for (int i = 0; i < part->count; i++) {
        struct rank *rank = &part->rank[i];
        CUDA_TRY(part, cuCtxSetCurrent(rank->context));
        NCCL_TRY(part, side, CommInitRank(&rank->comm[side], rank->nranks, part->bench->shared->id[side], rank->rank));
    }
    if (part->count > 1) NCCL_TRY(part, side, GroupEnd());
    return part_barrier(part);
}

/* On both sides, which are one unless there is another baseline. */
static int connect_sides(struct part *part) {
    const bool own_baseline = part->bench->options->baseline;

    if (open_communicators(part, MEASURED)) return -1;
    if (own_baseline && !part->rank[0].comm[BASELINE] && open_communicators(part, BASELINE)) return -1;
    for (int i = 0; i < part->count && !own_baseline; i++) part->rank[i].comm[BASELINE] = part->rank[i].comm[MEASURED];
    return 0;
}

/* Failures here are told of and change nothing: the measurements are made. */
static void close_communicators(struct part *part, enum side side) {
    if (part->count > 1) nccl[side].GroupStart();
    for (int i = 0; i < part->count; i++) {
        ncclResult_t result = nccl[side].CommDestroy(part->rank[i].comm[side]);
        if (result != ncclSuccess) part_fail(part, "CommDestroy: %s", nccl[side].GetErrorString(result));
        part->rank[i].comm[side] = NULL;
    }
    if (part->count > 1) nccl[side].GroupEnd();
}

int part_reconnect(struct part *part) {
    close_communicators(part, MEASURED);
    return connect_sides(part);
}

int part_open(struct part *part) {
    struct options *options = part->bench->options;
    int first_local =
        options->local_rank * options->threads * options->gpus + part->index % options->threads * options->gpus;

    for (int i = 0; i < part->count; i++) {
        struct rank *rank = &part->rank[i];
        rank->rank = part->index * part->count + i;
        rank->nranks = part->bench->nranks;
        if (open_device(part, rank, first_local + i)) return -1;
    }
    if (connect_sides(part)) return -1;

    /* Memory that the devices do not have cuts the largest size, on all ranks alike: half of what the least has free.
     */
    uint64_t most = atomic_load(&part->bench->shared->free_bytes) / 2 / 2 & ~(uint64_t)4095;
    uint64_t wanted = options->max_bytes * options->group, room = wanted < most ? wanted : most;
    for (int i = 0; i < part->count; i++) {
        struct rank *rank = &part->rank[i];
        rank->room = room;
        CUDA_TRY(part, cuCtxSetCurrent(rank->context));
        CUDA_TRY(part, cuMemAlloc(&rank->send, room + 2 * GUARD));
        CUDA_TRY(part, cuMemAlloc(&rank->recv, room + 2 * GUARD));
    }
    return part_barrier(part);
}

void part_close(struct part *part) {
    bool own_baseline = part->bench->options->baseline;

    for (int i = 0; i < part->count; i++) {
        struct rank *rank = &part->rank[i];
        cuda.cuCtxSetCurrent(rank->context);
        for (int e = 0; e <= part->bench->options->samples; e++) cuda.cuEventDestroy(rank->event[e]);
        free(rank->event);
        cuda.cuMemFree(rank->send);
        cuda.cuMemFree(rank->recv);
    }
    for (int side = 0; side <= (own_baseline ? BASELINE : MEASURED); side++) close_communicators(part, side);
    for (int i = 0; i < part->count; i++) {
        cuda.cuCtxSetCurrent(part->rank[i].context);
        cuda.cuStreamDestroy(part->rank[i].stream);
        cuda.cuDevicePrimaryCtxRelease(part->rank[i].device);
    }
}
