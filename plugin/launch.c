#include "launch.h"

#include <sched.h>

#include "log.h"
#include "real.h"

/* A launch that may start before the work ahead of it on the stream is over spares the time between two kernels where
 * that work is a kernel, too; all of Beeline's wait for it before they touch memory. */
static CUresult launch_early(CUfunction function, const struct bl_route *route, CUstream stream, void **parameters) {
    CUlaunchAttribute early = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                               .value.programmaticStreamSerializationAllowed = 1};
    CUlaunchConfig config = {.gridDimX = route->blocks,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = route->threads,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream,
                             .attrs = &early,
                             .numAttrs = 1};
    return bl_driver()->cuLaunchKernelEx(&config, function, parameters, NULL);
}

static ncclResult_t launch_kernel(const struct bl_call *call) {
    struct bl_comm *comm = call->comm;
    const struct bl_route *route = &call->route;
    const uint64_t size = bl_datatype_size(call->request.datatype);
    const uint64_t most = bl_kernel_capacity(route->kernel, comm->nranks, &comm->args.layout) / size;
    CUfunction function = comm->function[route->kernel][call->request.datatype];
    struct bl_kernel_args args = comm->args;
    void *parameters[] = {&args};
    args.redop = (uint32_t)call->request.redop;
    for (uint64_t done = 0; done < call->request.count; done += args.count) {
        args.sendbuff = (const char *)call->sendbuff + done * size;
        args.recvbuff = (char *)call->recvbuff + done * size;
        args.count = call->request.count - done < most ? call->request.count - done : most;
        CUresult status = comm->early_launch
                              ? launch_early(function, route, call->stream, parameters)
                              : bl_driver()->cuLaunchKernel(function, route->blocks, 1, 1, route->threads, 1, 1, 0,
                                                            call->stream, parameters, NULL);
        if (status == CUDA_SUCCESS) continue;
        bl_warn("launch of %s on rank %d failed: %s", bl_kernel_name(route->kernel), comm->rank,
                bl_driver_strerror(status));
        return ncclUnhandledCudaError;
    }
    return ncclSuccess;
}

/* A launch needs the context of its stream current; a thread that drives several GPUs has another one. */
static bool context_enter(const struct bl_comm *comm) {
    CUcontext current = NULL;
    bl_driver()->cuCtxGetCurrent(&current);
    return current != comm->context && bl_driver()->cuCtxPushCurrent(comm->context) == CUDA_SUCCESS;
}

static void context_leave(bool entered) {
    CUcontext ours;
    if (entered) bl_driver()->cuCtxPopCurrent(&ours);
}

ncclResult_t bl_launch(const struct bl_call *call) {
    struct bl_comm *comm = call->comm;
    struct bl_order_turn turn;
    const bool entered = context_enter(comm);
    bl_order_ask(call->stream, &turn);
    ncclResult_t result = bl_order_before(comm, call->stream, &turn);
    if (result == ncclSuccess) result = launch_kernel(call);
    if (result == ncclSuccess) {
        comm->order.served = true;
        result = bl_order_after(comm, call->stream, &turn, true);
    }
    context_leave(entered);
    return result;
}

/* NCCL keeps its own calls in order: until Beeline has launched something, only what a graph will replay later matters. */
static bool takes_turn(const struct bl_comm *comm, const struct bl_order_turn *turn) {
    return comm->order.served || comm->order.captured_ever || turn->capturing;
}

ncclResult_t bl_forward_begin(struct bl_comm *comm, CUstream stream, struct bl_order_turn *turn) {
    const bool entered = context_enter(comm);
    bl_order_ask(stream, turn);
    ncclResult_t result = takes_turn(comm, turn) ? bl_order_before(comm, stream, turn) : ncclSuccess;
    context_leave(entered);
    return result;
}

/* A nonblocking communicator's call is on its stream only once NCCL says so. */
static ncclResult_t settle(ncclComm_t handle) {
    ncclResult_t state = ncclInProgress;
    while (BL_REAL(ncclCommGetAsyncError, handle, &state) == ncclSuccess && state == ncclInProgress) sched_yield();
    return state;
}

ncclResult_t bl_forward_end(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn,
                            ncclResult_t result) {
    if (result == ncclInProgress && settle(comm->handle) != ncclSuccess)
        return result; /* the caller will ask and hear */
    if (!takes_turn(comm, turn)) {
        /* Beeline's first call must know where NCCL's last one ran. */
        comm->order.used = true;
        comm->order.last_stream = stream;
        return ncclSuccess;
    }
    const bool entered = context_enter(comm);
    ncclResult_t after = bl_order_after(comm, stream, turn, false);
    context_leave(entered);
    return after;
}
