/* updates.c - graphs that are captured anew and given to an instance that there is, as inference engines do each step, and graphs that are
 * parts of others, as compilers make them. */
#include "programs.h"

#include <stdio.h>

enum { COMMS = 2, SETS = 2 };
/* Three calls, of a vector each. */
enum { CALLS = 3 };
struct step {
    ncclComm_t comm;
    CUstream stream;
    struct vector *vectors;
};

static void vectors_open(struct vector vectors[CALLS], size_t first, size_t others) {
    for (int v = 0; v < CALLS; v++) vector_open(&vectors[v], v ? others : first);
}
static void vectors_close(struct vector vectors[CALLS]) {
    for (int v = 0; v < CALLS; v++) vector_close(&vectors[v]);
}
static void fill(struct part *part, const struct step *step, uint64_t seed) {
    for (int v = 0; v < CALLS; v++) vector_fill(part, &step->vectors[v], seed + (uint64_t)v);
}

/* One call, and a group of two that may share a launch. */
static CUgraph capture(const struct step *step) {
    CUgraph graph;
    capture_begin(step->stream);
    vector_allreduce(&step->vectors[0], step->comm, step->stream);
    NCCL_OK(ncclGroupStart());
    vector_allreduce(&step->vectors[1], step->comm, step->stream);
    vector_broadcast(&step->vectors[2], 0, step->comm, step->stream);
    NCCL_OK(ncclGroupEnd());
    CU_OK(cuStreamEndCapture(step->stream, &graph));
    return graph;
}

static void check(struct part *part, const struct step *step) {
    vector_check_all(part, &step->vectors[0]);
    vector_check_all(part, &step->vectors[1]);
    vector_check(part, &step->vectors[2], 0, 0);
}

/* The instance becomes the graph by an update or, if that is refused, is made anew; the graph is gone.  Returns whether it was refused. */
static bool update(CUgraphExec *exec, CUgraph graph) {
    CUgraphExecUpdateResultInfo info;
    const bool refused = !*exec || cu.cuGraphExecUpdate(*exec, graph, &info) != CUDA_SUCCESS;
    if (refused && *exec) CU_OK(cuGraphExecDestroy(*exec));
    if (refused) CU_OK(cuGraphInstantiateWithFlags(exec, graph, 0));
    CU_OK(cuGraphDestroy(graph)); /* whatever it held is the instance's now */
    return refused;
}

/* --- updated_graphs: of each size, then from size to size; every second update comes while the launch before it is under way.  A second
 * capture of the same calls is like the first, so that no update of it is refused; one of fewer calls is --- */
struct updates {
    struct step step[SETS];
    CUgraphExec exec;
    struct vector eager;
    int tried, refused;
};

static void round_of(struct part *part, struct updates *u, uint64_t seed, bool known) {
    for (int i = 0; i < SETS; i++) fill(part, &u->step[i], seed + (uint64_t)(CALLS * i));
    vector_fill(part, &u->eager, seed);
    part_barrier(part);
    for (int i = 0; i < SETS; i++) {
        const struct step *step = &u->step[i];
        const bool first = !u->exec, refused = update(&u->exec, capture(step));
        u->tried += !first;
        u->refused += refused && !first;
        CHECK(!refused || !known, "rank %d: an instance cannot be updated by a second capture of the same calls",
              self(part)->rank);
        if (i == 0) delay(step->stream, 5000);
        CU_OK(cuGraphLaunch(u->exec, step->stream));
        if (i == 0) vector_allreduce(&u->eager, u->step[1].comm, step->stream);
    }
    stream_sync(u->step[0].stream);
    vector_check_all(part, &u->eager);
    for (int i = 0; i < SETS; i++) check(part, &u->step[i]);
}

