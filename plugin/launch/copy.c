#include "copy.h"

#include <stddef.h>

#include "base/clock.h"
#include "base/log.h"
#include "order.h"
#include "base/params.h"
#include "base/why.h"

/* Blocks that empty a slot, for each multiprocessor.  Two find room beside a large matrix product at a time (allgather_ce.cu); of more, those
 * multiprocessors that have room first carry most.  Measured on H200 (docs/notebook.md): between 2 GPUs many are faster, between 4 only of
 * blocks of a rank that are not long. */
enum { FEW_BLOCKS = 2, MANY_BLOCKS = 8, MOST_BLOCKS = 32, BYTES_OF_A_BLOCK = 2048 /* that it copies at a time */ };
static const uint64_t LONG_BLOCK = 16 << 20;

/* Streams share the queues of the hardware, in which what waits holds up what is behind it: with fewer, what the copies are to
 * run beside would wait with the sending or the emptying. */
enum { QUEUES = 3 };

static const uint64_t ABORT_STREAM_NS = 1000000000; /* time for the abort stream */

/* The slot of a rank for what the rank `steps` before it sends. */
static CUdeviceptr slot_of(const struct bl_comm *comm, int rank, unsigned slot, int steps) {
    const struct bl_staging_layout *layout = &comm->args.layout;
    return (CUdeviceptr)(uintptr_t)comm->args.staging[rank] + layout->copy_offset +
           (slot * (uint64_t)(comm->nranks - 1) + (uint64_t)(steps - 1)) * layout->copy_bytes;
}
static CUdeviceptr words_of(const struct bl_comm *comm, int rank) {
    return slot_of(comm, rank, bl_copy_slots(comm->nranks), 1);
}
static CUdeviceptr ready_of(const struct bl_comm *comm, int receiver, unsigned slot, int sender) {
    return words_of(comm, receiver) + offsetof(struct bl_copy_words, ready) +
           sizeof(uint32_t) * (slot * BL_MAX_RANKS + (unsigned)sender);
}
static CUdeviceptr busy_of(const struct bl_comm *comm, int sender, unsigned slot, int receiver) {
    return words_of(comm, sender) + offsetof(struct bl_copy_words, busy) +
           sizeof(uint32_t) * (slot * BL_MAX_RANKS + (unsigned)receiver);
}

/* Steps after which a slot's turn comes again. */
static int in_turn(const struct bl_comm *comm) {
    return (int)bl_copy_slots(comm->nranks) * (comm->nranks - 1);
}

bool bl_copy_possible(void) {
    const int queues = bl_params_connections();
    if (!bl_driver() || !bl_driver()->cuStreamBatchMemOp) {
        bl_fail("its driver has no stream memory operations");
    } else if (queues > 0 && queues < QUEUES) {
        bl_fail("CUDA_DEVICE_MAX_CONNECTIONS=%d: at least %d are needed", queues, QUEUES);
    } else {
        return true;
    }
    return false;
}

int bl_copy_open(struct bl_comm *comm) {
    const struct bl_driver *cu = bl_driver();
    struct bl_copy *copy = &comm->copy;
    if (!comm->args.layout.copy_bytes) return 0;
    CUresult status = bl_driver_urgent_stream(&copy->drain_stream);
    if (status == CUDA_SUCCESS) status = cu->cuStreamCreate(&copy->abort_stream, CU_STREAM_NON_BLOCKING);
    if (status == CUDA_SUCCESS) status = cu->cuEventCreate(&copy->fork, CU_EVENT_DISABLE_TIMING);
    if (status == CUDA_SUCCESS) status = cu->cuEventCreate(&copy->join, CU_EVENT_DISABLE_TIMING);
    for (int k = 0; k < in_turn(comm) && status == CUDA_SUCCESS; k++)
        status = cu->cuEventCreate(&copy->emptied[k], CU_EVENT_DISABLE_TIMING);
    if (status == CUDA_SUCCESS) return 0;
    return bl_fail("streams for the copy engines: %s", bl_driver_strerror(status));
}

/* A context of its own has queues of its own: each of the communicator's may be held by a stream that waits for what waits.
 * Made when it is needed, since it takes memory of the GPU.  It stays current on no thread. */
