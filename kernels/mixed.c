/* mixed.c - the host's side of mixed_ll128.cu: of what a launch of several collectives is made, and where its lines have their places. */
#include "kernels.h"

/* Of a group of lanes each, which a warp has at a time: WARP_LINES of lines.cuh. */
enum { LINES_TOGETHER = 4 };

/* All-reduces whose lines, counted once for each peer, are so many at most go in one shot: about where H200's thresholds for single calls change. */
enum { MOST_ONESHOT = 5120 };

/* Lines of a broadcast lie in the rings of its root, at all others; those of a reduce in all rings at its root; those of an all-reduce in
 * both kinds, of whichever rank; those of an exchange in each rank's ring of the rank so many before it.  So broadcasts of different roots can have the same
 * places, and reduces, and exchanges over different distances; no two of different kinds can. */
enum section { BROADCASTS, REDUCES, ALLREDUCES, EXCHANGES, SECTIONS };
_Static_assert((int)SECTIONS == (int)BL_MIXED_SECTIONS, "kernels.h has room for each");

static const struct {
    bool is_mixed, of_all; /* of_all: a message for each rank, which is its root, or so far away */
    enum section section;
} rows[BL_COLLECTIVES] = {[BL_BROADCAST] = {true, false, BROADCASTS}, [BL_ALLGATHER] = {true, true, BROADCASTS},
                          [BL_REDUCE] = {true, false, REDUCES},       [BL_REDUCESCATTER] = {true, true, REDUCES},
                          [BL_ALLREDUCE] = {true, false, ALLREDUCES}, [BL_ALLTOALL] = {true, true, EXCHANGES}};

bool bl_mixed_has(int collective) {
    return collective >= 0 && collective < BL_COLLECTIVES && rows[collective].is_mixed;
}

void bl_mixed_begin(struct bl_mixed *mixed, int nranks) {
    *mixed = (struct bl_mixed){.nranks = (uint32_t)nranks, .most_oneshot = MOST_ONESHOT};
}

/* Those of all-reduces are counted as of rank 0. */
static struct bl_mixed_count *counter_of(struct bl_mixed *mixed, int collective, unsigned root) {
    const enum section section = rows[collective].section;
    return &mixed->of[section][section == ALLREDUCES ? 0 : root];
}

static uint64_t divide_up(uint64_t a, uint64_t b) {
    return (a + b - 1) / b;
}

static void count(struct bl_mixed_count *counter, uint64_t lines) {
    counter->messages++;
    counter->lines += lines;
}

void bl_mixed_count(struct bl_mixed *mixed, int collective, unsigned root, uint64_t bytes) {
    const bool of_all = rows[collective].of_all;
    const uint64_t lines = bl_lines_of(bytes, BL_FLAGGED_DATA);
    for (unsigned r = of_all ? 0 : root; r < (of_all ? mixed->nranks : root + 1); r++) {
        count(counter_of(mixed, collective, r), lines);
        count(&mixed->all, lines);
    }
}

static uint64_t most_of(const struct bl_mixed *mixed, enum section section) {
    uint64_t most = 0;
    for (unsigned r = 0; r < mixed->nranks; r++)
        if (most < mixed->of[section][r].lines) most = mixed->of[section][r].lines;
    return most;
}

static uint64_t begin_of(const struct bl_mixed *mixed, enum section section) {
    uint64_t begin = 0;
    for (enum section before = 0; before < section; before++) begin += most_of(mixed, before);
    return begin;
}

uint64_t bl_mixed_span(const struct bl_mixed *mixed) {
    return begin_of(mixed, SECTIONS);
}

static enum bl_mixed_kind kind_of(const struct bl_mixed *mixed, enum section section) {
    static const enum bl_mixed_kind kinds[SECTIONS] = {BL_MIXED_BROADCAST, BL_MIXED_REDUCE, BL_MIXED_ONESHOT,
                                                       BL_MIXED_EXCHANGE};
    const uint64_t sent = mixed->of[ALLREDUCES][0].lines * (mixed->nranks - 1);
    return section == ALLREDUCES && mixed->nranks > 2 && sent > mixed->most_oneshot ? BL_MIXED_TWOSHOT : kinds[section];
}

/* What this rank has to do with a message's lines: it sends some of them, and takes others; it sends and takes each; it only sends, or only takes them.
 * Messages lie in this order, so that neither goes over what is for the other. */
enum part { SHARED, BOTH, SENT, TAKEN };
_Static_assert((int)TAKEN + 1 == (int)BL_MIXED_PARTS, "kernels.h has room for each");

