#include "launch.h"

#include "copy.h"
#include "base/log.h"
#include "comm/stats.h"
#include "order.h"
#include "pairs.h"
#include "room.h"

/* A call's launches.  Only captured ones may be early: a caller's stream may be destroyed with work under way (bl_driver_launch). */
struct launches {
    bool captured;
    unsigned launched;
    CUresult status; /* of the last */
};

static ncclResult_t launch_kernel(const struct bl_comm *comm, const struct bl_route *route, int datatype,
                                  CUstream stream, void *args, struct launches *launches) {
    const CUfunction function = comm->function[route->kernel][datatype];
    const bool early = comm->early_launch && launches->captured;
    const CUresult status =
        bl_driver_launch(function, route->blocks, route->threads,
                         (unsigned)bl_kernel_memory(route->kernel, route->threads), early, stream, args);
    launches->launched += status == CUDA_SUCCESS;
    launches->status = status;
    if (status == CUDA_SUCCESS) return ncclSuccess;
    bl_warn("launch of %s on rank %d failed: %s", bl_kernel_name(route->kernel), comm->rank,
            bl_driver_strerror(status));
    return ncclUnhandledCudaError;
}

enum { SOME_PIECES = 64 }; /* of a rank, before another one's turn: a stream has room for about 1024 launches */

/* From element *done on, all that is left or `pieces`. */
static ncclResult_t launch_message(const struct bl_call *call, const struct bl_route *route, uint64_t pieces,
                                   uint64_t *done, struct launches *launches) {
    const struct bl_comm *comm = call->comm;
    const struct bl_request *request = &call->request;
    const uint64_t size = bl_datatype_size(request->datatype);
    const uint64_t most = comm->most_bytes[route->kernel] / size;
    struct bl_kernel_args args = comm->args;
    ncclResult_t result = ncclSuccess;
    bl_set_redop(&args, request->redop);
    args.call = bl_kernel_call(route->kernel, request->datatype, request->redop);
    args.size = (uint32_t)size;
    args.root = (uint32_t)request->root;
    args.stride = request->count * size;
    for (; pieces-- && *done < request->count && result == ncclSuccess; *done += args.count) {
        args.sendbuff = call->sendbuff ? (const char *)call->sendbuff + *done * size : NULL;
        args.recvbuff = call->recvbuff ? (char *)call->recvbuff + *done * size : NULL;
        args.count = request->count - *done < most ? request->count - *done : most;
        result = launch_kernel(comm, route, request->datatype, call->stream, &args, launches);
    }
    return result;
}

/* More than that not every GPU takes. */
_Static_assert(sizeof(struct bl_batch_args) <= 4096, "a batch fits into the arguments of a kernel");

static void fill_batch(struct bl_batch_args *args, const struct bl_call *const *calls, int count,
                       const struct bl_route *route) {
    const struct bl_request *first = &calls[0]->request;
    const bool reduces = bl_kernel_reduces(route->kernel); /* else messages may be of any datatypes */
    uint64_t lines = 0, of_root[BL_MAX_RANKS] = {0}, span = 0;
    args->common = calls[0]->comm->args;
    bl_set_redop(&args->common, first->redop);
    args->common.call = bl_kernel_call(route->kernel, first->datatype, first->redop);
    args->common.count = (uint64_t)count; /* to be told */
    args->in_place = false;
    args->roots = 0;
    for (int i = 0; i < count; i++) {
        const struct bl_call *call = calls[i];
        const uint64_t bytes = bl_call_bytes(&call->request), elements = reduces ? call->request.count : bytes;
        const uint64_t of_call = bl_lines_of(bytes, bl_kernel_line(route->kernel));
        uint64_t *const place = &of_root[call->request.root];
        args->message[i] = (struct bl_batch_message){call->sendbuff, call->recvbuff, elements, *place};
        args->first_line[i] = (uint32_t)lines;
        args->root[i] = (uint8_t)call->request.root;
        args->roots |= 1u << call->request.root;
        args->in_place |= call->sendbuff == call->recvbuff;
        lines += of_call;
        *place += of_call;
        if (span < *place) span = *place;
    }
    for (int i = count; i < BL_BATCH_MAX; i++) args->first_line[i] = UINT32_MAX;
    args->lines = (uint32_t)lines;
    args->span = (uint32_t)span;
}

