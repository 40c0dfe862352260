/* multimem.c - what kernels do with multicast mappings, and what they must not. */
#include <stdlib.h>
#include <string.h>

#include "team.h"

enum { THREADS = 32, TIMES = 12 };

/* One round of a kernel on this rank. */
static void launch(struct test_member *m, const char *kernel, uint32_t what, int round) {
    struct bl_kernel_args args = {
        .sendbuff = (void *)(uintptr_t)m->all, .redop = what, .count = (uint64_t)round, .nranks = (uint32_t)m->n};
    OK(test_member_launch(m, kernel, THREADS, &args));
}

/* What thread i of the kernel is to find; all ranks find the same. */
typedef uint64_t expected(uint64_t n, uint64_t round, uint64_t i);

static uint64_t of_exchange(uint64_t n, uint64_t round, uint64_t i) {
    return n * round * 1000 + n * (n - 1) / 2 + n * ((i + 1) % THREADS);
}

static uint64_t of_packets(uint64_t n, uint64_t round, uint64_t i) {
    uint64_t first = round * TEST_PACKETS;
    return 100 * n * (TEST_PACKETS * first + TEST_PACKETS * (TEST_PACKETS - 1) / 2) + TEST_PACKETS * (n * (n - 1) / 2) +
           0 * i;
}

static void check(struct test_member *m, expected *of, int round) {
    uint64_t got[THREADS];
    OK(cuCtxSetCurrent(m->context));
    OK(cuStreamSynchronize(m->stream));
    OK(cuMemcpyDtoH(got, m->result, sizeof got));
    for (uint64_t i = 0; i < THREADS; i++) CHECK(got[i] == of((uint64_t)m->n, (uint64_t)round, i));
}

static void in_process(const char *kernel, uint32_t what, expected *of) {
    struct test_team team;
    int n = 0;
    OK(cuInit(0));
    OK(cuDeviceGetCount(&n));
    test_team_open(&team, n);
    for (int round = 1; round <= TIMES; round++) {
        for (int r = 0; r < n; r++) launch(&team.member[r], kernel, what, round);
        for (int r = 0; r < n; r++) check(&team.member[r], of, round);
    }
    test_team_close(&team);
}

TRIAL(multimem_gather_2, "2", NVLS, 5, ALWAYS, in_process("test_multimem_gather", TEST_RELEASE, of_exchange))
TRIAL(multimem_gather_5, "5", NVLS, 5, ALWAYS, in_process("test_multimem_gather", TEST_RELEASE, of_exchange))
TRIAL(multimem_gather_16, "16", NVLS, 1, ALWAYS, in_process("test_multimem_gather", TEST_RELEASE, of_exchange))
TRIAL(multimem_reduce_2, "2", NVLS, 5, ALWAYS, in_process("test_multimem_reduce", TEST_RELEASE, of_exchange))
TRIAL(multimem_reduce_5, "5", NVLS, 5, ALWAYS, in_process("test_multimem_reduce", TEST_RELEASE, of_exchange))
TRIAL(multimem_reduce_16, "16", NVLS, 1, ALWAYS, in_process("test_multimem_reduce", TEST_RELEASE, of_exchange))
TRIAL(multimem_packets_2, "2", NVLS, 5, ALWAYS, in_process("test_multimem_packets", TEST_RELEASE, of_packets))
TRIAL(multimem_packets_5, "5", NVLS, 5, ALWAYS, in_process("test_multimem_packets", TEST_RELEASE, of_packets))
TRIAL(multimem_packets_16, "16", NVLS, 1, ALWAYS, in_process("test_multimem_packets", TEST_RELEASE, of_packets))
TRIAL(gather_no_release, "3", NVLS, 4, NOT_ALWAYS, in_process("test_multimem_gather", TEST_NOTHING, of_exchange))
TRIAL(gather_no_acquire, "3", NVLS, 4, NOT_ALWAYS, in_process("test_multimem_gather", TEST_NO_ACQUIRE, of_exchange))
TRIAL(gather_no_barrier, "3", NVLS, 4, NOT_ALWAYS, in_process("test_multimem_gather", TEST_NO_BARRIER, of_exchange))
TRIAL(reduce_no_release, "3", NVLS, 4, NOT_ALWAYS, in_process("test_multimem_reduce", TEST_NOTHING, of_exchange))
TRIAL(reduce_no_acquire, "3", NVLS, 4, NOT_ALWAYS, in_process("test_multimem_reduce", TEST_NO_ACQUIRE, of_exchange))
TRIAL(reduce_no_barrier, "3", NVLS, 4, NOT_ALWAYS, in_process("test_multimem_reduce", TEST_NO_BARRIER, of_exchange))

