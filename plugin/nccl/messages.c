/* messages.c - the entry points of messages between two ranks: ncclSend, ncclRecv, and what is made of them, ncclGather and ncclScatter.
 *
 * A message's route follows from its bytes, which both ends know, and from nothing else: so both come to the same, whatever their
 * groups hold.  Those of a gather or a scatter are messages as any other, as they are for NCCL; all of them have one size, so all
 * are Beeline's, or none.
 */
#include "entry.h"
#include "group.h"
#include "real/config.h"
#include "serve.h"

static struct bl_call call_of(const void *sendbuff, void *recvbuff, bool receives, size_t count,
                              ncclDataType_t datatype, int peer, cudaStream_t stream) {
    return (struct bl_call){.sendbuff = receives ? NULL : sendbuff,
                            .recvbuff = receives ? recvbuff : NULL,
                            .receives = receives,
                            .request = {.collective = BL_SENDRECV,
                                        .count = count,
                                        .datatype = (int)datatype,
                                        .redop = ncclSum,
                                        .root = peer},
                            .stream = stream};
}

BL_EXPORT ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                                cudaStream_t stream) {
    struct bl_call call = call_of(sendbuff, NULL, false, count, datatype, peer, stream);
    struct bl_forward *forward;
    ncclResult_t result;
    if (bl_serve(&call, comm, BL_REASONS, &forward, &result)) return result;
    return bl_forward_after(forward, BL_REAL(ncclSend, sendbuff, count, datatype, peer, comm, stream));
}

BL_EXPORT ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                                cudaStream_t stream) {
    struct bl_call call = call_of(NULL, recvbuff, true, count, datatype, peer, stream);
    struct bl_forward *forward;
    ncclResult_t result;
    if (bl_serve(&call, comm, BL_REASONS, &forward, &result)) return result;
    return bl_forward_after(forward, BL_REAL(ncclRecv, recvbuff, count, datatype, peer, comm, stream));
}

/* A gather, or a scatter: the root has messages of all ranks, its own among them, in blocks of `blocks`; the others
 * one each, in `one`. */
struct rooted {
    char *blocks, *one;
    bool gathers;
    size_t count;
    ncclDataType_t datatype;
    int root;
};

static struct rooted gather_of(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root) {
    return (struct rooted){.blocks = recvbuff,
                           .one = (char *)(uintptr_t)sendbuff,
                           .gathers = true,
                           .count = count,
                           .datatype = datatype,
                           .root = root};
}

static struct rooted scatter_of(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root) {
    return (struct rooted){.blocks = (char *)(uintptr_t)sendbuff,
                           .one = recvbuff,
                           .gathers = false,
                           .count = count,
                           .datatype = datatype,
                           .root = root};
}

/* Why it is NCCL's: as its messages are, or for something odd about it, which NCCL is to see.  BL_REASONS: it is not. */
static enum bl_reason why_nccl(const struct rooted *r, struct bl_comm *comm, const struct bl_request *request) {
    if (!bl_comm_active(comm)) return BL_REASON_EMPTY; /* of what is NCCL's alone nothing is told */
    if (!r->one || (!r->blocks && comm->rank == r->root)) return BL_REASON_NO_BUFFER;
    return bl_serve_leaves_rooted(comm, request);
}

static ncclResult_t add(const struct rooted *r, void *buffer, bool receives, int peer, ncclComm_t handle,
                        cudaStream_t stream) {
    return receives ? ncclRecv(buffer, r->count, r->datatype, peer, handle, stream)
                    : ncclSend(buffer, r->count, r->datatype, peer, handle, stream);
}