static bool open_own(struct bl_comm *comm) {
    struct bl_copy *copy = &comm->copy;
    CUcontext popped;
    const struct bl_driver *cu = bl_driver();
    if (copy->own || !cu->cuCtxCreate) return copy->own;
    CUresult status = cu->cuCtxCreate(&copy->own, NULL, 0, comm->device);
    if (status != CUDA_SUCCESS) {
        bl_warn("communicator %016llx rank %d: no context to end the waits of its copy engines from: %s",
                (unsigned long long)comm->id, comm->rank, bl_driver_strerror(status));
        copy->own = NULL;
        copy->held_ns = bl_clock_ns();
        return false;
    }
    cu->cuCtxPopCurrent(&popped);
    return true;
}

/* What was let go last may be on its way to memory that is freed next. */
static void await_abort_streams(const struct bl_copy *copy) {
    const struct bl_driver *cu = bl_driver();
    CUcontext popped;
    if (copy->abort_stream) cu->cuStreamSynchronize(copy->abort_stream);
    if (!copy->own || cu->cuCtxPushCurrent(copy->own) != CUDA_SUCCESS) return;
    cu->cuCtxSynchronize();
    cu->cuCtxPopCurrent(&popped);
}

static void close_own(struct bl_copy *copy) {
    if (copy->own && bl_driver()->cuCtxDestroy) bl_driver()->cuCtxDestroy(copy->own);
}

void bl_copy_close(struct bl_comm *comm) {
    const struct bl_driver *cu = bl_driver();
    struct bl_copy *copy = &comm->copy;
    await_abort_streams(copy);
    if (copy->drain_stream) cu->cuStreamDestroy(copy->drain_stream);
    if (copy->abort_stream) cu->cuStreamDestroy(copy->abort_stream);
    close_own(copy);
    if (copy->fork) cu->cuEventDestroy(copy->fork);
    if (copy->join) cu->cuEventDestroy(copy->join);
    for (int k = 0; k < BL_MAX_RANKS; k++)
        if (copy->emptied[k]) cu->cuEventDestroy(copy->emptied[k]);
    *copy = (struct bl_copy){0};
}

/* False where the stream has yet to do what it was told before. */
static bool let_go_by(struct bl_comm *comm, CUstream abort_stream) {
    const size_t words = 2 * BL_MAX_RANKS;
    if (bl_driver()->cuStreamQuery(abort_stream) == CUDA_ERROR_NOT_READY) return false;
    bl_driver()->cuMemsetD32Async(ready_of(comm, comm->rank, 0, 0), 1, words, abort_stream);
    bl_driver()->cuMemsetD32Async(busy_of(comm, comm->rank, 0, 0), 0, words, abort_stream);
    return true;
}

void bl_copy_let_go(struct bl_comm *comm) {
    struct bl_copy *copy = &comm->copy;
    CUcontext popped;
    if (let_go_by(comm, copy->abort_stream))
        copy->held_ns = 0;
    else if (!copy->held_ns)
        copy->held_ns = bl_clock_ns();
    else if (bl_clock_ns() - copy->held_ns > ABORT_STREAM_NS && open_own(comm) &&
             bl_driver()->cuCtxPushCurrent(copy->own) == CUDA_SUCCESS) {
        let_go_by(comm, NULL); /* that context's own stream */
        bl_driver()->cuCtxPopCurrent(&popped);
    }
}

/* --- one call --- */

/* A batch of memory operations that is being put together. */
struct ops {
    CUstreamBatchMemOpParams op[4];
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
    return count ? bl_driver()->cuStreamBatchMemOp(stream, count, ops->op, 0) : CUDA_SUCCESS;
}

/* Each rank's block is cut into as many pieces, which take the slots in turn: as few as can be, since each costs its
 * hand-over. */
struct pieces {
    uint64_t block, bytes, count; /* bytes: of each piece but the last */
};

static struct pieces cut(const struct bl_call *call) {
    const uint64_t room = call->comm->args.layout.copy_bytes;
    struct pieces p = {.block = bl_call_bytes(&call->request)};
    const uint64_t count = (p.block + room - 1) / room;
    p.bytes = ((p.block + count - 1) / count + 15) / 16 * 16;
    p.count = (p.block + p.bytes - 1) / p.bytes;
    return p;
}
static uint64_t bytes_of(const struct pieces *p, uint64_t k) {
    return k + 1 < p->count ? p->bytes : p->block - k * p->bytes;
}

