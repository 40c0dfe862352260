/* fused.c - the calls of a group that share launches: the same bits as each by itself, in as few launches as they
 * fit into, in order with everything else.
 */
#include "scenarios.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 160, MOST_BYTES = 6000 };

struct set {
    int count;
    struct call call[MOST];
};

static void issue(struct part *part, struct call *call, const ncclComm_t *comms, int stream) {
    for (int i = 0; i < part->count; i++)
        NCCL_OK(call_issue_rank(part, call, i, comms[i], part->rank[i].stream[stream]));
}

static void check_all(struct part *part, struct set *set) {
    part_synchronize(part);
    for (int k = 0; k < set->count; k++) {
        call_check(part, &set->call[k]);
        call_refill(part, &set->call[k]);
    }
}

static void free_all(struct part *part, struct set *set) {
    for (int k = 0; k < set->count; k++) call_free(part, &set->call[k]);
    set->count = 0;
}

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
            issue(part, &set->call[k], comms, round % 3 == 1 ? k % BOX_STREAMS : 0);
            if (k % 5 == 2) NCCL_OK(ncclGroupEnd());
        }
        NCCL_OK(ncclGroupEnd());
        check_all(part, set);
        for (int k = 0; k < set->count; k++) call_issue(part, &set->call[k]);
        check_all(part, set);
        free_all(part, set);
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
        for (int k = 0; k < CALLS; k++) issue(part, &set->call[k], comms, 0);
        NCCL_OK(ncclGroupEnd());
        check_all(part, set);
    }
    free_all(part, set);
    free(set);
}

/* Kernels that the graph of the part's first rank launches. */
static int kernels_in(const struct graphs *graphs) {
    CUgraphNode nodes[4 * MOST];
    size_t count = 4 * MOST;
    int kernels = 0;
    CU_OK(cuGraphGetNodes(graphs->graph[0], nodes, &count));
    for (size_t i = 0; i < count; i++) {
        CUgraphNodeType type;
        CU_OK(cuGraphNodeGetType(nodes[i], &type));
        kernels += type == CU_GRAPH_NODE_TYPE_KERNEL;
    }
    return kernels;
}

static void capture_group(struct part *part, struct set *set, const ncclComm_t *comms, struct graphs *graphs) {
    graphs_begin(part, 0);
    NCCL_OK(ncclGroupStart());
    for (int k = 0; k < set->count; k++) issue(part, &set->call[k], comms, 0);
    NCCL_OK(ncclGroupEnd());
    graphs_end(part, 0, graphs);
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
        capture_group(part, set, comms, &graphs);
        int got = kernels_in(&graphs);
        if (digits % 10)
            CHECK(got == digits % 10, "%zu calls: %d launches, expected %ld", o->count[c], got, digits % 10);
        else
            CHECK(got > 1 && got < set->count, "%zu calls: %d launches", o->count[c], got);
        graphs_launch(part, &graphs, 0);
        check_all(part, set);
        graphs_free(part, &graphs);
        free_all(part, set);
    }
    free(set);
}

/* --- fused_left: calls of a group go to NCCL with a larger one of their kind, first, in the midst or last --- */
enum { KINDS = 8, SMALL_COUNT = 40, LARGE_COUNT = 20000 }; /* by thresholds of 6 KB, below which all small ones are */
/* -c: what the user's setting says stays; one all-gather more than go, or as many as that; all sums are Beeline's, of whatever size. */
enum left_how { LEFT, SAID, MANY, INVARIANT, FULL };

/* So many at most: dispatch/together.c. */
static const int few[BL_COLLECTIVES] = {[BL_BROADCAST] = MOST, [BL_REDUCE] = MOST, [BL_ALLGATHER] = 8};

static const enum bl_collective kinds[KINDS] = {BL_ALLREDUCE, BL_BROADCAST, BL_REDUCE, BL_BROADCAST,
                                                BL_ALLGATHER, BL_BROADCAST, BL_REDUCE, BL_BROADCAST};

/* Launches of Beeline's, one for each collective that has small calls which stay. */
static int launches_left(const struct set *set, int large, enum left_how how) {
    int small[BL_COLLECTIVES] = {0}, launches = 0;
    for (int k = 0; k < set->count; k++) small[set->call[k].collective] += k != large;
    for (int c = 0; c < BL_COLLECTIVES; c++) {
        const bool attracted = large >= 0 && set->call[large].collective == (enum bl_collective)c && how != SAID;
        launches += small[c] && !(attracted && small[c] <= few[c]);
    }
    return launches;
}

