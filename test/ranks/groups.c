/* groups.c - ncclGroupStart and End: several calls, several communicators, mixed routes, nesting, errors, simulation.
 */
#include "scenarios.h"

#include <string.h>

enum { CALLS = 8 };

static const size_t counts[CALLS] = {1, 17, 60, 255, 1024, 3000, 0, 121};

static void prepare_all(struct part *part, struct call *calls, int n) {
    for (int k = 0; k < n; k++) {
        scenario_call(part, &calls[k], k, counts[k % CALLS], 0);
        call_prepare(part, &calls[k]);
    }
}

static void check_all(struct part *part, struct call *calls, int n) {
    part_synchronize(part);
    for (int k = 0; k < n; k++) call_check(part, &calls[k]);
}

static void free_all(struct part *part, struct call *calls, int n) {
    for (int k = 0; k < n; k++) call_free(part, &calls[k]);
}

/* Call k of rank i, on the communicator and the stream given. */
static void add(struct part *part, struct call *call, int i, ncclComm_t comm, int stream) {
    NCCL_OK(call_issue_rank(part, call, i, comm, part->rank[i].stream[stream]));
}

/* Calls of one rank after another, and rank after rank of one call: either order is allowed. */
static void many(struct part *part, const struct options *o) {
    struct call calls[CALLS] = {0};
    for (int order = 0; order < 2; order++) {
        prepare_all(part, calls, CALLS);
        NCCL_OK(ncclGroupStart());
        if (order)
            for (int i = 0; i < part->count; i++)
                for (int k = 0; k < CALLS; k++) add(part, &calls[k], i, part->rank[i].comm, 0);
        else
            for (int k = 0; k < CALLS; k++)
                for (int i = 0; i < part->count; i++) add(part, &calls[k], i, part->rank[i].comm, 0);
        NCCL_OK(ncclGroupEnd());
        check_all(part, calls, CALLS);
    }
    free_all(part, calls, CALLS);
}

static void two_communicators(struct part *part, const struct options *o) {
    ncclComm_t other[BOX_RANKS];
    part_make_communicators(part, 1, other);
    struct call calls[CALLS] = {0};
    prepare_all(part, calls, CALLS);
    for (int round = 0; round < 3; round++) {
        NCCL_OK(ncclGroupStart());
        for (int k = 0; k < CALLS; k++)
            for (int i = 0; i < part->count; i++) add(part, &calls[k], i, k % 2 ? other[i] : part->rank[i].comm, 0);
        NCCL_OK(ncclGroupEnd());
        check_all(part, calls, CALLS);
        for (int k = 0; k < CALLS; k++) call_refill(part, &calls[k]);
    }
    free_all(part, calls, CALLS);
    part_destroy_communicators(part, other);
}

static void nested(struct part *part, const struct options *o) {
    struct call calls[CALLS] = {0};
    prepare_all(part, calls, CALLS);
    NCCL_OK(ncclGroupStart());
    for (int k = 0; k < CALLS; k++) {
        NCCL_OK(ncclGroupStart());
        NCCL_OK(ncclGroupStart());
        for (int i = 0; i < part->count; i++) add(part, &calls[k], i, part->rank[i].comm, 0);
        NCCL_OK(ncclGroupEnd());
        NCCL_OK(ncclGroupEnd());
    }
    part_synchronize(part);
    for (int k = 0; k < CALLS; k++) call_check_untouched(part, &calls[k]); /* nothing runs before the outermost end */
    NCCL_OK(ncclGroupEnd());
    check_all(part, calls, CALLS);
    free_all(part, calls, CALLS);
}

/* Broadcasts go to NCCL, all-reduces to Beeline, in one group. */
static void mixed_routes(struct part *part, const struct options *o) {
    struct call calls[CALLS] = {0};
    struct chain chain;
    ncclComm_t comms[BOX_RANKS];
    CUstream stream[BOX_RANKS];
    part_comms(part, comms);
    part_streams(part, 0, stream);
    for (int round = 0; round < 2; round++) {
        prepare_all(part, calls, CALLS);
        chain_open(part, &chain, 500);
        NCCL_OK(ncclGroupStart());
        for (int k = 0; k < CALLS; k++) {
            if (k == 3 * round + 2) chain_broadcast(part, &chain, comms, stream, part->box->nranks - 1);
            for (int i = 0; i < part->count; i++) add(part, &calls[k], i, comms[i], 0);
        }
        NCCL_OK(ncclGroupEnd());
        check_all(part, calls, CALLS);
        chain_check(part, &chain);
        chain_close(part, &chain);
    }
    free_all(part, calls, CALLS);
}

