/* together.c - whether the real NCCL has all of what a group has of one collective: the pure part of plugin/nccl/together.h.
 *
 * NCCL has a whole group in one kernel, Beeline launch behind launch: so the larger the group, the less it gains.  Measured with groups of 2 to 64 calls of
 * 4 KB to 4 MB on 4, 3 and 2 H100 and H200: docs/benchmarks/h200-x4-2026-11-28-groups.md. */
#include "dispatch.h"

/* Up to so many bytes of a group's calls, counted as in a call; 0: whatever they have.  Below, all but a few groups are faster than with NCCL; above,
 * they take up to 1.4 times as long. */
static const uint64_t most_bytes[BL_COLLECTIVES] = {
    [BL_ALLREDUCE] = 24 << 20, [BL_ALLGATHER] = 8 << 20, [BL_REDUCESCATTER] = 6 << 20};

/* So many go with larger ones, at most: with 8 of 16 KB to 256 KB beside 64 MB NCCL takes 0.97 to 1.0 of the time of both, from 12 on longer.
 * All-reduces and reduce-scatters stay beside larger ones, for their bits: few take up to 7 % longer. */
static const unsigned few[BL_COLLECTIVES] = {[BL_ALLGATHER] = 8};

void bl_together_add(struct bl_together *together, const struct bl_request *request, bool larger) {
    uint64_t bytes, *const of_root = &together->of_root[request->root];
    if (__builtin_mul_overflow(request->count, bl_datatype_size(request->datatype), &bytes)) bytes = UINT64_MAX;
    together->larger |= larger;
    if (larger) return;
    together->calls++;
    if (__builtin_add_overflow(together->bytes, bytes, &together->bytes)) together->bytes = UINT64_MAX;
    if (__builtin_add_overflow(*of_root, bytes, of_root)) *of_root = UINT64_MAX;
}

/* Where NCCL begins; 0: Beeline has nothing. */
static uint64_t end_of_ours(const struct bl_table *table, enum bl_collective collective) {
    uint64_t end = 0;
    for (uint32_t i = 0; i < table->ranges[collective]; i++)
        if (table->range[collective][i].algorithm != BL_ROUTE_NCCL) end = table->range[collective][i].max_bytes;
    return end;
}

/* A root sends to all others, or all send to it, where NCCL's ranks pass on what they get: so what counts is what the busiest has, less half of its share
 * of all.  Of one root 2 MB took as long as with NCCL, 64 MB 3.5 times as long; of four alike 16 MB half as long. */
static bool rooted_are_many(const struct bl_table *table, const struct bl_together *together) {
    uint64_t busiest = 0;
    for (int r = 0; r < table->nranks; r++)
        if (together->of_root[r] > busiest) busiest = together->of_root[r];
    return busiest - together->bytes / (uint64_t)table->nranks / 2 > end_of_ours(table, together->collective);
}

bool bl_together_is_nccls(const struct bl_table *table, const struct bl_together *together) {
    const enum bl_collective collective = together->collective;
    if (!together->calls || together->calls + together->larger < 2 || table->invariant >> collective & 1) return false;
    if (bl_collective_has(collective, BL_ROOTED)) return together->larger || rooted_are_many(table, together);
    return (together->larger && together->calls <= few[collective]) ||
           (most_bytes[collective] && together->bytes > most_bytes[collective]);
}
