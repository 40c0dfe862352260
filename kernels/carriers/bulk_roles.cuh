/* bulk_roles.cuh - launches of pieces (bulk.cuh): what each warp does, its memory, and how it claims its work.
 *
 * Of a block all warps but the last carry pieces, each by itself: *senders* from the user's buffer into the peers' rings,
 * *collectors* from rings into the user's, *reducers* from rings, and this rank's own, to sums.  The last warp tells the peers what the others
 * have sent: a flag must be behind a fence, and that waits for all that its thread has under way (docs/notebook.md).
 *
 * A launch goes on with any part of its grid, so blocks that find no room are waited for by nobody: which role a block has follows from
 * how many have begun before it, the first has all, and what there is to do is claimed, in order, by whoever runs.  (The others have one each, since in
 * a block that waits for the links receiving would wait, too.)
 */
#ifndef BEELINE_BULK_ROLES_CUH
#define BEELINE_BULK_ROLES_CUH

#include <core/copies.cuh>
#include "core/staging.cuh"
#include "core/units.cuh"

/* A warp has stages for some pieces; a reducer for sets, each a piece of each rank. */
template <int N> struct Piece {
    enum { BYTES = BL_BULK_WARP_PIECES / (N <= 4 ? 4 : N <= 8 ? 8 : 16), STAGES = BL_BULK_WARP_PIECES / BYTES };
    enum { SETS = STAGES / N };
    /* A stage takes a unit more (bulk_spans.cuh), and copies are slower to what is no multiple of 128: few ranks' is. */
    enum { AROUND = (BL_BULK_WARP_BYTES - BL_BULK_WARP_PIECES) / STAGES, STAGE_BYTES = BYTES + AROUND };
    enum {
        LAG = STAGES / 4,
        LOADS = STAGES - LAG
    }; /* stores that may be under way beside the next loads; measured on H200 (docs/notebook.md) */
};

BL_DEVICE unsigned carriers_in_block() {
    return threads_in_block() / 32 - 1;
}
BL_DEVICE unsigned warp_in_block() {
    return thread_in_block() / 32;
}

/* --- memory of a block: the stages of its warps, then words of each, then one of the block --- */
enum { MOST_STAGES = 16, ITEMS = 32 /* that a warp has claimed and not yet done, a power of two */ };
BL_DEVICE unsigned char *stages_of_warp() {
    return block_memory() + warp_in_block() * BL_BULK_WARP_BYTES;
}
BL_DEVICE uint64_t *words_of(unsigned warp) {
    return (uint64_t *)(block_memory() + carriers_in_block() * BL_BULK_WARP_BYTES) + warp * BL_BULK_WARP_WORDS;
}
/* For Copies. */
BL_DEVICE uint64_t *arrivals_of_warp() {
    return words_of(warp_in_block());
}
/* The k-th item that a warp has. */
BL_DEVICE uint64_t *item_of(unsigned warp, uint64_t k) {
    return words_of(warp) + MOST_STAGES + k % ITEMS;
}
BL_DEVICE uint64_t item_at(uint64_t k) {
    return load_block(item_of(warp_in_block(), k));
}
/* How many of its items it has sent, and whether it will send no more; how many of those the peers know of. */
BL_DEVICE uint64_t *sent_by(unsigned warp) {
    return words_of(warp) + MOST_STAGES + ITEMS;
}
BL_DEVICE uint64_t *told_of(unsigned warp) {
    return words_of(warp) + MOST_STAGES + ITEMS + 1;
}
static const uint64_t NO_MORE = (uint64_t)1 << 63, WARP_HAS_LEFT = UINT64_MAX;
BL_DEVICE uint64_t *number_of_block() {
    return words_of(carriers_in_block());
}

/* --- who does what --- */
enum Role { SENDS, COLLECTS, REDUCES, TELLS, CLAIMED_ROLES = TELLS };

/* Shares of the blocks: of each role that there is one at least. */
struct Cast {
    unsigned sending, reducing, collecting;
};
BL_DEVICE unsigned shares_of(const Cast &c) {
    return c.sending + c.reducing + c.collecting;
}
/* Blocks that send: as many as fill the links, or of few blocks 13 of 32; and the others. */
BL_DEVICE unsigned senders_of(unsigned enough) {
    const unsigned some = blocks_in_grid() * 13 / 32;
    return some < 1 ? 1 : some < enough ? some : enough;
}
BL_DEVICE unsigned others_than(unsigned senders) {
    return blocks_in_grid() > senders ? blocks_in_grid() - senders : 1;
}
/* Whether this one is, if `some` of each `all` are, evenly spread. */
BL_DEVICE bool is_one_of(unsigned number, unsigned some, unsigned all) {
    return (number + 1) * some / all > number * some / all;
}
/* Of the block with this number, from 1 on. */
BL_DEVICE Role role_of_block(const Cast &c, unsigned number) {
    const unsigned i = number - 1, rest = i - i * c.sending / shares_of(c);
    if (is_one_of(i, c.sending, shares_of(c))) return SENDS;
    return is_one_of(rest, c.reducing, c.reducing + c.collecting) ? REDUCES : COLLECTS;
}
BL_DEVICE Role role_of_warp(const Cast &c, unsigned number, unsigned warp) {
    if (warp == carriers_in_block()) return TELLS;
    if (number > 0) return role_of_block(c, number);
    const unsigned roles = 1 + (c.collecting > 0) + (c.reducing > 0), turn = warp % roles;
    return turn == 0 ? SENDS : turn == 1 && c.collecting ? COLLECTS : REDUCES;
}

