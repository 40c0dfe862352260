/* client.h - the job that every client of test/clients does, however it reached NCCL.
 *
 * Two GPUs in one process: an all-reduce of CLIENT_COUNT floats through ncclAllReduce, and one of CLIENT_OPT_OUT_COUNT
 * through pncclAllReduce; the counts tell the two apart in the trace of the emulated NCCL.
 */
#ifndef BEELINE_TEST_CLIENT_H
#define BEELINE_TEST_CLIENT_H

#include <nccl.h>

enum { CLIENT_GPUS = 2, CLIENT_COUNT = 1000, CLIENT_OPT_OUT_COUNT = 1001 };

/* What the client calls. */
#define CLIENT_FUNCTIONS(X)                                                                                            \
    X(ncclGetVersion)                                                                                                  \
    X(ncclGetErrorString)                                                                                              \
    X(ncclCommInitAll)                                                                                                 \
    X(ncclCommDestroy)                                                                                                 \
    X(ncclGroupStart)                                                                                                  \
    X(ncclGroupEnd)                                                                                                    \
    X(ncclAllReduce)                                                                                                   \
    X(pncclGroupStart)                                                                                                 \
    X(pncclGroupEnd)                                                                                                   \
    X(pncclAllReduce)

struct client_nccl {
#define CLIENT_MEMBER(function) __typeof__(function) *function;
    CLIENT_FUNCTIONS(CLIENT_MEMBER)
#undef CLIENT_MEMBER
};

/* The exit status: 0 if both sums are right, 1 with a line on stderr, 77 if there are too few GPUs.  Prints which
 * library each of ncclAllReduce and pncclAllReduce lies in. */
int client_run(const struct client_nccl *nccl);

#endif
