#include "copy.h"

#include <stdio.h>

#include "log.h"
#include "order.h"

enum { SLOTS = 2 };
enum word { READY, BUSY, WORDS }; /* copy.h */

_Static_assert(WORDS *SLOTS *BL_MAX_RANKS * sizeof(cuuint32_t) == BL_COPY_WORDS_BYTES, "the layout has room for them");

static CUdeviceptr slots_of(const struct bl_comm *comm, int rank) {
    return (CUdeviceptr)(uintptr_t)comm->args.staging[rank] + comm->args.layout.copy_offset;
}
static CUdeviceptr slot_of(const struct bl_comm *comm, int rank, unsigned slot) {
    return slots_of(comm, rank) + slot * comm->args.layout.copy_bytes;
}
static CUdeviceptr words_of(const struct bl_comm *comm, int rank) {
    return slot_of(comm, rank, SLOTS);
}
/* The word at `owner` that it shares with `peer`. */
static CUdeviceptr word_of(const struct bl_comm *comm, int owner, enum word word, unsigned slot, int peer) {
    return words_of(comm, owner) +
           sizeof(cuuint32_t) * ((unsigned)(word * SLOTS + slot) * BL_MAX_RANKS + (unsigned)peer);
}

bool bl_copy_possible(void) {
    return bl_driver() && bl_driver()->cuStreamBatchMemOp;
}

int bl_copy_open(struct bl_comm *comm, char *why, size_t size) {
    const struct bl_driver *cu = bl_driver();
    struct bl_copy *copy = &comm->copy;
    if (!comm->args.layout.copy_bytes) return 0;
    int lowest, highest;
    CUresult status = cu->cuCtxGetStreamPriorityRange(&lowest, &highest);
    if (status == CUDA_SUCCESS) status = cu->cuStreamCreateWithPriority(&copy->filler, CU_STREAM_NON_BLOCKING, highest);
    for (int i = 0; i < BL_COPY_FETCHERS - 1 && status == CUDA_SUCCESS; i++)
        status = cu->cuStreamCreate(&copy->fetcher[i], CU_STREAM_NON_BLOCKING);
    if (status == CUDA_SUCCESS) status = cu->cuStreamCreate(&copy->rescuer, CU_STREAM_NON_BLOCKING);
    if (status == CUDA_SUCCESS) status = cu->cuEventCreate(&copy->fork, CU_EVENT_DISABLE_TIMING);
    if (status == CUDA_SUCCESS) status = cu->cuEventCreate(&copy->join, CU_EVENT_DISABLE_TIMING);
    if (status == CUDA_SUCCESS) return 0;
    snprintf(why, size, "streams for the copy engines: %s", bl_driver_strerror(status));
    return -1;
}

void bl_copy_close(struct bl_comm *comm) {
    const struct bl_driver *cu = bl_driver();
    struct bl_copy *copy = &comm->copy;
    if (copy->filler) cu->cuStreamDestroy(copy->filler);
    for (int i = 0; i < BL_COPY_FETCHERS - 1; i++)
        if (copy->fetcher[i]) cu->cuStreamDestroy(copy->fetcher[i]);
    if (copy->rescuer) cu->cuStreamDestroy(copy->rescuer);
    if (copy->fork) cu->cuEventDestroy(copy->fork);
    if (copy->join) cu->cuEventDestroy(copy->join);
    *copy = (struct bl_copy){0};
}

void bl_copy_let_go(struct bl_comm *comm) {
    const struct bl_driver *cu = bl_driver();
    if (!comm->copy.rescuer) return;
    const size_t words = SLOTS * BL_MAX_RANKS;
    cu->cuMemsetD32Async(words_of(comm, comm->rank), 1, words, comm->copy.rescuer); /* ready */
    cu->cuMemsetD32Async(words_of(comm, comm->rank) + words * sizeof(cuuint32_t), 0, words, comm->copy.rescuer);
}

/* --- one call --- */

/* A batch of memory operations that is being put together. */
struct ops {
    CUstreamBatchMemOpParams op[2 * BL_MAX_RANKS + 1];
    unsigned count;
};

