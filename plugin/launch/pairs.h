/* pairs.h - launches of messages between two ranks: ncclSend and ncclRecv, one alone or all of a group.
 *
 * What is on one communicator in one group is one launch, as far as its arguments and the multiprocessors have room: in it all messages go on
 * at once, as NCCL has it, however the peers' groups are cut.  Where it takes several launches they follow each other, with the
 * messages in the order of bl_pairs_before: so, where both ends cut their groups alike, of those that have not ended take the first; at its
 * other end what comes before it has ended, and it is under way there, too.
 */
#ifndef BEELINE_PAIRS_H
#define BEELINE_PAIRS_H

#include "call.h"

/* Whether a goes before b, of one communicator and group: first what a rank sends to itself, each beside the call that receives it; then
 * the first message of each pair of ranks, the second, ..., among these by the distance of the ranks, and then by the sender: all messages of
 * all ranks have one order, which both ends of each see.  `index`: the how-many-th of its pair and direction in the group. */
bool bl_pairs_before(const struct bl_call *a, int a_index, const struct bl_call *b, int b_index);

/* ncclInvalidUsage, with a warning, if a message to itself lacks its other end in the group, or that has another size: as from NCCL. */
ncclResult_t bl_pairs_check(const struct bl_call *const *calls, int count);

/* Makes the grid as large as the messages are worth, at most as the widest of their routes says. */
void bl_pairs_grid(const struct bl_call *const *calls, int count, struct bl_route *grid);

/* The next of these calls that a launch of no larger a grid holds: writes its arguments, and the grid; returns how many they are. */
int bl_pairs_fill(struct bl_pairs_args *args, struct bl_route *grid, const struct bl_call *const *calls, int count);

#endif
