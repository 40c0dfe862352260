/* order.h - calls on one communicator take effect in issue order, whatever streams they use.
 *
 * Work on one stream is in order by itself, and NCCL keeps its own calls in order; this is about the rest: Beeline's
 * calls on several streams, Beeline's beside NCCL's, eager calls beside replays of graphs that hold captured ones.
 *
 *   eager                         an event is recorded behind each call, Beeline's or NCCL's, and a call on another stream
 *                                 than the last waits for it.
 *   captured, in one graph        a call on another stream than the last depends on the last call's nodes, so that the
 *                                 calls become a chain, whatever is called beside the capture.
 *   captured beside anything else the graph begins by waiting for the communicator's event and ends by recording it (as
 *                                 NCCL's own does), and each eager call from then on waits for it, too: replays and eager
 *                                 calls take turns in the order in which they are issued.  NCCL_GRAPH_MIXING_SUPPORT=0, or
 *                                 graphUsageMode 0 or 1 in a config, leaves that out for those who never overlap the two.
 *
 * A stream is named only while the caller's call lasts: it may be destroyed right behind it, and its handle may be another
 * stream's then.  So what is kept of it is its id, which no other stream will have.
 *
 * Called with the communicator's context current, by the thread that uses the communicator.
 */
#ifndef BEELINE_ORDER_H
#define BEELINE_ORDER_H

#include "comm/comm.h"

/* The events.  0, or -1 and bl_why(). */
int bl_order_open(struct bl_comm *comm);
void bl_order_close(struct bl_comm *comm);

/* What the driver said to the last call of this thread that failed here. */
CUresult bl_order_failure(void);

/* The first half of a turn. */
void bl_order_ask(CUstream stream, struct bl_order_turn *turn);

/* Whether nothing may go to the stream now, since it is the legacy stream, which would wait for one that captures: NCCL asks at the call, and fails; a launch
 * would invalidate the capture.  Of the context that is current. */
bool bl_order_refuses(CUstream stream);

/* ncclInvalidUsage, as of NCCL, if a group's streams are not all captured by one graph, or all eager: to join them would break
 * the capture. */
ncclResult_t bl_order_check(const struct bl_comm *comm, const CUstream *streams, int count);

/* Makes `stream`, of which bl_order_ask has told, wait for the communicator's last call. */
ncclResult_t bl_order_before(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn);

/* If calls of another communicator are in the capture of this turn: has `stream` depend on the last of them.  Calls of one group have no order among
 * themselves: while some of the other's go on beside NCCL's (beside.h), the last is that ahead of their group, if there was one.  False if there are none. */
bool bl_order_follow(struct bl_comm *other, CUstream stream, const struct bl_order_turn *turn, ncclResult_t *result);

/* Notes that one, before the first of these is launched. */
void bl_order_keep(struct bl_comm *comm, const struct bl_order_turn *turn);

/* Makes `stream` wait for events, those that a capture waits for when its graph is replayed. */
ncclResult_t bl_order_wait(CUstream stream, const CUevent *events, int count, const struct bl_order_turn *turn);

/* Notes that a call was issued on `stream`.  Behind one beside NCCL's no event is recorded (beside.h), for which NCCL's would wait where
 * their streams share a queue: the turn of NCCL's does so, behind both. */
ncclResult_t bl_order_after(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn);

/* CUDA_ERROR_NOT_READY until the communicator's calls have ended. */
CUresult bl_order_query(const struct bl_comm *comm);

/* streams[0] waits for what is on the others; those wait for what is on it; both, so that what comes on any of them is behind what
 * was on any.  All of them are captured by one graph, or none is. */
ncclResult_t bl_order_join(struct bl_comm *comm, const CUstream *streams, int count);
ncclResult_t bl_order_fork(struct bl_comm *comm, const CUstream *streams, int count);
ncclResult_t bl_order_meet(struct bl_comm *comm, const CUstream *streams, int count);

#endif
