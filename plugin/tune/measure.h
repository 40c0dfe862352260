/* measure.h - what a call takes, of Beeline's algorithms and of NCCL, on a communicator that nobody uses yet.
 *
 * Calls go one behind the other on the rank's own stream, as a graph, between two events, behind as many that are not timed and so let the
 * ranks begin together.  Several ranks of this thread go together.  Functions that return int return 0, or -1 and bl_why(). */
#ifndef BEELINE_MEASURE_H
#define BEELINE_MEASURE_H

#include "baseline.h"
#include "cuda/memory.h"
#include "dispatch.h"

/* One rank's. */
struct bl_gauge {
    struct bl_comm *comm;
    CUstream stream;
    CUevent begin, end;
    struct bl_memory memory; /* what is sent, and behind it as much that is received */
    uint64_t room;           /* of each */
    const atomic_bool *cancel;
};

int bl_gauge_open(struct bl_gauge *gauge, struct bl_comm *comm, CUstream stream, uint64_t room,
                  const atomic_bool *cancel);

/* With nothing running. */
void bl_gauge_close(struct bl_gauge *gauge);

/* One way to do a collective: a range of an algorithm, or of NCCL. */
struct bl_way {
    const struct bl_table *table;
    const struct bl_range *range;
    const ncclComm_t *baseline; /* a handle for each gauge */
};

/* us[i]: the mean of so many calls of `bytes` of bfloat16, sums where it reduces, on gauges[i].  Else not 0,
 * and bl_why().  Unless it is that the time is not known, not all calls are made, or kernels may be running. */
enum { BL_MEASURE_LATE = 1 /* the calls do not end, perhaps since a peer has not made them */, BL_MEASURE_UNTIMED };
int bl_measure(const struct bl_gauge *gauges, int count, enum bl_collective collective, const struct bl_way *way,
               uint64_t bytes, unsigned calls, uint64_t deadline, double *us);

#endif
