/* selftest.c - collectives of values that depend on rank and place, so that what comes from the wrong place, from the
 * wrong rank, twice or not at all shows. */
#include "selftest.h"

#include <stdlib.h>
#include <string.h>

#include "resources.h"
#include "base/clock.h"
#include "base/why.h"
#include "launch/pairs.h"

struct run {
    enum bl_kernel kernel;
    enum bl_datatype datatype;
    uint32_t most_bytes; /* of a buffer with up to 4 ranks; with more as much less, for all write to all */
};

enum { LONG = 128 << 10, SHORT = 16 << 10, AS_RINGS_ASK = 0, ROUNDS = 4, THREAD_BYTES = 16 /* of a round, about */ };

/* Halves alternate from launch to launch, so kernels that have halves run twice.  The packets are all written, if there are
 * no more than 4 ranks and threads enough; of the lines enough that every peer, a good part of the multiprocessors and the
 * crews of all-reduce are met: bytes of one region take one way.  So do the lines that are spread over warps, and short
 * messages, which are not run. */
static const struct run staging_runs[] = {
    {BL_KERNEL_ALLREDUCE_ONESHOT_LL, BL_UINT64, LONG},
    {BL_KERNEL_ALLREDUCE_ONESHOT_LL, BL_UINT64, LONG},
    {BL_KERNEL_ALLREDUCE_ONESHOT_LL128, BL_UINT64, LONG},
    {BL_KERNEL_ALLREDUCE_ONESHOT_LL128, BL_UINT64, LONG},
    {BL_KERNEL_ALLREDUCE_TWOSHOT_LL128, BL_UINT64, LONG},
    {BL_KERNEL_ALLGATHER_LL128, BL_UINT64, LONG},
    {BL_KERNEL_REDUCESCATTER_LL128, BL_UINT64, LONG},
    {BL_KERNEL_ALLTOALL_LL128, BL_UINT64, LONG},
    {BL_KERNEL_BROADCAST_LL128, BL_UINT64, LONG},
    {BL_KERNEL_REDUCE_LL128, BL_UINT64, LONG},
    {BL_KERNEL_ALLREDUCE_BULK, BL_UINT64, AS_RINGS_ASK},
    {BL_KERNEL_ALLGATHER_BULK, BL_UINT64, AS_RINGS_ASK},
    {BL_KERNEL_REDUCESCATTER_BULK, BL_UINT64, AS_RINGS_ASK},
    {BL_KERNEL_ALLTOALL_BULK, BL_UINT64, AS_RINGS_ASK},
    {BL_KERNEL_SENDRECV_LL128, BL_UINT64, AS_RINGS_ASK},
};

enum { ROOT = 0 }; /* of both */

/* Also the datatypes that the switch adds in ways of its own, with small whole numbers, which are exact in any order. */
static const struct run multicast_runs[] = {
    {BL_KERNEL_ALLREDUCE_ONESHOT_NVLS, BL_UINT64, LONG},
    {BL_KERNEL_ALLREDUCE_ONESHOT_NVLS, BL_UINT64, LONG},
    {BL_KERNEL_ALLREDUCE_TWOSHOT_NVLS, BL_UINT64, LONG},
    {BL_KERNEL_ALLREDUCE_TWOSHOT_NVLS, BL_UINT64, LONG},
    {BL_KERNEL_ALLGATHER_NVLS, BL_UINT64, LONG},
    {BL_KERNEL_REDUCESCATTER_NVLS, BL_UINT64, LONG},
    {BL_KERNEL_ALLREDUCE_TWOSHOT_NVLS, BL_BFLOAT16, SHORT},
    {BL_KERNEL_ALLREDUCE_TWOSHOT_NVLS, BL_FLOAT16, SHORT},
    {BL_KERNEL_ALLREDUCE_TWOSHOT_NVLS, BL_FLOAT32, SHORT},
    {BL_KERNEL_ALLREDUCE_TWOSHOT_NVLS, BL_FLOAT8E4M3, SHORT},
};

static const struct {
    const struct run *run;
    int count;
} suites[] = {
    [BL_SELFTEST_STAGING] = {staging_runs, sizeof(staging_runs) / sizeof(*staging_runs)},
    [BL_SELFTEST_MULTICAST] = {multicast_runs, sizeof(multicast_runs) / sizeof(*multicast_runs)},
};

