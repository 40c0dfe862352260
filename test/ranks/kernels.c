/* kernels.c - the kernels alone, launched as kernels.h says, without NCCL and the library: what a job cannot reach.
 *
 *   kernels -n N ... NAME      one process, one thread, all ranks
 *
 * `shapes`: every algorithm, grid and datatype after any other on the same staging.  `alignments`: every algorithm with
 * every alignment of either buffer, with counts next to the edges of words and lines.  `epochs`: epochs that start next
 * to the wraps of 32 and 63 bits.  `late`: ranks whose launches come late; `multicast`: so, of the kernels on a multicast object
 * alone, one upon the other.  `timeout`, `abort`: the ways out of a wait.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "box.h"
#include "kernels.h"
#include "../harness/multicast.h" /* not plugin/multicast.h */
#include "options.h"
#include "reference.h"

extern const void *const bl_fatbins[];
extern const int bl_fatbin_count;

enum { MOST_FATBINS = 20, STAGING = 6 << 20 };

struct rig {
    struct part *part;
    struct bl_staging_layout layout;
    CUmodule module[BOX_RANKS][MOST_FATBINS];
    CUmemGenericAllocationHandle handle[BOX_RANKS];
    CUdeviceptr staging[BOX_RANKS], epochs[BOX_RANKS], multicast_words[BOX_RANKS];
    bool has_multicast; /* else its kernels are not launched */
    bool no_others;     /* those alone are */
    int last_kernel;    /* that was drawn */
    struct multicast multicast;
    size_t bytes;
    struct bl_control *control[BOX_RANKS];
    uint64_t timeout_ns;
    uint64_t state;   /* of the draw */
    int most_threads; /* a block */
    int arch;         /* 90 for sm_90 */
    uint64_t epoch;   /* of the last launch */
};

/* --- the rig: staging that all map, epochs, control words, modules --- */

static void set_epochs(struct rig *rig, uint64_t epoch) {
    static uint64_t words[BL_LOCAL_WORDS]; /* the last two stay zero */
    for (int w = 0; w < BL_MAX_BLOCKS; w++) words[w] = epoch;
    for (int i = 0; i < rig->part->count; i++) {
        part_enter(rig->part, i);
        CU_OK(cuMemcpyHtoD(rig->epochs[i], words, sizeof words));
        CU_OK(cuMemcpyHtoD(rig->multicast_words[i], words, BL_MAX_BLOCKS * sizeof *words));
    }
    rig->epoch = epoch;
}

static void rig_open(struct rig *rig, struct part *part, const struct options *o, uint64_t staging_bytes) {
    *rig = (struct rig){
        .part = part, .timeout_ns = 1000000000u * (o->wait ? (uint64_t)o->wait : 30), .state = part->box->seed};
    int n = part->count;
    CU_OK(cuDeviceGetAttribute(&rig->most_threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, part->rank[0].device));
    int minor;
    CU_OK(cuDeviceGetAttribute(&rig->arch, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, part->rank[0].device));
    CU_OK(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, part->rank[0].device));
    rig->arch = 10 * rig->arch + minor;
    CHECK(bl_staging_plan(&rig->layout, n, staging_bytes, false, true) == 0);
    for (int i = 0; i < n; i++) {
        struct rank *rank = part_enter(part, i);
        CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = rank->device}};
        CUmemAccessDesc access[BOX_RANKS];
        for (int r = 0; r < n; r++)
            access[r] = (CUmemAccessDesc){{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = part->rank[r].device},
                                          CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        size_t granularity;
        CU_OK(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
        rig->bytes = (rig->layout.bytes + granularity - 1) / granularity * granularity;
        CU_OK(cuMemCreate(&rig->handle[i], rig->bytes, &prop, 0));
        CU_OK(cuMemAddressReserve(&rig->staging[i], rig->bytes, 0, 0, 0));
        CU_OK(cuMemMap(rig->staging[i], rig->bytes, 0, rig->handle[i], 0));
        CU_OK(cuMemSetAccess(rig->staging[i], rig->bytes, access, (size_t)n));
        CU_OK(cuMemsetD8Async(rig->staging[i], 0, rig->bytes, rank->stream[0]));
        CU_OK(cuMemAlloc(&rig->epochs[i], BL_LOCAL_WORDS * sizeof(uint64_t)));
        CU_OK(cuMemAlloc(&rig->multicast_words[i], BL_MULTICAST_WORDS * sizeof(uint64_t)));
        CU_OK(cuMemsetD8Async(rig->multicast_words[i], 0, BL_MULTICAST_WORDS * sizeof(uint64_t), rank->stream[0]));
        CU_OK(cuStreamSynchronize(rank->stream[0]));
        CU_OK(cuMemHostAlloc((void **)&rig->control[i], sizeof(struct bl_control), CU_MEMHOSTALLOC_DEVICEMAP));
        memset(rig->control[i], 0, sizeof(struct bl_control));
        CHECK(bl_fatbin_count <= MOST_FATBINS);
        for (int m = 0; m < bl_fatbin_count; m++) CU_OK(cuModuleLoadData(&rig->module[i][m], bl_fatbins[m]));
    }
    rig->has_multicast = multicast_open(part, &rig->multicast, rig->layout.multicast_bytes);
    set_epochs(rig, 0);
    part_synchronize(part);
}

