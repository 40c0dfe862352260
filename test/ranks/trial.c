/* trial.c - what is launched of the kernels, and checked: drawn by a seed, for test/ranks/kernels.c. */
#include "trial.h"

#include <stdio.h>
#include <time.h>

#include "reference.h"

enum { STAGING = 6 << 20, LAUNCHES = 8 /* of a salvo, if nothing else is said */ };

void trial_open_on(struct trial *trial, struct part *part, const struct options *o, uint64_t staging) {
    const CUdevice device = part->rank[0].device;
    int minor;
    *trial = (struct trial){
        .state = part->box->seed, .launches = LAUNCHES, .most_bytes = MOST_BYTES, .most_late_ns = 3000000};
    CU_OK(cuDeviceGetAttribute(&trial->most_threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device));
    CU_OK(cuDeviceGetAttribute(&trial->arch, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    CU_OK(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
    trial->arch = 10 * trial->arch + minor;
    rig_open(&trial->rig, part, staging, true, 1000000000u * (o->wait ? (uint64_t)o->wait : 30));
    if (trial->rig.layout.multicast_bytes && multicast_open(part, &trial->multicast, trial->rig.layout.multicast_bytes))
        trial->rig.multicast = &trial->multicast;
    part_drain(part);
}

void trial_open(struct trial *trial, struct part *part, const struct options *o) {
    trial_open_on(trial, part, o, STAGING);
}

void trial_close(struct trial *trial) {
    struct part *part = trial->rig.part;
    const bool multicast = trial->rig.multicast != NULL;
    rig_close(&trial->rig);
    if (multicast) multicast_close(part, &trial->multicast);
}

bool trial_launches(const struct trial *trial, int kernel) {
    const struct rig *const rig = &trial->rig;
    return rig_launches(kernel) && (!bl_kernel_bulk(kernel) || trial->most_threads >= BL_BULK_LEAST_THREADS) &&
           bl_kernel_capacity(kernel, rig->part->count, &rig->layout) > 0 &&
           (!bl_kernel_multicast(kernel) || trial->rig.multicast) && (!trial->only || trial->only(kernel));
}

static bool by_switch(int kernel) {
    return kernel == BL_KERNEL_ALLREDUCE_TWOSHOT_NVLS || kernel == BL_KERNEL_REDUCESCATTER_NVLS;
}

bool trial_covers(const struct trial *trial, int kernel, int datatype, int redop) {
    return !by_switch(kernel) || (bl_multimem_redops(datatype, trial->arch) >> redop & 1) != 0;
}

uint64_t trial_seed(int kernel, int redop, uint64_t seed) {
    return by_switch(kernel) && redop == BL_SUM ? ref_whole(seed) : seed;
}

int trial_collective(struct trial *trial, int kernel) {
    static const int mixed[] = {BL_BROADCAST, BL_REDUCE, BL_ALLREDUCE, BL_ALLGATHER, BL_REDUCESCATTER, BL_ALLTOALL};
    enum { ROOTED = 2, ALL = sizeof mixed / sizeof *mixed };
    const bool blocks =
        !bl_kernel_few(kernel) || trial->rig.part->count <= BL_BATCH_FEW; /* of which each is a message */
    int collective;
    if (!bl_kernel_mixed(kernel)) return (int)bl_kernel_collective(kernel);
    /* Of one-way ones mostly what not all wait for, so that some run ahead. */
    const uint64_t kinds = trial->only && ref_below(&trial->state, 8) ? ROOTED : ALL;
    do collective = mixed[ref_below(&trial->state, kinds)];
    while (collective_has_blocks(collective) && !blocks);
    return collective;
}

static void draw_call(struct trial *trial, struct call *call, int kernel, int collective, int datatype, int redop,
                      uint64_t most_bytes) {
    const uint64_t scales = trial->most_bytes > MOST_BYTES ? 19 : 15;
    uint64_t *s = &trial->state, most = most_bytes / ref_datatype_size(datatype);
    size_t scale = (size_t)1 << (ref_below(s, scales - trial->least_scale) + trial->least_scale);
    if (bl_kernel_mixed(kernel) && collective_has_blocks(collective)) most /= (uint64_t)trial->rig.part->count;
    call->collective = collective;
    call->seed = trial_seed(kernel, redop, ref_next(s));
    call->datatype = datatype;
    call->redop = redop;
    call->count = 1 + ref_below(s, scale < most ? scale : most);
    if (is_paired(kernel) && call->seed % 16 == 1) call->count = 0; /* messages of nothing are messages */
    call->to_itself = is_paired(kernel) && call->seed % 4 == 0;
    call->in_place = ref_below(s, 3) == 0;
    call->send_offset = ref_below(s, 2) ? 0 : (unsigned)ref_below(s, 32);
    call->recv_offset = ref_below(s, 2) ? 0 : (unsigned)ref_below(s, 32);
    call->skew = ref_below(s, 2) ? 0 : (unsigned)ref_below(s, 8);
}

/* Grids that differ between ranks are such as bl_kernel_in_rounds asks for. */
static void draw_grid(struct trial *trial, struct shape *shape) {
    uint64_t *s = &trial->state;
    const bool whole = bl_kernel_multicast(shape->kernel) || (trial->few_places && bl_kernel_mixed(shape->kernel));
    const bool uneven = !whole && ref_below(s, 2);
    const uint64_t most = uneven && bl_kernel_in_rounds(shape->kernel) ? PLACES : 10; /* from 7 on, there are crews */
    const bool first_send =
        !bl_kernel_in_rounds(shape->kernel) && !bl_kernel_multicast(shape->kernel) && !bl_kernel_bulk(shape->kernel);
    if (!trial->few_places) {
        shape->most_blocks = 1 + (unsigned)ref_below(s, most);
    } else if (first_send && ref_below(s, 2)) { /* crews, of which the last blocks come once the first have gone */
        shape->most_blocks = PLACES + 1 + (unsigned)ref_below(s, PLACES);
        shape->threads = 32; /* so that there are more lines than groups of lanes */
    } else {
        shape->most_blocks = BL_MAX_BLOCKS;
    }
    shape->odd_blocks = uneven ? 1 + (unsigned)ref_below(s, PLACES) : 0;
}

uint64_t trial_most_bytes(const struct trial *trial, int kernel) {
    const int ranks = trial->rig.part->count;
    const uint64_t capacity = bl_kernel_capacity(kernel, ranks, &trial->rig.layout);
    const uint64_t room =
        trial->most_bytes / (collective_has_blocks(bl_kernel_collective(kernel)) ? (uint64_t)ranks : 1);
    return capacity < room ? capacity : room;
}

/* Lines of the root that has most. */
static uint64_t span_of(const struct trial *trial, const struct call *calls, int messages) {
    uint64_t of_root[BOX_RANKS] = {0}, span = 0;
    for (int m = 0; m < messages; m++) {
        uint64_t *lines = &of_root[call_root(trial->rig.part, &calls[m])];
        *lines += bl_lines_of(calls[m].count * ref_datatype_size(calls[m].datatype), BL_FLAGGED_DATA);
        if (span < *lines) span = *lines;
    }
    return span;
}

/* Halves calls, or takes some away, until the launch has room for them. */
static void fit_rooted(const struct trial *trial, struct call *calls, struct shape *shape, uint64_t most) {
    while (span_of(trial, calls, shape->messages) * BL_FLAGGED_DATA > most) {
        bool any = false;
        for (int m = 0; m < shape->messages; m++) {
            any = any || calls[m].count > 1;
            calls[m].count = (calls[m].count + 1) / 2;
        }
        shape->messages -= !any; /* a line each, and still too many */
    }
}

static void fit_mixed(const struct trial *trial, const struct call *calls, struct shape *shape) {
    const unsigned most = bl_kernel_few(shape->kernel) ? BL_BATCH_FEW : BL_BATCH_MAX;
    const uint64_t capacity = bl_kernel_capacity(shape->kernel, trial->rig.part->count, &trial->rig.layout);
    struct bl_mixed mixed;
    int fit = 0;
    bl_mixed_begin(&mixed, trial->rig.part->count);
    for (; fit < shape->messages; fit++) {
        bl_mixed_count(&mixed, calls[fit].collective, (unsigned)call_root(trial->rig.part, &calls[fit]),
                       calls[fit].count * ref_datatype_size(calls[fit].datatype));
        if (mixed.messages > most || bl_mixed_span(&mixed) * BL_FLAGGED_DATA > capacity) break;
    }
    shape->messages = fit;
}

/* A launch of one call, or of at most `left`. */
static void draw(struct trial *trial, struct call *calls, struct shape *shape, int left) {
    static const unsigned threads[] = {32, 64, 128, 256};
    uint64_t *s = &trial->state;
    if (trial->only && ref_below(s, 4)) /* mostly the same again: it meets what the last launch left */
        shape->kernel = trial->last_kernel;
    else
        do shape->kernel = (int)ref_below(s, BL_KERNELS);
        while (!trial_launches(trial, shape->kernel));
    trial->last_kernel = shape->kernel;
    shape->threads = threads[ref_below(s, 4)];
    if (shape->threads > (unsigned)trial->most_threads) shape->threads = (unsigned)trial->most_threads;
    draw_grid(trial, shape);
    shape->general =
        is_paired(shape->kernel) && *s >> 20 & 1; /* no draw more: the runs of other kernels stay as they are */
    if (bl_kernel_few(shape->kernel) && left > BL_BATCH_FEW) left = BL_BATCH_FEW;
    shape->messages = bl_kernel_batch(shape->kernel) ? 1 + (int)ref_below(s, (uint64_t)left) : 1;
    if (bl_kernel_pairs(shape->kernel) && !bl_kernel_batch(shape->kernel) && left > 1)
        shape->messages = 1 + (int)ref_below(s, BL_PAIR_FEW / 2);
    int datatype, redop;
    do {
        datatype = (int)ref_below(s, REF_DATATYPES);
        redop = (int)ref_below(s, REF_REDOPS);
    } while (!trial_covers(trial, shape->kernel, datatype, redop));
    uint64_t most = trial_most_bytes(trial, shape->kernel);
    const bool by_root = bl_kernel_batch(shape->kernel) && is_one_way(shape->kernel);
    if (bl_kernel_batch(shape->kernel) && !by_root) {
        const uint64_t lines = most / (uint64_t)shape->messages / BL_LINE_DATA;
        most = (lines ? lines : 1) * BL_LINE_DATA;
    }
    const bool mixed = bl_kernel_mixed(shape->kernel);
    shape->twoshot = mixed && *s >> 20 & 1;
    for (int m = 0; m < shape->messages; m++) { /* what only moves takes messages of any datatypes */
        const int collective = trial_collective(trial, shape->kernel);
        const bool any = m && !bl_collective_has(collective, BL_REDUCES);
        draw_call(trial, &calls[m], shape->kernel, collective, any ? (int)ref_below(s, REF_DATATYPES) : datatype, redop,
                  most);
    }
    if (mixed)
        fit_mixed(trial, calls, shape);
    else if (by_root)
        fit_rooted(trial, calls, shape, most);
}

/* A few launches issued at once; `late`: those of the ranks are far apart in time and order. */
static void salvo(struct trial *trial, struct call *calls, int n, bool late) {
    struct shape shape[POOL];
    struct call *first_of[POOL];
    int ranks = trial->rig.part->count, used = 0;
    CHECK(n <= POOL);
    for (int k = 0; k < n; k++) {
        first_of[k] = &calls[used];
        draw(trial, first_of[k], &shape[k], POOL - used - (n - k - 1));
        used += shape[k].messages;
    }
    for (int k = 0; k < used; k++) call_prepare(trial->rig.part, &calls[k]);
    int first = late ? (int)ref_below(&trial->state, (uint64_t)ranks) : 0;
    if (late) { /* all launches of one rank, then of the next */
        for (int i = 0; i < ranks; i++) {
            for (int k = 0; k < n; k++) rig_launch(&trial->rig, first_of[k], &shape[k], (first + i) % ranks);
            nanosleep(&(struct timespec){.tv_nsec = (long)ref_below(&trial->state, trial->most_late_ns)}, NULL);
        }
    } else {
        for (int k = 0; k < n; k++)
            for (int i = 0; i < ranks; i++) rig_launch(&trial->rig, first_of[k], &shape[k], i);
    }
    rig_drain(&trial->rig);
    for (int k = 0; k < n; k++) {
        trial->launch++;
        if (rig_failed(&trial->rig) >= 0)
            fprintf(stderr,
                    "launch %llu: %s of %d messages, first %s %zu elements%s, %u threads, at most %u blocks, %u of odd "
                    "ranks (0: the same)\n",
                    (unsigned long long)trial->launch, bl_kernel_name(shape[k].kernel), shape[k].messages,
                    ref_datatype_name(first_of[k]->datatype), first_of[k]->count,
                    first_of[k]->in_place ? " in place" : "", shape[k].threads, shape[k].most_blocks,
                    shape[k].odd_blocks);
    }
    rig_expect_no_error(&trial->rig);
    for (int k = 0; k < used; k++) call_check(trial->rig.part, &calls[k]);
}

void trial_salvos(struct trial *trial, const struct options *o, bool late) {
    struct call calls[POOL] = {0};
    for (int k = 0; k < POOL; k++) call_allocate(trial->rig.part, &calls[k], trial->most_bytes);
    long steps = o->calls ? o->calls : 20;
    for (long step = 0; step < steps; step++)
        salvo(trial, calls, 1 + (int)ref_below(&trial->state, (uint64_t)trial->launches), late);
    for (int k = 0; k < POOL; k++) call_free(trial->rig.part, &calls[k]);
}
