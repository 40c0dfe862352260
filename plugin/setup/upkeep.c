/* upkeep.c - see upkeep.h. */
#include "upkeep.h"

#include <time.h>
#include <unistd.h>

#include "comm/switch.h"
#include "comm/watch.h"
#include "cuda/budget.h"
#include "launch/copy.h"

bool bl_upkeep_is_ours(const struct bl_comm *comm) {
    return comm && comm->upkeep && comm->upkeep->pid == getpid();
}

bool bl_upkeep_busy(const struct bl_comm *comm) {
    return comm->upkeep->pid == getpid() && atomic_load(&comm->upkeep->stage) == BL_STAGE_RUNNING;
}

struct bl_wishes bl_upkeep_wishes(const struct bl_comm *comm) {
    return comm->upkeep->wishes;
}

bool bl_upkeep_nonblocking(const struct bl_comm *comm) {
    return comm->upkeep->nonblocking;
}

void bl_upkeep_release(struct bl_comm *comm) {
    struct bl_upkeep *upkeep = comm->upkeep;
    bl_watch_remove(comm);
    __atomic_store_n(&comm->control, NULL, __ATOMIC_SEQ_CST); /* before anyone is counted */
    while (atomic_load(&comm->users)) nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    bl_switch_close(comm);
    if (comm->copy.broken) upkeep->stuck = true; /* what it left on its streams may never end */
    if (!upkeep->stuck) bl_budget_settle(comm->device, &upkeep->reserved, 0);
    if (upkeep->stuck || !bl_context_push(comm)) return;
    bl_copy_close(comm);
    if (upkeep->leaver) bl_leave(upkeep->leaver);
    upkeep->leaver = NULL;
    bl_memory_release(&upkeep->memory);
    bl_pinned_give(&upkeep->control);
    bl_modules_close(upkeep->modules);
    upkeep->modules = NULL;
    bl_context_pop();
}
