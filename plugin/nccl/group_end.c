/* group_end.c - ncclGroupStart and ncclGroupEnd: what the group has collected is run at the outermost end; see group.h. */
#include "base/log.h"
#include "comm/switch.h"
#include "entry.h"
#include "group.h"
#include "launch/beside.h"
#include "launch/streams.h"
#include "setup/teardown.h"
#include "together.h"

static void let_go(struct bl_comm *comm, bool made) {
    bl_switch_group_ends(comm, made);
    atomic_fetch_sub(&comm->pins, 1);
}

/* What comes behind a call of NCCL's that is still in progress on its communicator is launched once that is on its stream, not
 * by this group.  All of it is kept before that turn can end, which any thread may hear of: or it would be cut into other launches than the
 * peers'. */
static void keep_calls(struct bl_group *group) {
    int left = 0;
    for (int i = 0; i < group->forwarded_count; i++)
        group->forwarded[i].comm->pending.expected = !group->forwarded[i].beside;
    for (int i = 0; i < group->count; i++) {
        const bool behind = group->calls[i].when == BL_BEHIND && group->calls[i].call.comm->pending.expected;
        const bool kept = behind && bl_turn_keep(&group->calls[i]);
        if (kept)
            let_go(group->calls[i].call.comm, true);
        else
            group->calls[left++] = group->calls[i];
    }
    group->count = left;
    for (int i = 0; i < group->forwarded_count; i++) group->forwarded[i].comm->pending.expected = false;
}

/* The turns of what the real NCCL has, or has not, done, on communicators whose calls of Beeline's go on beside that, or on the others. */
static ncclResult_t end_turns(struct bl_group *group, ncclResult_t real, bool beside) {
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < group->forwarded_count; i++) {
        const struct bl_turn *turn = &group->forwarded[i];
        if (turn->beside != beside) continue;
        const ncclResult_t one = bl_turn_end(turn, real);
        if (one != ncclSuccess) result = one;
    }
    return result;
}

static ncclResult_t launch_ours(struct bl_group *group) {
    return group->error != ncclSuccess ? group->error : bl_fuse_launch(group->calls, group->count, BL_BEHIND);
}

static ncclResult_t launch_late(struct bl_group *group, ncclResult_t real) {
    const bool made = bl_call_made(real) && group->error == ncclSuccess;
    if (!group->late) return ncclSuccess;
    group->late = false;
    return bl_beside_launch_late(group->calls, group->count, group->forwarded, group->forwarded_count, made);
}

/* NCCL's turns end ahead of Beeline's calls, which come behind them; where both go on at once, behind these. */
static ncclResult_t run_calls(struct bl_group *group, ncclResult_t real) {
    if (real == ncclInProgress && group->error == ncclSuccess) keep_calls(group);
    ncclResult_t result = launch_late(group, real);
    const ncclResult_t others = end_turns(group, real, false);
    if (result == ncclSuccess) result = others;
    if (result == ncclSuccess && bl_call_made(real)) result = launch_ours(group);
    ncclResult_t ended = end_turns(group, real, true);
    if (result == ncclSuccess) result = ended;
    ended = bl_beside_end(group->calls, group->count);
    if (result == ncclSuccess) result = ended;
    const bool launched = result == ncclSuccess && bl_call_made(real);
    const ncclResult_t met = bl_streams_after(group->calls, group->count, launched);
    if (result == ncclSuccess) result = met;
    return bl_call_made(real) ? result : real;
}

static void forget_calls(struct bl_group *group, bool made) {
    for (int i = 0; i < group->count; i++) let_go(group->calls[i].call.comm, made);
    for (int i = 0; i < group->forwarded_count; i++) {
        group->forwarded[i].comm->group_turn = 0;
        group->forwarded[i].comm->group_messages = false;
        let_go(group->forwarded[i].comm, made);
    }
    group->count = group->forwarded_count = group->init_count = 0;
    group->error = ncclSuccess;
    group->prepares = false;
}

static bool has(const struct bl_group *group, enum bl_when when) {
    bool any = false;
    for (int i = 0; i < group->count && !any; i++) any = group->calls[i].when == when;
    return any;
}

/* Whether an end of a message to oneself is in it, the only call of which the launch may be refused: others need not be planned ahead of their time. */
static bool has_to_itself(const struct bl_group *group) {
    bool any = false;
    for (int i = 0; i < group->count && !any; i++) {
        const struct bl_call *const call = &group->calls[i].call;
        any = bl_call_is_message(&call->request) && bl_call_to_itself(call);
    }
    return any;
}

/* Where communicators are made at the end, or what may fail is done there, collectives come after that, as with NCCL: a rank may make them outside of a group.  Beside what
 * NCCL has of it, not behind: ranks that make none launch them ahead of that.  (A nonblocking one may be in the making for long.) */
static void put_behind_inits(struct bl_group *group) {
    bool nonblocking = false;
    for (int i = 0; i < group->init_count; i++) nonblocking = nonblocking || group->inits[i].nonblocking;
    const enum bl_when when = group->forwarded_count && !nonblocking ? BL_BESIDE : BL_BEHIND;
    for (int i = 0; i < group->count; i++)
        if (group->calls[i].when == BL_AHEAD) group->calls[i].when = when;
}

