/* streams.h - a group is on all of its streams.
 *
 * Where calls of a group on one communicator are on several streams, NCCL has it as if the whole group were posted on each of them:
 * none of it begins before all that was there, and what comes later on any of them comes behind all of it, whichever call was on
 * which.  Where Beeline makes some of the calls, or all in several launches, these streams meet before the group, between what is launched ahead of NCCL's calls and
 * these, and behind it.
 */
#ifndef BEELINE_STREAMS_H
#define BEELINE_STREAMS_H

#include "fuse.h"

/* Notes the streams of Beeline's calls of a group, in bl_beside.streams of their communicators, and that of a call of NCCL's, if Beeline has
 * any on its communicator.  False: out of memory. */
bool bl_streams_list(const struct bl_collected *calls, int count);
bool bl_streams_add(struct bl_comm *comm, CUstream stream);

/* Before what comes next of the group; ncclInvalidUsage, as of NCCL, if those of a communicator of these calls are not all captured by one graph, or all
 * eager. */
ncclResult_t bl_streams_meet(const struct bl_collected *calls, int count);

/* Behind all calls of the group that are launched by now, if they are, and forgets the streams.  But those of calls beside NCCL's, or of a communicator whose calls of NCCL's are in
 * progress, meet where its turn ends: turn.h. */
ncclResult_t bl_streams_after(const struct bl_collected *calls, int count, bool launched);

/* The same of one communicator whose calls were kept until now. */
ncclResult_t bl_streams_after_late(struct bl_comm *comm);

#endif
