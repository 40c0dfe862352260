/* lines.cuh - receive one line of each peer, and reduce them. */
#ifndef BEELINE_LINES_CUH
#define BEELINE_LINES_CUH

#include "mutation.cuh"
#include "staging.cuh"
#include "types.cuh"

/* Ranks whose lines one thread receives at a time, and for which it loads at a time: all, as far as registers allow. */
template <int N> struct Batch {
    enum { RANKS = N <= 8 ? N : 4, LOADS = N < 4 ? N : 4 };
};

/* Fills words[i] with this lane's part of the line of rank first + i, for RANKS ranks as far as they exist; this rank's
 * own words are `own`.  The line of rank r is at from + r * stride.  Polls all of them in one go; uniform over the
 * warp, lanes that are not active wait for nothing.  False: leave the kernel. */
template <int RANKS>
BL_DEVICE bool receive_lines(const struct bl_kernel_args &a, const unsigned char *from, uint64_t stride, unsigned first,
                             uint64_t flag, bool active, Pair own, uint64_t (*words)[2], Wait &wait) {
    const unsigned part = lane_in_warp() % LINE_LANES;
    for (;;) {
        LineView view[RANKS];
#pragma unroll
        for (int i = 0; i < RANKS; i++)
            if (active && first + i < a.nranks && first + i != a.rank)
                view[i] = load_line_relaxed_sys(from + (first + i) * stride, part);
        bool arrived = true;
        unsigned missing = a.rank;
#pragma unroll
        for (int i = 0; i < RANKS; i++) {
            words[i][0] = own.x;
            words[i][1] = own.y;
            if (active && first + i < a.nranks && first + i != a.rank) {
                const Pair v = line_data(view[i]);
                words[i][0] = v.x;
                words[i][1] = v.y;
                if (!line_arrived(view[i], part, flag) && !BL_MUTATION(3)) {
                    arrived = false;
                    missing = first + i;
                }
            }
        }
        if (warp_all(arrived)) {
            wait_over(wait);
            return true;
        }
        if (!wait_again(a, wait, missing, flag)) return false;
    }
}

/* Receives one line of every peer and reduces them with `own` in rank order, a batch at a time. */
template <class T, int N>
BL_DEVICE bool receive_and_reduce(const struct bl_kernel_args &a, const unsigned char *from, uint64_t stride,
                                  uint64_t flag, bool active, Pair own, Pair &result, Wait &wait) {
    enum { RANKS = Batch<N>::RANKS };
    Sum<T, 2> sum;
#pragma unroll
    for (int first = 0; first < N; first += RANKS) {
        if (first >= (int)a.nranks) break;
        uint64_t words[RANKS][2];
        if (!receive_lines<RANKS>(a, from, stride, first, flag, active, own, words, wait)) return false;
        reduce_in_rank_order<T, 2, RANKS>(sum, words, first, a.redop, a.nranks);
    }
    uint64_t words[2];
    sum.store(words, a.redop, a.nranks);
    result.x = words[0];
    result.y = words[1];
    return true;
}

#endif
