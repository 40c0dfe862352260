/* rounding.h - how far sums of random values are from the exact ones, for kernel_times.c. */
#ifndef BEELINE_TEST_ROUNDING_H
#define BEELINE_TEST_ROUNDING_H

#include "rig.h"

/* Over all elements and ranks, in units of the last place of the exact result (those whose exact result is 0 count in
 * `right` alone); right: the share that is correctly rounded. */
struct errors {
    double mean, most, right;
};

struct rounding {
    struct errors kernel, chain; /* chain: each addition is rounded to the type, in rank order */
};

/* Launches the kernel on values of a normal distribution in the place of the call's, which is an all-reduce or a
 * reduce-scatter, out of place, of bfloat16 or half: its sum or average.  False if a wait ran out. */
bool rounding_measure(struct rig *rig, struct call *call, const struct shape *shape, struct rounding *result);

#endif
