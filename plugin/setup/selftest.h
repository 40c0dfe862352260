/* selftest.h - the kernels run on known data before a communicator is served, so that peers which claim to reach each
 * other and deliver wrong data are found here.
 *
 * Steps: prepare (allocates; all ranks before any launches), launch (does not wait), check (waits and compares),
 * release. Those that return int return 0, or -1 and bl_why().  The communicator's context must be
 * current.
 */
#ifndef BEELINE_SELFTEST_H
#define BEELINE_SELFTEST_H

#include "comm/comm.h"
#include "cuda/modules.h"

/* What is tested.  Each has routes, which say what kernels are in use, and arguments of a launch without buffers. */
enum bl_selftest_kind { BL_SELFTEST_STAGING, BL_SELFTEST_MULTICAST, BL_SELFTEST_KINDS };

struct bl_selftest {
    enum bl_selftest_kind kind;
    const struct bl_table *table;
    struct bl_kernel_args
        args; /* the communicator's; of multicast, with words of its own in place of epochs and control */
    struct bl_control *control; /* host address of args.control */
    struct bl_memory memory;    /* inputs, one a datatype, then a result for each launch; of multicast, words behind */
    uint64_t input[BL_DATATYPES]; /* where it begins, in bytes; all inputs have as many */
    uint64_t inputs, results;     /* bytes */
    unsigned blocks, threads;     /* most of a launch */
    uint64_t block_memory;        /* that it may give a block */
    struct bl_modules *modules;   /* which keep the memory */
    unsigned char *host;          /* as large as the buffer */
    CUstream stream;
    bool own_stream; /* so that kernels that do not leave hold nothing else up */
};

/* `stream` serves, or one of its own for multicast; `args` and `table` as said above.  blocks, threads: the most of a launch, which every
 * rank can run, and equal on all; of few less data are tried. */
int bl_selftest_prepare(struct bl_selftest *test, enum bl_selftest_kind kind, const struct bl_comm *comm,
                        const struct bl_kernel_args *args, const struct bl_table *table, CUstream stream,
                        unsigned blocks, unsigned threads);

int bl_selftest_launch(const struct bl_selftest *test, struct bl_comm *comm, uint64_t timeout_ns);

/* *culprit: whose fault it is, where it is a peer's.  *stuck: kernels are still running although they were told to
 * leave, so nothing that they use may be freed. */
int bl_selftest_check(const struct bl_selftest *test, uint64_t timeout_ns, int *culprit, bool *stuck);

void bl_selftest_release(struct bl_selftest *test);

#endif
