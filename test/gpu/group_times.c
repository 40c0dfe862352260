/* group_times.c - groups of one broadcast, or one reduce, of each rank, which uneven all-gathers and reduce-scatters are, and of messages from
 * each rank to each, itself too, which all-to-alls with splits are, beside even ones: times in CUDA graphs, every result checked.
 *
 *   RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 BEELINE_ID_FILE=PATH group-times [MOST_BYTES [CALLS [REPLAYS]]]     one process a rank
 *
 * From 1 K to MOST_BYTES (1M, 1K to 64M) of each rank, or from each to each, in steps of four, messages of two; so many groups in a graph (20),
 * the median of so many replays (21), of rank 0.  Exit status: 1 if a result was wrong, or a call failed. */
#include <cuda.h>
#include <nccl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        const int status_ = (int)(call);                                                                               \
        if (status_) {                                                                                                 \
            printf("%s: %d\n", #call, status_);                                                                        \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum kind {
    ALL_GATHER,
    BROADCASTS,
    UNEVEN_BROADCASTS,
    REDUCE_SCATTER,
    REDUCES,
    UNEVEN_REDUCES,
    ALL_TO_ALL,
    MESSAGES,
    KINDS
};
static const char *const names[KINDS] = {"all-gather", "broadcasts",       "broadcasts, 1:2:...", "reduce-scatter",
                                         "reduces",    "reduces, 1:2:...", "all-to-all",          "messages"};
enum { MOST_RANKS = 16, MOST_REPLAYS = 999, GRAIN = 16 };

static int rank, nranks;
static ncclComm_t comm;
static CUstream stream;
static CUdeviceptr from, to;
static size_t at[MOST_RANKS + 1]; /* where each rank's block begins */

static int number_of(const char *name) {
    const char *text = getenv(name);
    if (text) return atoi(text);
    printf("%s is not set\n", name);
    exit(1);
}

static void connect_ranks(void) {
    const char *path = getenv("BEELINE_ID_FILE");
    ncclUniqueId id;
    char part[4096];
    if (!path) exit((printf("BEELINE_ID_FILE is not set\n"), 1));
    snprintf(part, sizeof part, "%s.part", path);
    if (rank == 0) {
        CHECK(ncclGetUniqueId(&id));
        FILE *file = fopen(part, "w");
        CHECK(!file || fwrite(&id, sizeof id, 1, file) != 1 || fclose(file) || rename(part, path));
    } else {
        while (access(path, R_OK)) usleep(1000);
        FILE *file = fopen(path, "r");
        CHECK(!file || fread(&id, sizeof id, 1, file) != 1 || fclose(file));
    }
    CHECK(ncclCommInitRank(&comm, nranks, id, rank));
}

static bool reduces(enum kind kind) {
    return kind == REDUCE_SCATTER || kind == REDUCES || kind == UNEVEN_REDUCES;
}
/* A block of its own for each. */
static bool is_apart(enum kind kind) {
    return kind == ALL_TO_ALL || kind == MESSAGES;
}
static bool is_uneven(enum kind kind) {
    return kind == UNEVEN_BROADCASTS || kind == UNEVEN_REDUCES;
}

static void exchange(void) {
    CHECK(ncclGroupStart());
    for (int step = 0; step < nranks; step++) {
        const int next = (rank + step) % nranks, before = (rank + nranks - step) % nranks;
        CHECK(ncclSend((void *)(from + at[next]), at[1], ncclInt8, next, comm, (cudaStream_t)stream));
        CHECK(ncclRecv((void *)(to + at[before]), at[1], ncclInt8, before, comm, (cudaStream_t)stream));
    }
    CHECK(ncclGroupEnd());
}

static void call(enum kind kind) {
    if (kind == MESSAGES) return exchange();
    if (kind == ALL_TO_ALL) {
        CHECK(ncclAlltoAll((void *)from, (void *)to, at[1], ncclInt8, comm, (cudaStream_t)stream));
        return;
    }
    if (kind == ALL_GATHER) {
        CHECK(ncclAllGather((void *)(from + at[rank]), (void *)to, at[1], ncclInt8, comm, (cudaStream_t)stream));
        return;
    }
    if (kind == REDUCE_SCATTER) {
        CHECK(ncclReduceScatter((void *)from, (void *)(to + at[rank]), at[1] / 4, ncclInt32, ncclSum, comm,
                                (cudaStream_t)stream));
        return;
    }
    CHECK(ncclGroupStart());
    for (int r = 0; r < nranks; r++) {
        void *send = (void *)(from + at[r]), *recv = (void *)(to + at[r]);
        const size_t bytes = at[r + 1] - at[r];
        if (reduces(kind))
            CHECK(ncclReduce(send, recv, bytes / 4, ncclInt32, ncclSum, r, comm, (cudaStream_t)stream));
        else
            CHECK(ncclBroadcast(send, recv, bytes, ncclInt8, r, comm, (cudaStream_t)stream));
    }
    CHECK(ncclGroupEnd());
}

/* What a rank sends to another in a block of its own. */
static unsigned char value(int sender, int receiver) {
    return (unsigned char)(sender * nranks + receiver + 1);
}

/* Blocks of `bytes`, or, uneven, of their shares of it; else than in blocks of their own each rank's input is its number plus one. */
static void fill(enum kind kind, size_t bytes) {
    for (int r = 0; r < nranks; r++)
        at[r + 1] = at[r] + (is_uneven(kind) ? bytes * (size_t)(r + 1) / (size_t)nranks / GRAIN * GRAIN : bytes);
    if (is_apart(kind))
        for (int r = 0; r < nranks; r++) CHECK(cuMemsetD8(from + at[r], value(rank, r), bytes));
    else if (reduces(kind))
        CHECK(cuMemsetD32(from, (unsigned)rank + 1, at[nranks] / 4));
    else
        CHECK(cuMemsetD8(from, (unsigned char)(rank + 1), at[nranks]));
    CHECK(cuMemsetD8(to, 0xee, at[nranks]));
    CHECK(cuCtxSynchronize());
}

static long count_wrong(enum kind kind) {
    unsigned char *host = malloc(at[nranks]);
    long wrong = 0;
    CHECK(!host || cuMemcpyDtoH(host, to, at[nranks]));
    for (int r = 0; r < nranks; r++)
        for (size_t b = at[r]; b < at[r + 1]; b++) {
            if (reduces(kind) && r != rank) continue; /* another's result */
            const int sum = nranks * (nranks + 1) / 2, sent = is_apart(kind) ? value(r, rank) : r + 1;
            wrong += host[b] != (!reduces(kind) ? sent : b % 4 == 0 ? sum : 0);
        }
    free(host);
    return wrong;
}

static int compare(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static float time_of(enum kind kind, int calls, int replays) {
    CUgraph graph;
    CUgraphExec exec;
    CUevent event[2];
    float us[MOST_REPLAYS];
    call(kind); /* makes connections, which a capture forbids */
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < calls; i++) call(kind);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 2; i++) CHECK(cuEventCreate(&event[i], CU_EVENT_DEFAULT));
    for (int i = 0; i < replays; i++) {
        CHECK(cuGraphLaunch(exec, stream)); /* the ranks begin together behind it */
        CHECK(cuEventRecord(event[0], stream));
        CHECK(cuGraphLaunch(exec, stream));
        CHECK(cuEventRecord(event[1], stream));
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuEventElapsedTime(&us[i], event[0], event[1]));
    }
    for (int i = 0; i < 2; i++) CHECK(cuEventDestroy(event[i]));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
    qsort(us, (size_t)replays, sizeof *us, compare);
    return us[replays / 2] * 1000 / (float)calls;
}

