/* beeline.h - what Beeline adds to NCCL's functions: what would happen to a call, and why, and what the box is. */
#ifndef BEELINE_H
#define BEELINE_H

#include "nccl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The name of the algorithm that serves such a call on this communicator, with ":warps" behind it where it spreads the peers over
 * warps; "nccl" if the real NCCL does.  collective: 0
 * all-reduce, 1 all-gather, 2 reduce-scatter, 3 all-to-all, 4 broadcast, 5 reduce, 6 send and receive; count, datatype and op as in the call,
 * whichever rank is the root or the peer.  Static text, never NULL; any thread that may use the communicator. */
const char *beelineRouteOf(ncclComm_t comm, int collective, size_t count, int datatype, int op);

/* Why all calls on this communicator go to the real NCCL, in words; NULL where Beeline serves it.  Good until it is destroyed. */
const char *beelineLeftWhy(ncclComm_t comm);

/* The line of tuning files that starts a section for this communicator's box and no other; NULL where NCCL serves it.  Good until it
 * is destroyed. */
const char *beelineSectionOf(ncclComm_t comm);

/* The version, and a hash of the sources: "0.1.0-1a2b3c4d5e6f".  Static text. */
const char *beelineBuild(void);

/* The box as Beeline sees it, as JSON: GPUs that this process may use and how they are joined, versions, the routes of
 * communicators of the first 2, 3, ... of them (without multicast), and what is off and why.  Writes at most `size` bytes, the
 * ending zero among them, and returns how many characters there are to write, as snprintf does; -1 without memory.  Makes no context,
 * but initialises the driver: children that are forked later cannot use CUDA.  Any thread. */
int beelineBox(char *json, size_t size);

#ifdef __cplusplus
}
#endif
#endif