static void wait_for(struct ops *ops, CUdeviceptr word, cuuint32_t value) {
    ops->op[ops->count++] = (CUstreamBatchMemOpParams){.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
                                                                     .address = word,
                                                                     .value = value,
                                                                     .flags = CU_STREAM_WAIT_VALUE_EQ}};
}
static void write(struct ops *ops, CUdeviceptr word, cuuint32_t value) {
    ops->op[ops->count++] = (CUstreamBatchMemOpParams){.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
                                                                      .address = word,
                                                                      .value = value,
                                                                      .flags = CU_STREAM_WRITE_VALUE_DEFAULT}};
}
static CUresult submit(struct ops *ops, CUstream stream) {
    const unsigned count = ops->count;
    ops->count = 0;
    return bl_driver()->cuStreamBatchMemOp(stream, count, ops->op, 0);
}

struct piece {
    uint64_t offset, bytes;
    unsigned slot;
};

static struct piece piece_at(const struct bl_comm *comm, uint64_t bytes, uint64_t k) {
    const uint64_t room = comm->args.layout.copy_bytes, offset = k * room;
    return (struct piece){offset, bytes - offset < room ? bytes - offset : room, (unsigned)(k % SLOTS)};
}

static int peer_at(const struct bl_comm *comm, int i) {
    return (comm->rank + i) % comm->nranks;
}

/* Copies a piece into its slot once the peers have fetched what was there, and tells them. */
static CUresult fill(const struct bl_comm *comm, CUdeviceptr block, const struct piece *piece, CUstream stream) {
    struct ops ops = {.count = 0};
    for (int i = 1; i < comm->nranks; i++) {
        const CUdeviceptr busy = word_of(comm, comm->rank, BUSY, piece->slot, peer_at(comm, i));
        wait_for(&ops, busy, 0);
        write(&ops, busy, 1);
    }
    CUresult status = submit(&ops, stream);
    if (status == CUDA_SUCCESS)
        status = bl_driver()->cuMemcpyDtoDAsync(slot_of(comm, comm->rank, piece->slot), block + piece->offset,
                                                piece->bytes, stream);
    for (int i = 1; i < comm->nranks; i++)
        write(&ops, word_of(comm, peer_at(comm, i), READY, piece->slot, comm->rank), 1);
    return status == CUDA_SUCCESS ? submit(&ops, stream) : status;
}

/* A stream that fetches, and the operations that are still to be submitted to it: what tells a peer that its slot was
 * fetched goes with the wait for the next one. */
struct lane {
    CUstream stream;
    struct ops ops;
    unsigned slot; /* whose peer is still to be told, if there are operations */
    bool used;
};

static CUresult fetch(const struct bl_comm *comm, CUdeviceptr recvbuff, uint64_t stride, const struct piece *piece,
                      int peer, struct lane *lane) {
    const CUdeviceptr ready = word_of(comm, comm->rank, READY, piece->slot, peer);
    wait_for(&lane->ops, ready, 1);
    write(&lane->ops, ready, 0);
    CUresult status = submit(&lane->ops, lane->stream);
    if (status == CUDA_SUCCESS)
        status = bl_driver()->cuMemcpyDtoDAsync(recvbuff + (uint64_t)peer * stride + piece->offset,
                                                slot_of(comm, peer, piece->slot), piece->bytes, lane->stream);
    write(&lane->ops, word_of(comm, peer, BUSY, piece->slot, comm->rank), 0);
    lane->slot = piece->slot;
    lane->used = true;
    return status;
}

/* Before a slot is filled again all peers are told that theirs was fetched: streams may share a queue of the hardware, where
 * what waits for a peer holds up all that is submitted behind it.  So every wait is for what peers submit before it. */
static CUresult tell_peers(struct lane *lanes, int count, unsigned slot) {
    CUresult status = CUDA_SUCCESS;
    for (int i = 0; i < count && status == CUDA_SUCCESS; i++)
        if (lanes[i].ops.count && lanes[i].slot == slot) status = submit(&lanes[i].ops, lanes[i].stream);
    return status;
}

static CUresult wait_for_stream(CUstream waiting, CUstream stream, CUevent event) {
    CUresult status = bl_driver()->cuEventRecord(event, stream);
    return status == CUDA_SUCCESS ? bl_driver()->cuStreamWaitEvent(waiting, event, CU_EVENT_WAIT_DEFAULT) : status;
}

