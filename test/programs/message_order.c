/* message_order.c - messages beside collectives, on streams that change, grouped otherwise at each end, and in graphs. */
#include "messages.h"

#include <stdlib.h>
#include <unistd.h>

#include "reference.h"

enum { STREAMS = 3 };

static void streams_open(CUstream stream[STREAMS]) {
    for (int i = 0; i < STREAMS; i++) stream[i] = stream_open();
}
static void streams_sync(const CUstream stream[STREAMS]) {
    for (int i = 0; i < STREAMS; i++) stream_sync(stream[i]);
}
static void streams_close(const CUstream stream[STREAMS]) {
    for (int i = 0; i < STREAMS; i++) stream_close(stream[i]);
}

/* `then` goes on behind what is on `first`. */
static void behind(CUstream first, CUstream then) {
    CUevent event;
    CU_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CU_OK(cuEventRecord(event, first));
    CU_OK(cuStreamWaitEvent(then, event, CU_EVENT_WAIT_DEFAULT));
    CU_OK(cuEventDestroy(event));
}

/* --- messages_segmented: a list of random messages with an all-reduce now and then, which each rank cuts into groups as it likes,
 * on streams of its own choice.
 *
 * Of a group the real NCCL makes steps: a rank's first message to each peer, and the first from it; the second of each; and so on.
 * None begins before the one ahead of it has ended.  So a group that has a second message of a pair may wait, ahead of that, for what
 * its peer has behind it in a later group.  Here groups end before they have one; in messages_segmented_freely, where all messages are
 * Beeline's, they may have any. --- */
enum { SEGMENTED = 150, BETWEEN = 14, REDUCED = (SEGMENTED + BETWEEN - 1) / BETWEEN, LONGEST = 8 };

struct segmented {
    struct messages list;
    struct vector reduced[REDUCED]; /* number k comes ahead of message k * BETWEEN */
    ncclComm_t comm;
    CUstream stream[STREAMS];
    bool freely;
};

/* The first message from `at` on, before `end`, which is this rank's and not the first there of its pair; or end. */
static int first_again(struct part *part, const struct messages *list, int at, int end) {
    const int rank = self(part)->rank;
    for (int i = at; i < end; i++) {
        const struct message *m = &list->message[i];
        for (int k = at; k < i && (m->from == rank || m->to == rank); k++)
            if (list->message[k].from == m->from && list->message[k].to == m->to) return i;
    }
    return end;
}

/* Issues the messages from `at` on up to the next all-reduce, or fewer; the one that is ahead of them before or, since a group's
 * collectives come first, in the same group, even behind them.  Returns where it stopped. */
static int issue_segment(struct part *part, const struct segmented *x, int at, uint64_t *mine) {
    const int longest = 1 + (int)ref_below(mine, LONGEST), barrier = (at / BETWEEN + 1) * BETWEEN;
    int end = at + longest < barrier ? at + longest : barrier;
    if (end > x->list.count) end = x->list.count;
    const CUstream stream = x->stream[ref_below(mine, STREAMS)], other = x->stream[ref_below(mine, STREAMS)];
    const struct vector *reduced = at % BETWEEN == 0 ? &x->reduced[at / BETWEEN] : NULL;
    const bool grouped = ref_below(mine, 2), last = ref_below(mine, 2);
    if (grouped && !x->freely) end = first_again(part, &x->list, at, end);
    if (reduced && (!grouped || !last)) {
        if (grouped) NCCL_OK(ncclGroupStart());
        vector_allreduce(reduced, x->comm, stream);
    } else if (grouped) {
        NCCL_OK(ncclGroupStart());
    }
    const int middle = at + (end - at) / 2;
    messages_post(part, &x->list, BOTH_ENDS, at, middle, x->comm, stream);
    messages_post(part, &x->list, BOTH_ENDS, middle, end, x->comm, other);
    if (reduced && grouped && last) vector_allreduce(reduced, x->comm, other);
    if (grouped) NCCL_OK(ncclGroupEnd());
    return end;
}