static int list_kinds(enum bl_collective collective[MOST], enum left_how how) {
    const int more = how == MANY ? 2 : how == FULL ? 1 : 0;
    int listed[BL_COLLECTIVES] = {0}, count = 0;
    for (; count < KINDS; count++) listed[collective[count] = kinds[count]]++;
    for (; more && listed[BL_ALLGATHER] < few[BL_ALLGATHER] + more; listed[BL_ALLGATHER]++)
        collective[count++] = BL_ALLGATHER;
    return count;
}

static void prepare_left(struct part *part, struct set *set, int large, enum left_how how) {
    enum bl_collective collective[MOST];
    set->count = list_kinds(collective, how);
    for (int k = 0; k < set->count; k++) {
        set->call[k] = (struct call){.collective = collective[k],
                                     .seed = part->box->seed + (uint64_t)(large * set->count + k),
                                     .datatype = ref_datatype("float"),
                                     .redop = ref_redop("sum"),
                                     .in_place = k % 3 == 2,
                                     .count = k == large ? LARGE_COUNT : SMALL_COUNT};
        call_prepare(part, &set->call[k]);
    }
}

/* Captured, replayed, and eager, on two streams, of two communicators. */
static void left(struct part *part, const struct options *o) {
    const enum left_how how = (enum left_how)o->count[0];
    struct set *set = calloc(1, sizeof *set);
    CHECK(set);
    ncclComm_t comms[BOX_RANKS], others[BOX_RANKS];
    part_comms(part, comms);
    if (!box_route(comms[0], BL_ALLREDUCE, 1, 0, 0)) box_skip("without Beeline");
    part_make_communicators(part, 1, others);
    for (int large = KINDS - 1; large >= -1; large--) {
        struct graphs graphs;
        prepare_left(part, set, large, how);
        capture_group(part, set, comms, &graphs);
        const int of_nccl = large >= 0, ours = launches_left(set, large, how), got = kernels_in(&graphs);
        const bool in_pieces =
            how == INVARIANT && large >= 0 && (kinds[large] == BL_ALLREDUCE || kinds[large] == BL_REDUCE);
        CHECK(in_pieces || got == ours + of_nccl, "call %d is large: %d launches, expected %d and %d of NCCL's", large,
              got, ours, of_nccl);
        for (int replay = 0; replay < 2; replay++) {
            graphs_launch(part, &graphs, 0);
            check_all(part, set);
        }
        for (int round = 0; round < 2;
             round++) { /* the second is nested, and has two broadcasts on the other communicator */
            for (int depth = 0; depth <= round; depth++) NCCL_OK(ncclGroupStart());
            for (int k = 0; k < set->count; k++)
                issue(part, &set->call[k], round && k < KINDS && k % 4 == 1 ? others : comms, k % 2);
            for (int depth = 0; depth <= round; depth++) NCCL_OK(ncclGroupEnd());
            check_all(part, set);
        }
        graphs_free(part, &graphs);
        free_all(part, set);
    }
    part_destroy_communicators(part, others);
    free(set);
}

/* A larger one on another communicator takes none along. */
static void left_apart(struct part *part, const struct options *o) {
    struct set *set = calloc(1, sizeof *set);
    CHECK(set);
    ncclComm_t comms[BOX_RANKS], others[BOX_RANKS];
    struct graphs graphs;
    part_comms(part, comms);
    if (!box_route(comms[0], BL_ALLREDUCE, 1, 0, 0)) box_skip("without Beeline");
    part_make_communicators(part, 1, others);
    for (int large = KINDS - 1; large >= 0; large--) {
        prepare_left(part, set, large, LEFT);
        set->call[set->count] = (struct call){.collective = BL_ALLTOALL, .seed = part->box->seed, .count = 1};
        call_prepare(part, &set->call[set->count++]); /* NCCL's, with which what goes would be one launch */
        graphs_begin(part, 0);
        NCCL_OK(ncclGroupStart());
        for (int k = 0; k < set->count; k++) issue(part, &set->call[k], k == large ? others : comms, 0);
        NCCL_OK(ncclGroupEnd());
        graphs_end(part, 0, &graphs);
        const int ours = launches_left(set, large, SAID) - 1, got = kernels_in(&graphs);
        CHECK(got == ours + 2, "call %d is large, and apart: %d launches, expected %d and two of NCCL's", large, got,
              ours);
        graphs_launch(part, &graphs, 0);
        check_all(part, set);
        graphs_free(part, &graphs);
        free_all(part, set);
    }
    part_destroy_communicators(part, others);
    free(set);
}

