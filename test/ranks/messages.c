/* messages.c - groups of messages that the seed draws, of which some are Beeline's and some NCCL's, beside collectives of either: on two communicators and
 * two streams, eager and captured, by threads that drive one GPU or all. */
#include <stdlib.h>
#include <string.h>

#include "scenarios.h"

enum { MOST = 300, SLOT = 40000, COMMS = 2, CALLS = 2, ROUNDS = 20, POISON = 0xa5 };

struct message {
    int from, to, comm;
    size_t bytes;
};

/* A group; message k has slot k of the arenas of its ranks. */
struct group {
    uint64_t seed;
    bool captured, streams;
    int count;
    struct message message[MOST];
    bool calls[CALLS]; /* in the midst: a sum of few elements, one of many */
    struct call call[CALLS];
};

struct arenas {
    ncclComm_t comm[COMMS][BOX_RANKS];
    CUdeviceptr send[BOX_RANKS], recv[BOX_RANKS];
    unsigned char *image;
};

static unsigned char byte_of(const struct group *g, int k, size_t i) {
    return (unsigned char)(g->seed * 31 + (uint64_t)k * 17 + i * 7 + i / 251);
}

/* Some rounds have more than a launch takes. */
static void draw(const struct part *part, struct group *g, int round) {
    static const size_t sizes[] = {0, 1, 100, 480, 481, 1000, 4096, 4097, 9000, SLOT - 1000};
    const uint64_t n = (uint64_t)part->box->nranks;
    uint64_t state = ref_mix(part->box->seed, 0x3e55u + (uint64_t)round);
    g->seed = (uint64_t)round;
    g->captured = round % 4 == 3;
    g->streams = round % 4 == 1;
    g->count = 1 + (int)ref_below(&state, round % 3 ? 30 : MOST);
    for (int k = 0; k < g->count; k++) {
        const int from = (int)ref_below(&state, n), to = (int)ref_below(&state, n);
        const bool small = ref_below(&state, 2), other = ref_below(&state, 4) == 0;
        const size_t bytes = small ? ref_below(&state, 3000) : sizes[ref_below(&state, sizeof sizes / sizeof *sizes)];
        g->message[k] = (struct message){from, to, other, bytes};
    }
    for (int c = 0; c < CALLS; c++) g->calls[c] = ref_below(&state, 2);
}

/* Each message from and to each rank, which is as NCCL connects them: a captured one may not be the first. */
static void all_pairs(const struct part *part, struct group *g) {
    const int n = part->box->nranks;
    *g = (struct group){.count = COMMS * n * n};
    for (int k = 0; k < g->count; k++) g->message[k] = (struct message){k / n % n, k % n, k / n / n, SLOT - 1000};
}

static void fill(struct part *part, struct group *g, struct arenas *a) {
    for (int c = 0; c < CALLS; c++) {
        g->call[c] = (struct call){.collective = BL_ALLREDUCE,
                                   .datatype = ref_datatype("int32"),
                                   .redop = ref_redop("sum"),
                                   .count = c ? 20000 : 100,
                                   .seed = ref_mix(part->box->seed, g->seed * CALLS + (uint64_t)c)};
        if (g->calls[c]) call_prepare(part, &g->call[c]);
    }
    each_rank (part, i) {
        memset(a->image, POISON, (size_t)g->count * SLOT);
        box_upload(a->recv[i], a->image, (size_t)g->count * SLOT);
        for (int k = 0; k < g->count; k++)
            for (size_t b = 0; b < g->message[k].bytes && g->message[k].from == part->rank[i].rank; b++)
                a->image[(size_t)k * SLOT + b] = byte_of(g, k, b);
        box_upload(a->send[i], a->image, (size_t)g->count * SLOT);
    }
}

static void post(struct part *part, struct group *g, const struct arenas *a, int i, int k) {
    const struct message *m = &g->message[k];
    const struct rank *rank = &part->rank[i];
    const CUstream stream = rank->stream[g->streams && k % 2];
    void *send = (void *)(a->send[i] + (size_t)k * SLOT), *recv = (void *)(a->recv[i] + (size_t)k * SLOT);
    for (int c = 0; c < CALLS && k == g->count / 2; c++)
        if (g->calls[c]) NCCL_OK(call_issue_rank(part, &g->call[c], i, a->comm[0][i], rank->stream[0]));
    if (m->from == rank->rank) NCCL_OK(ncclSend(send, m->bytes, ncclInt8, m->to, a->comm[m->comm][i], stream));
    if (m->to == rank->rank) NCCL_OK(ncclRecv(recv, m->bytes, ncclInt8, m->from, a->comm[m->comm][i], stream));
}

static void run_group(struct part *part, struct group *g, const struct arenas *a) {
    struct graphs graphs;
    if (g->captured) graphs_begin(part, 0);
    NCCL_OK(ncclGroupStart());
    each_rank (part, i)
        for (int k = 0; k < g->count; k++) post(part, g, a, i, k);
    NCCL_OK(ncclGroupEnd());
    if (g->captured) graphs_end(part, 0, &graphs);
    for (int replay = 0; g->captured && replay < 2; replay++) graphs_launch(part, &graphs, 0);
    part_synchronize(part);
    if (g->captured) graphs_free(part, &graphs);
}

static void check(struct part *part, struct group *g, struct arenas *a) {
    each_rank (part, i) {
        CU_OK(cuMemcpyDtoH(a->image, a->recv[i], (size_t)g->count * SLOT));
        for (int k = 0; k < g->count; k++)
            for (size_t b = 0; b < SLOT; b++) {
                const struct message *m = &g->message[k];
                const bool here = m->to == part->rank[i].rank && b < m->bytes;
                CHECK(a->image[(size_t)k * SLOT + b] == (here ? byte_of(g, k, b) : POISON),
                      "rank %d, message %d of %d, %zu bytes from %d to %d: byte %zu", part->rank[i].rank, k, g->count,
                      m->bytes, m->from, m->to, b);
            }
    }
    for (int c = 0; c < CALLS; c++)
        if (g->calls[c]) {
            call_check(part, &g->call[c]);
            call_free(part, &g->call[c]);
        }
}

static void drawn(struct part *part, const struct options *o) {
    struct group *g = calloc(1, sizeof *g);
    struct arenas a = {.image = malloc((size_t)MOST * SLOT)};
    CHECK(g && a.image);
    part_comms(part, a.comm[0]);
    part_make_communicators(part, 1, a.comm[1]);
    each_rank (part, i) {
        CU_OK(cuMemAlloc(&a.send[i], (size_t)MOST * SLOT));
        CU_OK(cuMemAlloc(&a.recv[i], (size_t)MOST * SLOT));
    }
    for (int round = -1; round < ROUNDS; round++) {
        if (round < 0)
            all_pairs(part, g);
        else
            draw(part, g, round);
        fill(part, g, &a);
        part_barrier(part);
        run_group(part, g, &a);
        check(part, g, &a);
    }
    each_rank (part, i) {
        CU_OK(cuMemFree(a.send[i]));
        CU_OK(cuMemFree(a.recv[i]));
    }
    part_destroy_communicators(part, a.comm[1]);
    free(a.image);
    free(g);
}

const struct scenario message_scenarios[] = {{.name = "messages_drawn", .run = drawn}, {0}};
