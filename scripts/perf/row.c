/* row.c - one configuration: checked, timed on both sides in turn, checked again.
 *
 * Eager: a sample is one batch of calls back to back, from a common start to the end of the work, by the host's clock.
 * With one call a batch that is its latency, and nothing else is on the stream.
 * Graph: a sample is one replay of a graph of that many calls, by the device's clock; replays follow one another, so
 * that all ranks start a timed one together and warm, and the first of each turn is not counted.
 */
#include <stdlib.h>
#include <string.h>

#include "perf.h"

enum { TURN = 4 }; /* replays of one side before the other's turn */

static int issue_message(struct part *part, const struct rank *rank, const struct row *row, enum side side, int index) {
    const void *send = (const void *)buffer_send(rank, row, index);
    return collectives[row->collective].call(part, rank, row, side, send, (void *)buffer_recv(rank, row, index));
}

/* Whether a call has both ends of a message. */
static bool has_both(const struct row *row) {
    return collective_has(row->collective, BL_PAIRED) && !collective_has(row->collective, PERF_ONE_WAY);
}

/* One call on every rank of the part; in a group of the side's own if the part has several, or the call has: more messages, or
 * both ends of one. */
static int issue(struct part *part, const struct row *row, enum side side) {
    if (part->count * row->group == 1 && !has_both(row)) return issue_message(part, &part->rank[0], row, side, 0);
    NCCL_TRY(part, side, GroupStart());
    for (int i = 0; i < part->count; i++) {
        CUDA_TRY(part, cuCtxSetCurrent(part->rank[i].context));
        for (int g = 0; g < row->group; g++)
            if (issue_message(part, &part->rank[i], row, side, g)) return -1;
    }
    NCCL_TRY(part, side, GroupEnd());
    return 0;
}

/* --- graphs --- */

struct graphs {
    CUgraphExec exec[BL_MAX_RANKS];
};

