/* shim.c - a preload in front of Beeline that wraps NCCL's functions, as profilers do, and looks the next ones up when it is loaded:
 * before the process has an NCCL. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "nccl.h"

static atomic_int seen;

#define WRAP(function, parameters, ...)                                                                                \
    ncclResult_t function parameters {                                                                                 \
        ncclResult_t(*next) parameters;                                                                                \
        *(void **)&next = dlsym(RTLD_NEXT, #function);                                                                 \
        atomic_fetch_add(&seen, 1);                                                                                    \
        return next ? next(__VA_ARGS__) : ncclSystemError;                                                             \
    }

WRAP(ncclGetVersion, (int *version), version)
WRAP(ncclCommInitRank, (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank), comm, nranks, commId, rank)
WRAP(ncclAllReduce,
     (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
      cudaStream_t stream),
     sendbuff, recvbuff, count, datatype, op, comm, stream)

__attribute__((constructor)) static void look(void) {
    if (dlsym(RTLD_NEXT, "ncclAllReduce") && getenv("BEELINE_TEST_SHIM")) fprintf(stderr, "shim found one early\n");
}

__attribute__((destructor)) static void tell(void) {
    if (getenv("BEELINE_TEST_SHIM")) fprintf(stderr, "shim saw %d calls\n", atomic_load(&seen));
}