static void segmented(struct part *part, const struct settings *s, bool freely) {
    struct segmented x = {.comm = comm_open(part), .freely = freely};
    const int n = part->box->nranks;
    streams_open(x.stream);
    messages_connect(part, s, n, x.comm, x.stream[0]);
    for (int i = 0; i < REDUCED; i++) vector_open(&x.reduced[i], i % 3 == 2 ? s->large : s->small);
    for (long k = 0; k < 2 * s->repeat; k++) {
        uint64_t common = ref_mix(s->seed, (uint64_t)k), mine = ref_mix(common, (uint64_t)self(part)->rank + 1);
        for (int i = 0; i < SEGMENTED; i++) {
            const int from = (int)ref_below(&common, (uint64_t)n), to = (int)ref_below(&common, (uint64_t)n);
            messages_add(&x.list, from, to, message_size(s, ref_below(&common, 29)));
        }
        messages_open(part, &x.list);
        messages_fill(part, &x.list, s->seed + (uint64_t)k);
        for (int i = 0; i < REDUCED; i++) vector_fill(part, &x.reduced[i], s->seed + (uint64_t)(k * REDUCED + i));
        part_barrier(part);
        for (int at = 0; at < SEGMENTED;) {
            doing(part, "round %ld: message %d", k, at);
            at = issue_segment(part, &x, at, &mine);
        }
        streams_sync(x.stream);
        messages_check(part, &x.list);
        for (int i = 0; i < REDUCED; i++) vector_check_all(part, &x.reduced[i]);
        messages_close(&x.list);
    }
    comm_close(part, x.comm);
    streams_close(x.stream);
    for (int i = 0; i < REDUCED; i++) vector_close(&x.reduced[i]);
}

static void messages_segmented(struct part *part, const struct settings *s) {
    segmented(part, s, false);
}
static void messages_segmented_freely(struct part *part, const struct settings *s) {
    segmented(part, s, true);
}

/* --- messages_between: each rank sends, takes part in an all-reduce, and only then receives, on three streams --- */
enum { TURNS = 9 };

static void messages_between(struct part *part, const struct settings *s) {
    const ncclComm_t comm = comm_open(part);
    const int n = part->box->nranks;
    CUstream stream[STREAMS];
    struct messages list = {0};
    struct vector reduced[TURNS];
    streams_open(stream);
    messages_connect(part, s, n, comm, stream[0]);
    for (int t = 0; t < TURNS; t++) {
        for (int r = 0; r < n; r++) messages_add(&list, r, (r + 1) % n, t % 3 == 2 ? 0 : s->small - (size_t)t);
        vector_open(&reduced[t], t % 2 ? s->large : s->small);
    }
    messages_open(part, &list);
    for (long k = 0; k < s->repeat; k++) {
        messages_fill(part, &list, s->seed + (uint64_t)k);
        for (int t = 0; t < TURNS; t++) vector_fill(part, &reduced[t], s->seed + (uint64_t)t);
        part_barrier(part);
        for (int t = 0; t < TURNS; t++) {
            const int on = self(part)->rank + t;
            doing(part, "round %ld, turn %d: send, all-reduce, receive", k, t);
            messages_post(part, &list, SENT, t * n, (t + 1) * n, comm, stream[on % STREAMS]);
            vector_allreduce(&reduced[t], comm, stream[(on + t % 2) % STREAMS]);
            if (t % 4 == 3) delay(stream[(on + 2) % STREAMS], 300);
            messages_post(part, &list, RECEIVED, t * n, (t + 1) * n, comm, stream[(on + 2) % STREAMS]);
        }
        streams_sync(stream);
        messages_check(part, &list);
        for (int t = 0; t < TURNS; t++) vector_check_all(part, &reduced[t]);
    }
    comm_close(part, comm);
    streams_close(stream);
    messages_close(&list);
    for (int t = 0; t < TURNS; t++) vector_close(&reduced[t]);
}

/* --- messages_beside: of one group small messages on a stream, whose data come late, and large ones on another; who waits for the
 * stream alone has them --- */
