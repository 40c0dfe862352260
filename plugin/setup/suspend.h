/* suspend.h - a suspended communicator's staging is given back, and comes again at the same addresses: what graphs hold of it
 * stays true.
 *
 * NCCL's suspend and resume bring all ranks together, with nothing running on their GPUs; a thread does it for one rank.  (Within a
 * group NCCL may do so at its end only: there the staging stays.)
 */
#ifndef BEELINE_SUSPEND_H
#define BEELINE_SUSPEND_H

#include "comm/comm.h"
#include "meeting.h"

/* Device memory of Beeline's, in bytes.  *suspends: it is given back by a suspend. */
uint64_t bl_suspend_bytes(const struct bl_comm *comm, bool *suspends);

/* After the real suspend has succeeded. */
void bl_suspend(struct bl_comm *comm);

/* Before the real resume of one that is suspended: its ranks will look for each other. */
bool bl_suspended(const struct bl_comm *comm);
void bl_resume_announce(struct bl_comm *comm, struct bl_meeting *meeting);

/* After the real resume, which has succeeded, or not.  Where the staging cannot be had again the communicator is NCCL's from
 * then on, or, if graphs may hold calls of Beeline's, its calls fail, and so does this. */
ncclResult_t bl_resume(struct bl_comm *comm, struct bl_meeting *meeting, bool succeeded);

#endif
