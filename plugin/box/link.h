/* link.h - how two GPUs of a box reach each other, as the driver, or else NVML and hwloc, have it.  Threads: any. */
#ifndef BEELINE_LINK_H
#define BEELINE_LINK_H

#include "cuda/driver.h"
#include "dispatch.h"

struct bl_link_end {
    const unsigned char *uuid; /* 16 bytes */
    const char *pci;           /* "0000:1b:00.0" */
};

/* Of `device`, whose ends `own` has, to a GPU that this process may not see (CUDA_VISIBLE_DEVICES): NVLINK, whether over switches
 * or not; UNKNOWN if nobody can tell. */
enum bl_link bl_link_of(CUdevice device, struct bl_link_end own, struct bl_link_end peer);

#endif
