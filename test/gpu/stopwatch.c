/* stopwatch.c - see stopwatch.h. */
#include "stopwatch.h"

#include <stdlib.h>

#include "graph.h"

void stopwatch_open(struct stopwatch *watch, struct rig *rig) {
    *watch = (struct stopwatch){.rig = rig};
    each_rank (rig->part, i) {
        CU_OK(cuMemHostAlloc((void **)&watch->gate[i], sizeof *watch->gate[i], CU_MEMHOSTALLOC_DEVICEMAP));
        CU_OK(cuMemHostGetDevicePointer(&watch->gate_there[i], watch->gate[i], 0));
        for (int e = 0; e < 2; e++) CU_OK(cuEventCreate(&watch->event[i][e], CU_EVENT_DEFAULT));
    }
}

void stopwatch_close(struct stopwatch *watch) {
    each_rank (watch->rig->part, i) {
        for (int e = 0; e < 2; e++) CU_OK(cuEventDestroy(watch->event[i][e]));
        CU_OK(cuMemFreeHost(watch->gate[i]));
    }
}

static void capture(struct stopwatch *watch, struct call *call, const struct shape *shape, int launches,
                    struct graphs *graphs) {
    struct part *part = watch->rig->part;
    graphs_begin(part, 0);
    for (int i = 0; i < part->count; i++)
        for (int k = 0; k < launches; k++) rig_launch(watch->rig, call, shape, i);
    graphs_end(part, 0, graphs);
    for (int i = 0; i < part->count; i++) { /* not in the first launch, beside kernels that wait for its */
        struct rank *rank = part_enter(part, i);
        CU_OK(cuGraphUpload(graphs->exec[i], rank->stream[0]));
    }
    part_drain(part);
}

static void set_gates(struct stopwatch *watch, uint32_t open) {
    for (int i = 0; i < watch->rig->part->count; i++) __atomic_store_n(watch->gate[i], open, __ATOMIC_RELEASE);
}

/* us of a replay on the slowest rank. */
static double replay(struct stopwatch *watch, const struct graphs *graphs) {
    struct part *part = watch->rig->part;
    float slowest = 0;
    set_gates(watch, 0);
    for (int i = 0; i < part->count; i++) {
        struct rank *rank = part_enter(part, i);
        const CUstream stream = rank->stream[0];
        CU_OK(cuStreamWaitValue32(stream, watch->gate_there[i], 1, CU_STREAM_WAIT_VALUE_EQ));
        CU_OK(cuGraphLaunch(graphs->exec[i], stream));
        CU_OK(cuEventRecord(watch->event[i][0], stream));
        CU_OK(cuGraphLaunch(graphs->exec[i], stream));
        CU_OK(cuEventRecord(watch->event[i][1], stream));
    }
    set_gates(watch, 1);
    rig_drain(watch->rig);
    for (int i = 0; i < part->count; i++) {
        float ms;
        part_enter(part, i);
        CU_OK(cuEventElapsedTime(&ms, watch->event[i][0], watch->event[i][1]));
        if (ms > slowest) slowest = ms;
    }
    return 1e3 * slowest;
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

bool stopwatch_time(struct stopwatch *watch, struct call *call, const struct shape *shape, int launches, int replays,
                    struct times *times) {
    double us[MOST_REPLAYS];
    struct graphs graphs;
    CHECK(launches > 0 && launches <= MOST_LAUNCHES && replays > 0 && replays <= MOST_REPLAYS);
    capture(watch, call, shape, launches, &graphs);
    for (int k = 0; k < replays && rig_failed(watch->rig) < 0; k++) us[k] = replay(watch, &graphs) / launches;
    graphs_free(watch->rig->part, &graphs);
    if (rig_failed(watch->rig) >= 0) return false;
    qsort(us, (size_t)replays, sizeof *us, compare);
    *times = (struct times){(us[(replays - 1) / 2] + us[replays / 2]) / 2, us[0], us[replays - 1]};
    return true;
}
