/* ll128.cuh - runs of lines between ranks: which lanes carry which line, and how lines are sent, received and
 * reduced. */
#ifndef BEELINE_LL128_CUH
#define BEELINE_LL128_CUH

#include "carriers/lines.cuh"
#include "core/staging.cuh"
#include "core/types.cuh"

/* Some blocks of the grid that share a piece of work.  Eight lanes, a *group*, carry a line at a time: lines group,
 * group + groups, ...  A loop over them goes by `of_warp`, the group of the warp's first lanes, so that all lanes of
 * the warp stay in it together. */
struct Crew {
    uint64_t group, of_warp, groups;
};

enum { FEWEST_SHARED = 7 }; /* so that every share of 5 32nds or more has a block */

/* Blocks first..first+blocks-1 of the grid. */
struct Share {
    unsigned first, blocks;
};
BL_DEVICE Share whole_grid() {
    return {0, blocks_in_grid()};
}
/* From begin to end 32nds of the grid's blocks.  A grid that is too small to be shared has all of its blocks in every
 * share: they do one work after the other. */
BL_DEVICE Share share_of(unsigned begin, unsigned end) {
    const unsigned blocks = blocks_in_grid();
    if (blocks < FEWEST_SHARED) return whole_grid();
    const unsigned first = blocks * begin / 32;
    return {first, blocks * end / 32 - first};
}
BL_DEVICE bool in_share(const Share &s) {
    return block_in_grid() - s.first < s.blocks;
}
BL_DEVICE Crew crew_of(const Share &s) {
    Crew c;
    c.group = ((uint64_t)(block_in_grid() - s.first) * threads_in_block() + thread_in_block()) / LINE_LANES;
    c.of_warp = c.group - lane_in_warp() / LINE_LANES;
    c.groups = (uint64_t)s.blocks * threads_in_block() / LINE_LANES;
    return c;
}

/* --- what depends on how a line shows that it has come: a Flag or a Blank is the `sign` of all lines of a launch --- */

BL_DEVICE void put(unsigned char *line, Pair v, const Flag &sign) {
    store_line_relaxed_sys(line, lane_in_warp() % LINE_LANES, v, sign.flag);
}
BL_DEVICE void put(unsigned char *line, Pair v, const Blank &) {
    store_cell_relaxed_sys(line, lane_in_warp() % LINE_LANES, v);
}
BL_DEVICE LineView look(const unsigned char *line, const Flag &) {
    return load_line_relaxed_sys(line, lane_in_warp() % LINE_LANES);
}
BL_DEVICE LineView look(const unsigned char *line, const Blank &) {
    return load_cell_relaxed_sys(line, lane_in_warp() % LINE_LANES);
}
/* Whether it was there, as far as this lane sees. */
BL_DEVICE bool arrived(const LineView &view, const Flag &sign) {
    return line_arrived(view, lane_in_warp() % LINE_LANES, sign.flag);
}
BL_DEVICE bool arrived(const LineView &view, const Blank &sign) {
    return cell_arrived(view, sign.blank);
}
/* Whether a lane need not wait for it, or not any more: of a line with a flag, once all see it.  Where each sees for itself there is to be no branch: else
 * each load is waited for before the next. */
BL_DEVICE bool may_take(bool waits, const LineView &view, const Flag &sign) {
    return warp_all(!waits || arrived(view, sign));
}
BL_DEVICE bool may_take(bool waits, const LineView &view, const Blank &sign) {
    return !waits | arrived(view, sign);
}
/* Whether what was there is not this launch's: a stopped one may meet what those before it did not receive.  (No flag has that bit.) */
BL_DEVICE bool is_left_over(const Flag &) {
    return false;
}
BL_DEVICE bool is_left_over(const Blank &sign) {
    return is_stopped(sign.flag);
}
/* Whether all lanes of the warp may, each of which may take all of its own. */
BL_DEVICE bool all_may_take(bool mine, const Flag &) {
    return mine;
}
BL_DEVICE bool all_may_take(bool mine, const Blank &) {
    return warp_all(mine);
}
/* What was taken is blank again: staging.cuh. */
BL_DEVICE void clear(const unsigned char *, const Flag &) {}
BL_DEVICE void clear(const unsigned char *line, const Blank &sign) {
    store_own_cell((void *)line, lane_in_warp() % LINE_LANES, sign.blank);
}

