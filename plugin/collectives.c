/* collectives.c - the entry points of the collectives that Beeline may serve, and the turn-taking around all others.
 *
 * The route of a call is a pure function of what is equal on all ranks; see bl_table_select.  What NCCL would refuse (a
 * NULL buffer, an unknown datatype) goes to NCCL, so that the caller gets NCCL's own error. */
#include "export.h"
#include "group.h"
#include "launch.h"
#include "log.h"
#include "real.h"
#include "serve.h"
#include "switch.h"
#include "turn.h"

/* At INFO: one line the first time that a route is taken, or refused for a new reason. */
static void tell_route(struct bl_comm *comm, const struct bl_call *call) {
    const struct bl_route *route = &call->route;
    const struct bl_request *request = &call->request;
    unsigned bit = route->algorithm == BL_ROUTE_NCCL ? (unsigned)route->why : (unsigned)(BL_REASONS + route->algorithm);
    uint64_t *told = &comm->told[request->collective];
    if (!bl_log_enabled(BL_LOG_INFO) || bit >= 64 || *told >> bit & 1) return;
    *told |= UINT64_C(1) << bit;
    bl_log(BL_LOG_INFO, "communicator %016llx rank %d: %s of %llu %s %s goes to %s: %s", (unsigned long long)comm->id,
           comm->rank, bl_collective_name(request->collective), (unsigned long long)request->count,
           bl_datatype_name(request->datatype), bl_redop_name(request->redop),
           route->algorithm == BL_ROUTE_NCCL ? "nccl" : bl_algorithms[route->algorithm].name, route->reason);
}

/* What is not read or written need not be there. */
static bool has_buffers(const struct bl_call *call) {
    const struct bl_request *request = &call->request;
    const bool root = request->root == call->comm->rank;
    return (call->sendbuff || (request->collective == BL_BROADCAST && !root)) &&
           (call->recvbuff || (request->collective == BL_REDUCE && !root));
}

static bool is_active(const struct bl_comm *comm) {
    return atomic_load_explicit(&comm->active, memory_order_acquire);
}

/* True if the call is Beeline's, with its result in *result; else it is the real NCCL's. */
static bool serve(struct bl_call *call, ncclResult_t *result) {
    struct bl_comm *comm = call->comm;
    if (!is_active(comm)) {
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

/* The forwarded call that this thread is in. */
static _Thread_local struct {
    struct bl_comm *comm; /* NULL: Beeline has nothing to do with it */
    struct bl_order_turn turn;
    CUstreamCaptureMode mode; /* the thread's own */
    bool counted;             /* switch.h */
} forwarding;

/* NCCL connects ranks at the first call that needs it, by calls of the driver that captures forbid.  Of a program that warms up
 * before it captures, it may be a captured one that is NCCL's first, since those before were Beeline's. */
ncclResult_t bl_forward_known_before(struct bl_comm *comm, cudaStream_t stream) {
    const bool known = comm && (is_active(comm) || atomic_load_explicit(&comm->bystander, memory_order_acquire));
    forwarding.comm = known ? comm : NULL;
    forwarding.counted = comm && comm->turnout.counted;
    if (comm) comm->turnout.counted = false;
    const ncclResult_t result = known ? bl_turn_begin(comm, stream, &forwarding.turn) : ncclSuccess;
    if (result != ncclSuccess && bl_group_open()) bl_group_fail(result);
    if (result != ncclSuccess && forwarding.counted) bl_switch_refused(comm);
    if (result == ncclSuccess && known) forwarding.mode = bl_driver_relax();
    return result;
}

ncclResult_t bl_forward_before(ncclComm_t handle, cudaStream_t stream) {
    return bl_forward_known_before(bl_comm_find(handle), stream);
}

/* In a group the call's turn ends with the group. */
void bl_forward_after(cudaStream_t stream, ncclResult_t result) {
    struct bl_comm *comm = forwarding.comm;
    const bool made = result == ncclSuccess || result == ncclInProgress;
    if (!comm) return;
    bl_driver_unrelax(forwarding.mode);
    if (!made && forwarding.counted) bl_switch_refused(comm);
    if (!bl_group_open() || !made)
        bl_turn_end(comm, stream, &forwarding.turn, result);
    else if (bl_group_add_forwarded(comm, stream, &forwarding.turn) != ncclSuccess)
        bl_group_fail(ncclSystemError);
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

BL_EXPORT ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                     ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    struct bl_comm *known;
    ncclResult_t result;
    if (bl_serve_call(BL_ALLREDUCE, sendbuff, recvbuff, count, datatype, op, 0, comm, stream, &known, &result))
        return result;
    return BL_IN_TURN(known, stream, ncclAllReduce, sendbuff, recvbuff, count, datatype, op, comm, stream);
}

BL_EXPORT ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                                     ncclComm_t comm, cudaStream_t stream) {
    struct bl_comm *known;
    ncclResult_t result;
    if (bl_serve_call(BL_ALLGATHER, sendbuff, recvbuff, sendcount, datatype, ncclSum, 0, comm, stream, &known, &result))
        return result;
    return BL_IN_TURN(known, stream, ncclAllGather, sendbuff, recvbuff, sendcount, datatype, comm, stream);
}

BL_EXPORT ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                         ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                         cudaStream_t stream) {
    struct bl_comm *known;
    ncclResult_t result;
    if (bl_serve_call(BL_REDUCESCATTER, sendbuff, recvbuff, recvcount, datatype, op, 0, comm, stream, &known, &result))
        return result;
    return BL_IN_TURN(known, stream, ncclReduceScatter, sendbuff, recvbuff, recvcount, datatype, op, comm, stream);
}

BL_EXPORT ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                    ncclComm_t comm, cudaStream_t stream) {
    struct bl_comm *known;
    ncclResult_t result;
    if (bl_serve_call(BL_ALLTOALL, sendbuff, recvbuff, count, datatype, ncclSum, 0, comm, stream, &known, &result))
        return result;
    return BL_IN_TURN(known, stream, ncclAlltoAll, sendbuff, recvbuff, count, datatype, comm, stream);
}

BL_EXPORT ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                     int root, ncclComm_t comm, cudaStream_t stream) {
    struct bl_comm *known;
    ncclResult_t result;
    if (bl_serve_call(BL_BROADCAST, sendbuff, recvbuff, count, datatype, ncclSum, root, comm, stream, &known, &result))
        return result;
    return BL_IN_TURN(known, stream, ncclBroadcast, sendbuff, recvbuff, count, datatype, root, comm, stream);
}

BL_EXPORT ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                                 cudaStream_t stream) {
    struct bl_comm *known;
    ncclResult_t result;
    if (bl_serve_call(BL_BROADCAST, buff, buff, count, datatype, ncclSum, root, comm, stream, &known, &result))
        return result;
    return BL_IN_TURN(known, stream, ncclBcast, buff, count, datatype, root, comm, stream);
}

BL_EXPORT ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                  ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
    struct bl_comm *known;
    ncclResult_t result;
    if (bl_serve_call(BL_REDUCE, sendbuff, recvbuff, count, datatype, op, root, comm, stream, &known, &result))
        return result;
    return BL_IN_TURN(known, stream, ncclReduce, sendbuff, recvbuff, count, datatype, op, root, comm, stream);
}