/* The communicator's own streams are not to be had while another graph than the caller's captures them, which it does until its
 * own capture ends. */
static bool is_free(const struct bl_copy *copy, CUstream stream) {
    struct bl_order_turn ours, callers;
    bl_order_ask(copy->filler, &ours); /* it is captured wherever one of them is */
    bl_order_ask(stream, &callers);
    return !ours.capturing || (callers.capturing && callers.capture == ours.capture);
}

/* Several streams fetch, the caller's among them, so that the hand-over of one copy goes on beside another.  A peer's slot
 * always goes to the same one: its words tell one piece from the next by their order alone. */
static CUresult fetch_all(const struct bl_call *call, uint64_t bytes, const struct piece *piece, struct lane *lanes,
                          int count) {
    const struct bl_comm *comm = call->comm;
    CUresult status = CUDA_SUCCESS;
    for (int i = 1; i < comm->nranks && status == CUDA_SUCCESS; i++) {
        struct lane *lane = &lanes[((int)piece->slot * (comm->nranks - 1) + i - 1) % count];
        if (!lane->used && lane->stream != call->stream)
            status = bl_driver()->cuStreamWaitEvent(lane->stream, comm->copy.fork, CU_EVENT_WAIT_DEFAULT);
        if (status == CUDA_SUCCESS)
            status = fetch(comm, (CUdeviceptr)(uintptr_t)call->recvbuff, bytes, piece, peer_at(comm, i), lane);
    }
    return status;
}

static CUresult gather(const struct bl_call *call) {
    const struct bl_comm *comm = call->comm;
    const struct bl_copy *copy = &comm->copy;
    const CUdeviceptr block = (CUdeviceptr)(uintptr_t)call->sendbuff;
    const uint64_t bytes = call->request.count * bl_datatype_size(call->request.datatype);
    const uint64_t pieces = (bytes + comm->args.layout.copy_bytes - 1) / comm->args.layout.copy_bytes;
    const CUdeviceptr own = (CUdeviceptr)(uintptr_t)call->recvbuff + (uint64_t)comm->rank * bytes;
    struct lane lanes[BL_COPY_FETCHERS];
    /* Else the caller's stream does it all, fetching each piece behind filling its own: slower, and never in its own way. */
    const bool apart = is_free(copy, call->stream);
    const CUstream filler = apart ? copy->filler : call->stream;
    const int count = apart ? BL_COPY_FETCHERS : 1;
    for (int i = 0; i < count; i++) lanes[i] = (struct lane){.stream = i ? copy->fetcher[i - 1] : call->stream};
    CUresult status = apart ? wait_for_stream(filler, call->stream, copy->fork) : CUDA_SUCCESS;
    for (uint64_t k = 0; k < pieces && status == CUDA_SUCCESS; k++) {
        const struct piece piece = piece_at(comm, bytes, k);
        status = tell_peers(lanes, count, piece.slot);
        if (status == CUDA_SUCCESS) status = fill(comm, block, &piece, filler);
        if (status == CUDA_SUCCESS) status = fetch_all(call, bytes, &piece, lanes, count);
    }
    if (own != block && status == CUDA_SUCCESS) status = bl_driver()->cuMemcpyDtoDAsync(own, block, bytes, filler);
    if (apart && status == CUDA_SUCCESS) status = wait_for_stream(call->stream, filler, copy->join);
    for (int i = 1; i < count && status == CUDA_SUCCESS; i++) {
        if (!lanes[i].used) continue;
        status = submit(&lanes[i].ops, lanes[i].stream);
        if (status == CUDA_SUCCESS) status = wait_for_stream(call->stream, lanes[i].stream, copy->join);
    }
    /* Behind all, so that the call has one end: order.c looks for it in captures.  There are operations: the last piece or the
     * one before has used this stream, for slot 0. */
    return status == CUDA_SUCCESS ? submit(&lanes[0].ops, call->stream) : status;
}

ncclResult_t bl_copy_launch(const struct bl_call *call) {
    CUresult status = gather(call);
    if (status == CUDA_SUCCESS) return ncclSuccess;
    call->comm->copy.broken = true;
    bl_warn("all-gather by the copy engines on rank %d failed: %s", call->comm->rank, bl_driver_strerror(status));
    return ncclUnhandledCudaError;
}