/* Calls of one group on several streams. */
static void several_streams(struct part *part, const struct options *o) {
    struct call calls[CALLS] = {0};
    prepare_all(part, calls, CALLS);
    NCCL_OK(ncclGroupStart());
    for (int k = 0; k < CALLS; k++)
        for (int i = 0; i < part->count; i++) add(part, &calls[k], i, part->rank[i].comm, k % BOX_STREAMS);
    NCCL_OK(ncclGroupEnd());
    check_all(part, calls, CALLS);
    free_all(part, calls, CALLS);
    scenario_works(part, 50);
}

/* An error in a group: the call and the end say so, nothing ran, and the next group is well. */
static void bad_call(struct part *part, const struct options *o) {
    struct call calls[4] = {0};
    prepare_all(part, calls, 4);
    NCCL_OK(ncclGroupStart());
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < part->count; i++) add(part, &calls[k], i, part->rank[i].comm, 0);
    struct call bad = calls[3];
    bad.datatype = 1000;
    part_enter(part, 0);
    ncclResult_t result = ncclAllReduce((void *)bad.send[0], (void *)bad.recv[0], 5, (ncclDataType_t)1000, ncclSum,
                                        part->rank[0].comm, part->rank[0].stream[0]);
    CHECK(result == ncclInvalidArgument, "an unknown datatype gave %s", ncclGetErrorString(result));
    for (int i = 0; i < part->count; i++)
        call_issue_rank(part, &calls[3], i, part->rank[i].comm, part->rank[i].stream[0]);
    result = ncclGroupEnd();
    CHECK(result == ncclInvalidArgument, "the end of the group gave %s", ncclGetErrorString(result));
    part_synchronize(part);
    for (int k = 0; k < 4; k++) call_check_untouched(part, &calls[k]);
    part_barrier(part);
    for (int k = 0; k < 4; k++) call_issue(part, &calls[k]);
    check_all(part, calls, 4);
    free_all(part, calls, 4);
}

static void simulate(struct part *part, const struct options *o) {
    struct call calls[4] = {0};
    prepare_all(part, calls, 4);
    NCCL_OK(ncclGroupStart());
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < part->count; i++) add(part, &calls[k], i, part->rank[i].comm, 0);
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    NCCL_OK(ncclGroupSimulateEnd(&info));
    CHECK(info.estimatedTime > 0, "an estimate of %g us", (double)info.estimatedTime);
    part_synchronize(part);
    for (int k = 0; k < 4; k++) call_check_untouched(part, &calls[k]);
    part_barrier(part);
    for (int k = 0; k < 4; k++) call_issue(part, &calls[k]);
    check_all(part, calls, 4);
    free_all(part, calls, 4);
}

static void empty(struct part *part, const struct options *o) {
    for (int depth = 1; depth < 4; depth++) {
        for (int d = 0; d < depth; d++) NCCL_OK(ncclGroupStart());
        for (int d = 0; d < depth; d++) NCCL_OK(ncclGroupEnd());
        scenario_works(part, depth);
    }
    CHECK(ncclGroupEnd() != ncclSuccess, "an end without a start");
    scenario_works(part, 9);
}

const struct scenario group_scenarios[] = {
    {.name = "group_many", .run = many},
    {.name = "group_two_communicators", .run = two_communicators},
    {.name = "group_nested", .run = nested},
    {.name = "group_mixed_routes", .run = mixed_routes},
    {.name = "group_several_streams", .run = several_streams},
    {.name = "group_bad_call", .run = bad_call},
    {.name = "group_simulate", .run = simulate},
    {.name = "group_empty", .run = empty},
    {0},
};