/* --- a process each --- */
static struct trial {
    const char *kernel;
    uint32_t what;
    expected *of;
} trial;

static void rounds(struct test_star *star) {
    struct test_member m;
    test_star_join(star, &m);
    for (int round = 1; round <= TIMES; round++) {
        launch(&m, trial.kernel, trial.what, round);
        check(&m, trial.of, round);
        test_star_meet(star); /* nobody begins the next round before all have read this one */
    }
    test_star_leave(star, &m);
}

/* As many as there are GPUs; the driver must not be asked before they are forked. */
static void in_processes(const char *kernel, uint32_t what, expected *of) {
    trial = (struct trial){kernel, what, of};
    test_star_run(atoi(getenv("BEELINE_EMU_GPUS")), rounds, 0);
}

TRIAL(gather_processes_2, "2", NVLS, 3, ALWAYS, in_processes("test_multimem_gather", TEST_RELEASE, of_exchange))
TRIAL(gather_processes_5, "5", NVLS, 2, ALWAYS, in_processes("test_multimem_gather", TEST_RELEASE, of_exchange))
TRIAL(gather_processes_16, "16", NVLS, 1, ALWAYS, in_processes("test_multimem_gather", TEST_RELEASE, of_exchange))
TRIAL(reduce_processes_2, "2", NVLS, 3, ALWAYS, in_processes("test_multimem_reduce", TEST_RELEASE, of_exchange))
TRIAL(reduce_processes_5, "5", NVLS, 2, ALWAYS, in_processes("test_multimem_reduce", TEST_RELEASE, of_exchange))
TRIAL(reduce_processes_16, "16", NVLS, 1, ALWAYS, in_processes("test_multimem_reduce", TEST_RELEASE, of_exchange))
TRIAL(packets_processes_2, "2", NVLS, 3, ALWAYS, in_processes("test_multimem_packets", TEST_RELEASE, of_packets))
TRIAL(packets_processes_5, "5", NVLS, 2, ALWAYS, in_processes("test_multimem_packets", TEST_RELEASE, of_packets))
TRIAL(packets_processes_16, "16", NVLS, 1, ALWAYS, in_processes("test_multimem_packets", TEST_RELEASE, of_packets))
TRIAL(processes_no_release, "4", NVLS, 60, NOT_ALWAYS, in_processes("test_multimem_gather", TEST_NOTHING, of_exchange))
TRIAL(processes_no_barrier, "4", NVLS, 60, NOT_ALWAYS,
      in_processes("test_multimem_reduce", TEST_NO_BARRIER, of_exchange))

/* --- the arithmetic, of four ranks --- */
enum { RANKS = 4 };

/* One element of each rank, as bits, and what comes out; the block holds it many times over. */
struct row {
    int size; /* bytes of an element */
    uint64_t in[RANKS], out;
};

