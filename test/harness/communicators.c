/* communicators.c - communicators of the ranks, and what is issued on them; see box.h.  All of the harness that calls NCCL. */
#include "box.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous.h"

enum { MOST_COMMUNICATORS = 4096 };

/* One number, one communicator: the first thread or rank 0 makes its id, the others get it. */
void box_unique_id(struct part *part, int which, ncclUniqueId *id) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool made[MOST_COMMUNICATORS];
    static ncclUniqueId ids[MOST_COMMUNICATORS];
    CHECK(which >= 0 && which < MOST_COMMUNICATORS, "communicator %d", which);
    if (part->box->mode == MODE_PROCESSES) {
        if (part->rank[0].rank == 0) NCCL_OK(ncclGetUniqueId(id));
        CHECK(rendezvous_broadcast(id, sizeof *id) == 0);
        return;
    }
    pthread_mutex_lock(&lock);
    if (!made[which]) NCCL_OK(ncclGetUniqueId(&ids[which]));
    made[which] = true;
    *id = ids[which];
    pthread_mutex_unlock(&lock);
}

void part_make_communicators(struct part *part, int which, ncclComm_t comms[BOX_RANKS]) {
    if (part->count == part->box->nranks && which % 2 == 0) {
        int devices[BOX_RANKS];
        for (int i = 0; i < part->count; i++) devices[i] = part->rank[i].device;
        NCCL_OK(ncclCommInitAll(comms, part->count, devices));
        return;
    }
    ncclUniqueId id;
    box_unique_id(part, which, &id);
    each_rank_in_group (part, i) NCCL_OK(ncclCommInitRank(&comms[i], part->box->nranks, id, part->rank[i].rank));
}

void part_make_nonblocking(struct part *part, int which, ncclComm_t comms[BOX_RANKS]) {
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    box_unique_id(part, which, &id);
    part_group_start(part);
    each_rank (part, i)
        NCCL_GOES(ncclCommInitRankConfig(&comms[i], part->box->nranks, id, part->rank[i].rank, &config));
    if (part->count > 1) CHECK(ncclGroupEnd() == ncclInProgress);
    part_settle(part, comms);
}

void part_settle(struct part *part, const ncclComm_t comms[BOX_RANKS]) {
    for (int i = 0; i < part->count; i++) {
        ncclResult_t state = ncclInProgress;
        for (int tries = 0; tries < 20000 && state == ncclInProgress; tries++) {
            if (tries) usleep(1000);
            NCCL_OK(ncclCommGetAsyncError(comms[i], &state));
        }
        CHECK(state == ncclSuccess, "a nonblocking call ended with %s", ncclGetErrorString(state));
    }
}

void part_split(struct part *part, const ncclComm_t parents[BOX_RANKS], ncclComm_t comms[BOX_RANKS]) {
    each_rank_in_group (part, i) NCCL_OK(ncclCommSplit(parents[i], 0, part->rank[i].rank, &comms[i], NULL));
}

void part_destroy_communicators(struct part *part, ncclComm_t comms[BOX_RANKS]) {
    each_rank_in_group (part, i) NCCL_OK(ncclCommDestroy(comms[i]));
}

void part_group_start(struct part *part) {
    if (part->count > 1) NCCL_OK(ncclGroupStart());
}

void part_group_end(struct part *part) {
    if (part->count > 1) NCCL_OK(ncclGroupEnd());
}

void part_synchronize(struct part *part) {
    part_drain(part);
    for (int i = 0; i < part->count; i++) {
        struct rank *rank = part_enter(part, i);
        if (!rank->comm) continue;
        ncclResult_t error;
        NCCL_OK(ncclCommGetAsyncError(rank->comm, &error));
        CHECK(error == ncclSuccess, "rank %d: %s: %s", rank->rank, ncclGetErrorString(error),
              ncclGetLastError(rank->comm));
    }
}

static void run_with_communicators(struct part *part) {
    ncclComm_t comms[BOX_RANKS];
    if (!part->box->no_communicators) {
        part_make_communicators(part, 0, comms);
        for (int i = 0; i < part->count; i++) part->rank[i].comm = comms[i];
    }
    part->box->body(part);
    part_synchronize(part);
    for (int i = 0; i < part->count; i++) comms[i] = part->rank[i].comm;
    if (!part->box->no_communicators) part_destroy_communicators(part, comms);
}

void box_run(struct box *box, void (*body)(struct part *part)) {
    box->body = body;
    box_run_bare(box, run_with_communicators);
}

/* --- calls --- */

static ncclResult_t send_and_receive(const struct call *call, int i, ncclComm_t comm, CUstream stream) {
    const int rank = call->first_rank + i, n = call->nranks;
    const ncclDataType_t datatype = (ncclDataType_t)call->datatype;
    NCCL_OK(ncclGroupStart());
    NCCL_GOES(ncclSend((void *)call_sendbuff(call, i), call->count, datatype, (rank + 1) % n, comm, stream));
    NCCL_GOES(ncclRecv((void *)call_recvbuff(call, i), call->count, datatype, (rank + n - 1) % n, comm, stream));
    return ncclGroupEnd();
}

ncclResult_t call_issue_rank(struct part *part, struct call *call, int i, ncclComm_t comm, CUstream stream) {
    void *from = (void *)call_sendbuff(call, i), *to = (void *)call_recvbuff(call, i);
    const ncclDataType_t datatype = (ncclDataType_t)call->datatype;
    const ncclRedOp_t redop = (ncclRedOp_t)call->redop;
    part_enter(part, i);
    if (collective_is_paired(call->collective)) return send_and_receive(call, i, comm, stream);
    switch (call->collective) {
    case BL_ALLREDUCE: return ncclAllReduce(from, to, call->count, datatype, redop, comm, stream);
    case BL_ALLGATHER: return ncclAllGather(from, to, call->count, datatype, comm, stream);
    case BL_REDUCESCATTER: return ncclReduceScatter(from, to, call->count, datatype, redop, comm, stream);
    case BL_ALLTOALL: return ncclAlltoAll(from, to, call->count, datatype, comm, stream);
    case BL_BROADCAST:
        if (call->in_place && call->seed % 2) return ncclBcast(to, call->count, datatype, call->root, comm, stream);
        return ncclBroadcast(from, to, call->count, datatype, call->root, comm, stream);
    case BL_REDUCE: return ncclReduce(from, to, call->count, datatype, redop, call->root, comm, stream);
    default: FAIL("collective %d", (int)call->collective);
    }
}

void call_issue(struct part *part, struct call *call) {
    part_group_start(part);
    for (int i = 0; i < part->count; i++) {
        struct rank *rank = &part->rank[i];
        NCCL_OK(call_issue_rank(part, call, i, rank->comm, rank->stream[call->stream]));
    }
    part_group_end(part);
}

/* --- routes --- */

const char *box_route(ncclComm_t comm, enum bl_collective collective, size_t count, int datatype, int redop) {
    const char *(*route)(ncclComm_t, int, size_t, int, int) = (__typeof__(route))dlsym(RTLD_DEFAULT, "beelineRouteOf");
    return route ? route(comm, (int)collective, count, datatype, redop) : NULL;
}

long box_nccl_calls(const char *function) {
    const char *path = getenv("BEELINE_EMU_NCCL_TRACE");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return -1;
    char line[512], called[128];
    long calls = 0;
    int pid;
    while (fgets(line, sizeof line, file)) /* pid rank function ... */
        calls +=
            sscanf(line, "%d %*s %127s", &pid, called) == 2 && pid == (int)getpid() && strcmp(called, function) == 0;
    fclose(file);
    return calls;
}