/* Sends this group's part of a line to `peer`, unless the launch was stopped: peers could not tell.  All lanes of the line call it
 * together: of a line with a flag they must, others go the faster. */
template <class S>
BL_DEVICE void send_line(const struct bl_kernel_args &a, const Region &region, unsigned peer, uint64_t line, Pair v,
                         const S &sign) {
    if (is_stopped(sign.flag)) return;
    put(place_of(a, region, peer, a.rank) + offset_of(region, line), v, sign);
}

/* Ranks whose lines one thread receives at a time, and for which it loads at a time: as far as registers allow. */
template <int N> struct AtATime {
    enum { RANKS = N <= 8 ? N : 4, LOADS = N < 4 ? N : 4 };
    enum { UNROLL = N <= 8 ? N : 1 }; /* of the loop over what is left: more would be much code for few */
};

/* Lines of each peer that a group of lanes has under way, of long messages: few blocks fill the links then.  Measured
 * on H200 between two ranks (docs/notebook.md); of more, with all multiprocessors, one is as fast. */
template <int N> struct LinesAtATime {
    enum { COUNT = N == 2 ? 4 : 1 };
};
/* Whether a grid has nearly all multiprocessors.  What is best for few blocks is not for many: docs/notebook.md. */
BL_DEVICE bool is_wide() {
    enum { WIDE = 3072 }; /* groups of lanes */
    return crew_of(whole_grid()).groups > WIDE;
}

/* Of three and four ranks, by few blocks; and how many they send to one at a time.  That is code of its own: with all multiprocessors one line at a time
 * is as fast, and is not to be slower for it (docs/notebook.md). */
template <int N> struct LinesOfFew {
    enum { COUNT = N == 3 || N == 4 ? 2 : LinesAtATime<N>::COUNT, SENT = N <= 4 ? 4 : 1 };
};
/* Whether few blocks have lines of a message, `rounds` for each group at least: what pays where lines go once. */
template <int N> BL_DEVICE bool few_carry(uint64_t lines, uint64_t rounds = 6) {
    return (N == 3 || N == 4) && !is_wide() && lines >= rounds * crew_of(whole_grid()).groups;
}

/* Whether lines are so many that crews are shared out for that, some rounds for each group. */
template <int N> BL_DEVICE bool comes_in_runs(uint64_t lines) {
    enum { COUNT = LinesAtATime<N>::COUNT };
    return COUNT > 1 && lines >= COUNT * crew_of(whole_grid()).groups;
}

/* What was loaded, as words. */
template <int RANKS> BL_DEVICE void words_of(const LineView (&view)[RANKS], uint64_t (*words)[2]) {
#pragma unroll
    for (int i = 0; i < RANKS; i++) {
        const Pair v = line_data(view[i]);
        words[i][0] = v.x;
        words[i][1] = v.y;
    }
}

/* Fills view[i] with this lane's part of the line at at[i], for each i in the mask `missing`.  What has come is not read
 * again.  All lanes of the warp call it together; peer_of(i) says who sends it.  False: leave the kernel.
 *
 * A mask, because flags would take predicates, of which a GPU has few: then each line is waited for before the next is asked
 * for. */
template <int COUNT, class S, class PeerOf>
BL_DEVICE bool poll_lines(const struct bl_kernel_args &a, const unsigned char *const (&at)[COUNT], uint32_t missing,
                          const S &sign, LineView (&view)[COUNT], Wait &wait, PeerOf peer_of) {
    const uint32_t comes = missing;
    for (;;) {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (missing >> i & 1) view[i] = look(at[i], sign);
        uint32_t left = 0;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (!may_take((missing >> i & 1) != 0, view[i], sign)) left |= 1u << i;
        if (all_may_take(left == 0, sign)) break;
        missing &= left;
        if (wait_is_long(wait)) {
            unsigned peer = a.rank;
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                if ((missing >> i & 1) != 0 && !arrived(view[i], sign)) peer = peer_of(i);
            if (!wait_on(a, wait, peer)) return false;
        }
    }
    if (is_left_over(sign)) return false;
    wait_over(wait);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if (comes >> i & 1) clear(at[i], sign);
    return true;
}