static void rig_close(struct rig *rig) {
    part_synchronize(rig->part);
    if (rig->has_multicast) multicast_close(rig->part, &rig->multicast);
    for (int i = 0; i < rig->part->count; i++) {
        part_enter(rig->part, i);
        for (int m = 0; m < bl_fatbin_count; m++) CU_OK(cuModuleUnload(rig->module[i][m]));
        CU_OK(cuMemUnmap(rig->staging[i], rig->bytes));
        CU_OK(cuMemAddressFree(rig->staging[i], rig->bytes));
        CU_OK(cuMemRelease(rig->handle[i]));
        CU_OK(cuMemFree(rig->epochs[i]));
        CU_OK(cuMemFree(rig->multicast_words[i]));
        CU_OK(cuMemFreeHost(rig->control[i]));
    }
}

static CUfunction find_function(struct rig *rig, int i, int kernel, int datatype) {
    char symbol[128];
    CUfunction function;
    CHECK(bl_kernel_symbol(kernel, datatype, rig->part->count, symbol, sizeof symbol) == 0);
    for (int m = 0; m < bl_fatbin_count; m++)
        if (cu.cuModuleGetFunction(&function, rig->module[i][m], symbol) == CUDA_SUCCESS) return function;
    FAIL("no kernel %s", symbol);
}

struct shape {
    int kernel;
    unsigned threads, most_blocks;
    int messages; /* more than one only for kernels that take several */
};

