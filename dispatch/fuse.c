/* fuse.c - which calls of a group go out in one launch: the pure part.
 *
 * Calls of one collective, and if it reduces of one datatype and operation, are put together in call order, until a launch
 * is full, of whatever roots; what is fused with what follows from the table and from the counts, datatypes and operations of one
 * communicator's calls, and from nothing else, so that every rank comes to the same launches. */
#include "dispatch.h"

#include <string.h>

/* A batch is never launched in pieces. */
static bool carries(const struct bl_table *table, const struct bl_algorithm *algorithm, const struct bl_batch *batch,
                    uint64_t bytes) {
    return algorithm->batch != BL_KERNEL_NONE &&
           bl_algorithm_covers(algorithm, table->arch, batch->datatype, batch->redop) &&
           bytes <= bl_kernel_capacity(algorithm->batch, table->nranks, &table->layout);
}

bool bl_table_select_batch(const struct bl_table *table, const struct bl_batch *batch, struct bl_route *route) {
    const uint64_t bytes = batch->lines * BL_LINE_DATA;
    const struct bl_range *range = table->range[batch->collective];
    for (const struct bl_range *end = range + table->ranges[batch->collective]; range < end; range++) {
        const bool forced = range->reason == BL_REASON_FORCED;
        if (bytes > range->max_bytes && !forced) continue;
        if (range->algorithm == BL_ROUTE_NCCL) return false;
        const struct bl_algorithm *algorithm = &bl_algorithms[range->algorithm];
        if (bytes <= range->max_bytes && carries(table, algorithm, batch, bytes)) {
            bl_range_route(table, range, algorithm->batch, bytes, route);
            return true;
        }
        if (forced) return false; /* what is forced carries the batch, or nothing does */
    }
    return false;
}

void bl_fuser_begin(struct bl_fuser *fuser, const struct bl_table *table) {
    memset(fuser, 0, sizeof *fuser);
    fuser->table = table;
}

/* Of broadcasts and reduces, each of which fills the links one way by itself: two of 1 MB, of two roots, are worth a launch together, and of
 * larger ones the rings hold few (docs/benchmarks/h200-x2-2026-11-24.md). */
static const uint64_t MOST_ROOTED = 1 << 20;

/* The bytes of a call that may share a launch, else 0. */
static uint64_t fusable_bytes(const struct bl_table *table, const struct bl_request *request) {
    const uint64_t size = bl_datatype_size(request->datatype);
    uint64_t bytes;
    if ((unsigned)request->redop >= BL_REDOPS) return 0;
    if (__builtin_mul_overflow(request->count, size, &bytes)) return 0;
    if (bl_collective_has(request->collective, BL_ROOTED) && bytes > MOST_ROOTED) return 0;
    return bytes <= table->fuse_max ? bytes : 0;
}

/* What has to be alike: of what moves bytes nothing but the collective. */
static struct bl_batch kind_of(const struct bl_request *request) {
    const bool any = !bl_collective_has(request->collective, BL_REDUCES);
    return (struct bl_batch){.collective = request->collective,
                             .datatype = any ? BL_UINT8 : request->datatype,
                             .redop = any ? BL_SUM : request->redop};
}

int bl_fuser_add(struct bl_fuser *fuser, const struct bl_request *request, int number, struct bl_route *route) {
    const uint64_t bytes = fusable_bytes(fuser->table, request);
    if (!bytes) return BL_FUSE_BEGINS;
    const struct bl_batch kind = kind_of(request);
    struct bl_fuser_open *open = &fuser->open[kind.collective][kind.datatype][kind.redop];
    const struct bl_batch joined = {.collective = kind.collective,
                                    .datatype = kind.datatype,
                                    .redop = kind.redop,
                                    .messages = open->messages + 1,
                                    .lines = open->lines + bl_lines_of(bytes)};
    const int before = open->last;
    open->last = number;
    if (open->messages && joined.messages <= BL_BATCH_MAX && bl_table_select_batch(fuser->table, &joined, route)) {
        open->messages = joined.messages;
        open->lines = joined.lines;
        return before;
    }
    open->messages = 1;
    open->lines = bl_lines_of(bytes);
    return BL_FUSE_BEGINS;
}

/* --- groups that NCCL does better --- */

/* Of 64 calls, 3 and 4 ranks, thresholds that end at 256 and 512 KB: where a launch held 1 to 3 of them, NCCL took 0.33 to 1.1 times as long as
 * Beeline, where it held 7 and more 0.9 to 8 times (docs/benchmarks/h100-x4-2026-11-27.md).  Fewer calls, and larger launches, were not measured. */
enum { FEW = 6 };
static const uint64_t LAUNCH_BYTES = 512 << 10;

/* Of what has a batch; messages between two and what has roots go by limits of their own. */
static bool is_tallied(const struct bl_request *request) {
    const enum bl_collective collective = request->collective;
    const bool all_to_all = bl_collective_has(collective, BL_GATHERS) && bl_collective_has(collective, BL_SCATTERS);
    return !bl_collective_has(collective, BL_ROOTED | BL_PAIRED) && !all_to_all;
}

void bl_tally_add(struct bl_tally *tally, const struct bl_request *request) {
    if (!is_tallied(request)) return;
    const struct bl_batch kind = kind_of(request);
    struct bl_batch *all = &tally->of[kind.collective][kind.datatype][kind.redop];
    const uint32_t messages = all->messages + 1;
    const uint64_t lines = all->lines + bl_lines_of(request->count * bl_datatype_size(request->datatype));
    *all = kind;
    all->messages = messages;
    all->lines = lines;
}

/* The thresholds' last bytes where NCCL is tuned for more and a launch holds them; 0: there is no such limit, or a user has a say in it. */
static uint64_t last_bytes(const struct bl_table *table, const struct bl_batch *batch) {
    const struct bl_range *range = table->range[batch->collective];
    uint64_t last = 0;
    for (const struct bl_range *end = range + table->ranges[batch->collective]; range < end; range++) {
        if (range->algorithm == BL_ROUTE_NCCL) return range->reason == BL_REASON_NCCL_TUNED ? last : 0;
        if (range->reason != BL_REASON_TUNED) return 0;
        const bool held = carries(table, &bl_algorithms[range->algorithm], batch, range->max_bytes);
        last = held ? range->max_bytes : 0;
    }
    return 0;
}

static bool ends_low(uint64_t last) {
    return last > 0 && last <= LAUNCH_BYTES;
}

bool bl_table_may_leave(const struct bl_table *table) {
    bool low = false;
    for (int c = 0; c < BL_COLLECTIVES && !low; c++) {
        const struct bl_request any = {.collective = (enum bl_collective)c, .datatype = BL_UINT8};
        const struct bl_batch kind = kind_of(&any);
        low = is_tallied(&any) && ends_low(last_bytes(table, &kind));
    }
    return low;
}

bool bl_table_leaves_group(const struct bl_table *table, const struct bl_tally *tally,
                           const struct bl_request *request) {
    if (!is_tallied(request)) return false;
    const struct bl_batch kind = kind_of(request), *all = &tally->of[kind.collective][kind.datatype][kind.redop];
    if (all->messages < BL_GROUP_LEAST || !fusable_bytes(table, request)) return false;
    const uint64_t last = last_bytes(table, all), mean = all->lines * BL_LINE_DATA / all->messages;
    return ends_low(last) && FEW * mean > last;
}
