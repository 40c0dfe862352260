/* collectives.c - the entry points of the collectives that Beeline may serve, each also with a configuration of its own (NCCL 2.31):
 * Beeline's as the plain one, unless that asks for what only NCCL can do.  (With none, it is the plain one; ext and
 * userProfilerTag are for NCCL to tell, and change nothing.)
 */
#include "base/log.h"
#include "entry.h"
#include "real/config.h"
#include "serve.h"

static bool is_for_nccl(const ncclCollConfig_t *config, const char *function) {
    static atomic_bool logged;
    const char *asks = bl_real_depth == 0 ? bl_config_of_nccl(config) : NULL;
    if (asks && !atomic_exchange(&logged, true))
        bl_info("%s: the call's configuration asks for %s: calls with such ones go to NCCL", function, asks);
    return asks;
}

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

/* A call's collective, operation and root, and what the real NCCL gets before communicator and stream. */
#define PLAIN(function, kind, operation, of_root, ...)                                                                 \
    SERVE_OR_FORWARD(kind, operation, of_root, false, BL_REAL(function, __VA_ARGS__, comm, stream))
#define CONFIGURED(function, kind, operation, of_root, ...)                                                            \
    SERVE_OR_FORWARD(kind, operation, of_root, is_for_nccl(config, #function),                                         \
                     config ? BL_REAL(function##Config, __VA_ARGS__, comm, stream, config)                             \
                            : BL_REAL(function, __VA_ARGS__, comm, stream))

BL_EXPORT ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                     ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    PLAIN(ncclAllReduce, BL_ALLREDUCE, op, 0, sendbuff, recvbuff, count, datatype, op);
}

BL_EXPORT ncclResult_t ncclAllReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                           const ncclCollConfig_t *config) {
    CONFIGURED(ncclAllReduce, BL_ALLREDUCE, op, 0, sendbuff, recvbuff, count, datatype, op);
}

BL_EXPORT ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                     ncclComm_t comm, cudaStream_t stream) {
    PLAIN(ncclAllGather, BL_ALLGATHER, ncclSum, 0, sendbuff, recvbuff, count, datatype);
}

BL_EXPORT ncclResult_t ncclAllGatherConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                           ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
    CONFIGURED(ncclAllGather, BL_ALLGATHER, ncclSum, 0, sendbuff, recvbuff, count, datatype);
}

BL_EXPORT ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                         ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    PLAIN(ncclReduceScatter, BL_REDUCESCATTER, op, 0, sendbuff, recvbuff, count, datatype, op);
}

BL_EXPORT ncclResult_t ncclReduceScatterConfig(const void *sendbuff, void *recvbuff, size_t count,
                                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                               cudaStream_t stream, const ncclCollConfig_t *config) {
    CONFIGURED(ncclReduceScatter, BL_REDUCESCATTER, op, 0, sendbuff, recvbuff, count, datatype, op);
}

BL_EXPORT ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                    ncclComm_t comm, cudaStream_t stream) {
    PLAIN(ncclAlltoAll, BL_ALLTOALL, ncclSum, 0, sendbuff, recvbuff, count, datatype);
}

BL_EXPORT ncclResult_t ncclAlltoAllConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                          ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
    CONFIGURED(ncclAlltoAll, BL_ALLTOALL, ncclSum, 0, sendbuff, recvbuff, count, datatype);
}

BL_EXPORT ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                     int root, ncclComm_t comm, cudaStream_t stream) {
    PLAIN(ncclBroadcast, BL_BROADCAST, ncclSum, root, sendbuff, recvbuff, count, datatype, root);
}

BL_EXPORT ncclResult_t ncclBroadcastConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                           int root, ncclComm_t comm, cudaStream_t stream,
                                           const ncclCollConfig_t *config) {
    CONFIGURED(ncclBroadcast, BL_BROADCAST, ncclSum, root, sendbuff, recvbuff, count, datatype, root);
}

BL_EXPORT ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                                 cudaStream_t stream) {
    const void *sendbuff = buff;
    void *recvbuff = buff;
    PLAIN(ncclBcast, BL_BROADCAST, ncclSum, root, buff, count, datatype, root);
}

BL_EXPORT ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                  ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
    PLAIN(ncclReduce, BL_REDUCE, op, root, sendbuff, recvbuff, count, datatype, op, root);
}

BL_EXPORT ncclResult_t ncclReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                                        const ncclCollConfig_t *config) {
    CONFIGURED(ncclReduce, BL_REDUCE, op, root, sendbuff, recvbuff, count, datatype, op, root);
}
