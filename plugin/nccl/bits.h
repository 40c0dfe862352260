/* bits.h - where every size of a sum is to have the same bits (BEELINE_BATCH_INVARIANT=1): says which sums are NCCL's
 * all the same. */
#ifndef BEELINE_BITS_H
#define BEELINE_BITS_H

#include "launch/call.h"

/* The call goes to NCCL, as its route says, or with all of its communicator's.  If that may change its bits: one WARN
 * a communicator and reason. */
void bl_bits_tell(const struct bl_call *call);

#endif
