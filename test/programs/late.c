/* late.c - a peer is late by seconds; whatever comes out is right. */
#include "programs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Calls behind each other on one stream, issued twice; what each has delivered is copied on by work behind it, which must not
 * go on with anything that is not right. */
enum { CALLS = 3, TIMES = 2 };

struct calls {
    struct vector vector[CALLS], past[TIMES][CALLS]; /* of past: what was received */
    ncclComm_t comm;
    CUstream stream;
    struct graph graph;
};

static void issue(struct part *part, const struct calls *c) {
    vector_allreduce(&c->vector[0], c->comm, c->stream);
    vector_allreduce(&c->vector[1], c->comm, c->stream);
    vector_broadcast(&c->vector[2], last_rank(part), c->comm, c->stream);
}

static void fill(struct part *part, struct calls *c, uint64_t seed) {
    for (int i = 0; i < CALLS; i++) {
        vector_fill(part, &c->vector[i], seed + (uint64_t)i);
        for (int t = 0; t < TIMES; t++) vector_fill(part, &c->past[t][i], seed + (uint64_t)i);
    }
    part_barrier(part);
}

static void issue_twice(struct part *part, const struct calls *c, bool replayed) {
    for (int t = 0; t < TIMES; t++) {
        if (replayed)
            CU_OK(cuGraphLaunch(c->graph.exec, c->stream));
        else
            issue(part, c);
        for (int i = 0; i < CALLS; i++)
            CU_OK(cuMemcpyDtoDAsync(c->past[t][i].recv, c->vector[i].recv, c->vector[i].count * 4, c->stream));
    }
}

static bool untouched(const struct vector *v) {
    uint32_t *image = malloc(v->count * 4);
    size_t i = 0;
    CHECK(image);
    CU_OK(cuMemcpyDtoH(image, v->recv, v->count * 4));
    while (i < v->count && image[i] == 0xa5a5a5a5u) i++;
    free(image);
    return i == v->count;
}

/* Waits as a careful program does.  False if the communicator or the stream says that it failed. */
static bool settled(struct part *part, const struct calls *c) {
    CUresult status;
    while ((status = cu.cuStreamQuery(c->stream)) == CUDA_ERROR_NOT_READY && comm_state(c->comm) == ncclSuccess)
        usleep(500);
    if (status != CUDA_SUCCESS && status != CUDA_ERROR_NOT_READY) return false; /* nothing can be read any more */
    for (int t = 0; t < TIMES; t++)
        for (int i = 0; i < CALLS; i++) {
            if (status == CUDA_ERROR_NOT_READY && untouched(&c->past[t][i])) continue;
            vector_check(part, &c->past[t][i], i == 2 ? last_rank(part) : 0, last_rank(part));
        }
    return status == CUDA_SUCCESS && comm_state(c->comm) == ncclSuccess;
}

static void late(struct part *part, const struct settings *s, bool replayed) {
    struct calls calls = {.comm = comm_open(part), .stream = stream_open()};
    for (int i = 0; i < CALLS; i++) {
        const size_t bytes = i == 1 ? s->middle : s->small;
        vector_open(&calls.vector[i], bytes);
        for (int t = 0; t < TIMES; t++) vector_open(&calls.past[t][i], bytes);
    }
    if (replayed) {
        fill(part, &calls, s->seed);
        issue(part, &calls); /* NCCL fails where a communicator's first call is captured */
        stream_sync(calls.stream);
        capture_begin(calls.stream);
        issue(part, &calls);
        capture_end(calls.stream, &calls.graph);
    }
    for (long k = 0; k < 2 * s->repeat; k++) { /* every second time a rank is late */
        doing(part, "round %ld: preparing", k);
        fill(part, &calls, s->seed + (uint64_t)k * CALLS);
        if (k % 2 && self(part)->rank == last_rank(part)) {
            doing(part, "round %ld: late by %g s", k, s->late);
            usleep((useconds_t)(1e6 * s->late));
        }
        doing(part, "round %ld: calls%s", k, k % 2 ? ", a rank is late" : "");
        issue_twice(part, &calls, replayed);
        if (settled(part, &calls)) continue;
        if (!s->may_fail) FAIL("rank %d, round %ld: failed: %s", self(part)->rank, k, ncclGetLastError(calls.comm));
        part_barrier(part); /* of the others, this is the one before the next round */
        say_ok(": the calls failed");
        _exit(0);
    }
    part_barrier(part);
    comm_close(part, calls.comm);
    if (replayed) graph_close(&calls.graph);
    stream_close(calls.stream);
    for (int i = 0; i < CALLS; i++) {
        vector_close(&calls.vector[i]);
        for (int t = 0; t < TIMES; t++) vector_close(&calls.past[t][i]);
    }
}

static void late_peer(struct part *part, const struct settings *s) {
    late(part, s, false);
}
static void late_peer_graph(struct part *part, const struct settings *s) {
    late(part, s, true);
}

const struct program late_programs[] = {{"late_peer", late_peer}, {"late_peer_graph", late_peer_graph}, {0}};
