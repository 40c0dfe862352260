#include "serve.h"

#include "base/log.h"
#include "bits.h"
#include "comm/context.h"
#include "comm/stats.h"
#include "comm/switch.h"
#include "cuda/pointer.h"
#include "entry.h"
#include "group.h"
#include "launch/launch.h"
#include "launch/order.h"

/* Values go through as they are.  Datatypes behind these are not in every nccl.h that Beeline is built with. */
_Static_assert((int)BL_INT8 == (int)ncclInt8 && (int)BL_UINT64 == (int)ncclUint64 &&
                   (int)BL_FLOAT16 == (int)ncclFloat16 && (int)BL_FLOAT64 == (int)ncclFloat64 &&
                   (int)BL_BFLOAT16 == (int)ncclBfloat16,
               "datatypes have the values of nccl.h");
_Static_assert((int)BL_SUM == (int)ncclSum && (int)BL_PROD == (int)ncclProd && (int)BL_MAX == (int)ncclMax &&
                   (int)BL_MIN == (int)ncclMin && (int)BL_AVG == (int)ncclAvg,
               "operations have the values of nccl.h");

_Static_assert(BL_REASONS <= 64 && BL_KERNELS <= 64, "of what was logged there is a bit for each");

/* At INFO: one line the first time that a route is taken, or refused for a new reason. */
static void tell_route(struct bl_comm *comm, const struct bl_call *call) {
    const struct bl_route *route = &call->route;
    const struct bl_request *request = &call->request;
    const bool forwarded = route->algorithm == BL_ROUTE_NCCL;
    const unsigned bit = forwarded ? (unsigned)route->why : (unsigned)route->kernel;
    uint64_t *logged = &comm->logged[request->collective][forwarded];
    if (!bl_log_enabled(BL_LOG_INFO) || *logged >> bit & 1) return;
    *logged |= UINT64_C(1) << bit;
    bl_log(BL_LOG_INFO, "communicator %016llx rank %d: %s of %llu %s %s goes to %s: %s", (unsigned long long)comm->id,
           comm->rank, bl_collective_name(request->collective), (unsigned long long)request->count,
           bl_datatype_name(request->datatype), bl_redop_name(request->redop),
           route->algorithm == BL_ROUTE_NCCL ? "nccl" : bl_kernel_name(route->kernel), route->reason);
}

/* Of ranks that are not the root: what is not read, or written, need not be there. */
static bool may_lack(const struct bl_call *call, bool recvbuff) {
    const struct bl_request *request = &call->request;
    return bl_collective_has(request->collective, BL_ROOTED) && request->root != call->comm->rank &&
           bl_collective_has(request->collective, BL_REDUCES) == recvbuff;
}

/* Of a valid buffer all ranks must come to the same, whatever context the caller has, or none. */
static bool is_strange(const struct bl_comm *comm, const void *buffer) {
    if (!comm->checked || !bl_context_push(comm)) return false;
    const bool reaches = bl_pointer_reaches(buffer, comm->device);
    bl_context_pop();
    return !reaches;
}

static enum bl_reason why_not(const struct bl_comm *comm, const void *buffer) {
    if (!buffer) return BL_REASON_NO_BUFFER;
    return is_strange(comm, buffer) ? BL_REASON_STRANGE_BUFFER : BL_REASONS;
}

/* For what NCCL would refuse one of its buffers; BL_REASONS: for nothing. */
static enum bl_reason refused_buffer(const struct bl_call *call) {
    const bool message = bl_call_is_message(&call->request);
    if (message && !call->request.count) return BL_REASONS;
    if (message) return why_not(call->comm, call->receives ? call->recvbuff : call->sendbuff);
    const enum bl_reason why = may_lack(call, false) ? BL_REASONS : why_not(call->comm, call->sendbuff);
    return why != BL_REASONS || may_lack(call, true) ? why : why_not(call->comm, call->recvbuff);
}

static struct bl_route nccl_route(enum bl_reason why) {
    return (struct bl_route){.algorithm = BL_ROUTE_NCCL, .why = why, .reason = bl_reason_text(why)};
}

