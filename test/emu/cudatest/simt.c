/* simt.c - kernels: results, residency, and the memory model's litmus tests. */
#include "cudatest.h"

#include <string.h>

static void synchronize(struct test_box *box) {
    for (int i = 0; i < box->n; i++) {
        OK(cuCtxSetCurrent(box->context[i]));
        OK(cuStreamSynchronize(box->stream[i]));
    }
}

TEST(copies, "1", NULL, 3, ALWAYS) {
    enum { N = 1000 };
    struct test_box box;
    static uint64_t data[N];
    CUdeviceptr from;
    test_box_open(&box, 1);
    struct bl_kernel_args args = test_args(&box, 0);
    for (int i = 0; i < N; i++) data[i] = (uint64_t)i * 3;
    OK(cuMemAlloc(&from, sizeof data));
    OK(settled(cuMemcpyHtoD(from, data, sizeof data)));
    args.sendbuff = (void *)(uintptr_t)from;
    args.count = N;
    OK(test_launch(&box, 0, "test_copy", 9, 33, &args)); /* more blocks than four multiprocessors hold */
    memset(&args, 0, sizeof args);                       /* the launch has its own copy */
    synchronize(&box);
    OK(cuMemcpyDtoH(data, box.result[0], sizeof data));
    for (int i = 0; i < N; i++) CHECK(data[i] == (uint64_t)i * 3 + 1);
    OK(cuMemFree(from));
    test_box_close(&box);
}

TEST(fault_address, "1", NULL, 1, ALWAYS) {
    struct test_box box;
    test_box_open(&box, 1);
    struct bl_kernel_args args = test_args(&box, 0);
    args.count = TEST_RESULT / 8;
    OK(test_launch(&box, 0, "test_overrun", 1, 1, &args));
    EXPECT(cuStreamSynchronize(box.stream[0]), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS); /* and so from now on */
}

/* Whether all threads saw the last block come. */
static void residency(unsigned blocks, bool expected) {
    enum { EACH = 8, MOST = 9 };
    struct test_box box;
    uint64_t came[MOST * EACH];
    bool all = true;
    test_box_open(&box, 1);
    struct bl_kernel_args args = test_args(&box, 0);
    args.timeout_ns = expected ? 20000000000 : 200000000;
    OK(test_launch(&box, 0, "test_resident", blocks, EACH, &args));
    synchronize(&box);
    OK(cuMemcpyDtoH(came, box.result[0], blocks * EACH * sizeof *came));
    for (unsigned i = 0; i < blocks * EACH; i++) all &= came[i] == 1;
    CHECK(all == expected);
    test_box_close(&box);
}
TRIAL(residency, "1", NULL, 3, ALWAYS, residency(8, true))
TRIAL(too_many_blocks, "1", NULL, 1, ALWAYS, residency(9, false))

TEST(counting, "1", NULL, 3, ALWAYS) {
    struct test_box box;
    uint64_t value = 0;
    test_box_open(&box, 1);
    struct bl_kernel_args args = test_args(&box, 0);
    OK(test_launch(&box, 0, "test_count", 7, 64, &args));
    synchronize(&box);
    OK(cuMemcpyDtoH(&value, box.result[0], 8));
    CHECK(value == 7 * 64);
    test_box_close(&box);
}

static void exchange(struct test_box *box, const char *kernel, uint32_t what, uint64_t count, unsigned threads) {
    for (int i = 0; i < box->n; i++) {
        struct bl_kernel_args args = test_args(box, i);
        args.redop = what;
        args.count = count;
        args.timeout_ns = 5000000000ull;
        OK(test_launch(box, i, kernel, 1, threads, &args));
    }
    synchronize(box);
}

static void result_of(struct test_box *box, int rank, uint64_t *values, size_t count) {
    OK(cuCtxSetCurrent(box->context[rank]));
    OK(cuMemcpyDtoH(values, box->result[rank], count * 8));
}

enum { ROUNDS = 20, THREADS = 64 };

TEST(packets, "4", NULL, 10, ALWAYS) {
    struct test_box box;
    uint64_t got[THREADS];
    test_box_open(&box, 4);
    exchange(&box, "test_packets", 0, ROUNDS, THREADS);
    for (int rank = 0; rank < 4; rank++) {
        result_of(&box, rank, got, THREADS);
        for (uint64_t i = 0; i < THREADS; i++)
            CHECK(got[i] == 4 * 1000 * (ROUNDS * (ROUNDS + 1) / 2) + ROUNDS * (600 + 4 * i));
    }
    test_box_close(&box);
}

