/* fused.c - the calls of a group that share launches: the same bits as each by itself, in as few launches as they
 * fit into, in order with everything else.
 */
#include "scenarios.h"
#include "set.h"

enum { MOST_BYTES = 6000 };

#include <stdlib.h>

/* No elements, one, whole lines, a word or a byte more or less, anything. */
static size_t draw_count(uint64_t *state, size_t size) {
    static const size_t bytes[] = {0, 1, 8, 112, 119, 120, 121, 127, 240, 248, 960};
    enum { EDGES = sizeof bytes / sizeof *bytes };
    uint64_t which = ref_below(state, 2 * EDGES);
    if (which < EDGES) return (bytes[which] + size - 1) / size;
    return ref_below(state, ((size_t)8 << ref_below(state, 12)) / size + 1); /* up to 16 K: more than low.tune has */
}

/* One of those of -C. */
static enum bl_collective draw_collective(const struct options *o, uint64_t *state) {
    enum bl_collective collective[BL_COLLECTIVES];
    uint64_t collectives = 0;
    for (int c = 0; c < BL_COLLECTIVES; c++)
        if (o->collectives[c]) collective[collectives++] = (enum bl_collective)c;
    return collective[ref_below(state, collectives)];
}

/* One collective of -C, datatype and operation, but for one call in nine; in every third set, any of -C. */
static void draw(struct part *part, const struct options *o, struct set *set, uint64_t *state, int count) {
    int datatype = (int)ref_below(state, REF_DATATYPES), redop = (int)ref_below(state, REF_REDOPS);
    enum bl_collective collective = draw_collective(o, state);
    const bool mixed = ref_below(state, 3) == 0;
    set->count = count;
    for (int k = 0; k < count; k++) {
        struct call *call = &set->call[k];
        bool other = ref_below(state, 9) == 0;
        *call = (struct call){.collective = mixed || other ? draw_collective(o, state) : collective,
                              .seed = ref_next(state),
                              .datatype = other ? (int)ref_below(state, REF_DATATYPES) : datatype,
                              .redop = other ? (int)ref_below(state, REF_REDOPS) : redop,
                              .in_place = ref_below(state, 3) == 0};
        size_t size = ref_datatype_size(call->datatype);
        call->count = draw_count(state, size);
        /* Any address now and then, also one that the datatype would not have. */
        call->send_offset = ref_below(state, 2) ? 0 : (unsigned)ref_below(state, 32);
        call->recv_offset = ref_below(state, 2) ? 0 : (unsigned)ref_below(state, 32);
        call_prepare(part, call);
    }
}

/* Groups of few calls, and of more than one launch can hold, some on several streams; then each call by itself, which must give
 * the same bits. */
static void many(struct part *part, const struct options *o) {
    static const int sizes[] = {2, 9, 64, 3, 65, 20, 140, 33};
    struct set *set = calloc(1, sizeof *set);
    CHECK(set);
    ncclComm_t comms[BOX_RANKS];
    part_comms(part, comms);
    uint64_t state = part->box->seed;
    long rounds = o->calls ? o->calls : 8;
    for (long round = 0; round < rounds; round++) {
        draw(part, o, set, &state, sizes[round % 8]);
        NCCL_OK(ncclGroupStart());
        for (int k = 0; k < set->count; k++) {
            if (k % 5 == 2) NCCL_OK(ncclGroupStart());
            set_issue(part, &set->call[k], comms, round % 3 == 1 ? k % BOX_STREAMS : 0);
            if (k % 5 == 2) NCCL_OK(ncclGroupEnd());
        }
        NCCL_OK(ncclGroupEnd());
        set_check(part, set);
        for (int k = 0; k < set->count; k++) call_issue(part, &set->call[k]);
        set_check(part, set);
        set_free(part, set);
    }
    free(set);
}

