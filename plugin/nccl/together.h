/* together.h - calls of a group that Beeline could serve go to the real NCCL where that has all of their kind in one kernel, and is faster.
 *
 * All ranks have the same calls of a communicator in a group, whatever they have of others and in which order, and its table is the same; so they come
 * to the same.  What a user's setting gives Beeline stays, as do sums that are to have the same bits at every size.
 */
#ifndef BEELINE_TOGETHER_H
#define BEELINE_TOGETHER_H

#include "group.h"

/* At the outermost end of a group, ahead of all that is launched; an error is told to the group. */
void bl_together_forward(struct bl_group *group);

#endif
