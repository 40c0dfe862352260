/* faulty.c - an NCCL that does wrong in the way that FAULTY names, to show that beeline-perf notices.
 *
 * Given to beeline-perf as --library: its ncclX call the real pncclX, but for the collectives.  Of every collective:
 *   none   nothing wrong            short  the last element is left out
 * Of all-reduce:
 *   long   one element too many     op     minimum instead of what was asked
 *   input  rank 1's input changes   late   right at first, then short
 *   error  a call of rank 1 fails   hang   a call of rank 1 does nothing
 *   die    the process ends
 * Of the later ones:
 *   block  all-to-all: every rank gets what rank 0 should; broadcast, reduce, gather, scatter: root 1 whatever was asked;
 *          send, receive: with the neighbour on the other side
 *   spill  reduce, gather: a byte of recvbuff changes on rank 1; broadcast, scatter, send: one of rank 1's sendbuff
 */
#include <cuda.h>
#include <nccl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WELL = 12 }; /* calls of a rank before what comes late */

static bool is(const char *kind) {
    const char *named = getenv("FAULTY");
    return named && !strcmp(named, kind);
}

static size_t shortened(size_t count) {
    return is("short") ? count - 1 : count;
}

static int root_of(int root) {
    return is("block") ? 1 : root;
}

/* A peer as far away in the other direction. */
static int peer_of(int peer, ncclComm_t comm) {
    int rank, nranks;
    if (!is("block") || pncclCommUserRank(comm, &rank) != ncclSuccess || pncclCommCount(comm, &nranks) != ncclSuccess)
        return peer;
    return (2 * rank - peer + nranks) % nranks;
}

/* If it is to, and on rank 1. */
static ncclResult_t spill(ncclResult_t result, const void *buffer, ncclComm_t comm, cudaStream_t stream) {
    int rank;
    if (result == ncclSuccess && is("spill") && pncclCommUserRank(comm, &rank) == ncclSuccess && rank == 1)
        cuMemsetD8Async((CUdeviceptr)buffer + 5, 7, 1, (CUstream)stream);
    return result;
}

/* A call that the functions above spoil. */
#define SPOILT(name, parameters, call)                                                                                 \
    ncclResult_t nccl##name parameters;                                                                                \
    __attribute__((visibility("default"))) ncclResult_t nccl##name parameters {                                        \
        return call;                                                                                                   \
    }
#define FORWARD(name, parameters, arguments) SPOILT(name, parameters, pnccl##name arguments)

FORWARD(GetVersion, (int *version), (version))
FORWARD(GetUniqueId, (ncclUniqueId * id), (id))
FORWARD(CommInitRank, (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank), (comm, nranks, id, rank))
FORWARD(CommDestroy, (ncclComm_t comm), (comm))
FORWARD(CommGetAsyncError, (ncclComm_t comm, ncclResult_t *result), (comm, result))
FORWARD(GroupStart, (void), ())
FORWARD(GroupEnd, (void), ())
SPOILT(AllGather,
       (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream),
       pncclAllGather(send, recv, shortened(count), type, comm, stream))
SPOILT(ReduceScatter,
       (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
        cudaStream_t stream),
       pncclReduceScatter(send, recv, shortened(count), type, op, comm, stream))
SPOILT(AlltoAll,
       (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream),
       is("block") ? pncclAllGather(send, recv, count, type, comm, stream)
                   : pncclAlltoAll(send, recv, shortened(count), type, comm, stream))
SPOILT(Broadcast,
       (const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
        cudaStream_t stream),
       spill(pncclBroadcast(send, recv, shortened(count), type, root_of(root), comm, stream), send, comm, stream))
SPOILT(Reduce,
       (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
        cudaStream_t stream),
       spill(pncclReduce(send, recv, shortened(count), type, op, root_of(root), comm, stream), recv, comm, stream))
SPOILT(Gather,
       (const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
        cudaStream_t stream),
       spill(pncclGather(send, recv, shortened(count), type, root_of(root), comm, stream), recv, comm, stream))
SPOILT(Scatter,
       (const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
        cudaStream_t stream),
       spill(pncclScatter(send, recv, shortened(count), type, root_of(root), comm, stream), send, comm, stream))
SPOILT(Send, (const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream),
       spill(pncclSend(send, shortened(count), type, peer_of(peer, comm), comm, stream), send, comm, stream))
SPOILT(Recv, (void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream),
       pncclRecv(recv, shortened(count), type, peer_of(peer, comm), comm, stream))

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
