/* multicast.h - a multicast object: memory of each rank behind one address, at which a store reaches all of it.
 *
 * Everything here that calls the driver for multicast goes through one door in multicast.c, which is closed unless
 * BEELINE_MULTICAST=1 and none of the variables of bl_params_multicast_forbidden says otherwise, and which is asked anew for
 * each step.
 *
 * Steps, each of which may fail alone and is voted on (plugin/setup/build.c): create (rank 0, which hands its object to the
 * others) or import, join, bind, map.  All ranks have joined before any binds.  Release undoes whatever was done, in
 * reverse, and is safe at any point; what was bound must not be released while a peer's kernel may reach it: see nvls_release.h.
 * Threads: one at a time for one struct bl_multicast.
 */
#ifndef BEELINE_MULTICAST_H
#define BEELINE_MULTICAST_H

#include <stdbool.h>
#include <stdint.h>

#include "driver.h"
#include "kernels.h"

struct bl_multicast_calls;

struct bl_multicast {
    const struct bl_multicast_calls
        *calls; /* as the door gave them: release must undo what was done even if it has closed */
    CUdevice device;
    int rank, nranks;
    CUmemAllocationHandleType type;
    uint64_t bytes, granularity;
    CUmemGenericAllocationHandle object, memory;
    CUdeviceptr replica, address; /* this rank's memory; that of all ranks */
    CUdeviceptr words;            /* BL_MULTICAST_WORDS words of this device alone, zeroed */
    bool have_object, have_memory, bound;
    bool replica_reserved, replica_mapped, address_reserved, address_mapped;
};

/* What rank 0 tells the others of its object; a file descriptor goes beside it if the type is one. */
struct bl_multicast_handle {
    uint64_t bytes;
    uint32_t type; /* CUmemAllocationHandleType */
    uint32_t pad;
    unsigned char fabric[64];
};

/* Whether this rank can have multicast at all; if not, bl_why(). */
bool bl_multicast_possible(CUdevice device, int arch);

/* Each returns 0, or -1 and bl_why().  The context of the device must be current. */

/* An object for `bytes` or more of nranks devices.  The caller closes *fd, if it is not -1. */
int bl_multicast_create(struct bl_multicast *multicast, CUdevice device, int rank, int nranks, uint64_t bytes,
                        struct bl_multicast_handle *handle, int *fd);
/* The same on the others, with what rank 0 told.  The caller closes fd. */
int bl_multicast_import(struct bl_multicast *multicast, CUdevice device, int rank, int nranks, uint64_t bytes,
                        const struct bl_multicast_handle *handle, int fd);
/* Adds this rank's device; allocates its memory and the words, and zeroes them through `stream`. */
int bl_multicast_join(struct bl_multicast *multicast, CUstream stream);
int bl_multicast_bind(struct bl_multicast *multicast);
int bl_multicast_map(struct bl_multicast *multicast);

/* What only this rank's own kernels use: mappings and words.  Release does this first, and needs no context behind it. */
void bl_multicast_withdraw(struct bl_multicast *multicast);
void bl_multicast_release(struct bl_multicast *multicast);

#endif
