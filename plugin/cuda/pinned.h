/* pinned.h - page-locked host memory for the control words of communicators, had in blocks of many: to lock memory may wait for all
 * of the GPU's work, which may be another communicator's, waiting for a rank that waits for us.
 *
 * Memory of our own that the driver locks: at the process's end, and in a forked child, it is still there when the driver's is not,
 * for whoever looks at it then.
 *
 * Threads: any.  The context must be current.
 */
#ifndef BEELINE_PINNED_H
#define BEELINE_PINNED_H

#include <stdint.h>

#include "driver.h"

enum { BL_PINNED_BYTES = 4096 };

struct bl_pinned {
    void *host; /* NULL: none */
    CUdeviceptr device;
    struct bl_pinned_block *block;
};

/* BL_PINNED_BYTES of zeroes.  context_id: context.h.  0, or -1 and bl_why(). */
int bl_pinned_take(struct bl_pinned *pinned, CUcontext context, uint64_t context_id);
/* Of the last of a block, unlocks it, which may wait. */
void bl_pinned_give(struct bl_pinned *pinned);

#endif
