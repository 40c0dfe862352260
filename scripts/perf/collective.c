/* collective.c - what tells the collectives apart beside collectives.def: how nccl-tests counts the bytes on the bus, and the
 * call itself. */
#include "perf.h"

#define CALL(name)                                                                                                     \
    static int call_##name(struct part *part, const struct rank *rank, const struct row *row, enum side side,          \
                           const void *send, void *recv)

CALL(all_reduce) {
    NCCL_TRY(part, side, AllReduce(send, recv, row->count, row->datatype, row->redop, rank->comm[side], rank->stream));
    return 0;
}

CALL(all_gather) {
    NCCL_TRY(part, side, AllGather(send, recv, row->count, row->datatype, rank->comm[side], rank->stream));
    return 0;
}

CALL(reduce_scatter) {
    NCCL_TRY(part, side,
             ReduceScatter(send, recv, row->count, row->datatype, row->redop, rank->comm[side], rank->stream));
    return 0;
}

CALL(all_to_all) {
    NCCL_TRY(part, side, AlltoAll(send, recv, row->count, row->datatype, rank->comm[side], rank->stream));
    return 0;
}

CALL(broadcast) {
    NCCL_TRY(part, side, Broadcast(send, recv, row->count, row->datatype, row->root, rank->comm[side], rank->stream));
    return 0;
}

CALL(reduce) {
    NCCL_TRY(part, side,
             Reduce(send, recv, row->count, row->datatype, row->redop, row->root, rank->comm[side], rank->stream));
    return 0;
}

/* Both ends of a rank at once: they are in one group. */
CALL(sendrecv) {
    const int to = collective_receiver(rank), from = collective_sender(rank);
    NCCL_TRY(part, side, Send(send, row->count, row->datatype, to, rank->comm[side], rank->stream));
    NCCL_TRY(part, side, Recv(recv, row->count, row->datatype, from, rank->comm[side], rank->stream));
    return 0;
}

const struct collective collectives[BL_COLLECTIVES] = {
    [BL_ALLREDUCE] = {.in_place = true, .shares = 2, .call = call_all_reduce},
    [BL_ALLGATHER] = {.in_place = true, .shares = 1, .call = call_all_gather},
    [BL_REDUCESCATTER] = {.in_place = true, .shares = 1, .call = call_reduce_scatter},
    [BL_ALLTOALL] = {.shares = 1, .call = call_all_to_all},
    [BL_BROADCAST] = {.in_place = true, .call = call_broadcast},
    [BL_REDUCE] = {.in_place = true, .call = call_reduce},
    [BL_SENDRECV] = {.call = call_sendrecv},
};

double collective_bus_factor(int collective, int nranks) {
    int shares = collectives[collective].shares;
    return shares ? shares * (nranks - 1.0) / nranks : 1;
}

int collective_receiver(const struct rank *rank) {
    return (rank->rank + 1) % rank->nranks;
}

int collective_sender(const struct rank *rank) {
    return (rank->rank + rank->nranks - 1) % rank->nranks;
}

const char *row_redop_name(const struct row *row) {
    return bl_collective_has(row->collective, BL_REDUCES) ? bl_redop_name(row->redop) : "none";
}
