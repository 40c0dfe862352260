/* calls.c - the collectives as called: arguments are checked, then they join the thread's group. */
#include <stdlib.h>

#include "emu_nccl.h"

enum who { NOBODY, EVERYBODY, ROOT };

/* What a call must bring along. */
static const struct {
    const char *name;
    bool reduces, has_peer; /* a root or a peer */
    enum who needs_sendbuff, needs_recvbuff;
} collectives[EMU_COLLECTIVES + 1] = {
    [EMU_ALLREDUCE] = {"ncclAllReduce", true, false, EVERYBODY, EVERYBODY},
    [EMU_ALLGATHER] = {"ncclAllGather", false, false, EVERYBODY, EVERYBODY},
    [EMU_REDUCESCATTER] = {"ncclReduceScatter", true, false, EVERYBODY, EVERYBODY},
    [EMU_BROADCAST] = {"ncclBroadcast", false, true, ROOT, EVERYBODY},
    [EMU_REDUCE] = {"ncclReduce", true, true, EVERYBODY, ROOT},
    [EMU_SEND] = {"ncclSend", false, true, EVERYBODY, NOBODY},
    [EMU_RECV] = {"ncclRecv", false, true, NOBODY, EVERYBODY},
    [EMU_ALLTOALL] = {"ncclAlltoAll", false, false, EVERYBODY, EVERYBODY},
    [EMU_GATHER] = {"ncclGather", false, true, EVERYBODY, ROOT},
    [EMU_SCATTER] = {"ncclScatter", false, true, ROOT, EVERYBODY},
};

const char *emu_collective_name(enum emu_collective collective) {
    return collectives[collective].name;
}

static bool is_needed(enum who needs, bool is_root) {
    return needs == EVERYBODY || (needs == ROOT && is_root);
}

static bool lacks(enum who needs, const void *buffer, bool is_root) {
    return !buffer && is_needed(needs, is_root);
}

static bool checks_pointers(void) {
    const char *text = getenv("NCCL_CHECK_POINTERS");
    return text && strtoll(text, NULL, 0) != 0;
}
/* One that the driver does not know, or another GPU's. */
static bool is_wrong(enum who needs, const void *buffer, bool is_root, CUdevice device) {
    const CUdeviceptr address = (CUdeviceptr)buffer;
    unsigned type = 0;
    unsigned char managed = 0;
    int owner = -1;
    if (!is_needed(needs, is_root)) return false;
    if (cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)) return true;
    cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address);
    cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
    return type == CU_MEMORYTYPE_DEVICE && !managed && owner != device;
}

static ncclResult_t find_redop(ncclComm_t comm, int redop, struct emu_redop *found) {
    int index = (redop - ncclNumOps) & 0xff, salt = (redop - ncclNumOps) >> 8;
    if (redop >= 0 && redop < ncclNumOps) {
        *found = (struct emu_redop){.kind = redop};
        return ncclSuccess;
    }
    if (redop < 0 || salt != emu_redop_salt(comm) || index >= EMU_MAX_REDOPS || !comm->redop_used[index])
        return emu_fail(ncclInvalidArgument, "invalid reduction operation %d", redop);
    *found = comm->redops[index];
    return ncclSuccess;
}

static ncclResult_t check(const struct emu_op *op, ncclComm_t comm, int redop) {
    const char *name = collectives[op->collective].name;
    bool is_root = comm->rank == op->peer;
    if (emu_datatype_size(op->datatype) == 0)
        return emu_fail(ncclInvalidArgument, "%s : invalid type %d", name, op->datatype);
    if (op->peer < 0 || op->peer >= comm->nranks)
        return emu_fail(ncclInvalidArgument, "%s : invalid root %d (root should be in the 0..%d range)", name, op->peer,
                        comm->nranks);
    if (op->count && lacks(collectives[op->collective].needs_sendbuff, op->sendbuff, is_root))
        return emu_fail(ncclInvalidArgument, "%s : sendbuff argument is NULL", name);
    if (op->count && lacks(collectives[op->collective].needs_recvbuff, op->recvbuff, is_root))
        return emu_fail(ncclInvalidArgument, "%s : recvbuff argument is NULL", name);
    if (!checks_pointers() || (!op->count && emu_is_p2p(op))) return ncclSuccess;
    if (is_wrong(collectives[op->collective].needs_sendbuff, op->sendbuff, is_root, comm->device))
        return emu_fail(ncclInvalidArgument, "%s : sendbuff %p is not a valid pointer", name, op->sendbuff);
    if (is_wrong(collectives[op->collective].needs_recvbuff, op->recvbuff, is_root, comm->device))
        return emu_fail(ncclInvalidArgument, "%s : recvbuff %p is not a valid pointer", name, op->recvbuff);
    return ncclSuccess;
}

/* A send or receive of one block of a buffer. */
static ncclResult_t add_p2p(const struct emu_op *op, enum emu_collective collective, int block, int peer,
                            const struct emu_task *call) {
    size_t offset = (size_t)block * op->count * emu_datatype_size(op->datatype);
    struct emu_op part = *op;
    part.collective = collective;
    part.peer = peer;
    if (collective == EMU_SEND)
        part.sendbuff = (const char *)op->sendbuff + offset;
    else
        part.recvbuff = (char *)op->recvbuff + offset;
    return emu_group_add_task(&part, call);
}

