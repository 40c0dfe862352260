/* introduce.h - steps of set-up (build.c): who is there, who are we, and can all of us? */
#ifndef BEELINE_INTRODUCE_H
#define BEELINE_INTRODUCE_H

#include "member.h"

/* The members greet the other ranks, and hear them; true if all ranks are there, and well. */
bool bl_introduce_meet(struct bl_member **members, int count);

/* Finds the context: none is current before. */
int bl_introduce_know_oneself(struct bl_member *member);
int bl_introduce_send(struct bl_member *member);
int bl_introduce_receive(struct bl_member *member);

int bl_introduce_judge(struct bl_member *member);
int bl_introduce_links(struct bl_member *member);

void bl_introduce_undo(struct bl_comm *comm);

#endif
