/* planted.h - before each kernel of the build that has all faults of kernel_faults.txt: PLANTED says whether a fault is the one
 * that BEELINE_TEST_FAULT names.  The kernels are those for up to 4 ranks, as many as test/mutate/kernels runs: compiling
 * takes long. */
#ifndef BEELINE_TEST_PLANTED_H
#define BEELINE_TEST_PLANTED_H

#include <stdint.h>
#include <stdlib.h>
#include <type_traits>

#include "core/instantiate.cuh"

#undef BL_FOR_RANKS
#undef BL_FOR_SOME_RANKS
#undef BL_FOR_RANKS_BATCH
#undef BL_FOR_RANKS_FEW
#define BL_FOR_RANKS(name, function, symbol, type)                                                                     \
    BL_KERNEL(name##_##symbol##_2, function<type, 2>)                                                                  \
    BL_KERNEL(name##_##symbol##_4, function<type, 4>)
#define BL_FOR_SOME_RANKS(name, function, symbol, type) BL_KERNEL(name##_##symbol##_4, function<type, 4>)
#define BL_FOR_RANKS_BATCH(name, function, symbol, type)                                                               \
    BL_KERNEL_OF(struct bl_batch_args, name##_##symbol##_2, function<type, 2>)                                         \
    BL_KERNEL_OF(struct bl_batch_args, name##_##symbol##_4, function<type, 4>)
#define BL_FOR_RANKS_FEW(name, function, symbol, type)                                                                 \
    BL_KERNEL_OF(struct bl_batch_few_args, name##_##symbol##_2, function<type, 2>)                                     \
    BL_KERNEL_OF(struct bl_batch_few_args, name##_##symbol##_4, function<type, 4>)

/* A number for the name: kernels ask too often to compare words. */
static constexpr uint64_t planted_number(const char *name) {
    uint64_t number = 1;
    for (; *name; name++) number = 31 * number + (unsigned char)*name;
    return number;
}

static inline const char *planted_name() {
    const char *name = getenv("BEELINE_TEST_FAULT");
    return name ? name : "";
}

static const uint64_t planted_chosen = planted_number(planted_name());

#define PLANTED(name) (planted_chosen == std::integral_constant<uint64_t, planted_number(name)>::value)

#endif
