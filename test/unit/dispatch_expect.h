/* dispatch_expect.h - what the tests of selection and of routes that are said share: which route a size takes, and why. */
#ifndef BEELINE_DISPATCH_EXPECT_H
#define BEELINE_DISPATCH_EXPECT_H

#include "dispatch_test.h"

static inline const char *name_of(const struct bl_route *route) {
    return route->algorithm == BL_ROUTE_NCCL ? "nccl" : bl_kernel_name(route->kernel);
}

static inline void expect(const struct bl_table *table, enum bl_collective collective, uint64_t bytes, const char *name,
                          enum bl_reason reason, int line) {
    struct bl_route route = select_for(table, collective, bytes);
    CHECK(!strcmp(name_of(&route), name), "line %d: %llu bytes: got %s, want %s (%s)", line, (unsigned long long)bytes,
          name_of(&route), name, route.reason);
    CHECK(!strcmp(route.reason, bl_reason_text(reason)), "line %d: %llu bytes: reason '%s', want '%s'", line,
          (unsigned long long)bytes, route.reason, bl_reason_text(reason));
    if (route.algorithm == BL_ROUTE_NCCL) return;
    const struct bl_algorithm *algorithm = &bl_algorithms[route.algorithm];
    CHECK(route.kernel == algorithm->kernel[route.kernel != algorithm->kernel[0]], "line %d", line);
    CHECK(route.blocks >= 1 && route.blocks <= 132 && route.threads >= 32 && route.threads <= 512,
          "line %d: grid %ux%u", line, route.blocks, route.threads);
}
#define EXPECT(table, bytes, name, reason)        expect(table, BL_ALLREDUCE, bytes, name, BL_REASON_##reason, __LINE__)
#define EXPECT_GATHER(table, bytes, name, reason) expect(table, BL_ALLGATHER, bytes, name, BL_REASON_##reason, __LINE__)
#define EXPECT_SCATTER(table, bytes, name, reason)                                                                     \
    expect(table, BL_REDUCESCATTER, bytes, name, BL_REASON_##reason, __LINE__)

/* By one of Beeline's algorithms, whichever the built-in files name at present. */
static inline bool serves(const struct bl_table *table, enum bl_collective collective, uint64_t bytes) {
    const struct bl_route route = select_for(table, collective, bytes);
    return route.algorithm != BL_ROUTE_NCCL && route.why == BL_REASON_TUNED;
}

#endif
