#include "baseline.h"

#include "base/clock.h"
#include "base/why.h"
#include "comm/context.h"

static int refuse(const char *what, ncclResult_t result) {
    return bl_fail("%s: %s", what, BL_REAL(ncclGetErrorString, result));
}

/* What is in progress on them ends. */
static int settle(const char *what, ncclResult_t result, const ncclComm_t *handles, int count, uint64_t deadline,
                  const atomic_bool *cancel) {
    if (!bl_call_made(result)) return refuse(what, result);
    for (int i = 0; i < count; i++) {
        ncclResult_t state = ncclInProgress;
        while (handles[i] && state == ncclInProgress) {
            result = BL_REAL(ncclCommGetAsyncError, handles[i], &state);
            if (result != ncclSuccess || (state != ncclSuccess && state != ncclInProgress))
                return refuse(what, result ? result : state);
            if (state != ncclInProgress) continue;
            if (cancel && atomic_load(cancel)) return bl_fail("it is being destroyed");
            if (bl_clock_ns() > deadline) return bl_fail("%s does not end", what);
            bl_nap(50000);
        }
    }
    return 0;
}

int bl_baseline_id(ncclUniqueId *id) {
    const ncclResult_t result = BL_REAL(ncclGetUniqueId, id);
    return result == ncclSuccess ? 0 : refuse("ncclGetUniqueId", result);
}

int bl_baseline_open(struct bl_comm *const *comms, ncclComm_t *const *handles, int count, const ncclUniqueId *id,
                     uint64_t deadline, const atomic_bool *cancel) {
    ncclComm_t made[BL_MAX_RANKS];
    ncclResult_t result = BL_REAL(ncclGroupStart);
    for (int i = 0; i < count && bl_call_made(result); i++) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        result = ncclUnhandledCudaError;
        if (!bl_context_push(comms[i])) continue;
        result = BL_REAL(ncclCommInitRankConfig, handles[i], comms[i]->nranks, *id, comms[i]->rank, &config);
        bl_context_pop();
    }
    const ncclResult_t end = BL_REAL(ncclGroupEnd);
    for (int i = 0; i < count; i++) made[i] = *handles[i];
    return settle("ncclCommInitRankConfig", bl_call_made(result) ? end : result, made, count, deadline, cancel);
}

/* As NCCL's own all-to-all, which older ones do not have. */
static ncclResult_t all_to_all(const struct bl_call *call, ncclComm_t handle) {
    const size_t count = call->request.count, bytes = bl_call_bytes(&call->request);
    const ncclDataType_t datatype = (ncclDataType_t)call->request.datatype;
    ncclResult_t result = BL_REAL(ncclGroupStart);
    for (int peer = 0; peer < call->comm->nranks && bl_call_made(result); peer++) {
        result = BL_REAL(ncclSend, (const char *)call->sendbuff + (size_t)peer * bytes, count, datatype, peer, handle,
                         (cudaStream_t)call->stream);
        if (bl_call_made(result))
            result = BL_REAL(ncclRecv, (char *)call->recvbuff + (size_t)peer * bytes, count, datatype, peer, handle,
                             (cudaStream_t)call->stream);
    }
    const ncclResult_t end = BL_REAL(ncclGroupEnd);
    return bl_call_made(result) ? end : result;
}

static ncclResult_t around(const struct bl_call *call, ncclComm_t handle) {
    struct bl_call ends[2];
    bl_call_around(call, ends);
    ncclResult_t result = BL_REAL(ncclGroupStart);
    if (!bl_call_made(result)) return result;
    for (int i = 0; i < 2 && bl_call_made(result); i++) result = bl_call_real(&ends[i], handle);
    const ncclResult_t end = BL_REAL(ncclGroupEnd);
    return bl_call_made(result) ? end : result;
}

static ncclResult_t call_one(const struct bl_call *call, ncclComm_t handle) {
    switch (call->request.collective) {
    case BL_ALLTOALL: return all_to_all(call, handle);
    case BL_SENDRECV: return around(call, handle);
    default: return bl_call_real(call, handle);
    }
}

int bl_baseline_call(const struct bl_call *calls, const ncclComm_t *handles, int count, uint64_t deadline,
                     const atomic_bool *cancel) {
    ncclResult_t result = ncclSuccess;
    if (count > 1) result = BL_REAL(ncclGroupStart);
    for (int i = 0; i < count && bl_call_made(result); i++) {
        result = ncclUnhandledCudaError;
        if (!bl_context_push(calls[i].comm)) continue;
        result = call_one(&calls[i], handles[i]);
        bl_context_pop();
    }
    if (count > 1) {
        const ncclResult_t end = BL_REAL(ncclGroupEnd);
        if (bl_call_made(result)) result = end;
    }
    if (result == ncclSuccess) return 0;
    return settle("a call of NCCL's", result, handles, count, deadline, cancel);
}

void bl_baseline_close(struct bl_comm *const *comms, ncclComm_t *handles, int count, bool aborts, uint64_t deadline) {
    for (int i = 0; i < count && !aborts; i++)
        aborts = handles[i] && !bl_call_made(BL_REAL(ncclCommFinalize, handles[i]));
    if (!aborts) aborts = settle("ncclCommFinalize", ncclSuccess, handles, count, deadline, NULL) != 0;
    for (int i = 0; i < count; i++) {
        if (!handles[i]) continue;
        const bool pushed = bl_context_push(comms[i]);
        if (aborts)
            BL_REAL(ncclCommAbort, handles[i]);
        else
            BL_REAL(ncclCommDestroy, handles[i]);
        if (pushed) bl_context_pop();
        handles[i] = NULL;
    }
}
