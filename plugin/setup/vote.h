/* vote.h - what the steps of set-up are made of, for the members of one communicator on this thread: messages between the ranks, and
 * the vote. */
#ifndef BEELINE_VOTE_H
#define BEELINE_VOTE_H

#include "member.h"

enum bl_step {
    BL_STEP_IDENTITY = 1,
    BL_STEP_MEMORY,
    BL_STEP_TABLE,
    BL_STEP_MULTICAST,
    BL_STEP_MULTICAST_FD,
    BL_STEP_SWITCH,
    BL_STEP_TUNE_ID,
    BL_STEP_TUNE,
    BL_STEP_VOTE = 100
};

bool bl_step_all_well(struct bl_member **members, int count);

/* When a wait that begins now ends: BEELINE_SETUP_TIMEOUT. */
uint64_t bl_step_deadline(void);

void bl_step_send(struct bl_member *member, uint32_t step, const void *data, size_t bytes, int fd);

/* The descriptor that is on its way (member->exported), which is closed behind it. */
void bl_step_send_exported(struct bl_member *member, uint32_t step);

/* The message of `step` from a peer.  A peer that has to leave sends its verdict, whatever is expected of it: then that is
 * ours, too. */
bool bl_step_receive(struct bl_member *member, int peer, uint32_t step, void *data, size_t bytes, int *fd,
                     uint64_t deadline);

/* Says our verdict to all: before we leave, or as a half of a vote. */
void bl_step_vote_send(struct bl_member *member);

/* True if every rank is well.  Equal on all ranks unless one of them died just now, which the next vote shows.  What it says
 * of multicast is in member->multicast of each then. */
bool bl_step_vote(struct bl_member **members, int count);

#endif
