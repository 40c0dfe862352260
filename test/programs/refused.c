/* refused.c - groups that NCCL refuses for one of their calls: it launches nothing of them, whatever else they hold. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "messages.h"

/* A call that fails the group it is in; half a message to oneself does so at the end. */
enum how { NO_COMMUNICATOR, BAD_ROOT, BAD_RANK, NO_HANDLE, BESIDE_CAPTURE, HALF_MESSAGE, WAYS };

/* On the legacy stream, which would wait for one that captures; the capture is whole after that. */
static ncclResult_t call_beside_capture(const struct vector *v, ncclComm_t comm) {
    CUstream captured;
    CUgraph graph;
    CU_OK(cuStreamCreate(&captured, CU_STREAM_DEFAULT));
    CU_OK(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    const ncclResult_t result =
        ncclAllReduce((void *)v->send, (void *)v->recv, v->count, ncclInt32, ncclSum, comm, NULL);
    CU_OK(cuStreamEndCapture(captured, &graph));
    CU_OK(cuGraphDestroy(graph));
    CU_OK(cuStreamDestroy(captured));
    return result;
}

static ncclResult_t call_refused(struct part *part, enum how how, const struct vector *v, ncclComm_t comm,
                                 CUstream stream) {
    ncclComm_t none = NULL;
    ncclUniqueId id;
    void *const from = (void *)v->send, *const to = (void *)v->recv;
    switch (how) {
    case NO_COMMUNICATOR: return ncclAllReduce(from, to, v->count, ncclInt32, ncclSum, NULL, stream);
    case BAD_ROOT: return ncclBroadcast(from, to, v->count, ncclInt32, part->box->nranks, comm, stream);
    case BAD_RANK: NCCL_OK(ncclGetUniqueId(&id)); return ncclCommInitRank(&none, 2, id, 7);
    case NO_HANDLE: return ncclCommSplit(comm, 0, 0, NULL, NULL);
    case BESIDE_CAPTURE: return call_beside_capture(v, comm);
    case HALF_MESSAGE: return ncclSend(from, 1, ncclInt32, self(part)->rank, comm, stream);
    default: return ncclSuccess;
    }
}

static void check_untouched(struct part *part, const struct vector *v, enum how how) {
    uint32_t *found = malloc(v->count * 4), poison;
    memset(&poison, 0xa5, sizeof poison); /* vector_fill's */
    CU_OK(cuMemcpyDtoH(found, v->recv, v->count * 4));
    for (size_t i = 0; i < v->count; i++)
        if (found[i] != poison) {
            printf("rank %d: a sum of %zu bytes was launched in a group that is refused (%d)\n", self(part)->rank,
                   4 * v->count, how);
            exit(1);
        }
    free(found);
}

/* --- refused_groups: sums of either hand, and a call that fails, first or last --- */
static void refused_groups(struct part *part, const struct settings *s) {
    const ncclComm_t comm = comm_open(part);
    const CUstream stream = stream_open();
    struct vector large, small;
    vector_open(&large, s->large);
    vector_open(&small, s->small);
    vector_warm_up(part, &large, comm, stream);
    vector_warm_up(part, &small, comm, stream);
    for (int k = 0; k < 2 * WAYS; k++) {
        const enum how how = (enum how)(k / 2);
        ncclResult_t called = ncclSuccess;
        vector_fill(part, &large, s->seed + (uint64_t)k);
        vector_fill(part, &small, s->seed + (uint64_t)k + 1);
        part_barrier(part);
        doing(part, "group %d", k);
        NCCL_OK(ncclGroupStart());
        if (k % 2) called = call_refused(part, how, &small, comm, stream);
        vector_allreduce(&small, comm, stream);
        vector_allreduce(&large, comm, stream);
        if (k % 2 == 0) called = call_refused(part, how, &small, comm, stream);
        const ncclResult_t ended = ncclGroupEnd();
        stream_sync(stream);
        if (ended == ncclSuccess || (called == ncclSuccess) != (how == HALF_MESSAGE)) {
            printf("rank %d: way %d: the call returned %d, its group %d\n", self(part)->rank, how, called, ended);
            exit(1);
        }
        check_untouched(part, &small, how);
        check_untouched(part, &large, how);
    }
    part_barrier(part);
    doing(part, "a group that is not refused");
    NCCL_OK(ncclGroupStart());
    vector_allreduce(&small, comm, stream);
    vector_allreduce(&large, comm, stream);
    NCCL_OK(ncclGroupEnd());
    stream_sync(stream);
    vector_check_all(part, &small);
    vector_check_all(part, &large);
    comm_close(part, comm);
    stream_close(stream);
    vector_close(&large);
    vector_close(&small);
}

/* --- refused_and_again: one rank is refused, and makes its group once more without the call; sums of either hand --- */
static void refuse_and_sum(struct part *part, enum how how, struct vector *v, ncclComm_t comm, CUstream stream) {
    vector_fill(part, v, v->count + (uint64_t)how);
    part_barrier(part);
    doing(part, "way %d, %zu elements", how, v->count);
    if (self(part)->rank == (int)how % part->box->nranks) {
        NCCL_OK(ncclGroupStart());
        vector_allreduce(v, comm, stream);
        call_refused(part, how, v, comm, stream);
        if (ncclGroupEnd() == ncclSuccess) {
            printf("rank %d: way %d: a group with a call that fails did not\n", self(part)->rank, how);
            exit(1);
        }
    }
    NCCL_OK(ncclGroupStart());
    vector_allreduce(v, comm, stream);
    NCCL_OK(ncclGroupEnd());
    stream_sync(stream);
    vector_check_all(part, v);
}

static void refused_and_again(struct part *part, const struct settings *s) {
    const ncclComm_t comm = comm_open(part);
    const CUstream stream = stream_open();
    const size_t sizes[] = {s->small, s->large};
    for (int k = 0; k < 2; k++) {
        struct vector v;
        vector_open(&v, sizes[k]);
        vector_warm_up(part, &v, comm, stream);
        for (int how = 0; how < WAYS; how++) refuse_and_sum(part, (enum how)how, &v, comm, stream);
        vector_close(&v);
    }
    comm_close(part, comm);
    stream_close(stream);
}

/* --- refused_messages: messages of both hands, or of one, and half a message to oneself --- */
static void refused_messages(struct part *part, const struct settings *s) {
    const ncclComm_t comm = comm_open(part);
    const CUstream stream = stream_open();
    const int n = part->box->nranks;
    messages_connect(part, s, n, comm, stream);
    for (int k = 0; k < 2; k++) {
        struct messages list = {0};
        for (int r = 0; r < n; r++) {
            messages_add(&list, r, (r + 1) % n, s->small);
            if (k == 0) messages_add(&list, r, (r + 1) % n, s->large);
        }
        messages_open(part, &list);
        messages_fill(part, &list, s->seed + (uint64_t)k);
        part_barrier(part);
        doing(part, "messages %d", k);
        NCCL_OK(ncclGroupStart());
        messages_post(part, &list, BOTH_ENDS, 0, list.count, comm, stream);
        NCCL_OK(ncclSend((void *)list.send, 1, ncclInt8, self(part)->rank, comm, stream));
        const ncclResult_t ended = ncclGroupEnd();
        if (ended != ncclInvalidUsage) {
            printf("rank %d: the group with half a message to oneself ended with %d\n", self(part)->rank, ended);
            exit(1);
        }
        stream_sync(stream);
        messages_check_untouched(part, &list);
        part_barrier(part);
        doing(part, "messages %d, once more", k);
        messages_group(part, &list, BOTH_ENDS, 0, list.count, comm, stream);
        stream_sync(stream);
        messages_check(part, &list);
        messages_close(&list);
    }
    comm_close(part, comm);
    stream_close(stream);
}

const struct program refused_programs[] = {
    {"refused_groups", refused_groups},
    {"refused_and_again", refused_and_again},
    {"refused_messages", refused_messages},
    {0},
};
