/* group_lists.c - groups of many calls, of collectives and sizes that are said, in CUDA graphs and eager: times, every result checked.
 *
 *   RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 BEELINE_ID_FILE=PATH group-lists [-c GROUPS] [-n REPLAYS] LIST...     one process a rank
 *
 * A LIST is COLLECTIVE:NxBYTES[,NxBYTES...], `broadcast:16x64K,1x8M`, or several of them that take turns, call by call, `send:8x64K+reduce:8x1K`.
 * Of broadcasts and reduces the roots go round, or are one (`reduce@0:64x256K`); a `send` is one of every rank to that which is so many on (`send@1:4x1K`;
 * else 1, 2, ... go round) and the receive from the one before.  Bytes are those of a call's count, 4 to 1G, and whole int32.
 * So many groups in a graph, or one behind the other (10), the median of so many replays (11), of rank 0.  Exit status: 1 if a result was wrong, or a
 * call failed, or what was asked for is not accepted. */
#include <string.h>
#include <unistd.h>

#include "process.h"

enum collective { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, SEND, COLLECTIVES };
static const char *const names[COLLECTIVES] = {"all_reduce", "all_gather", "reduce_scatter",
                                               "broadcast",  "reduce",     "send"};
/* Blocks that a call reads, and writes: one, or one for each rank. */
static const bool reads_all[COLLECTIVES] = {[REDUCE_SCATTER] = true}, writes_all[COLLECTIVES] = {[ALL_GATHER] = true};
/* What can be said with an @. */
static const bool has_root[COLLECTIVES] = {[BROADCAST] = true, [REDUCE] = true, [SEND] = true};

enum { MOST_CALLS = 1024, POISON = 0xee };

struct call {
    CUdeviceptr from, to;
    enum collective collective;
    size_t words;
    int root;       /* of a send: how far it goes */
    int turn, part; /* the calls' order */
};

struct group {
    int count;
    struct call call[MOST_CALLS];
    const struct process *process;
};

static _Noreturn void refuse(const char *list, const char *accepted) {
    printf("LIST: \"%s\"; accepted: %s\n", list, accepted);
    exit(1);
}

static enum collective collective_of(const char *list, const char *part, size_t length) {
    for (int c = 0; c < COLLECTIVES; c++)
        if (strlen(names[c]) == length && !strncmp(part, names[c], length)) return (enum collective)c;
    refuse(list, "all_reduce, all_gather, reduce_scatter, broadcast, reduce and send");
}

static int root_of(const char *list, const char *text, enum collective collective, int nranks) {
    char *end;
    const long root = strtol(text, &end, 10);
    if (!has_root[collective]) refuse(list, "a root of broadcasts, reduces and sends");
    if (end == text || *end != ':' || root < 0 || root >= nranks) refuse(list, "roots below WORLD_SIZE");
    return (int)root;
}

/* One collective's calls, behind those that the group has already. */
static void parse_part(const char *list, char *text, int part, struct group *group) {
    char *colon = strchr(text, ':'), *at = strchr(text, '@'), *save = NULL;
    const int nranks = group->process->nranks;
    if (!colon) refuse(list, "COLLECTIVE:NxBYTES[,NxBYTES...]");
    if (at > colon) at = NULL;
    const enum collective collective = collective_of(list, text, (size_t)((at ? at : colon) - text));
    const int root = at ? root_of(list, at + 1, collective, nranks) : -1;
    /* A send to the rank itself is to be asked for. */
    const int first = collective == SEND && nranks > 1, roots = nranks - first;
    int turn = 0;
    for (char *some = strtok_r(colon + 1, ",", &save); some; some = strtok_r(NULL, ",", &save)) {
        char *x;
        const long n = strtol(some, &x, 10);
        if (*x != 'x' || n < 1 || n > MOST_CALLS - group->count) refuse(list, "NxBYTES, at most 1024 calls in all");
        const size_t bytes = process_bytes("BYTES", x + 1, 4, 1 << 30);
        if (bytes % 4) refuse(list, "whole int32");
        for (long i = 0; i < n; i++, turn++)
            group->call[group->count++] = (struct call){.collective = collective,
                                                        .words = bytes / 4,
                                                        .root = root >= 0 ? root : first + turn % roots,
                                                        .turn = turn,
                                                        .part = part};
    }
}

static int by_turn(const void *a, const void *b) {
    const struct call *x = a, *y = b;
    return x->turn != y->turn ? x->turn - y->turn : x->part - y->part;
}

static void parse(const char *list, struct group *group) {
    char *all = strdup(list), *save = NULL;
    int parts = 0;
    group->count = 0;
    for (char *text = strtok_r(all, "+", &save); text; text = strtok_r(NULL, "+", &save))
        parse_part(list, text, parts++, group);
    if (!group->count) refuse(list, "COLLECTIVE:NxBYTES[,NxBYTES...]");
    qsort(group->call, (size_t)group->count, sizeof *group->call, by_turn);
    free(all);
}

static size_t read_words(const struct group *group, int k) {
    return group->call[k].words * (reads_all[group->call[k].collective] ? (size_t)group->process->nranks : 1);
}
static size_t written_words(const struct group *group, int k) {
    return group->call[k].words * (writes_all[group->call[k].collective] ? (size_t)group->process->nranks : 1);
}

/* What a rank has of a call: no two of its words are alike, nor two calls or ranks. */
static unsigned value(int k, int rank, size_t word) {
    return (unsigned)(word * 65537 + (size_t)k * MOST_RANKS + (size_t)rank + 1);
}

