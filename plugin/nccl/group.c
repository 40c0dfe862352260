#include "group.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "comm/switch.h"
#include "entry.h"
#include "launch/beside.h"
#include "launch/streams.h"

static _Thread_local struct {
    int depth;
    struct bl_collected *calls;
    int count, capacity;
    struct bl_turn *forwarded; /* calls that went to the real NCCL, whose turns are to be ended */
    int forwarded_count, forwarded_capacity;
    ncclResult_t error; /* the first of a call that was not collected */
    struct bl_setup_request *inits;
    int init_count, init_capacity;
} group;

static pthread_key_t of_thread;
static bool has_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* At the end of a thread that had groups. */
static void free_arrays(void *unused) {
    bl_setup_forget(group.inits, group.init_count); /* of a group that the thread never ended */
    free(group.calls);
    free(group.forwarded);
    free(group.inits);
    memset(&group, 0, sizeof(group));
}

static void make_key(void) {
    has_key = pthread_key_create(&of_thread, free_arrays) == 0;
}

bool bl_group_open(void) {
    return group.depth > 0;
}

/* Room for one more; kept for the next group, so a steady job allocates once. */
static bool grow(void **array, int count, int *capacity, size_t size) {
    if (count < *capacity) return true;
    int larger = *capacity ? 2 * *capacity : 64;
    void *moved = realloc(*array, (size_t)larger * size);
    if (!moved) return false;
    *array = moved;
    *capacity = larger;
    pthread_once(&once, make_key);
    if (has_key) pthread_setspecific(of_thread, &group); /* anything but NULL */
    return true;
}

static ncclResult_t no_memory(void) {
    bl_warn("out of memory for call %d of a group", group.count + group.forwarded_count + 1);
    return ncclSystemError;
}

ncclResult_t bl_group_add_call(const struct bl_call *call) {
    if (!grow((void **)&group.calls, group.count, &group.capacity, sizeof *group.calls)) return no_memory();
    group.calls[group.count++] = (struct bl_collected){.call = *call};
    atomic_fetch_add(&call->comm->pins, 1);
    return ncclSuccess;
}

ncclResult_t bl_group_add_forwarded(const struct bl_turn *turn) {
    if (!grow((void **)&group.forwarded, group.forwarded_count, &group.forwarded_capacity, sizeof *group.forwarded))
        return no_memory();
    group.forwarded[group.forwarded_count++] = *turn;
    atomic_fetch_add(&turn->comm->pins, 1);
    return ncclSuccess;
}

void bl_group_add_init(const struct bl_setup_request *request) {
    if (!bl_group_open()) {
        bl_setup_run(request, 1);
    } else if (grow((void **)&group.inits, group.init_count, &group.init_capacity, sizeof *request)) {
        group.inits[group.init_count++] = *request;
    } else {
        bl_warn("out of memory for communicator %d of a group: it is left to NCCL", group.init_count + 1);
        bl_setup_leave(request);
    }
}

void bl_group_fail(ncclResult_t error) {
    if (group.error == ncclSuccess) group.error = error;
}

static void let_go(struct bl_comm *comm, bool made) {
    bl_switch_group_ends(comm, made);
    atomic_fetch_sub(&comm->pins, 1);
}

/* What comes behind a call of NCCL's that is still in progress on its communicator is launched once that is on its stream, not
 * by this group.  All of it is kept before that turn can end, which any thread may hear of: or it would be cut into other launches than the
 * peers'. */
static void keep_calls(void) {
    int left = 0;
    for (int i = 0; i < group.forwarded_count; i++)
        group.forwarded[i].comm->pending.expected = !group.forwarded[i].beside;
    for (int i = 0; i < group.count; i++) {
        const bool kept = group.calls[i].call.comm->pending.expected && bl_turn_keep(&group.calls[i]);
        if (kept)
            let_go(group.calls[i].call.comm, true);
        else
            group.calls[left++] = group.calls[i];
    }
    group.count = left;
    for (int i = 0; i < group.forwarded_count; i++) group.forwarded[i].comm->pending.expected = false;
}

