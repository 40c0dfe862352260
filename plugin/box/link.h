/* link.h - how two GPUs of a box reach each other, as the driver, or else NVML, has it.  Threads: any. */
#ifndef BEELINE_LINK_H
#define BEELINE_LINK_H

#include "cuda/driver.h"
#include "dispatch.h"

/* Of `device`, and its UUID, to the GPU with the other UUID, which this process may not see (CUDA_VISIBLE_DEVICES): NONE, PCIE,
 * NVLINK, whether over switches or not; UNKNOWN if nobody can tell. */
enum bl_link bl_link_of(CUdevice device, const unsigned char *own, const unsigned char *peer);

#endif
