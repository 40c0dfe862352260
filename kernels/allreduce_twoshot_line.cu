/* allreduce_twoshot_line.cu - middle to large all-reduces: reduce-scatter, then all-gather, both in lines, fused.
 *
 * The message goes in passes; in a pass each rank owns one of nranks equal runs of lines.  Eight lanes carry line g of
 * every run: they send the peers' lines to their owners (phase 0), receive the peers' versions of their own rank's
 * line, reduce them in rank order, send the result to every peer (phase 1), and receive the peers' results.  Two NVLink
 * one-ways a pass, no barrier, no fence; 2 (n-1)/n of the data crosses each rank's link each way, times 16/15.
 *
 * Contract: count >= 1, any size; equal grid on all ranks, whole warps, at most layout.lines groups of 8 lanes;
 * sendbuff and recvbuff any alignment, equal or disjoint (the lanes that store a word of recvbuff loaded and sent the
 * same word of sendbuff before).  Every rank sends and receives in each phase, even lines beyond the message's end:
 * rule 1 of staging.cuh needs it.  A wait that is told to stop, or that runs out, leaves the kernel with recvbuff
 * unspecified and the communicator unusable.
 */
#include <primitives.cuh>
#include "instantiate.cuh"
#include "lines.cuh"
#include "types.cuh"
#include "words.cuh"

template <class T, int N> BL_DEVICE void allreduce_twoshot_line(const struct bl_kernel_args &a) {
    enum { RANKS = Batch<N>::RANKS, LOADS = Batch<N>::LOADS };
    const uint64_t e = epoch_begin(a), bytes = a.count * T::SIZE;
    const Message in = message_of(a.sendbuff, bytes, a.sendbuff == a.recvbuff), out = message_of(a.recvbuff, bytes);
    const unsigned n = a.nranks, rank = a.rank, part = lane_in_warp() % LINE_LANES;
    const uint64_t g = thread_in_grid() / LINE_LANES, groups = threads_in_grid() / LINE_LANES;
    const uint64_t first_of_warp = g - lane_in_warp() / LINE_LANES;
    const uint64_t lines_total = (in.words + LINE_WORDS - 1) / LINE_WORDS;
    const uint64_t stride = line_stride(a); /* between sources */
    const unsigned passes = (unsigned)((lines_total + n * groups - 1) / (n * groups));
    Wait wait = {0, 0};

    for (unsigned pass = 0; pass < passes; pass++) {
        const uint64_t flag = e + 1 + (BL_MUTATION(5) ? 0 : pass), done = pass * n * groups, rest = lines_total - done;
        const uint64_t run = rest >= n * groups ? groups : (rest + n - 1) / n; /* lines that each rank owns */
        if (first_of_warp >= run) break;                                       /* only ever in the last pass */
        const bool active = g < run;
        const uint64_t slot = g * LINE_BYTES;
        /* Word at which line g of rank r's run begins. */
        const uint64_t first = (done + g) * LINE_WORDS, per_run = run * LINE_WORDS;

        const Pair own = load_part(in, first + rank * per_run, part);
        const unsigned char *inputs = lines_begin_phase(a, e, 0) + slot;
        const unsigned char *results = lines_begin_phase(a, e, 1) + slot;

#pragma unroll
        for (int begin = 1; begin < N; begin += LOADS) {
            Pair outgoing[LOADS];
#pragma unroll
            for (int i = begin; i < begin + LOADS && i < N; i++)
                if (active && i < (int)n)
                    outgoing[i - begin] = load_part(in, first + peer_at(rank, i, n) * per_run, part);
            warp_sync(); /* lanes may have parted at a tail; a line is stored by all of its lanes at once */
#pragma unroll
            for (int i = begin; i < begin + LOADS && i < N; i++)
                if (active && i < (int)n)
                    store_line_relaxed_sys(staging_of(a, inputs, peer_at(rank, i, n)) + rank * stride, part,
                                           outgoing[i - begin], flag);
        }

        Pair sum;
        if (!receive_and_reduce<T, N>(a, inputs, stride, flag, active, own, sum, wait)) return;
        if (active) {
#pragma unroll
            for (int i = 1; i < N; i++)
                if (i < (int)n)
                    store_line_relaxed_sys(staging_of(a, results, peer_at(rank, i, n)) + rank * stride, part, sum,
                                           flag);
            store_part(out, first + rank * per_run, part, sum);
        }

#pragma unroll
        for (int begin = 0; begin < N; begin += RANKS) {
            if (begin >= (int)n) break;
            uint64_t words[RANKS][2];
            if (!receive_lines<RANKS>(a, results, stride, begin, BL_MUTATION(6) ? flag - 2 : flag, active, sum, words,
                                      wait))
                return;
#pragma unroll
            for (int i = 0; i < RANKS; i++) {
                if (active && begin + i < (int)n && begin + i != (int)rank) {
                    const Pair v = {words[i][0], words[i][1]};
                    store_part(out, first + (begin + i) * per_run, part, v);
                }
            }
        }
    }
    epoch_end(a, e, passes);
}

BL_INSTANTIATE(bl_allreduce_twoshot_line, allreduce_twoshot_line)