/* `count` calls of up to most_bytes, of the collectives in turn; each of one kind, which for what only moves is any datatype. */
static void draw_alike(struct part *part, struct set *set, int count, const bool *collectives, int datatype,
                       size_t most_bytes) {
    uint64_t state = part->box->seed + (uint64_t)count;
    set->count = count;
    for (int k = 0, c = 0; k < count; k++, c++) {
        while (!collectives[c % BL_COLLECTIVES]) c++;
        const enum bl_collective collective = (enum bl_collective)(c % BL_COLLECTIVES);
        const bool moves = collective == BL_ALLGATHER || collective == BL_ALLTOALL || collective == BL_BROADCAST;
        set->call[k] = (struct call){.collective = collective,
                                     .seed = ref_next(&state),
                                     .datatype = moves ? k % REF_DATATYPES : datatype,
                                     .redop = ref_redop("sum")};
        set->call[k].count = 1 + ref_below(&state, most_bytes / ref_datatype_size(set->call[k].datatype));
        call_prepare(part, &set->call[k]);
    }
}

/* All in place but the last, many lines each: whoever sums must not overwrite what has yet to be sent, whichever of a launch's
 * messages lie in place. */
static void in_place(struct part *part, const struct options *o) {
    enum { CALLS = 6, COUNT = 1500 };
    struct set *set = calloc(1, sizeof *set);
    CHECK(set);
    ncclComm_t comms[BOX_RANKS];
    part_comms(part, comms);
    uint64_t state = part->box->seed;
    set->count = CALLS;
    for (int k = 0; k < CALLS; k++) {
        set->call[k] = (struct call){.collective = BL_ALLREDUCE,
                                     .seed = ref_next(&state),
                                     .datatype = ref_datatype("float"),
                                     .redop = ref_redop("sum"),
                                     .count = COUNT - (size_t)k,
                                     .in_place = k + 1 < CALLS};
        call_prepare(part, &set->call[k]);
    }
    for (int round = 0; round < 12; round++) {
        NCCL_OK(ncclGroupStart());
        for (int k = 0; k < CALLS; k++) set_issue(part, &set->call[k], comms, 0);
        NCCL_OK(ncclGroupEnd());
        set_check(part, set);
    }
    set_free(part, set);
    free(set);
}

/* How many launches there are, counted in a graph, of the collectives of -C in turn: -c gives numbers of calls, -k the launches of each, a decimal digit
 * each; 0: more than one, and fewer than the calls. */
static void launches(struct part *part, const struct options *o) {
    struct set *set = calloc(1, sizeof *set);
    CHECK(set);
    ncclComm_t comms[BOX_RANKS];
    part_comms(part, comms);
    if (!box_route(comms[0], BL_ALLREDUCE, 1, 0, 0)) box_skip("without Beeline");
    long digits = o->calls;
    for (int c = o->counts - 1; c >= 0; c--, digits /= 10) {
        struct graphs graphs;
        draw_alike(part, set, (int)o->count[c], o->collectives, ref_datatype("float"), MOST_BYTES);
        set_capture(part, set, comms, &graphs);
        int got = set_kernels(&graphs);
        if (digits % 10)
            CHECK(got == digits % 10, "%zu calls: %d launches, expected %ld", o->count[c], got, digits % 10);
        else
            CHECK(got > 1 && got < set->count, "%zu calls: %d launches", o->count[c], got);
        graphs_launch(part, &graphs, 0);
        set_check(part, set);
        graphs_free(part, &graphs);
        set_free(part, set);
    }
    free(set);
}

/* Replays mixed with eager groups and single calls. */
static void replayed(struct part *part, const struct options *o) {
    struct set *set = calloc(1, sizeof *set);
    CHECK(set);
    ncclComm_t comms[BOX_RANKS];
    part_comms(part, comms);
    struct graphs graphs;
    uint64_t state = part->box->seed + 1;
    draw(part, o, set, &state, 72);
    set_capture(part, set, comms, &graphs);
    part_synchronize(part);
    for (int k = 0; k < set->count; k++) call_check_untouched(part, &set->call[k]);
    for (int r = 0; r < 6; r++) {
        graphs_launch(part, &graphs, r % BOX_STREAMS);
        set_check(part, set);
        if (r == 2) { /* eager, on another stream */
            NCCL_OK(ncclGroupStart());
            for (int k = 0; k < set->count; k++) set_issue(part, &set->call[k], comms, 1);
            NCCL_OK(ncclGroupEnd());
            set_check(part, set);
        } else if (r % 2) {
            call_issue(part, &set->call[r]);
            part_synchronize(part);
            call_check(part, &set->call[r]);
            call_refill(part, &set->call[r]);
        }
    }
    graphs_free(part, &graphs);
    set_free(part, set);
    free(set);
}

