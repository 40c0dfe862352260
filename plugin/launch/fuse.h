/* fuse.h - the calls that a group has collected, in as few launches as they fit into.
 *
 * Collectives come first, then sends and receives, as with NCCL: pairs.h.
 *
 * What shares a launch is decided by bl_fuser_add and bl_mix_add, for each communicator by itself: by nothing that ranks may differ in,
 * as streams, buffers, captures, or what else is in the group.  A launch takes the place of its first call, on the
 * stream of that call; the streams of the others wait for it as it waits for them.
 *
 * One communicator's launches go out before the next one's, in the order of their ids, which is the same on all ranks: they may share a stream,
 * and a peer may have called the other one first.  (NCCL goes by hashes of its own, for the same end.)  Of a communicator that has several ranks here
 * those of its ranks go out in turn, the first of each, the second of each, and of a message in many pieces some: a thread that drives several GPUs and collects all
 * calls of one before the next's would else fill a GPU's queue with launches that wait for the others, and wait itself until
 * there is room.
 */
#ifndef BEELINE_FUSE_H
#define BEELINE_FUSE_H

#include "call.h"

/* When a call is launched: ahead of NCCL's of its group, beside them (beside.h), or behind them. */
enum bl_when { BL_AHEAD, BL_BESIDE, BL_BEHIND };

struct bl_collected {
    struct bl_call call;
    int next;      /* the call behind it in its launch, -1 if it is the last; this and what follows is fuse.c's own */
    int lead;      /* the first call of its launch, whose route is the launch's; -1: it is in none */
    int next_lead; /* of a launch's first call: that of the communicator's next launch, or -1 */
    int turn;      /* not of this call: place in a list of launches that are next, or -1 */
    uint64_t done; /* of a launch's first call: elements that are launched */
    int index;     /* of one end of a message: the how-many-th of its pair and direction in the group */
    bool planned;
    bool joins; /* of a launch's first call: it could be one with an earlier launch that is looked at */
    enum bl_when when;
};

/* Whether all of them could be launched at that time, as far as their group is concerned: bl_launch_check. */
ncclResult_t bl_fuse_check(struct bl_collected *calls, int count, enum bl_when when);

/* Launches all of them whose time it is; none if calls that share a launch are not all captured by one graph, or all eager (NCCL, too,
 * refuses such a group: ncclInvalidUsage).  It allocates nothing. */
ncclResult_t bl_fuse_launch(struct bl_collected *calls, int count, enum bl_when when);

#endif