static void messages_beside(struct part *part, const struct settings *s) {
    const ncclComm_t comm = comm_open(part);
    const int n = part->box->nranks;
    CUstream stream[STREAMS];
    struct messages small = {0}, large = {0};
    CUdeviceptr data;
    streams_open(stream);
    messages_connect(part, s, n, comm, stream[0]);
    for (int r = 0; r < n; r++) {
        messages_add(&small, r, (r + 1) % n, s->small);
        messages_add(&large, r, (r + 1) % n, s->large);
    }
    messages_open(part, &small);
    messages_open(part, &large);
    CU_OK(cuMemAlloc(&data, small.room));
    for (long k = 0; k < 2 * s->repeat; k++) {
        messages_fill(part, &small, s->seed + (uint64_t)k);
        messages_fill(part, &large, s->seed + (uint64_t)k);
        CU_OK(cuMemcpyDtoDAsync(data, small.send, small.room, stream[0]));
        CU_OK(cuMemsetD8Async(small.send, 0, small.room, stream[0]));
        stream_sync(stream[0]);
        part_barrier(part);
        doing(part, "round %ld", k);
        delay(stream[0], 3000);
        CU_OK(cuMemcpyDtoDAsync(small.send, data, small.room, stream[0]));
        if (self(part)->rank == k % n) usleep(30000);
        NCCL_OK(ncclGroupStart());
        messages_post(part, &small, BOTH_ENDS, 0, n, comm, stream[0]);
        messages_post(part, &large, BOTH_ENDS, 0, n, comm, stream[1]);
        NCCL_OK(ncclGroupEnd());
        stream_sync(stream[0]);
        messages_check(part, &small);
        streams_sync(stream);
        messages_check(part, &large);
    }
    comm_close(part, comm);
    CU_OK(cuMemFree(data));
    messages_close(&small);
    messages_close(&large);
    streams_close(stream);
}

/* --- messages_behind_collective: one rank has an all-reduce and what it sends in one group, its peer first the one and then the
 * other --- */
static void messages_behind_collective(struct part *part, const struct settings *s) {
    const ncclComm_t comm = comm_open(part);
    const int n = part->box->nranks, rank = self(part)->rank;
    CUstream stream[STREAMS];
    streams_open(stream);
    messages_connect(part, s, n, comm, stream[0]);
    for (int k = 0; k < 16 * s->repeat; k++) {
        const bool large_message = k & 1, large_vector = k & 2, send_first = k & 4, waits = k & 8;
        const int from = k % n, to = (k + 1) % n;
        struct messages list = {0};
        struct vector reduced;
        messages_add(&list, from, to, large_message ? s->large : s->small);
        messages_open(part, &list);
        messages_fill(part, &list, s->seed + (uint64_t)k);
        vector_open(&reduced, large_vector ? s->large : s->small);
        vector_fill(part, &reduced, s->seed + (uint64_t)k);
        part_barrier(part);
        doing(part, "way %d: %d sends to %d in a group with an all-reduce", k, from, to);
        if (rank == from) NCCL_OK(ncclGroupStart());
        if (rank == from && send_first) messages_post(part, &list, SENT, 0, 1, comm, stream[0]);
        vector_allreduce(&reduced, comm, stream[0]);
        if (rank == from && !send_first) messages_post(part, &list, SENT, 0, 1, comm, stream[0]);
        if (rank == from) NCCL_OK(ncclGroupEnd());
        if (rank != from && waits) stream_sync(stream[0]);
        messages_post(part, &list, RECEIVED, 0, 1, comm, stream[k % STREAMS]);
        streams_sync(stream);
        messages_check(part, &list);
        vector_check_all(part, &reduced);
        messages_close(&list);
        vector_close(&reduced);
    }
    comm_close(part, comm);
    streams_close(stream);
}

/* --- graphs of messages, replayed beside eager ones; of three ranks or more the last one has no part in any, and sleeps --- */
enum { REPLAYS = 3 };

struct captured {
    struct messages in_graph, branch, eager;
    ncclComm_t comm;
    CUstream stream[STREAMS];
    struct graph graph;
    struct vector reduced, eager_reduced; /* of all ranks */
    bool reduces;
};

static void all_pairs(struct messages *list, const struct settings *s, int ranks, int salt) {
    for (int from = 0; from < ranks; from++)
        for (int to = 0; to < ranks; to++)
            messages_add(list, from, to, message_size(s, (uint64_t)(salt + from * 5 + to * 3)));
}

static void captured_open(struct part *part, const struct settings *s, struct captured *c, int ranks, bool reduces) {
    *c = (struct captured){.comm = comm_open(part), .reduces = reduces};
    streams_open(c->stream);
    messages_connect(part, s, ranks, c->comm, c->stream[0]);
    all_pairs(&c->in_graph, s, ranks, 14);
    for (int k = 0; k < 6; k++)
        for (int r = 0; r < ranks; r++) messages_add(&c->branch, r, (r + 1) % ranks, k == 3 ? s->large : s->small);
    all_pairs(&c->eager, s, ranks, 3);
    messages_open(part, &c->in_graph);
    messages_open(part, &c->branch);
    messages_open(part, &c->eager);
    vector_open(&c->reduced, s->small);
    vector_open(&c->eager_reduced, s->middle);
    if (reduces) vector_warm_up(part, &c->reduced, c->comm, c->stream[0]);
}

