/* upkeep.c - see upkeep.h. */
#include "upkeep.h"

#include <unistd.h>

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
