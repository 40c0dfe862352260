/* switch.h - calls of a running job go to NCCL while a file exists (BEELINE_SWITCH), on all ranks from the same call on.
 *
 * The ranks of a communicator share a page.  Each claims its next calls there, some dozens at once, and looks at nothing
 * for those.  A change is decided, by rank 0, for a call that no rank has claimed yet, under the lock under which calls
 * are claimed: so whoever comes to that call claims it afterwards, and knows.  The next change waits until all are
 * behind the last.
 *
 * Calls are counted by order on the communicator, which is the same on all ranks.  One that a graph has captured stays what it was.
 */
#ifndef BEELINE_SWITCH_H
#define BEELINE_SWITCH_H

#include "comm.h"

/* Rank 0's page, and its descriptor to be sent, which the caller closes; or another's, from that.  0, or -1 and bl_why(). */
int bl_switch_create(struct bl_comm *comm, int *fd);
int bl_switch_join(struct bl_comm *comm, int fd);

/* Whether the communicator's next call is Beeline's; by the thread that makes it. */
bool bl_switch_serves(struct bl_comm *comm);

/* Whether calls may be switched at all: then messages between two ranks are NCCL's, since no rank knows how many others have. */
static inline bool bl_switch_there(const struct bl_comm *comm) {
    return atomic_load_explicit(&comm->turnout.page, memory_order_relaxed) != NULL;
}

/* That call has been made, or collected by a group.  One that NCCL has refused is not to be counted; nor one that moves
 * nothing, since what comes of it differs between ranks. */
void bl_switch_count(struct bl_comm *comm, bool grouped);

/* The group ends, and its calls are made, or not. */
void bl_switch_group_ends(struct bl_comm *comm, bool made);

/* Whether the file says that Beeline serves; and has rank 0 of a communicator decide so.  Now and then, by another thread. */
bool bl_switch_on(void);
void bl_switch_decide(struct bl_comm *comm, bool on);

void bl_switch_close(struct bl_comm *comm);

#endif
