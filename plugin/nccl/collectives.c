/* collectives.c - the entry points of the collectives that Beeline may serve, each also with a configuration of its own (NCCL
 * 2.31): Beeline's as the plain one, unless that asks for what only NCCL can do.  (With none, it is the plain one; ext and
 * userProfilerTag are for NCCL to tell, and change nothing.)
 */
#include "entry.h"
#include "real/config.h"
#include "serve.h"

/* What all of them do, with the names that they give their arguments. */
#define SERVE_OR_FORWARD(kind, operation, of_root, for_nccl, real)                                                     \
    struct bl_call call = {.sendbuff = sendbuff,                                                                       \
                           .recvbuff = recvbuff,                                                                       \
                           .request = {.collective = kind,                                                             \
                                       .count = count,                                                                 \
                                       .datatype = (int)datatype,                                                      \
                                       .redop = (int)operation,                                                        \
                                       .root = of_root},                                                               \
                           .stream = stream};                                                                          \
    struct bl_forward *forward;                                                                                        \
    ncclResult_t result;                                                                                               \
    return bl_serve(&call, comm, for_nccl, &forward, &result) ? result : bl_forward_after(forward, real)

#define PARAMETERS const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype
#define ARGUMENTS  sendbuff, recvbuff, count, datatype
#define LIST(...)  __VA_ARGS__

/* A collective's plain function, and the one with a configuration: its operation and root, and what both get before
 * communicator and stream. */
#define ENTRIES(function, kind, operation, of_root, parameters, arguments)                                             \
    BL_EXPORT ncclResult_t function(LIST parameters, ncclComm_t comm, cudaStream_t stream) {                           \
        SERVE_OR_FORWARD(kind, operation, of_root, BL_REASONS, BL_REAL(function, LIST arguments, comm, stream));       \
    }                                                                                                                  \
    BL_EXPORT ncclResult_t function##Config(LIST parameters, ncclComm_t comm, cudaStream_t stream,                     \
                                            const ncclCollConfig_t *config) {                                          \
        SERVE_OR_FORWARD(kind, operation, of_root, bl_config_for_nccl(config, #function),                              \
                         config ? BL_REAL(function##Config, LIST arguments, comm, stream, config)                      \
                                : BL_REAL(function, LIST arguments, comm, stream));                                    \
    }

ENTRIES(ncclAllReduce, BL_ALLREDUCE, op, 0, (PARAMETERS, ncclRedOp_t op), (ARGUMENTS, op))
ENTRIES(ncclAllGather, BL_ALLGATHER, ncclSum, 0, (PARAMETERS), (ARGUMENTS))
ENTRIES(ncclReduceScatter, BL_REDUCESCATTER, op, 0, (PARAMETERS, ncclRedOp_t op), (ARGUMENTS, op))
ENTRIES(ncclAlltoAll, BL_ALLTOALL, ncclSum, 0, (PARAMETERS), (ARGUMENTS))
ENTRIES(ncclBroadcast, BL_BROADCAST, ncclSum, root, (PARAMETERS, int root), (ARGUMENTS, root))
ENTRIES(ncclReduce, BL_REDUCE, op, root, (PARAMETERS, ncclRedOp_t op, int root), (ARGUMENTS, op, root))

BL_EXPORT ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                                 cudaStream_t stream) {
    const void *sendbuff = buff;
    void *recvbuff = buff;
    SERVE_OR_FORWARD(BL_BROADCAST, ncclSum, root, BL_REASONS,
                     BL_REAL(ncclBcast, buff, count, datatype, root, comm, stream));
}
