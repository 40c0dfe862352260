/* scenarios.h - what one may do with communicators besides one call after another; each function is one scenario.
 *
 * A scenario runs on every part (box.h) and returns, or fails.  Chains: int32 vectors on which collective follows
 * collective, each reading what the last one wrote, with no event of the test's own between them: they show order.
 */
#ifndef BEELINE_TEST_SCENARIOS_H
#define BEELINE_TEST_SCENARIOS_H

#include "box.h"
#include "graph.h"
#include "options.h"
#include "reference.h"

struct scenario {
    const char *name;
    void (*run)(struct part *part, const struct options *options);
    bool no_communicators; /* it makes its own */
};

extern const struct scenario group_scenarios[], stream_scenarios[], graph_scenarios[], comm_scenarios[],
    argument_scenarios[], torture_scenarios[], fused_scenarios[], together_scenarios[], block_scenarios[],
    turn_scenarios[], oneway_scenarios[], later_scenarios[], growth_scenarios[], bits_scenarios[], message_scenarios[];

/* Describes the k-th call of a scenario: collective, datatype, operation, placement and seed follow from the run's seed and k.
 */
void scenario_call(const struct part *part, struct call *call, int k, size_t count, int stream);
/* Prepares, issues on the first stream, waits, checks, frees: the communicator works. */
void scenario_works(struct part *part, int k);

/* Element i of rank r is rank_factor * r + index_factor * (i % 7) + constant, modulo 2^32. */
struct chain {
    size_t count;
    uint32_t rank_factor, index_factor, constant;
    CUdeviceptr from[BOX_RANKS], to[BOX_RANKS];
};

void chain_open(struct part *part, struct chain *chain, size_t count);
/* to = all-reduce of from (sum), or what `root` has in from; then the two swap.  Issued in a group if the part has
 * several ranks. */
void chain_allreduce(struct part *part, struct chain *chain, const ncclComm_t *comms, CUstream stream[BOX_RANKS]);
/* Notes an all-reduce that the caller has issued. */
void chain_reduced(const struct part *part, struct chain *chain);
void chain_broadcast(struct part *part, struct chain *chain, const ncclComm_t *comms, CUstream stream[BOX_RANKS],
                     int root);
/* The caller has synchronized. */
void chain_check(struct part *part, const struct chain *chain);
void chain_close(struct part *part, struct chain *chain);
void chain_finish(struct part *part, struct chain *chain); /* synchronizes, checks and closes it */

/* The part's streams number s, its communicators. */
void part_streams(const struct part *part, int s, CUstream stream[BOX_RANKS]);
void part_comms(const struct part *part, ncclComm_t comms[BOX_RANKS]);

/* Communicators with an ncclConfig_t of NCCL 2.32 that says these two, or does not (NCCL_CONFIG_UNDEF_INT). */
void part_make_configured(struct part *part, int which, int graph_usage, int launch_order, ncclComm_t *comms);

#endif
