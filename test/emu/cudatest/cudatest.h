/* cudatest.h - shared by the tests of the emulated driver and their kernels.
 *
 * Each test runs in a process of its own, for the driver reads its environment once; CHECK notes a failure and goes on.
 */
#ifndef BEELINE_CUDATEST_H
#define BEELINE_CUDATEST_H

#include <stdint.h>

/* What a kernel leaves out. */
enum test_message { TEST_FENCE, TEST_RELEASE, TEST_NOTHING, TEST_NO_ACQUIRE, TEST_NO_BARRIER };
enum { TEST_FLAG = 4096 }; /* the flag's word in the staging */
/* The reductions that multimem has. */
#define TEST_REDUCTIONS                                                                                                \
    ROW(INT32, SUM)                                                                                                    \
    ROW(INT32, MIN)                                                                                                    \
    ROW(INT32, MAX)                                                                                                    \
    ROW(UINT32, SUM)                                                                                                   \
    ROW(UINT32, MIN)                                                                                                   \
    ROW(UINT32, MAX)                                                                                                   \
    ROW(INT64, SUM)                                                                                                    \
    ROW(INT64, MIN)                                                                                                    \
    ROW(INT64, MAX)                                                                                                    \
    ROW(UINT64, SUM)                                                                                                   \
    ROW(UINT64, MIN)                                                                                                   \
    ROW(UINT64, MAX)                                                                                                   \
    ROW(FLOAT16, SUM)                                                                                                  \
    ROW(FLOAT16, MIN)                                                                                                  \
    ROW(FLOAT16, MAX)                                                                                                  \
    ROW(BFLOAT16, SUM)                                                                                                 \
    ROW(BFLOAT16, MIN)                                                                                                 \
    ROW(BFLOAT16, MAX)                                                                                                 \
    ROW(FLOAT32, SUM)                                                                                                  \
    ROW(FLOAT64, SUM)                                                                                                  \
    ROW(FLOAT8E4M3, SUM)                                                                                               \
    ROW(FLOAT8E4M3, MIN)                                                                                               \
    ROW(FLOAT8E4M3, MAX)                                                                                               \
    ROW(FLOAT8E5M2, SUM)                                                                                               \
    ROW(FLOAT8E5M2, MIN)                                                                                               \
    ROW(FLOAT8E5M2, MAX)
enum { TEST_REDUCTION_COUNT = 26, TEST_TRIES = 40, TEST_PACKETS = 8 };
enum test_forbidden {
    TEST_MULTICAST_STORE,
    TEST_MULTICAST_ADD,
    TEST_MULTICAST_REDUCE,
    TEST_MULTICAST_REDUCE_FP8,
    TEST_PLAIN_STORE,
    TEST_PLAIN_LOAD,
    TEST_PLAIN_PACKET,
    TEST_PLAIN_ADD
};

#ifndef __cplusplus
#include <cuda.h>
#include <stdbool.h>
#include <stdio.h>

#include "kernels.h"

extern int test_failures;
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            test_failures++;                                                                                           \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
        }                                                                                                              \
    } while (0)

/* CHECK that a driver call returned `expected`. */
#define EXPECT(call, expected) test_expect((call), (expected), #call, __FILE__, __LINE__)
#define OK(call)               EXPECT(call, CUDA_SUCCESS)
bool test_expect(CUresult result, CUresult expected, const char *call, const char *file, int line);

/* Of a call without "async", and that what it left to the GPU is done. */
static inline CUresult settled(CUresult result) {
    return result == CUDA_SUCCESS ? cuStreamSynchronize(CU_STREAM_LEGACY) : result;
}

/* One process that drives n GPUs: a context, a stream, staging and result memory of each, mapped for all. */
struct test_box {
    int n;
    CUcontext context[BL_MAX_RANKS];
    CUstream stream[BL_MAX_RANKS];
    CUmodule module[BL_MAX_RANKS];
    CUdeviceptr staging[BL_MAX_RANKS], result[BL_MAX_RANKS], words[BL_MAX_RANKS];
};
enum { TEST_STAGING = 2 << 20, TEST_RESULT = 64 << 10 };
void test_box_open(struct test_box *box, int n);
void test_box_close(struct test_box *box);
CUmemAllocationProp test_prop(CUdevice device);
CUdeviceptr test_map(CUmemGenericAllocationHandle handle, size_t bytes, int ndevices); /* for the first ndevices */
CUdeviceptr test_map_for(CUmemGenericAllocationHandle handle, size_t bytes, CUdevice device);
void test_unmap(CUdeviceptr address, size_t bytes);
struct bl_kernel_args test_args(const struct test_box *box, int rank);
CUresult test_launch(struct test_box *box, int rank, const char *kernel, unsigned blocks, unsigned threads,
                     struct bl_kernel_args *args);

/* Ends a capture; what is left of it is the instance. */
CUgraphExec test_end_capture(CUstream stream);
CUstreamBatchMemOpParams test_op32(CUstreamBatchMemOpType type, CUdeviceptr address, unsigned value, unsigned flags);
bool test_ends_within(CUstream stream, int milliseconds);
double test_seconds(void);

/* Two processes that drive a GPU each, with memory that each imports from the other. */
struct test_pair {
    struct test_box box; /* of both GPUs, in each process */
    int rank, socket;
    CUmemGenericAllocationHandle mine, theirs;
    CUdeviceptr own, other;
};
void test_pair_run(void (*body)(struct test_pair *)); /* in both */
void test_pair_meet(const struct test_pair *pair);

/* A litmus test that is wrong by design must fail under some seed, up to so many; all others pass under each. */
struct test {
    const char *name;
    void (*run)(void);
    const char *gpus, *setting; /* other variables, NAME=VALUE, or NULL */
    int seeds;
    enum { ALWAYS, NOT_ALWAYS } verdict;
};
#define NVLS "BEELINE_EMU_TOPOLOGY=nvls"

/* Begins a test, which is a row of main.c's table by that. */
#define TEST(name, gpus, setting, seeds, verdict)                                                                      \
    static void test_##name(void);                                                                                     \
    static const struct test name##_row = {#name, test_##name, gpus, setting, seeds, verdict};                         \
    __attribute__((used, section("tests"))) static const struct test *const name##_in_table = &name##_row;             \
    static void test_##name(void)

/* A test that is one call. */
#define TRIAL(name, gpus, setting, seeds, verdict, call)                                                               \
    TEST(name, gpus, setting, seeds, verdict) {                                                                        \
        call;                                                                                                          \
    }
#endif
#endif