static ncclResult_t serve(const struct rooted *r, ncclComm_t handle, cudaStream_t stream) {
    const struct bl_comm *comm = bl_known(handle);
    const int rank = comm->rank, nranks = comm->nranks;
    const size_t bytes = r->count * bl_datatype_size((int)r->datatype);
    ncclResult_t result = ncclGroupStart();
    if (result != ncclSuccess) return result;
    for (int peer = 0; peer < nranks && rank == r->root && result == ncclSuccess; peer++)
        result = add(r, r->blocks + (size_t)peer * bytes, r->gathers, peer, handle, stream);
    if (result == ncclSuccess) result = add(r, r->one, !r->gathers, r->root, handle, stream);
    const ncclResult_t end = ncclGroupEnd();
    return result == ncclSuccess ? end : result;
}

/* As bl_serve, to which it is one message if it is NCCL's. */
static bool serve_or_begin(const struct rooted *r, ncclComm_t handle, cudaStream_t stream, enum bl_reason for_nccl,
                           struct bl_forward **forward, ncclResult_t *result) {
    struct bl_call call = call_of(r->one, NULL, false, r->count, r->datatype, r->root, stream);
    struct bl_comm *comm = bl_known(handle);
    if (!r->count) { /* as bl_call_is_nothing, though its messages are not */
        *forward = NULL;
        *result = comm ? bl_comm_check(comm) : ncclSuccess;
        if (*result != ncclSuccess && bl_group_open()) bl_group_fail(*result);
        if (*result == ncclSuccess && comm && bl_comm_active(comm)) bl_turn_count(comm, &call.request, BL_REASON_EMPTY);
        return *result != ncclSuccess;
    }
    if (comm && for_nccl == BL_REASONS) for_nccl = why_nccl(r, comm, &call.request);
    if (!comm || for_nccl != BL_REASONS) return bl_serve(&call, handle, for_nccl, forward, result);
    *result = serve(r, handle, stream);
    return true;
}

/* Those with a configuration of the call's own, which NCCL has since 2.31, are as in collectives.c: with none they
 * are the plain ones. */

static ncclResult_t gather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                           ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
    const struct rooted rooted = gather_of(sendbuff, recvbuff, count, datatype, root);
    struct bl_forward *forward;
    ncclResult_t result;
    if (serve_or_begin(&rooted, comm, stream, bl_config_for_nccl(config, "ncclGather"), &forward, &result))
        return result;
    return bl_forward_after(
        forward, config ? BL_REAL(ncclGatherConfig, sendbuff, recvbuff, count, datatype, root, comm, stream, config)
                        : BL_REAL(ncclGather, sendbuff, recvbuff, count, datatype, root, comm, stream));
}

static ncclResult_t scatter(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                            ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
    const struct rooted rooted = scatter_of(sendbuff, recvbuff, count, datatype, root);
    struct bl_forward *forward;
    ncclResult_t result;
    if (serve_or_begin(&rooted, comm, stream, bl_config_for_nccl(config, "ncclScatter"), &forward, &result))
        return result;
    return bl_forward_after(
        forward, config ? BL_REAL(ncclScatterConfig, sendbuff, recvbuff, count, datatype, root, comm, stream, config)
                        : BL_REAL(ncclScatter, sendbuff, recvbuff, count, datatype, root, comm, stream));
}

BL_EXPORT ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,
                                  ncclComm_t comm, cudaStream_t stream) {
    return gather(sendbuff, recvbuff, count, datatype, root, comm, stream, NULL);
}

BL_EXPORT ncclResult_t ncclGatherConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                        int root, ncclComm_t comm, cudaStream_t stream,
                                        const ncclCollConfig_t *config) {
    return gather(sendbuff, recvbuff, count, datatype, root, comm, stream, config);
}

BL_EXPORT ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                   int root, ncclComm_t comm, cudaStream_t stream) {
    return scatter(sendbuff, recvbuff, count, datatype, root, comm, stream, NULL);
}

BL_EXPORT ncclResult_t ncclScatterConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                         int root, ncclComm_t comm, cudaStream_t stream,
                                         const ncclCollConfig_t *config) {
    return scatter(sendbuff, recvbuff, count, datatype, root, comm, stream, config);
}
