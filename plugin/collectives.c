/* collectives.c - the entry points of the collectives that Beeline may serve, and the turn-taking around all others.
 *
 * The route of a call is a pure function of what is equal on all ranks; see bl_table_select.  What NCCL would refuse (a
 * NULL buffer, an unknown datatype) goes to NCCL, so that the caller gets NCCL's own error. */
#include "export.h"
#include "forward.h"
#include "group.h"
#include "launch.h"
#include "log.h"
#include "real.h"

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

/* True if the call is Beeline's, with its result in *result; else it is the real NCCL's. */
static bool serve(struct bl_call *call, ncclResult_t *result) {
    struct bl_comm *comm = call->comm;
    if (!atomic_load_explicit(&comm->active, memory_order_acquire)) {
        *result = (ncclResult_t)atomic_load_explicit(&comm->async_error, memory_order_acquire);
        return *result != ncclSuccess;
    }
    *result = bl_comm_check(comm);
    if (*result != ncclSuccess) return true;
    bl_table_select(&comm->table, &call->request, &call->route);
    tell_route(comm, call);
    const bool ours = call->route.algorithm != BL_ROUTE_NCCL && has_buffers(call);
    const unsigned row = ours ? call->route.kernel : BL_KERNELS;
    comm->calls[row]++;
    comm->bytes[row] += call->request.count * bl_datatype_size(call->request.datatype);
    if (!ours) return false;
    *result = bl_group_open() ? bl_group_add_call(call) : bl_launch(call);
    return true;
}

static struct bl_comm *comm_of_call(ncclComm_t handle) {
    struct bl_comm *comm = bl_real_depth == 0 ? bl_comm_find(handle) : NULL;
    return comm && atomic_load_explicit(&comm->active, memory_order_acquire) ? comm : NULL;
}

/* The turn of the forwarded call that this thread is in. */
static _Thread_local struct bl_order_turn forward_turn;

ncclResult_t bl_forward_before(ncclComm_t handle, cudaStream_t stream) {
    struct bl_comm *comm = comm_of_call(handle);
    ncclResult_t result = comm ? bl_forward_begin(comm, stream, &forward_turn) : ncclSuccess;
    if (result != ncclSuccess && bl_group_open()) bl_group_fail(result);
    return result;
}

/* In a group the call's turn ends with the group. */
void bl_forward_after(ncclComm_t handle, cudaStream_t stream, ncclResult_t result) {
    struct bl_comm *comm = result == ncclSuccess || result == ncclInProgress ? comm_of_call(handle) : NULL;
    if (!comm) return;
    if (bl_group_open())
        bl_group_add_forwarded(comm, stream, &forward_turn);
    else
        bl_forward_end(comm, stream, &forward_turn, result);
}

/* The real function called in turn; an error of the turn-taking before it is the result. */
#define FORWARD_IN_TURN(comm, stream, ...)                                                                             \
    __extension__({                                                                                                    \
        ncclResult_t forwarded_ = bl_forward_before(comm, stream);                                                     \
        if (forwarded_ == ncclSuccess) {                                                                               \
            forwarded_ = BL_REAL(__VA_ARGS__);                                                                         \
            bl_forward_after(comm, stream, forwarded_);                                                                \
        }                                                                                                              \
        forwarded_;                                                                                                    \
    })

static bool serve_call(enum bl_collective collective, const void *sendbuff, void *recvbuff, size_t count,
                       ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t handle, cudaStream_t stream,
                       ncclResult_t *result) {
    if (bl_real_depth > 0) return false;
    struct bl_comm *comm = bl_comm_find(handle);
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
    ncclResult_t result;
    if (serve_call(BL_ALLREDUCE, sendbuff, recvbuff, count, datatype, op, 0, comm, stream, &result)) return result;
    return FORWARD_IN_TURN(comm, stream, ncclAllReduce, sendbuff, recvbuff, count, datatype, op, comm, stream);
}

BL_EXPORT ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                                     ncclComm_t comm, cudaStream_t stream) {
    ncclResult_t result;
    if (serve_call(BL_ALLGATHER, sendbuff, recvbuff, sendcount, datatype, ncclSum, 0, comm, stream, &result))
        return result;
    return FORWARD_IN_TURN(comm, stream, ncclAllGather, sendbuff, recvbuff, sendcount, datatype, comm, stream);
}

BL_EXPORT ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                         ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                         cudaStream_t stream) {
    ncclResult_t result;
    if (serve_call(BL_REDUCESCATTER, sendbuff, recvbuff, recvcount, datatype, op, 0, comm, stream, &result))
        return result;
    return FORWARD_IN_TURN(comm, stream, ncclReduceScatter, sendbuff, recvbuff, recvcount, datatype, op, comm, stream);
}

#ifdef BL_HAVE_ncclAlltoAll
BL_EXPORT ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                    ncclComm_t comm, cudaStream_t stream) {
    ncclResult_t result;
    if (serve_call(BL_ALLTOALL, sendbuff, recvbuff, count, datatype, ncclSum, 0, comm, stream, &result)) return result;
    return FORWARD_IN_TURN(comm, stream, ncclAlltoAll, sendbuff, recvbuff, count, datatype, comm, stream);
}
#endif

BL_EXPORT ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                     int root, ncclComm_t comm, cudaStream_t stream) {
    ncclResult_t result;
    if (serve_call(BL_BROADCAST, sendbuff, recvbuff, count, datatype, ncclSum, root, comm, stream, &result))
        return result;
    return FORWARD_IN_TURN(comm, stream, ncclBroadcast, sendbuff, recvbuff, count, datatype, root, comm, stream);
}

BL_EXPORT ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                                 cudaStream_t stream) {
    ncclResult_t result;
    if (serve_call(BL_BROADCAST, buff, buff, count, datatype, ncclSum, root, comm, stream, &result)) return result;
    return FORWARD_IN_TURN(comm, stream, ncclBcast, buff, count, datatype, root, comm, stream);
}

BL_EXPORT ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                  ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
    ncclResult_t result;
    if (serve_call(BL_REDUCE, sendbuff, recvbuff, count, datatype, op, root, comm, stream, &result)) return result;
    return FORWARD_IN_TURN(comm, stream, ncclReduce, sendbuff, recvbuff, count, datatype, op, root, comm, stream);
}
