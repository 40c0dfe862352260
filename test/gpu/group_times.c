/* group_times.c - groups of one broadcast, or one reduce, of each rank, which uneven all-gathers and reduce-scatters are, and of messages from
 * each rank to each, itself too, which all-to-alls with splits are, beside even ones: times in CUDA graphs, every result checked.
 *
 *   RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 BEELINE_ID_FILE=PATH group-times [MOST_BYTES [CALLS [REPLAYS]]]     one process a rank
 *
 * From 1 K to MOST_BYTES (1M, 1K to 64M) of each rank, or from each to each, in steps of four, messages of two; so many groups in a graph (20),
 * the median of so many replays (21), of rank 0.  Exit status: 1 if a result was wrong, or a call failed. */

#include "process.h"

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
enum { GRAIN = 16 };

static struct process process;
static CUdeviceptr from, to;
static size_t at[MOST_RANKS + 1]; /* where each rank's block begins */

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
    for (int step = 0; step < process.nranks; step++) {
        const int next = (process.rank + step) % process.nranks,
                  before = (process.rank + process.nranks - step) % process.nranks;
        CHECK(ncclSend((void *)(from + at[next]), at[1], ncclInt8, next, process.comm, process.stream));
        CHECK(ncclRecv((void *)(to + at[before]), at[1], ncclInt8, before, process.comm, process.stream));
    }
    CHECK(ncclGroupEnd());
}

static void make(void *arg) {
    const enum kind kind = *(const enum kind *)arg;
    if (kind == MESSAGES) return exchange();
    if (kind == ALL_TO_ALL) {
        CHECK(ncclAlltoAll((void *)from, (void *)to, at[1], ncclInt8, process.comm, process.stream));
        return;
    }
    if (kind == ALL_GATHER) {
        CHECK(ncclAllGather((void *)(from + at[process.rank]), (void *)to, at[1], ncclInt8, process.comm,
                            process.stream));
        return;
    }
    if (kind == REDUCE_SCATTER) {
        CHECK(ncclReduceScatter((void *)from, (void *)(to + at[process.rank]), at[1] / 4, ncclInt32, ncclSum,
                                process.comm, process.stream));
        return;
    }
    CHECK(ncclGroupStart());
    for (int r = 0; r < process.nranks; r++) {
        void *send = (void *)(from + at[r]), *recv = (void *)(to + at[r]);
        const size_t bytes = at[r + 1] - at[r];
        if (reduces(kind))
            CHECK(ncclReduce(send, recv, bytes / 4, ncclInt32, ncclSum, r, process.comm, process.stream));
        else
            CHECK(ncclBroadcast(send, recv, bytes, ncclInt8, r, process.comm, process.stream));
    }
    CHECK(ncclGroupEnd());
}

/* What a rank sends to another in a block of its own. */
static unsigned char value(int sender, int receiver) {
    return (unsigned char)(sender * process.nranks + receiver + 1);
}

/* Blocks of `bytes`, or, uneven, of their shares of it; else than in blocks of their own each rank's input is its number plus one. */
static void fill(enum kind kind, size_t bytes) {
    for (int r = 0; r < process.nranks; r++)
        at[r + 1] =
            at[r] + (is_uneven(kind) ? bytes * (size_t)(r + 1) / (size_t)process.nranks / GRAIN * GRAIN : bytes);
    if (is_apart(kind))
        for (int r = 0; r < process.nranks; r++) CHECK(cuMemsetD8(from + at[r], value(process.rank, r), bytes));
    else if (reduces(kind))
        CHECK(cuMemsetD32(from, (unsigned)process.rank + 1, at[process.nranks] / 4));
    else
        CHECK(cuMemsetD8(from, (unsigned char)(process.rank + 1), at[process.nranks]));
    CHECK(cuCtxSynchronize());
}

static void poison(void *unused) {
    CHECK(cuMemsetD8(to, 0xee, at[process.nranks]));
}

static long count_wrong(enum kind kind) {
    unsigned char *host = malloc(at[process.nranks]);
    long wrong = 0;
    CHECK(!host || cuMemcpyDtoH(host, to, at[process.nranks]));
    for (int r = 0; r < process.nranks; r++)
        for (size_t b = at[r]; b < at[r + 1]; b++) {
            if (reduces(kind) && r != process.rank) continue; /* another's result */
            const int sum = process.nranks * (process.nranks + 1) / 2,
                      sent = is_apart(kind) ? value(r, process.rank) : r + 1;
            wrong += host[b] != (!reduces(kind) ? sent : b % 4 == 0 ? sum : 0);
        }
    free(host);
    return wrong;
}

int main(int argc, char **argv) {
    const size_t most = argc > 1 ? process_bytes("MOST_BYTES", argv[1], 1024, 64 << 20) : 1 << 20;
    const int calls = argc > 2 ? atoi(argv[2]) : 20, replays = argc > 3 ? atoi(argv[3]) : 21;
    long all_wrong = 0;
    process_open(&process);
    CHECK(cuMemAlloc(&from, most * (size_t)process.nranks));
    CHECK(cuMemAlloc(&to, most * (size_t)process.nranks));
    for (enum kind kind = 0; kind < KINDS; kind++)
        for (size_t bytes = 1024; bytes <= most; bytes *= is_apart(kind) ? 2 : 4) {
            fill(kind, bytes);
            const float us = process_time(&process, make, poison, &kind, true, calls, replays);
            const long wrong = count_wrong(kind);
            if (process.rank == 0) printf("%-20s %8zu bytes: %8.2f us, %ld wrong\n", names[kind], bytes, us, wrong);
            all_wrong += wrong;
        }
    CHECK(cuMemFree(from));
    CHECK(cuMemFree(to));
    process_close(&process);
    return all_wrong != 0;
}