/* What the tests have to know of each kernel; those not named here are none. */
static const struct {
    bool launched, several;
    enum collective collective;
} kernels[BL_KERNELS] = {
    [BL_KERNEL_ALLREDUCE_ONESHOT_PACKET] = {true, false, ALL_REDUCE},
    [BL_KERNEL_ALLREDUCE_ONESHOT_LINE] = {true, false, ALL_REDUCE},
    [BL_KERNEL_ALLREDUCE_TWOSHOT_LINE] = {true, false, ALL_REDUCE},
    [BL_KERNEL_ALLREDUCE_ONESHOT_LINE_BATCH] = {true, true, ALL_REDUCE},
    [BL_KERNEL_ALLREDUCE_TWOSHOT_LINE_BATCH] = {true, true, ALL_REDUCE},
    [BL_KERNEL_ALLGATHER_LINE] = {true, false, ALL_GATHER},
    [BL_KERNEL_ALLGATHER_LINE_BATCH] = {true, true, ALL_GATHER},
    [BL_KERNEL_REDUCESCATTER_LINE] = {true, false, REDUCE_SCATTER},
    [BL_KERNEL_REDUCESCATTER_LINE_BATCH] = {true, true, REDUCE_SCATTER},
    [BL_KERNEL_ALLTOALL_LINE] = {true, false, ALL_TO_ALL},
    [BL_KERNEL_BROADCAST_LINE] = {true, false, BROADCAST},
    [BL_KERNEL_REDUCE_LINE] = {true, false, REDUCE},
    [BL_KERNEL_ALLREDUCE_ONESHOT_TEAM] = {true, false, ALL_REDUCE},
    [BL_KERNEL_ALLREDUCE_TWOSHOT_TEAM] = {true, false, ALL_REDUCE},
    [BL_KERNEL_ALLGATHER_TEAM] = {true, false, ALL_GATHER},
    [BL_KERNEL_REDUCESCATTER_TEAM] = {true, false, REDUCE_SCATTER},
    [BL_KERNEL_ALLTOALL_TEAM] = {true, false, ALL_TO_ALL},
    [BL_KERNEL_ALLREDUCE_ONESHOT_MULTICAST] = {true, false, ALL_REDUCE},
    [BL_KERNEL_ALLREDUCE_TWOSHOT_MULTIMEM] = {true, false, ALL_REDUCE},
    [BL_KERNEL_ALLGATHER_MULTICAST] = {true, false, ALL_GATHER},
    [BL_KERNEL_REDUCESCATTER_MULTIMEM] = {true, false, REDUCE_SCATTER},
};

static bool launchable(const struct rig *rig, int kernel) {
    return kernels[kernel].launched && (bl_kernel_multicast(kernel) ? rig->has_multicast : !rig->no_others);
}

static bool by_switch(int kernel) {
    return strstr(bl_kernel_name(kernel), "multimem") != NULL;
}

static bool covers(const struct rig *rig, int kernel, int datatype, int redop) {
    return !by_switch(kernel) || (bl_multimem_redops(datatype, rig->arch) >> redop & 1) != 0;
}

/* Sums that the switch makes in any order are compared where the order does not matter. */
static uint64_t seed_for(int kernel, int redop, uint64_t seed) {
    return by_switch(kernel) && redop == BL_SUM ? ref_whole(seed) : seed;
}

/* Fills in the messages; returns the bytes of all, in whole lines. */
static uint64_t fill_batch(struct bl_batch_args *args, const struct call *calls, int messages, int i) {
    uint64_t lines = 0;
    for (int m = 0; m < messages; m++) {
        const uint64_t bytes = calls[m].count * bl_datatype_size(calls[m].datatype);
        args->sendbuff[m] = (void *)call_sendbuff(&calls[m], i);
        args->recvbuff[m] = (void *)call_recvbuff(&calls[m], i);
        args->count[m] = calls[m].collective == ALL_GATHER ? bytes : calls[m].count;
        args->in_place |= calls[m].in_place;
        args->first_line[m] = (uint32_t)lines;
        lines += bl_lines_of(bytes);
    }
    for (int m = messages; m < BL_BATCH_MAX; m++) args->first_line[m] = UINT32_MAX;
    args->lines = (uint32_t)lines;
    return lines * BL_LINE_DATA;
}