/* A step of a call: piece k goes to the rank `steps` ahead and comes from the rank as far behind. */
struct step {
    const struct bl_call *call;
    const struct pieces *pieces;
    uint64_t k;
    int steps, to, from;
    unsigned slot;
};

static struct step step_at(const struct bl_call *call, const struct pieces *pieces, uint64_t k, int steps) {
    const int rank = call->comm->rank, nranks = call->comm->nranks;
    return (struct step){call,
                         pieces,
                         k,
                         steps,
                         (rank + steps) % nranks,
                         (rank + nranks - steps) % nranks,
                         (unsigned)(k % bl_copy_slots(nranks))};
}

/* Puts the piece into the peer's slot, once that has been emptied, and says so.  One step after the other on one stream: to
 * each rank comes from one at a time then, as long as all keep in step; several at a time take longer in all (measured). */
static CUresult send(const struct step *s) {
    const struct bl_call *call = s->call;
    const struct bl_comm *comm = call->comm;
    const CUdeviceptr busy = busy_of(comm, comm->rank, s->slot, s->to);
    struct ops ops = {.count = 0};
    wait_for(&ops, busy, 0);
    write(&ops, busy, 1);
    CUresult status = submit(&ops, call->stream);
    if (status == CUDA_SUCCESS)
        status = bl_driver()->cuMemcpyDtoDAsync(slot_of(comm, s->to, s->slot, s->steps),
                                                (CUdeviceptr)(uintptr_t)call->sendbuff + s->k * s->pieces->bytes,
                                                bytes_of(s->pieces, s->k), call->stream);
    write(&ops, ready_of(comm, s->to, s->slot, comm->rank), 1);
    return status == CUDA_SUCCESS ? submit(&ops, call->stream) : status;
}

/* `narrow`: so many accesses are one of 16 bytes, and take as many threads. */
static unsigned blocks_to_empty(const struct step *s, uint64_t bytes, unsigned narrow) {
    const bool many = s->call->comm->nranks == 2 || s->pieces->block <= LONG_BLOCK;
    const unsigned each = (many ? MANY_BLOCKS : FEW_BLOCKS) * narrow;
    const uint64_t blocks = s->call->route.blocks * (each < MOST_BLOCKS ? each : MOST_BLOCKS);
    const uint64_t useful = (bytes * narrow + BYTES_OF_A_BLOCK - 1) / BYTES_OF_A_BLOCK;
    return (unsigned)(useful < blocks ? useful : blocks);
}

/* Copies what has come to its place, and with the first of each piece this rank's own, once it is there: so no
 * multiprocessor is held while a peer is late. */
static CUresult empty(const struct step *s, CUstream stream) {
    const struct bl_call *call = s->call;
    const struct bl_comm *comm = call->comm;
    const uint64_t offset = s->k * s->pieces->bytes;
    const CUdeviceptr ready = ready_of(comm, comm->rank, s->slot, s->from);
    const char *own = (const char *)call->sendbuff + offset;
    char *to = (char *)call->recvbuff + offset;
    struct bl_copy_args args = {
        .slot = (const void *)(uintptr_t)slot_of(comm, comm->rank, s->slot, s->steps),
        .slot_to = to + (uint64_t)s->from * s->pieces->block,
        .own = own,
        .own_to = s->steps == 1 ? to + (uint64_t)comm->rank * s->pieces->block : (void *)(uintptr_t)own,
        .bytes = bytes_of(s->pieces, s->k),
        .emptied = (uint64_t *)(uintptr_t)(words_of(comm, comm->rank) + offsetof(struct bl_copy_words, emptied)),
        .busy = (uint32_t *)(uintptr_t)busy_of(comm, s->from, s->slot, comm->rank)};
    struct ops ops = {.count = 0};
    wait_for(&ops, ready, 1);
    write(&ops, ready, 0);
    CUresult status = submit(&ops, stream);
    const uint64_t places =
        (uint64_t)(uintptr_t)args.slot_to | (uint64_t)(uintptr_t)args.own | (uint64_t)(uintptr_t)args.own_to | 16;
    const unsigned blocks = blocks_to_empty(s, args.bytes, (unsigned)(16 / (places & -places)));
    return status == CUDA_SUCCESS ? bl_driver_launch(comm->function[BL_KERNEL_ALLGATHER_CE][call->request.datatype],
                                                     blocks, call->route.threads, 0, false, stream, &args)
                                  : status;
}

