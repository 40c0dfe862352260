/* long.h - launches of messages longer than drawn ones are, for test/ranks/kernels.c. */
#ifndef BEELINE_TEST_LONG_H
#define BEELINE_TEST_LONG_H

#include "trial.h"

/* As long as there is room for, of whole lines, by grids of few threads and of many. */
void longest(struct part *part, const struct options *o);
/* By grids of nearly all multiprocessors. */
void full(struct part *part, const struct options *o);
/* Of more than a cache holds. */
void far(struct part *part, const struct options *o);

#endif
