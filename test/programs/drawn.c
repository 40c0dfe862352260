/* drawn.c - groups that the seed draws, of all collectives and of messages, on four communicators, against a model of all ranks' memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs.h"

/* A rank's memory: blocks of 32-bit words.  What an operation reads or writes no other of its group does. */
enum { RANKS = 4, BLOCKS = 40, WORDS = 12288, STREAMS = 3, COMMS = 4, MOST = 40, GROUPS = 5 };

enum kind { ALL_REDUCE, SCALED, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, MESSAGE, KINDS };
/* Whether it reads, and writes, a block's worth for each rank; whether it may do so in place. */
static const bool reads_all[KINDS] = {[REDUCE_SCATTER] = true}, writes_all[KINDS] = {[ALL_GATHER] = true},
                  has_place[KINDS] = {[ALL_REDUCE] = true, [SCALED] = true, [BROADCAST] = true, [REDUCE] = true};
enum { SCALE = 3 };

struct operation {
    enum kind kind;
    int comm, stream, root, to; /* ranks of the communicator; of a message root sends */
    int from_block, to_block;
    size_t words;
};

struct drawn {
    int count;
    struct operation operation[MOST];
};

/* A communicator's ranks as those of the box; -1: this rank is none of them. */
struct team {
    ncclComm_t comm;
    ncclRedOp_t scaled;
    int rank, nranks, of_box[RANKS];
};

struct world {
    struct part *part;
    struct team team[COMMS];
    CUstream stream[STREAMS];
    CUdeviceptr memory;
    uint32_t *now[RANKS], *before[RANKS]; /* the model, after and ahead of a group */
    uint64_t state;
};

static uint64_t below(struct world *w, uint64_t n) {
    w->state = w->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (w->state >> 33) % n;
}

/* --- communicators: two of all ranks, all the other way round, and the first two --- */
static void take_all(struct team *team, struct part *part, bool reversed) {
    const int n = part->box->nranks, rank = self(part)->rank;
    team->nranks = n;
    team->rank = reversed ? n - 1 - rank : rank;
    for (int r = 0; r < n; r++) team->of_box[r] = reversed ? n - 1 - r : r;
}

static void open_teams(struct world *w) {
    struct part *part = w->part;
    const int n = part->box->nranks, rank = self(part)->rank;
    uint32_t scale = SCALE;
    for (int c = 0; c < 3; c++) take_all(&w->team[c], part, c == 2);
    w->team[3] = (struct team){.nranks = 2, .rank = rank < 2 ? rank : -1, .of_box = {0, 1}};
    for (int c = 0; c < 2; c++) w->team[c].comm = comm_open(part);
    NCCL_OK(ncclCommSplit(w->team[0].comm, 0, n - rank, &w->team[2].comm, NULL));
    NCCL_OK(ncclCommSplit(w->team[0].comm, rank < 2 ? 0 : NCCL_SPLIT_NOCOLOR, rank, &w->team[3].comm, NULL));
    for (int c = 0; c < COMMS; c++)
        if (w->team[c].rank >= 0)
            NCCL_OK(ncclRedOpCreatePreMulSum(&w->team[c].scaled, &scale, ncclUint32, ncclScalarHostImmediate,
                                             w->team[c].comm));
}

static void close_teams(struct world *w) {
    for (int c = COMMS - 1; c >= 0; c--) {
        if (w->team[c].rank < 0) continue;
        NCCL_OK(ncclRedOpDestroy(w->team[c].scaled, w->team[c].comm));
        if (c < 2)
            comm_close(w->part, w->team[c].comm);
        else
            NCCL_OK(ncclCommDestroy(w->team[c].comm));
    }
}

/* --- what an operation does --- */
static uint32_t *block(uint32_t *const memory[RANKS], const struct team *team, int rank, int number) {
    return memory[team->of_box[rank]] + (size_t)number * WORDS;
}

