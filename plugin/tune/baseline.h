/* baseline.h - an NCCL communicator of Beeline's own, over the ranks of one that is being set up: what NCCL takes is measured on it, and it
 * is gone before the user's is served.  Nonblocking, so that nothing here waits for a peer for longer than a deadline (bl_clock_ns), nor once
 * *cancel is set.
 *
 * Functions that return int return 0, or -1 and bl_why().  Several ranks of this thread go together, since one call may wait for
 * another's.  Their contexts are made current here. */
#ifndef BEELINE_BASELINE_H
#define BEELINE_BASELINE_H

#include <stdatomic.h>
#include <stdint.h>

#include "launch/call.h"
#include "real/real.h"

/* For rank 0 to make, and to hand to the others. */
int bl_baseline_id(ncclUniqueId *id);

/* *handles[i]: of the rank comms[i]; NULL at first.  On failure they are there to be closed, and must stay where they are until then: the
 * thread on which NCCL 2.17 and older make a communicator reads and writes there. */
int bl_baseline_open(struct bl_comm *const *comms, ncclComm_t *const *handles, int count, const ncclUniqueId *id,
                     uint64_t deadline, const atomic_bool *cancel);

/* One call on each; `calls` have buffers, request and stream. */
int bl_baseline_call(const struct bl_call *calls, const ncclComm_t *handles, int count, uint64_t deadline,
                     const atomic_bool *cancel);

/* aborts: something has failed, or a peer may have; else all ranks do so, with nothing running. */
void bl_baseline_close(struct bl_comm *const *comms, ncclComm_t *handles, int count, bool aborts, uint64_t deadline);

#endif