/* Calls of two communicators, on two streams, which every rank mixes in another way: each communicator's own sequence is
 * all that counts.  Then on one stream, where they take turns in the order of their first calls.  A thread with several GPUs
 * issues all calls of one before the next's. */
static void two_communicators(struct part *part, const struct options *o) {
    enum { EACH = 24 };
    struct set *set = calloc(1, sizeof *set);
    CHECK(set);
    ncclComm_t comms[2][BOX_RANKS];
    part_comms(part, comms[0]);
    part_make_communicators(part, 1, comms[1]);
    for (int round = 0; round < 3; round++) {
        const bool together = round == 2;
        uint64_t state = part->box->seed + (uint64_t)round;
        draw(part, o, set, &state, 2 * EACH);
        NCCL_OK(ncclGroupStart());
        for (int i = 0; i < part->count; i++) {
            uint64_t mixed = ref_mix(state, together ? 0 : (uint64_t)part->rank[i].rank);
            int issued[2] = {0, 0};
            while (issued[0] + issued[1] < 2 * EACH) {
                int c = (int)ref_below(&mixed, 2);
                if (issued[c] == EACH) c = 1 - c;
                NCCL_OK(call_issue_rank(part, &set->call[c * EACH + issued[c]++], i, comms[c][i],
                                        part->rank[i].stream[together ? 0 : c]));
            }
        }
        NCCL_OK(ncclGroupEnd());
        set_check(part, set);
        set_free(part, set);
    }
    free(set);
    part_destroy_communicators(part, comms[1]);
}

/* --- several streams --- */

/* The result moves on, and its place is overwritten, on the chain's stream. */
static void move_on(struct part *part, struct chain *chain, int s) {
    for (int i = 0; i < part->count; i++) {
        CUstream stream = part_enter(part, i)->stream[s];
        CU_OK(cuMemcpyDtoDAsync(chain->to[i], chain->from[i], chain->count * 4, stream));
        CU_OK(cuMemsetD8Async(chain->from[i], 0xee, chain->count * 4, stream));
        CUdeviceptr p = chain->to[i];
        chain->to[i] = chain->from[i];
        chain->from[i] = p;
    }
}

/* A chain a stream, all of them in one group each time; whose stream the launch is on goes round. */
static void rounds(struct part *part, struct chain *chains, int from, int to) {
    ncclComm_t comms[BOX_RANKS];
    CUstream stream[BOX_RANKS];
    part_comms(part, comms);
    for (int round = from; round < to; round++) {
        for (int s = 0; s < BOX_STREAMS; s++) move_on(part, &chains[s], s);
        NCCL_OK(ncclGroupStart());
        for (int k = 0; k < BOX_STREAMS; k++) {
            int s = (round + k) % BOX_STREAMS;
            part_streams(part, s, stream);
            chain_allreduce(part, &chains[s], comms, stream);
        }
        NCCL_OK(ncclGroupEnd());
        for (int s = 0; s < BOX_STREAMS; s++) move_on(part, &chains[s], s);
    }
}

static void open_chains(struct part *part, struct chain *chains) {
    static const size_t counts[BOX_STREAMS] = {300, 1, 1100};
    for (int s = 0; s < BOX_STREAMS; s++) chain_open(part, &chains[s], counts[s]);
}

static void close_chains(struct part *part, struct chain *chains) {
    part_synchronize(part);
    for (int s = 0; s < BOX_STREAMS; s++) {
        chain_check(part, &chains[s]);
        chain_close(part, &chains[s]);
    }
}

static void streams(struct part *part, const struct options *o) {
    struct chain chains[BOX_STREAMS];
    open_chains(part, chains);
    rounds(part, chains, 0, 7);
    close_chains(part, chains);
    scenario_works(part, 60);
}

/* The streams that a capture of stream 0 has to reach, and where it ends. */
static void fork_and_join(struct part *part, CUevent *event, bool fork) {
    for (int i = 0; i < part->count; i++) {
        struct rank *rank = part_enter(part, i);
        for (int s = 1; s < BOX_STREAMS; s++) {
            CU_OK(cuEventRecord(event[i], rank->stream[fork ? 0 : s]));
            CU_OK(cuStreamWaitEvent(rank->stream[fork ? s : 0], event[i], 0));
        }
    }
}

