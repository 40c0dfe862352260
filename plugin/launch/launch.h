/* launch.h - collective calls, on Beeline's route or on to the real NCCL, in order with the others. */
#ifndef BEELINE_LAUNCH_H
#define BEELINE_LAUNCH_H

#include "call.h"

/* Launches a call, or several of one communicator that bl_fuser_add has put into one launch (at most BL_BATCH_MAX): on the
 * stream of the first, which stands for those of the others (streams.h); behind the communicator's earlier calls, where
 * there is room for it (room.h).  The route is the first call's: as selected, or as the fuser says for all of them.  It
 * allocates nothing, takes no lock that is held for a driver call that waits, and makes two driver calls
 * besides asking which stream it is: the launch, and the record of an event behind it.  A message above the kernel's capacity
 * is launched in pieces, some at a time.  A launch that fails has the communicator fail from then on: its peers count on it. */
ncclResult_t bl_launch(const struct bl_call *const *calls, int count);

/* Some of it: pieces behind the first *done elements, not so many that a stream has no room for them; moves *done on, of what is no message in
 * pieces to the end.  All is launched once *done is calls[0]'s count. */
ncclResult_t bl_launch_some(const struct bl_call *const *calls, int count, uint64_t *done);

/* A call's kernels, in pieces where it takes some, and nothing else, on a stream that captures: for set-up, which has the communicator
 * to itself.  Of sends and receives: both of bl_call_around. */
ncclResult_t bl_launch_bare(const struct bl_call *call);

/* To be asked before anything of a group is launched: ncclInvalidUsage if a message to itself has one end only. */
ncclResult_t bl_launch_check(const struct bl_call *const *calls, int count);

#endif
