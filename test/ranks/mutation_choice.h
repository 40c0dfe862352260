/* mutation_choice.h - one build of the kernels with all planted faults; BEELINE_TEST_MUTATION chooses which is on (0:
 * none). Put before the kernels with -include, with -DBL_MUTATE='bl_mutation_chosen()'; see kernels/mutation.cuh. */
#ifndef BEELINE_TEST_MUTATION_CHOICE_H
#define BEELINE_TEST_MUTATION_CHOICE_H

#include <stdlib.h>

static inline int bl_mutation_chosen() {
    static const char *const text = getenv("BEELINE_TEST_MUTATION");
    static const int number = text ? atoi(text) : 0;
    return number;
}

#endif
