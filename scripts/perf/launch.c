/* launch.c - what one kernel launch costs the host in this very process: what a call that is one launch cannot beat. */
#include "perf.h"

enum { BATCH = 100, BATCHES = 10 }; /* launches between two waits: few enough that none waits for room in a queue */

/* A kernel that does nothing, for the driver to compile: whatever GPU there is. */
static const char image[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                            ".visible .entry empty(.param .u64 unused) { ret; }\n";

/* `empty` is NULL where the driver does not compile: a memset of one byte is a kernel too. */
static int launch(struct part *part, const struct rank *rank, CUfunction empty) {
    uint64_t unused = 0;

    if (empty)
        CUDA_TRY(part, cuLaunchKernel(empty, 1, 1, 1, 32, 1, 1, 0, rank->stream, (void *[]){&unused}, NULL));
    else
        CUDA_TRY(part, cuMemsetD8Async(rank->recv, POISON, 1, rank->stream));
    return 0;
}

static int measure(struct part *part, const struct rank *rank, CUfunction empty, double *seconds) {
    if (launch(part, rank, empty)) return -1; /* not counted: it may load code */
    for (int i = 0; i < BATCH * BATCHES; i++) {
        if (i % BATCH == 0 && part_wait(part)) return -1;
        double start = now();
        if (launch(part, rank, empty)) return -1;
        seconds[i] = now() - start;
    }
    return part_wait(part);
}

int launch_time(struct part *part) {
    struct shared *shared = part->bench->shared;
    struct rank *rank = &part->rank[0];
    CUmodule module = NULL;
    CUfunction empty = NULL;
    double seconds[BATCH * BATCHES];

    CUDA_TRY(part, cuCtxSetCurrent(rank->context));
    if (cuda.cuModuleLoadData(&module, image) == CUDA_SUCCESS) cuda.cuModuleGetFunction(&empty, module, "empty");
    int error = measure(part, rank, empty, seconds);
    if (module) cuda.cuModuleUnload(module);
    if (error) return -1;
    sort_seconds(seconds, BATCH * BATCHES);
    shared->launch[part->index] = seconds[BATCH * BATCHES / 2];
    if (!empty) atomic_store(&shared->launch_is_memset, true);
    return part_barrier(part);
}
