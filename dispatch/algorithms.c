/* algorithms.c - the table of algorithms, in order of preference, and look-ups by name. */
#include <string.h>

#include "dispatch.h"

/* Packets and lines rely on a store of 16 bytes, or of a warp's line, arriving whole: NVLink keeps that, PCIe need not.
 */
#define PUSH      (BL_CAP_P2P | BL_CAP_NVLINK)
#define MULTICAST (PUSH | BL_CAP_MULTICAST)

const struct bl_algorithm bl_algorithms[] = {
    {"oneshot_ll", BL_ALLREDUCE, BL_KERNEL_ALLREDUCE_ONESHOT_LL, 2, 16, PUSH, .to_each_peer = true, .batch = -1},
    {"oneshot_ll128", BL_ALLREDUCE, BL_KERNEL_ALLREDUCE_ONESHOT_LL128, 2, 16, PUSH, .to_each_peer = true,
     .batch = BL_KERNEL_ALLREDUCE_ONESHOT_LL128_BATCH},
    {"twoshot_ll128", BL_ALLREDUCE, BL_KERNEL_ALLREDUCE_TWOSHOT_LL128, 2, 16, PUSH,
     .batch = BL_KERNEL_ALLREDUCE_TWOSHOT_LL128_BATCH},
    {"oneshot_ll128_warps", BL_ALLREDUCE, BL_KERNEL_ALLREDUCE_ONESHOT_LL128_WARPS, 2, 16, PUSH, .to_each_peer = true,
     .batch = BL_KERNEL_ALLREDUCE_ONESHOT_LL128_BATCH},
    {"twoshot_ll128_warps", BL_ALLREDUCE, BL_KERNEL_ALLREDUCE_TWOSHOT_LL128_WARPS, 2, 16, PUSH,
     .batch = BL_KERNEL_ALLREDUCE_TWOSHOT_LL128_BATCH},
    {"oneshot_nvls", BL_ALLREDUCE, BL_KERNEL_ALLREDUCE_ONESHOT_NVLS, 2, 16, MULTICAST, .to_each_peer = true,
     .batch = -1},
    {"twoshot_nvls", BL_ALLREDUCE, BL_KERNEL_ALLREDUCE_TWOSHOT_NVLS, 2, 16, MULTICAST, .by_switch = true, .batch = -1},
    {"allgather_ll128", BL_ALLGATHER, BL_KERNEL_ALLGATHER_LL128, 2, 16, PUSH, .batch = BL_KERNEL_ALLGATHER_LL128_BATCH},
    {"allgather_ll128_warps", BL_ALLGATHER, BL_KERNEL_ALLGATHER_LL128_WARPS, 2, 16, PUSH,
     .batch = BL_KERNEL_ALLGATHER_LL128_BATCH},
    {"allgather_ce", BL_ALLGATHER, BL_KERNEL_ALLGATHER_CE, 2, 16, PUSH, .batch = -1},
    {"allgather_nvls", BL_ALLGATHER, BL_KERNEL_ALLGATHER_NVLS, 2, 16, MULTICAST, .batch = -1},
    {"reducescatter_ll128", BL_REDUCESCATTER, BL_KERNEL_REDUCESCATTER_LL128, 2, 16, PUSH,
     .batch = BL_KERNEL_REDUCESCATTER_LL128_BATCH},
    {"reducescatter_ll128_warps", BL_REDUCESCATTER, BL_KERNEL_REDUCESCATTER_LL128_WARPS, 2, 16, PUSH,
     .batch = BL_KERNEL_REDUCESCATTER_LL128_BATCH},
    {"reducescatter_nvls", BL_REDUCESCATTER, BL_KERNEL_REDUCESCATTER_NVLS, 2, 16, MULTICAST, .by_switch = true,
     .batch = -1},
    {"alltoall_ll128", BL_ALLTOALL, BL_KERNEL_ALLTOALL_LL128, 2, 16, PUSH, .batch = -1},
    {"alltoall_ll128_warps", BL_ALLTOALL, BL_KERNEL_ALLTOALL_LL128_WARPS, 2, 16, PUSH, .batch = -1},
    {"broadcast_ll128", BL_BROADCAST, BL_KERNEL_BROADCAST_LL128, 2, 16, PUSH, .to_each_peer = true, .batch = -1},
    {"reduce_ll128", BL_REDUCE, BL_KERNEL_REDUCE_LL128, 2, 16, PUSH, .to_each_peer = true, .batch = -1},
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
    return BL_NO_ALGORITHM;
}