/* On nonblocking communicators, where Beeline's calls are launched once NCCL's of the group are on the stream; or the group is but simulated. */
static void left_nonblocking(struct part *part, const struct options *o) {
    struct set *set = calloc(1, sizeof *set);
    CHECK(set);
    ncclComm_t comms[BOX_RANKS];
    part_make_nonblocking(part, 1, comms);
    if (!box_route(comms[0], BL_ALLREDUCE, 1, 0, 0)) box_skip("without Beeline");
    for (int large = KINDS - 1; large >= -1; large--) {
        prepare_left(part, set, large, LEFT);
        for (int simulated = 1; simulated >= 0; simulated--) {
            NCCL_OK(ncclGroupStart());
            for (int k = 0; k < set->count; k++)
                each_rank (part, i)
                    NCCL_GOES(call_issue_rank(part, &set->call[k], i, comms[i], part->rank[i].stream[k % 2]));
            if (simulated) {
                NCCL_GOES(ncclGroupSimulateEnd(NULL));
                part_synchronize(part);
                for (int k = 0; k < set->count; k++) call_check_untouched(part, &set->call[k]);
            } else {
                NCCL_GOES(ncclGroupEnd());
            }
            part_settle(part, comms);
        }
        check_all(part, set);
        free_all(part, set);
    }
    each_rank (part, i) NCCL_OK(ncclCommAbort(comms[i]));
    free(set);
}

/* --- fused_whole: what NCCL has whole, for what it has in all; behind it an all-to-all that is NCCL's: all are one launch, or more --- */
struct whole {
    enum bl_collective collective;
    int calls; /* 0: two of each root */
    size_t count;
    bool nccls;
};

/* By thresholds of 6 KB; of one root, else they go round. */
static const struct whole of_roots[] = {{BL_BROADCAST, 3, 1500, true},
                                        {BL_BROADCAST, 0, 1500, false},
                                        {BL_REDUCE, 3, 1500, true},
                                        {BL_REDUCE, 0, 1500, false}};
/* By thresholds of 4 MB: of that, of 1 MB, and a little more. */
enum { MB = 1 << 18 };
static const struct whole in_all[] = {
    {BL_ALLGATHER, 4, 4 * MB, false},    {BL_ALLGATHER, 5, 4 * MB, true},  {BL_REDUCESCATTER, 4, 4 * MB, false},
    {BL_REDUCESCATTER, 5, 4 * MB, true}, {BL_ALLREDUCE, 6, 4 * MB, false}, {BL_ALLREDUCE, 7, 4 * MB, true},
    {BL_ALLREDUCE, 8, MB + 1, false},    {BL_ALLREDUCE, 9, MB + 1, true},  {BL_ALLREDUCE, 9, MB, false}};

/* The root is drawn from the call's seed: so it is the next seed that draws this one. */
static void prepare_rooted(struct part *part, struct call *call, int root) {
    while (call_root(part, call) != root) call->seed++;
    call_prepare(part, call);
}

/* Broadcasts of one root that by thresholds of 6 KB, and between more than two ranks, are NCCL's together. */
enum { HEAVY = 5 };
static void add_heavy(struct part *part, struct set *set) {
    for (int i = 0; i < HEAVY; i++) {
        struct call *const call = &set->call[set->count++];
        *call = (struct call){.collective = BL_BROADCAST,
                              .seed = part->box->seed + (uint64_t)(7 + i) * 1000,
                              .datatype = ref_datatype("float"),
                              .redop = ref_redop("sum"),
                              .count = 1500};
        prepare_rooted(part, call, 1);
    }
}

static void one_whole(struct part *part, struct set *set, const ncclComm_t *comms, const struct whole *whole,
                      bool invariant) {
    struct graphs graphs;
    const bool sums_stay = invariant && whole->collective != BL_ALLGATHER;
    set->count = 1 + (whole->calls ? whole->calls : 2 * part->box->nranks);
    for (int k = 0; k < set->count; k++) {
        const bool last = k + 1 == set->count;
        set->call[k] = (struct call){.collective = last ? BL_ALLTOALL : whole->collective,
                                     .seed = part->box->seed + (uint64_t)(whole->calls * 100 + k) * 1000,
                                     .datatype = ref_datatype("float"),
                                     .redop = ref_redop("sum"),
                                     .count = last ? 1 : whole->count};
        prepare_rooted(part, &set->call[k], whole->calls ? 1 : k % part->box->nranks);
    }
    capture_group(part, set, comms, &graphs);
    const int got = kernels_in(&graphs);
    CHECK((got == 1) == (whole->nccls && !sums_stay), "%d calls of %s: %d launches", set->count - 1,
          collective_name(whole->collective), got);
    graphs_launch(part, &graphs, 0);
    check_all(part, set);
    NCCL_OK(ncclGroupStart());
    for (int k = 0; k < set->count; k++) issue(part, &set->call[k], comms, 1);
    NCCL_OK(ncclGroupEnd());
    check_all(part, set);
    graphs_free(part, &graphs);
    free_all(part, set);
}

