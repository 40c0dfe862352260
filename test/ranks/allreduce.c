/* allreduce.c - every combination of datatype, operation and count, eager and replayed, checked to the byte.
 *
 * Placement (in place or not, offsets of either buffer, stream) goes round from call to call, so that all of them meet
 * all counts.  Calls are issued in batches without a look in between: a batch runs eagerly, then captured and replayed
 * between eager runs, and always gives the same bits.  Options: test/harness/options.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"
#include "options.h"
#include "reference.h"

enum { MOST_BATCH = 64 };

static void check_route(struct part *part, const struct call *call, const char *wanted) {
    if (!wanted) return;
    const char *route = box_route(part->rank[0].comm, call->count, call->datatype, call->redop);
    CHECK(route, "Beeline is not here");
    CHECK(strcmp(route, wanted) == 0 || call->count == 0, "%s %s count %zu goes to %s, wanted %s",
          ref_datatype_name(call->datatype), ref_redop_name(call->redop), call->count, route, wanted);
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

/* Combination `k` of all that the options ask for. */
static void describe(const struct options *o, struct call *call, long k) {
    int datatype[REF_DATATYPES], redop[REF_REDOPS], datatypes = 0, redops = 0;
    for (int i = 0; i < REF_DATATYPES; i++)
        if (o->datatypes[i]) datatype[datatypes++] = i;
    for (int i = 0; i < REF_REDOPS; i++)
        if (o->redops[i]) redop[redops++] = i;
    uint64_t draw = ref_mix(o->box.seed, (uint64_t)k);
    call->seed = draw;
    call->redop = redop[k % redops];
    call->count = o->count[k / redops % o->counts];
    call->datatype = datatype[k / redops / o->counts % datatypes];
    unsigned unit = o->offsets_in_elements ? (unsigned)ref_datatype_size(call->datatype) : 1;
    call->send_offset = o->offset[(draw >> 8) % (unsigned)o->offsets] * unit;
    call->recv_offset = o->offset[(draw >> 24) % (unsigned)o->offsets] * unit;
    call->in_place = draw % 3 == 0;
    call->stream = draw >> 40 & 1 ? (int)((draw >> 41) % BOX_STREAMS) : 0;
}

static long combinations(const struct options *o) {
    long datatypes = 0, redops = 0;
    for (int i = 0; i < REF_DATATYPES; i++) datatypes += o->datatypes[i];
    for (int i = 0; i < REF_REDOPS; i++) redops += o->redops[i];
    return datatypes * redops * o->counts;
}

static void body(struct part *part) {
    const struct options *o = part->box->argument;
    struct call *calls = calloc(MOST_BATCH, sizeof *calls);
    CHECK(calls);
    size_t most = 0;
    for (int i = 0; i < o->counts; i++)
        if (o->count[i] > most) most = o->count[i];
    size_t widest = 1;
    for (int i = 0; i < REF_DATATYPES; i++)
        if (o->datatypes[i] && ref_datatype_size(i) > widest) widest = ref_datatype_size(i);
    for (int i = 0; i < o->batch; i++) call_allocate(part, &calls[i], most * widest);

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
    if (all_ours && box_nccl_calls("ncclAllReduce") > 0)
        FAIL("%ld calls reached the real NCCL", box_nccl_calls("ncclAllReduce"));
    printf("%ld calls\n",
           options.calls && options.calls < combinations(&options) ? options.calls : combinations(&options));
    return 0;
}
