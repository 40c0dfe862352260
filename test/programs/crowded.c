/* crowded.c - so many communicators that their calls do not fit on a GPU beside each other.  On even ranks some begin late, on odd
 * ranks the others, so what fills a GPU is not the same on all; with NCCL alone some calls are under way on all of them. */
#include "programs.h"

#include <stdatomic.h>
#include <unistd.h>

enum { LANES = 8, LATE_US = 50000 };

struct lane {
    ncclComm_t comm;
    CUstream stream;
    struct vector big, tiny;
    struct graph graph;
    bool captured;
};

static void call(const struct lane *lane, const struct vector *vector) {
    vector_allreduce(vector, lane->comm, lane->stream);
}

static void lane_make(struct part *part, struct lane *lane, size_t bytes) {
    doing(part, "making a communicator");
    *lane = (struct lane){.comm = comm_open(part), .stream = stream_open()};
    vector_open(&lane->big, bytes);
    vector_open(&lane->tiny, 64);
}

static void lane_open(struct part *part, struct lane *lane, size_t bytes) {
    lane_make(part, lane, bytes);
    vector_warm_up(part, &lane->big, lane->comm, lane->stream);
    vector_warm_up(part, &lane->tiny, lane->comm, lane->stream);
}

static void lane_capture(struct part *part, struct lane *lane) {
    vector_capture(part, &lane->big, lane->comm, lane->stream, &lane->graph);
    lane->captured = true;
}

static void fill(struct part *part, struct lane *lanes, int count, uint64_t seed) {
    for (int c = 0; c < count; c++) {
        vector_fill(part, &lanes[c].big, seed + (uint64_t)(2 * c));
        vector_fill(part, &lanes[c].tiny, seed + (uint64_t)(2 * c + 1));
    }
    part_barrier(part);
}

static void issue(struct part *part, const struct lane *lane, bool late) {
    if (late) delay(lane->stream, LATE_US);
    if (lane->captured)
        CU_OK(cuGraphLaunch(lane->graph.exec, lane->stream));
    else
        call(lane, &lane->big);
}

static void wait_for_all(struct part *part, const struct lane *lanes, int count, bool tiny) {
    for (int c = 0; c < count; c++) {
        doing(part, "waiting for communicator %d of %d", c, count);
        stream_sync(lanes[c].stream);
    }
    for (int c = 0; c < count; c++) {
        vector_check_all(part, &lanes[c].big);
        if (tiny) vector_check_all(part, &lanes[c].tiny);
    }
}

static void lanes_close(struct part *part, struct lane *lanes, int count) {
    for (int c = 0; c < count; c++) {
        if (lanes[c].captured) graph_close(&lanes[c].graph);
        comm_close(part, lanes[c].comm);
        stream_close(lanes[c].stream);
        vector_close(&lanes[c].big);
        vector_close(&lanes[c].tiny);
    }
}

/* The last of `count` communicators has a message that is not large, the others large ones, which are NCCL's.  Either side may be
 * in graphs; the large ones may be followed by tiny messages, or be one group. */
struct filling {
    int large;
    bool wide_first, wide_captured, large_captured, tiny, group;
};

static void fill_gpu(struct part *part, const struct settings *s, struct filling f) {
    struct lane lanes[LANES];
    const bool even = self(part)->rank % 2 == 0;
    const int wide = f.large;
    for (int c = 0; c <= wide; c++) {
        lane_open(part, &lanes[c], c == wide ? s->middle : s->large);
        if (c == wide ? f.wide_captured : f.large_captured) lane_capture(part, &lanes[c]);
    }
    for (long k = 0; k < s->repeat; k++) {
        fill(part, lanes, wide + 1, s->seed + (uint64_t)k * 100);
        doing(part, "repeat %ld: calling", k);
        if (f.wide_first) issue(part, &lanes[wide], even);
        if (f.group) NCCL_OK(ncclGroupStart());
        for (int c = 0; c < wide; c++) {
            issue(part, &lanes[c], !even);
            if (f.tiny) call(&lanes[c], &lanes[c].tiny);
        }
        if (f.group) NCCL_OK(ncclGroupEnd());
        if (!f.wide_first) issue(part, &lanes[wide], even);
        if (f.tiny) call(&lanes[wide], &lanes[wide].tiny);
        wait_for_all(part, lanes, wide + 1, f.tiny);
    }
    lanes_close(part, lanes, wide + 1);
}