/* A kernel that no call will go to may have reasons not to work here: it is not run. */
static bool in_use(const struct bl_table *table, const struct run *run) {
    for (int collective = 0; collective < BL_COLLECTIVES; collective++)
        for (uint32_t i = 0; i < table->ranges[collective] && i < BL_MAX_RANGES; i++) {
            const struct bl_range *range = &table->range[collective][i];
            if (range->algorithm != BL_ROUTE_NCCL && bl_range_kernel(range) == run->kernel &&
                bl_algorithm_covers(&bl_algorithms[range->algorithm], table->arch, run->datatype, BL_SUM))
                return true;
        }
    return false;
}

static bool has(const struct run *run, enum bl_collective_trait trait) {
    return bl_collective_has(bl_kernel_collective(run->kernel), trait);
}

/* Of a reduce others than the root have no result. */
static bool has_result(const struct bl_selftest *test, const struct run *run) {
    return !has(run, BL_ROOTED) || !has(run, BL_REDUCES) || test->args.rank == ROOT;
}

/* Messages go round the rings and on, so that they wait for credit, in each channel.  Rings are taken for shorter for that: whole
 * ones hold megabytes for each pair.  No launch takes them for what they are before all ranks are through: what lies there then is of
 * positions that are gone, and credit for what has been read.  A lap and a half of them ends at position 176, of a lap of 128; a whole ring whose three
 * quarters begin there and end in its first lap needs no credit for these, which in most of its channels nobody has given yet.  Other rings are tried whole. */
static uint64_t short_ring(uint64_t quads) {
    enum { SHORT_RING = 4 * BL_PAIR_DEPTH, BEHIND = SHORT_RING / 3 * 4 + SHORT_RING / 2 };
    return BEHIND + quads / 4 * 3 <= quads ? SHORT_RING : quads;
}

/* Those of pieces have words of credit for each place.  What short ones have for words is in the place of data of whole ones, so these find theirs as
 * if nothing had been sent, and so they are told: forget_pieces. */
enum { SHORT_BULK_RING = 4 /* places */ };

static int forget_pieces(const struct bl_selftest *test) {
    if (test->kind != BL_SELFTEST_STAGING || !test->args.layout.bulk_bytes) return 0;
    const CUdeviceptr words = (CUdeviceptr)(uintptr_t)&test->args.epochs[BL_WORD_BULK];
    const size_t bytes = (size_t)BL_BULK_STREAMS * BL_MAX_BLOCKS * sizeof(uint64_t);
    BL_DRIVER_CHECK(bl_driver()->cuMemsetD8Async(words, 0, bytes, test->stream), "zeroing words (cuMemsetD8Async)");
    return 0;
}

/* Of each ring, in bytes. */
static uint64_t lap_and_a_half(const struct bl_selftest *test, enum bl_kernel kernel) {
    const struct bl_staging_layout *const layout = &test->args.layout;
    if (bl_kernel_bulk(kernel)) return layout->bulk_bytes + layout->bulk_bytes / 2;
    return (layout->pair_quads + layout->pair_quads / 2) * BL_QUAD * BL_FLAGGED_DATA;
}

/* Of a block, or, of an all-reduce, which goes to each peer in parts, of the message. */
static uint64_t bytes_for_rings(const struct bl_selftest *test, const struct run *run) {
    const uint64_t each = lap_and_a_half(test, run->kernel);
    return has(run, BL_GATHERS | BL_SCATTERS | BL_PAIRED) ? each : test->args.nranks * each;
}

/* What is enough for few threads: more rounds of the same ones try no other way, and take long where these are slow. */
static uint64_t most_of(const struct bl_selftest *test, const struct run *run) {
    const uint64_t enough = (uint64_t)ROUNDS * test->blocks * test->threads * THREAD_BYTES;
    return run->most_bytes < enough ? run->most_bytes : enough;
}

/* What one run is in this test: elements of a block, and blocks of the buffers: one, or one of each rank. */
struct extent {
    uint64_t size, count, blocks_in, blocks_out; /* count 0: it is not run */
};

