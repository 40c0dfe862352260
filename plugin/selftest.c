/* selftest.c - collectives of 64-bit words that depend on rank and place, so that what comes from the wrong place, from the
 * wrong rank, twice or not at all shows. */
#include "selftest.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bootstrap.h"

#define CHECK_RETURN(expression, what)                                                                                 \
    do {                                                                                                               \
        CUresult status_ = (expression);                                                                               \
        if (status_ != CUDA_SUCCESS) {                                                                                 \
            snprintf(why, size, "self-test: %s failed: %s", what, bl_driver_strerror(status_));                        \
            return -1;                                                                                                 \
        }                                                                                                              \
    } while (0)

enum { WORD = sizeof(uint64_t) };

/* Halves alternate from launch to launch, so kernels that have halves run twice.  The packets are all written; of the lines
 * enough that every peer, a good part of the multiprocessors and the crews of all-reduce are met: bytes of one region take
 * one way. */
static const enum bl_kernel runs[] = {
    BL_KERNEL_ALLREDUCE_ONESHOT_PACKET, BL_KERNEL_ALLREDUCE_ONESHOT_PACKET, BL_KERNEL_ALLREDUCE_ONESHOT_LINE,
    BL_KERNEL_ALLREDUCE_ONESHOT_LINE,   BL_KERNEL_ALLREDUCE_TWOSHOT_LINE,   BL_KERNEL_ALLGATHER_LINE,
    BL_KERNEL_REDUCESCATTER_LINE,
};
enum { RUNS = sizeof(runs) / sizeof(*runs), MOST_WORDS = 16 * 1024 };

/* A kernel that no call will go to may have reasons not to work here: it is not run. */
static bool in_use(const struct bl_table *table, enum bl_kernel kernel) {
    for (int collective = 0; collective < BL_COLLECTIVES; collective++)
        for (uint32_t i = 0; i < table->ranges[collective] && i < BL_MAX_RANGES; i++) {
            int32_t algorithm = table->range[collective][i].algorithm;
            if (algorithm != BL_ROUTE_NCCL && bl_algorithms[algorithm].kernel == kernel) return true;
        }
    return false;
}

/* Blocks in the buffers: one, or one of each rank. */
static uint64_t blocks_in(const struct bl_comm *comm, int run) {
    return runs[run] == BL_KERNEL_REDUCESCATTER_LINE ? (uint64_t)comm->nranks : 1;
}
static uint64_t blocks_out(const struct bl_comm *comm, int run) {
    return runs[run] == BL_KERNEL_ALLGATHER_LINE ? (uint64_t)comm->nranks : 1;
}

/* Words of a block. */
static uint64_t words_of(const struct bl_comm *comm, int run) {
    if (!in_use(&comm->table, runs[run])) return 0;
    const uint64_t most = MOST_WORDS / blocks_in(comm, run) / blocks_out(comm, run);
    uint64_t room = bl_kernel_capacity(runs[run], comm->nranks, &comm->args.layout) / WORD;
    if (room > most) room = most;
    return room - 7; /* not a whole number of lines: the end of the last one is tried, too */
}

