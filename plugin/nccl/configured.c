/* configured.c - the collectives with a configuration of their own (NCCL 2.31): Beeline's as the plain ones, unless that asks for
 * what only NCCL can do.  (With none, they are the plain ones; ext and userProfilerTag are for NCCL to tell, and change nothing.)
 */
#include <stdatomic.h>

#include "real/config.h"
#include "export.h"
#include "base/log.h"
#include "serve.h"

static bool is_for_nccl(const ncclCollConfig_t *config, const char *function) {
    static atomic_bool told;
    const char *asks = bl_real_depth == 0 ? bl_config_of_nccl(config) : NULL;
    if (asks && !atomic_exchange(&told, true))
        bl_info("%s: the call's configuration asks for %s: calls with such ones go to NCCL", function, asks);
    return asks;
}

/* With the arguments' names as all of them have them. */
#define CONFIGURED(function, collective, count, op, root, ...)                                                         \
    struct bl_comm *known = NULL;                                                                                      \
    ncclResult_t result;                                                                                               \
    if (is_for_nccl(config, #function))                                                                                \
        known = bl_comm_find(comm);                                                                                    \
    else if (bl_serve_call(collective, sendbuff, recvbuff, count, datatype, op, root, comm, stream, &known, &result))  \
        return result;                                                                                                 \
    return config ? BL_IN_TURN(known, stream, function##Config, __VA_ARGS__, comm, stream, config)                     \
                  : BL_IN_TURN(known, stream, function, __VA_ARGS__, comm, stream)

BL_EXPORT ncclResult_t ncclAllReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                           const ncclCollConfig_t *config) {
    CONFIGURED(ncclAllReduce, BL_ALLREDUCE, count, op, 0, sendbuff, recvbuff, count, datatype, op);
}

BL_EXPORT ncclResult_t ncclAllGatherConfig(const void *sendbuff, void *recvbuff, size_t sendcount,
                                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream,
                                           const ncclCollConfig_t *config) {
    CONFIGURED(ncclAllGather, BL_ALLGATHER, sendcount, ncclSum, 0, sendbuff, recvbuff, sendcount, datatype);
}

BL_EXPORT ncclResult_t ncclReduceScatterConfig(const void *sendbuff, void *recvbuff, size_t recvcount,
                                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                               cudaStream_t stream, const ncclCollConfig_t *config) {
    CONFIGURED(ncclReduceScatter, BL_REDUCESCATTER, recvcount, op, 0, sendbuff, recvbuff, recvcount, datatype, op);
}

BL_EXPORT ncclResult_t ncclAlltoAllConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                          ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
    CONFIGURED(ncclAlltoAll, BL_ALLTOALL, count, ncclSum, 0, sendbuff, recvbuff, count, datatype);
}

BL_EXPORT ncclResult_t ncclBroadcastConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                           int root, ncclComm_t comm, cudaStream_t stream,
                                           const ncclCollConfig_t *config) {
    CONFIGURED(ncclBroadcast, BL_BROADCAST, count, ncclSum, root, sendbuff, recvbuff, count, datatype, root);
}

BL_EXPORT ncclResult_t ncclReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                                        const ncclCollConfig_t *config) {
    CONFIGURED(ncclReduce, BL_REDUCE, count, op, root, sendbuff, recvbuff, count, datatype, op, root);
}
