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

/* What a launch of several calls may have though one call of as much is NCCL's: what its ranks send to their peers, 4 MB.  NCCL has 2 us for each call of
 * a group, however small, so where thresholds end low, as those of any GPU, it would be the faster for a launch of each: 64 all-reduces of 256 KB
 * took 358 us in launches of 512 KB, 131 with NCCL, 92 in one (4 H200: docs/benchmarks/h100-x4-2026-11-27-groups.md). */
static const uint64_t BATCH_BYTES = 4 << 20;
/* But not by few blocks, which carry no more than the thresholds say. */
enum { NOT_FEW_BLOCKS = 64 };

/* Whether all above the range is NCCL's because it is faster, and for nothing else. */
static bool ends_where_nccl_is_faster(const struct bl_table *table, enum bl_collective collective,
                                      const struct bl_range *range) {
    const struct bl_range *end = table->range[collective] + table->ranges[collective], *next = range + 1;
    while (next < end && next->algorithm == BL_ROUTE_NCCL && next->reason == BL_REASON_NCCL_TUNED) next++;
    return range->reason == BL_REASON_TUNED && next == end;
}

uint64_t bl_range_batch_reach(const struct bl_table *table, enum bl_collective collective,
                              const struct bl_range *range) {
    /* Of each root as much as in one call, whose last line need not be whole. */
    const uint64_t line = bl_collective_line(collective);
    if (bl_collective_has(collective, BL_ROOTED) && range->max_bytes < UINT64_MAX - line)
        return bl_lines_of(range->max_bytes, line) * line;
    const bool for_each = bl_collective_has(collective, BL_GATHERS | BL_SCATTERS);
    const uint64_t reach = for_each ? BATCH_BYTES / (uint64_t)(table->nranks - 1) : BATCH_BYTES;
    if (bl_collective_has(collective, BL_ROOTED | BL_PAIRED) || range->max_blocks < NOT_FEW_BLOCKS ||
        !ends_where_nccl_is_faster(table, collective, range))
        return range->max_bytes;
    return range->max_bytes > reach ? range->max_bytes : reach;
}

/* Of the algorithm's rows, from `range` on, the one for as many bytes as a rank exchanges: where each is a root, for all others at once.  Its blocks are
 * right for that: three reduces of 256 KB between as many ranks took 5.9 us by blocks for one of them, 4.9 by these (4 H200:
 * docs/notebook.md). */
static const struct bl_range *row_for_all_roots(const struct bl_table *table, const struct bl_batch *batch,
                                                const struct bl_range *range, const struct bl_range *end) {
    const unsigned nranks = (unsigned)table->nranks;
    const uint64_t bytes = batch->lines * (nranks - 1) / nranks * bl_collective_line(batch->collective);
    if (!bl_collective_has(batch->collective, BL_ROOTED) || range->reason == BL_REASON_FORCED) return range;
    while (bytes > range->max_bytes && range + 1 < end && range[1].algorithm == range->algorithm) range++;
    return range;
}

bool bl_table_select_batch(const struct bl_table *table, const struct bl_batch *batch, struct bl_route *route) {
    const uint64_t line = bl_collective_line(batch->collective), bytes = batch->span * line;
    const struct bl_range *range = table->range[batch->collective];
    for (const struct bl_range *end = range + table->ranges[batch->collective]; range < end; range++) {
        const bool forced = range->reason == BL_REASON_FORCED;
        const bool reached =
            bytes <= range->max_bytes || bytes <= bl_range_batch_reach(table, batch->collective, range);
        if (!reached && !forced) continue;
        if (range->algorithm == BL_ROUTE_NCCL) return false;
        const struct bl_algorithm *algorithm = &bl_algorithms[range->algorithm];
        if (reached && carries(table, algorithm, batch, bytes)) {
            range = row_for_all_roots(table, batch, range, end);
            bl_range_route(table, range, algorithm->batch, batch->lines * line, route);
            return true;
        }
        if (forced) return false; /* what is forced carries the batch, or nothing does */
    }
    return false;
}

void bl_fuser_begin(struct bl_fuser *fuser, const struct bl_table *table) {
    memset(fuser->open, 0, sizeof fuser->open);
    fuser->table = table;
}

/* Of broadcasts and reduces, each of which fills the links one way by itself: two of 1 MB, of two roots, are worth a launch together, and of
 * larger ones the rings hold few (docs/benchmarks/h200-x2-2026-11-24.md). */
static const uint64_t MOST_ROOTED = 1 << 20;

uint64_t bl_fusable_bytes(const struct bl_table *table, const struct bl_request *request) {
    const uint64_t size = bl_datatype_size(request->datatype);
    uint64_t bytes;
    if ((unsigned)request->redop >= BL_REDOPS) return 0;
    if (__builtin_mul_overflow(request->count, size, &bytes)) return 0;
    if (bl_collective_has(request->collective, BL_ROOTED) && bytes > MOST_ROOTED) return 0;
    return bytes <= table->fuse_max ? bytes : 0;
}

int bl_fuser_add(struct bl_fuser *fuser, const struct bl_request *request, int number, struct bl_route *route) {
    const enum bl_collective collective = request->collective;
    const uint64_t bytes = bl_fusable_bytes(fuser->table, request),
                   lines = bl_lines_of(bytes, bl_collective_line(collective));
    if (!bytes) return BL_FUSE_BEGINS;
    const bool any = !bl_collective_has(collective, BL_REDUCES); /* it moves bytes, of whatever datatype */
    const bool rooted = bl_collective_has(collective, BL_ROOTED);
    const int datatype = any ? BL_UINT8 : request->datatype, redop = any ? BL_SUM : request->redop;
    struct bl_fuser_open *open = &fuser->open[collective][datatype][redop];
    uint32_t *const of_root = fuser->of_root[!any][datatype][redop];
    const uint64_t alike = !rooted ? open->span : open->messages ? of_root[request->root] : 0, grown = alike + lines;
    const struct bl_batch joined = {.collective = collective,
                                    .datatype = datatype,
                                    .redop = redop,
                                    .messages = open->messages + 1,
                                    .lines = open->lines + lines,
                                    .span = grown > open->span ? grown : open->span};
    const int before = open->last;
    const bool joins =
        open->messages && joined.messages <= BL_BATCH_MAX && bl_table_select_batch(fuser->table, &joined, route);
    open->last = number;
    open->messages = joins ? joined.messages : 1;
    open->lines = joins ? joined.lines : lines;
    open->span = joins ? joined.span : lines;
    if (rooted && !joins) memset(of_root, 0, sizeof fuser->of_root[0][0][0]);
    if (rooted) of_root[request->root] += (uint32_t)lines;
    return joins ? before : BL_FUSE_BEGINS;
}
