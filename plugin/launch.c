#include "launch.h"

#include "log.h"

static ncclResult_t launch_kernel(const struct bl_call *call) {
    struct bl_comm *comm = call->comm;
    const struct bl_route *route = &call->route;
    struct bl_kernel_args args = comm->args;
    args.sendbuff = call->sendbuff;
    args.recvbuff = call->recvbuff;
    args.count = call->request.count;
    args.redop = (uint32_t)call->request.redop;
    void *parameters[] = {&args};
    CUfunction function = comm->function[route->kernel][call->request.datatype];
    CUresult status = bl_driver()->cuLaunchKernel(function, route->blocks, 1, 1, route->threads, 1, 1, 0, call->stream,
                                                  parameters, NULL);
    if (status == CUDA_SUCCESS) return ncclSuccess;
    bl_warn("launch of %s on rank %d failed: %s", bl_kernel_name(route->kernel), comm->rank,
            bl_driver_strerror(status));
    return ncclUnhandledCudaError;
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
    ncclResult_t result = bl_order_before(comm, call->stream, &turn);
    if (result == ncclSuccess) result = launch_kernel(call);
    if (result == ncclSuccess) {
        comm->order.served = true;
        result = bl_order_after(comm, call->stream, &turn, true);
    }
    context_leave(entered);
    return result;
}

ncclResult_t bl_forward_begin(struct bl_comm *comm, CUstream stream, struct bl_order_turn *turn) {
    if (!comm->order.served) return ncclSuccess;
    const bool entered = context_enter(comm);
    ncclResult_t result = bl_order_before(comm, stream, turn);
    context_leave(entered);
    return result;
}

ncclResult_t bl_forward_end(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn) {
    if (!comm->order.served) {
        /* Beeline's first call must know where NCCL's last one ran. */
        comm->order.used = true;
        comm->order.last_stream = stream;
        return ncclSuccess;
    }
    const bool entered = context_enter(comm);
    ncclResult_t result = bl_order_after(comm, stream, turn, false);
    context_leave(entered);
    return result;
}