static ncclResult_t launch_batch(const struct bl_call *const *calls, struct bl_batch_args *args, enum bl_kernel kernel,
                                 int datatype, const struct bl_route *route, struct launches *launches) {
    struct bl_route grid = *route;
    struct bl_batch_few_args few;
    const bool is_few = bl_kernel_few(kernel);
    grid.kernel = kernel;
    if (is_few) bl_batch_few(&few, args);
    return launch_kernel(calls[0]->comm, &grid, datatype, calls[0]->stream, is_few ? (void *)&few : args, launches);
}

static ncclResult_t launch_messages(const struct bl_call *const *calls, int count, const struct bl_route *route,
                                    struct launches *launches) {
    const enum bl_kernel for_few = bl_algorithms[route->algorithm].few;
    const bool is_few = for_few != BL_KERNEL_NONE && count <= BL_BATCH_FEW;
    struct bl_batch_args args;
    fill_batch(&args, calls, count, route);
    return launch_batch(calls, &args, is_few ? for_few : route->kernel, calls[0]->request.datatype, route, launches);
}

/* The first of them that reduces, as all do that do; NULL: none does. */
static const struct bl_request *first_that_reduces(const struct bl_call *const *calls, int count) {
    for (int i = 0; i < count; i++)
        if (bl_collective_has(calls[i]->request.collective, BL_REDUCES)) return &calls[i]->request;
    return NULL;
}

/* Of several collectives. */
static ncclResult_t launch_mixed(const struct bl_call *const *calls, int count, const struct bl_route *route,
                                 struct launches *launches) {
    const struct bl_comm *comm = calls[0]->comm;
    const struct bl_request *reduced = first_that_reduces(calls, count);
    const int datatype = reduced ? reduced->datatype : BL_UINT8, redop = reduced ? reduced->redop : BL_SUM;
    struct bl_mixed all;
    struct bl_mixed_fill fill;
    struct bl_batch_args args;
    args.common = comm->args;
    bl_set_redop(&args.common, redop);
    args.common.call = bl_kernel_call(route->kernel, datatype, reduced ? redop : BL_REDOPS);
    args.common.count = (uint64_t)count; /* to be told */
    bl_mixed_begin(&all, comm->nranks);
    for (int i = 0; i < count; i++) {
        const struct bl_request *request = &calls[i]->request;
        bl_mixed_count(&all, (int)request->collective, (unsigned)request->root, bl_call_bytes(request));
    }
    bl_mixed_fill_begin(&fill, &args, &all);
    for (int i = 0; i < count; i++) {
        const struct bl_request *request = &calls[i]->request;
        bl_mixed_fill_add(&fill, (int)request->collective, (unsigned)request->root, calls[i]->sendbuff,
                          calls[i]->recvbuff, bl_call_bytes(request));
    }
    return launch_batch(calls, &args, all.messages <= BL_BATCH_FEW ? BL_KERNEL_MIXED_LL128_FEW : route->kernel,
                        datatype, route, launches);
}

/* In several launches, one behind the other, where one does not hold all. */
static ncclResult_t launch_pairs(const struct bl_call *const *calls, int count, const struct bl_route *route,
                                 struct launches *launches) {
    const struct bl_comm *comm = calls[0]->comm;
    const int datatype = calls[0]->request.datatype; /* the kernel is the same for all */
    ncclResult_t result = ncclSuccess;
    struct bl_pairs_args args;
    args.common = comm->args;
    args.common.call = bl_kernel_call(route->kernel, datatype, BL_SUM);
    for (int done = 0; done < count && result == ncclSuccess;) {
        struct bl_route grid = *route;
        struct bl_pairs_few_args few;
        done += bl_pairs_fill(&args, &grid, calls + done, count - done);
        grid.kernel = bl_pairs_kernel(&args, true);
        const bool is_few = !bl_kernel_batch(grid.kernel);
        if (is_few) bl_pairs_few(&few, &args);
        result = launch_kernel(comm, &grid, datatype, calls[0]->stream, is_few ? (void *)&few : &args, launches);
    }
    return result;
}

/* A communicator that ended while this call was on its way, or was collected by a group. */
static ncclResult_t ended(const struct bl_comm *comm) {
    const ncclResult_t error = (ncclResult_t)atomic_load(&comm->async_error);
    return error != ncclSuccess ? error : ncclInvalidUsage;
}

/* A call that failed: this rank is no longer where its peers are, so the communicator must not go on; but what a capture was
 * to hold the driver throws away with the graph, and what it refuses because something captures is refused on all ranks. */
