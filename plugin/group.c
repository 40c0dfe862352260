#include "group.h"

#include <stdlib.h>

#include "export.h"
#include "fuse.h"
#include "log.h"
#include "real.h"

/* A call that went to the real NCCL, whose turn is to be ended. */
struct forwarded {
    struct bl_comm *comm;
    CUstream stream;
    struct bl_order_turn turn;
};

static _Thread_local struct {
    int depth;
    struct bl_collected *calls;
    int count, capacity;
    struct forwarded *forwarded;
    int forwarded_count, forwarded_capacity;
    ncclResult_t error; /* the first of a call that was not collected */
    struct bl_setup_request *inits;
    int init_count, init_capacity;
} group;

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
    return true;
}

static ncclResult_t no_memory(void) {
    bl_warn("out of memory for call %d of a group", group.count + group.forwarded_count + 1);
    return ncclSystemError;
}

ncclResult_t bl_group_add_call(const struct bl_call *call) {
    if (!grow((void **)&group.calls, group.count, &group.capacity, sizeof *group.calls)) return no_memory();
    group.calls[group.count++] = (struct bl_collected){.call = *call};
    return ncclSuccess;
}

ncclResult_t bl_group_add_forwarded(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn) {
    if (!grow((void **)&group.forwarded, group.forwarded_count, &group.forwarded_capacity, sizeof *group.forwarded))
        return no_memory();
    group.forwarded[group.forwarded_count++] = (struct forwarded){comm, stream, *turn};
    return ncclSuccess;
}

void bl_group_add_init(const struct bl_setup_request *request) {
    if (!bl_group_open()) {
        bl_setup_run(request, 1);
    } else if (grow((void **)&group.inits, group.init_count, &group.init_capacity, sizeof *request)) {
        group.inits[group.init_count++] = *request;
    } else {
        bl_warn("out of memory for communicator %d of a group: it is left to NCCL here, and its peers will time out",
                group.init_count + 1);
    }
}

void bl_group_drop(const struct bl_comm *comm) {
    int kept = 0, forwarded_kept = 0;
    for (int i = 0; i < group.count; i++)
        if (group.calls[i].call.comm != comm) group.calls[kept++] = group.calls[i];
    for (int i = 0; i < group.forwarded_count; i++)
        if (group.forwarded[i].comm != comm) group.forwarded[forwarded_kept++] = group.forwarded[i];
    group.count = kept;
    group.forwarded_count = forwarded_kept;
}

void bl_group_fail(ncclResult_t error) {
    if (group.error == ncclSuccess) group.error = error;
}

static ncclResult_t run_calls(ncclResult_t real) {
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < group.forwarded_count && result == ncclSuccess; i++) {
        const struct forwarded *call = &group.forwarded[i];
        result = bl_forward_end(call->comm, call->stream, &call->turn, real);
    }
    return result == ncclSuccess ? bl_fuse_launch(group.calls, group.count) : result;
}

static void forget_calls(void) {
    group.count = group.forwarded_count = group.init_count = 0;
    group.error = ncclSuccess;
}

BL_EXPORT ncclResult_t ncclGroupStart(void) {
    ncclResult_t result = BL_REAL(ncclGroupStart);
    if (bl_real_depth == 0 && result == ncclSuccess) group.depth++;
    return result;
}

BL_EXPORT ncclResult_t ncclGroupEnd(void) {
    if (bl_real_depth > 0 || group.depth == 0) return BL_REAL(ncclGroupEnd);
    ncclResult_t result = BL_REAL(ncclGroupEnd);
    if (--group.depth > 0) return result;
    if (result == ncclSuccess || result == ncclInProgress) {
        ncclResult_t ours = group.error != ncclSuccess ? group.error : run_calls(result);
        if (ours != ncclSuccess) result = ours;
        if (group.init_count) bl_setup_run(group.inits, group.init_count);
    }
    forget_calls();
    return result;
}

#ifdef BL_HAVE_ncclGroupSimulateEnd
BL_EXPORT ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *simInfo) {
    if (bl_real_depth > 0 || group.depth == 0) return BL_REAL(ncclGroupSimulateEnd, simInfo);
    ncclResult_t result = BL_REAL(ncclGroupSimulateEnd, simInfo);
    if (--group.depth == 0) forget_calls(); /* a simulation launches and makes nothing */
    return result;
}
#endif