static ncclResult_t add(const struct emu_op *op, const struct emu_task *call) {
    ncclResult_t result = ncclSuccess;
    bool is_root = call->comm->rank == op->peer;
    if (op->collective < EMU_DIRECT) return emu_group_add_task(op, call);
    if (op->collective == EMU_GATHER) result = add_p2p(op, EMU_SEND, 0, op->peer, call);
    for (int r = 0; r < call->comm->nranks && result == ncclSuccess; r++) {
        if (op->collective == EMU_ALLTOALL || (op->collective == EMU_SCATTER && is_root))
            result = add_p2p(op, EMU_SEND, r, r, call);
        if (result == ncclSuccess && (op->collective == EMU_ALLTOALL || (op->collective == EMU_GATHER && is_root)))
            result = add_p2p(op, EMU_RECV, r, r, call);
    }
    if (result == ncclSuccess && op->collective == EMU_SCATTER) result = add_p2p(op, EMU_RECV, 0, op->peer, call);
    return result;
}

static ncclResult_t enqueue(struct emu_op *op, int redop, ncclComm_t comm, CUstream stream, const char *function) {
    struct emu_call call = {function,
                            emu_comm_rank(comm),
                            (long long)op->count,
                            op->datatype,
                            collectives[op->collective].reduces ? redop : -1,
                            stream,
                            true};
    /* Its generation before it is looked at: what is found of it is this one's, or its launch notices. */
    const struct emu_task task = {.comm = comm, .stream = stream, .generation = comm ? comm->generation : 0};
    emu_group_start();
    ncclResult_t result = emu_call_enter(&call, comm), end;
    if (result == ncclSuccess) result = emu_comm_ready(comm);
    if (result == ncclSuccess) result = check(op, comm, redop);
    if (result == ncclSuccess && collectives[op->collective].reduces) result = find_redop(comm, redop, &op->redop);
    /* Nothing is left of an empty collective; an empty message is one, for which its receiver waits. */
    const bool message = op->collective == EMU_SEND || op->collective == EMU_RECV;
    const bool something = op->count || message;
    unsigned long long capture; /* NCCL asks at once, which the legacy stream beside a capture is too much for */
    if (result == ncclSuccess && something) result = emu_capture_id(stream, &capture);
    if (result == ncclSuccess && something) result = add(op, &task);
    if (result != ncclSuccess) emu_group_error(result);
    end = emu_group_end(NULL);
    return emu_call_leave(&call, result != ncclSuccess ? result : end);
}

#define ENQUEUE(collective_, sendbuff_, recvbuff_, count_, op_, peer_)                                                 \
    struct emu_op operation = {.collective = collective_,                                                              \
                               .sendbuff = sendbuff_,                                                                  \
                               .recvbuff = recvbuff_,                                                                  \
                               .count = count_,                                                                        \
                               .datatype = datatype,                                                                   \
                               .peer = peer_};                                                                         \
    return enqueue(&operation, op_, comm, stream, __func__)

EMU_API(ncclResult_t, ncclAllReduce, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    ENQUEUE(EMU_ALLREDUCE, sendbuff, recvbuff, count, op, 0);
}

EMU_API(ncclResult_t, ncclAllGather, const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
        ncclComm_t comm, cudaStream_t stream) {
    ENQUEUE(EMU_ALLGATHER, sendbuff, recvbuff, sendcount, ncclSum, 0);
}

EMU_API(ncclResult_t, ncclReduceScatter, const void *sendbuff, void *recvbuff, size_t recvcount,
        ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    ENQUEUE(EMU_REDUCESCATTER, sendbuff, recvbuff, recvcount, op, 0);
}

EMU_API(ncclResult_t, ncclBroadcast, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
        int root, ncclComm_t comm, cudaStream_t stream) {
    ENQUEUE(EMU_BROADCAST, sendbuff, recvbuff, count, ncclSum, root);
}

/* Through the PLT, as the real one does: what stands in front is called again. */
EMU_API(ncclResult_t, ncclBcast, void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
        cudaStream_t stream) {
    struct emu_call call = {__func__, emu_comm_rank(comm), (long long)count, datatype, -1, stream, true};
    ncclResult_t result = emu_call_enter(&call, comm);
    if (result == ncclSuccess)
        result = ncclBroadcast(buff, buff, count, datatype, root, comm, stream);
    else
        emu_group_error(result);
    return emu_call_leave(&call, result);
}

EMU_API(ncclResult_t, ncclReduce, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
    ENQUEUE(EMU_REDUCE, sendbuff, recvbuff, count, op, root);
}

EMU_API(ncclResult_t, ncclAlltoAll, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
        ncclComm_t comm, cudaStream_t stream) {
    ENQUEUE(EMU_ALLTOALL, sendbuff, recvbuff, count, ncclSum, 0);
}

EMU_API(ncclResult_t, ncclGather, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
        ncclComm_t comm, cudaStream_t stream) {
    ENQUEUE(EMU_GATHER, sendbuff, recvbuff, count, ncclSum, root);
}

EMU_API(ncclResult_t, ncclScatter, const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
        int root, ncclComm_t comm, cudaStream_t stream) {
    ENQUEUE(EMU_SCATTER, sendbuff, recvbuff, count, ncclSum, root);
}

EMU_API(ncclResult_t, ncclSend, const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
        cudaStream_t stream) {
    ENQUEUE(EMU_SEND, sendbuff, NULL, count, ncclSum, peer);
}

EMU_API(ncclResult_t, ncclRecv, void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
        cudaStream_t stream) {
    ENQUEUE(EMU_RECV, NULL, recvbuff, count, ncclSum, peer);
}
