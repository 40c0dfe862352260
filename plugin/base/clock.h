/* clock.h - the one clock, and naps of less than a second. */
#ifndef BEELINE_CLOCK_H
#define BEELINE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Of CLOCK_MONOTONIC. */
static inline uint64_t bl_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void bl_nap(long ns) {
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

#endif
