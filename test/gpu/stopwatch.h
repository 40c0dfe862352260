/* stopwatch.h - how long launches of one kernel take that follow each other in a graph on every rank.
 *
 * A replay is timed behind another one of the same graph, and both are issued on all ranks behind a gate that the host then
 * opens: so neither the host's time nor ranks that start late are in it.  Its time is that of the slowest rank, by the
 * device's clock.
 */
#ifndef BEELINE_TEST_STOPWATCH_H
#define BEELINE_TEST_STOPWATCH_H

#include "rig.h"

/* More launches, twice, might not fit into what a stream holds before the gate opens. */
enum { MOST_LAUNCHES = 256, MOST_REPLAYS = 1000 };

struct stopwatch {
    struct rig *rig;
    uint32_t *gate[BOX_RANKS]; /* in host memory, where each rank's stream waits for it */
    CUdeviceptr gate_there[BOX_RANKS];
    CUevent event[BOX_RANKS][2];
};

struct times {
    double median, least, most; /* us of a launch */
};

void stopwatch_open(struct stopwatch *watch, struct rig *rig);
void stopwatch_close(struct stopwatch *watch);

/* False if a kernel's wait ran out: then rig_failed tells. */
bool stopwatch_time(struct stopwatch *watch, struct call *call, const struct shape *shape, int launches, int replays,
                    struct times *times);

#endif