static uint32_t sum(const struct world *w, const struct operation *o, size_t word) {
    const struct team *team = &w->team[o->comm];
    uint32_t all = 0;
    for (int r = 0; r < team->nranks; r++) all += block(w->before, team, r, o->from_block)[word];
    return o->kind == SCALED ? SCALE * all : all;
}

/* What rank r has of it afterwards, if it gets anything. */
static void model_rank(struct world *w, const struct operation *o, int r) {
    const struct team *team = &w->team[o->comm];
    const size_t n = o->words;
    uint32_t *const to = block(w->now, team, r, o->to_block);
    switch (o->kind) {
    case REDUCE:
        if (r != o->root) break; /* fallthrough */
    case ALL_REDUCE:
    case SCALED:
        for (size_t i = 0; i < n; i++) to[i] = sum(w, o, i);
        break;
    case REDUCE_SCATTER:
        for (size_t i = 0; i < n; i++) to[i] = sum(w, o, (size_t)r * n + i);
        break;
    case ALL_GATHER:
        for (int q = 0; q < team->nranks; q++)
            memcpy(to + (size_t)q * n, block(w->before, team, q, o->from_block), n * 4);
        break;
    case MESSAGE:
        if (r != o->to) break; /* fallthrough */
    case BROADCAST: memcpy(to, block(w->before, team, o->root, o->from_block), n * 4); break;
    default: break;
    }
}

static void model(struct world *w, const struct drawn *group) {
    for (int r = 0; r < w->part->box->nranks; r++) memcpy(w->before[r], w->now[r], (size_t)BLOCKS * WORDS * 4);
    for (int i = 0; i < group->count; i++)
        for (int r = 0; r < w->team[group->operation[i].comm].nranks; r++) model_rank(w, &group->operation[i], r);
}

static void issue(const struct world *w, const struct operation *o) {
    const struct team *team = &w->team[o->comm];
    const ncclComm_t comm = team->comm;
    const CUstream stream = w->stream[o->stream];
    void *const from = (void *)(w->memory + (size_t)o->from_block * WORDS * 4), *const to =
                                                                                    (void *)(w->memory +
                                                                                             (size_t)o->to_block *
                                                                                                 WORDS * 4);
    if (team->rank < 0) return;
    switch (o->kind) {
    case ALL_REDUCE: NCCL_OK(ncclAllReduce(from, to, o->words, ncclUint32, ncclSum, comm, stream)); break;
    case SCALED: NCCL_OK(ncclAllReduce(from, to, o->words, ncclUint32, team->scaled, comm, stream)); break;
    case ALL_GATHER: NCCL_OK(ncclAllGather(from, to, o->words, ncclFloat, comm, stream)); break;
    case REDUCE_SCATTER: NCCL_OK(ncclReduceScatter(from, to, o->words, ncclUint32, ncclSum, comm, stream)); break;
    case BROADCAST: NCCL_OK(ncclBroadcast(from, to, o->words, ncclInt32, o->root, comm, stream)); break;
    case REDUCE: NCCL_OK(ncclReduce(from, to, o->words, ncclUint32, ncclSum, o->root, comm, stream)); break;
    case MESSAGE: /* its ends need not agree on the datatype */
        if (team->rank == o->root) NCCL_OK(ncclSend(from, o->words, ncclInt32, o->to, comm, stream));
        if (team->rank == o->to) NCCL_OK(ncclRecv(to, o->words * 4, ncclInt8, o->root, comm, stream));
        break;
    default: break;
    }
}

/* Now and then a part of it is a group inside. */
static void issue_group(struct world *w, const struct drawn *group) {
    const int begin = (int)below(w, MOST), end = begin + (int)below(w, MOST);
    NCCL_OK(ncclGroupStart());
    for (int i = 0; i < group->count; i++) {
        if (i == begin) NCCL_OK(ncclGroupStart());
        issue(w, &group->operation[i]);
        if (i >= begin && (i == end || (i < end && i == group->count - 1))) NCCL_OK(ncclGroupEnd());
    }
    NCCL_OK(ncclGroupEnd());
}