/* Launches shape->messages calls on rank i. */
static void launch(struct rig *rig, struct call *calls, const struct shape *shape, int i) {
    struct rank *rank = part_enter(rig->part, i);
    CUdeviceptr control;
    CU_OK(cuMemHostGetDevicePointer(&control, rig->control[i], 0));
    struct bl_batch_args args = {.common = {
                                     .sendbuff = (void *)call_sendbuff(calls, i),
                                     .recvbuff = (void *)call_recvbuff(calls, i),
                                     .count = calls->count,
                                     .stride = calls->count * bl_datatype_size(calls->datatype),
                                     .size = (uint32_t)bl_datatype_size(calls->datatype),
                                     .redop = (uint32_t)calls->redop,
                                     .rank = (uint32_t)i,
                                     .root = (uint32_t)calls->root,
                                     .nranks = (uint32_t)rig->part->count,
                                     .timeout_ns = rig->timeout_ns,
                                     .epochs = (uint64_t *)rig->epochs[i],
                                     .control = (struct bl_control *)control,
                                     .layout = rig->layout,
                                 }};
    for (int r = 0; r < rig->part->count; r++) args.common.staging[r] = (unsigned char *)rig->staging[r];
    if (rig->has_multicast) {
        args.common.replica = (unsigned char *)rig->multicast.replica[i];
        args.common.multicast = (unsigned char *)rig->multicast.all[i];
        args.common.multicast_words = (uint64_t *)rig->multicast_words[i];
    }
    uint64_t bytes = kernels[shape->kernel].several ? fill_batch(&args, calls, shape->messages, i)
                                                    : calls->count * bl_datatype_size(calls->datatype);
    const unsigned threads = bl_kernel_threads(shape->kernel, rig->part->count, shape->threads);
    const unsigned blocks = bl_kernel_blocks(shape->kernel, rig->part->count, bytes, threads, shape->most_blocks);
    void *parameters[] = {&args}; /* of which a kernel for one message takes the beginning */
    CUlaunchAttribute early = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                               .value.programmaticStreamSerializationAllowed = 1};
    CUlaunchConfig config = {.gridDimX = blocks,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = threads,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = rank->stream[0],
                             .attrs = &early,
                             .numAttrs = 1};
    CU_OK(cuLaunchKernelEx(&config, find_function(rig, i, shape->kernel, calls->datatype), parameters, NULL));
}

/* By how much a launch raises the epoch: staging.cuh. */
static unsigned flags_of(int kernel) {
    const char *name = bl_kernel_name(kernel);
    return !strncmp(name, "twoshot_line", 12) || !strcmp(name, "twoshot_team") ? 2 : 1;
}

static bool has_error(const struct rig *rig) {
    for (int i = 0; i < rig->part->count; i++)
        if (rig->control[i]->error) return true;
    return false;
}

static void expect_no_error(const struct rig *rig) {
    for (int i = 0; i < rig->part->count; i++)
        CHECK(!rig->control[i]->error, "rank %d: error %u: rank %u did not send, epoch %llx", i, rig->control[i]->error,
              rig->control[i]->error_peer, (unsigned long long)rig->control[i]->error_epoch);
}

enum { POOL = 24, LAUNCHES = 8, MOST_BYTES = 40000 }; /* of a call's larger buffer */

static void draw_call(struct rig *rig, struct call *call, int kernel, int datatype, int redop, uint64_t most_bytes) {
    uint64_t *s = &rig->state, most = most_bytes / ref_datatype_size(datatype);
    size_t scale = (size_t)1 << ref_below(s, 15);
    call->collective = kernels[kernel].collective;
    call->seed = seed_for(kernel, redop, ref_next(s));
    call->datatype = datatype;
    call->redop = redop;
    call->count = 1 + ref_below(s, scale < most ? scale : most);
    call->in_place = ref_below(s, 3) == 0;
    call->send_offset = ref_below(s, 2) ? 0 : (unsigned)ref_below(s, 32);
    call->recv_offset = ref_below(s, 2) ? 0 : (unsigned)ref_below(s, 32);
    call->skew = ref_below(s, 2) ? 0 : (unsigned)ref_below(s, 8);
}

