/* nvls_release.h - the end of a communicator with multicast: a rank's kernels reach the memory of all ranks, so no rank releases its
 * own before all are at rest.
 *
 * The sockets of set-up stay open for that as long as the communicator lives.  A rank at rest shuts its side; when it has
 * heard that of all peers, or that they are gone, it releases.  It must not wait for peers that its own thread will bring
 * to rest later, so of the ranks of one process the last waits for other processes, for all of them.
 *
 * Threads: any.
 */
#ifndef BEELINE_NVLS_RELEASE_H
#define BEELINE_NVLS_RELEASE_H

#include <sys/types.h>

#include "bootstrap.h"
#include "cuda/multicast.h"

/* What a rank leaves behind. */
struct bl_nvls {
    struct bl_nvls *next;
    pid_t pid; /* a forked child must not touch it */
    struct bl_multicast multicast;
    struct bl_mesh mesh;
    uint64_t id;    /* of the communicator */
    int ranks_here; /* of the communicator's ranks, those in this process */
    bool met;       /* multicast stands, and the mesh is open: peers may be at work on the memory */
};

/* So long bl_nvls_release waits for peers at most.  What a peer may still use then is kept, and released when somebody looks again. */
static const uint64_t BL_NVLS_RELEASE_NS = UINT64_C(2000000000);

/* Takes over what malloc made, and frees it sooner or later.  None of this rank's kernels may be running, and
 * its context must be current. */
void bl_nvls_release(struct bl_nvls *nvls);

/* Releases what waited for peers that have left meanwhile. */
void bl_nvls_release_look(void);

#endif
