#include "forward.h"

#include "comm/switch.h"
#include "entry.h"
#include "group.h"
#include "launch/order.h"

static _Thread_local struct bl_forward {
    struct bl_turn turn;
    bool relaxed;
    CUstreamCaptureMode mode; /* the thread's own */
} forwarding;

/* NCCL connects ranks at the first call that needs it, by calls of the driver that captures forbid.  Of a program that warms up
 * before it captures, it may be a captured one that is NCCL's first, since those before were Beeline's.  Of a group's it does so at the
 * end: group_end.c. */
ncclResult_t bl_forward_known(struct bl_forward **forward, struct bl_comm *comm, cudaStream_t stream,
                              const struct bl_call *call) {
    *forward = NULL;
    if (call && bl_call_is_nothing(&call->request)) {
        bl_turn_count(comm, &call->request, call->route.why);
        return ncclSuccess;
    }
    if (!comm || !(bl_comm_active(comm) || atomic_load_explicit(&comm->shares_room, memory_order_acquire)))
        return ncclSuccess;
    /* NCCL's to say: what puts the call in order would end the capture. */
    if (bl_order_refuses(stream)) return ncclSuccess;
    const struct bl_turn *const first = bl_group_turn(comm, stream);
    *forward = &forwarding;
    forwarding.turn =
        (struct bl_turn){.comm = comm, .stream = stream, .counted = call != NULL, .follows = first != NULL};
    if (call) forwarding.turn.request = call->request, forwarding.turn.why = call->route.why;
    if (first) forwarding.turn.order = first->order;
    const ncclResult_t result = first ? ncclSuccess : bl_turn_begin(&forwarding.turn);
    forwarding.relaxed = result == ncclSuccess && !bl_group_open();
    if (forwarding.relaxed) forwarding.mode = bl_driver_relax();
    return result;
}

ncclResult_t bl_forward_before(struct bl_forward **forward, ncclComm_t comm, cudaStream_t stream) {
    struct bl_comm *known = bl_known(comm);
    ncclResult_t result = known ? bl_comm_check(known) : ncclSuccess;
    if (result == ncclSuccess) result = bl_forward_known(forward, known, stream, NULL);
    if (result != ncclSuccess && bl_group_open()) bl_group_fail(result);
    return result;
}

/* In a group the call's turn ends with the group. */
static ncclResult_t after(const struct bl_forward *forward, ncclResult_t result) {
    const struct bl_turn *turn = &forward->turn;
    const bool made = bl_call_made(result), grouped = made && bl_group_open();
    if (forward->relaxed) bl_driver_unrelax(forward->mode);
    bl_group_heard(result); /* nothing of Beeline's is to go ahead of its end */
    if (!grouped)
        bl_turn_end(turn, result);
    else if (bl_group_add_forwarded(turn) != ncclSuccess)
        bl_group_fail(ncclSystemError);
    return result;
}

ncclResult_t bl_forward_after(const struct bl_forward *forward, ncclResult_t result) {
    if (!forward) return bl_group_heard(result);
    const struct bl_turn *turn = &forward->turn;
    if (bl_call_made(result) && turn->counted && !bl_call_is_message(&turn->request))
        bl_switch_count(turn->comm, bl_group_open());
    return after(forward, result);
}

ncclResult_t bl_forward_collected(const struct bl_forward *forward, ncclResult_t result) {
    return forward ? after(forward, result) : result;
}

ncclResult_t bl_forward_plain(ncclResult_t result) {
    return bl_group_heard(result);
}

void bl_forward_preparing(void) {
    bl_group_prepares();
}