/* A launch of one call, or of at most `left`. */
static void draw(struct rig *rig, struct call *calls, struct shape *shape, int left) {
    static const unsigned threads[] = {32, 64, 128, 256};
    uint64_t *s = &rig->state;
    if (rig->no_others && ref_below(s, 4)) /* mostly the same again: it meets what the last launch left */
        shape->kernel = rig->last_kernel;
    else
        do shape->kernel = (int)ref_below(s, BL_KERNELS);
        while (!launchable(rig, shape->kernel));
    rig->last_kernel = shape->kernel;
    shape->threads = threads[ref_below(s, 4)];
    if (shape->threads > (unsigned)rig->most_threads) shape->threads = (unsigned)rig->most_threads;
    shape->most_blocks = 1 + (unsigned)ref_below(s, 10); /* from 7 on, the grid has crews */
    shape->messages = kernels[shape->kernel].several ? 1 + (int)ref_below(s, (uint64_t)left) : 1;
    int datatype, redop;
    do {
        datatype = (int)ref_below(s, REF_DATATYPES);
        redop = (int)ref_below(s, REF_REDOPS);
    } while (!covers(rig, shape->kernel, datatype, redop));
    uint64_t most = bl_kernel_capacity(shape->kernel, rig->part->count, &rig->layout);
    const bool blocks = collective_has_blocks(kernels[shape->kernel].collective);
    const uint64_t room = blocks ? MOST_BYTES / rig->part->count : MOST_BYTES;
    if (most > room) most = room;
    if (kernels[shape->kernel].several) {
        const uint64_t lines = most / (uint64_t)shape->messages / BL_LINE_DATA;
        most = (lines ? lines : 1) * BL_LINE_DATA;
    }
    for (int m = 0; m < shape->messages; m++) { /* what only moves takes messages of any datatypes */
        if (m && !bl_kernel_reduces(shape->kernel)) datatype = (int)ref_below(s, REF_DATATYPES);
        draw_call(rig, &calls[m], shape->kernel, datatype, redop, most);
    }
}

/* A few launches issued at once; `late`: those of the ranks are far apart in time and order. */
static void salvo(struct rig *rig, struct call *calls, int n, bool late) {
    struct shape shape[LAUNCHES];
    struct call *first_of[LAUNCHES];
    int ranks = rig->part->count, used = 0;
    CHECK(n <= LAUNCHES);
    for (int k = 0; k < n; k++) {
        first_of[k] = &calls[used];
        draw(rig, first_of[k], &shape[k], POOL - used - (n - k - 1));
        used += shape[k].messages;
    }
    for (int k = 0; k < used; k++) call_prepare(rig->part, &calls[k]);
    int first = late ? (int)ref_below(&rig->state, (uint64_t)ranks) : 0;
    if (late) { /* all launches of one rank, then of the next */
        for (int i = 0; i < ranks; i++) {
            for (int k = 0; k < n; k++) launch(rig, first_of[k], &shape[k], (first + i) % ranks);
            nanosleep(&(struct timespec){.tv_nsec = (long)ref_below(&rig->state, 3000000)}, NULL);
        }
    } else {
        for (int k = 0; k < n; k++)
            for (int i = 0; i < ranks; i++) launch(rig, first_of[k], &shape[k], i);
    }
    part_synchronize(rig->part);
    for (int k = 0; k < n; k++) {
        rig->epoch += flags_of(shape[k].kernel);
        if (has_error(rig))
            fprintf(stderr, "epoch %llx: %s of %d messages, first %s %zu elements%s, %u threads, at most %u blocks\n",
                    (unsigned long long)rig->epoch, bl_kernel_name(shape[k].kernel), shape[k].messages,
                    ref_datatype_name(first_of[k]->datatype), first_of[k]->count,
                    first_of[k]->in_place ? " in place" : "", shape[k].threads, shape[k].most_blocks);
    }
    expect_no_error(rig);
    for (int k = 0; k < used; k++) call_check(rig->part, &calls[k]);
}

static void salvos(struct rig *rig, const struct options *o, bool late) {
    struct call calls[POOL] = {0};
    for (int k = 0; k < POOL; k++) call_allocate(rig->part, &calls[k], MOST_BYTES);
    long steps = o->calls ? o->calls : 20;
    for (long step = 0; step < steps; step++) salvo(rig, calls, 1 + (int)ref_below(&rig->state, LAUNCHES), late);
    for (int k = 0; k < POOL; k++) call_free(rig->part, &calls[k]);
}

