/* serve.h - a collective that Beeline may serve, and that else the real NCCL does in turn.
 *
 * The route of a call is a pure function of what is equal on all ranks; see bl_table_select.  What NCCL would refuse (a
 * NULL buffer, an unknown datatype) goes to NCCL, so that the caller gets NCCL's own error.
 *
 * Threads: any, one at a time per communicator.
 */
#ifndef BEELINE_SERVE_H
#define BEELINE_SERVE_H

#include <stdbool.h>

#include "comm/comm.h"
#include "forward.h"
#include "real/real.h"

/* True if the call is Beeline's, with its result in *result; else it is the real NCCL's.  *known: what Beeline knows of the
 * communicator, looked up once a call; NULL inside of NCCL's own calls, too. */
bool bl_serve_call(enum bl_collective collective, const void *sendbuff, void *recvbuff, size_t count,
                   ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t handle, cudaStream_t stream,
                   struct bl_comm **known, ncclResult_t *result);

/* The real function called in turn; an error of the turn-taking before it is the result.  What NCCL calls itself (ncclBcast is
 * its ncclBroadcast) is a part of that call's turn. */
#define BL_IN_TURN(known, stream, ...)                                                                                 \
    __extension__({                                                                                                    \
        const bool inner_ = bl_real_depth > 0;                                                                         \
        ncclResult_t forwarded_ = inner_ ? ncclSuccess : bl_forward_known_before(known, stream);                       \
        if (forwarded_ == ncclSuccess) {                                                                               \
            forwarded_ = BL_REAL(__VA_ARGS__);                                                                         \
            if (!inner_) bl_forward_after(stream, forwarded_);                                                         \
        }                                                                                                              \
        forwarded_;                                                                                                    \
    })

#endif