static size_t bytes_of(const char *text) {
    char *end;
    unsigned long long bytes = strtoull(text, &end, 10);
    const int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : 0;
    if (end == text || end[shift != 0] || bytes << shift < 1024 || bytes << shift > 64 << 20)
        exit((printf("MOST_BYTES: \"%s\"; accepted: 1K to 64M\n", text), 1));
    return (size_t)bytes << shift;
}

int main(int argc, char **argv) {
    const size_t most = argc > 1 ? bytes_of(argv[1]) : 1 << 20;
    const int calls = argc > 2 ? atoi(argv[2]) : 20, replays = argc > 3 ? atoi(argv[3]) : 21;
    long all_wrong = 0;
    int devices;
    CUdevice device;
    CUcontext context;
    rank = number_of("RANK");
    nranks = number_of("WORLD_SIZE");
    if (nranks > MOST_RANKS || calls < 1 || replays < 1 || replays > MOST_REPLAYS)
        return printf("at most 16 ranks, 999 replays\n"), 1;
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&devices));
    CHECK(cuDeviceGet(&device, number_of("LOCAL_RANK") % devices));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&from, most * (size_t)nranks));
    CHECK(cuMemAlloc(&to, most * (size_t)nranks));
    connect_ranks();
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t bytes = 1024; bytes <= most; bytes *= is_apart((enum kind)kind) ? 2 : 4) {
            fill((enum kind)kind, bytes);
            const float us = time_of((enum kind)kind, calls, replays);
            const long wrong = count_wrong((enum kind)kind);
            if (rank == 0) printf("%-20s %8zu bytes: %8.2f us, %ld wrong\n", names[kind], bytes, us, wrong);
            all_wrong += wrong;
        }
    CHECK(ncclCommDestroy(comm));
    CHECK(cuMemFree(from));
    CHECK(cuMemFree(to));
    CHECK(cuStreamDestroy(stream));
    CHECK(cuDevicePrimaryCtxRelease(device));
    return all_wrong != 0;
}
