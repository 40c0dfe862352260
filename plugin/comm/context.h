/* context.h - the CUDA context that a communicator lives in. */
#ifndef BEELINE_CONTEXT_H
#define BEELINE_CONTEXT_H

#include <stdbool.h>

#include "comm.h"

/* The context that is current if it is on the communicator's device, as NCCL has it; else the device's primary one, which is
 * retained for it. Found once.  CUDA_SUCCESS, or why there is none. */
CUresult bl_context_find(struct bl_comm *comm);

/* What no other context has, under the same handle neither; 0 where the driver cannot tell. */
uint64_t bl_context_id(CUcontext context);

/* Pushes the communicator's context; false if that failed, or it is not there any more.  Pops it. */
bool bl_context_push(const struct bl_comm *comm);
void bl_context_pop(void);

#endif