/* Fills words[i] with this lane's part of `line` of rank first + i, for RANKS ranks as far as they exist; this rank's own
 * words are `own`, or, if `own_comes`, come through the staging.  What has come is not read again.  All lanes of the warp
 * call it together; those that are not active wait for nothing, and `first` may differ from group to group.  False: leave
 * the kernel.
 *
 * Polling is most of what the kernels do: so it has no branch, and addresses are made before.  Of lines with flags with predicates, where a mask
 * would be slower (docs/notebook.md). */
template <int RANKS>
BL_DEVICE bool receive_lines(const struct bl_kernel_args &a, const Region &region, uint64_t line, unsigned first,
                             const Flag &sign, bool active, bool own_comes, Pair own, uint64_t (*words)[2],
                             Wait &wait) {
    const unsigned char *at[RANKS];
    LineView view[RANKS];
    bool missing[RANKS];
#pragma unroll
    for (int i = 0; i < RANKS; i++) {
        const bool is_own = first + i == a.rank;
        at[i] =
            kept((is_own ? own_place(a, region) : place_of(a, region, a.rank, first + i)) + offset_of(region, line));
        view[i] = line_of(own);
        missing[i] = first + i < a.nranks && (!is_own || own_comes);
    }
    for (;;) {
#pragma unroll
        for (int i = 0; i < RANKS; i++)
            if (missing[i] && active) view[i] = look(at[i], sign);
        bool all = true;
#pragma unroll
        for (int i = 0; i < RANKS; i++) {
            const bool here = warp_all(!missing[i] || !active || arrived(view[i], sign));
            missing[i] = missing[i] && !here;
            all = all && here;
        }
        if (all) break;
        if (wait_is_long(wait)) {
            unsigned peer = a.rank;
#pragma unroll
            for (int i = 0; i < RANKS; i++)
                if (missing[i] && active && !arrived(view[i], sign)) peer = first + i;
            if (!wait_on(a, wait, peer)) return false;
        }
    }
    wait_over(wait);
    words_of(view, words);
    return true;
}
template <int RANKS>
BL_DEVICE bool receive_lines(const struct bl_kernel_args &a, const Region &region, uint64_t line, unsigned first,
                             const Blank &sign, bool active, bool own_comes, Pair own, uint64_t (*words)[2],
                             Wait &wait) {
    const unsigned char *at[RANKS];
    LineView view[RANKS];
    uint32_t missing = 0;
#pragma unroll
    for (int i = 0; i < RANKS; i++) {
        const bool is_own = first + i == a.rank;
        at[i] =
            kept((is_own ? own_place(a, region) : place_of(a, region, a.rank, first + i)) + offset_of(region, line));
        view[i] = line_of(own);
        if (active && first + i < a.nranks && (!is_own || own_comes)) missing |= 1u << i;
    }
    if (!poll_lines(a, at, missing, sign, view, wait, [&](int i) { return first + i; })) return false;
    words_of(view, words);
    return true;
}

/* The k-th of the peers, whose number is below N. */
template <int N> BL_DEVICE unsigned peer_in_order(const struct bl_kernel_args &a, unsigned k) {
    return k % (N - 1) + (k % (N - 1) >= a.rank);
}

/* poll_lines of lines of every peer, line, line + step, ..., LINES of them: of each the peers' in rank order, or, if
 * OWN_COMES through the staging as well, all ranks'.  Lanes that are not active wait for nothing. */
