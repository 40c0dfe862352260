/* graphs.c - captured and replayed calls, mixed with eager ones. */
#include "scenarios.h"

enum { CALLS = 5 };

static const size_t counts[CALLS] = {1, 60, 500, 4000, 121};

static void prepare(struct part *part, struct call *calls, int first) {
    for (int k = 0; k < CALLS; k++) {
        scenario_call(part, &calls[k], first + k, counts[k], 0);
        call_prepare(part, &calls[k]);
    }
}

static void issue(struct part *part, struct call *calls) {
    for (int k = 0; k < CALLS; k++) call_issue(part, &calls[k]);
}

static void check(struct part *part, struct call *calls) {
    part_synchronize(part);
    for (int k = 0; k < CALLS; k++) {
        call_check(part, &calls[k]);
        call_refill(part, &calls[k]);
    }
}

static void release(struct part *part, struct call *calls) {
    for (int k = 0; k < CALLS; k++) call_free(part, &calls[k]);
}

/* Inputs stay, so replays may follow each other without a look: only in-place calls would change theirs. */
static void replay_many(struct part *part, const struct options *o) {
    struct call calls[CALLS] = {0};
    for (int k = 0; k < CALLS; k++) {
        scenario_call(part, &calls[k], k, counts[k], 0);
        calls[k].in_place = false;
        call_prepare(part, &calls[k]);
    }
    struct graphs graphs;
    graphs_begin(part, 0);
    issue(part, calls);
    graphs_end(part, 0, &graphs);
    part_synchronize(part);
    for (int k = 0; k < CALLS; k++) call_check_untouched(part, &calls[k]); /* capture runs nothing */
    for (int r = 0; r < 100; r++) {
        graphs_launch(part, &graphs, 0);
        if (r % 7 == 3) call_issue(part, &calls[r % CALLS]);
        if (r % 25 == 24) check(part, calls);
    }
    graphs_launch(part, &graphs, 0);
    check(part, calls);
    graphs_free(part, &graphs);
    issue(part, calls);
    check(part, calls);
    release(part, calls);
}

static void two_graphs(struct part *part, const struct options *o) {
    struct call calls[2][CALLS] = {0};
    struct graphs graphs[2];
    for (int g = 0; g < 2; g++) {
        prepare(part, calls[g], 100 * g);
        graphs_begin(part, 0);
        for (int k = 0; k <= g; k++) call_issue(part, &calls[g][k]);
        for (int k = g + 1; k < CALLS; k++) call_issue(part, &calls[g][k]);
        graphs_end(part, 0, &graphs[g]);
    }
    for (int r = 0; r < 12; r++) {
        int g = (0x2d3 >> r) & 1;
        graphs_launch(part, &graphs[g], 0);
        check(part, calls[g]);
        if (r == 5) {
            issue(part, calls[1 - g]);
            check(part, calls[1 - g]);
        }
    }
    /* without a look in between; in-place calls reduce their own results, so only the outcome of no crash, no hang
     * counts, and that the next call is right */
    for (int r = 0; r < 10; r++) graphs_launch(part, &graphs[r & 1], 0);
    part_synchronize(part);
    for (int g = 0; g < 2; g++) {
        for (int k = 0; k < CALLS; k++) call_refill(part, &calls[g][k]);
        graphs_launch(part, &graphs[g], 0);
        check(part, calls[g]);
        graphs_free(part, &graphs[g]);
        release(part, calls[g]);
    }
}

/* Order inside one capture, on one stream, with NCCL's calls between. */
static void chain(struct part *part, const struct options *o) {
    ncclComm_t comms[BOX_RANKS];
    CUstream stream[BOX_RANKS];
    part_comms(part, comms);
    part_streams(part, 0, stream);
    struct chain c;
    chain_open(part, &c, 600);
    struct graphs graphs;
    graphs_begin(part, 0);
    for (int k = 0; k < 8; k++) {
        if (k % 3 == 2)
            chain_broadcast(part, &c, comms, stream, k % part->box->nranks);
        else
            chain_allreduce(part, &c, comms, stream);
    }
    graphs_end(part, 0, &graphs);
    graphs_launch(part, &graphs, 0);
    part_synchronize(part);
    chain_check(part, &c);
    chain_allreduce(part, &c, comms, stream);
    part_synchronize(part);
    chain_check(part, &c);
    graphs_free(part, &graphs);
    chain_close(part, &c);
}

/* One capture over two streams that are forked and joined: the calls still take effect in issue order. */
static void forked(struct part *part, const struct options *o) {
    ncclComm_t comms[BOX_RANKS];
    CUstream first[BOX_RANKS], second[BOX_RANKS];
    CUevent fork[BOX_RANKS], join[BOX_RANKS];
    part_comms(part, comms);
    part_streams(part, 0, first);
    part_streams(part, 1, second);
    struct chain c;
    chain_open(part, &c, 450);
    graphs_begin(part, 0);
    each_rank (part, i) {
        CU_OK(cuEventCreate(&fork[i], CU_EVENT_DISABLE_TIMING));
        CU_OK(cuEventCreate(&join[i], CU_EVENT_DISABLE_TIMING));
        CU_OK(cuEventRecord(fork[i], first[i]));
        CU_OK(cuStreamWaitEvent(second[i], fork[i], 0));
    }
    for (int k = 0; k < 6; k++) {
        if (k == 4)
            chain_broadcast(part, &c, comms, k % 2 ? second : first, 0);
        else
            chain_allreduce(part, &c, comms, k % 2 ? second : first);
    }
    each_rank (part, i) {
        CU_OK(cuEventRecord(join[i], second[i]));
        CU_OK(cuStreamWaitEvent(first[i], join[i], 0));
    }
    struct graphs graphs;
    graphs_end(part, 0, &graphs);
    graphs_launch(part, &graphs, 0);
    part_synchronize(part);
    chain_check(part, &c);
    chain_allreduce(part, &c, comms, second);
    part_synchronize(part);
    chain_check(part, &c);
    graphs_free(part, &graphs);
    each_rank (part, i) {
        CU_OK(cuEventDestroy(fork[i]));
        CU_OK(cuEventDestroy(join[i]));
    }
    chain_close(part, &c);
}

