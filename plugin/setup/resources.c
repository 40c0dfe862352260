/* resources.c - see resources.h. */
#include "resources.h"

#include <unistd.h>

bool bl_resources_are_ours(const struct bl_comm *comm) {
    return comm && comm->resources && comm->resources->pid == getpid();
}

bool bl_resources_busy(const struct bl_comm *comm) {
    return comm->resources->pid == getpid() && atomic_load(&comm->resources->stage) == BL_STAGE_RUNNING;
}
