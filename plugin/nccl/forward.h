/* forward.h - what goes around a call that the real NCCL serves and that puts work on a stream.
 *
 * Threads: any, one at a time per communicator.  Unknown communicators are fine: nothing is done for them.
 */
#ifndef BEELINE_FORWARD_H
#define BEELINE_FORWARD_H

#include "nccl.h"

struct bl_comm;

/* Before the real call, which is not made inside of another: an error is the caller's result, and the real call is not made. */
ncclResult_t bl_forward_before(ncclComm_t comm, cudaStream_t stream);

/* bl_forward_before of what is known already. */
ncclResult_t bl_forward_known_before(struct bl_comm *known, cudaStream_t stream);

/* After the real call, which returned `result`, on the same thread. */
void bl_forward_after(cudaStream_t stream, ncclResult_t result);

#endif
