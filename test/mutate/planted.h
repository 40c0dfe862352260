/* planted.h - before each kernel of the build that has all faults of kernel_faults.txt: PLANTED says whether a fault is the one
 * that BEELINE_TEST_FAULT names. */
#ifndef BEELINE_TEST_PLANTED_H
#define BEELINE_TEST_PLANTED_H

#include <stdint.h>
#include <stdlib.h>
#include <type_traits>

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
