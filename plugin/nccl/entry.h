/* entry.h - what entry points have in common. */
#ifndef BEELINE_ENTRY_H
#define BEELINE_ENTRY_H

#include "comm/comm.h"
#include "real/real.h"

/* Marks what the library shows: everything else is hidden. */
#define BL_EXPORT __attribute__((visibility("default")))

/* What Beeline knows of a call's communicator: looked up once a call, and handed down.  NULL for a call of the real NCCL's
 * own, too, which is part of the caller's. */
static inline struct bl_comm *bl_known(ncclComm_t handle) {
    return bl_real_depth == 0 ? bl_comm_find(handle) : NULL;
}

#endif
