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
CUdeviceptr test_map(CUmemGenericAllocationHandle handle, size_t bytes, int ndevices); /* for the first ndevices */
struct bl_kernel_args test_args(const struct test_box *box, int rank);
CUresult test_launch(struct test_box *box, int rank, const char *kernel, unsigned blocks, unsigned threads,
                     struct bl_kernel_args *args);

/* The tests, by file; each is a row of main.c's table. */
void test_streams(void), test_legacy_stream(void), test_events(void), test_event_again(void), test_contexts(void),
    test_handles(void);
void test_capture(void), test_capture_fork(void), test_capture_forbidden(void), test_capture_events(void),
    test_capture_ranks(void);
void test_memory(void), test_mapping(void), test_processes(void), test_guard(void), test_no_peer(void), test_fork(void);
void test_proc_address(void), test_fault(void), test_identity(void), test_quiet(void);
void test_copies(void), test_fault_address(void), test_residency(void), test_too_many_blocks(void), test_counting(void);
void test_packets_arrive(void), test_lines_arrive(void), test_lines_flood(void), test_lines_unwaited(void),
    test_broken(void);
void test_message_fence(void), test_message_release(void), test_message_nothing(void), test_message_no_acquire(void);
void test_block_fence(void), test_block_nothing(void), test_block_no_barrier(void);
void test_throughput(void);
#endif
#endif
