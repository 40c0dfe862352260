/* both.c - groups with collectives of NCCL's and of Beeline's: the large ones are to be NCCL's, the middle ones Beeline's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "programs.h"

enum { MOST_COMMS = 6, ROUNDS = 8 };

/* Of one communicator, in an order that changes. */
static void post_both(const struct vector *large, const struct vector *middle, bool large_first, ncclComm_t comm,
                      CUstream large_on, CUstream middle_on) {
    if (large_first) vector_allreduce(large, comm, large_on);
    vector_allreduce(middle, comm, middle_on);
    if (!large_first) vector_allreduce(large, comm, large_on);
}

/* So many communicators, a stream each, two if `apart`; each with a group of both, or all in one group, while a rank is late. */
static void several(struct part *part, const struct settings *s, int comms, bool one_group, bool apart) {
    ncclComm_t comm[MOST_COMMS];
    CUstream stream[2 * MOST_COMMS];
    struct vector large[MOST_COMMS], middle[MOST_COMMS];
    for (int c = 0; c < comms; c++) {
        comm[c] = comm_open(part);
        stream[2 * c] = stream_open();
        stream[2 * c + 1] = apart ? stream_open() : stream[2 * c];
        vector_open(&large[c], s->large);
        vector_open(&middle[c], s->middle);
        vector_warm_up(part, &large[c], comm[c], stream[2 * c]);
    }
    for (int k = 0; k < ROUNDS * s->repeat; k++) {
        for (int c = 0; c < comms; c++) {
            vector_fill(part, &large[c], s->seed + (uint64_t)(2 * comms * k + c));
            vector_fill(part, &middle[c], s->seed + (uint64_t)(2 * comms * k + comms + c));
        }
        part_barrier(part);
        doing(part, "round %d", k);
        if (draw(s->seed, (uint64_t)k, 3) == (uint64_t)self(part)->rank) usleep(3000);
        if (one_group) NCCL_OK(ncclGroupStart());
        for (int c = 0; c < comms; c++) {
            if (!one_group) NCCL_OK(ncclGroupStart());
            post_both(&large[c], &middle[c], k % 2, comm[c], stream[2 * c], stream[2 * c + 1]);
            if (!one_group) NCCL_OK(ncclGroupEnd());
        }
        if (one_group) NCCL_OK(ncclGroupEnd());
        for (int c = 0; c < comms; c++) {
            stream_sync(stream[2 * c + k / 2 % 2]); /* either is enough */
            vector_check_all(part, &large[c]);
            vector_check_all(part, &middle[c]);
        }
    }
    for (int c = 0; c < comms; c++) {
        comm_close(part, comm[c]);
        stream_close(stream[2 * c]);
        if (apart) stream_close(stream[2 * c + 1]);
        vector_close(&large[c]);
        vector_close(&middle[c]);
    }
}

static void both_many(struct part *part, const struct settings *s) {
    several(part, s, 4, false, false);
}
static void both_many_at_once(struct part *part, const struct settings *s) {
    several(part, s, MOST_COMMS, true, false);
}
static void both_on_streams(struct part *part, const struct settings *s) {
    several(part, s, 2, false, true);
}

/* --- both_first: one communicator has the large ones, another the middle ones, and ranks 0 and 1 a first message besides --- */
static void both_first(struct part *part, const struct settings *s) {
    const int rank = self(part)->rank;
    const ncclComm_t comm[] = {comm_open(part), comm_open(part)};
    const CUstream stream = stream_open();
    struct vector large, middle, message;
    vector_open(&large, s->large);
    vector_open(&middle, s->middle);
    vector_open(&message, s->large);
    vector_warm_up(part, &large, comm[0], stream);
    vector_warm_up(part, &middle, comm[1], stream);
    for (int k = 0; k < 4; k++) {
        vector_fill(part, &large, s->seed + (uint64_t)(3 * k));
        vector_fill(part, &middle, s->seed + (uint64_t)(3 * k + 1));
        vector_fill(part, &message, s->seed + (uint64_t)(3 * k + 2));
        part_barrier(part);
        doing(part, "group %d", k);
        NCCL_OK(ncclGroupStart());
        if (s->seed % 2) vector_allreduce(&large, comm[0], stream);
        vector_allreduce(&middle, comm[1], stream);
        if (rank == 0) NCCL_OK(ncclSend((void *)message.send, message.count, ncclInt32, 1, comm[1], stream));
        if (rank == 1) NCCL_OK(ncclRecv((void *)message.recv, message.count, ncclInt32, 0, comm[1], stream));
        if (s->seed % 2 == 0) vector_allreduce(&large, comm[0], stream);
        NCCL_OK(ncclGroupEnd());
        stream_sync(stream);
        vector_check_all(part, &large);
        vector_check_all(part, &middle);
        if (rank == 1) vector_check(part, &message, 0, 0);
    }
    for (int c = 0; c < 2; c++) comm_close(part, comm[c]);
    stream_close(stream);
    vector_close(&large);
    vector_close(&middle);
    vector_close(&message);
}

