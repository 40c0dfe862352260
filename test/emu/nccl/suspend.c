/* suspend.c - memory that is given back for a while.  As with the real one all ranks are waited for, from the calling thread (which
 * since 2.30 puts that off to the end of a group: not so here); of what is suspended nothing may be called.  Here it is a flag, since the reference has no device memory of its own. */
#include "area.h"

static ncclResult_t meet(ncclComm_t comm, bool suspend) {
    char heard[EMU_MAX_RANKS];
    ncclResult_t result = emu_comm_settled(comm);
    if (result != ncclSuccess) return result;
    if (comm->suspended == suspend)
        return emu_fail(ncclInvalidUsage, "rank %d: the communicator is %ssuspended", comm->rank,
                        suspend ? "" : "not ");
    EMU_CUDA(cuCtxPushCurrent(comm->context));
    result = emu_cuda(cuCtxSynchronize(), "cuCtxSynchronize");
    cuCtxPopCurrent(NULL);
    if (result == ncclSuccess) result = emu_area_exchange(comm, "", 1, heard);
    if (result == ncclSuccess) comm->suspended = suspend;
    return result;
}

EMU_API(ncclResult_t, ncclCommSuspend, ncclComm_t comm, int flags) {
    NCCL_AROUND(comm, -1, flags & NCCL_SUSPEND_MEM ? meet(comm, true) : emu_comm_settled(comm));
}

EMU_API(ncclResult_t, ncclCommResume, ncclComm_t comm) {
    NCCL_AROUND(comm, -1, meet(comm, false));
}

EMU_API(ncclResult_t, ncclCommMemStats, ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value) {
    struct emu_call call = NCCL_CALL(emu_comm_rank(comm));
    ncclResult_t result = emu_call_enter(&call, comm);
    if (result == ncclSuccess) result = emu_comm_settled(comm);
    if (result == ncclSuccess && (!value || stat > ncclStatGpuMemTotal))
        result = emu_fail(ncclInvalidArgument, "ncclCommMemStats: statistic %d into %p", (int)stat, (void *)value);
    if (result == ncclSuccess) *value = stat == ncclStatGpuMemSuspended && comm->suspended;
    return emu_call_leave(&call, result);
}