/* splitmix64 of rank and place. */
static uint64_t word_of(int rank, uint64_t i) {
    uint64_t z = ((uint64_t)(rank + 1) << 40) + (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

int bl_selftest_prepare(struct bl_selftest *test, const struct bl_comm *comm, CUstream stream, char *why, size_t size) {
    const struct bl_driver *cu = bl_driver();
    *test = (struct bl_selftest){0};
    for (int run = 0; run < RUNS; run++) {
        uint64_t words = words_of(comm, run);
        if (words * blocks_in(comm, run) > test->input) test->input = words * blocks_in(comm, run);
        test->results += words * blocks_out(comm, run);
    }
    if (!test->results) return 0; /* no kernel of these is in use */
    const uint64_t most = test->input > test->results ? test->input : test->results;
    test->host = malloc(most * WORD);
    if (!test->host) {
        snprintf(why, size, "self-test: out of host memory for %llu bytes", (unsigned long long)most * WORD);
        return -1;
    }
    CHECK_RETURN(cu->cuMemAlloc(&test->buffer, (test->input + test->results) * WORD), "allocating memory (cuMemAlloc)");
    for (uint64_t i = 0; i < test->input; i++) test->host[i] = word_of(comm->rank, i);
    CHECK_RETURN(cu->cuMemcpyHtoDAsync(test->buffer, test->host, test->input * WORD, stream),
                 "copying to the device (cuMemcpyHtoDAsync)");
    CHECK_RETURN(cu->cuMemsetD8Async(test->buffer + test->input * WORD, 0xff, test->results * WORD, stream),
                 "writing to the device (cuMemsetD8Async)");
    CHECK_RETURN(cu->cuStreamSynchronize(stream), "waiting for the device (cuStreamSynchronize)");
    return 0;
}

int bl_selftest_launch(const struct bl_selftest *test, const struct bl_comm *comm, CUstream stream, unsigned max_blocks,
                       unsigned max_threads, uint64_t timeout_ns, char *why, size_t size) {
    struct bl_kernel_args args = comm->args;
    uint64_t result = test->input;
    args.sendbuff = (const void *)(uintptr_t)test->buffer;
    args.redop = BL_SUM;
    args.size = WORD;
    args.timeout_ns = timeout_ns;
    for (int run = 0; run < RUNS; run++) {
        args.count = words_of(comm, run);
        if (!args.count) continue;
        args.recvbuff = (void *)(uintptr_t)(test->buffer + result * WORD);
        result += args.count * blocks_out(comm, run);
        args.stride = args.count * WORD;
        unsigned blocks = bl_kernel_blocks(runs[run], comm->nranks, args.count * WORD, max_threads, max_blocks);
        void *parameters[] = {&args};
        CHECK_RETURN(bl_driver()->cuLaunchKernel(comm->function[runs[run]][BL_UINT64], blocks, 1, 1, max_threads, 1, 1,
                                                 0, stream, parameters, NULL),
                     "launching a kernel (cuLaunchKernel)");
    }
    return 0;
}

/* CUDA_ERROR_NOT_READY: too late. */
static CUresult wait_until(CUstream stream, uint64_t deadline) {
    for (long nap = 20000;; nap += nap < 1000000 ? nap / 4 : 0) {
        CUresult status = bl_driver()->cuStreamQuery(stream);
        if (status != CUDA_ERROR_NOT_READY || bl_clock_ns() > deadline) return status;
        nanosleep(&(struct timespec){.tv_nsec = nap}, NULL);
    }
}

static int wait_for_kernels(const struct bl_comm *comm, CUstream stream, uint64_t timeout_ns, int *culprit, bool *stuck,
                            char *why, size_t size) {
    /* The kernels have their own time limit; this one is for a device that does not even run them. */
    CUresult status = wait_until(stream, bl_clock_ns() + 2 * timeout_ns);
    if (status == CUDA_ERROR_NOT_READY) {
        __atomic_store_n(&comm->control->abort, 1, __ATOMIC_RELEASE);
        status = wait_until(stream, bl_clock_ns() + timeout_ns);
        *stuck = status == CUDA_ERROR_NOT_READY;
        snprintf(why, size, "self-test: the kernels did not end in %.3g s", 2 * (double)timeout_ns / 1e9);
        return -1;
    }
    CHECK_RETURN(status, "running the kernels");
    if (__atomic_load_n(&comm->control->error, __ATOMIC_ACQUIRE) == BL_KERNEL_TIMEOUT) {
        *culprit = (int)comm->control->error_peer;
        snprintf(why, size, "self-test: rank %d waited %.3g s for the data of rank %d, which did not come", comm->rank,
                 (double)timeout_ns / 1e9, *culprit);
        return -1;
    }
    return 0;
}

/* Word i of the result. */
static uint64_t expected(const struct bl_comm *comm, int run, uint64_t words, uint64_t i) {
    uint64_t sum = 0;
    if (runs[run] == BL_KERNEL_ALLGATHER_LINE) return word_of((int)(i / words), i % words);
    if (runs[run] == BL_KERNEL_REDUCESCATTER_LINE) i += (uint64_t)comm->rank * words;
    for (int rank = 0; rank < comm->nranks; rank++) sum += word_of(rank, i);
    return sum;
}

int bl_selftest_check(const struct bl_selftest *test, const struct bl_comm *comm, CUstream stream, uint64_t timeout_ns,
                      int *culprit, bool *stuck, char *why, size_t size) {
    const struct bl_driver *cu = bl_driver();
    if (!test->results) return 0;
    if (wait_for_kernels(comm, stream, timeout_ns, culprit, stuck, why, size)) return -1;
    CHECK_RETURN(cu->cuMemcpyDtoHAsync(test->host, test->buffer + test->input * WORD, test->results * WORD, stream),
                 "copying from the device (cuMemcpyDtoHAsync)");
    CHECK_RETURN(cu->cuStreamSynchronize(stream), "waiting for the device (cuStreamSynchronize)");
    const uint64_t *result = test->host;
    for (int run = 0; run < RUNS; run++) {
        uint64_t words = words_of(comm, run);
        for (uint64_t i = 0; i < words * blocks_out(comm, run); i++) {
            if (result[i] == expected(comm, run, words, i)) continue;
            snprintf(why, size, "self-test: %s delivered wrong data (word %llu of %llu)", bl_kernel_name(runs[run]),
                     (unsigned long long)i, (unsigned long long)(words * blocks_out(comm, run)));
            return -1;
        }
        result += words * blocks_out(comm, run);
    }
    return 0;
}

void bl_selftest_release(struct bl_selftest *test) {
    if (test->buffer) bl_driver()->cuMemFree(test->buffer);
    free(test->host);
    *test = (struct bl_selftest){0};
}
