/* serve.h - a collective that Beeline may serve, and that else the real NCCL does in turn.
 *
 * The route of a call is a pure function of what is equal on all ranks; see bl_table_select.  What NCCL would refuse (a
 * NULL buffer, an unknown datatype) goes to NCCL, so that the caller gets NCCL's own error.
 *
 * Threads: any, one at a time per communicator.
 */
#ifndef BEELINE_SERVE_H
#define BEELINE_SERVE_H

#include "forward.h"
#include "launch/call.h"

/* True if the call is done, with its result in *result: served, or refused.  Else the real NCCL's turn has begun: the real
 * function is to be called, and bl_forward_after behind it.  for_nccl: why it is NCCL's, whatever its route would be;
 * BL_REASONS: it is not.  What the call lacks yet, communicator and route, is filled in. */
bool bl_serve(struct bl_call *call, ncclComm_t handle, enum bl_reason for_nccl, struct bl_forward **forward,
              ncclResult_t *result);

/* A call that was Beeline's goes to the real NCCL for this reason, as INFO is told. */
void bl_serve_to_nccl(struct bl_call *call, enum bl_reason why);

/* Why a gather or scatter, whose messages are as this one, is NCCL's, on a communicator that is served; BL_REASONS: it is not. */
enum bl_reason bl_serve_leaves_rooted(struct bl_comm *comm, const struct bl_request *request);

#endif
