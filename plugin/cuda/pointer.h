/* pointer.h - whether a buffer is one that NCCL takes. */
#ifndef BEELINE_POINTER_H
#define BEELINE_POINTER_H

#include <stdbool.h>

#include "driver.h"

/* By NCCL's rule (CudaPtrCheck): memory that the driver knows and kernels reach, and if a GPU's, this one's; true, too, where the driver cannot tell, for
 * NCCL might.  A context of the device is current. */
bool bl_pointer_reaches(const void *buffer, CUdevice device);

#endif
