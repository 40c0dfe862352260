#include "beeline.h"

#include "base/params.h"
#include "base/version.h"
#include "entry.h"
#include "setup/resources.h"

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

BL_EXPORT const char *beelineLeftWhy(ncclComm_t handle) {
    struct bl_comm *comm = bl_comm_find(handle);
    if (!bl_params()->enable) return "BEELINE_ENABLE=0";
    if (!comm) return "Beeline does not know it";
    if (bl_comm_active(comm)) return NULL;
    const char *why = comm->resources->left_why;
    const bool told = atomic_load(&comm->resources->stage) == BL_STAGE_DONE && *why;
    return told ? why : "it is suspended, or being made or ended";
}

BL_EXPORT const char *beelineSectionOf(ncclComm_t handle) {
    struct bl_comm *comm = bl_comm_find(handle);
    return comm && bl_comm_active(comm) ? comm->table.section : NULL;
}

BL_EXPORT const char *beelineBuild(void) {
    return bl_build_name;
}
