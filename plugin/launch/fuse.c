#include "fuse.h"

#include "base/log.h"
#include "launch.h"

/* At INFO, once a communicator. */
static void tell_fused(struct bl_comm *comm, int calls, int launches) {
    if (comm->logged_fused || calls == launches || !bl_log_enabled(BL_LOG_INFO)) return;
    comm->logged_fused = true;
    bl_log(BL_LOG_INFO, "communicator %016llx rank %d: the %d calls of a group are fused into %d launch%s",
           (unsigned long long)comm->id, comm->rank, calls, launches, launches == 1 ? "" : "es");
}

/* The launches of the communicator whose first call is calls[first]. */
static void plan(struct bl_collected *calls, int first, int count) {
    struct bl_comm *comm = calls[first].call.comm;
    struct bl_fuser fuser;
    struct bl_route route;
    int all = 0, launches = 0, last = -1;
    bl_fuser_begin(&fuser, &comm->table);
    for (int i = first; i < count; i++) {
        if (calls[i].call.comm != comm) continue;
        const int before = bl_fuser_add(&fuser, &calls[i].call.request, i, &route);
        calls[i].planned = true;
        calls[i].next = -1;
        calls[i].next_lead = -1;
        if (before == BL_FUSE_BEGINS) {
            calls[i].lead = i;
            if (last >= 0) calls[last].next_lead = i;
            last = i;
            launches++;
        } else {
            calls[i].lead = calls[before].lead;
            calls[calls[i].lead].call.route = route;
            calls[before].next = i;
        }
        all++;
    }
    tell_fused(comm, all, launches);
}

/* Has a launch's calls, in order, done by bl_launch or bl_launch_check. */
static ncclResult_t with_batch(const struct bl_collected *calls, int first,
                               ncclResult_t (*todo)(const struct bl_call *const *calls, int count)) {
    const struct bl_call *batch[BL_BATCH_MAX];
    int count = 0;
    for (int i = first; i >= 0 && count < BL_BATCH_MAX; i = calls[i].next) batch[count++] = &calls[i].call;
    return todo(batch, count);
}

ncclResult_t bl_fuse_launch(struct bl_collected *calls, int count) {
    ncclResult_t result = ncclSuccess;
    int comms = 0; /* calls[c].turn for c below it: of each communicator, the launch whose turn it is */
    for (int i = 0; i < count; i++) { /* a communicator may have ended since: its calls go nowhere */
        calls[i].planned = !atomic_load(&calls[i].call.comm->active);
        calls[i].lead = -1;
    }
    for (int i = 0; i < count; i++) {
        if (calls[i].planned) continue;
        plan(calls, i, count);
        calls[comms++].turn = i; /* a communicator's first call leads */
    }
    for (int i = 0; i < count && result == ncclSuccess; i++)
        if (calls[i].lead == i) result = with_batch(calls, i, bl_launch_check);
    while (comms > 0) {
        int left = 0;
        for (int c = 0; c < comms && result == ncclSuccess; c++) {
            const int first = calls[c].turn;
            result = with_batch(calls, first, bl_launch);
            if (calls[first].next_lead >= 0) calls[left++].turn = calls[first].next_lead;
        }
        if (result != ncclSuccess) break;
        comms = left;
    }
    return result;
}
