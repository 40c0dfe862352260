/* algorithms.c - the table of algorithms, in order of preference, and look-ups by name. */
#include <string.h>

#include "dispatch.h"

/* Packets and lines rely on a store of 16 bytes, or of a warp's line, arriving whole: NVLink keeps that, PCIe need not.
 */
#define PUSH      (BL_CAP_P2P | BL_CAP_NVLINK)
#define MULTICAST (PUSH | BL_CAP_MULTICAST)

const struct bl_algorithm bl_algorithms[] = {
    {"oneshot_packet", BL_ALLREDUCE, BL_KERNEL_ALLREDUCE_ONESHOT_PACKET, 2, 16, PUSH, .to_each_peer = true,
     .batch = -1},
    {"oneshot_line", BL_ALLREDUCE, BL_KERNEL_ALLREDUCE_ONESHOT_LINE, 2, 16, PUSH, .to_each_peer = true,
     .batch = BL_KERNEL_ALLREDUCE_ONESHOT_LINE_BATCH},
    {"twoshot_line", BL_ALLREDUCE, BL_KERNEL_ALLREDUCE_TWOSHOT_LINE, 2, 16, PUSH,
     .batch = BL_KERNEL_ALLREDUCE_TWOSHOT_LINE_BATCH},
    {"oneshot_team", BL_ALLREDUCE, BL_KERNEL_ALLREDUCE_ONESHOT_TEAM, 2, 16, PUSH, .to_each_peer = true,
     .batch = BL_KERNEL_ALLREDUCE_ONESHOT_LINE_BATCH},
    {"twoshot_team", BL_ALLREDUCE, BL_KERNEL_ALLREDUCE_TWOSHOT_TEAM, 2, 16, PUSH,
     .batch = BL_KERNEL_ALLREDUCE_TWOSHOT_LINE_BATCH},
    {"oneshot_multicast", BL_ALLREDUCE, BL_KERNEL_ALLREDUCE_ONESHOT_MULTICAST, 2, 16, MULTICAST, .to_each_peer = true,
     .batch = -1},
    {"twoshot_multimem", BL_ALLREDUCE, BL_KERNEL_ALLREDUCE_TWOSHOT_MULTIMEM, 2, 16, MULTICAST, .by_switch = true,
     .batch = -1},
    {"gather_line", BL_ALLGATHER, BL_KERNEL_ALLGATHER_LINE, 2, 16, PUSH, .batch = BL_KERNEL_ALLGATHER_LINE_BATCH},
    {"gather_team", BL_ALLGATHER, BL_KERNEL_ALLGATHER_TEAM, 2, 16, PUSH, .batch = BL_KERNEL_ALLGATHER_LINE_BATCH},
    {"gather_copy", BL_ALLGATHER, BL_KERNEL_ALLGATHER_COPY, 2, 16, PUSH, .batch = -1},
    {"gather_multicast", BL_ALLGATHER, BL_KERNEL_ALLGATHER_MULTICAST, 2, 16, MULTICAST, .batch = -1},
    {"scatter_line", BL_REDUCESCATTER, BL_KERNEL_REDUCESCATTER_LINE, 2, 16, PUSH,
     .batch = BL_KERNEL_REDUCESCATTER_LINE_BATCH},
    {"scatter_team", BL_REDUCESCATTER, BL_KERNEL_REDUCESCATTER_TEAM, 2, 16, PUSH,
     .batch = BL_KERNEL_REDUCESCATTER_LINE_BATCH},
    {"scatter_multimem", BL_REDUCESCATTER, BL_KERNEL_REDUCESCATTER_MULTIMEM, 2, 16, MULTICAST, .by_switch = true,
     .batch = -1},
    {"exchange_line", BL_ALLTOALL, BL_KERNEL_ALLTOALL_LINE, 2, 16, PUSH, .batch = -1},
    {"exchange_team", BL_ALLTOALL, BL_KERNEL_ALLTOALL_TEAM, 2, 16, PUSH, .batch = -1},
    {"broadcast_line", BL_BROADCAST, BL_KERNEL_BROADCAST_LINE, 2, 16, PUSH, .to_each_peer = true, .batch = -1},
    {"reduce_line", BL_REDUCE, BL_KERNEL_REDUCE_LINE, 2, 16, PUSH, .to_each_peer = true, .batch = -1},
};
const int bl_algorithm_count = sizeof bl_algorithms / sizeof *bl_algorithms;

static const char *const collective_names[BL_COLLECTIVES] = {
    [BL_ALLREDUCE] = "all_reduce", [BL_ALLGATHER] = "all_gather", [BL_REDUCESCATTER] = "reduce_scatter",
    [BL_ALLTOALL] = "all_to_all",  [BL_BROADCAST] = "broadcast",  [BL_REDUCE] = "reduce",
};

const char *bl_collective_name(enum bl_collective collective) {
    return (unsigned)collective < BL_COLLECTIVES ? collective_names[collective] : "?";
}

int bl_algorithm_find(enum bl_collective collective, const char *name) {
    if (!strcmp(name, "nccl")) return BL_ROUTE_NCCL;
    for (int i = 0; i < bl_algorithm_count; i++)
        if (bl_algorithms[i].collective == collective && !strcmp(bl_algorithms[i].name, name)) return i;
    return -2;
}
