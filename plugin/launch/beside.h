/* beside.h - Beeline's sends and receives of a group go on beside NCCL's.
 *
 * Sends and receives of one group go on together, whoever serves them: a rank may be sent one of NCCL's only once it has
 * passed on what came by one of Beeline's, or the other way round, and NCCL alone bears that.  So where a group has messages of
 * both on a communicator, Beeline's are not behind NCCL's on the caller's stream, nor before: they are on a stream of the
 * communicator's own, one for eager groups and one for captured ones, which waits for what was on the callers' streams before
 * them, and which those wait for.  (Collectives come before messages, as with NCCL alone; but
 * where the group makes communicators, which NCCL does before it launches anything, they are beside NCCL's calls of any kind, behind that: group_end.c.)
 *
 * They are launched before the real group ends, for there NCCL waits, on the host, for ranks that a message goes to or comes
 * from for the first time.  But not where a kernel of NCCL's is the first of its kind in the GPU's context: if it needs more local memory
 * than any before it, as NCCL's first for messages does, the driver has its launch wait, on the host, until nothing runs on the GPU, and
 * Beeline's may be waiting for what that kernel brings about.
 */
#ifndef BEELINE_BESIDE_H
#define BEELINE_BESIDE_H

#include "turn.h"

/* Before the real group's end, behind bl_streams_list: launches the messages of such communicators, on their own streams, unless that is to be *late, as with `wait` all is.  They are joined when the
 * turns of NCCL's calls end: turn.h. */
ncclResult_t bl_beside_launch(struct bl_collected *calls, int count, struct bl_turn *forwarded, int forwarded_count,
                              bool wait, bool *late);

/* Behind all of the group: what is beside calls of other communicators alone is joined. */
ncclResult_t bl_beside_end(const struct bl_collected *calls, int count);

/* Behind the real group's end, where it is late: launches them; or forgets them, if the real group was not made. */
ncclResult_t bl_beside_launch_late(struct bl_collected *calls, int count, struct bl_turn *forwarded,
                                   int forwarded_count, bool made);

#endif
