#include "beeline.h"

#include "entry.h"

BL_EXPORT const char *beelineRouteOf(ncclComm_t handle, int collective, size_t count, int datatype, int op) {
    struct bl_comm *comm = bl_comm_find(handle);
    if (!comm || !bl_comm_active(comm)) return "nccl";
    if (collective < 0 || collective >= BL_COLLECTIVES) return "nccl";
    struct bl_request request = {
        .collective = (enum bl_collective)collective, .count = count, .datatype = datatype, .redop = op};
    struct bl_route route;
    bl_table_select(&comm->table, &request, &route);
    return route.algorithm == BL_ROUTE_NCCL ? "nccl" : bl_kernel_name(route.kernel);
}