/* The turns of what the real NCCL has, or has not, done, on communicators whose calls of Beeline's go on beside that, or on the others. */
static ncclResult_t end_turns(ncclResult_t real, bool beside) {
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < group.forwarded_count; i++) {
        const struct bl_turn *turn = &group.forwarded[i];
        if (turn->beside != beside) continue;
        const ncclResult_t one = bl_turn_end(turn, real);
        if (one != ncclSuccess) result = one;
    }
    return result;
}

static ncclResult_t launch_ours(void) {
    return group.error != ncclSuccess ? group.error : bl_fuse_launch(group.calls, group.count, false);
}

/* NCCL's turns end ahead of Beeline's calls, which come behind them; where both go on at once, behind these. */
static ncclResult_t run_calls(ncclResult_t real) {
    if (real == ncclInProgress && group.error == ncclSuccess) keep_calls();
    ncclResult_t result = end_turns(real, false);
    if (result == ncclSuccess && bl_call_made(real)) result = launch_ours();
    const ncclResult_t ended = end_turns(real, true);
    if (result == ncclSuccess) result = ended;
    const bool launched = result == ncclSuccess && bl_call_made(real);
    const ncclResult_t met = bl_streams_after(group.calls, group.count, launched);
    if (result == ncclSuccess) result = met;
    return bl_call_made(real) ? result : real;
}

static void forget_calls(bool made) {
    for (int i = 0; i < group.count; i++) let_go(group.calls[i].call.comm, made);
    for (int i = 0; i < group.forwarded_count; i++) let_go(group.forwarded[i].comm, made);
    group.count = group.forwarded_count = group.init_count = 0;
    group.error = ncclSuccess;
}

/* What comes before the real group's end. */
static ncclResult_t make_ready(void) {
    bool listed = bl_streams_list(group.calls, group.count);
    for (int i = 0; i < group.forwarded_count && listed; i++)
        listed = bl_streams_add(group.forwarded[i].comm, group.forwarded[i].stream);
    if (!listed) return ncclSystemError;
    const ncclResult_t result = bl_streams_before(group.calls, group.count);
    if (result != ncclSuccess) return result;
    return bl_beside_launch(group.calls, group.count, group.forwarded, group.forwarded_count);
}

/* As around each forwarded call (forward.c): it is here that NCCL launches them. */
static ncclResult_t end_real(void) {
    if (group.depth == 1 && group.error == ncclSuccess) {
        const ncclResult_t ready = make_ready();
        if (ready != ncclSuccess) bl_group_fail(ready);
    }
    const bool relaxed = group.depth == 1 && group.forwarded_count > 0;
    const CUstreamCaptureMode mode = relaxed ? bl_driver_relax() : CU_STREAM_CAPTURE_MODE_GLOBAL;
    const ncclResult_t result = BL_REAL(ncclGroupEnd);
    if (relaxed) bl_driver_unrelax(mode);
    return result;
}

/* The outermost end, of which the real NCCL has said this.  A simulation launches nothing, but makes communicators. */
static ncclResult_t end_ours(ncclResult_t real, bool simulated) {
    const bool made = bl_call_made(real);
    const ncclResult_t result = run_calls(simulated ? ncclInternalError : real);
    if (made && group.init_count) bl_setup_run(group.inits, group.init_count);
    if (!made) bl_setup_forget(group.inits, group.init_count);
    forget_calls(made && !simulated);
    return result;
}

BL_EXPORT ncclResult_t ncclGroupStart(void) {
    ncclResult_t result = BL_REAL(ncclGroupStart);
    if (bl_real_depth == 0 && result == ncclSuccess) group.depth++;
    return result;
}

BL_EXPORT ncclResult_t ncclGroupEnd(void) {
    if (bl_real_depth > 0 || group.depth == 0) return BL_REAL(ncclGroupEnd);
    const ncclResult_t result = end_real();
    if (--group.depth > 0) return result;
    const ncclResult_t ours = end_ours(result, false);
    return ours != ncclSuccess ? ours : result;
}

BL_EXPORT ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *simInfo) {
    if (bl_real_depth > 0 || group.depth == 0) return BL_REAL(ncclGroupSimulateEnd, simInfo);
    const ncclResult_t result = BL_REAL(ncclGroupSimulateEnd, simInfo);
    if (--group.depth == 0) end_ours(result, true);
    return result;
}