/* --- both_made: a group of sums of either hand on communicators of all ranks, a broadcast and a message of either, in which ranks 0 and 1 make another, both in it, or
 * rank 1 outside; then the large one is that of a communicator of these two, and does not wait for rank 2, which is late --- */
static void both_made(struct part *part, const struct settings *s) {
    const int rank = self(part)->rank;
    const ncclComm_t comm[] = {comm_open(part), comm_open(part)};
    const CUstream stream = stream_open();
    struct vector large, middle, other, sent, message[2];
    ncclComm_t pair = NULL;
    ncclUniqueId id;
    box_unique_id(part, 999, &id);
    if (rank < 2) NCCL_OK(ncclCommInitRank(&pair, 2, id, rank));
    vector_open(&large, s->large);
    vector_open(&middle, s->middle);
    vector_open(&other, s->middle);
    vector_open(&sent, s->small);
    for (int m = 0; m < 2; m++) vector_open(&message[m], m ? s->large : s->small);
    vector_warm_up(part, &large, comm[0], stream);
    vector_warm_up(part, &middle, comm[0], stream);
    vector_warm_up(part, &other, comm[1], stream);
    for (int k = 0; k < 8; k++) {
        const bool outside = k % 2, apart = k >= 4;
        ncclComm_t made = NULL;
        vector_fill(part, &large, s->seed + (uint64_t)(6 * k));
        vector_fill(part, &middle, s->seed + (uint64_t)(6 * k + 1));
        vector_fill(part, &other, s->seed + (uint64_t)(6 * k + 2));
        vector_fill(part, &sent, s->seed + (uint64_t)(6 * k + 3));
        for (int m = 0; m < 2; m++) vector_fill(part, &message[m], s->seed + (uint64_t)(6 * k + 4 + m));
        box_unique_id(part, 1000 + k, &id);
        part_barrier(part);
        doing(part, "group %d", k);
        if (outside && rank == 1) NCCL_OK(ncclCommInitRank(&made, 2, id, rank));
        if (apart && rank == 2) usleep(30000);
        NCCL_OK(ncclGroupStart());
        vector_allreduce(&middle, comm[0], stream);
        if (rank < 2 && !made) NCCL_OK(ncclCommInitRank(&made, 2, id, rank));
        if (!apart || pair) vector_allreduce(&large, apart ? pair : comm[0], stream);
        vector_allreduce(&other, comm[1], stream);
        vector_broadcast(&sent, 0, comm[0], stream);
        for (int m = 0; m < 2; m++) {
            const struct vector *v = &message[m];
            if (rank == 0) NCCL_OK(ncclSend((void *)v->send, v->count, ncclInt32, 1, comm[0], stream));
            if (rank == 1) NCCL_OK(ncclRecv((void *)v->recv, v->count, ncclInt32, 0, comm[0], stream));
        }
        NCCL_OK(ncclGroupEnd());
        stream_sync(stream);
        if (!apart || pair) vector_check(part, &large, 0, apart ? 1 : last_rank(part));
        vector_check_all(part, &middle);
        vector_check_all(part, &other);
        vector_check(part, &sent, 0, 0);
        for (int m = 0; m < 2 && rank == 1; m++) vector_check(part, &message[m], 0, 0);
        if (made) NCCL_OK(ncclCommDestroy(made));
    }
    if (pair) NCCL_OK(ncclCommDestroy(pair));
    for (int c = 0; c < 2; c++) comm_close(part, comm[c]);
    stream_close(stream);
    vector_close(&large);
    vector_close(&middle);
    vector_close(&other);
    vector_close(&sent);
    for (int m = 0; m < 2; m++) vector_close(&message[m]);
}

/* --- nothing_waits: collectives of nothing on a stream that waits for the host, alone and beside one of something; and of a capture, beside one outside --- */
static ncclResult_t call_nothing(int k, ncclComm_t comm, CUstream stream) {
    void *const none = (void *)(uintptr_t)256;
    switch (k % 4) {
    case 0: return ncclAllReduce(none, none, 0, ncclInt32, ncclSum, comm, stream);
    case 1: return ncclBroadcast(none, none, 0, ncclInt32, 1, comm, stream);
    case 2: return ncclAllGather(none, none, 0, ncclInt32, comm, stream);
    default: return ncclReduceScatter(none, none, 0, ncclInt32, ncclSum, comm, stream);
    }
}

