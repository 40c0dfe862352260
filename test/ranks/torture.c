/* torture.c - a long random sequence of everything at once, the same on all ranks, drawn from the run's seed.
 *
 * Options: -k N steps (default 60); -c bounds the counts.  What failed is repeated with the seed alone.
 */
#include "scenarios.h"

enum { SLOTS = 6, COMMUNICATORS = 2 };

struct torture {
    struct part *part;
    uint64_t state; /* of the draw; equal on all ranks */
    size_t largest;
    ncclComm_t comms[COMMUNICATORS][BOX_RANKS];
    struct call call[SLOTS];
};

/* `like`: of the same collective, datatype and operation, so that a group of them may share launches; or NULL. */
static void draw_call(struct torture *t, struct call *call, const struct call *like) {
    uint64_t *s = &t->state;
    call->seed = ref_next(s);
    call->collective = like ? like->collective : (enum bl_collective)ref_below(s, BL_COLLECTIVES);
    call->datatype = like ? like->datatype : (int)ref_below(s, REF_DATATYPES);
    call->redop = like ? like->redop : (int)ref_below(s, REF_REDOPS);
    size_t size = ref_datatype_size(call->datatype), most = t->largest / size;
    if (collective_has_blocks(call->collective)) most /= (size_t)t->part->box->nranks;
    size_t scale = (size_t)1 << ref_below(s, 18);
    call->count = ref_below(s, (scale < most ? scale : most) + 1);
    call->in_place = ref_below(s, 3) == 0;
    call->send_offset = (unsigned)(ref_below(s, 3) ? 0 : ref_below(s, 8) * size);
    call->recv_offset = (unsigned)(ref_below(s, 3) ? 0 : ref_below(s, 8) * size);
    call->stream = (int)ref_below(s, BOX_STREAMS);
}

static void issue(struct torture *t, struct call *call, int which, int stream) {
    for (int i = 0; i < t->part->count; i++)
        NCCL_OK(call_issue_rank(t->part, call, i, t->comms[which][i], t->part->rank[i].stream[stream]));
}

static void check(struct torture *t, int calls) {
    part_synchronize(t->part);
    for (int k = 0; k < calls; k++) {
        call_check(t->part, &t->call[k]);
        call_refill(t->part, &t->call[k]);
    }
}

/* Some calls, each in a group of its own, all in one group, or in groups of two. */
static void run_eager(struct torture *t, int calls) {
    int grouping = (int)ref_below(&t->state, 3);
    if (grouping == 1) NCCL_OK(ncclGroupStart());
    for (int k = 0; k < calls; k++) {
        int which = (int)ref_below(&t->state, COMMUNICATORS);
        NCCL_OK(ncclGroupStart());
        issue(t, &t->call[k], which, t->call[k].stream);
        NCCL_OK(ncclGroupEnd());
    }
    if (grouping == 1) NCCL_OK(ncclGroupEnd());
}

static void run_graph(struct torture *t, int calls) {
    struct graphs graphs;
    int replays = 1 + (int)ref_below(&t->state, 4);
    graphs_begin(t->part, 0);
    for (int k = 0; k < calls; k++) {
        int which = (int)ref_below(&t->state, COMMUNICATORS);
        NCCL_OK(ncclGroupStart());
        issue(t, &t->call[k], which, 0);
        NCCL_OK(ncclGroupEnd());
    }
    graphs_end(t->part, 0, &graphs);
    for (int r = 0; r < replays; r++) {
        graphs_launch(t->part, &graphs, (int)ref_below(&t->state, BOX_STREAMS));
        check(t, calls);
        if (ref_below(&t->state, 2)) {
            run_eager(t, calls);
            check(t, calls);
        }
    }
    graphs_free(t->part, &graphs);
}

static void run_broadcast(struct torture *t) {
    struct chain chain;
    CUstream stream[BOX_RANKS];
    chain_open(t->part, &chain, 1 + ref_below(&t->state, 300));
    int which = (int)ref_below(&t->state, COMMUNICATORS);
    for (int k = 0; k < 4; k++) {
        part_streams(t->part, (int)ref_below(&t->state, BOX_STREAMS), stream);
        if (k == 2)
            chain_broadcast(t->part, &chain, t->comms[which], stream,
                            (int)ref_below(&t->state, (uint64_t)t->part->box->nranks));
        else
            chain_allreduce(t->part, &chain, t->comms[which], stream);
    }
    part_synchronize(t->part);
    chain_check(t->part, &chain);
    chain_close(t->part, &chain);
}

static void torture(struct part *part, const struct options *o) {
    struct torture t = {.part = part, .state = part->box->seed, .largest = 1 << 16};
    part_comms(part, t.comms[0]);
    part_make_communicators(part, 1, t.comms[1]);
    for (int k = 0; k < SLOTS; k++) call_allocate(part, &t.call[k], t.largest);
    long steps = o->calls ? o->calls : 40;
    for (long step = 0; step < steps; step++) {
        int calls = 1 + (int)ref_below(&t.state, SLOTS);
        bool alike = ref_below(&t.state, 2);
        for (int k = 0; k < calls; k++) {
            draw_call(&t, &t.call[k], alike && k ? &t.call[0] : NULL);
            call_prepare(part, &t.call[k]);
        }
        switch (ref_below(&t.state, 5)) {
        case 0: run_graph(&t, calls); break;
        case 1: run_broadcast(&t); break;
        default: run_eager(&t, calls); check(&t, calls);
        }
    }
    for (int k = 0; k < SLOTS; k++) call_free(part, &t.call[k]);
    part_destroy_communicators(part, t.comms[1]);
}

const struct scenario torture_scenarios[] = {
    {.name = "torture", .run = torture},
    {0},
};