template <int N, int LINES, bool OWN_COMES = false, class S>
BL_DEVICE bool poll_lines_of_peers(const struct bl_kernel_args &a, unsigned nranks, const Region &region, uint64_t line,
                                   uint64_t step, const S &sign, LineView (&view)[LINES * (N - !OWN_COMES)], Wait &wait,
                                   bool active = true) {
    enum { SOURCES = N - !OWN_COMES };
    const auto source = [&](unsigned i) { return OWN_COMES ? i % N : peer_in_order<N>(a, i); };
    const unsigned char *at[LINES * SOURCES];
    uint32_t missing = 0;
#pragma unroll
    for (unsigned i = 0; i < LINES * SOURCES; i++) {
        const bool is_own = OWN_COMES && source(i) == a.rank;
        at[i] = kept((is_own ? own_place(a, region) : place_of(a, region, a.rank, source(i))) +
                     offset_of(region, line + i / SOURCES * step));
        view[i] = line_of({0, 0});
        if (active && i % SOURCES < nranks - !OWN_COMES) missing |= 1u << i;
    }
    return poll_lines(a, at, missing, sign, view, wait, source);
}

/* A line's words of all ranks: of views of the peers' in rank order with `own` among them, or, if OWN_COMES, of all ranks'. */
template <int N, bool OWN_COMES>
BL_DEVICE void words_in_rank_order(const struct bl_kernel_args &a, const LineView *view, Pair own,
                                   uint64_t (&words)[N][2]) {
    enum { PEERS = N - 1 };
#pragma unroll
    for (unsigned i = 0; i < N; i++) {
        const Pair before = line_data(view[OWN_COMES || i < PEERS ? i : PEERS - 1]),
                   behind = line_data(view[i > 0 ? i - 1 : 0]);
        const Pair v = OWN_COMES ? before : i == a.rank ? own : i < a.rank ? before : behind;
        words[i][0] = v.x;
        words[i][1] = v.y;
    }
}

/* Receives lines of every peer, line, line + step, ..., all at once, and reduces each with own[k], or with what OWN_COMES
 * through the staging, in rank order.  Own words are put in behind the polls, so these do not wait until they are loaded. */
template <class T, int N, int LINES, bool OWN_COMES = false, class S>
BL_DEVICE bool receive_all_and_reduce(const struct bl_kernel_args &a, unsigned nranks, const Region &region,
                                      uint64_t line, uint64_t step, const S &sign, const Pair (&own)[LINES],
                                      Pair (&result)[LINES], Wait &wait, bool active = true) {
    enum { SOURCES = N - !OWN_COMES };
    LineView view[LINES * SOURCES];
    if (!poll_lines_of_peers<N, LINES, OWN_COMES>(a, nranks, region, line, step, sign, view, wait, active))
        return false;
#pragma unroll
    for (int k = 0; k < LINES; k++) {
        uint64_t words[N][2];
        words_in_rank_order<N, OWN_COMES>(a, view + k * SOURCES, own[k], words);
        Sum<T, 2> sum;
        reduce_in_rank_order<T, 2, N>(sum, words, 0, a, nranks);
        sum.store(words[0], a, nranks);
        result[k].x = words[0][0];
        result[k].y = words[0][1];
    }
    return true;
}

/* Receives `line` of every peer and reduces them with `own` in rank order, some at a time. */
template <class T, int N, class S>
BL_DEVICE bool receive_and_reduce(const struct bl_kernel_args &a, const Region &region, uint64_t line, const S &sign,
                                  bool active, bool own_comes, Pair own, Pair &result, Wait &wait) {
    enum { RANKS = AtATime<N>::RANKS };
    const unsigned nranks = nranks_of<N>(a);
    Sum<T, 2> sum;
#pragma unroll(AtATime <N>::UNROLL)
    for (int first = 0; first < N; first += RANKS) {
        if (first >= (int)nranks) break;
        uint64_t words[RANKS][2];
        if (!receive_lines<RANKS>(a, region, line, first, sign, active, own_comes, own, words, wait)) return false;
        reduce_in_rank_order<T, 2, RANKS>(sum, words, first, a, nranks);
    }
    uint64_t words[2];
    sum.store(words, a, nranks);
    result.x = words[0];
    result.y = words[1];
    return true;
}

#endif