void bl_serve_to_nccl(struct bl_call *call, enum bl_reason why) {
    call->route = nccl_route(why);
    tell_route(call->comm, call);
}

static struct bl_route route_of(struct bl_comm *comm, const struct bl_request *request) {
    struct bl_route route;
    const bool message = bl_call_is_message(request);
    if (message && bl_switch_there(comm)) return nccl_route(BL_REASON_SWITCHED);
    if (!message && request->count && !bl_switch_serves(comm)) return nccl_route(BL_REASON_SWITCH);
    bl_table_select(&comm->table, request, &route);
    return route;
}

enum bl_reason bl_serve_leaves_rooted(struct bl_comm *comm, const struct bl_request *request) {
    const struct bl_route route = route_of(comm, request);
    const bool said = route.why == BL_REASON_FORCED || route.why == BL_REASON_SAID;
    if (route.algorithm == BL_ROUTE_NCCL) return route.why;
    return !said && bl_call_bytes(request) > comm->table.moved_by_kernels ? BL_REASON_ZERO_CTAS : BL_REASONS;
}

/* The route of a call on a communicator that is served; an error is the caller's. */
static ncclResult_t select_route(struct bl_call *call, enum bl_reason for_nccl) {
    struct bl_comm *comm = call->comm;
    ncclResult_t result = bl_comm_check(comm);
    if (result == ncclSuccess) result = bl_turn_settled(comm);
    if (result != ncclSuccess) return result;
    call->route = route_of(comm, &call->request);
    const enum bl_reason refused = call->route.algorithm == BL_ROUTE_NCCL ? BL_REASONS : refused_buffer(call);
    if (refused != BL_REASONS) call->route = nccl_route(refused);
    if (bl_call_is_message(&call->request) && bl_call_to_itself(call) && !bl_group_open())
        call->route = nccl_route(BL_REASON_ALONE);
    if (for_nccl != BL_REASONS) call->route = nccl_route(for_nccl);
    tell_route(comm, call);
    if (call->route.algorithm == BL_ROUTE_NCCL || !bl_order_refuses(call->stream)) return ncclSuccess;
    bl_warn("communicator %016llx rank %d: a call on the legacy stream while a stream of the same context captures",
            (unsigned long long)comm->id, comm->rank);
    return ncclUnhandledCudaError;
}

/* Now, or at the end of the group.  It counts, whatever comes of it: its peers have made it. */
static ncclResult_t launch(const struct bl_call *call) {
    const bool grouped = bl_group_open();
    const ncclResult_t result = grouped ? bl_group_add_call(call) : bl_launch(&call, 1);
    if (!bl_call_is_message(&call->request)) bl_switch_count(call->comm, grouped);
    return result;
}

bool bl_serve(struct bl_call *call, ncclComm_t handle, enum bl_reason for_nccl, struct bl_forward **forward,
              ncclResult_t *result) {
    struct bl_comm *comm = call->comm = bl_known(handle);
    const bool selects = comm && bl_comm_active(comm);
    *result = ncclSuccess;
    if (selects)
        *result = select_route(call, for_nccl);
    else if (comm) /* it may have ended with an error */
        *result = (ncclResult_t)atomic_load_explicit(&comm->async_error, memory_order_acquire);
    if (comm && !selects && *result == ncclSuccess)
        bl_stats_count(comm, &call->request, BL_STATS_LEFT); /* whatever NCCL makes of it */
    const bool ours = selects && *result == ncclSuccess && call->route.algorithm != BL_ROUTE_NCCL;
    if (!ours && comm && *result == ncclSuccess) bl_bits_tell(call);
    if (ours)
        *result = launch(call);
    else if (*result == ncclSuccess)
        *result = bl_forward_known(forward, comm, call->stream, selects ? call : NULL);
    if (*result != ncclSuccess && bl_group_open()) bl_group_fail(*result);
    return ours || *result != ncclSuccess;
}
