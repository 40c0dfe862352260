/* selftest.h - the kernels run on known data before a communicator is served, so that peers which claim to reach each
 * other and deliver wrong data are found here.
 *
 * Steps: prepare (allocates; all ranks before any launches), launch (does not wait), check (waits and compares),
 * release. Those that return int return 0, or -1 with what went wrong in `why`.  The communicator's context must be
 * current.
 */
#ifndef BEELINE_SELFTEST_H
#define BEELINE_SELFTEST_H

#include "comm.h"

struct bl_selftest {
    CUdeviceptr buffer;      /* the input, then a result for each launch */
    uint64_t *host;          /* as large as all results */
    uint64_t input, results; /* words */
};

int bl_selftest_prepare(struct bl_selftest *test, const struct bl_comm *comm, CUstream stream, char *why, size_t size);

/* max_blocks, max_threads: what every rank can run, and equal on all. */
int bl_selftest_launch(const struct bl_selftest *test, const struct bl_comm *comm, CUstream stream, unsigned max_blocks,
                       unsigned max_threads, uint64_t timeout_ns, char *why, size_t size);

/* *culprit: whose fault it is, where it is a peer's.  *stuck: kernels are still running although they were told to
 * leave, so nothing that they use may be freed. */
int bl_selftest_check(const struct bl_selftest *test, const struct bl_comm *comm, CUstream stream, uint64_t timeout_ns,
                      int *culprit, bool *stuck, char *why, size_t size);

void bl_selftest_release(struct bl_selftest *test);

#endif
