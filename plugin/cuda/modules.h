/* modules.h - the embedded kernels, loaded once a context and looked up by name.
 *
 * Threads: any; one lock, which is not held while modules load.  bl_modules_open loads at the first use of a context.  They stay until
 * the context ends, as NCCL's own: loading takes 25 ms, and some of the host's memory each time.  Only where the driver cannot
 * tell one context from another under the same handle are they unloaded behind the last use.  The context must be current.
 */
#ifndef BEELINE_MODULES_H
#define BEELINE_MODULES_H

#include <stdbool.h>

#include "driver.h"
#include "kernels.h"
#include "memory.h"

struct bl_modules;

/* context_id: what no other context has under the same handle (context.h).  0, or -1 and bl_why(). */
int bl_modules_open(struct bl_modules **modules, CUcontext context, uint64_t context_id);

/* Every kernel for that many ranks, of those that need multicast or of those that do not, loaded to the device already: a
 * load while a peer's kernel waits would deadlock. */
int bl_modules_find(struct bl_modules *modules, CUdevice device, int nranks, bool multicast,
                    CUfunction function[BL_KERNELS][BL_DATATYPES]);

void bl_modules_close(struct bl_modules *modules);

/* Memory for a self-test; two are kept for the next ones while the modules are in use, since to release it may wait for all of the GPU's
 * work.  0, or -1 and bl_why(). */
int bl_modules_scratch(struct bl_modules *modules, struct bl_memory *memory, CUdevice device, uint64_t bytes);
void bl_modules_keep(struct bl_modules *modules, struct bl_memory *memory);

#endif
