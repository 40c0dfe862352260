/* mix.c - which launches of a group, each of one collective, go out as one of several: the pure part.
 *
 * A launch takes 2.5 to 3.5 us while its messages are short, whatever it carries.  Of longer ones kernels of their own are faster, which share the
 * grid out for them. */
#include "dispatch.h"

/* Lines that a group of eight lanes may have, one after the other; and those of blocks of all ranks, counted once for each peer, for each launch that is
 * saved, since all-gathers and reduce-scatters have kernels of their own for much.  Eight of both of 32 KB between 4 ranks (12) took 13.8 us in one launch and 12.3
 * in two, of 64 KB between 3 (12) 16.2 and 13.7, between 2 of 128 KB (8) 14.2 and 20.3 (H200: docs/benchmarks/h200-x4-2026-11-28-lines.md). */
enum { ROUNDS = 9, BLOCKS_SAVED = 10, LINE_LANES = 8 };

void bl_mix_begin(struct bl_mix *mix, const struct bl_table *table) {
    *mix = (struct bl_mix){.table = table};
    bl_mixed_begin(&mix->has, table->nranks);
}

/* By lines through the staging: what needs the switch, or copy engines, stays with them, and what the user has chosen. */
static bool is_mixed(const struct bl_request *request, const struct bl_route *route) {
    return bl_mixed_has(request->collective) && !bl_kernel_multicast(route->kernel) &&
           route->kernel != BL_KERNEL_ALLGATHER_CE && route->why != BL_REASON_FORCED && route->why != BL_REASON_SAID;
}

/* Whether it reduces, if at all, as those before it. */
static bool reduces_alike(struct bl_mix *mix, const struct bl_request *request) {
    if (!bl_collective_has(request->collective, BL_REDUCES)) return true;
    if (mix->reduces) return request->datatype == mix->datatype && request->redop == mix->redop;
    mix->reduces = true;
    mix->datatype = request->datatype;
    mix->redop = request->redop;
    return true;
}

bool bl_mix_add(struct bl_mix *mix, const struct bl_request *request, const struct bl_route *route) {
    const uint64_t bytes = bl_fusable_bytes(mix->table, request);
    if (!bytes || !is_mixed(request, route) || !reduces_alike(mix, request)) return false;
    mix->collectives |= 1u << request->collective;
    const uint64_t before = mix->has.lines;
    bl_mixed_count(&mix->has, (int)request->collective, (unsigned)request->root, bytes);
    if (bl_collective_has(request->collective, BL_GATHERS | BL_SCATTERS)) mix->block_lines += mix->has.lines - before;
    return true;
}

/* Of lanes, in the largest grid. */
static uint64_t groups_of(const struct bl_table *table) {
    return (uint64_t)table->most_blocks * table->most_threads / LINE_LANES;
}

bool bl_mix_fits(const struct bl_mix *mix) {
    const struct bl_table *table = mix->table;
    return mix->has.messages <= BL_BATCH_MAX && mix->has.lines <= ROUNDS * groups_of(table) &&
           bl_mixed_span(&mix->has) * BL_FLAGGED_DATA <=
               bl_kernel_capacity(BL_KERNEL_MIXED_LL128_BATCH, table->nranks, &table->layout);
}

bool bl_mix_pays(const struct bl_mix *mix) {
    const int saved = __builtin_popcount(mix->collectives) - 1; /* launches: of each collective there would be one */
    return saved > 0 && mix->block_lines * (uint64_t)(mix->table->nranks - 1) <=
                            BLOCKS_SAVED * (uint64_t)saved * groups_of(mix->table);
}

void bl_mix_route(const struct bl_mix *mix, struct bl_route *route) {
    route->kernel = BL_KERNEL_MIXED_LL128_BATCH;
    route->threads = mix->table->most_threads;
    route->blocks = bl_kernel_blocks(route->kernel, mix->table->nranks, mix->has.lines * BL_FLAGGED_DATA,
                                     route->threads, mix->table->most_blocks);
}
