/* warps.cuh - short messages of many ranks: the peers spread over the warps of a block.
 *
 * Where a group of lanes carries a line to every peer and polls for that of every peer (crews.cuh), it does up to 15 things one
 * after another, and a launch that is over in microseconds waits for the instructions of all of them. Here each warp has one rank,
 * or two, to send to and to receive from. A warp carries four lines at a time, a *quad*; the warps that carry the same quad
 * are a *bundle*, and what they received meets in the block's memory, where it is reduced in rank order. So each line takes
 * nranks times the threads, or half as many: for messages that have fewer lines than the grid has groups.
 *
 * All threads of the grid call what is here. Where sums are made, the warps of a block go through their quads in rounds
 * together, and one whose wait has failed stays with the others up to the next meeting, where all leave: nobody reduces, or
 * sends on, what did not come.
 *
 * There is one such kernel for all numbers of ranks. Contract: a block has at least 32 threads for each two ranks
 * (bl_kernel_threads).
 */
#ifndef BEELINE_WARPS_CUH
#define BEELINE_WARPS_CUH

#include "carriers/ll128.cuh"

enum {
    QUAD_WORDS = BL_QUAD * 16,
    MOST_WARPS = BL_MAX_THREADS / 32,
    INPUT_WORDS = BL_WARP_RANKS * MOST_WARPS * QUAD_WORDS, /* a quad of each rank of each bundle */
    BUNDLE_WORDS = INPUT_WORDS + MOST_WARPS * QUAD_WORDS   /* and its sum */
};

struct Bundle {
    unsigned warps;     /* of each bundle of this block; the i-th warp has the ranks i and, if it exists, i + warps */
    unsigned bundles;   /* of this block */
    unsigned bundle, i; /* this thread's; there may be warps without a bundle */
};

/* A rank for each warp, if that makes enough bundles for all lines at once; else two. */
BL_DEVICE Bundle bundle_of(const struct bl_kernel_args &a, uint64_t lines) {
    const unsigned warps = threads_in_block() / 32, warp = thread_in_block() / 32;
    const bool single = lines <= (uint64_t)blocks_in_grid() * (warps / a.nranks) * BL_QUAD;
    Bundle t;
    t.warps = single ? a.nranks : (a.nranks + 1) / 2;
    t.bundles = warps / t.warps;
    t.bundle = warp / t.warps;
    t.i = warp % t.warps;
    return t;
}
BL_DEVICE unsigned rank_in_bundle(const Bundle &t, int k) {
    return t.i + k * t.warps;
}

/* The first lines of the block's quads, round by round: from first_quad on, in steps. */
BL_DEVICE uint64_t first_quad(const Bundle &t) {
    return (uint64_t)block_in_grid() * t.bundles * BL_QUAD;
}
BL_DEVICE uint64_t quad_step(const Bundle &t) {
    return (uint64_t)blocks_in_grid() * t.bundles * BL_QUAD;
}

/* This thread's part in one round. */
struct QuadLine {
    uint64_t line;
    bool exists; /* the line does, and the thread has a bundle */
};
BL_DEVICE QuadLine quad_of(const Bundle &t, uint64_t first, uint64_t lines) {
    const uint64_t line = first + t.bundle * BL_QUAD + lane_in_warp() / LINE_LANES;
    return {line, t.bundle < t.bundles && line < lines};
}

/* Whether the warp has a k-th rank, and a line for it. */
BL_DEVICE bool has_rank(const struct bl_kernel_args &a, const Bundle &t, const QuadLine &q, int k) {
    return q.exists && rank_in_bundle(t, k) < a.nranks;
}

/* Sends mine[k] to the warp's k-th rank and receives that of theirs; of this rank itself it is its own.  False: the wait
 * failed. */
BL_DEVICE bool exchange_in_bundle(const struct bl_kernel_args &a, const Region &region, const Bundle &t,
                                  const QuadLine &q, const Blank &sign, const Pair (&mine)[BL_WARP_RANKS],
                                  Pair (&theirs)[BL_WARP_RANKS], Wait &wait) {
    const unsigned char *at[BL_WARP_RANKS];
    LineView view[BL_WARP_RANKS];
    bool missing[BL_WARP_RANKS];
    warp_sync(); /* lanes may have parted at a tail; a line is stored by all of its lanes at once */
#pragma unroll
    for (int k = 0; k < BL_WARP_RANKS; k++) {
        const unsigned peer = rank_in_bundle(t, k);
        missing[k] = has_rank(a, t, q, k) && peer != a.rank;
        if (missing[k]) send_line(a, region, peer, q.line, mine[k], sign);
        at[k] = kept(place_of(a, region, a.rank, peer) + offset_of(region, q.line));
        view[k] = line_of(mine[k]);
    }
    for (;;) {
#pragma unroll
        for (int k = 0; k < BL_WARP_RANKS; k++)
            if (missing[k]) view[k] = look(at[k], sign);
        bool all = true;
        unsigned peer = a.rank;
#pragma unroll
        for (int k = 0; k < BL_WARP_RANKS; k++) {
            const bool here = may_take(missing[k], view[k], sign);
            if (!here) peer = rank_in_bundle(t, k);
            all = all && here;
        }
        if (warp_all(all)) break;
        if (wait_is_long(wait) && !wait_on(a, wait, peer)) return false;
    }
    if (is_left_over(sign)) return false;
    wait_over(wait);
#pragma unroll
    for (int k = 0; k < BL_WARP_RANKS; k++) {
        if (missing[k]) clear(at[k], sign);
        theirs[k] = line_data(view[k]);
    }
    return true;
}