static CUresult wait_for_stream(CUstream waiting, CUstream stream, CUevent event) {
    CUresult status = bl_driver()->cuEventRecord(event, stream);
    return status == CUDA_SUCCESS ? bl_driver()->cuStreamWaitEvent(waiting, event, CU_EVENT_WAIT_DEFAULT) : status;
}

/* A step on two streams, which may share a queue of the hardware, where what waits holds up all that is behind it, and so, in a
 * circle over ranks, could hold up itself.  It does not where each rank empties in step j behind its own sending of step j, and
 * sends in step j behind its own emptying of step j - in_turn: what a step waits for at a peer is then held up by earlier
 * steps alone.  Eager work goes into queues as it is submitted, in that order; branches of a graph in any that its edges
 * allow, so `captured` ones get these edges. */
static CUresult send_and_empty(const struct step *s, uint64_t j, CUstream drain_stream, bool captured) {
    const struct bl_driver *cu = bl_driver();
    const struct bl_call *call = s->call;
    const struct bl_copy *copy = &call->comm->copy;
    const uint64_t turn = (uint64_t)in_turn(call->comm);
    CUresult status = CUDA_SUCCESS;
    if (captured && j >= turn)
        status = cu->cuStreamWaitEvent(call->stream, copy->emptied[j % turn], CU_EVENT_WAIT_DEFAULT);
    if (status == CUDA_SUCCESS) status = send(s);
    if (captured && status == CUDA_SUCCESS) status = wait_for_stream(drain_stream, call->stream, copy->fork);
    if (status == CUDA_SUCCESS) status = empty(s, drain_stream);
    if (captured && status == CUDA_SUCCESS) status = cu->cuEventRecord(copy->emptied[j % turn], drain_stream);
    return status;
}

static CUresult gather(const struct bl_call *call, const struct bl_order_turn *turn) {
    const struct bl_comm *comm = call->comm;
    const struct bl_copy *copy = &comm->copy;
    const struct pieces pieces = cut(call);
    struct bl_order_turn ours;
    bl_order_ask(copy->drain_stream, &ours);
    /* The communicator's own stream is not to be had while another graph than the caller's captures it, which it does until its
     * own capture ends.  Then the caller's stream does it all, one after the other: slower, and never in its own way. */
    const bool apart = !ours.capturing || (turn->capturing && turn->capture == ours.capture);
    const CUstream drain_stream = apart ? copy->drain_stream : call->stream;
    CUresult status = apart ? wait_for_stream(drain_stream, call->stream, copy->fork) : CUDA_SUCCESS;
    uint64_t j = 0;
    for (uint64_t k = 0; k < pieces.count; k++)
        for (int steps = 1; steps < comm->nranks && status == CUDA_SUCCESS; steps++) {
            const struct step step = step_at(call, &pieces, k, steps);
            status = send_and_empty(&step, j++, drain_stream, apart && turn->capturing);
        }
    if (!apart) return status;
    struct ops end = {.count = 0};
    /* After a failure, too: a capture has to have one end. */
    const CUresult joined = wait_for_stream(call->stream, drain_stream, copy->join);
    if (status == CUDA_SUCCESS) status = joined;
    /* So that the call has one end: order.c looks for it in captures. */
    write(&end, words_of(comm, comm->rank) + offsetof(struct bl_copy_words, end), 0);
    return status == CUDA_SUCCESS ? submit(&end, call->stream) : status;
}

ncclResult_t bl_copy_launch(const struct bl_call *call, const struct bl_order_turn *turn) {
    struct bl_comm *comm = call->comm;
    CUresult status = gather(call, turn);
    if (status == CUDA_SUCCESS) return ncclSuccess;
    comm->copy.broken = true;
    bl_comm_break(comm, ncclUnhandledCudaError,
                  "Beeline: an all-gather by the copy engines on rank %d of %d failed half way: %s", comm->rank,
                  comm->nranks, bl_driver_strerror(status));
    return ncclUnhandledCudaError;
}
