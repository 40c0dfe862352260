/* order.h - calls on one communicator take effect in issue order, whatever streams they use.
 *
 * Work on one stream is in order by itself, and NCCL keeps its own calls in order; this is about the rest: Beeline's
 * calls on several streams, Beeline's beside NCCL's, eager calls beside replays of graphs that hold captured ones.
 *
 *   eager                         an event is recorded behind each launch of Beeline's, and a call on another stream than
 *                                 the last waits for it.  BEELINE_STREAM_EVENTS=0 records it only when the stream has
 *                                 changed, on the stream of the last call: cheaper, for programs that destroy no stream
 *                                 while they use the communicator.
 *   captured, in one graph        the streams of the capture are joined, so that the calls become a chain of nodes
 *   captured beside anything else the graph begins by waiting for the communicator's event and ends by recording it (as
 *                                 NCCL's own does), and each eager call from then on does so too: replays and eager calls
 *                                 take turns in the order in which they are issued.  BEELINE_GRAPH_MIXING=0, or NCCL's own
 *                                 NCCL_GRAPH_MIXING_SUPPORT=0, leaves that out for those who never overlap the two.
 *
 * Calls of the real NCCL are recorded only once the communicator is used from several streams, so that they cost nothing:
 * a first change of stream right behind one names the stream of that call, which must still be there.
 *
 * Called with the communicator's context current, by the thread that uses the communicator.
 */
#ifndef BEELINE_ORDER_H
#define BEELINE_ORDER_H

#include "comm.h"

/* What bl_order_before learnt of the stream, for bl_order_after. */
struct bl_order_turn {
    bool capturing;
    unsigned long long capture;
};

/* Whether `stream` is being captured, and by which capture: the first half of a turn. */
void bl_order_ask(CUstream stream, struct bl_order_turn *turn);

/* Makes `stream`, of which bl_order_ask has told, wait for the communicator's last call. */
ncclResult_t bl_order_before(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn);

/* Notes that a call, Beeline's (`launched`) or the real NCCL's, was issued on `stream`. */
ncclResult_t bl_order_after(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn, bool launched);

/* Around a launch on streams[0] that holds calls of all these streams: it waits for what is on them, and they wait for it.
 * All of them are captured by one graph, or none is. */
ncclResult_t bl_order_join(struct bl_comm *comm, const CUstream *streams, int count);
ncclResult_t bl_order_fork(struct bl_comm *comm, const CUstream *streams, int count);

void bl_order_release(struct bl_comm *comm);

#endif