static void updated_graphs(struct part *part, const struct settings *s) {
    enum { SIZES = 3 };
    const size_t sizes[SIZES] = {s->small, s->middle, s->large};
    const CUstream stream = stream_open();
    ncclComm_t comm[COMMS];
    struct vector set[SIZES][SETS][CALLS];
    struct updates u = {0};
    vector_open(&u.eager, s->small);
    for (int c = 0; c < COMMS; c++) comm[c] = comm_open(part);
    for (int z = 0; z < SIZES; z++)
        for (int i = 0; i < SETS; i++) vectors_open(set[z][i], sizes[z], s->small);
    for (int c = 0; c < COMMS; c++)
        for (int z = 0; z < SIZES; z++) vector_warm_up(part, &set[z][0][0], comm[c], stream);
    for (int z = 0; z < 2 * SIZES; z++) {
        const int size = z % SIZES;
        for (int i = 0; i < SETS; i++) u.step[i] = (struct step){comm[i % COMMS], stream, set[size][i]};
        for (long k = 0; k < (z < SIZES ? 2 + s->repeat : 1); k++) {
            doing(part, "size %zu, round %ld", sizes[size], k);
            round_of(part, &u, s->seed + (uint64_t)(100 * k + z), k > 0);
        }
        if (z >= SIZES) continue;
        CU_OK(cuGraphExecDestroy(u.exec));
        u.exec = NULL;
    }
    struct vector *const alone = set[0][0];
    doing(part, "one call in place of three");
    vector_fill(part, alone, s->seed);
    part_barrier(part);
    capture_begin(stream);
    vector_allreduce(alone, comm[0], stream);
    CUgraph graph;
    CU_OK(cuStreamEndCapture(stream, &graph));
    CHECK(update(&u.exec, graph), "rank %d: one call is taken for three", self(part)->rank);
    CU_OK(cuGraphLaunch(u.exec, stream));
    stream_sync(stream);
    vector_check_all(part, alone);
    if (self(part)->rank == 0) printf("updated_graphs: %d of %d updates refused\n", u.refused, u.tried);
    CU_OK(cuGraphExecDestroy(u.exec));
    for (int c = 0; c < COMMS; c++) comm_close(part, comm[c]);
    for (int z = 0; z < SIZES; z++)
        for (int i = 0; i < SETS; i++) vectors_close(set[z][i]);
    vector_close(&u.eager);
    stream_close(stream);
}

/* --- child_graphs: calls of two communicators, each captured alone, one after the other in one graph, whose instance is updated by the same
 * of other buffers, with eager calls in between --- */
static CUgraph family(const struct step *steps, int count) {
    CUgraph parent;
    CUgraphNode last;
    CU_OK(cuGraphCreate(&parent, 0));
    for (int i = 0; i < count; i++) {
        const CUgraph child = capture(&steps[i]);
        CUgraphNode node;
        CU_OK(cuGraphAddChildGraphNode(&node, parent, &last, i > 0, child));
        CU_OK(cuGraphDestroy(child));
        last = node;
    }
    return parent;
}

static void child_graphs(struct part *part, const struct settings *s) {
    enum { CHILDREN = 3 };
    const size_t sizes[CHILDREN] = {s->small, s->middle, s->large};
    const CUstream stream = stream_open();
    CUgraphExec exec = NULL;
    ncclComm_t comm[COMMS];
    struct vector set[SETS][CHILDREN][CALLS], eager;
    vector_open(&eager, s->small);
    for (int c = 0; c < COMMS; c++) comm[c] = comm_open(part);
    for (int i = 0; i < SETS; i++)
        for (int k = 0; k < CHILDREN; k++) vectors_open(set[i][k], sizes[k], s->small);
    for (int c = 0; c < COMMS; c++)
        for (int k = 0; k < CHILDREN; k++) vector_warm_up(part, &set[0][k][0], comm[c], stream);
    for (long round = 0; round < 2 + 2 * s->repeat; round++) {
        struct step steps[CHILDREN];
        const uint64_t seed = s->seed + (uint64_t)(10 * round);
        for (int k = 0; k < CHILDREN; k++) {
            steps[k] = (struct step){comm[k % COMMS], stream, set[round % SETS][k]};
            fill(part, &steps[k], seed + (uint64_t)(CALLS * k));
        }
        vector_fill(part, &eager, seed);
        part_barrier(part);
        doing(part, "round %ld", round);
        const bool refused = update(&exec, family(steps, CHILDREN));
        CHECK(!refused || round < 2, "rank %d: an instance cannot be updated by children of the same calls",
              self(part)->rank);
        CU_OK(cuGraphLaunch(exec, stream));
        vector_allreduce(&eager, comm[1], stream);
        stream_sync(stream);
        vector_check_all(part, &eager);
        for (int k = 0; k < CHILDREN; k++) check(part, &steps[k]);
    }
    CU_OK(cuGraphExecDestroy(exec));
    for (int c = 0; c < COMMS; c++) comm_close(part, comm[c]);
    for (int i = 0; i < SETS; i++)
        for (int k = 0; k < CHILDREN; k++) vectors_close(set[i][k]);
    vector_close(&eager);
    stream_close(stream);
}

const struct program update_programs[] = {{"updated_graphs", updated_graphs}, {"child_graphs", child_graphs}, {0}};