static void nothing_waits(struct part *part, const struct settings *s) {
    const ncclComm_t comm = comm_open(part);
    const CUstream stream = stream_open(), gated = stream_open();
    CUdeviceptr gate;
    void *host;
    struct vector v;
    struct graph graph;
    CU_OK(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    CU_OK(cuMemHostGetDevicePointer(&gate, host, 0));
    vector_open(&v, s->small);
    vector_warm_up(part, &v, comm, stream);
    for (int k = 0; k < 8; k++) {
        *(volatile uint32_t *)host = 0;
        vector_fill(part, &v, s->seed + (uint64_t)k);
        part_barrier(part);
        doing(part, "call %d", k);
        CU_OK(cuStreamWaitValue32(gated, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
        if (k >= 4) NCCL_OK(ncclGroupStart());
        NCCL_OK(call_nothing(k, comm, gated));
        vector_allreduce(&v, comm, stream);
        if (k >= 4) NCCL_OK(ncclGroupEnd());
        stream_sync(stream);
        *(volatile uint32_t *)host = 1;
        stream_sync(gated);
        vector_check_all(part, &v);
    }
    vector_fill(part, &v, s->seed + 9);
    part_barrier(part);
    doing(part, "a capture");
    capture_begin(stream);
    NCCL_OK(ncclGroupStart());
    vector_allreduce(&v, comm, stream);
    NCCL_OK(call_nothing(0, comm, gated));
    NCCL_OK(ncclGroupEnd());
    capture_end(stream, &graph);
    CU_OK(cuGraphLaunch(graph.exec, stream));
    stream_sync(stream);
    vector_check_all(part, &v);
    graph_close(&graph);
    comm_close(part, comm);
    stream_close(stream);
    stream_close(gated);
    CU_OK(cuMemFreeHost(host));
    vector_close(&v);
}

/* --- both_captured: a graph of groups on two streams, each of which takes what the last one left; behind its replay, on a third one, a middle sum that is
 * not captured takes what the graph leaves --- */
static void both_captured(struct part *part, const struct settings *s) {
    enum { GROUPS = 20, WORDS = 256 };
    const ncclComm_t comm = comm_open(part);
    const CUstream one = stream_open(), other = stream_open(), eager = stream_open();
    uint32_t found[WORDS], wanted[WORDS];
    struct vector large, chained;
    struct graph graph;
    CUdeviceptr last;
    CUevent event;
    vector_open(&large, s->large);
    vector_open(&chained, s->large);
    CU_OK(cuMemAlloc(&last, sizeof found));
    CU_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    vector_warm_up(part, &large, comm, one);
    capture_begin(one);
    CU_OK(cuEventRecord(event, one));
    CU_OK(cuStreamWaitEvent(other, event, CU_EVENT_WAIT_DEFAULT));
    for (int k = 0; k < GROUPS; k++) {
        const CUdeviceptr from = k ? chained.recv : chained.send;
        NCCL_OK(ncclGroupStart());
        vector_allreduce(&large, comm, one);
        NCCL_OK(ncclAllReduce((void *)from, (void *)chained.recv, chained.count, ncclInt32, ncclSum, comm, other));
        NCCL_OK(ncclGroupEnd());
    }
    CU_OK(cuEventRecord(event, other));
    CU_OK(cuStreamWaitEvent(one, event, CU_EVENT_WAIT_DEFAULT));
    capture_end(one, &graph);
    for (int k = 0; k < 4 * s->repeat; k++) {
        vector_fill(part, &large, s->seed + (uint64_t)(2 * k));
        vector_fill(part, &chained, s->seed + (uint64_t)(2 * k + 1));
        part_barrier(part);
        doing(part, "replay %d", k);
        CU_OK(cuGraphLaunch(graph.exec, one));
        NCCL_OK(ncclAllReduce((void *)chained.recv, (void *)last, WORDS, ncclInt32, ncclMax, comm, eager));
        stream_sync(eager);
        CU_OK(cuMemcpyDtoH(found, last, sizeof found));
        stream_sync(one);
        CU_OK(cuMemcpyDtoH(wanted, chained.recv, sizeof wanted));
        if (memcmp(found, wanted, sizeof found) != 0) {
            printf("rank %d, replay %d: the call behind it ran ahead\n", self(part)->rank, k);
            exit(1);
        }
        vector_check_all(part, &large);
    }
    graph_close(&graph);
    comm_close(part, comm);
    CU_OK(cuEventDestroy(event));
    CU_OK(cuMemFree(last));
    stream_close(one);
    stream_close(other);
    stream_close(eager);
    vector_close(&large);
    vector_close(&chained);
}

const struct program both_programs[] = {
    {"both_many", both_many},
    {"both_many_at_once", both_many_at_once},
    {"both_on_streams", both_on_streams},
    {"both_first", both_first},
    {"both_made", both_made},
    {"nothing_waits", nothing_waits},
    {"both_captured", both_captured},
    {0},
};
