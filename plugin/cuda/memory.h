/* memory.h - staging: device memory of one rank that every rank of the communicator maps.
 *
 * Steps, each of which may fail alone and is voted on in set-up: create (allocate, map here, fill), export a file
 * descriptor, import each peer's, release.  Release undoes whatever was done, in reverse, and is safe at any point.
 * User memory is never exported or mapped.
 * Threads: one at a time for one struct bl_memory.
 */
#ifndef BEELINE_MEMORY_H
#define BEELINE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "driver.h"
#include "kernels.h"

struct bl_memory {
    CUdevice device;
    uint64_t bytes; /* of staging and epochs, rounded up to the granularity */
    int rank, nranks;
    CUmemGenericAllocationHandle handle[BL_MAX_RANKS];
    CUdeviceptr address[BL_MAX_RANKS];
    bool have_handle[BL_MAX_RANKS], mapped[BL_MAX_RANKS], reserved[BL_MAX_RANKS];
    CUdeviceptr epochs;                       /* BL_LOCAL_WORDS words behind the staging, of this device alone */
    uint64_t blank_at, blank_bytes, blank[2]; /* what is blank at first, and with what: kernels/core/staging.cuh */
};

/* Each returns 0, or -1 and bl_why().  The context of the device must be current. */

/* Allocates and maps staging of this layout and the epochs, and fills them through `stream`, which has done so when this
 * returns: lines with `blank`, all else with zeros. */
int bl_memory_create(struct bl_memory *memory, CUdevice device, int rank, int nranks,
                     const struct bl_staging_layout *layout, const uint64_t blank[2], CUstream stream);
/* The caller closes *fd. */
int bl_memory_export(const struct bl_memory *memory, int *fd);
/* Maps what `peer` exported.  The caller closes fd, then or at once. */
int bl_memory_import(struct bl_memory *memory, int peer, int fd);
/* Gives back what is behind the addresses of all ranks, and keeps the addresses; no kernel that uses it may be running.  What
 * resume has there, filled as at first, is of this rank: the peers' is imported again. */
void bl_memory_suspend(struct bl_memory *memory);
int bl_memory_resume(struct bl_memory *memory);
/* No kernel that uses the memory may be running. */
void bl_memory_release(struct bl_memory *memory);

/* Memory of one rank for a while, at address[0]: nothing in it is zeroed.  To have it waits for no work of the GPU, which may be another
 * communicator's, waiting for a rank that waits for us; cuMemAlloc may.  (To release it may, too.) */
int bl_memory_scratch(struct bl_memory *memory, CUdevice device, uint64_t bytes);

#endif
