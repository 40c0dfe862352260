/* order.h - calls on one communicator take effect in issue order, whatever streams they use.
 *
 * Work on one stream is in order by itself.  bl_order_before() makes `stream` wait for the communicator's last call where
 * that ran on another stream; bl_order_after() notes that a call, Beeline's or the real NCCL's, was issued on `stream`.
 * Both are called with the communicator's context current.  Outside the one-stream case they cost an event each.
 */
#ifndef BEELINE_ORDER_H
#define BEELINE_ORDER_H

#include "comm.h"

ncclResult_t bl_order_before(struct bl_comm *comm, CUstream stream);
ncclResult_t bl_order_after(struct bl_comm *comm, CUstream stream);
void bl_order_release(struct bl_comm *comm);

#endif