static void lines(const char *kernel, uint32_t what) {
    struct test_box box;
    uint64_t got[THREADS];
    test_box_open(&box, 4);
    exchange(&box, kernel, what, ROUNDS, THREADS);
    for (int rank = 0; rank < 4; rank++) {
        result_of(&box, rank, got, THREADS);
        for (int i = 0; i < THREADS; i++) CHECK(got[i] == 4 * 1000 * (ROUNDS * (ROUNDS + 1) / 2) + ROUNDS * 6);
    }
    test_box_close(&box);
}
TRIAL(lines, "4", NULL, 10, ALWAYS, lines("test_lines", TEST_FENCE))
TRIAL(lines_unwaited, "4", NULL, 3, NOT_ALWAYS, lines("test_lines", TEST_NOTHING))
TRIAL(broken, "2", "BEELINE_EMU_TOPOLOGY=broken", 1, NOT_ALWAYS, lines("test_lines", TEST_FENCE))
TRIAL(cells, "4", NULL, 10, ALWAYS, lines("test_cells", TEST_FENCE))
TRIAL(cells_unordered, "4", NULL, 5, NOT_ALWAYS, lines("test_cells", TEST_NOTHING))
TRIAL(cells_broken, "2", "BEELINE_EMU_TOPOLOGY=broken", 1, NOT_ALWAYS, lines("test_cells", TEST_FENCE))

TEST(lines_flood, "2", NULL, 5, ALWAYS) {
    enum { LINES = 1000 };
    struct test_box box;
    uint64_t got[THREADS];
    test_box_open(&box, 2);
    exchange(&box, "test_flood", 0, LINES, THREADS);
    for (int rank = 0; rank < 2; rank++) {
        result_of(&box, rank, got, THREADS);
        for (int i = 0; i < THREADS; i++) CHECK(got[i] == LINES * (LINES - 1) / 2);
    }
    test_box_close(&box);
}

/* The same exchange several times in a process: a run without its order may come out right by chance. */
static void message(const char *kernel, uint32_t what, unsigned threads) {
    enum { TIMES = 20 };
    struct test_box box;
    uint64_t got[THREADS];
    test_box_open(&box, 2);
    for (int time = 0; time < TIMES; time++) {
        for (int rank = 0; rank < 2; rank++) {
            OK(cuCtxSetCurrent(box.context[rank]));
            OK(settled(cuMemsetD8(box.staging[rank], 0, TEST_STAGING)));
        }
        exchange(&box, kernel, what, THREADS, threads);
        for (int rank = 0; rank < 2; rank++) {
            result_of(&box, rank, got, THREADS);
            for (uint64_t i = 0; i < THREADS; i++) CHECK(got[i] == i + 1);
        }
    }
    test_box_close(&box);
}
TRIAL(message_fence, "2", NULL, 20, ALWAYS, message("test_message", TEST_FENCE, 1))
TRIAL(message_release, "2", NULL, 20, ALWAYS, message("test_message", TEST_RELEASE, 1))
TRIAL(message_nothing, "2", NULL, 5, NOT_ALWAYS, message("test_message", TEST_NOTHING, 1))
TRIAL(message_no_acquire, "2", NULL, 5, NOT_ALWAYS, message("test_message", TEST_NO_ACQUIRE, 1))
TRIAL(block_fence, "2", NULL, 20, ALWAYS, message("test_block_message", TEST_FENCE, THREADS))
TRIAL(block_nothing, "2", NULL, 5, NOT_ALWAYS, message("test_block_message", TEST_NOTHING, THREADS))
TRIAL(block_no_barrier, "2", NULL, 5, NOT_ALWAYS, message("test_block_message", TEST_NO_BARRIER, THREADS))

/* Says how long it takes: 16 ranks must go through a small exchange in a time that lets hundreds of cases run. */
TEST(throughput, "16", NULL, 1, ALWAYS) {
    struct test_box box;
    test_box_open(&box, 16);
    double start = test_seconds();
    exchange(&box, "test_lines", TEST_FENCE, 4, THREADS);
    double taken = test_seconds() - start;
    fprintf(stderr, "16 ranks of %d threads, 4 rounds of lines: %.1f ms\n", THREADS, taken * 1e3);
    test_box_close(&box);
}
