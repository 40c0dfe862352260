/* collectives.c - the entry points of the collectives that Beeline may serve. */
#include "export.h"
#include "serve.h"

BL_EXPORT ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                     ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    struct bl_comm *known;
    ncclResult_t result;
    if (bl_serve_call(BL_ALLREDUCE, sendbuff, recvbuff, count, datatype, op, 0, comm, stream, &known, &result))
        return result;
    return BL_IN_TURN(known, stream, ncclAllReduce, sendbuff, recvbuff, count, datatype, op, comm, stream);
}

BL_EXPORT ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                                     ncclComm_t comm, cudaStream_t stream) {
    struct bl_comm *known;
    ncclResult_t result;
    if (bl_serve_call(BL_ALLGATHER, sendbuff, recvbuff, sendcount, datatype, ncclSum, 0, comm, stream, &known, &result))
        return result;
    return BL_IN_TURN(known, stream, ncclAllGather, sendbuff, recvbuff, sendcount, datatype, comm, stream);
}

BL_EXPORT ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                         ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                         cudaStream_t stream) {
    struct bl_comm *known;
    ncclResult_t result;
    if (bl_serve_call(BL_REDUCESCATTER, sendbuff, recvbuff, recvcount, datatype, op, 0, comm, stream, &known, &result))
        return result;
    return BL_IN_TURN(known, stream, ncclReduceScatter, sendbuff, recvbuff, recvcount, datatype, op, comm, stream);
}

BL_EXPORT ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                    ncclComm_t comm, cudaStream_t stream) {
    struct bl_comm *known;
    ncclResult_t result;
    if (bl_serve_call(BL_ALLTOALL, sendbuff, recvbuff, count, datatype, ncclSum, 0, comm, stream, &known, &result))
        return result;
    return BL_IN_TURN(known, stream, ncclAlltoAll, sendbuff, recvbuff, count, datatype, comm, stream);
}

BL_EXPORT ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                     int root, ncclComm_t comm, cudaStream_t stream) {
    struct bl_comm *known;
    ncclResult_t result;
    if (bl_serve_call(BL_BROADCAST, sendbuff, recvbuff, count, datatype, ncclSum, root, comm, stream, &known, &result))
        return result;
    return BL_IN_TURN(known, stream, ncclBroadcast, sendbuff, recvbuff, count, datatype, root, comm, stream);
}

BL_EXPORT ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                                 cudaStream_t stream) {
    struct bl_comm *known;
    ncclResult_t result;
    if (bl_serve_call(BL_BROADCAST, buff, buff, count, datatype, ncclSum, root, comm, stream, &known, &result))
        return result;
    return BL_IN_TURN(known, stream, ncclBcast, buff, count, datatype, root, comm, stream);
}

BL_EXPORT ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                  ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
    struct bl_comm *known;
    ncclResult_t result;
    if (bl_serve_call(BL_REDUCE, sendbuff, recvbuff, count, datatype, op, root, comm, stream, &known, &result))
        return result;
    return BL_IN_TURN(known, stream, ncclReduce, sendbuff, recvbuff, count, datatype, op, root, comm, stream);
}
