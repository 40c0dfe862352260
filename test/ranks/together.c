/* together.c - which calls of a group go to NCCL together, beside a larger one or for what they have in all: launches counted in graphs, results as
 * ever. */
#include <stdlib.h>

#include "scenarios.h"
#include "set.h"

/* --- fused_left: calls of a group go to NCCL with a larger one of their kind, first, in the midst or last --- */
enum { KINDS = 8, SMALL_COUNT = 40, LARGE_COUNT = 20000 }; /* by thresholds of 6 KB, below which all small ones are */
/* -c: what the user's setting says stays; one all-gather more than go, or as many as that; all sums are Beeline's, of whatever size. */
enum left_how { LEFT, SAID, MANY, INVARIANT, FULL };

/* So many at most: dispatch/together.c. */
static const int few[BL_COLLECTIVES] = {[BL_BROADCAST] = SET_MOST, [BL_REDUCE] = SET_MOST, [BL_ALLGATHER] = 8};

static const enum bl_collective kinds[KINDS] = {BL_ALLREDUCE, BL_BROADCAST, BL_REDUCE, BL_BROADCAST,
                                                BL_ALLGATHER, BL_BROADCAST, BL_REDUCE, BL_BROADCAST};

/* Launches of Beeline's: one for each small call that stays where BEELINE_FUSE_MAX has them apart; else one, and one for each collective whose algorithm the user
 * has said. */
static int launches_left(const struct set *set, int large, enum left_how how) {
    int small[BL_COLLECTIVES] = {0}, stay = 0, said = 0, others = 0;
    for (int k = 0; k < set->count; k++) small[set->call[k].collective] += k != large;
    for (int c = 0; c < BL_COLLECTIVES; c++) {
        const bool attracted = large >= 0 && set->call[large].collective == (enum bl_collective)c && how != SAID;
        if (attracted && small[c] <= few[c]) continue;
        stay += small[c];
        if (how == SAID && (c == BL_BROADCAST || c == BL_REDUCE))
            said += small[c] > 0;
        else
            others += small[c];
    }
    return getenv("BEELINE_FUSE_MAX") ? stay : said + (others > 0);
}

static int list_kinds(enum bl_collective collective[SET_MOST], enum left_how how) {
    const int more = how == MANY ? 2 : how == FULL ? 1 : 0;
    int listed[BL_COLLECTIVES] = {0}, count = 0;
    for (; count < KINDS; count++) listed[collective[count] = kinds[count]]++;
    for (; more && listed[BL_ALLGATHER] < few[BL_ALLGATHER] + more; listed[BL_ALLGATHER]++)
        collective[count++] = BL_ALLGATHER;
    return count;
}

static void prepare_left(struct part *part, struct set *set, int large, enum left_how how) {
    enum bl_collective collective[SET_MOST];
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
        set_capture(part, set, comms, &graphs);
        const int of_nccl = large >= 0, ours = launches_left(set, large, how), got = set_kernels(&graphs);
        const bool in_pieces =
            how == INVARIANT && large >= 0 && (kinds[large] == BL_ALLREDUCE || kinds[large] == BL_REDUCE);
        CHECK(in_pieces || got == ours + of_nccl, "call %d is large: %d launches, expected %d and %d of NCCL's", large,
              got, ours, of_nccl);
        for (int replay = 0; replay < 2; replay++) {
            graphs_launch(part, &graphs, 0);
            set_check(part, set);
        }
        for (int round = 0; round < 2;
             round++) { /* the second is nested, and has two broadcasts on the other communicator */
            for (int depth = 0; depth <= round; depth++) NCCL_OK(ncclGroupStart());
            for (int k = 0; k < set->count; k++)
                set_issue(part, &set->call[k], round && k < KINDS && k % 4 == 1 ? others : comms, k % 2);
            for (int depth = 0; depth <= round; depth++) NCCL_OK(ncclGroupEnd());
            set_check(part, set);
        }
        graphs_free(part, &graphs);
        set_free(part, set);
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
        for (int k = 0; k < set->count; k++) set_issue(part, &set->call[k], k == large ? others : comms, 0);
        NCCL_OK(ncclGroupEnd());
        graphs_end(part, 0, &graphs);
        const int ours = launches_left(set, large, SAID) - 1, got = set_kernels(&graphs);
        CHECK(got == ours + 2, "call %d is large, and apart: %d launches, expected %d and two of NCCL's", large, got,
              ours);
        graphs_launch(part, &graphs, 0);
        set_check(part, set);
        graphs_free(part, &graphs);
        set_free(part, set);
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
                ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
                NCCL_GOES(ncclGroupSimulateEnd(&info));
                part_synchronize(part);
                for (int k = 0; k < set->count; k++) call_check_untouched(part, &set->call[k]);
            } else {
                NCCL_GOES(ncclGroupEnd());
            }
            part_settle(part, comms);
        }
        set_check(part, set);
        set_free(part, set);
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
        set_prepare_rooted(part, &set->call[k], whole->calls ? 1 : k % part->box->nranks);
    }
    set_capture(part, set, comms, &graphs);
    const int got = set_kernels(&graphs);
    CHECK((got == 1) == (whole->nccls && !sums_stay), "%d calls of %s: %d launches", set->count - 1,
          collective_name(whole->collective), got);
    if (whole->count <= MB) { /* of more the values take long */
        graphs_launch(part, &graphs, 0);
        set_check(part, set);
    }
    if (whole->count < MB) {
        NCCL_OK(ncclGroupStart());
        for (int k = 0; k < set->count; k++) set_issue(part, &set->call[k], comms, 1);
        NCCL_OK(ncclGroupEnd());
        set_check(part, set);
    }
    graphs_free(part, &graphs);
    set_free(part, set);
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

const struct scenario together_scenarios[] = {
    {.name = "fused_left", .run = left},
    {.name = "fused_left_apart", .run = left_apart},
    {.name = "fused_left_nonblocking", .run = left_nonblocking, .no_communicators = true},
    {.name = "fused_whole", .run = whole},
    {0},
};