static void nccl_fills(struct part *part, const struct settings *s) {
    fill_gpu(part, s, (struct filling){.large = 5, .wide_first = true});
}
static void nccl_fills_reversed(struct part *part, const struct settings *s) {
    fill_gpu(part, s, (struct filling){.large = 5});
}
static void nccl_fills_graph(struct part *part, const struct settings *s) {
    fill_gpu(part, s, (struct filling){.large = 5, .wide_captured = true});
}
static void nccl_graphs_fill(struct part *part, const struct settings *s) {
    fill_gpu(part, s, (struct filling){.large = 5, .wide_first = true, .large_captured = true});
}
static void nccl_fills_then_tiny(struct part *part, const struct settings *s) {
    fill_gpu(part, s, (struct filling){.large = 5, .tiny = true});
}
static void nccl_group_fills(struct part *part, const struct settings *s) {
    fill_gpu(part, s, (struct filling){.large = 5, .wide_first = true, .group = true});
}

/* Eight communicators, each with a message that is not large and a tiny one behind it. */
static void wide_then_tiny(struct part *part, const struct settings *s) {
    struct lane lanes[LANES];
    const bool even = self(part)->rank % 2 == 0;
    for (int c = 0; c < LANES; c++) lane_open(part, &lanes[c], s->middle);
    for (long k = 0; k < s->repeat; k++) {
        fill(part, lanes, LANES, s->seed + (uint64_t)k * 100);
        for (int c = 0; c < LANES; c++) {
            doing(part, "repeat %ld: calling on communicator %d", k, c);
            issue(part, &lanes[c], (c < LANES / 2) != even);
            call(&lanes[c], &lanes[c].tiny);
        }
        wait_for_all(part, lanes, LANES, true);
    }
    lanes_close(part, lanes, LANES);
}

/* Rank 0 has posted a receive on each of four communicators before the last of its peers sends, and the others send when that has
 * come.  A graph of a fifth communicator is never replayed. */
enum { POSTED = 4 };

static void pass(struct part *part, const struct lane *lane, const struct vector *v, int from) {
    if (self(part)->rank == 0)
        NCCL_OK(ncclRecv((void *)v->recv, v->count, ncclInt32, from, lane->comm, lane->stream));
    else if (self(part)->rank == from)
        NCCL_OK(ncclSend((void *)v->send, v->count, ncclInt32, 0, lane->comm, lane->stream));
}

static void receives_posted(struct part *part, const struct settings *s) {
    static atomic_bool heard;
    struct lane lanes[POSTED + 1];
    const int rank = self(part)->rank, last = last_rank(part);
    const int from_of[POSTED] = {1, last > 2 ? 2 : 1, 1, last};
    for (int c = 0; c <= POSTED; c++) lane_open(part, &lanes[c], s->middle);
    for (int c = 0; c < POSTED; c++) { /* NCCL connects ranks at their first message */
        doing(part, "a first message on communicator %d", c);
        pass(part, &lanes[c], &lanes[c].tiny, from_of[c]);
        stream_sync(lanes[c].stream);
    }
    lane_capture(part, &lanes[POSTED]);
    heard = false;
    fill(part, lanes, POSTED + 1, s->seed);
    for (int c = 0; c < POSTED && rank == 0; c++) pass(part, &lanes[c], &lanes[c].tiny, from_of[c]);
    if (rank == last) pass(part, &lanes[POSTED - 1], &lanes[POSTED - 1].tiny, last);
    if (rank == 0) {
        doing(part, "waiting for the last receive");
        stream_sync(lanes[POSTED - 1].stream);
        heard = true;
    }
    doing(part, "waiting until that has come");
    while (!heard) usleep(1000);
    for (int c = 0; c < POSTED - 1 && rank; c++) pass(part, &lanes[c], &lanes[c].tiny, from_of[c]);
    for (int c = 0; c < POSTED; c++) {
        doing(part, "waiting for communicator %d", c);
        stream_sync(lanes[c].stream);
        if (rank == 0)
            vector_check(part, &(struct vector){lanes[c].tiny.count, lanes[c].tiny.seed, 0, lanes[c].tiny.recv},
                         from_of[c], from_of[c]);
    }
    part_barrier(part);
    lanes_close(part, lanes, POSTED + 1);
}

/* --- large_receives_posted: rank 0 has posted large receives, each on a communicator of its own, whose sender waits for a sum on one more ---
 * So many that they would fill the GPU, had each the blocks that it has by itself; eager ones, or graphs of them. */