/* Captured on one stream, replayed on others; the test orders the streams. */
static void other_stream(struct part *part, const struct options *o) {
    struct call calls[CALLS] = {0};
    prepare(part, calls, 40);
    struct graphs graphs;
    graphs_begin(part, 0);
    issue(part, calls);
    graphs_end(part, 0, &graphs);
    for (int r = 0; r < 6; r++) {
        graphs_launch(part, &graphs, r % BOX_STREAMS);
        check(part, calls);
        for (int k = 0; k < CALLS; k++) calls[k].stream = (r + k) % BOX_STREAMS;
        issue(part, calls);
        check(part, calls);
    }
    graphs_free(part, &graphs);
    release(part, calls);
}

/* A replay on one stream and eager calls on another, with nothing to order them: both must come out right. */
static void beside(struct part *part, const struct options *o) {
    struct call calls[CALLS] = {0}, eager[CALLS] = {0};
    prepare(part, calls, 60);
    prepare(part, eager, 70);
    for (int k = 0; k < CALLS; k++) eager[k].stream = 1;
    struct graphs graphs;
    graphs_begin(part, 0);
    issue(part, calls);
    graphs_end(part, 0, &graphs);
    for (int r = 0; r < 6; r++) {
        if (r % 2) graphs_launch(part, &graphs, 0);
        issue(part, eager);
        if (r % 2 == 0) graphs_launch(part, &graphs, 0);
        check(part, calls);
        check(part, eager);
    }
    graphs_free(part, &graphs);
    release(part, calls);
    release(part, eager);
}

/* Two graphs of one communicator replayed on two streams, with nothing to order them. */
static void replays_beside(struct part *part, const struct options *o) {
    struct call calls[2][CALLS] = {0};
    struct graphs graphs[2];
    for (int g = 0; g < 2; g++) {
        prepare(part, calls[g], 200 + 100 * g);
        graphs_begin(part, 0);
        issue(part, calls[g]);
        graphs_end(part, 0, &graphs[g]);
    }
    for (int r = 0; r < 6; r++) {
        graphs_launch(part, &graphs[r % 2], 1);
        graphs_launch(part, &graphs[1 - r % 2], 2);
        check(part, calls[0]);
        check(part, calls[1]);
    }
    for (int g = 0; g < 2; g++) {
        graphs_free(part, &graphs[g]);
        release(part, calls[g]);
    }
}

/* A group inside a capture, two communicators in it. */
static void grouped(struct part *part, const struct options *o) {
    ncclComm_t other[BOX_RANKS];
    part_make_communicators(part, 1, other);
    struct call calls[CALLS] = {0};
    prepare(part, calls, 80);
    struct graphs graphs;
    graphs_begin(part, 0);
    NCCL_OK(ncclGroupStart());
    for (int k = 0; k < CALLS; k++)
        for (int i = 0; i < part->count; i++)
            NCCL_OK(
                call_issue_rank(part, &calls[k], i, k % 2 ? other[i] : part->rank[i].comm, part->rank[i].stream[0]));
    NCCL_OK(ncclGroupEnd());
    graphs_end(part, 0, &graphs);
    for (int r = 0; r < 8; r++) {
        graphs_launch(part, &graphs, 0);
        check(part, calls);
        if (r % 3 == 1) {
            issue(part, calls);
            check(part, calls);
        }
    }
    graphs_free(part, &graphs);
    release(part, calls);
    part_destroy_communicators(part, other);
}

/* Every rank captures by itself, at its own time: capture must not need the peers.  A global capture keeps the other threads, too,
 * from calls that may wait, so they prepare before and instantiate behind. */
static void captured_apart(struct part *part, const struct options *o) {
    struct call call = {0};
    scenario_call(part, &call, 90, 777, 0);
    call_prepare(part, &call);
    part_barrier(part);
    struct graphs graphs;
    for (int i = 0; i < part->count; i++) {
        struct rank *rank = part_enter(part, i);
        CU_OK(cuStreamBeginCapture(rank->stream[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
        NCCL_OK(call_issue_rank(part, &call, i, rank->comm, rank->stream[0]));
        CU_OK(cuStreamEndCapture(rank->stream[0], &graphs.graph[i]));
    }
    part_barrier(part);
    graphs_instantiate(part, &graphs);
    for (int r = 0; r < 5; r++) {
        graphs_launch(part, &graphs, 0);
        part_synchronize(part);
        call_check(part, &call);
        call_refill(part, &call);
    }
    graphs_free(part, &graphs);
    call_free(part, &call);
}

const struct scenario graph_scenarios[] = {
    {.name = "graph_replay_many", .run = replay_many},
    {.name = "graph_two", .run = two_graphs},
    {.name = "graph_chain", .run = chain},
    {.name = "graph_forked", .run = forked},
    {.name = "graph_other_stream", .run = other_stream},
    {.name = "graph_beside_eager", .run = beside},
    {.name = "graph_replays_beside", .run = replays_beside},
    {.name = "graph_grouped", .run = grouped},
    {.name = "graph_captured_apart", .run = captured_apart},
    {0},
};
