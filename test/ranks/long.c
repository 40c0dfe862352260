/* long.c - see long.h. */
#include "long.h"

#include "reference.h"

/* --- runs of lines, of which drawn messages have few --- */

static void longest_of(struct trial *trial, int kernel) {
    const struct shape grids[] = {{.kernel = kernel, .threads = 32, .most_blocks = 1, .messages = 1},
                                  {.kernel = kernel, .threads = 64, .most_blocks = 10, .messages = 1}};
    /* Of which buffers are off a multiple of 8 bytes, and whether they are on one rank more than on the one before. */
    static const struct { unsigned send, recv, skew; } offs[] = {{0, 0, 0}, {4, 0, 0}, {0, 4, 0}, {4, 4, 0}, {0, 0, 4}};
    enum { GRIDS = sizeof grids / sizeof *grids, OFFS = sizeof offs / sizeof *offs };
    const int ranks =
        trial->rig.part->box->nranks; /* in turns over these, too: each grid has each of `offs` in place for some */
    for (int k = 0; k < GRIDS * OFFS; k++) {
        const int grid = k % GRIDS, off = k / GRIDS;
        struct call call = {.collective = trial_collective(trial, kernel),
                            .datatype = BL_INT32,
                            .in_place = (grid + off + kernel + ranks) % 2,
                            .send_offset = offs[off].send,
                            .recv_offset = offs[off].recv,
                            .skew = offs[off].skew,
                            .count = trial_most_bytes(trial, kernel) / sizeof(int32_t),
                            .seed = trial_seed(kernel, BL_SUM, ref_next(&trial->state))};
        call_prepare(trial->rig.part, &call);
        for (int i = 0; i < trial->rig.part->count; i++) rig_launch(&trial->rig, &call, &grids[grid], i);
        rig_drain(&trial->rig);
        rig_expect_no_error(&trial->rig);
        call_check(trial->rig.part, &call);
        call_free(trial->rig.part, &call);
    }
}

void longest(struct part *part, const struct options *o) {
    struct trial trial;
    trial_open(&trial, part, o);
    for (int kernel = 0; kernel < BL_KERNELS; kernel++)
        if (trial_launches(&trial, kernel) && trial_covers(&trial, kernel, BL_INT32, BL_SUM))
            longest_of(&trial, kernel);
    trial_close(&trial);
}

/* --- grids that fill a GPU, and launches beyond its cache --- */

/* Of so many lines in all, of messages that each have an end and alignments of their own; on a rig whose staging has room for them. */
static void one_launch(struct part *part, const struct options *o, const struct shape *shape, size_t lines) {
    const uint64_t bytes = lines * BL_LINE_DATA;
    uint64_t staging = bl_staging_minimum(part->count);
    struct call calls[BL_BATCH_FEW] = {0};
    struct bl_staging_layout layout;
    struct trial trial;
    while (bl_staging_plan(&layout, part->count, staging, BL_WITH_PIECES, true) ||
           bl_kernel_capacity(shape->kernel, part->count, &layout) < bytes)
        staging += 1 << 20;
    trial_open_on(&trial, part, o, staging);
    uint64_t *const s = &trial.state;
    *s += (uint64_t)shape->kernel;
    for (int m = 0; m < shape->messages; m++) {
        struct call *const call = &calls[m];
        const bool reduces = bl_kernel_reduces(shape->kernel);
        const unsigned size = reduces ? 4 : 1;
        *call = (struct call){.collective = (int)bl_kernel_collective(shape->kernel),
                              .datatype = reduces ? BL_INT32 : BL_UINT8,
                              .in_place = ref_below(s, 2),
                              .send_offset = (unsigned)ref_below(s, 8 / size) * size,
                              .recv_offset = (unsigned)ref_below(s, 8 / size) * size,
                              .skew = (unsigned)ref_below(s, 2) * size,
                              .seed = ref_next(s)};
        call->count = (bytes / (size_t)shape->messages - ref_below(s, BL_LINE_DATA)) / size;
        call_prepare(part, call);
    }
    for (int i = 0; i < part->count; i++) rig_launch(&trial.rig, calls, shape, i);
    rig_drain(&trial.rig);
    rig_expect_no_error(&trial.rig);
    for (int m = 0; m < shape->messages; m++) {
        call_check(part, &calls[m]);
        call_free(part, &calls[m]);
    }
    trial_close(&trial);
}

/* As many lines for each group of lanes as few blocks have several of under way for.  Of more than two ranks the all-reduce needs fewest. */
void full(struct part *part, const struct options *o) {
    enum { THREADS = 256, BLOCKS = 97, GROUPS = BLOCKS * THREADS / 8, MORE = 40 };
    static const int kernels[] = {BL_KERNEL_ALLREDUCE_TWOSHOT_LL128, BL_KERNEL_ALLREDUCE_ONESHOT_LL128,
                                  BL_KERNEL_ALLTOALL_LL128};
    const size_t ranks = (size_t)part->count, rounds = ranks == 2 ? 4 : 2;
    for (int k = 0; k < (ranks == 2 ? 3 : 1); k++) {
        const struct shape shape = {.kernel = kernels[k], .threads = THREADS, .most_blocks = BLOCKS, .messages = 1};
        one_launch(part, o, &shape, (k ? 1 : ranks) * (rounds * GROUPS + MORE));
    }
}

/* More than a launch finds in the cache (crews.cuh), of what it reads, stages and stores together. */
void far(struct part *part, const struct options *o) {
    enum { CACHED = 24 << 20, LINE = 128, MORE = 40 };
    const struct shape shape = {
        .kernel = BL_KERNEL_REDUCESCATTER_LL128_BATCH, .threads = 64, .most_blocks = 8, .messages = 3};
    one_launch(part, o, &shape, CACHED / LINE / (3 * (size_t)part->count - 1) + MORE);
}
