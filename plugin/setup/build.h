/* build.h - the steps by which the ranks of one communicator come to share staging, and multicast if they can. */
#ifndef BEELINE_BUILD_H
#define BEELINE_BUILD_H

#include "member.h"

/* All steps, for the members of one communicator on this thread.  Leaves either all members well and ready to serve, or not
 * well; undoes nothing.  `again`: only those by which a suspended communicator has its staging again, filled as at first, where it was. */
void bl_build(struct bl_member **members, int count, bool again);

/* Frees what the steps took for serving, in reverse, but first what needs no context.  No kernel may be running; if `stuck`,
 * leaks instead.  The context is made current for it. */
void bl_build_undo(struct bl_comm *comm);

#endif
