/* contents.c - what a finished table holds: whether it can be used, what its routes need, and the same in words. */
#include <stdio.h>
#include <string.h>

#include "dispatch.h"

bool bl_table_valid(const struct bl_table *table) {
    if (table->nranks < 2 || table->nranks > BL_MAX_RANKS) return false;
    if (!memchr(table->section, 0, sizeof table->section)) return false;
    if (!table->most_blocks || table->most_blocks > BL_MAX_BLOCKS) return false;
    if (!table->most_threads || table->most_threads > BL_MAX_THREADS || table->most_threads % 32) return false;
    for (int c = 0; c < BL_COLLECTIVES; c++) {
        unsigned n = table->ranges[c];
        if (!memchr(table->source[c], 0, sizeof table->source[c])) return false;
        if (!n || n > BL_MAX_RANGES) return false;
        for (unsigned i = 0; i < n; i++) {
            const struct bl_range *range = &table->range[c][i];
            if (range->reason >= BL_REASONS) return false;
            if (range->algorithm == BL_ROUTE_NCCL) continue;
            if (range->algorithm < 0 || range->algorithm >= bl_algorithm_count) return false;
            if (bl_algorithms[range->algorithm].collective != (enum bl_collective)c) return false;
            if (range->spread >= BL_SPREADS || bl_range_kernel(range) == BL_KERNEL_NONE) return false;
            const unsigned least = bl_kernel_threads(bl_range_kernel(range), table->nranks, 0);
            if (range->threads < least || range->threads > BL_MAX_THREADS || range->threads % 32) return false;
            if (!range->max_blocks || range->max_blocks > BL_MAX_BLOCKS) return false;
        }
        const struct bl_range *last = &table->range[c][n - 1];
        if (last->algorithm != BL_ROUTE_NCCL || last->max_bytes != UINT64_MAX) return false;
    }
    return true;
}

static void raise_to(uint64_t *bytes, uint64_t most) {
    if (*bytes < most) *bytes = most;
}

void bl_table_uses(const struct bl_table *table, uint64_t bytes[BL_KERNELS]) {
    for (int c = 0; c < BL_COLLECTIVES; c++)
        for (unsigned i = 0; i < table->ranges[c]; i++) {
            const struct bl_range *range = &table->range[c][i];
            if (range->algorithm == BL_ROUTE_NCCL) continue;
            const struct bl_algorithm *algorithm = &bl_algorithms[range->algorithm];
            const uint64_t reach = bl_range_batch_reach(table, c, range);
            raise_to(&bytes[bl_range_kernel(range)], range->max_bytes);
            if (!table->fuse_max) continue;
            if (algorithm->batch != BL_KERNEL_NONE) raise_to(&bytes[algorithm->batch], reach);
            if (algorithm->few != BL_KERNEL_NONE) raise_to(&bytes[algorithm->few], reach);
        }
}

static const char *name_of(const struct bl_range *range) {
    return range->algorithm == BL_ROUTE_NCCL ? "nccl" : bl_kernel_name(bl_range_kernel(range));
}

/* The next range that serves more than what comes before it; NULL: there is none. */
static const struct bl_range *next_range(const struct bl_table *table, enum bl_collective collective, unsigned *i,
                                         uint64_t reached) {
    while (*i < table->ranges[collective]) {
        const struct bl_range *range = &table->range[collective][(*i)++];
        if (range->max_bytes > reached) return range;
    }
    return NULL;
}

void bl_table_describe(const struct bl_table *table, enum bl_collective collective, char *text, size_t size) {
    size_t used = 0;
    unsigned i = 0;

    if (!size) return;
    text[0] = 0;
    for (const struct bl_range *range = next_range(table, collective, &i, 0), *next; range && used < size;
         range = next) {
        char bytes[32] = "";
        next = next_range(table, collective, &i, range->max_bytes);
        if (next && !strcmp(name_of(range), name_of(next))) continue; /* they differ in blocks or threads */
        if (range->max_bytes != UINT64_MAX) bl_size_format(range->max_bytes, bytes, sizeof bytes);
        used += snprintf(text + used, size - used, "%s..%s %s", used ? " | " : "0", bytes, name_of(range));
    }
}