static struct extent extent_of(const struct bl_selftest *test, const struct run *run) {
    const int nranks = (int)test->args.nranks;
    struct extent e = {.size = bl_datatype_size(run->datatype),
                       .blocks_in = has(run, BL_SCATTERS | BL_PAIRED) ? (uint64_t)nranks : 1,
                       .blocks_out = has(run, BL_GATHERS | BL_PAIRED) ? (uint64_t)nranks : 1};
    if (!in_use(test->table, run)) return e;
    const uint64_t blocks = e.blocks_in > e.blocks_out ? e.blocks_in : e.blocks_out;
    const uint64_t most = most_of(test, run) * 4 / (nranks > 4 ? nranks : 4) / blocks;
    const uint64_t room = bl_kernel_capacity(run->kernel, nranks, &test->args.layout);
    if (!room) return e;
    const uint64_t bytes = run->most_bytes == AS_RINGS_ASK ? bytes_for_rings(test, run) : room < most ? room : most;
    const uint64_t whole = bytes / e.size,
                   odd = 7; /* not a whole number of lines: the end of the last one is tried, too */
    e.count = whole > odd ? whole - odd : 1;
    return e;
}

static uint64_t result_bytes(struct extent e) {
    return e.count * e.size * e.blocks_out;
}

/* splitmix64 of rank and place. */
static uint64_t word_of(int rank, uint64_t i) {
    uint64_t z = ((uint64_t)(rank + 1) << 40) + (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* What a rank has at place i, or the sum of such values: words as they are, else small whole numbers. */
static uint64_t value_of(enum bl_datatype datatype, int rank, uint64_t i) {
    const uint64_t word = word_of(rank, i);
    return datatype == BL_UINT64 ? word : word % 3 - 1;
}

/* The bits of a value, which the datatype holds exactly. */
static uint64_t encode(enum bl_datatype datatype, uint64_t value) {
    const float number = (float)(int64_t)value;
    uint32_t bits;
    memcpy(&bits, &number, sizeof(bits));
    switch (datatype) {
    case BL_FLOAT32: return bits;
    case BL_BFLOAT16: return bits >> 16;
    case BL_FLOAT16: return bits ? bits >> 31 << 15 | ((bits >> 13 & 0x3ffff) - (112 << 10)) : 0; /* bias 127 to 15 */
    case BL_FLOAT8E4M3: return bits ? bits >> 31 << 7 | ((bits >> 20 & 0x7ff) - (120 << 3)) : 0;  /* bias 127 to 7 */
    default: return value;
    }
}

static void put(unsigned char *at, uint64_t bits, uint64_t size) {
    memcpy(at, &bits, size); /* little-endian, as the GPU is */
}

static uint64_t buffer_bytes(const struct bl_selftest *test) {
    return (test->inputs + test->results + 127) / 128 * 128;
}

static int allocate(struct bl_selftest *test, const struct bl_comm *comm) {
    const uint64_t words = test->kind == BL_SELFTEST_MULTICAST ? BL_LOCAL_WORDS * sizeof(uint64_t) : 0;
    test->modules = comm->resources->modules;
    return bl_modules_scratch(test->modules, &test->memory, comm->device, buffer_bytes(test) + words);
}

/* Words and control of its own: what goes wrong with multicast leaves those of the communicator as they were. */
static int open_own(struct bl_selftest *test) {
    const struct bl_driver *cu = bl_driver();
    const CUdeviceptr words = test->memory.address[0] + buffer_bytes(test);
    CUdeviceptr control;
    BL_DRIVER_CHECK(cu->cuStreamCreate(&test->stream, CU_STREAM_NON_BLOCKING), "making a stream (cuStreamCreate)");
    test->own_stream = true;
    BL_DRIVER_CHECK(cu->cuMemsetD8Async(words, 0, BL_LOCAL_WORDS * sizeof(uint64_t), test->stream),
                    "zeroing words (cuMemsetD8Async)");
    BL_DRIVER_CHECK(cu->cuMemHostAlloc((void **)&test->control, sizeof(*test->control),
                                       CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
                    "allocating control words (cuMemHostAlloc)");
    memset(test->control, 0, sizeof(*test->control));
    BL_DRIVER_CHECK(cu->cuMemHostGetDevicePointer(&control, test->control, 0),
                    "the device address of the control words (cuMemHostGetDevicePointer)");
    test->args.epochs = (uint64_t *)(uintptr_t)words;
    test->args.control = (struct bl_control *)(uintptr_t)control;
    return 0;
}

/* Places the inputs and sums the results up. */
static void lay_out(struct bl_selftest *test) {
    uint64_t most[BL_DATATYPES] = {0};
    for (int i = 0; i < suites[test->kind].count; i++) {
        const struct run *run = &suites[test->kind].run[i];
        const struct extent e = extent_of(test, run);
        if (e.count * e.blocks_in > most[run->datatype]) most[run->datatype] = e.count * e.blocks_in;
        test->results += result_bytes(e);
    }
    for (int datatype = 0; datatype < BL_DATATYPES; datatype++) {
        const uint64_t bytes = most[datatype] * bl_datatype_size(datatype);
        test->input[datatype] = test->inputs;
        test->inputs += (bytes + 15) / 16 * 16;
    }
}

static void fill_inputs(struct bl_selftest *test, int rank) {
    for (int datatype = 0; datatype < BL_DATATYPES; datatype++) {
        const uint64_t size = bl_datatype_size(datatype);
        const uint64_t end = datatype + 1 < BL_DATATYPES ? test->input[datatype + 1] : test->inputs;
        for (uint64_t at = test->input[datatype], i = 0; at < end; at += size, i++)
            put(test->host + at, encode(datatype, value_of(datatype, rank, i)), size);
    }
}

int bl_selftest_prepare(struct bl_selftest *test, enum bl_selftest_kind kind, const struct bl_comm *comm,
                        const struct bl_kernel_args *args, const struct bl_table *table, CUstream stream,
                        unsigned blocks, unsigned threads) {
    const struct bl_driver *cu = bl_driver();
    *test = (struct bl_selftest){.kind = kind,
                                 .table = table,
                                 .args = *args,
                                 .control = comm->control,
                                 .stream = stream,
                                 .blocks = blocks,
                                 .threads = threads,
                                 .block_memory = bl_driver_block_memory(comm->device)};
    test->args.layout.pair_quads = short_ring(args->layout.pair_quads);
    if (args->layout.bulk_bytes) test->args.layout.bulk_bytes = SHORT_BULK_RING * bl_bulk_piece((int)args->nranks);
    lay_out(test);
    if (!test->results) return 0; /* no kernel of these is in use */
    if (kind == BL_SELFTEST_MULTICAST) test->control = NULL;
    if (allocate(test, comm)) return -1;
    if (kind == BL_SELFTEST_MULTICAST && open_own(test)) return -1;
    const uint64_t bytes = test->inputs > test->results ? test->inputs : test->results;
    test->host = malloc(bytes);
    if (!test->host) return bl_fail("out of host memory for %llu bytes", (unsigned long long)bytes);
    fill_inputs(test, comm->rank);
    BL_DRIVER_CHECK(cu->cuMemcpyHtoDAsync(test->memory.address[0], test->host, test->inputs, test->stream),
                    "copying to the device (cuMemcpyHtoDAsync)");
    BL_DRIVER_CHECK(cu->cuMemsetD8Async(test->memory.address[0] + test->inputs, 0xff, test->results, test->stream),
                    "writing to the device (cuMemsetD8Async)");
    BL_DRIVER_CHECK(cu->cuStreamSynchronize(test->stream), "waiting for the device (cuStreamSynchronize)");
    return 0;
}

/* Early, as graphs have them; and with driver 580 all graphs are faster where a process's first launch on a GPU is early
 * (docs/benchmarks/h100-x2-2026-11-25.md). */
static int launch_kernel(const struct bl_selftest *test, const struct bl_comm *comm, enum bl_kernel kernel,
                         enum bl_datatype datatype, unsigned blocks, unsigned threads, void *args) {
    BL_DRIVER_CHECK(bl_driver_launch(comm->function[kernel][datatype], blocks, threads,
                                     (unsigned)bl_kernel_memory(kernel, threads), comm->early_launch, test->stream,
                                     args),
                    "launching a kernel (%s)", comm->early_launch ? "cuLaunchKernelEx" : "cuLaunchKernel");
    return 0;
}

/* A message to each rank, and one from each, in the order of bl_pairs_before; returns how many they are. */
static int messages_of_all(const struct bl_kernel_args *args, struct bl_call *calls, struct bl_comm *comm,
                           enum bl_datatype datatype) {
    const int rank = comm->rank, nranks = comm->nranks;
    int count = 0;
    for (int distance = 0; distance < nranks; distance++) {
        const int to = (rank + distance) % nranks, from = (rank + nranks - distance) % nranks;
        struct bl_call send = {.comm = comm, .request = {.count = args->count, .datatype = datatype}}, receive = send;
        send.request.root = to;
        send.sendbuff = (const char *)args->sendbuff + (uint64_t)to * args->stride;
        receive.request.root = from;
        receive.receives = true;
        receive.recvbuff = (char *)args->recvbuff + (uint64_t)from * args->stride;
        calls[count++] = rank <= from ? send : receive;
        calls[count++] = rank <= from ? receive : send;
    }
    return count;
}

static int launch_pairs(const struct bl_selftest *test, struct bl_comm *comm, const struct bl_kernel_args *common,
                        enum bl_datatype datatype, unsigned blocks, unsigned threads) {
    struct bl_call call[2 * BL_MAX_RANKS];
    const struct bl_call *calls[2 * BL_MAX_RANKS];
    const int count = messages_of_all(common, call, comm, datatype);
    struct bl_pairs_args args;
    args.common = *common;
    for (int i = 0; i < count; i++) calls[i] = &call[i];
    for (int done = 0; done < count;) {
        struct bl_route grid = {.blocks = blocks, .threads = threads};
        done += bl_pairs_fill(&args, &grid, calls + done, count - done);
        grid.kernel = bl_pairs_kernel(&args, false);
        if (launch_kernel(test, comm, grid.kernel, datatype, grid.blocks, grid.threads, &args)) return -1;
    }
    return 0;
}

int bl_selftest_launch(const struct bl_selftest *test, struct bl_comm *comm, uint64_t timeout_ns) {
    struct bl_kernel_args args = test->args;
    uint64_t result = test->inputs;
    bl_set_redop(&args, BL_SUM);
    args.root = ROOT;
    args.timeout_ns = timeout_ns;
    for (int i = 0; i < suites[test->kind].count; i++) {
        const struct run *run = &suites[test->kind].run[i];
        const struct extent e = extent_of(test, run);
        if (!e.count) continue;
        args.sendbuff = (const void *)(uintptr_t)(test->memory.address[0] + test->input[run->datatype]);
        args.recvbuff = (void *)(uintptr_t)(test->memory.address[0] + result);
        args.count = e.count;
        args.size = (uint32_t)e.size;
        args.stride = e.count * e.size;
        args.call = bl_kernel_call(run->kernel, run->datatype, BL_SUM);
        result += result_bytes(e);
        const unsigned threads = bl_kernel_threads_in(run->kernel, test->threads, test->block_memory);
        const unsigned blocks = bl_kernel_blocks(run->kernel, comm->nranks, args.stride, threads, test->blocks);
        if (bl_kernel_pairs(run->kernel)
                ? launch_pairs(test, comm, &args, run->datatype, blocks, threads)
                : launch_kernel(test, comm, run->kernel, run->datatype, blocks, threads, &args))
            return -1;
    }
    return forget_pieces(test);
}

static bool peer_is_late(const struct bl_control *control) {
    return __atomic_load_n(&control->error, __ATOMIC_ACQUIRE) == BL_KERNEL_TIMEOUT;
}

/* CUDA_ERROR_NOT_READY: too late, or, with `control`, a kernel says that a peer is. */
static CUresult wait_until(CUstream stream, uint64_t deadline, const struct bl_control *control) {
    for (long nap = 20000;; nap += nap < 8000000 ? nap / 8 : 0) {
        CUresult status = bl_driver()->cuStreamQuery(stream);
        if (status != CUDA_ERROR_NOT_READY || bl_clock_ns() > deadline) return status;
        if (control && peer_is_late(control)) return status;
        bl_nap(nap);
    }
}

static int wait_for_kernels(const struct bl_selftest *test, uint64_t timeout_ns, int *culprit, bool *stuck) {
    struct bl_control *control = test->control;
    CUstream stream = test->stream;
    /* The kernels say when they have waited for too long; this limit is for a device that does not even run them. */
    CUresult status = wait_until(stream, bl_clock_ns() + 2 * timeout_ns, control);
    const bool late = peer_is_late(control);
    if (status == CUDA_ERROR_NOT_READY) {
        __atomic_store_n(&control->abort, 1, __ATOMIC_RELEASE); /* by themselves they wait on */
        *stuck = wait_until(stream, bl_clock_ns() + timeout_ns, NULL) == CUDA_ERROR_NOT_READY;
    } else {
        BL_DRIVER_CHECK(status, "running the kernels");
    }
    if (late) {
        *culprit = (int)control->waiting_peer;
        return bl_fail("rank %d waited %.3g s for the data of rank %d, which did not come", (int)test->args.rank,
                       (double)timeout_ns / 1e9, *culprit);
    }
    if (status == CUDA_SUCCESS) return 0;
    return bl_fail("the kernels did not end in %.3g s", 2 * (double)timeout_ns / 1e9);
}

/* Element i of the result. */
static uint64_t expected(const struct bl_selftest *test, const struct run *run, uint64_t count, uint64_t i) {
    uint64_t sum = 0;
    if (!has(run, BL_REDUCES)) {
        const bool gathers = has(run, BL_GATHERS); /* else all of it is the root's */
        if (has(run, BL_PAIRED) || (gathers && has(run, BL_SCATTERS)))
            return word_of((int)(i / count), test->args.rank * count + i % count);
        return encode(run->datatype,
                      value_of(run->datatype, gathers ? (int)(i / count) : ROOT, gathers ? i % count : i));
    }
    if (has(run, BL_SCATTERS)) i += test->args.rank * count;
    for (int rank = 0; rank < (int)test->args.nranks; rank++) sum += value_of(run->datatype, rank, i);
    return encode(run->datatype, sum);
}

static int compare(const struct bl_selftest *test, const struct run *run, struct extent e,
                   const unsigned char *result) {
    for (uint64_t i = 0; i < e.count * e.blocks_out; i++) {
        unsigned char right[sizeof(uint64_t)];
        put(right, expected(test, run, e.count, i), e.size);
        if (memcmp(result + i * e.size, right, e.size))
            return bl_fail("%s delivered wrong data (%s %llu of %llu)", bl_kernel_name(run->kernel),
                           bl_datatype_name(run->datatype), (unsigned long long)i,
                           (unsigned long long)(e.count * e.blocks_out));
    }
    return 0;
}

int bl_selftest_check(const struct bl_selftest *test, uint64_t timeout_ns, int *culprit, bool *stuck) {
    const struct bl_driver *cu = bl_driver();
    if (!test->results) return 0;
    if (wait_for_kernels(test, timeout_ns, culprit, stuck)) return -1;
    BL_DRIVER_CHECK(
        cu->cuMemcpyDtoHAsync(test->host, test->memory.address[0] + test->inputs, test->results, test->stream),
        "copying from the device (cuMemcpyDtoHAsync)");
    BL_DRIVER_CHECK(cu->cuStreamSynchronize(test->stream), "waiting for the device (cuStreamSynchronize)");
    const unsigned char *result = test->host;
    for (int i = 0; i < suites[test->kind].count; i++) {
        const struct run *run = &suites[test->kind].run[i];
        const struct extent e = extent_of(test, run);
        if (has_result(test, run) && compare(test, run, e, result)) return -1;
        result += result_bytes(e);
    }
    return 0;
}

void bl_selftest_release(struct bl_selftest *test) {
    const struct bl_driver *cu = bl_driver();
    if (test->modules) bl_modules_keep(test->modules, &test->memory);
    if (test->kind == BL_SELFTEST_MULTICAST && test->control) cu->cuMemFreeHost(test->control);
    if (test->own_stream) cu->cuStreamDestroy(test->stream);
    free(test->host);
    *test = (struct bl_selftest){0};
}
