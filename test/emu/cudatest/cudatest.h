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
CUdeviceptr test_map(CUmemGenericAllocationHandle handle, size_t bytes, int ndevices); /* for the first ndevices */
struct bl_kernel_args test_args(const struct test_box *box, int rank);
CUresult test_launch(struct test_box *box, int rank, const char *kernel, unsigned blocks, unsigned threads,
                     struct bl_kernel_args *args);

/* Two processes that drive a GPU each, with memory that each imports from the other. */
struct test_pair {
    struct test_box box; /* of both GPUs, in each process */
    int rank, socket;
    CUmemGenericAllocationHandle mine, theirs;
    CUdeviceptr own, other;
};
void test_pair_run(void (*body)(struct test_pair *)); /* in both */
void test_pair_meet(const struct test_pair *pair);

/* The tests, by file; each is a row of main.c's table. */
void test_streams(void), test_legacy_stream(void), test_unsettled(void), test_events(void), test_event_again(void),
    test_contexts(void), test_handles(void), test_handles_again(void), test_handles_gone(void);
void test_capture(void), test_capture_fork(void), test_capture_forbidden(void), test_capture_events(void),
    test_capture_ranks(void);
void test_memory(void), test_mapping(void), test_processes(void), test_guard(void), test_no_peer(void), test_fork(void);
void test_proc_address(void), test_lacks(void), test_fault(void), test_identity(void), test_quiet(void);
void test_waits(void), test_writers(void), test_waits_alone(void), test_memop_errors(void), test_memop_release(void);
void test_memop_exit(void), test_memop_destroy(void), test_memop_unmap(void), test_memop_graph(void);
void test_peer_copies(void), test_peer_copies_captured(void), test_peer_copy_order(void), test_peer_copy_access(void);
void test_priority(void), test_gather_graph(void);
void test_queues(void), test_queue_edge(void), test_queue_no_edge(void);
void test_told_by_write(void), test_told_by_barrier(void), test_told_by_kernel(void), test_told_by_event(void),
    test_told_by_edge(void), test_told_batch(void), test_told_by_process(void), test_pulled_by_process(void);
void test_untold_no_barrier(void), test_untold_gpu_barrier(void), test_untold_memset(void), test_untold_copy(void),
    test_untold_no_event(void), test_untold_no_edge(void), test_untold_no_wait(void), test_untold_by_process(void);
void test_copies(void), test_fault_address(void), test_residency(void), test_too_many_blocks(void), test_counting(void);
void test_grid_keeps_out(void), test_holder_keeps_out(void), test_dispatch_order(void), test_holder_captured(void);
void test_sync_always(void), test_sync_never(void), test_sync_drawn(void);
void test_green_room(void), test_green_current(void);
void test_packets_arrive(void), test_lines_arrive(void), test_lines_flood(void), test_lines_unwaited(void),
    test_broken(void);
void test_message_fence(void), test_message_release(void), test_message_nothing(void), test_message_no_acquire(void);
void test_block_fence(void), test_block_nothing(void), test_block_no_barrier(void);
void test_throughput(void);
void test_multicast_rules(void), test_multicast_wait(void), test_multicast_slots(void), test_multicast_fault(void),
    test_multicast_unsupported(void), test_multicast_processes(void), test_multicast_lost(void);
void test_fabric(void), test_fabric_denied(void), test_fabric_off(void);
void test_multimem_gather(void), test_multimem_reduce(void), test_multimem_packets(void), test_multimem_types(void),
    test_multimem_order(void), test_multimem_forbidden(void), test_multimem_unbound(void);
void test_gather_no_release(void), test_gather_no_acquire(void), test_gather_no_barrier(void);
void test_reduce_no_release(void), test_reduce_no_acquire(void), test_reduce_no_barrier(void);
void test_gather_processes(void), test_reduce_processes(void), test_packets_processes(void);
void test_processes_no_release(void), test_processes_no_barrier(void);
#endif
#endif