/* Collectives, which all ranks launch before anything of the group can hold them up; so NCCL's calls are behind them. */
static ncclResult_t launch_ahead(struct bl_group *group) {
    if (group->init_count || group->prepares) put_behind_inits(group);
    if (!has(group, BL_AHEAD)) return ncclSuccess;
    ncclResult_t result = bl_fuse_launch(group->calls, group->count, BL_AHEAD);
    group->ahead = result == ncclSuccess;
    if (result == ncclSuccess && group->forwarded_count) result = bl_streams_meet(group->calls, group->count);
    for (int i = 0; i < group->forwarded_count && result == ncclSuccess; i++)
        result = bl_turn_again(&group->forwarded[i]);
    return result;
}

/* What comes before the real group's end. */
static ncclResult_t make_ready(struct bl_group *group) {
    bl_together_forward(group);
    if (group->error != ncclSuccess) return group->error;
    if (!bl_group_list_streams(group)) return ncclSystemError;
    ncclResult_t result = ncclSuccess;
    if (has_to_itself(group)) result = bl_fuse_check(group->calls, group->count, BL_BEHIND);
    if (result == ncclSuccess) result = bl_streams_meet(group->calls, group->count);
    if (result == ncclSuccess) result = launch_ahead(group);
    if (result != ncclSuccess) return result;
    return bl_beside_launch(group->calls, group->count, group->forwarded, group->forwarded_count, group->prepares,
                            &group->late);
}

/* The real group fails as well, and launches nothing, by a call that NCCL refuses. */
static void refuse_real(void) {
    BL_REAL(ncclAllReduce, NULL, NULL, 0, ncclInt8, ncclSum, NULL, NULL);
}

/* As around a forwarded call outside of groups (forward.c): it is here that NCCL launches them. */
static ncclResult_t end_real(struct bl_group *group) {
    if (group->depth == 1 && group->error == ncclSuccess) {
        const ncclResult_t ready = make_ready(group);
        if (ready != ncclSuccess) bl_group_fail(ready);
    }
    if (group->depth == 1 && group->error != ncclSuccess) refuse_real();
    const bool relaxed = group->depth == 1 && group->forwarded_count > 0;
    const CUstreamCaptureMode mode = relaxed ? bl_driver_relax() : CU_STREAM_CAPTURE_MODE_GLOBAL;
    const ncclResult_t result = BL_REAL(ncclGroupEnd);
    if (relaxed) bl_driver_unrelax(mode);
    return result;
}

/* What NCCL has finalized at its end; not where it has dropped that with the group. */
static void drain_finalized(struct bl_group *group, bool made) {
    for (int i = 0; i < group->finalized_count; i++) {
        struct bl_comm *const comm = group->finalized[i];
        if (made && bl_comm_active(comm)) bl_teardown_drain(comm); /* else it was ended meanwhile */
        atomic_fetch_sub(&comm->pins, 1);
    }
    group->finalized_count = 0;
}

/* The outermost end, of which the real NCCL has said this.  A simulation launches nothing, but makes communicators, and finalizes them. */
static ncclResult_t end_ours(struct bl_group *group, ncclResult_t real, bool simulated) {
    const bool made = bl_call_made(real);
    const ncclResult_t ran = run_calls(group, simulated ? ncclInternalError : real);
    const ncclResult_t result = group->error != ncclSuccess ? group->error : ran;
    drain_finalized(group, made);
    if (made && group->init_count) bl_setup_run(group->inits, group->init_count);
    if (!made) bl_setup_forget(group->inits, group->init_count);
    forget_calls(group, (made && !simulated) || group->ahead); /* peers count what was launched here */
    group->ahead = false;
    return result;
}

BL_EXPORT ncclResult_t ncclGroupStart(void) {
    const ncclResult_t result = BL_REAL(ncclGroupStart);
    if (bl_real_depth == 0 && result == ncclSuccess) bl_group()->depth++;
    return result;
}

BL_EXPORT ncclResult_t ncclGroupEnd(void) {
    struct bl_group *const group = bl_group();
    if (bl_real_depth > 0 || group->depth == 0) return BL_REAL(ncclGroupEnd);
    const ncclResult_t result = end_real(group);
    if (--group->depth > 0) return result;
    const ncclResult_t ours = end_ours(group, result, false);
    return ours != ncclSuccess ? ours : result;
}

/* NCCL's estimate is of all collectives: of those that Beeline has collected it is told here, for nothing is launched.  Not of messages, of which it has
 * none: those of a simulated group stay in its queues, and would be had in place of as many of the next group. */
static void tell_real(const struct bl_group *group) {
    if (group->error != ncclSuccess) refuse_real();
    for (int i = 0; i < group->count && group->error == ncclSuccess; i++) {
        const struct bl_call *const call = &group->calls[i].call;
        if (bl_comm_active(call->comm) && !bl_call_by_messages(&call->request))
            bl_call_real(call, call->comm->handle); /* an error fails the group there */
    }
}

BL_EXPORT ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *simInfo) {
    struct bl_group *const group = bl_group();
    if (!simInfo) return ncclGroupEnd(); /* as which the real one takes it */
    if (bl_real_depth > 0 || group->depth == 0) return BL_REAL(ncclGroupSimulateEnd, simInfo);
    if (group->depth == 1) tell_real(group);
    const ncclResult_t result = BL_REAL(ncclGroupSimulateEnd, simInfo);
    if (--group->depth == 0) end_ours(group, result, true);
    return result;
}