/* --- lines of a quad in the block's memory: word by word --- */
BL_DEVICE unsigned place_in_quad() {
    return lane_in_warp() / LINE_LANES * 16 + lane_in_warp() % LINE_LANES;
}
BL_DEVICE void put_line(uint64_t *quad, Pair v) {
    store_block(quad + place_in_quad(), v.x);
    store_block(quad + place_in_quad() + 8, v.y);
}
BL_DEVICE Pair take_line(const uint64_t *quad) {
    const Pair v = {load_block(quad + place_in_quad()), load_block(quad + place_in_quad() + 8)};
    return v;
}

/* Reduces the quads of each bundle in rank order, a word a thread: a loop, because instructions that run once cost the time
 * to fetch them. */
template <class T> BL_DEVICE void reduce_quads(const struct bl_kernel_args &a, const Bundle &t, uint64_t *words) {
    for (unsigned i = thread_in_block(); i < t.bundles * QUAD_WORDS; i += threads_in_block()) {
        const uint64_t *const inputs = words + i / QUAD_WORDS * a.nranks * QUAD_WORDS + i % QUAD_WORDS;
        Sum<T, 1> sum;
        uint64_t word = load_block(inputs);
        sum.begin(&word, a.scale);
#pragma unroll 1
        for (unsigned r = 1; r < a.nranks; r++) {
            Sum<T, 1> next;
            word = load_block(inputs + r * QUAD_WORDS);
            next.load(&word);
            sum.combine(next, a.redop, a.scale);
        }
        sum.store(&word, a, a.nranks);
        store_block(words + INPUT_WORDS + i, word);
    }
}

/* Sends each peer its lines, receives theirs, and reduces what came.  load(peer, line) gives what goes to that rank, of zeros
 * beyond the end; finish(bundle, first, quad, sums, wait) is called by all threads once the sums of a round are in `sums`, a
 * quad for each bundle, and says whether to go on.  False here and below: leave the kernel. */
template <class T, class Load, class Finish>
BL_DEVICE bool reduce_in_bundles(const struct bl_kernel_args &a, const Region &region, uint64_t lines,
                                 const Blank &sign, Load load, Finish finish) {
    const Bundle t = bundle_of(a, lines);
    uint64_t *const words = block_words<BUNDLE_WORDS>();
    Wait wait = wait_begin(sign.flag);
    bool good = true;
    for (uint64_t first = first_quad(t); first < lines; first += quad_step(t)) {
        if (first != first_quad(t) && !block_all(good)) return false;
        const QuadLine q = quad_of(t, first, lines);
        Pair mine[BL_WARP_RANKS], theirs[BL_WARP_RANKS];
#pragma unroll
        for (int k = 0; k < BL_WARP_RANKS; k++)
            mine[k] = has_rank(a, t, q, k) ? load(rank_in_bundle(t, k), q.line) : Pair{0, 0};
        good = exchange_in_bundle(a, region, t, q, sign, mine, theirs, wait);
#pragma unroll
        for (int k = 0; k < BL_WARP_RANKS; k++)
            if (has_rank(a, t, q, k))
                put_line(words + (t.bundle * a.nranks + rank_in_bundle(t, k)) * QUAD_WORDS, theirs[k]);
        if (!block_all(good)) return false;
        reduce_quads<T>(a, t, words);
        block_sync();
        good = finish(t, first, q, words + INPUT_WORDS, wait);
    }
    return good;
}

/* finish() of those whose sums are for this rank: store(line, sum), by the block's first warps, a quad each. */
template <class Store>
BL_DEVICE bool store_sums(const Bundle &t, uint64_t first, uint64_t lines, const uint64_t *sums, Store store) {
    const unsigned bundle = thread_in_block() / 32;
    const uint64_t line = first + bundle * BL_QUAD + lane_in_warp() / LINE_LANES;
    if (bundle < t.bundles && line < lines) store(line, take_line(sums + bundle * QUAD_WORDS));
    return true;
}

/* Sends each peer its lines and receives theirs: store(peer, line, data) is called for those of this rank, too. */
template <class Load, class Store>
BL_DEVICE bool gather_in_bundles(const struct bl_kernel_args &a, const Region &region, uint64_t lines,
                                 const Blank &sign, Load load, Store store) {
    const Bundle t = bundle_of(a, lines);
    Wait wait = wait_begin(sign.flag);
    for (uint64_t first = first_quad(t); first < lines; first += quad_step(t)) {
        const QuadLine q = quad_of(t, first, lines);
        Pair mine[BL_WARP_RANKS], theirs[BL_WARP_RANKS];
#pragma unroll
        for (int k = 0; k < BL_WARP_RANKS; k++)
            mine[k] = has_rank(a, t, q, k) ? load(rank_in_bundle(t, k), q.line) : Pair{0, 0};
        if (!exchange_in_bundle(a, region, t, q, sign, mine, theirs, wait)) return false;
#pragma unroll
        for (int k = 0; k < BL_WARP_RANKS; k++)
            if (has_rank(a, t, q, k)) store(rank_in_bundle(t, k), q.line, theirs[k]);
    }
    return true;
}

#endif