/* --- drawing: the same on all ranks --- */
static size_t draw_words(struct world *w) {
    switch (below(w, 8)) {
    case 0: return 0;
    case 1: return 1 + below(w, 40);
    case 2: return 4096 * (1 + below(w, 2));
    case 3: return WORDS - below(w, 100);
    case 4: return 1 + below(w, 4200);
    default: return 1 + below(w, 1200);
    }
}

/* So many blocks that are free yet, taken; -1: not found. */
static int draw_blocks(struct world *w, bool *taken, int count) {
    for (int tries = 0; tries < 20; tries++) {
        const int first = (int)below(w, (uint64_t)(BLOCKS - count + 1));
        bool free = true;
        for (int i = 0; i < count; i++) free = free && !taken[first + i];
        for (int i = 0; i < count && free; i++) taken[first + i] = true;
        if (free) return first;
    }
    return -1;
}

/* comm, stream: -1 for any. */
static void draw_group(struct world *w, struct drawn *group, int comm, int stream) {
    bool taken[BLOCKS] = {false};
    const int wanted = 1 + (int)below(w, below(w, 4) ? 10 : MOST);
    group->count = 0;
    for (int i = 0; i < wanted; i++) {
        struct operation o = {.kind = below(w, 3) ? (enum kind)below(w, KINDS) : MESSAGE, .words = draw_words(w)};
        o.comm = comm < 0 ? (int)below(w, COMMS) : comm;
        o.stream = stream < 0 ? (int)below(w, STREAMS) : stream;
        const int n = w->team[o.comm].nranks;
        o.root = (int)below(w, (uint64_t)n);
        o.to = (int)below(w, (uint64_t)n);
        o.from_block = draw_blocks(w, taken, reads_all[o.kind] ? n : 1);
        const bool in_place = has_place[o.kind] && below(w, 3) == 0;
        o.to_block = in_place ? o.from_block : draw_blocks(w, taken, writes_all[o.kind] ? n : 1);
        if (o.from_block >= 0 && o.to_block >= 0) group->operation[group->count++] = o;
    }
}

/* NCCL connects ranks, and loads kernels, at the first call that needs it: of every kind, alone and with messages. */
static void warm_up(struct world *w) {
    for (int c = 0; c < COMMS; c++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int with = 0; with < 2; with++) {
                const int n = w->team[c].nranks;
                struct drawn group = {.operation = {{(enum kind)kind, c, 0, 0, 0, 0, RANKS, WORDS / 2}}, .count = 1};
                for (int r = 0; r < n * n && with; r++)
                    group.operation[group.count++] =
                        (struct operation){MESSAGE, c, 0, r % n, r / n, 2 * RANKS + r % n, 4 * RANKS + r % n, WORDS};
                issue_group(w, &group);
            }
    stream_sync(w->stream[0]);
}

/* --- a round: groups, captured and replayed or not, and what is in the memory then --- */
static void fill(struct world *w, uint64_t round) {
    for (int r = 0; r < w->part->box->nranks; r++)
        for (uint32_t i = 0; i < BLOCKS * WORDS; i++)
            w->now[r][i] = (i * 2654435761u ^ (uint32_t)r * 0x9e3779b9u) + (uint32_t)round;
    box_upload(w->memory, w->now[self(w->part)->rank], (size_t)BLOCKS * WORDS * 4);
}

static void check(const struct world *w, uint64_t round) {
    const int rank = self(w->part)->rank;
    uint32_t *found = malloc((size_t)BLOCKS * WORDS * 4);
    CHECK(found);
    CU_OK(cuMemcpyDtoH(found, w->memory, (size_t)BLOCKS * WORDS * 4));
    for (size_t i = 0; i < (size_t)BLOCKS * WORDS; i++)
        if (found[i] != w->now[rank][i])
            FAIL("rank %d, round %llu: word %zu of block %zu is %08x, not %08x", rank, (unsigned long long)round,
                 i % WORDS, i / WORDS, found[i], w->now[rank][i]);
    free(found);
}

