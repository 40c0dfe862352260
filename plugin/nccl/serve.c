/* serve.c - see serve.h. */
#include "serve.h"

#include "base/log.h"
#include "comm/switch.h"
#include "group.h"
#include "launch/launch.h"
#include "launch/turn.h"

/* At INFO: one line the first time that a route is taken, or refused for a new reason. */
static void tell_route(struct bl_comm *comm, const struct bl_call *call) {
    const struct bl_route *route = &call->route;
    const struct bl_request *request = &call->request;
    unsigned bit = route->algorithm == BL_ROUTE_NCCL ? (unsigned)route->why : BL_REASONS + (unsigned)route->kernel;
    uint64_t *told = &comm->told[request->collective];
    if (!bl_log_enabled(BL_LOG_INFO) || bit >= 64 || *told >> bit & 1) return;
    *told |= UINT64_C(1) << bit;
    bl_log(BL_LOG_INFO, "communicator %016llx rank %d: %s of %llu %s %s goes to %s: %s", (unsigned long long)comm->id,
           comm->rank, bl_collective_name(request->collective), (unsigned long long)request->count,
           bl_datatype_name(request->datatype), bl_redop_name(request->redop),
           route->algorithm == BL_ROUTE_NCCL ? "nccl" : bl_kernel_name(route->kernel), route->reason);
}

/* What is not read or written need not be there. */
static bool has_buffers(const struct bl_call *call) {
    const struct bl_request *request = &call->request;
    const bool root = request->root == call->comm->rank;
    return (call->sendbuff || (request->collective == BL_BROADCAST && !root)) &&
           (call->recvbuff || (request->collective == BL_REDUCE && !root));
}

/* True if the call is Beeline's, with its result in *result; else it is the real NCCL's. */
static bool serve(struct bl_call *call, ncclResult_t *result) {
    struct bl_comm *comm = call->comm;
    if (!bl_comm_active(comm)) {
        *result = (ncclResult_t)atomic_load_explicit(&comm->async_error, memory_order_acquire);
        return *result != ncclSuccess;
    }
    *result = bl_comm_check(comm);
    if (*result == ncclSuccess) *result = bl_turn_settled(comm);
    if (*result != ncclSuccess) return true;
    const bool counts = call->request.count > 0;
    if (!counts || bl_switch_serves(comm, bl_group_open()))
        bl_table_select(&comm->table, &call->request, &call->route);
    else
        call->route = (struct bl_route){
            .algorithm = BL_ROUTE_NCCL, .why = BL_REASON_SWITCH, .reason = bl_reason_text(BL_REASON_SWITCH)};
    tell_route(comm, call);
    if (call->route.algorithm == BL_ROUTE_NCCL || !has_buffers(call)) {
        comm->calls[BL_KERNELS]++;
        comm->bytes[BL_KERNELS] += call->request.count * bl_datatype_size(call->request.datatype);
        comm->turnout.counted = counts;
        return false;
    }
    *result = bl_group_open() ? bl_group_add_call(call) : bl_launch(call);
    return true;
}

bool bl_serve_call(enum bl_collective collective, const void *sendbuff, void *recvbuff, size_t count,
                   ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t handle, cudaStream_t stream,
                   struct bl_comm **known, ncclResult_t *result) {
    struct bl_comm *comm = *known = bl_real_depth == 0 ? bl_comm_find(handle) : NULL;
    if (!comm) return false;
    struct bl_call call = {.comm = comm,
                           .sendbuff = sendbuff,
                           .recvbuff = recvbuff,
                           .request = {.collective = collective,
                                       .count = count,
                                       .datatype = (int)datatype,
                                       .redop = (int)op,
                                       .root = root},
                           .stream = stream};
    bool served = serve(&call, result);
    if (served && *result != ncclSuccess && bl_group_open()) bl_group_fail(*result);
    return served;
}