static void streams_captured(struct part *part, const struct options *o) {
    struct chain chains[BOX_STREAMS];
    CUevent event[BOX_RANKS];
    struct graphs graphs;
    each_rank (part, i) CU_OK(cuEventCreate(&event[i], CU_EVENT_DISABLE_TIMING));
    open_chains(part, chains);
    rounds(part, chains, 0, 2);
    part_synchronize(part);
    graphs_begin(part, 0);
    fork_and_join(part, event, true);
    rounds(part, chains, 0, 4);
    fork_and_join(part, event, false);
    graphs_end(part, 0, &graphs);
    graphs_launch(part, &graphs, 0);
    part_synchronize(part);
    rounds(part, chains, 1, 3);
    close_chains(part, chains);
    graphs_free(part, &graphs);
    each_rank (part, i) CU_OK(cuEventDestroy(event[i]));
}

/* One stream captured and another not: NCCL refuses that, and nothing runs; not what NCCL would have whole either (-c 5). */
static void half_captured(struct part *part, const struct options *o) {
    struct set *set = calloc(1, sizeof *set);
    CHECK(set);
    ncclComm_t comms[BOX_RANKS];
    part_comms(part, comms);
    if (!box_route(comms[0], BL_ALLREDUCE, 1, 0, 0)) box_skip("without Beeline");
    draw_alike(part, set, 4, o->collectives, ref_datatype("half"), 500);
    if (o->count[0] == SET_HEAVY) set_add_heavy(part, set);
    struct graphs graphs;
    graphs_begin(part, 0);
    NCCL_OK(ncclGroupStart());
    for (int k = 0; k < set->count; k++) set_issue(part, &set->call[k], comms, k == 2 || k >= 4);
    ncclResult_t result = ncclGroupEnd();
    CHECK(result == ncclInvalidUsage, "the end of the group gave %s", ncclGetErrorString(result));
    graphs_end(part, 0, &graphs);
    CHECK(set_kernels(&graphs) == 0);
    part_synchronize(part);
    for (int k = 0; k < set->count; k++) call_check_untouched(part, &set->call[k]);
    graphs_free(part, &graphs);
    set_free(part, set);
    free(set);
    part_barrier(part);
    scenario_works(part, 61);
}

/* A communicator that is destroyed in the group takes its calls with it, and no others; also those that NCCL would have whole (-c 5). */
static void destroyed(struct part *part, const struct options *o) {
    struct set *set = calloc(1, sizeof *set);
    CHECK(set);
    ncclComm_t comms[2][BOX_RANKS];
    part_comms(part, comms[0]);
    part_make_communicators(part, 1, comms[1]);
    if (!box_route(comms[0][0], BL_ALLREDUCE, 1, 0, 0)) box_skip("without Beeline");
    draw_alike(part, set, 30, (const bool[BL_COLLECTIVES]){true, true, true}, ref_datatype("bfloat16"), 700);
    if (o->count[0] == SET_HEAVY) set_add_heavy(part, set);
    NCCL_OK(ncclGroupStart());
    for (int k = 0; k < 20; k++) set_issue(part, &set->call[k], comms[k % 2], 0);
    for (int k = 30; k < set->count; k++) set_issue(part, &set->call[k], comms[1], 0);
    each_rank (part, i) NCCL_OK(ncclCommDestroy(comms[1][i]));
    for (int k = 20; k < 30; k++) set_issue(part, &set->call[k], comms[0], 0);
    NCCL_OK(ncclGroupEnd());
    part_synchronize(part);
    for (int k = 0; k < set->count; k++) {
        if ((k < 20 && k % 2) || k >= 30)
            call_check_untouched(part, &set->call[k]);
        else
            call_check(part, &set->call[k]);
    }
    set_free(part, set);
    free(set);
}

const struct scenario fused_scenarios[] = {
    {.name = "fused_many", .run = many},
    {.name = "fused_in_place", .run = in_place},
    {.name = "fused_launches", .run = launches},
    {.name = "fused_replayed", .run = replayed},
    {.name = "fused_two_communicators", .run = two_communicators},
    {.name = "fused_streams", .run = streams},
    {.name = "fused_streams_captured", .run = streams_captured},
    {.name = "fused_half_captured", .run = half_captured},
    {.name = "fused_destroyed", .run = destroyed},
    {0},
};