/* In the order of TEST_REDUCTIONS.  Sums of fp16 and bf16 would be smaller if they were rounded on the way. */
static const struct row rows[TEST_REDUCTION_COUNT] = {
    {4, {0x7fffffff, 1, 5, 0xffffffff}, 0x80000004},
    {4, {0x7fffffff, 1, 0xfffffffe, 0xffffffff}, 0xfffffffe},
    {4, {3, 1, 0xfffffffe, 0xffffffff}, 3},
    {4, {0xffffffff, 2, 3, 4}, 8},
    {4, {0xffffffff, 2, 3, 4}, 2},
    {4, {0xffffffff, 2, 3, 4}, 0xffffffff},
    {8, {0x7fffffffffffffff, 1, 5, ~0ull}, 0x8000000000000004},
    {8, {0x7fffffffffffffff, 1, ~1ull, ~0ull}, ~1ull},
    {8, {3, 1, ~1ull, ~0ull}, 3},
    {8, {~0ull, 2, 3, 4}, 8},
    {8, {~0ull, 2, 3, 4}, 2},
    {8, {~0ull, 2, 3, 4}, ~0ull},
    {2, {0x6800, 0x3c00, 0x3c00, 0x3c00}, 0x6802}, /* 2048 + 1 + 1 + 1: 2052 is nearest to 2051 and even */
    {2, {0x7e00, 0x3c00, 0x4000, 0x7e00}, 0x3c00}, /* the number, not the NaN */
    {2, {0x7e00, 0x3c00, 0x4000, 0x7e00}, 0x4000},
    {2, {0x4380, 0x3f80, 0x3f80, 0x3f80}, 0x4382}, /* 256 + 1 + 1 + 1: 260 */
    {2, {0x7fc0, 0x0000, 0x8000, 0x7fc0}, 0x8000}, /* -0 is below +0 */
    {2, {0x7fc0, 0x0000, 0x8000, 0x7fc0}, 0x0000},
    {4, {0x3f800000, 0x40000000, 0x40400000, 0x40800000}, 0x41200000},
    {8, {0x3ff0000000000000, 0x4000000000000000, 0x4008000000000000, 0x4010000000000000}, 0x4024000000000000},
    {1, {0x7e, 0x7e, 0x38, 0x38}, 0x7e}, /* 448 + 448 + 1 + 1: saturates */
    {1, {0x7f, 0x38, 0xb8, 0x7e}, 0xb8},
    {1, {0x7f, 0x38, 0xb8, 0x7e}, 0x7e},
    {1, {0x3c, 0x3c, 0x40, 0x44}, 0x48}, /* 1 + 1 + 2 + 4 */
    {1, {0x7f, 0x3c, 0xbc, 0x7b}, 0xbc},
    {1, {0x7f, 0x3c, 0xbc, 0x7b}, 0x7b},
};

static void fill(struct test_team *team, int block, const struct row *row) {
    for (int r = 0; r < RANKS; r++) {
        unsigned char bytes[16];
        for (int at = 0; at < 16; at += row->size) memcpy(bytes + at, &row->in[r], (size_t)row->size);
        OK(cuCtxSetCurrent(team->member[r].context));
        OK(settled(cuMemcpyHtoD(team->member[r].own + (CUdeviceptr)block * 16, bytes, 16)));
        OK(cuCtxSynchronize());
    }
}

static void reduce_all(struct test_team *team, unsigned char got[TEST_TRIES][TEST_REDUCTION_COUNT][16]) {
    launch(&team->member[1], "test_multimem_types", 0, 0);
    OK(cuStreamSynchronize(team->member[1].stream));
    OK(cuMemcpyDtoH(got, team->member[1].result, TEST_TRIES * TEST_REDUCTION_COUNT * 16));
}

TEST(multimem_types, "4", NVLS " BEELINE_EMU_ARCH=100", 2, ALWAYS) {
    struct test_team team;
    unsigned char got[TEST_TRIES][TEST_REDUCTION_COUNT][16];
    test_team_open(&team, RANKS);
    for (int i = 0; i < TEST_REDUCTION_COUNT; i++) fill(&team, i, &rows[i]);
    reduce_all(&team, got);
    for (int k = 0; k < TEST_TRIES; k++)
        for (int i = 0; i < TEST_REDUCTION_COUNT; i++)
            for (int at = 0; at < 16; at += rows[i].size)
                if (memcmp(got[k][i] + at, &rows[i].out, (size_t)rows[i].size)) {
                    fprintf(stderr, "row %d\n", i);
                    CHECK(!"reduction");
                }
    test_team_close(&team);
}

/* Where the order matters, it is not always the same: fp32, and fp8 by the rounding of its steps to fp16. */
TEST(multimem_order, "4", NVLS " BEELINE_EMU_ARCH=100", 2, ALWAYS) {
    static const struct row ordered[] = {
        {4, {0x4e800000, 0x3f800000, 0xce800000, 0x3f800000}, 0x40000000}, /* 2^30 + 1 - 2^30 + 1 */
        {1, {0x64, 0x34, 0xe4, 0x34}, 0x38},                               /* e5m2: 1024 + 0.25 - 1024 + 0.25 */
    };
    static const int blocks[] = {18, 23};
    struct test_team team;
    unsigned char got[TEST_TRIES][TEST_REDUCTION_COUNT][16];
    test_team_open(&team, RANKS);
    for (int i = 0; i < TEST_REDUCTION_COUNT; i++) fill(&team, i, &rows[i]);
    for (int i = 0; i < 2; i++) fill(&team, blocks[i], &ordered[i]);
    reduce_all(&team, got);
    for (int i = 0; i < 2; i++) {
        int exact = 0;
        for (int k = 0; k < TEST_TRIES; k++)
            exact += !memcmp(got[k][blocks[i]], &ordered[i].out, (size_t)ordered[i].size);
        CHECK(exact > 0 && exact < TEST_TRIES);
    }
    test_team_close(&team);
}