static enum part part_of(enum bl_mixed_kind kind, unsigned root, unsigned rank) {
    switch (kind) {
    case BL_MIXED_BROADCAST: return root == rank ? SENT : TAKEN;
    case BL_MIXED_REDUCE: return root == rank ? TAKEN : SENT;
    case BL_MIXED_EXCHANGE: return root == 0 ? SENT : BOTH; /* with itself: a copy */
    case BL_MIXED_ONESHOT: return BOTH;
    case BL_MIXED_TWOSHOT: return SHARED;
    }
    return BOTH;
}

/* Which lines of what is shared are this rank's: every nranks-th four of them (mixed_ll128.cu). */
static void share_lines(struct bl_batch_args *args, uint32_t nranks, uint64_t shared) {
    const uint64_t fours = divide_up(shared, LINES_TOGETHER), owned = (fours + nranks - 1 - args->common.rank) / nranks;
    args->shared = (uint32_t)shared;
    args->owned = (uint32_t)(owned * LINES_TOGETHER);
    args->others = (uint32_t)((fours - owned) * LINES_TOGETHER);
}

void bl_mixed_fill_begin(struct bl_mixed_fill *fill, struct bl_batch_args *args, const struct bl_mixed *all) {
    *fill = (struct bl_mixed_fill){.args = args, .nranks = all->nranks};
    for (int i = 0; i < BL_BATCH_MAX; i++) args->first_line[i] = UINT32_MAX;
    args->roots = 0;
    args->in_place = false;
    args->lines = (uint32_t)all->all.lines;
    args->span = (uint32_t)bl_mixed_span(all);
    for (enum section s = 0; s < SECTIONS; s++) {
        fill->kind[s] = (uint8_t)kind_of(all, s);
        for (unsigned r = 0; r < all->nranks; r++) {
            fill->place[s][r] = begin_of(all, s);
            for (int p = (int)part_of(fill->kind[s], r, args->common.rank) + 1; p < BL_MIXED_PARTS; p++) {
                fill->next[p].messages += all->of[s][r].messages;
                fill->next[p].lines += all->of[s][r].lines;
            }
        }
    }
    share_lines(args, all->nranks, fill->next[BOTH].lines);
    args->both = (uint32_t)fill->next[SENT].lines;
    args->sent = (uint32_t)fill->next[TAKEN].lines;
}

static void add_message(struct bl_mixed_fill *fill, int collective, unsigned root, const void *sendbuff, void *recvbuff,
                        uint64_t bytes) {
    const enum section section = rows[collective].section;
    struct bl_batch_args *args = fill->args;
    const unsigned rank = args->common.rank;
    struct bl_mixed_count *const next = &fill->next[part_of(fill->kind[section], root, rank)];
    uint64_t *const place = &fill->place[section][section == ALLREDUCES ? 0 : root],
                    lines = bl_lines_of(bytes, BL_FLAGGED_DATA);
    const unsigned i = next->messages;
    args->message[i] = (struct bl_batch_message){sendbuff, recvbuff, bytes, *place};
    args->first_line[i] = (uint32_t)next->lines;
    args->root[i] = (uint8_t)(fill->kind[section] * BL_MAX_RANKS + root);
    *place += lines;
    count(next, lines);
    /* whom this rank sends to */
    if (section == REDUCES)
        args->roots |= 1u << root;
    else if (section != BROADCASTS || root == rank)
        args->roots = UINT32_MAX;
}

/* The block of a buffer that a message for rank r has; of an exchange over the distance r, who it is for, or who it comes from. */
static unsigned block_sent(const struct bl_mixed_fill *fill, int collective, unsigned r) {
    return collective == BL_ALLTOALL ? (fill->args->common.rank + r) % fill->nranks : r;
}
static unsigned block_received(const struct bl_mixed_fill *fill, int collective, unsigned r) {
    return collective == BL_ALLTOALL ? (fill->args->common.rank + fill->nranks - r) % fill->nranks : r;
}

void bl_mixed_fill_add(struct bl_mixed_fill *fill, int collective, unsigned root, const void *sendbuff, void *recvbuff,
                       uint64_t bytes) {
    const bool scatters = bl_collective_has(collective, BL_SCATTERS),
               gathers = bl_collective_has(collective, BL_GATHERS);
    if (!rows[collective].of_all) return add_message(fill, collective, root, sendbuff, recvbuff, bytes);
    for (unsigned r = 0; r < fill->nranks; r++)
        add_message(fill, collective, r,
                    (const char *)sendbuff + (scatters ? block_sent(fill, collective, r) * bytes : 0),
                    (char *)recvbuff + (gathers ? block_received(fill, collective, r) * bytes : 0), bytes);
}
