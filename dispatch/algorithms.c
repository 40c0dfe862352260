/* algorithms.c - the rows of kernels/algorithms.def as a table, and look-ups by name. */
#include <stdio.h>
#include <string.h>

#include "dispatch.h"

const struct bl_algorithm bl_algorithms[] = {
#define BL_ALGORITHM(KERNEL, symbol, name, collective, share, instances, warps, batch, traits)                         \
    {#name,                                                                                                            \
     BL_##collective,                                                                                                  \
     {BL_KERNEL_##KERNEL, BL_IF_##warps(BL_KERNEL_NONE, BL_KERNEL_##KERNEL##_WARPS)},                                  \
     BL_IF_##batch(BL_KERNEL_NONE, BL_KERNEL_##KERNEL##_BATCH),                                                        \
     BL_FEW_##batch(BL_KERNEL_NONE, BL_KERNEL_##KERNEL##_FEW),                                                         \
     traits},
#include "algorithms.def"
};
const int bl_algorithm_count = sizeof bl_algorithms / sizeof *bl_algorithms;

int bl_algorithm_find(enum bl_collective collective, const char *name) {
    if (!strcmp(name, "nccl")) return BL_ROUTE_NCCL;
    for (int i = 0; i < bl_algorithm_count; i++)
        if (bl_algorithms[i].collective == collective && !strcmp(bl_algorithms[i].name, name)) return i;
    return BL_NO_ALGORITHM;
}

void bl_algorithm_list(enum bl_collective collective, char *text, size_t size) {
    size_t used = 0;
    for (int i = 0; i < bl_algorithm_count && used < size; i++)
        if (bl_algorithms[i].collective == collective)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", bl_algorithms[i].name);
}

int bl_spread_find(const char *name) {
    static const char *const names[BL_SPREADS] = {[BL_BY_LINES] = "lines", [BL_BY_WARPS] = "warps"};
    int spread = 0;
    while (spread < BL_SPREADS && strcmp(names[spread], name) != 0) spread++;
    return spread < BL_SPREADS ? spread : BL_NO_SPREAD;
}
