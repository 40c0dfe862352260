/* meanwhile.c - a long call that was issued first on all ranks, of which one has it late: there its other communicators' calls run before it, and
 * wait for ranks that have them behind it.  It has to find room beside them. */
#include "programs.h"

enum { OTHERS = 3 }; /* for which, and for the long one, there is room with NCCL, too */

struct calls {
    struct vector vector;
    ncclComm_t comm;
    CUstream stream;
    struct graph graph;
};

static void calls_open(struct part *part, struct calls *calls, size_t bytes, uint64_t seed) {
    calls->comm = comm_open(part);
    calls->stream = stream_open();
    vector_open(&calls->vector, bytes);
    vector_warm_up(part, &calls->vector, calls->comm, calls->stream);
    vector_fill(part, &calls->vector, seed);
}

static void calls_close(struct part *part, struct calls *calls) {
    comm_close(part, calls->comm);
    stream_close(calls->stream);
    vector_close(&calls->vector);
}

enum others { CALLED, CAPTURED_BEFORE, CAPTURED_MEANWHILE };

static void others_meanwhile(struct part *part, const struct settings *s, enum others how) {
    static _Thread_local struct calls first, others[OTHERS];
    const bool late = self(part)->rank == 0;
    CUevent event;
    CU_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    calls_open(part, &first, s->large, s->seed);
    for (int i = 0; i < OTHERS; i++) calls_open(part, &others[i], s->middle, s->seed + 1 + (uint64_t)i);
    for (int i = 0; i < OTHERS && how == CAPTURED_BEFORE; i++)
        vector_capture(part, &others[i].vector, others[i].comm, others[i].stream, &others[i].graph);
    part_barrier(part);
    doing(part, "issuing the long call");
    if (late) delay(first.stream, (uint64_t)(s->late * 1e6));
    vector_allreduce(&first.vector, first.comm, first.stream);
    CU_OK(cuEventRecord(event, first.stream));
    for (int i = 0; i < OTHERS; i++) {
        struct calls *c = &others[i];
        doing(part, "issuing call %d beside it", i);
        if (how == CAPTURED_MEANWHILE) vector_capture(part, &c->vector, c->comm, c->stream, &c->graph);
        if (!late) CU_OK(cuStreamWaitEvent(c->stream, event, CU_EVENT_WAIT_DEFAULT));
        if (how == CALLED)
            vector_allreduce(&c->vector, c->comm, c->stream);
        else
            CU_OK(cuGraphLaunch(c->graph.exec, c->stream));
    }
    doing(part, "waiting for all");
    stream_sync(first.stream);
    for (int i = 0; i < OTHERS; i++) stream_sync(others[i].stream);
    vector_check_all(part, &first.vector);
    for (int i = 0; i < OTHERS; i++) vector_check_all(part, &others[i].vector);
    part_barrier(part);
    for (int i = 0; i < OTHERS; i++) {
        if (how != CALLED) graph_close(&others[i].graph);
        calls_close(part, &others[i]);
    }
    calls_close(part, &first);
    CU_OK(cuEventDestroy(event));
}

static void calls_meanwhile(struct part *part, const struct settings *s) {
    others_meanwhile(part, s, CALLED);
}
static void graphs_meanwhile(struct part *part, const struct settings *s) {
    others_meanwhile(part, s, CAPTURED_MEANWHILE);
}
static void graphs_before(struct part *part, const struct settings *s) {
    others_meanwhile(part, s, CAPTURED_BEFORE);
}

const struct program meanwhile_programs[] = {
    {"calls_meanwhile", calls_meanwhile},
    {"graphs_meanwhile", graphs_meanwhile},
    {"graphs_before", graphs_before},
    {0},
};
