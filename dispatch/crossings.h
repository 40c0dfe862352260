/* crossings.h - thresholds from times: which algorithm serves which size.  Pure. */
#ifndef BEELINE_CROSSINGS_H
#define BEELINE_CROSSINGS_H

#include "dispatch.h"

enum { BL_TIMES_SIZES = 12, BL_TIMES_WAYS = 8 };

/* Of one collective.  Way 0 is NCCL. */
struct bl_times {
    int sizes, ways;
    bool few[BL_TIMES_WAYS];                  /* it has few multiprocessors */
    uint64_t bytes[BL_TIMES_SIZES];           /* of a call's count; rising */
    double us[BL_TIMES_SIZES][BL_TIMES_WAYS]; /* of a call, on the slowest rank; 0: this way it was not done */
};

struct bl_crossing {
    uint64_t max_bytes; /* up to which it serves */
    int way;
};

/* Writes the rows, one where the way changes and the last, and returns how many there are.  A way of Beeline's must gain something to take a
 * size from NCCL: more than noise is; and of long all-gathers and reduce-scatters, which run beside compute more often than not and take
 * all multiprocessors, so much over NCCL and over ways with few that what runs beside them loses less.  The series of ways is taken that loses least to the
 * fastest of each size, where a change costs as much as the noise.  Between two sizes of different ways, the threshold is where their
 * times would meet, drawn straight. */
int bl_crossings(const struct bl_times *times, enum bl_collective collective, struct bl_crossing rows[BL_TIMES_SIZES]);

#endif
