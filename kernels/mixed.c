/* mixed.c - the host's side of mixed_ll128.cu: of what a launch of several collectives is made, and where its lines have their places. */
#include "kernels.h"

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
    *mixed = (struct bl_mixed){.nranks = (uint32_t)nranks};
}

/* Those of all-reduces are counted as of rank 0. */
static uint64_t *counter_of(struct bl_mixed *mixed, int collective, unsigned root) {
    const enum section section = rows[collective].section;
    return &mixed->lines_of[section][section == ALLREDUCES ? 0 : root];
}

void bl_mixed_count(struct bl_mixed *mixed, int collective, unsigned root, uint64_t bytes) {
    const bool of_all = rows[collective].of_all;
    const uint64_t lines = bl_lines_of(bytes, BL_FLAGGED_DATA);
    for (unsigned r = of_all ? 0 : root; r < (of_all ? mixed->nranks : root + 1); r++) {
        *counter_of(mixed, collective, r) += lines;
        mixed->messages++;
        mixed->lines += lines;
    }
}

static uint64_t most_of(const struct bl_mixed *mixed, enum section section) {
    uint64_t most = 0;
    for (unsigned r = 0; r < mixed->nranks; r++)
        if (most < mixed->lines_of[section][r]) most = mixed->lines_of[section][r];
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
    const uint64_t sent = mixed->lines_of[ALLREDUCES][0] * (mixed->nranks - 1);
    return section == ALLREDUCES && mixed->nranks > 2 && sent > MOST_ONESHOT ? BL_MIXED_TWOSHOT : kinds[section];
}

void bl_mixed_fill_begin(struct bl_mixed_fill *fill, struct bl_batch_args *args, const struct bl_mixed *all) {
    fill->args = args;
    fill->all = *all;
    bl_mixed_begin(&fill->filled, (int)all->nranks);
    for (int i = 0; i < BL_BATCH_MAX; i++) args->first_line[i] = UINT32_MAX;
    args->roots = 0;
    args->in_place = false;
    args->lines = (uint32_t)all->lines;
    args->span = (uint32_t)bl_mixed_span(all);
    for (enum section s = 0; s < SECTIONS; s++) {
        fill->begin[s] = begin_of(all, s);
        fill->kind[s] = (uint8_t)kind_of(all, s);
    }
    args->shared = fill->kind[ALLREDUCES] == BL_MIXED_TWOSHOT;
}

static void add_message(struct bl_mixed_fill *fill, int collective, unsigned root, const void *sendbuff, void *recvbuff,
                        uint64_t bytes) {
    const enum section section = rows[collective].section;
    struct bl_batch_args *args = fill->args;
    struct bl_mixed *filled = &fill->filled;
    uint64_t *const of_root = counter_of(filled, collective, root), lines = bl_lines_of(bytes, BL_FLAGGED_DATA);
    const unsigned i = filled->messages++, rank = args->common.rank;
    args->message[i] = (struct bl_batch_message){sendbuff, recvbuff, bytes, fill->begin[section] + *of_root};
    args->first_line[i] = (uint32_t)filled->lines;
    args->root[i] = (uint8_t)(fill->kind[section] * BL_MAX_RANKS + root);
    *of_root += lines;
    filled->lines += lines;
    /* whom this rank sends to */
    if (section == REDUCES)
        args->roots |= 1u << root;
    else if (section != BROADCASTS || root == rank)
        args->roots = UINT32_MAX;
}

/* The block of a buffer that a message for rank r has; of an exchange over the distance r, who it is for, or who it comes from. */
static unsigned block_sent(const struct bl_mixed_fill *fill, int collective, unsigned r) {
    return collective == BL_ALLTOALL ? (fill->args->common.rank + r) % fill->all.nranks : r;
}
static unsigned block_received(const struct bl_mixed_fill *fill, int collective, unsigned r) {
    return collective == BL_ALLTOALL ? (fill->args->common.rank + fill->all.nranks - r) % fill->all.nranks : r;
}

void bl_mixed_fill_add(struct bl_mixed_fill *fill, int collective, unsigned root, const void *sendbuff, void *recvbuff,
                       uint64_t bytes) {
    const bool scatters = bl_collective_has(collective, BL_SCATTERS),
               gathers = bl_collective_has(collective, BL_GATHERS);
    if (!rows[collective].of_all) return add_message(fill, collective, root, sendbuff, recvbuff, bytes);
    for (unsigned r = 0; r < fill->all.nranks; r++)
        add_message(fill, collective, r,
                    (const char *)sendbuff + (scatters ? block_sent(fill, collective, r) * bytes : 0),
                    (char *)recvbuff + (gathers ? block_received(fill, collective, r) * bytes : 0), bytes);
}
