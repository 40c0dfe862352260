/* mutation.cuh - faults that a build of the emulated box may plant, to show that its tests find them.
 *
 * BL_MUTATION(k) is constant false unless the build says -DBL_MUTATE=k; `make check` builds all in one, chooses each
 * at run time and expects failures. */
#ifndef BEELINE_MUTATION_CUH
#define BEELINE_MUTATION_CUH

#ifdef BL_MUTATE
#define BL_MUTATION(k) ((k) == BL_MUTATE)
#else
#define BL_MUTATION(k) false
#endif

#endif
