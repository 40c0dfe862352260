/* collective.c - what tells the collectives apart beside calls.def: how nccl-tests counts the bytes on the bus, and the call
 * itself. */
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

CALL(gather) {
    NCCL_TRY(part, side, Gather(send, recv, row->count, row->datatype, row->root, rank->comm[side], rank->stream));
    return 0;
}

CALL(scatter) {
    NCCL_TRY(part, side, Scatter(send, recv, row->count, row->datatype, row->root, rank->comm[side], rank->stream));
    return 0;
}

/* The ends that a rank has; where these are two they are in one group. */
CALL(messages) {
    const int to = row_receiver(rank, row), from = row_sender(rank, row);
    if (to >= 0) NCCL_TRY(part, side, Send(send, row->count, row->datatype, to, rank->comm[side], rank->stream));
    if (from >= 0) NCCL_TRY(part, side, Recv(recv, row->count, row->datatype, from, rank->comm[side], rank->stream));
    return 0;
}

static const struct {
    const char *name;
    int routes, traits; /* as in calls.def */
} rows[PERF_CALLS] = {
#define PERF_CALL(CALL, name, ROUTES, traits) {#name, BL_##ROUTES, traits},
#include "calls.def"
};

const struct collective collectives[PERF_CALLS] = {
    [PERF_ALLREDUCE] = {.in_place = true, .shares = 2, .call = call_all_reduce},
    [PERF_ALLGATHER] = {.in_place = true, .shares = 1, .call = call_all_gather},
    [PERF_REDUCESCATTER] = {.in_place = true, .shares = 1, .call = call_reduce_scatter},
    [PERF_ALLTOALL] = {.shares = 1, .call = call_all_to_all},
    [PERF_BROADCAST] = {.in_place = true, .call = call_broadcast},
    [PERF_REDUCE] = {.in_place = true, .call = call_reduce},
    [PERF_SENDRECV] = {.call = call_messages},
    [PERF_GATHER] = {.in_place = true, .shares = 1, .call = call_gather},
    [PERF_SCATTER] = {.in_place = true, .shares = 1, .call = call_scatter},
    [PERF_SEND] = {.call = call_messages},
};

const char *collective_name(int collective) {
    return rows[collective].name;
}

int collective_routes(int collective) {
    return rows[collective].routes;
}

bool collective_has(int collective, int traits) {
    return rows[collective].traits & traits;
}

double collective_bus_factor(int collective, int nranks) {
    int shares = collectives[collective].shares;
    return shares ? shares * (nranks - 1.0) / nranks : 1;
}

int row_receiver(const struct rank *rank, const struct row *row) {
    const int next = rank->rank + 1;
    if (collective_has(row->collective, PERF_ONE_WAY)) return next % 2 && next < rank->nranks ? next : -1;
    return next % rank->nranks;
}

int row_sender(const struct rank *rank, const struct row *row) {
    const int before = rank->rank - 1;
    if (collective_has(row->collective, PERF_ONE_WAY)) return rank->rank % 2 ? before : -1;
    return (before + rank->nranks) % rank->nranks;
}

const char *row_redop_name(const struct row *row) {
    return collective_has(row->collective, BL_REDUCES) ? bl_redop_name(row->redop) : "none";
}
