/* oneway.c - broadcasts and reduces: who needs nobody's data is done without the others, and many such calls in turn. */
#include <string.h>
#include <time.h>

#include "scenarios.h"

/* A broadcast or reduce of that root, which follows from the seed. */
static void draw(struct part *part, struct call *call, uint64_t *state, enum bl_collective collective, int root,
                 size_t most) {
    *call = (struct call){.collective = collective,
                          .datatype = (int)ref_below(state, REF_DATATYPES),
                          .redop = (int)ref_below(state, REF_REDOPS),
                          .count = 1 + ref_below(state, most),
                          .in_place = ref_below(state, 2)};
    do call->seed = ref_next(state);
    while (root >= 0 && (int)(ref_mix(call->seed, 0x7007) % (unsigned)part->box->nranks) != root);
    call_prepare(part, call);
}

static bool needs_others(const struct call *call, int rank) {
    return (rank == call->root) == (call->collective == BL_REDUCE);
}

/* On rank i; the route has to be Beeline's. */
static void issue(struct part *part, struct call *call, int i) {
    struct rank *rank = &part->rank[i];
    const char *route = box_route(rank->comm, call->collective, call->count, call->datatype, call->redop);
    CHECK(!route || strcmp(route, "nccl") != 0, "%s went to NCCL", collective_name(call->collective));
    NCCL_OK(call_issue_rank(part, call, i, rank->comm, rank->stream[0]));
}

/* Ranks that need nobody come first, each time with a few calls, and are done before the others have called. */
static void ahead(struct part *part, const struct options *o) {
    enum { CALLS = 4 };
    uint64_t state = part->box->seed;
    for (int round = 0; round < 4 * part->box->nranks; round++) {
        struct call calls[CALLS];
        for (int k = 0; k < CALLS; k++)
            draw(part, &calls[k], &state, round % 2 ? BL_REDUCE : BL_BROADCAST, round / 2 % part->box->nranks, 900);
        for (int others = 0; others < 2; others++) {
            for (int k = 0; k < CALLS; k++)
                for (int i = 0; i < part->count; i++)
                    if (needs_others(&calls[k], part->rank[i].rank) == others) issue(part, &calls[k], i);
            part_synchronize(part); /* of the first it returns, or the time limit of the case ends it */
            part_barrier(part);
        }
        for (int k = 0; k < CALLS; k++) {
            call_check(part, &calls[k]);
            call_free(part, &calls[k]);
        }
    }
}

/* Roots in turn, all-reduces between, ranks that come late. */
static void in_turn(struct part *part, const struct options *o) {
    enum { CALLS = 12 };
    uint64_t state = part->box->seed, own = ref_mix(state, (uint64_t)part->rank[0].rank);
    const long rounds = o->calls ? o->calls : 12;
    for (long round = 0; round < rounds; round++) {
        struct call calls[CALLS];
        for (int k = 0; k < CALLS; k++) {
            static const enum bl_collective collectives[] = {BL_BROADCAST, BL_REDUCE, BL_BROADCAST, BL_REDUCE,
                                                             BL_ALLREDUCE};
            draw(part, &calls[k], &state, collectives[ref_below(&state, 5)], -1, k % 4 ? 200 : 9000);
        }
        for (int k = 0; k < CALLS; k++) {
            for (int i = 0; i < part->count; i++) issue(part, &calls[k], i);
            if (ref_below(&own, 3) == 0) nanosleep(&(struct timespec){.tv_nsec = (long)ref_below(&own, 3000000)}, NULL);
        }
        part_synchronize(part);
        for (int k = 0; k < CALLS; k++) {
            call_check(part, &calls[k]);
            call_free(part, &calls[k]);
        }
    }
}

const struct scenario oneway_scenarios[] = {{"oneway_ahead", ahead, false}, {"oneway_in_turn", in_turn, false}, {0}};
