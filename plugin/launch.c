#include "launch.h"

#include <sched.h>

#include "copy.h"
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

static ncclResult_t launch_kernel(const struct bl_comm *comm, const struct bl_route *route, int datatype,
                                  CUstream stream, void *args) {
    void *parameters[] = {args};
    CUfunction function = comm->function[route->kernel][datatype];
    CUresult status = comm->early_launch ? launch_early(function, route, stream, parameters)
                                         : bl_driver()->cuLaunchKernel(function, route->blocks, 1, 1, route->threads, 1,
                                                                       1, 0, stream, parameters, NULL);
    if (status == CUDA_SUCCESS) return ncclSuccess;
    bl_warn("launch of %s on rank %d failed: %s", bl_kernel_name(route->kernel), comm->rank,
            bl_driver_strerror(status));
    return ncclUnhandledCudaError;
}

static ncclResult_t launch_message(const struct bl_call *call) {
    const struct bl_comm *comm = call->comm;
    const struct bl_request *request = &call->request;
    const uint64_t size = bl_datatype_size(request->datatype);
    const uint64_t most = comm->most_bytes[call->route.kernel] / size;
    struct bl_kernel_args args = comm->args;
    ncclResult_t result = ncclSuccess;
    if (call->route.kernel == BL_KERNEL_ALLGATHER_COPY) return bl_copy_launch(call);
    args.redop = (uint32_t)request->redop;
    args.size = (uint32_t)size;
    args.root = (uint32_t)request->root;
    args.stride = request->count * size;
    for (uint64_t done = 0; done < request->count && result == ncclSuccess; done += args.count) {
        args.sendbuff = call->sendbuff ? (const char *)call->sendbuff + done * size : NULL;
        args.recvbuff = call->recvbuff ? (char *)call->recvbuff + done * size : NULL;
        args.count = request->count - done < most ? request->count - done : most;
        result = launch_kernel(comm, &call->route, request->datatype, call->stream, &args);
    }
    return result;
}

/* More than that not every GPU takes. */
_Static_assert(sizeof(struct bl_batch_args) <= 4096, "a batch fits into the arguments of a kernel");

static ncclResult_t launch_messages(const struct bl_call *const *calls, int count, struct bl_route *route) {
    const struct bl_comm *comm = calls[0]->comm;
    const struct bl_request *first = &calls[0]->request;
    struct bl_batch batch = {.collective = first->collective,
                             .datatype = first->datatype,
                             .redop = first->redop,
                             .messages = (uint32_t)count};
    struct bl_batch_args args;
    args.common = comm->args;
    args.common.redop = (uint32_t)first->redop;
    args.in_place = false;
    const bool reduces = bl_kernel_reduces(calls[0]->route.kernel); /* else messages may be of any datatypes */
    for (int i = 0; i < count; i++) {
        args.sendbuff[i] = calls[i]->sendbuff;
        args.recvbuff[i] = calls[i]->recvbuff;
        const uint64_t bytes = calls[i]->request.count * bl_datatype_size(calls[i]->request.datatype);
        args.count[i] = reduces ? calls[i]->request.count : bytes;
        args.first_line[i] = (uint32_t)batch.lines;
        args.in_place |= calls[i]->sendbuff == calls[i]->recvbuff;
        batch.lines += bl_lines_of(bytes);
    }
    for (int i = count; i < BL_BATCH_MAX; i++) args.first_line[i] = UINT32_MAX;
    args.lines = (uint32_t)batch.lines;
    if (!bl_table_select_batch(&comm->table, &batch, route)) return ncclInternalError; /* bl_fuser_add has asked, too */
    return launch_kernel(comm, route, batch.datatype, calls[0]->stream, &args);
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

/* Before and after what is launched on streams[0], which stands for all of the streams. */
static ncclResult_t turn_begin(struct bl_comm *comm, const CUstream *streams, int count, struct bl_order_turn *turn) {
    bl_order_ask(streams[0], turn);
    ncclResult_t result = bl_order_before(comm, streams[0], turn);
    comm->order.served = true; /* a launch that fails half way may have left something, too */
    return result == ncclSuccess ? bl_order_join(comm, streams, count) : result;
}

static ncclResult_t turn_end(struct bl_comm *comm, const CUstream *streams, int count,
                             const struct bl_order_turn *turn) {
    ncclResult_t result = bl_order_after(comm, streams[0], turn, true);
    return result == ncclSuccess ? bl_order_fork(comm, streams, count) : result;
}

ncclResult_t bl_launch(const struct bl_call *call) {
    struct bl_comm *comm = call->comm;
    struct bl_order_turn turn;
    const bool entered = context_enter(comm);
    ncclResult_t result = turn_begin(comm, &call->stream, 1, &turn);
    if (result == ncclSuccess) result = launch_message(call);
    if (result == ncclSuccess) result = turn_end(comm, &call->stream, 1, &turn);
    context_leave(entered);
    return result;
}

/* Each stream once, that of the first call first. */
static int streams_of(const struct bl_call *const *calls, int count, CUstream streams[BL_BATCH_MAX]) {
    int streams_used = 0;
    for (int i = 0; i < count; i++) {
        int at = 0;
        while (at < streams_used && streams[at] != calls[i]->stream) at++;
        if (at == streams_used) streams[streams_used++] = calls[i]->stream;
    }
    return streams_used;
}

ncclResult_t bl_launch_batch_check(const struct bl_call *const *calls, int count) {
    const struct bl_comm *comm = calls[0]->comm;
    CUstream streams[BL_BATCH_MAX];
    struct bl_order_turn first, other;
    const int used = streams_of(calls, count, streams);
    bool alike = true;
    if (used == 1) return ncclSuccess;
    const bool entered = context_enter(comm);
    bl_order_ask(streams[0], &first);
    for (int i = 1; i < used && alike; i++) {
        bl_order_ask(streams[i], &other);
        alike = other.capturing == first.capturing && (!first.capturing || other.capture == first.capture);
    }
    context_leave(entered);
    if (alike) return ncclSuccess;
    bl_warn("communicator %016llx rank %d: the streams of a group are to be captured by one graph, all or none",
            (unsigned long long)comm->id, comm->rank);
    return ncclInvalidUsage;
}

/* The calls were counted on their own routes. */
static void count_batch(struct bl_comm *comm, const struct bl_call *const *calls, int count, enum bl_kernel kernel) {
    for (int i = 0; i < count; i++) {
        const uint64_t bytes = calls[i]->request.count * bl_datatype_size(calls[i]->request.datatype);
        const enum bl_kernel own = calls[i]->route.kernel;
        comm->calls[own]--;
        comm->bytes[own] -= bytes;
        comm->calls[kernel]++;
        comm->bytes[kernel] += bytes;
    }
    comm->batches++;
}

ncclResult_t bl_launch_batch(const struct bl_call *const *calls, int count) {
    struct bl_comm *comm = calls[0]->comm;
    struct bl_order_turn turn;
    struct bl_route route;
    CUstream streams[BL_BATCH_MAX];
    const int used = streams_of(calls, count, streams);
    const bool entered = context_enter(comm);
    ncclResult_t result = turn_begin(comm, streams, used, &turn);
    if (result == ncclSuccess) result = launch_messages(calls, count, &route);
    if (result == ncclSuccess) {
        count_batch(comm, calls, count, route.kernel);
        result = turn_end(comm, streams, used, &turn);
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