BL_DEVICE uint64_t of_first_lane(uint64_t v) {
    return exchange_in_warp((uint32_t)v, 0) | (uint64_t)exchange_in_warp((uint32_t)(v >> 32), 0) << 32;
}

/* --- what is claimed: blocks, and each role's items --- */
struct Launch {
    uint64_t number;  /* of those of pieces */
    uint64_t *claims; /* of blocks, then of each role; counted up from zero */
    unsigned block;   /* so many have begun before this one */
};
BL_DEVICE uint64_t *claims_of(const struct bl_kernel_args &a, uint64_t launch) {
    return &a.epochs[BL_WORD_BULK_CLAIMS + (launch & 1) * BL_BULK_CLAIMS * BL_BULK_CLAIM_WORDS];
}
BL_DEVICE uint64_t *claims_of_role(const Launch &l, Role role) {
    return l.claims + (1 + role) * BL_BULK_CLAIM_WORDS;
}

/* The first block zeroes what the next launch counts up. */
template <int N> BL_DEVICE Launch bulk_begin(const struct bl_kernel_args &a, const Cast &cast) {
    static_assert(1 + CLAIMED_ROLES == BL_BULK_CLAIMS && MOST_STAGES + ITEMS + 2 == BL_BULK_WARP_WORDS, "kernels.h");
    static_assert((int)Piece<N>::STAGES <= (int)MOST_STAGES, "of each there is a word");
    static_assert(Piece<N>::STAGES * Piece<N>::STAGE_BYTES <= BL_BULK_WARP_BYTES, "a warp's");
    Launch l;
    l.number = load_own(&a.epochs[BL_WORD_BULK_LAUNCHES + block_in_grid()]);
    l.claims = claims_of(a, l.number);
    if (thread_in_block() == 0) {
        const uint64_t before = atomic_add_relaxed_gpu(l.claims, 1);
        store_block(number_of_block(), before);
        for (unsigned i = 0; before == 0 && i < BL_BULK_CLAIMS; i++)
            store_own(claims_of(a, l.number + 1) + i * BL_BULK_CLAIM_WORDS, (uint64_t)0);
    }
    block_sync();
    l.block = (unsigned)load_block(number_of_block());
    for (unsigned warp = thread_in_block(); warp < carriers_in_block(); warp += threads_in_block()) {
        const Role role = role_of_warp(cast, l.block, warp);
        store_block(sent_by(warp), role == SENDS || role == REDUCES ? 0 : NO_MORE);
        store_block(told_of(warp), 0);
    }
    block_sync();
    return l;
}

/* What a warp has claimed of `all` items.  Some at a time, which are looked for at once, but take room in the ring until their turn has come; one by one towards
 * the end; and each time ahead of need. */
struct Work {
    uint64_t *claims, all, some; /* of so many items at a time */
    uint64_t known;              /* items of this warp, of which the last few are item_at(k) */
    uint64_t first, count;       /* of the next; the first one is known to lane 0 */
    bool over;                   /* there are no more */
};
BL_DEVICE void claim(Work &w, uint64_t count) {
    w.count = count;
    if (lane_in_warp() == 0) w.first = atomic_add_relaxed_gpu(w.claims, count);
}
BL_DEVICE Work work_begin(const Launch &l, Role role, uint64_t all, unsigned some) {
    Work w = {claims_of_role(l, role), all, some, 0, 0, 0, false};
    claim(w, 1);
    return w;
}
/* Sees to it that items from the k-th on are known, unless there are none, or those from the `kept`-th on leave no room. */
BL_DEVICE void work_on(Work &w, uint64_t k, uint64_t kept) {
    enum { ENOUGH = 4 /* for each warp, to claim some */ };
    if (w.over || w.known >= k + w.some || w.known + w.some > kept + ITEMS) return;
    const uint64_t first = of_first_lane(w.first);
    const uint64_t left = first < w.all ? w.all - first : 0, mine = left < w.count ? left : w.count;
    warp_sync(); /* what is overwritten has been read */
    if (lane_in_warp() < mine) store_block(item_of(warp_in_block(), w.known + lane_in_warp()), first + lane_in_warp());
    warp_sync();
    w.known += mine;
    w.over = left <= w.count;
    if (!w.over) claim(w, left > ENOUGH * (uint64_t)carriers_in_block() * blocks_in_grid() ? w.some : 1);
}

#endif
