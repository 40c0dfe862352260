/* faulty.c - an NCCL that does wrong in the way that FAULTY names, to show that beeline-perf notices.
 *
 * Given to beeline-perf as --library: its ncclX call the real pncclX, but for ncclAllReduce.
 *   none   nothing wrong            short  the last element is left out, also by the other collectives
 *   long   one element too many     op     minimum instead of what was asked
 *   input  rank 1's input changes   late   right at first, then short
 *   error  a call of rank 1 fails   hang   a call of rank 1 does nothing
 *   die    the process ends
 */
#include <cuda.h>
#include <nccl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WELL = 12 }; /* calls of a rank before what comes late */

static size_t shortened(size_t count) {
    const char *kind = getenv("FAULTY");
    return kind && !strcmp(kind, "short") ? count - 1 : count;
}

#define FORWARD(name, parameters, arguments)                                                                           \
    ncclResult_t nccl##name parameters;                                                                                \
    __attribute__((visibility("default"))) ncclResult_t nccl##name parameters {                                        \
        return pnccl##name arguments;                                                                                  \
    }

FORWARD(GetVersion, (int *version), (version))
FORWARD(GetUniqueId, (ncclUniqueId * id), (id))
FORWARD(CommInitRank, (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank), (comm, nranks, id, rank))
FORWARD(CommDestroy, (ncclComm_t comm), (comm))
FORWARD(CommGetAsyncError, (ncclComm_t comm, ncclResult_t *result), (comm, result))
FORWARD(GroupStart, (void), ())
FORWARD(GroupEnd, (void), ())
FORWARD(AllGather,
        (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream),
        (send, recv, shortened(count), type, comm, stream))
FORWARD(ReduceScatter,
        (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
         cudaStream_t stream),
        (send, recv, shortened(count), type, op, comm, stream))

__attribute__((visibility("default"))) const char *ncclGetErrorString(ncclResult_t result) {
    return pncclGetErrorString(result);
}

__attribute__((visibility("default"))) const char *ncclGetLastError(ncclComm_t comm) {
    return pncclGetLastError(comm);
}

__attribute__((visibility("default"))) ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count,
                                                                  ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                                                  cudaStream_t stream) {
    static _Thread_local int calls; /* a thread drives one rank in these tests */
    const char *kind = getenv("FAULTY");
    bool late = ++calls > WELL;
    int rank;

    if (!kind) kind = "none";
    ncclResult_t result = pncclCommUserRank(comm, &rank);
    if (result != ncclSuccess) return result;
    if (late && !strcmp(kind, "die")) _exit(3);
    if (late && rank == 1 && !strcmp(kind, "error")) return ncclInternalError;
    if (late && rank == 1 && !strcmp(kind, "hang")) return ncclSuccess;
    if (!strcmp(kind, "short") || (late && !strcmp(kind, "late"))) count--;
    if (!strcmp(kind, "long")) count++;
    if (!strcmp(kind, "op")) op = ncclMin;
    result = pncclAllReduce(send, recv, count, type, op, comm, stream);
    if (!strcmp(kind, "input") && rank == 1 && send != recv)
        cuMemsetD8Async((CUdeviceptr)send + 5, 7, 1, (CUstream)stream);
    return result;
}
