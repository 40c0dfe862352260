#include "together.h"

#include "entry.h"
#include "forward.h"
#include "serve.h"

/* Why NCCL has a call for its size alone. */
static const uint64_t BY_SIZE = UINT64_C(1) << BL_REASON_NCCL_TUNED | UINT64_C(1) << BL_REASON_UNRECEIVED |
                                UINT64_C(1) << BL_REASON_NARROW | UINT64_C(1) << BL_REASON_STAGING |
                                UINT64_C(1) << BL_REASON_BUDGET;

/* Calls of a group on one communicator that are one collective. */
struct kind {
    struct bl_comm *comm;
    enum bl_collective collective;
};

static bool is_nccls(const struct bl_turn *turn, struct kind kind) {
    return turn->counted && turn->comm == kind.comm && turn->request.collective == kind.collective &&
           (BY_SIZE >> turn->why & 1) != 0;
}

static bool is_ours(const struct bl_call *call, struct kind kind) {
    return bl_comm_active(call->comm) && call->comm == kind.comm && call->request.collective == kind.collective &&
           call->route.why == BL_REASON_TUNED;
}

/* False: the group fails, and has it still. */
static bool forward_call(struct bl_call *call) {
    struct bl_forward *forward;
    bl_serve_to_nccl(call, BL_REASON_GROUP);
    ncclResult_t result = bl_forward_known(&forward, call->comm, (cudaStream_t)call->stream, call);
    if (result == ncclSuccess) result = bl_forward_collected(forward, bl_call_real(call, call->comm->handle));
    if (!bl_call_made(result)) bl_group_fail(result);
    return bl_call_made(result);
}

static void forward_calls(struct bl_group *group, struct kind kind) {
    int left = 0;
    for (int i = 0; i < group->count; i++) {
        struct bl_call *const call = &group->calls[i].call;
        if (group->error == ncclSuccess && is_ours(call, kind) && forward_call(call))
            atomic_fetch_sub(&kind.comm->pins, 1); /* it has another one now */
        else
            group->calls[left++] = group->calls[i];
    }
    group->count = left;
}

static bool is_faster_with_nccl(const struct bl_group *group, struct kind kind) {
    struct bl_together together;
    bl_together_begin(&together, &kind.comm->table, kind.collective);
    for (int i = 0; i < group->forwarded_count; i++)
        if (is_nccls(&group->forwarded[i], kind)) bl_together_add_nccls(&together, &group->forwarded[i].request);
    for (int i = 0; i < group->count; i++) {
        const struct bl_call *const call = &group->calls[i].call;
        if (is_ours(call, kind)) bl_together_add(&together, &call->request, call->route.kernel);
    }
    return bl_together_is_nccls(&together);
}

/* True once for each kind that is to go. */
static bool is_to_go(const struct bl_group *group, struct kind kind) {
    const unsigned bit = 1u << kind.collective;
    if (kind.comm->group_seen & bit) return false;
    kind.comm->group_seen |= bit;
    return is_faster_with_nccl(group, kind);
}

void bl_together_forward(struct bl_group *group) {
    if (group->count + group->forwarded_count < 2) return;
    for (int i = 0; i < group->count; i++) group->calls[i].call.comm->group_seen = 0;
    for (int i = 0; i < group->count;) {
        const struct kind kind = {group->calls[i].call.comm, group->calls[i].call.request.collective};
        if (!is_to_go(group, kind)) {
            i++;
            continue;
        }
        forward_calls(group, kind);
        i = 0;
    }
}