static void fill(const struct group *group, int k) {
    const size_t words = read_words(group, k);
    unsigned *host = malloc(words * 4);
    CHECK(!host);
    for (size_t w = 0; w < words; w++) host[w] = value(k, group->process->rank, w);
    CHECK(cuMemcpyHtoD(group->call[k].from, host, words * 4));
    free(host);
}

static void poison(void *arg) {
    const struct group *group = arg;
    for (int k = 0; k < group->count; k++) CHECK(cuMemsetD8(group->call[k].to, POISON, written_words(group, k) * 4));
}

static void prepare(struct group *group) {
    for (int k = 0; k < group->count; k++) {
        struct call *call = &group->call[k];
        CHECK(cuMemAlloc(&call->from, read_words(group, k) * 4));
        CHECK(cuMemAlloc(&call->to, written_words(group, k) * 4));
        fill(group, k);
    }
    CHECK(cuCtxSynchronize());
}

static void release(struct group *group) {
    for (int k = 0; k < group->count; k++) {
        CHECK(cuMemFree(group->call[k].from));
        CHECK(cuMemFree(group->call[k].to));
    }
}

/* The rank that is so many on. */
static int rank_at(const struct process *process, int distance) {
    return (process->rank + distance) % process->nranks;
}

static ncclResult_t send_on(const struct process *process, const struct call *call) {
    const int back = process->nranks - call->root;
    const ncclResult_t result = ncclSend((const void *)call->from, call->words, ncclInt32, rank_at(process, call->root),
                                         process->comm, process->stream);
    return result ? result
                  : ncclRecv((void *)call->to, call->words, ncclInt32, rank_at(process, back), process->comm,
                             process->stream);
}

static ncclResult_t make(const struct group *group, const struct call *call) {
    const ncclComm_t comm = group->process->comm;
    const cudaStream_t stream = group->process->stream;
    const void *from = (const void *)call->from;
    void *to = (void *)call->to;
    switch (call->collective) {
    case ALL_REDUCE: return ncclAllReduce(from, to, call->words, ncclInt32, ncclSum, comm, stream);
    case ALL_GATHER: return ncclAllGather(from, to, call->words, ncclInt32, comm, stream);
    case REDUCE_SCATTER: return ncclReduceScatter(from, to, call->words, ncclInt32, ncclSum, comm, stream);
    case BROADCAST: return ncclBroadcast(from, to, call->words, ncclInt32, call->root, comm, stream);
    case REDUCE: return ncclReduce(from, to, call->words, ncclInt32, ncclSum, call->root, comm, stream);
    case SEND: return send_on(group->process, call);
    default: return ncclInternalError;
    }
}

static void make_all(void *arg) {
    const struct group *group = arg;
    CHECK(ncclGroupStart());
    for (int k = 0; k < group->count; k++) CHECK(make(group, &group->call[k]));
    CHECK(ncclGroupEnd());
}

static unsigned expected(const struct group *group, int k, size_t word) {
    const struct call *call = &group->call[k];
    const int nranks = group->process->nranks;
    switch (call->collective) {
    case SEND: return value(k, rank_at(group->process, nranks - call->root), word);
    case ALL_GATHER: return value(k, (int)(word / call->words), word % call->words);
    case BROADCAST: return value(k, call->root, word);
    case REDUCE: /* others' are as they were */
        if (group->process->rank != call->root) return POISON * 0x01010101u;
        break;
    case REDUCE_SCATTER: word += (size_t)group->process->rank * call->words; break;
    default: break;
    }
    return (unsigned)nranks * value(k, 0, word) + (unsigned)(nranks * (nranks - 1) / 2);
}

static long count_wrong(const struct group *group) {
    long wrong = 0;
    for (int k = 0; k < group->count; k++) {
        const size_t words = written_words(group, k);
        unsigned *host = malloc(words * 4);
        CHECK(!host || cuMemcpyDtoH(host, group->call[k].to, words * 4));
        for (size_t w = 0; w < words; w++) wrong += host[w] != expected(group, k, w);
        free(host);
    }
    return wrong;
}

int main(int argc, char **argv) {
    struct process process;
    struct group *group = calloc(1, sizeof *group);
    int groups = 10, replays = 11;
    long all_wrong = 0;
    for (int option; (option = getopt(argc, argv, "c:n:")) != -1;)
        if (option == 'c')
            groups = atoi(optarg);
        else if (option == 'n')
            replays = atoi(optarg);
        else
            exit((printf("accepted: [-c GROUPS] [-n REPLAYS] LIST...\n"), 1));
    if (optind == argc) exit((printf("no LIST: COLLECTIVE:NxBYTES[,NxBYTES...]\n"), 1));
    CHECK(!group);
    process_open(&process);
    group->process = &process;
    for (; optind < argc; optind++) {
        float us[2];
        long wrong = 0;
        parse(argv[optind], group);
        prepare(group);
        for (int captured = 0; captured < 2; captured++) {
            us[captured] = process_time(&process, make_all, poison, group, captured, groups, replays);
            wrong += count_wrong(group);
        }
        if (process.rank == 0)
            printf("%-36s graph %9.2f us, eager %9.2f us, %ld wrong\n", argv[optind], us[1], us[0], wrong);
        fflush(stdout);
        release(group);
        all_wrong += wrong;
    }
    process_close(&process);
    free(group);
    return all_wrong != 0;
}
