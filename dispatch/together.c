/* together.c - whether the real NCCL has all of what a group has of one collective: the pure part of plugin/nccl/together.h.
 *
 * NCCL has a whole group in one kernel, Beeline launch behind launch, so the larger the group, the less it gains.  What the figures here come from:
 * groups of 2 to 64 calls of 16 KB to 4 MB on 4, 3 and 2 H200, docs/benchmarks/h200-x4-2026-11-28-groups.md; of 2 since lines have no flags, and of
 * pieces, docs/benchmarks/h200-x2-2026-11-30.md. */
#include <limits.h>

#include "dispatch.h"

/* What of a group is Beeline's at most. */
struct limits {
    /* Of its calls by lines, counted as in a call, unless one call of as much is; 0: whatever they have, and NCCL has none. */
    uint64_t bytes[BL_COLLECTIVES];
    /* Calls that share no launch (BEELINE_FUSE_MAX), and are above ALONE; bytes of those that are all-reduces. */
    unsigned alone;
    uint64_t summed_alone;
};
static const uint64_t ALONE = 1 << 20;

/* Of two ranks 64 MB of 8 to 64 calls are 1.06 to 1.23 times as fast as with NCCL, reduce-scatters of 128 MB 1.10 to 1.24. */
static const struct limits of_two = {.bytes = {[BL_ALLREDUCE] = 64 << 20,
                                               [BL_ALLGATHER] = 64 << 20,
                                               [BL_REDUCESCATTER] = 128 << 20,
                                               [BL_BROADCAST] = 32 << 20,
                                               [BL_REDUCE] = 16 << 20},
                                     .alone = 16,
                                     .summed_alone = 64 << 20};
/* Of more, groups of 16 MB are up to 1.8 times as fast, of 32 MB some up to 1.3 times, others take 1.1 times as long; 8 launches of their own of 2 MB
 * took 0.85 to 1.0 of NCCL's time, 16 1.1 to 1.3 times as long, 8 all-reduces of 4 MB 1.0 to 1.1. */
static const struct limits of_more = {.bytes = {[BL_ALLREDUCE] = 32 << 20,
                                                [BL_ALLGATHER] = 16 << 20,
                                                [BL_REDUCESCATTER] = 16 << 20,
                                                [BL_BROADCAST] = 32 << 20,
                                                [BL_REDUCE] = 16 << 20},
                                      .alone = 8,
                                      .summed_alone = 24 << 20};

/* Calls in pieces, each faster than NCCL's by itself, however long: of two ranks 8 are up to 1.2 times as fast, and more were not measured. */
enum { MOST_IN_PIECES = 8 };

/* So many at most go with one that is NCCL's, whatever they have: with 8 all-gathers of 16 KB to 256 KB beside 64 MB NCCL takes 0.97 to 1.0 of
 * the time of both, from 12 on longer.  All-reduces and reduce-scatters do not: few take up to 7 % longer, and their bits are not to depend on so
 * little. */
static const unsigned few[BL_COLLECTIVES] = {[BL_ALLGATHER] = 8, [BL_BROADCAST] = UINT_MAX, [BL_REDUCE] = UINT_MAX};

/* Where Beeline's calls by lines end; 0: it has none. */
static uint64_t end_of_ours(const struct bl_table *table, enum bl_collective collective) {
    uint64_t end = 0;
    for (uint32_t i = 0; i < table->ranges[collective]; i++)
        if (table->range[collective][i].algorithm != BL_ROUTE_NCCL &&
            !bl_kernel_bulk(bl_range_kernel(&table->range[collective][i])))
            end = table->range[collective][i].max_bytes;
    return end;
}

void bl_together_begin(struct bl_together *together, const struct bl_table *table, enum bl_collective collective) {
    *together = (struct bl_together){.table = table, .collective = collective, .end = end_of_ours(table, collective)};
}

/* Whether two of it would be launches of their own. */
static bool is_alone(const struct bl_table *table, const struct bl_request *request, uint64_t bytes) {
    const uint64_t lines = bl_lines_of(bytes, bl_collective_line(request->collective));
    const struct bl_batch two = {
        request->collective, request->datatype,
        request->redop,      2,
        2 * lines,           bl_collective_has(request->collective, BL_ROOTED) ? lines : 2 * lines};
    struct bl_route route;
    return bytes > ALONE && (!bl_fusable_bytes(table, request) || !bl_table_select_batch(table, &two, &route));
}

void bl_together_add(struct bl_together *together, const struct bl_request *request, enum bl_kernel kernel) {
    const uint64_t bytes = request->count * bl_datatype_size(request->datatype);
    together->calls++;
    if (bl_kernel_bulk(kernel)) {
        together->in_pieces++;
        return;
    }
    if (is_alone(together->table, request, bytes)) together->alone++, together->bytes_alone += bytes;
    together->bytes += bytes;
    together->of_root[request->root] += bytes;
}

void bl_together_add_nccls(struct bl_together *together, const struct bl_request *request) {
    if (request->count * bl_datatype_size(request->datatype) > together->end) together->beside_larger = true;
}

/* Of one root all goes through that one's link, once for each other rank, where NCCL's ranks pass on what they get, so that all links carry all
 * bytes.  The difference may be twice what it is for one call.  Of one root of 4 2 MB took 0.9 of NCCL's time, 4 MB 1.3 times as long; of all
 * alike 16 MB 0.6. */
static bool is_one_roots(const struct bl_together *together) {
    const uint64_t others = (uint64_t)together->table->nranks - 1;
    uint64_t busiest = 0;
    for (int r = 0; r < together->table->nranks; r++)
        if (together->of_root[r] > busiest) busiest = together->of_root[r];
    return others * busiest > together->bytes + 2 * (others - 1) * together->end;
}

static bool is_above(uint64_t bytes, const struct bl_together *together, uint64_t most) {
    return bytes > most && bytes > together->end;
}

static const struct limits *limits_of(const struct bl_together *together) {
    return together->table->nranks == 2 ? &of_two : &of_more;
}

static bool is_much(const struct bl_together *together) {
    const enum bl_collective collective = together->collective;
    const struct limits *limits = limits_of(together);
    if (is_above(together->bytes, together, limits->bytes[collective]) || together->alone > limits->alone) return true;
    if (together->in_pieces > MOST_IN_PIECES) return true;
    if (collective == BL_ALLREDUCE) return is_above(together->bytes_alone, together, limits->summed_alone);
    return bl_collective_has(collective, BL_ROOTED) && is_one_roots(together);
}

bool bl_together_is_nccls(const struct bl_together *together) {
    const enum bl_collective collective = together->collective;
    if (!together->calls || together->calls + together->beside_larger < 2) return false;
    if (!limits_of(together)->bytes[collective] || together->table->invariant >> collective & 1) return false;
    return (together->beside_larger && together->calls <= few[collective]) || is_much(together);
}