/* Counts of `size` bytes each, at most one next to the edges of the first 17 words and of the lines behind them. */
static int edge_counts(size_t size, int ranks, size_t *count) {
    const size_t lines[] = {240, 120 * (size_t)ranks, 120 * (size_t)ranks + 120, 240 * (size_t)ranks};
    int n = 0;
    for (size_t k = 0; k < 18 + sizeof lines / sizeof *lines; k++) {
        const size_t elements = (k < 18 ? 8 * k : lines[k - 18]) / size;
        for (size_t c = elements ? elements - 1 : 1; c <= elements + 1; c++)
            if (c) count[n++] = c;
    }
    return n;
}

/* One call of every alignment that the element size has, and so on round the counts until each had some. */
static void alignments_of(struct rig *rig, const struct options *o, int kernel, int datatype) {
    enum { MOST_EDGES = 80, CALLS = 8 };
    const unsigned size = (unsigned)ref_datatype_size(datatype), classes = 8 / size;
    const unsigned places = classes * classes + classes; /* in place, the alignments are one */
    size_t count[MOST_EDGES];
    const int counts = edge_counts(size, rig->part->count, count);
    const long each = o->calls ? o->calls : 4, all = (long)places * each > counts ? (long)places * each : counts;
    struct call calls[CALLS] = {0};
    struct shape shape = {kernel, 64, 2, 1};
    for (int k = 0; k < CALLS; k++)
        call_allocate(rig->part, &calls[k],
                      (240 * BOX_RANKS + 8) *
                          (collective_has_blocks(kernels[kernel].collective) ? (size_t)rig->part->count : 1));
    for (long done = 0; done < all;) {
        int n = 0;
        for (; n < CALLS && done < all; n++, done++) {
            const unsigned place = (unsigned)(done % places);
            struct call *call = &calls[n];
            call->collective = kernels[kernel].collective;
            call->datatype = datatype;
            do call->redop = (int)ref_below(&rig->state, REF_REDOPS);
            while (!covers(rig, kernel, datatype, call->redop));
            call->seed = seed_for(kernel, call->redop, ref_next(&rig->state));
            call->count = count[(done + done / counts * 7) % counts];
            call->in_place = place >= classes * classes;
            call->send_offset = place % classes * size;
            call->recv_offset = place / classes % classes * size;
            call->skew = done / places % 2 ? (unsigned)ref_below(&rig->state, classes) * size : 0;
            call_prepare(rig->part, call);
            for (int i = 0; i < rig->part->count; i++) launch(rig, call, &shape, i);
        }
        part_synchronize(rig->part);
        expect_no_error(rig);
        for (int k = 0; k < n; k++) call_check(rig->part, &calls[k]);
    }
    for (int k = 0; k < CALLS; k++) call_free(rig->part, &calls[k]);
}

/* --- what main chooses from --- */

static void shapes(struct part *part, const struct options *o) {
    struct rig rig;
    rig_open(&rig, part, o, STAGING);
    salvos(&rig, o, false);
    rig_close(&rig);
}

static void alignments(struct part *part, const struct options *o) {
    static const int datatypes[] = {BL_UINT8, BL_FLOAT8E5M2, BL_BFLOAT16, BL_FLOAT32, BL_INT64};
    struct rig rig;
    rig_open(&rig, part, o, STAGING);
    for (int kernel = 0; kernel < BL_KERNELS; kernel++)
        for (size_t d = 0; d < sizeof datatypes / sizeof *datatypes && launchable(&rig, kernel); d++)
            if (covers(&rig, kernel, datatypes[d], BL_SUM) && (d == 0 || bl_kernel_reduces(kernel)))
                alignments_of(&rig, o, kernel, datatypes[d]);
    rig_close(&rig);
}

static void late(struct part *part, const struct options *o) {
    struct rig rig;
    rig_open(&rig, part, o, STAGING);
    salvos(&rig, o, true);
    rig_close(&rig);
}