/* A group of messages of every size, and beside it, of what the stream can tell, others one by one; meanwhile an eager group. */
static void capture(struct part *part, struct captured *c) {
    doing(part, "capturing");
    capture_begin(c->stream[0]);
    behind(c->stream[0], c->stream[1]);
    messages_group(part, &c->in_graph, BOTH_ENDS, 0, c->in_graph.count, c->comm, c->stream[0]);
    if (c->reduces) vector_allreduce(&c->reduced, c->comm, c->stream[1]);
    messages_post(part, &c->branch, BOTH_ENDS, 0, c->branch.count, c->comm, c->stream[1]);
    messages_group(part, &c->branch, BOTH_ENDS, 0, c->branch.count, c->comm, c->stream[2]);
    behind(c->stream[1], c->stream[0]);
    capture_end(c->stream[0], &c->graph);
    stream_sync(c->stream[2]);
}

static void replay_and_check(struct part *part, struct captured *c, uint64_t seed) {
    messages_fill(part, &c->in_graph, seed);
    messages_fill(part, &c->branch, seed + 1);
    messages_fill(part, &c->eager, seed + 2);
    vector_fill(part, &c->reduced, seed);
    vector_fill(part, &c->eager_reduced, seed + 1);
    /* Events of its own are between all, as of a program that does not want to know how NCCL orders graphs. */
    for (int i = 0; i < REPLAYS; i++) {
        const CUstream eager = c->stream[1 + i % 2];
        CU_OK(cuGraphLaunch(c->graph.exec, c->stream[0]));
        behind(c->stream[0], eager);
        if (i == 1) messages_group(part, &c->eager, BOTH_ENDS, 0, c->eager.count, c->comm, eager);
        if (i == 1 && c->reduces) vector_allreduce(&c->eager_reduced, c->comm, eager);
        if (i == 0) messages_post(part, &c->eager, BOTH_ENDS, 0, c->eager.count, c->comm, eager);
        behind(eager, c->stream[0]);
    }
    streams_sync(c->stream);
    messages_check(part, &c->in_graph);
    messages_check(part, &c->branch);
    messages_check(part, &c->eager);
    if (!c->reduces) return;
    vector_check_all(part, &c->reduced);
    vector_check_all(part, &c->eager_reduced);
}

static void captured_close(struct part *part, struct captured *c) {
    comm_close(part, c->comm);
    streams_close(c->stream);
    messages_close(&c->in_graph);
    messages_close(&c->branch);
    messages_close(&c->eager);
    vector_close(&c->reduced);
    vector_close(&c->eager_reduced);
}

static void replayed(struct part *part, const struct settings *s, bool idle) {
    const int n = part->box->nranks, ranks = idle && n > 2 ? n - 1 : n;
    struct captured c;
    captured_open(part, s, &c, ranks, ranks == n);
    part_barrier(part);
    if (self(part)->rank < ranks) {
        capture(part, &c);
        for (long k = 0; k < 2 * s->repeat; k++) {
            doing(part, "replays %ld", k);
            replay_and_check(part, &c, s->seed + (uint64_t)k);
        }
        graph_close(&c.graph);
    } else {
        doing(part, "sleeping");
    }
    part_barrier(part);
    captured_close(part, &c);
}

static void messages_captured(struct part *part, const struct settings *s) {
    replayed(part, s, false);
}
static void messages_captured_idle(struct part *part, const struct settings *s) {
    replayed(part, s, true);
}

