/* redop.c - reduction operations made by the caller.  Their values belong to one communicator, as the real one's do. */
#include <string.h>

#include "emu_nccl.h"

int emu_redop_salt(ncclComm_t comm) {
    return (int)(((uintptr_t)comm >> 6) % 0x7fff);
}

static ncclResult_t create(ncclRedOp_t *op, const void *scalar, ncclDataType_t datatype,
                           ncclScalarResidence_t residence, ncclComm_t comm) {
    ncclResult_t result = emu_comm_ready(comm);
    size_t size = emu_datatype_size(datatype);
    if (result != ncclSuccess) return result;
    if (!op || !scalar || !size || (residence != ncclScalarDevice && residence != ncclScalarHostImmediate))
        return emu_fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: op %p, scalar %p, type %d, residence %d",
                        (void *)op, scalar, datatype, residence);
    int index = 0;
    while (index < EMU_MAX_REDOPS && comm->redop_used[index]) index++;
    if (index == EMU_MAX_REDOPS)
        return emu_fail(ncclInternalError, "more than %d reduction operations", EMU_MAX_REDOPS);
    struct emu_redop redop = {.kind = EMU_PREMULSUM};
    if (residence == ncclScalarDevice)
        redop.device_scalar = scalar;
    else
        memcpy(redop.scalar, scalar, size);
    comm->redops[index] = redop;
    comm->redop_used[index] = true;
    *op = (ncclRedOp_t)(ncclNumOps + index + (emu_redop_salt(comm) << 8));
    return ncclSuccess;
}

EMU_API(ncclResult_t, ncclRedOpCreatePreMulSum, ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
        ncclScalarResidence_t residence, ncclComm_t comm) {
    struct emu_call call = NCCL_CALL(emu_comm_rank(comm));
    call.datatype = datatype;
    ncclResult_t result = emu_call_enter(&call, comm);
    if (result == ncclSuccess) result = create(op, scalar, datatype, residence, comm);
    return emu_call_leave(&call, result);
}

EMU_API(ncclResult_t, ncclRedOpDestroy, ncclRedOp_t op, ncclComm_t comm) {
    struct emu_call call = NCCL_CALL(emu_comm_rank(comm));
    int index = ((int)op - ncclNumOps) & 0xff;
    ncclResult_t result = emu_call_enter(&call, comm);
    if (result == ncclSuccess) result = emu_comm_check(comm);
    if (result == ncclSuccess && ((int)op < ncclNumOps || ((int)op - ncclNumOps) >> 8 != emu_redop_salt(comm) ||
                                  index >= EMU_MAX_REDOPS || !comm->redop_used[index]))
        result = emu_fail(ncclInvalidArgument, "ncclRedOpDestroy : operator %d unknown to this communicator", (int)op);
    if (result == ncclSuccess) comm->redop_used[index] = false;
    return emu_call_leave(&call, result);
}
