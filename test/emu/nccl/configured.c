/* configured.c - the collectives with a configuration of their own: it is checked, noted, and changes nothing. */
#include "emu_nccl.h"

/* Its beginning, as in nccl.h since 2.31. */
struct config {
    size_t size;
    unsigned magic, version;
};

/* Through the PLT, as the real one's own. */
#define CONFIGURED(function, ...)                                                                                      \
    const struct config *given = (const struct config *)config;                                                        \
    struct emu_call call = {#function "Config", emu_comm_rank(comm), 0, datatype, -1, stream, true};                   \
    ncclResult_t result = emu_call_enter(&call, comm);                                                                 \
    if (result == ncclSuccess && given && (given->magic != 0xcafebeef || given->size < sizeof *given))                 \
        result = emu_fail(ncclInvalidArgument, #function "Config: not initialized via NCCL_COLLCONFIG_INITIALIZER");   \
    if (result == ncclSuccess)                                                                                         \
        result = function(__VA_ARGS__, comm, stream);                                                                  \
    else                                                                                                               \
        emu_group_error(result);                                                                                       \
    return emu_call_leave(&call, result)

EMU_API(ncclResult_t, ncclAllReduceConfig, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
    CONFIGURED(ncclAllReduce, sendbuff, recvbuff, count, datatype, op);
}

EMU_API(ncclResult_t, ncclBroadcastConfig, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
        int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
    CONFIGURED(ncclBroadcast, sendbuff, recvbuff, count, datatype, root);
}

EMU_API(ncclResult_t, ncclReduceConfig, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
    CONFIGURED(ncclReduce, sendbuff, recvbuff, count, datatype, op, root);
}

EMU_API(ncclResult_t, ncclAllGatherConfig, const void *sendbuff, void *recvbuff, size_t sendcount,
        ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
    CONFIGURED(ncclAllGather, sendbuff, recvbuff, sendcount, datatype);
}

EMU_API(ncclResult_t, ncclReduceScatterConfig, const void *sendbuff, void *recvbuff, size_t recvcount,
        ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
    CONFIGURED(ncclReduceScatter, sendbuff, recvbuff, recvcount, datatype, op);
}

EMU_API(ncclResult_t, ncclAlltoAllConfig, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
        ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
    CONFIGURED(ncclAlltoAll, sendbuff, recvbuff, count, datatype);
}

EMU_API(ncclResult_t, ncclGatherConfig, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
        int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
    CONFIGURED(ncclGather, sendbuff, recvbuff, count, datatype, root);
}

EMU_API(ncclResult_t, ncclScatterConfig, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
        int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
    CONFIGURED(ncclScatter, sendbuff, recvbuff, count, datatype, root);
}
