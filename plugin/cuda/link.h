/* link.h - how two GPUs of a box reach each other, as the driver, or else NVML, has it.  Threads: any. */
#ifndef BEELINE_LINK_H
#define BEELINE_LINK_H

#include "driver.h"

/* In order of preference, the worst first. */
enum bl_link { BL_LINK_NONE, BL_LINK_UNKNOWN, BL_LINK_PCIE, BL_LINK_NVLINK };

const char *bl_link_name(enum bl_link link); /* "nvlink" */

/* Of `device` to the GPU with that UUID, which this process may not see (CUDA_VISIBLE_DEVICES): UNKNOWN if nobody can
 * tell. */
enum bl_link bl_link_of(CUdevice device, const unsigned char *uuid);

#endif
