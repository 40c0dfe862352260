/* share.h - steps of set-up (build.c): kernels, staging that all ranks map, the page of the switch, and what launches need. */
#ifndef BEELINE_SHARE_H
#define BEELINE_SHARE_H

#include "member.h"

/* Of a suspended communicator: has the staging again, zeroed, where it was. */
int bl_share_create(struct bl_member *member);
int bl_share_export(struct bl_member *member);
int bl_share_send(struct bl_member *member);
int bl_share_receive(struct bl_member *member);
void bl_share_undo(struct bl_comm *comm);

bool bl_share_has_switch(const struct bl_member *member);
int bl_share_switch_send(struct bl_member *member);
int bl_share_switch_receive(struct bl_member *member);

/* The communicator's arguments, events and streams. */
int bl_share_fill(struct bl_member *member);
int bl_share_prepare_trial(struct bl_member *member);

#endif