static void fail(struct bl_comm *comm, const struct bl_order_turn *turn, const struct bl_route *route,
                 const struct launches *launches, ncclResult_t error) {
    const CUresult status = launches->status == CUDA_SUCCESS ? bl_order_failure() : launches->status;
    const bool refused =
        status >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && status <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    bl_room_taken(comm);
    if (turn->capturing || (refused && !launches->launched)) return;
    bl_comm_break(comm, error, "Beeline: a call of %s on rank %d of %d failed half way, and its peers count on it",
                  bl_kernel_name(route->kernel), comm->rank, comm->nranks);
}

/* Before and after what is launched on the stream. */
static ncclResult_t turn_begin(struct bl_comm *comm, CUstream stream, struct bl_route *route,
                               struct bl_order_turn *turn) {
    bl_order_ask(stream, turn);
    const bool waits = route->kernel != BL_KERNEL_ALLGATHER_CE; /* whose kernels begin when all is there */
    ncclResult_t result = bl_order_before(comm, stream, turn);
    if (result == ncclSuccess && waits) result = bl_room_take(comm, stream, turn, route->kernel, &route->blocks);
    comm->order.served = true; /* a launch that fails half way may have left something, too */
    return result;
}

static ncclResult_t turn_end(struct bl_comm *comm, CUstream stream, const struct bl_order_turn *turn) {
    const ncclResult_t result = bl_order_after(comm, stream, turn);
    bl_room_taken(comm);
    return result;
}

static ncclResult_t launch(const struct bl_call *const *calls, int count, const struct bl_route *route,
                           const struct bl_order_turn *turn, uint64_t *done, struct launches *launches) {
    const bool copies = route->kernel == BL_KERNEL_ALLGATHER_CE, pairs = bl_kernel_pairs(route->kernel);
    if (count == 1 && !copies && !pairs && !bl_kernel_mixed(route->kernel))
        return launch_message(calls[0], route, SOME_PIECES, done, launches);
    *done = calls[0]->request.count;
    if (copies) return bl_copy_launch(calls[0], turn);
    if (pairs) return launch_pairs(calls, count, route, launches);
    return bl_kernel_mixed(route->kernel) ? launch_mixed(calls, count, route, launches)
                                          : launch_messages(calls, count, route, launches);
}

static void count_calls(struct bl_comm *comm, const struct bl_call *const *calls, int count,
                        const struct bl_route *route) {
    for (int i = 0; i < count; i++) bl_stats_count(comm, &calls[i]->request, (int)route->kernel);
    if (comm->stats) comm->stats->batches += count > 1;
}

ncclResult_t bl_launch_some(const struct bl_call *const *calls, int count, uint64_t *done) {
    struct bl_comm *comm = calls[0]->comm;
    struct bl_order_turn turn;
    struct bl_visit visit;
    struct bl_route route = calls[0]->route;
    struct launches launches = {false, *done > 0, CUDA_SUCCESS};
    const CUstream stream = calls[0]->stream;
    if (bl_kernel_pairs(route.kernel)) bl_pairs_grid(calls, count, &route);
    if (!bl_comm_visit(comm, &visit)) return ended(comm);
    ncclResult_t result = turn_begin(comm, stream, &route, &turn);
    launches.captured = turn.capturing;
    if (result == ncclSuccess) result = launch(calls, count, &route, &turn, done, &launches);
    if (result == ncclSuccess) result = turn_end(comm, stream, &turn);
    if (result == ncclSuccess && *done == calls[0]->request.count) count_calls(comm, calls, count, &route);
    if (result != ncclSuccess) fail(comm, &turn, &route, &launches, result);
    bl_comm_leave(comm, &visit);
    return result;
}

ncclResult_t bl_launch(const struct bl_call *const *calls, int count) {
    uint64_t done = 0;
    ncclResult_t result;
    do result = bl_launch_some(calls, count, &done);
    while (result == ncclSuccess && done < calls[0]->request.count);
    return result;
}

ncclResult_t bl_launch_bare(const struct bl_call *call) {
    struct launches launches = {true, 0, CUDA_SUCCESS};
    uint64_t done = 0;
    if (!bl_kernel_pairs(call->route.kernel)) return launch_message(call, &call->route, UINT64_MAX, &done, &launches);
    struct bl_call ends[2];
    bl_call_around(call, ends);
    const struct bl_call *const both[] = {&ends[0], &ends[1]};
    return launch_pairs(both, 2, &call->route, &launches);
}

ncclResult_t bl_launch_check(const struct bl_call *const *calls, int count) {
    return bl_kernel_pairs(calls[0]->route.kernel) ? bl_pairs_check(calls, count) : ncclSuccess;
}
