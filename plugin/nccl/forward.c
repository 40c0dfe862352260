/* forward.c - see forward.h. */
#include "forward.h"

#include "comm/switch.h"
#include "group.h"
#include "launch/turn.h"
#include "real/real.h"
#include "base/log.h"

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
    const bool known = comm && (bl_comm_active(comm) || atomic_load_explicit(&comm->bystander, memory_order_acquire));
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