/* --- messages_captured_at_once: two captures that are open at once, a group of messages of every size in each, and one behind both that is in neither --- */
static void messages_captured_at_once(struct part *part, const struct settings *s) {
    enum { CAPTURES = 2, GROUPS = 3 };
    const ncclComm_t comm = comm_open(part);
    const int n = part->box->nranks;
    CUstream stream[STREAMS];
    struct messages list[GROUPS] = {{0}};
    struct graph graph[CAPTURES];
    streams_open(stream);
    messages_connect(part, s, n, comm, stream[0]);
    for (int g = 0; g < GROUPS; g++) {
        for (int r = 0; r < n; r++) {
            messages_add(&list[g], r, (r + 1) % n, s->small + (size_t)g);
            messages_add(&list[g], r, (r + 1) % n, s->large);
        }
        messages_open(part, &list[g]);
    }
    doing(part, "capturing");
    for (int c = 0; c < CAPTURES; c++) {
        capture_begin_relaxed(stream[c]); /* one becomes a graph while the other goes on */
        messages_group(part, &list[c], BOTH_ENDS, 0, list[c].count, comm, stream[c]);
    }
    for (int c = 0; c < CAPTURES; c++) capture_end(stream[c], &graph[c]);
    for (long k = 0; k < 2 * s->repeat; k++) {
        for (int g = 0; g < GROUPS; g++) messages_fill(part, &list[g], s->seed + (uint64_t)(k * GROUPS + g));
        part_barrier(part);
        for (int g = 0; g < GROUPS; g++) {
            doing(part, "round %ld, group %d", k, g);
            if (g < CAPTURES)
                CU_OK(cuGraphLaunch(graph[g].exec, stream[g]));
            else
                messages_group(part, &list[g], BOTH_ENDS, 0, list[g].count, comm, stream[g]);
            stream_sync(stream[g]);
            messages_check(part, &list[g]);
        }
    }
    for (int c = 0; c < CAPTURES; c++) graph_close(&graph[c]);
    for (int g = 0; g < GROUPS; g++) messages_close(&list[g]);
    comm_close(part, comm);
    streams_close(stream);
}

/* --- messages_half_captured: groups of which some messages are on a stream that captures, and some are not: each is an error that
 * leaves the capture as it was --- */
static void messages_half_captured(struct part *part, const struct settings *s) {
    enum { EACH = 3, GROUPS = 4 };
    static const bool captured[GROUPS][EACH] = {{1, 1, 0}, {0, 0, 1}, {1, 0, 0}, {0, 1, 1}};
    const ncclComm_t comm = comm_open(part);
    const int n = part->box->nranks;
    const CUstream stream[] = {stream_open(), stream_open()};
    struct messages list = {0};
    struct graph graph;
    messages_connect(part, s, n, comm, stream[0]);
    for (int k = 0; k < EACH; k++)
        for (int r = 0; r < n; r++) messages_add(&list, r, (r + 1) % n, k ? s->large : s->small);
    messages_open(part, &list);
    for (int g = 0; g < GROUPS; g++) {
        messages_fill(part, &list, s->seed + (uint64_t)g);
        part_barrier(part);
        doing(part, "group %d, half of it captured", g);
        capture_begin(stream[1]);
        NCCL_OK(ncclGroupStart());
        ncclResult_t result = ncclSuccess; /* NCCL refuses the call, or the group */
        for (int k = 0; k < EACH && result == ncclSuccess; k++)
            result = messages_try(part, &list, BOTH_ENDS, k * n, (k + 1) * n, comm, stream[captured[g][k]]);
        const ncclResult_t ended = ncclGroupEnd();
        if (result == ncclSuccess) result = ended;
        CHECK(result == ncclInvalidUsage && ended != ncclSuccess, "it ended with %s", ncclGetErrorString(result));
        capture_end(stream[1], &graph);
        graph_close(&graph);
        stream_sync(stream[0]);
        if (captured[g][1] != captured[g][2])
            messages_check_untouched(part, &list); /* else the large ones may have gone */
        part_barrier(part);
        doing(part, "group %d, none of it captured", g);
        messages_group(part, &list, BOTH_ENDS, 0, list.count, comm, stream[1]);
        stream_sync(stream[1]);
        messages_check(part, &list);
    }
    comm_close(part, comm);
    stream_close(stream[0]);
    stream_close(stream[1]);
    messages_close(&list);
}

const struct program order_programs[] = {
    {"messages_segmented", messages_segmented},
    {"messages_between", messages_between},
    {"messages_beside", messages_beside},
    {"messages_behind_collective", messages_behind_collective},
    {"messages_captured", messages_captured},
    {"messages_captured_idle", messages_captured_idle},
    {"messages_captured_at_once", messages_captured_at_once},
    {"messages_half_captured", messages_half_captured},
    {0},
};

const struct program unlisted_order_programs[] = {
    {"messages_segmented_freely", messages_segmented_freely},
    {0},
};
