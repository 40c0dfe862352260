#include "call.h"

#include "real/real.h"

ncclResult_t bl_call_real(const struct bl_call *call, ncclComm_t handle) {
    const struct bl_request *request = &call->request;
    const void *from = call->sendbuff;
    void *to = call->recvbuff;
    const size_t count = request->count;
    const ncclDataType_t datatype = (ncclDataType_t)request->datatype;
    const ncclRedOp_t redop = (ncclRedOp_t)request->redop;
    const cudaStream_t stream = (cudaStream_t)call->stream;
    switch (request->collective) {
    case BL_ALLREDUCE: return BL_REAL(ncclAllReduce, from, to, count, datatype, redop, handle, stream);
    case BL_ALLGATHER: return BL_REAL(ncclAllGather, from, to, count, datatype, handle, stream);
    case BL_REDUCESCATTER: return BL_REAL(ncclReduceScatter, from, to, count, datatype, redop, handle, stream);
    case BL_ALLTOALL: return BL_REAL(ncclAlltoAll, from, to, count, datatype, handle, stream);
    case BL_BROADCAST: return BL_REAL(ncclBroadcast, from, to, count, datatype, request->root, handle, stream);
    case BL_REDUCE: return BL_REAL(ncclReduce, from, to, count, datatype, redop, request->root, handle, stream);
    case BL_SENDRECV:
        if (call->receives) return BL_REAL(ncclRecv, to, count, datatype, request->root, handle, stream);
        return BL_REAL(ncclSend, from, count, datatype, request->root, handle, stream);
    default: return ncclInvalidArgument;
    }
}