static int capture(struct part *part, const struct row *row, enum side side, int calls, struct graphs *graphs) {
    CUgraph graph[BL_MAX_RANKS];

    for (int i = 0; i < part->count; i++)
        CUDA_TRY(part, cuStreamBeginCapture(part->rank[i].stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (int c = 0; c < calls; c++)
        if (issue(part, row, side)) return -1;
    for (int i = 0; i < part->count; i++) {
        CUDA_TRY(part, cuCtxSetCurrent(part->rank[i].context));
        CUDA_TRY(part, cuStreamEndCapture(part->rank[i].stream, &graph[i]));
    }
    for (int i = 0; i < part->count; i++) { /* the driver refuses it while this thread captures */
        CUDA_TRY(part, cuCtxSetCurrent(part->rank[i].context));
        CUDA_TRY(part, cuGraphInstantiateWithFlags(&graphs->exec[i], graph[i], 0));
        CUDA_TRY(part, cuGraphDestroy(graph[i]));
    }
    return 0;
}

static int replay(struct part *part, const struct graphs *graphs) {
    for (int i = 0; i < part->count; i++) {
        if (part->count > 1) CUDA_TRY(part, cuCtxSetCurrent(part->rank[i].context));
        CUDA_TRY(part, cuGraphLaunch(graphs->exec[i], part->rank[i].stream));
    }
    return 0;
}

static int release(struct part *part, struct graphs *graphs) {
    for (int i = 0; i < part->count; i++) {
        CUDA_TRY(part, cuCtxSetCurrent(part->rank[i].context));
        CUDA_TRY(part, cuGraphExecDestroy(graphs->exec[i]));
    }
    return 0;
}

static int record(struct part *part, int event) {
    for (int i = 0; i < part->count; i++) {
        if (part->count > 1) CUDA_TRY(part, cuCtxSetCurrent(part->rank[i].context));
        CUDA_TRY(part, cuEventRecord(part->rank[i].event[event], part->rank[i].stream));
    }
    return 0;
}

/* Seconds from event to event + 1 on one rank. */
static int elapsed(struct part *part, struct rank *rank, int event, double *seconds) {
    float ms;
    CUDA_TRY(part, cuEventElapsedTime(&ms, rank->event[event], rank->event[event + 1]));
    *seconds = ms * 1e-3;
    return 0;
}

/* --- checking --- */

static int verify(struct part *part, const struct row *row, enum side side, const struct graphs *graphs) {
    if (buffers_fill(part, row) || part_barrier(part)) return -1;
    if (graphs ? replay(part, graphs) : issue(part, row, side)) return -1;
    if (part_wait(part)) return -1;
    return buffers_check(part, row, side);
}

/* The graph that was timed, or in place, where its calls would feed on each other's results, one of a single call. */
static int verify_graph(struct part *part, const struct row *row, enum side side, const struct graphs *timed) {
    struct graphs single;

    if (row->place == OUT_OF_PLACE) return verify(part, row, side, timed);
    if (capture(part, row, side, 1, &single)) return -1;
    if (verify(part, row, side, &single)) return -1;
    return release(part, &single);
}

/* --- timing --- */

/* Part 0 times one warm call a side; the slower one decides for all how much of the row fits the time. */
static int plan(struct part *part, struct row *row) {
    const struct options *o = part->bench->options;
    double slowest = 0;

    for (int side = 0; side < SIDES; side++) {
        if (part_barrier(part)) return -1;
        double start = now();
        if (issue(part, row, side) || part_wait(part)) return -1;
        double took = now() - start;
        if (took > slowest) slowest = took;
    }
    if (part->index == 0) part->bench->shared->call_seconds = slowest;
    if (part_barrier(part)) return -1;

    double calls = o->seconds / (2.5 * part->bench->shared->call_seconds); /* both sides, and what is not counted */
    row->samples = o->samples;
    row->calls = o->calls;
    if (row->samples * (double)row->calls <= calls) return 0;
    int few = o->samples < 5 ? o->samples : 5;
    row->samples = calls / row->calls > few ? (int)(calls / row->calls) : few;
    if (row->samples * (double)row->calls > calls)
        row->calls = calls / row->samples > 1 ? (int)(calls / row->samples) : 1;
    if (row->samples * (double)row->calls > calls) row->samples = calls > 1 ? (int)calls : 1;
    return 0;
}

static int warm_up(struct part *part, const struct row *row) {
    const struct options *o = part->bench->options;
    double call = part->bench->shared->call_seconds;

    for (int side = 0; side < SIDES; side++)
        for (int i = 0; i < o->warmup && i * call < o->seconds / 8; i++)
            if (issue(part, row, side)) return -1;
    return part_wait(part);
}

/* Who goes first changes, so that neither side always finds what the other left: a warm or a busy machine. */
static enum side first_side(int turn) {
    return turn % 2 ? BASELINE : MEASURED;
}

/* host: seconds of each call on the host, event: of the batch's calls on each rank's device, on average. */
static int sample_eager(struct part *part, const struct row *row, enum side side, int sample, double *host,
                        double (*event)[MAX_SAMPLES]) {
    struct shared *shared = part->bench->shared;

    bool events = row->calls > 1; /* to record one takes as long as to issue a call */

    if (part_barrier(part)) return -1;
    double start = now(), before = start;
    if (events && record(part, 0)) return -1;
    before = now();
    for (int c = 0; c < row->calls; c++) {
        if (issue(part, row, side)) return -1;
        double after = now();
        host[c] = (after - before) / part->count;
        before = after;
    }
    if ((events && record(part, 1)) || part_wait(part)) return -1;
    double took = (now() - start) / row->calls;
    for (int i = 0; i < part->count; i++) {
        struct rank *rank = &part->rank[i];
        shared->sample[side][rank->rank][sample] = took;
        event[i][sample] = 0;
        if (events && elapsed(part, rank, 0, &event[i][sample])) return -1;
        event[i][sample] /= row->calls;
    }
    return 0;
}

static int time_eager(struct part *part, const struct row *row) {
    struct shared *shared = part->bench->shared;
    size_t calls = (size_t)row->samples * row->calls;
    double *host = malloc(SIDES * calls * sizeof *host);
    double(*event)[BL_MAX_RANKS][MAX_SAMPLES] = malloc(SIDES * sizeof *event);
    int error = !host || !event ? part_fail(part, "out of memory") : 0;

    for (int s = 0; s < row->samples && !error; s++) {
        for (int turn = 0; turn < SIDES && !error; turn++) {
            enum side side = first_side(s) ^ turn;
            error = sample_eager(part, row, side, s, host + side * calls + (size_t)s * row->calls, event[side]);
        }
    }
    for (int side = 0; side < SIDES && !error; side++) {
        sort_seconds(host + side * calls, calls);
        for (int i = 0; i < part->count; i++) {
            int rank = part->rank[i].rank;
            sort_seconds(event[side][i], row->samples);
            shared->event[side][rank] = event[side][i][row->samples / 2];
            shared->host_min[side][rank] = host[side * calls];
            shared->host_median[side][rank] = host[side * calls + calls / 2];
        }
    }
    free(host);
    free(event);
    return error;
}

static int turn_graph(struct part *part, const struct row *row, enum side side, const struct graphs *graphs, int first,
                      int replays) {
    if (part_barrier(part)) return -1;
    if (replay(part, graphs)) return -1;
    for (int r = 0; r < replays; r++)
        if (record(part, r) || replay(part, graphs)) return -1;
    if (record(part, replays) || part_wait(part)) return -1;
    for (int i = 0; i < part->count; i++) {
        struct rank *rank = &part->rank[i];
        for (int r = 0; r < replays; r++) {
            double seconds;
            if (elapsed(part, rank, r, &seconds)) return -1;
            part->bench->shared->sample[side][rank->rank][first + r] = seconds / row->calls;
        }
    }
    return 0;
}

static int time_graph(struct part *part, const struct row *row, const struct graphs *graphs) {
    for (int first = 0; first < row->samples; first += TURN) {
        int replays = row->samples - first < TURN ? row->samples - first : TURN;
        for (int turn = 0; turn < SIDES; turn++) {
            enum side side = first_side(first / TURN) ^ turn;
            if (turn_graph(part, row, side, &graphs[side], first, replays)) return -1;
        }
    }
    return 0;
}

/* Without a time. */
static int check_graph(struct part *part, const struct row *row) {
    struct graphs graphs;

    for (int side = 0; side < SIDES; side++)
        if (capture(part, row, side, row->calls, &graphs) || verify_graph(part, row, side, &graphs) ||
            release(part, &graphs))
            return -1;
    return 0;
}

int row_run(struct part *part, struct row *row) {
    struct shared *shared = part->bench->shared;
    const struct options *o = part->bench->options;
    struct graphs graphs[SIDES];

    row->route = api_route(part->rank[0].comm[MEASURED], row->collective, row->count, row->datatype, row->redop);
    for (int side = 0; side < SIDES; side++) {
        for (int i = 0; i < part->count; i++) {
            int rank = part->rank[i].rank;
            shared->wrong[side][rank] = 0;
            shared->event[side][rank] = shared->host_min[side][rank] = shared->host_median[side][rank] = 0;
        }
        if (verify(part, row, side, NULL)) return -1;
    }
    if (o->check) {
        row->calls = o->calls;
        if (row->mode == GRAPH && check_graph(part, row)) return -1;
        return part_barrier(part);
    }
    if (plan(part, row) || warm_up(part, row)) return -1;
    if (row->mode == EAGER) {
        if (time_eager(part, row)) return -1;
        for (int side = 0; side < SIDES; side++)
            if (verify(part, row, side, NULL)) return -1;
        return part_barrier(part);
    }
    for (int side = 0; side < SIDES; side++)
        if (capture(part, row, side, row->calls, &graphs[side])) return -1;
    if (time_graph(part, row, graphs)) return -1;
    for (int side = 0; side < SIDES; side++)
        if (verify_graph(part, row, side, &graphs[side]) || release(part, &graphs[side])) return -1;
    return part_barrier(part);
}