/* -c 1: by thresholds of 4 MB; 2: with the same bits at every size. */
static void whole(struct part *part, const struct options *o) {
    struct set *set = calloc(1, sizeof *set);
    CHECK(set);
    ncclComm_t comms[BOX_RANKS];
    part_comms(part, comms);
    if (!box_route(comms[0], BL_ALLREDUCE, 1, 0, 0)) box_skip("without Beeline");
    if (o->count[0])
        for (size_t i = 0; i < sizeof in_all / sizeof *in_all; i++)
            one_whole(part, set, comms, &in_all[i], o->count[0] > 1);
    else
        for (size_t i = 0; i < sizeof of_roots / sizeof *of_roots; i++)
            one_whole(part, set, comms, &of_roots[i], false);
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
    capture_group(part, set, comms, &graphs);
    part_synchronize(part);
    for (int k = 0; k < set->count; k++) call_check_untouched(part, &set->call[k]);
    for (int r = 0; r < 6; r++) {
        graphs_launch(part, &graphs, r % BOX_STREAMS);
        check_all(part, set);
        if (r == 2) { /* eager, on another stream */
            NCCL_OK(ncclGroupStart());
            for (int k = 0; k < set->count; k++) issue(part, &set->call[k], comms, 1);
            NCCL_OK(ncclGroupEnd());
            check_all(part, set);
        } else if (r % 2) {
            call_issue(part, &set->call[r]);
            part_synchronize(part);
            call_check(part, &set->call[r]);
            call_refill(part, &set->call[r]);
        }
    }
    graphs_free(part, &graphs);
    free_all(part, set);
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
        check_all(part, set);
        free_all(part, set);
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
    if (o->count[0] == HEAVY) add_heavy(part, set);
    struct graphs graphs;
    graphs_begin(part, 0);
    NCCL_OK(ncclGroupStart());
    for (int k = 0; k < set->count; k++) issue(part, &set->call[k], comms, k == 2 || k >= 4);
    ncclResult_t result = ncclGroupEnd();
    CHECK(result == ncclInvalidUsage, "the end of the group gave %s", ncclGetErrorString(result));
    graphs_end(part, 0, &graphs);
    CHECK(kernels_in(&graphs) == 0);
    part_synchronize(part);
    for (int k = 0; k < set->count; k++) call_check_untouched(part, &set->call[k]);
    graphs_free(part, &graphs);
    free_all(part, set);
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
    if (o->count[0] == HEAVY) add_heavy(part, set);
    NCCL_OK(ncclGroupStart());
    for (int k = 0; k < 20; k++) issue(part, &set->call[k], comms[k % 2], 0);
    for (int k = 30; k < set->count; k++) issue(part, &set->call[k], comms[1], 0);
    each_rank (part, i) NCCL_OK(ncclCommDestroy(comms[1][i]));
    for (int k = 20; k < 30; k++) issue(part, &set->call[k], comms[0], 0);
    NCCL_OK(ncclGroupEnd());
    part_synchronize(part);
    for (int k = 0; k < set->count; k++) {
        if ((k < 20 && k % 2) || k >= 30)
            call_check_untouched(part, &set->call[k]);
        else
            call_check(part, &set->call[k]);
    }
    free_all(part, set);
    free(set);
}

const struct scenario fused_scenarios[] = {
    {.name = "fused_many", .run = many},
    {.name = "fused_in_place", .run = in_place},
    {.name = "fused_launches", .run = launches},
    {.name = "fused_left", .run = left},
    {.name = "fused_left_apart", .run = left_apart},
    {.name = "fused_left_nonblocking", .run = left_nonblocking, .no_communicators = true},
    {.name = "fused_whole", .run = whole},
    {.name = "fused_replayed", .run = replayed},
    {.name = "fused_two_communicators", .run = two_communicators},
    {.name = "fused_streams", .run = streams},
    {.name = "fused_streams_captured", .run = streams_captured},
    {.name = "fused_half_captured", .run = half_captured},
    {.name = "fused_destroyed", .run = destroyed},
    {0},
};