/* --- what must not be --- */
static void expect_fault(struct test_member *m, CUdeviceptr at, uint32_t what, CUresult result) {
    struct bl_kernel_args args = {.sendbuff = (void *)(uintptr_t)at, .redop = what};
    OK(test_member_launch(m, "test_multimem_forbidden", 1, &args));
    EXPECT(cuStreamSynchronize(m->stream), result);
}

/* Each on a GPU of its own, for such an error stays with its context. */
TEST(multimem_forbidden, "13", NVLS, 1, ALWAYS) {
    static const struct {
        uint32_t what;
        bool multicast; /* at the multicast mapping, or this rank's own */
        CUdeviceptr offset;
        CUresult result;
    } cases[] = {
        {TEST_PLAIN_STORE, true, 0, CUDA_ERROR_ILLEGAL_ADDRESS},
        {TEST_PLAIN_LOAD, true, 0, CUDA_ERROR_ILLEGAL_ADDRESS},
        {TEST_PLAIN_PACKET, true, 0, CUDA_ERROR_ILLEGAL_ADDRESS},
        {TEST_PLAIN_ADD, true, 0, CUDA_ERROR_ILLEGAL_ADDRESS},
        {TEST_MULTICAST_STORE, false, 0, CUDA_ERROR_ILLEGAL_ADDRESS},
        {TEST_MULTICAST_ADD, false, 0, CUDA_ERROR_ILLEGAL_ADDRESS},
        {TEST_MULTICAST_REDUCE, false, 0, CUDA_ERROR_ILLEGAL_ADDRESS},
        {TEST_MULTICAST_STORE, true, 8, CUDA_ERROR_MISALIGNED_ADDRESS},
        {TEST_MULTICAST_ADD, true, 4, CUDA_ERROR_MISALIGNED_ADDRESS},
        {TEST_MULTICAST_REDUCE_FP8, true, 0, CUDA_ERROR_ILLEGAL_INSTRUCTION},
        {TEST_MULTICAST_REDUCE, true, 0, CUDA_SUCCESS},
        {TEST_MULTICAST_STORE, true, 0, CUDA_SUCCESS},
        {TEST_MULTICAST_STORE, true, TEST_STAGING, CUDA_ERROR_ILLEGAL_ADDRESS},
    };
    enum { CASES = sizeof cases / sizeof *cases };
    static struct test_team team;
    char byte;
    test_team_open(&team, CASES);
    CUdeviceptr all = team.member[0].all;
    OK(cuCtxSetCurrent(team.member[0].context));
    EXPECT(cuMemcpyDtoH(&byte, all, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemcpyHtoD(all, &byte, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemcpyDtoDAsync(all, team.member[0].own, 8, team.member[0].stream), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemsetD8(all, 0, 8), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemsetD32Async(all, 0, 8, team.member[0].stream), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuStreamWriteValue32(team.member[0].stream, all, 1, 0), CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; i < CASES; i++) {
        struct test_member *m = &team.member[i];
        expect_fault(m, (cases[i].multicast ? m->all : m->own) + cases[i].offset, cases[i].what, cases[i].result);
    }
}

/* A rank that takes its memory back: its peers' accesses fail, whatever they do. */
TEST(multimem_unbound, "4", NVLS, 1, ALWAYS) {
    static struct test_team team;
    struct bl_kernel_args args = {.redop = TEST_MULTICAST_STORE};
    test_team_open(&team, RANKS);
    args.sendbuff = (void *)(uintptr_t)team.member[0].all;
    OK(test_member_launch(&team.member[0], "test_multimem_forbidden", 1, &args));
    OK(cuStreamSynchronize(team.member[0].stream));
    OK(cuMulticastUnbind(team.member[2].multicast, 2, 0, TEST_STAGING));
    for (int i = 0; i < 3; i++)
        expect_fault(&team.member[i], team.member[i].all, TEST_MULTICAST_STORE + (uint32_t)i,
                     CUDA_ERROR_ILLEGAL_ADDRESS);
}
