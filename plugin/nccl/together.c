#include "together.h"

#include "entry.h"
#include "forward.h"
#include "serve.h"

/* So many go with larger ones, at most.  Measured on H100 and H200 (docs/benchmarks/h100-x4-2026-11-27-groups.md, h200-x4-2026-11-27-groups.md):
 * NCCL has all of them in one kernel, where a launch of Beeline's ahead also makes the ranks wait for each other.  With 32 broadcasts or reduces of
 * 4 KB to 256 KB it takes 0.7 to 1.0 of the time of both, with 64 up to 1.6 times as long; with 8 all-gathers 0.97 to 1.0, from 12 on it is
 * slower.  All-reduces and reduce-scatters would gain up to 7 %, and stay, for their bits. */
static const int few[BL_COLLECTIVES] = {[BL_BROADCAST] = 32, [BL_REDUCE] = 32, [BL_ALLGATHER] = 8};

/* Why NCCL has a call for its size alone. */
static const uint64_t BY_SIZE = UINT64_C(1) << BL_REASON_NCCL_TUNED | UINT64_C(1) << BL_REASON_UNRECEIVED |
                                UINT64_C(1) << BL_REASON_NARROW | UINT64_C(1) << BL_REASON_STAGING |
                                UINT64_C(1) << BL_REASON_BUDGET;

static bool attracts(const struct bl_turn *turn) {
    return turn->counted && few[turn->request.collective] && (BY_SIZE >> turn->why & 1) != 0 &&
           !(turn->comm->table.invariant >> turn->request.collective & 1);
}

static bool goes_with(const struct bl_call *call, const struct bl_turn *turn) {
    return bl_comm_active(call->comm) && call->comm == turn->comm &&
           call->request.collective == turn->request.collective && call->route.why == BL_REASON_TUNED;
}

static ncclResult_t make(const struct bl_call *call) {
    const struct bl_request *request = &call->request;
    const ncclDataType_t datatype = (ncclDataType_t)request->datatype;
    const ncclComm_t comm = call->comm->handle;
    const cudaStream_t stream = (cudaStream_t)call->stream;
    if (request->collective == BL_ALLGATHER)
        return BL_REAL(ncclAllGather, call->sendbuff, call->recvbuff, request->count, datatype, comm, stream);
    if (request->collective == BL_REDUCE)
        return BL_REAL(ncclReduce, call->sendbuff, call->recvbuff, request->count, datatype,
                       (ncclRedOp_t)request->redop, request->root, comm, stream);
    return BL_REAL(ncclBroadcast, call->sendbuff, call->recvbuff, request->count, datatype, request->root, comm,
                   stream);
}

/* False: the group fails, and has it still. */
static bool forward_call(struct bl_call *call) {
    struct bl_forward *forward;
    bl_serve_to_nccl(call, BL_REASON_GROUP);
    ncclResult_t result = bl_forward_known(&forward, call->comm, (cudaStream_t)call->stream, call);
    if (result == ncclSuccess) result = bl_forward_collected(forward, make(call));
    if (!bl_call_made(result)) bl_group_fail(result);
    return bl_call_made(result);
}

static void forward_calls(struct bl_group *group, const struct bl_turn *turn) {
    int left = 0;
    for (int i = 0; i < group->count; i++) {
        struct bl_call *const call = &group->calls[i].call;
        if (group->error == ncclSuccess && goes_with(call, turn) && forward_call(call))
            atomic_fetch_sub(&turn->comm->pins, 1); /* it has another one now */
        else
            group->calls[left++] = group->calls[i];
    }
    group->count = left;
}

void bl_together_forward(struct bl_group *group) {
    const int forwarded = group->count ? group->forwarded_count : 0;
    for (int i = 0; i < forwarded; i++) {
        const struct bl_turn turn = group->forwarded[i]; /* there will be more of them, elsewhere */
        const unsigned bit = 1u << turn.request.collective;
        int calls = 0;
        if (!attracts(&turn) || turn.comm->group_seen & bit) continue;
        turn.comm->group_seen |= bit;
        for (int k = 0; k < group->count; k++) calls += goes_with(&group->calls[k].call, &turn);
        if (calls <= few[turn.request.collective]) forward_calls(group, &turn);
    }
    for (int i = 0; i < forwarded; i++) group->forwarded[i].comm->group_seen = 0;
}
