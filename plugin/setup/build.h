/* build.h - the steps by which the ranks of one communicator come to share staging. */
#ifndef BEELINE_BUILD_H
#define BEELINE_BUILD_H

#include "member.h"

/* From the meeting to the last vote, for the members of one communicator on this thread, with a vote after each step.  Leaves
 * either all members well and ready to serve, or not well; releases nothing. */
void bl_build(struct bl_member **members, int count);

/* For a suspended communicator: meets again, and has the staging again, zeroed, where it was.  As bl_build. */
void bl_rebuild(struct bl_member **members, int count);

#endif