/* All streams behind the first, or the first behind all. */
static void join(const struct world *w, bool fork) {
    CUevent event;
    CU_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 1; i < STREAMS; i++) {
        CU_OK(cuEventRecord(event, w->stream[fork ? 0 : i]));
        CU_OK(cuStreamWaitEvent(w->stream[fork ? i : 0], event, CU_EVENT_WAIT_DEFAULT));
    }
    CU_OK(cuEventDestroy(event));
}

/* What is on several streams is of one communicator: ranks need not come to several in one order. */
static void eager_groups(struct world *w, struct drawn *groups, int comm, int stream) {
    const int count = 1 + (int)below(w, GROUPS);
    for (int g = 0; g < count; g++) {
        draw_group(w, &groups[g], comm, stream);
        if (below(w, 4) == 0 && (int)below(w, (uint64_t)w->part->box->nranks) == self(w->part)->rank)
            delay(w->stream[stream < 0 ? 0 : stream], 2000);
        issue_group(w, &groups[g]);
        model(w, &groups[g]);
    }
}

static void captured_groups(struct world *w, struct drawn *groups, int comm, int stream, struct graph *graph) {
    const int count = 1 + (int)below(w, GROUPS - 2);
    capture_begin(w->stream[0]);
    join(w, true);
    for (int g = 0; g < count; g++) {
        draw_group(w, &groups[g], comm, stream);
        issue_group(w, &groups[g]);
    }
    join(w, false);
    capture_end(w->stream[0], graph);
    for (int replay = 0; replay < 2; replay++) {
        struct drawn between;
        CU_OK(cuGraphLaunch(graph->exec, w->stream[0]));
        for (int g = 0; g < count; g++) model(w, &groups[g]);
        draw_group(w, &between, comm, 0);
        issue_group(w, &between);
        model(w, &between);
    }
}

static void drawn_groups(struct part *part, const struct settings *s) {
    const size_t bytes = (size_t)BLOCKS * WORDS * 4;
    struct world *w = calloc(1, sizeof *w);
    struct drawn *groups = calloc(GROUPS, sizeof *groups);
    CHECK(w && groups && part->box->nranks <= RANKS);
    *w = (struct world){.part = part, .state = s->seed * 7919 + 17};
    open_teams(w);
    CU_OK(cuMemAlloc(&w->memory, bytes));
    for (int i = 0; i < STREAMS; i++) w->stream[i] = stream_open();
    for (int r = 0; r < part->box->nranks; r++) CHECK((w->now[r] = malloc(bytes)) && (w->before[r] = malloc(bytes)));
    warm_up(w);
    for (long round = 0; round < 8 * s->repeat; round++) {
        struct graph graph = {0};
        const bool captures = below(w, 3) == 0, single = captures || below(w, 2);
        const int comm = single ? (int)below(w, COMMS) : -1,
                  stream = single && below(w, 4) ? -1 : (int)below(w, STREAMS);
        fill(w, (uint64_t)round);
        part_barrier(part);
        doing(part, "round %ld: communicator %d, stream %d%s", round, comm, stream, captures ? ", captured" : "");
        if (captures)
            captured_groups(w, groups, comm, stream, &graph);
        else
            eager_groups(w, groups, comm, stream);
        for (int i = 0; i < STREAMS; i++) stream_sync(w->stream[i]);
        check(w, (uint64_t)round);
        if (captures) graph_close(&graph);
        part_barrier(part);
    }
    close_teams(w);
    for (int i = 0; i < STREAMS; i++) stream_close(w->stream[i]);
    for (int r = 0; r < part->box->nranks; r++) free(w->now[r]), free(w->before[r]);
    CU_OK(cuMemFree(w->memory));
    free(groups);
    free(w);
}

const struct program drawn_programs[] = {
    {"drawn_groups", drawn_groups},
    {0},
};