static void multicast(struct part *part, const struct options *o) {
    struct rig rig;
    rig_open(&rig, part, o, STAGING);
    CHECK(rig.has_multicast, "only on an emulated box of topology nvls");
    rig.no_others = true;
    rig.last_kernel = BL_KERNEL_ALLREDUCE_ONESHOT_MULTICAST;
    salvos(&rig, o, true);
    rig_close(&rig);
}

static void epochs(struct part *part, const struct options *o) {
    static const uint64_t start[] = {0xfffffff0u, 0x1fffffff8u, 0x7ffffffffffffff0u, 0x8000000000000000u};
    for (size_t k = 0; k < sizeof start / sizeof *start; k++) {
        struct rig rig;
        rig_open(&rig, part, o, STAGING);
        set_epochs(&rig, start[k]);
        salvos(&rig, o, k % 2);
        rig_close(&rig);
    }
}

/* Rank 0 alone calls. */
static void call_alone(struct rig *rig, struct call *call, int kernel) {
    struct shape shape = {kernel, 64, 2, 1};
    *call = (struct call){.collective = kernels[kernel].collective, .datatype = BL_FLOAT32, .count = 100, .seed = 1};
    call_prepare(rig->part, call);
    launch(rig, call, &shape, 0);
}

static void timeout(struct part *part, const struct options *o) {
    for (int kernel = 0; kernel < BL_KERNELS; kernel++) {
        struct rig rig;
        struct call call;
        if (!kernels[kernel].launched) continue;
        rig_open(&rig, part, o, STAGING);
        if (!launchable(&rig, kernel)) {
            rig_close(&rig);
            continue;
        }
        rig.timeout_ns = 50000000;
        call_alone(&rig, &call, kernel);
        part_synchronize(part);
        CHECK(rig.control[0]->error == BL_KERNEL_TIMEOUT, "%s: error %u", bl_kernel_name(kernel),
              rig.control[0]->error);
        CHECK(rig.control[0]->abort, "%s: later launches would wait again", bl_kernel_name(kernel));
        CHECK(rig.control[0]->error_peer > 0 && rig.control[0]->error_peer < (uint32_t)part->count, "peer %u",
              rig.control[0]->error_peer);
        CHECK(rig.control[0]->error_epoch == flags_of(kernel), "epoch %llu",
              (unsigned long long)rig.control[0]->error_epoch);
        for (int i = 1; i < part->count; i++) CHECK(!rig.control[i]->error);
        call_free(part, &call);
        rig_close(&rig);
    }
}

static void leave(struct part *part, const struct options *o) {
    for (int kernel = 0; kernel < BL_KERNELS; kernel++) {
        struct rig rig;
        struct call call;
        if (!kernels[kernel].launched) continue;
        rig_open(&rig, part, o, STAGING);
        if (!launchable(&rig, kernel)) {
            rig_close(&rig);
            continue;
        }
        rig.timeout_ns = 0;
        call_alone(&rig, &call, kernel);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        __atomic_store_n(&rig.control[0]->abort, 1, __ATOMIC_RELAXED);
        part_synchronize(part); /* or the time limit of the case ends it */
        CHECK(rig.control[0]->error != BL_KERNEL_TIMEOUT);
        call_free(part, &call);
        rig_close(&rig);
    }
}

static const struct {
    const char *name;
    void (*run)(struct part *, const struct options *);
} parts[] = {{"shapes", shapes}, {"alignments", alignments}, {"late", late},  {"multicast", multicast},
             {"epochs", epochs}, {"timeout", timeout},       {"abort", leave}};

static void body(struct part *part) {
    const struct options *o = part->box->argument;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!o->name || strcmp(o->name, parts[i].name) != 0) continue;
        parts[i].run(part, o);
        return;
    }
    FAIL("names: shapes alignments late multicast epochs timeout abort");
}

int main(int argc, char **argv) {
    static struct options options;
    options_read(&options, argc, argv);
    options.box.no_communicators = true;
    box_run(&options.box, body);
    return 0;
}
