/* set.h - calls that a scenario has in one group. */
#ifndef BEELINE_TEST_SET_H
#define BEELINE_TEST_SET_H

#include "scenarios.h"

enum { SET_MOST = 160, SET_HEAVY = 5 };

struct set {
    int count;
    struct call call[SET_MOST];
};

/* One call, by all ranks of the part, on their streams of this number. */
void set_issue(struct part *part, struct call *call, const ncclComm_t *comms, int stream);

/* Waits, checks all results, and makes them ready for another round. */
void set_check(struct part *part, struct set *set);
void set_free(struct part *part, struct set *set);

/* All as a group on the first stream, captured; the kernels that the graph of the part's first rank launches. */
void set_capture(struct part *part, struct set *set, const ncclComm_t *comms, struct graphs *graphs);
int set_kernels(const struct graphs *graphs);

/* The root is drawn from the call's seed: so it is the next seed that draws this one. */
void set_prepare_rooted(struct part *part, struct call *call, int root);

/* Adds SET_HEAVY broadcasts of one root that by thresholds of 6 KB, and between more than two ranks, are NCCL's together. */
void set_add_heavy(struct part *part, struct set *set);

#endif
