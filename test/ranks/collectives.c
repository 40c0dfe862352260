/* collectives.c - every combination of collective, datatype, operation and count, eager and replayed, checked to the byte.
 *
 * Placement (in place or not, offsets of either buffer, stream) goes round from call to call, so that all of them meet
 * all counts.  Calls are issued in batches without a look in between: a batch runs eagerly, then captured and replayed
 * between eager runs, and always gives the same bits.  Options: test/harness/options.h.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"
#include "options.h"
#include "reference.h"

enum { MOST_BATCH = 64 };

static void check_route(struct part *part, const struct call *call, const char *wanted) {
    if (!wanted) return;
    const char *route = box_route(part->rank[0].comm, call->collective, call->count, call->datatype, call->redop);
    CHECK(route, "Beeline is not here");
    CHECK(strcmp(route, wanted) == 0 || call->count == 0, "%s of %s %s count %zu goes to %s, wanted %s",
          collective_name(call->collective), ref_datatype_name(call->datatype), ref_redop_name(call->redop),
          call->count, route, wanted);
}

static void issue_all(struct part *part, struct call *calls, int n) {
    for (int i = 0; i < n; i++) call_issue(part, &calls[i]);
}

static void refill_all(struct part *part, struct call *calls, int n) {
    for (int i = 0; i < n; i++) call_refill(part, &calls[i]);
}

static void check_all(struct part *part, struct call *calls, int n) {
    part_synchronize(part);
    for (int i = 0; i < n; i++) call_check(part, &calls[i]);
}

static void run_batch(struct part *part, const struct options *o, struct call *calls, int n) {
    for (int i = 0; i < n; i++) {
        check_route(part, &calls[i], o->route);
        call_prepare(part, &calls[i]);
    }
    issue_all(part, calls, n);
    check_all(part, calls, n);
    if (!o->replays) return;

    for (int i = 0; i < n; i++) calls[i].stream = 0;
    struct graphs graphs;
    graphs_begin(part, 0);
    issue_all(part, calls, n);
    graphs_end(part, 0, &graphs);
    for (int r = 0; r < o->replays; r++) {
        refill_all(part, calls, n);
        graphs_launch(part, &graphs, 0);
        check_all(part, calls, n);
        if (r % 2) continue;
        refill_all(part, calls, n);
        issue_all(part, calls, n);
        check_all(part, calls, n);
    }
    graphs_free(part, &graphs);
}

/* The numbers that are in a set; returns how many. */
static int members(const bool *set, int size, int *member) {
    int n = 0;
    for (int i = 0; i < size; i++)
        if (set[i]) member[n++] = i;
    return n;
}

/* What the options ask for. */
struct choice {
    int collective[BL_COLLECTIVES], datatype[REF_DATATYPES], redop[REF_REDOPS];
    int collectives, datatypes, redops;
};

static struct choice choice_of(const struct options *o) {
    struct choice c;
    c.collectives = members(o->collectives, BL_COLLECTIVES, c.collective);
    c.datatypes = members(o->datatypes, REF_DATATYPES, c.datatype);
    c.redops = members(o->redops, REF_REDOPS, c.redop);
    return c;
}

static long combinations(const struct options *o) {
    const struct choice c = choice_of(o);
    return (long)c.collectives * c.datatypes * c.redops * o->counts;
}

/* Combination `k` of all. */
static void describe(const struct options *o, struct call *call, long k) {
    const struct choice c = choice_of(o);
    uint64_t draw = ref_mix(o->box.seed, (uint64_t)k);
    call->seed = draw;
    call->redop = c.redop[k % c.redops], k /= c.redops;
    call->count = o->count[k % o->counts], k /= o->counts;
    call->datatype = c.datatype[k % c.datatypes], k /= c.datatypes;
    call->collective = (enum bl_collective)c.collective[k % c.collectives];
    unsigned unit = o->offsets_in_elements ? (unsigned)ref_datatype_size(call->datatype) : 1;
    call->send_offset = o->offset[(draw >> 8) % (unsigned)o->offsets] * unit;
    call->recv_offset = o->offset[(draw >> 24) % (unsigned)o->offsets] * unit;
    call->in_place = draw % 3 == 0;
    call->stream = draw >> 40 & 1 ? (int)((draw >> 41) % BOX_STREAMS) : 0;
}

/* Calls of the real NCCL's functions that making communicators took. */
static long at_first[BL_COLLECTIVES];
static pthread_mutex_t at_first_lock = PTHREAD_MUTEX_INITIALIZER;

/* Once all parts have made theirs, and before any goes on. */
static void note_first(struct part *part) {
    part_barrier(part);
    pthread_mutex_lock(&at_first_lock);
    for (int c = 0; c < BL_COLLECTIVES; c++) at_first[c] = box_nccl_calls(collective_function(c));
    pthread_mutex_unlock(&at_first_lock);
    part_barrier(part);
}

static void body(struct part *part) {
    const struct options *o = part->box->argument;
    note_first(part);
    struct call *calls = calloc(MOST_BATCH, sizeof *calls);
    CHECK(calls);
    size_t most = 0;
    for (int i = 0; i < o->counts; i++)
        if (o->count[i] > most) most = o->count[i];
    size_t widest = 1;
    for (int i = 0; i < REF_DATATYPES; i++)
        if (o->datatypes[i] && ref_datatype_size(i) > widest) widest = ref_datatype_size(i);
    bool blocks = false;
    for (int c = 0; c < BL_COLLECTIVES; c++) blocks = blocks || (o->collectives[c] && collective_has_blocks(c));
    for (int i = 0; i < o->batch; i++)
        call_allocate(part, &calls[i], most * widest * (blocks ? (size_t)part->box->nranks : 1));

    long all = combinations(o), n = o->calls && o->calls < all ? o->calls : all;
    for (long done = 0; done < n;) {
        int batch = 0;
        for (; batch < o->batch && done < n; batch++, done++)
            describe(o, &calls[batch],
                     n == all ? done : (long)(ref_mix(o->box.seed ^ 0xa11, (uint64_t)done) % (uint64_t)all));
        run_batch(part, o, calls, batch);
    }
    for (int i = 0; i < o->batch; i++) call_free(part, &calls[i]);
    free(calls);
}

int main(int argc, char **argv) {
    static struct options options;
    options_read(&options, argc, argv);
    box_run(&options.box, body);
    bool all_ours = options.route && strcmp(options.route, "nccl") != 0;
    for (int i = 0; i < options.counts; i++) all_ours = all_ours && options.count[i] > 0;
    for (int c = 0; all_ours && c < BL_COLLECTIVES; c++) {
        const long calls = options.collectives[c] ? box_nccl_calls(collective_function(c)) - at_first[c] : 0;
        if (calls > 0) FAIL("%s: %ld calls reached the real NCCL", collective_function(c), calls);
    }
    printf("%ld calls\n",
           options.calls && options.calls < combinations(&options) ? options.calls : combinations(&options));
    return 0;
}