enum { LARGE_POSTED = 6 };

static void post_large(struct part *part, struct lane *lane, bool captured) {
    if (self(part)->rank != 0) return;
    if (captured) capture_begin(lane->stream);
    pass(part, lane, &lane->big, 1);
    if (!captured) return;
    capture_end(lane->stream, &lane->graph);
    lane->captured = true;
    CU_OK(cuGraphLaunch(lane->graph.exec, lane->stream));
}

static void large_posted(struct part *part, const struct settings *s, bool captured) {
    struct lane lanes[LARGE_POSTED + 1];
    const struct lane *const sum = &lanes[LARGE_POSTED];
    for (int c = 0; c <= LARGE_POSTED; c++) lane_make(part, &lanes[c], s->large);
    vector_warm_up(part, &lanes[LARGE_POSTED].tiny, sum->comm, sum->stream);
    for (int c = 0; c < LARGE_POSTED; c++) { /* NCCL connects ranks at their first */
        pass(part, &lanes[c], &lanes[c].tiny, 1);
        stream_sync(lanes[c].stream);
    }
    fill(part, lanes, LARGE_POSTED + 1, s->seed);
    for (int c = 0; c < LARGE_POSTED; c++) post_large(part, &lanes[c], captured);
    usleep(LATE_US); /* they are where the sum is to go */
    doing(part, "a sum beside receives");
    vector_allreduce(&sum->tiny, sum->comm, sum->stream);
    stream_sync(sum->stream);
    vector_check_all(part, &sum->tiny);
    part_barrier(part);
    for (int c = 0; c < LARGE_POSTED; c++) {
        doing(part, "message %d", c);
        if (self(part)->rank == 1) pass(part, &lanes[c], &lanes[c].big, 1);
        stream_sync(lanes[c].stream);
        if (self(part)->rank == 0) vector_check(part, &lanes[c].big, 1, 1);
    }
    part_barrier(part);
    lanes_close(part, lanes, LARGE_POSTED + 1);
}

static void large_receives_posted(struct part *part, const struct settings *s) {
    large_posted(part, s, false);
}
static void large_receives_captured(struct part *part, const struct settings *s) {
    large_posted(part, s, true);
}

/* --- receive_ahead_of_first: rank 0 has posted a receive, whose sender waits for the first call of one communicator more ---
 * Of so many that NCCL's kernels could fill the GPU with that. */
enum { FIRST = 5 };

static void receive_ahead_of_first(struct part *part, const struct settings *s) {
    struct lane lanes[FIRST + 1];
    const struct lane *const passing = &lanes[0], *const last = &lanes[FIRST];
    const int rank = self(part)->rank;
    for (int c = 0; c <= FIRST; c++) lane_make(part, &lanes[c], s->large);
    struct vector message = passing->big;
    message.count = s->middle / 4;
    pass(part, passing, &message, 1); /* NCCL connects ranks at their first */
    stream_sync(passing->stream);
    for (int c = 1; c < FIRST; c++) vector_warm_up(part, &lanes[c].big, lanes[c].comm, lanes[c].stream);
    fill(part, lanes, FIRST + 1, s->seed);
    message.seed = passing->big.seed;
    if (rank == 0) pass(part, passing, &message, 1);
    doing(part, "the first call of communicator %d", FIRST);
    call(last, &last->big);
    stream_sync(last->stream);
    doing(part, "the message");
    if (rank == 1) pass(part, passing, &message, 1);
    stream_sync(passing->stream);
    part_barrier(part);
    vector_check_all(part, &last->big);
    if (rank == 0) vector_check(part, &message, 1, 1);
    lanes_close(part, lanes, FIRST + 1);
}

const struct program crowded_programs[] = {
    {"nccl_fills", nccl_fills},
    {"nccl_fills_reversed", nccl_fills_reversed},
    {"nccl_fills_graph", nccl_fills_graph},
    {"nccl_graphs_fill", nccl_graphs_fill},
    {"nccl_fills_then_tiny", nccl_fills_then_tiny},
    {"nccl_group_fills", nccl_group_fills},
    {"wide_then_tiny", wide_then_tiny},
    {"receives_posted", receives_posted},
    {"receive_ahead_of_first", receive_ahead_of_first},
    {0},
};
/* NCCL's kernels may fill the GPU with these. */
const struct program unlisted_wide_programs[] = {
    {"large_receives_posted", large_receives_posted},
    {"large_receives_captured", large_receives_captured},
    {0},
};
