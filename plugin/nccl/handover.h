/* handover.h - at the end of a group, calls of it that Beeline has collected and NCCL does better: bl_table_leaves_group.
 *
 * Of the group's own thread, ahead of the real group's end.
 */
#ifndef BEELINE_HANDOVER_H
#define BEELINE_HANDOVER_H

#include "launch/fuse.h"

/* Hands them to the real NCCL, each a turn as if it had been NCCL's at once, and takes them out of the list, whose others keep their order;
 * *count is how many are left.  An error is the group's. */
ncclResult_t bl_hand_over(struct bl_collected *calls, int *count);

#endif
