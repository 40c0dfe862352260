/* allreduce_twoshot_ll128_warps.cu - small to middle all-reduces of many ranks: reduce-scatter, then all-gather, both in
 * lines, in one launch.
 *
 * Each rank owns one of nranks equal runs of lines.  A bundle (warps.cuh) takes the same four lines of every run: each
 * of its warps sends a peer the lines that the peer owns and receives the peer's version of this rank's; all of the
 * bundle reduce these; then each warp sends its peer the sums, receives the peer's, and stores them in the peer's run.
 * Two NVLink one-ways; 2 (n-1)/n of the data crosses each rank's link each way.  No barrier between ranks,
 * no fence.
 *
 * Contract: count >= 1 and at most nranks * layout.peer_lines / 2 lines; any grid of blocks of at least 32 threads for each
 * two ranks, of as many threads on every rank, though not as many blocks: a block sends no sum of a round before it has
 * all inputs of that round, so no round may hold lines of two of a peer's rounds.  It does not: a rank with fewer lines a
 * round has all of its blocks in their first, and sends first (warps.cuh).  sendbuff and recvbuff any alignment, equal or
 * disjoint.  In place, each line is stored by the lanes that have loaded it, after the peer that
 * owns it had it.  Every rank sends and receives every line of a run, even those beyond the message's end, so that
 * something comes from each peer; results of a line are sent once this rank has read all inputs of it: staging.cuh needs
 * both.  A wait that is told to stop leaves the kernel with recvbuff unspecified and the communicator unusable.
 */
#include <core/primitives.cuh>
#include "carriers/warps.cuh"
#include "core/instantiate.cuh"

template <class T> BL_DEVICE void allreduce_twoshot_ll128_warps(const struct bl_kernel_args &a) {
    const uint64_t e = epoch_begin(a), bytes = a.count * T::SIZE;
    const Blank sign = blank_of(a, e);
    const Run<LINE_WORDS> in = run_of<LINE_WORDS>(a.sendbuff, bytes), out = run_of<LINE_WORDS>(a.recvbuff, bytes);
    const uint64_t run = (lines_of(in) + a.nranks - 1) / a.nranks; /* lines that each rank owns */
    const Region inputs = peer_region(a, e), results = behind(inputs, run);
    const auto load = [&](unsigned peer, uint64_t line) { return load_end_line(in, peer * run + line); };
    const auto finish = [&](const Bundle &t, uint64_t, const QuadLine &q, const uint64_t *sums, Wait &wait) {
        if (t.bundle >= t.bundles) return true;
        const Pair sum = take_line(sums + t.bundle * QUAD_WORDS), mine[BL_WARP_RANKS] = {sum, sum};
        Pair theirs[BL_WARP_RANKS];
        if (!exchange_in_bundle(a, results, t, q, sign, mine, theirs, wait)) return false;
#pragma unroll
        for (int k = 0; k < BL_WARP_RANKS; k++)
            if (has_rank(a, t, q, k)) store_end_line(out, rank_in_bundle(t, k) * run + q.line, theirs[k]);
        return true;
    };
    if (reduce_in_bundles<T>(a, inputs, run, sign, load, finish)) epoch_end(a, sign.flag);
}

BL_INSTANTIATE_ONE(bl_allreduce_twoshot_ll128_warps, allreduce_twoshot_ll128_warps)
