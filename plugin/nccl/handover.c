#include "handover.h"

#include <string.h>

#include "comm/switch.h"
#include "entry.h"
#include "forward.h"
#include "serve.h"

/* As the plain function: what a call's configuration has for NCCL to tell is lost. */
static ncclResult_t call_real(const struct bl_call *call) {
    const struct bl_request *r = &call->request;
    const ncclDataType_t datatype = (ncclDataType_t)r->datatype;
    const ncclRedOp_t op = (ncclRedOp_t)r->redop;
    const ncclComm_t comm = call->comm->handle;
    switch (r->collective) {
    case BL_ALLREDUCE:
        return BL_REAL(ncclAllReduce, call->sendbuff, call->recvbuff, r->count, datatype, op, comm, call->stream);
    case BL_ALLGATHER:
        return BL_REAL(ncclAllGather, call->sendbuff, call->recvbuff, r->count, datatype, comm, call->stream);
    case BL_REDUCESCATTER:
        return BL_REAL(ncclReduceScatter, call->sendbuff, call->recvbuff, r->count, datatype, op, comm, call->stream);
    default: return ncclInternalError; /* no other is tallied */
    }
}

static ncclResult_t hand_over_one(struct bl_call *call) {
    struct bl_forward *forward;
    struct bl_visit visit;
    call->route = (struct bl_route){
        .algorithm = BL_ROUTE_NCCL, .why = BL_REASON_GROUP, .reason = bl_reason_text(BL_REASON_GROUP)};
    bl_serve_tell(call->comm, call);
    ncclResult_t result = bl_comm_check(call->comm);
    if (result == ncclSuccess) result = bl_forward_known(&forward, call->comm, call->stream, call);
    if (result != ncclSuccess) return result;
    bl_switch_uncount(call->comm);
    result = ncclInvalidUsage; /* it has ended since */
    if (bl_comm_visit(call->comm, &visit)) {
        result = call_real(call);
        bl_comm_leave(call->comm, &visit);
    }
    result = bl_forward_after(forward, result);
    return bl_call_made(result) ? ncclSuccess : result;
}

/* Those of the communicator of calls[first], whose `planned` says that it was looked at. */
static bool mark(struct bl_collected *calls, int first, int count) {
    struct bl_comm *comm = calls[first].call.comm;
    struct bl_tally tally;
    bool any = false;
    for (int i = first; i < count; i++) calls[i].planned = calls[i].planned || calls[i].call.comm == comm;
    if (!bl_table_may_leave(&comm->table)) return false; /* else its 10 KB need not be written */
    memset(&tally, 0, sizeof(tally));
    for (int i = first; i < count; i++)
        if (calls[i].call.comm == comm) bl_tally_add(&tally, &calls[i].call.request);
    for (int i = first; i < count; i++) {
        if (calls[i].call.comm != comm) continue;
        const bool leaves = bl_table_leaves_group(&comm->table, &tally, &calls[i].call.request);
        calls[i].left = leaves && atomic_load(&comm->active);
        any = any || calls[i].left;
    }
    return any;
}

ncclResult_t bl_hand_over(struct bl_collected *calls, int *count) {
    ncclResult_t result = ncclSuccess;
    bool any = false;
    int kept = 0;
    if (*count < BL_GROUP_LEAST) return ncclSuccess;
    for (int i = 0; i < *count; i++) calls[i].planned = calls[i].left = false;
    for (int i = 0; i < *count; i++)
        if (!calls[i].planned) any = mark(calls, i, *count) || any;
    if (!any) return ncclSuccess;
    for (int i = 0; i < *count; i++) {
        if (calls[i].left && result == ncclSuccess) {
            result = hand_over_one(&calls[i].call);
            atomic_fetch_sub(&calls[i].call.comm->pins, 1); /* its turn has one */
        } else {
            calls[kept++] = calls[i];
        }
    }
    *count = kept;
    return result;
}
