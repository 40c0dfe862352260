/* group.h - the groups of this thread: calls and new communicators are collected, and run at the outermost end (group_end.c).
 *
 * Calls for the real NCCL go to it at once: it collects them itself.  At the outermost end some of Beeline's may follow them
 * (together.h), and its other collectives are launched, in few launches (fuse.h), then the real group ends, with Beeline's messages
 * beside NCCL's (beside.h), and then what is left of these.  Where NCCL has the group fail, nothing of it is launched.  The order
 * between NCCL's part and Beeline's is the same on every rank, because the routes are; why it is this one: docs/design.md.
 *
 * All of it is the calling thread's own.
 */
#ifndef BEELINE_GROUP_H
#define BEELINE_GROUP_H

#include <stdbool.h>

#include "launch/turn.h"
#include "setup/setup.h"

struct bl_group {
    int depth;
    struct bl_collected *calls;
    int count, capacity;
    struct bl_turn *forwarded; /* calls that went to the real NCCL, whose turns are to be ended */
    int forwarded_count, forwarded_capacity;
    bool ahead;         /* what goes ahead of NCCL's calls was launched */
    bool late;          /* what goes on beside NCCL's calls is launched behind the real group's end */
    ncclResult_t error; /* the first of Beeline's, of which the real group knows nothing */
    bool prepares;      /* whether NCCL has the group fail is known at its end alone */
    struct bl_setup_request *inits;
    int init_count, init_capacity;
    struct bl_comm **finalized;
    int finalized_count, finalized_capacity;
};

/* This thread's, for who opens and ends it. */
struct bl_group *bl_group(void);

/* True between the outermost ncclGroupStart and its end on this thread. */
bool bl_group_open(void);

/* Collects a call; ncclSystemError if there is no memory for it. */
ncclResult_t bl_group_add_call(const struct bl_call *call);

/* Collects the second half of a call that went to the real NCCL: bl_turn_end at the group's end. */
ncclResult_t bl_group_add_forwarded(const struct bl_turn *turn);

/* The turn that the open group's last such call on the communicator has, if that is on the same stream; else NULL.  NCCL launches
 * both at the group's end, so it is the next call's as well, and the driver is asked once for all. */
const struct bl_turn *bl_group_turn(const struct bl_comm *comm, CUstream stream);

/* Notes the streams that the group is on: launch/streams.h.  False: out of memory. */
bool bl_group_list_streams(const struct bl_group *group);

/* A communicator that is finalized in the open group: NCCL does that at its end, so calls of the group are still made.  False: out of memory. */
bool bl_group_add_finalized(struct bl_comm *comm);

/* Beeline refuses a call of the open group, or all of it: the group fails, and nothing of it is launched. */
void bl_group_fail(ncclResult_t error);

/* NCCL does something of the open group at its end ahead of all calls, which may fail: registers windows, say.  So Beeline's come behind that end. */
void bl_group_prepares(void);

/* What the real NCCL has returned to a call of whatever kind: an error may fail the group that is open there, and so here; its end says.  Returns it. */
ncclResult_t bl_group_heard(ncclResult_t result);

/* A communicator whose real init was called on this thread: sets Beeline's side up now, or at the outermost group end.
 */
void bl_group_add_init(const struct bl_setup_request *request);

#endif
