/* allreduce_oneshot_ll128_warps.cu - every rank sends its whole message to every peer, in lines: for small messages of many
 * ranks.
 *
 * One NVLink one-way, no barrier, no fence, no byte but the data.  The peers are spread over the warps of a block:
 * warps.cuh.  Every warp of a bundle loads the bundle's lines, each for its own rank; all of it reduce what came of all ranks,
 * and one stores the result.
 *
 * Contract: count >= 1 and at most layout.rank_lines lines; any grid of blocks of at least 32 threads for each two
 * ranks; sendbuff and recvbuff any alignment, equal or disjoint.  In place, a line is stored once all warps of its bundle
 * have loaded it.  How lines come, and reuse of the staging: staging.cuh.  A wait that is told to stop leaves the kernel with
 * recvbuff unspecified and the communicator unusable.
 */
#include <core/primitives.cuh>
#include "carriers/warps.cuh"
#include "core/instantiate.cuh"

template <class T> BL_DEVICE void allreduce_oneshot_ll128_warps(const struct bl_kernel_args &a) {
    const uint64_t e = epoch_begin(a), bytes = a.count * T::SIZE;
    const Blank sign = blank_of(a, e);
    const Run<LINE_WORDS> in = run_of<LINE_WORDS>(a.sendbuff, bytes), out = run_of<LINE_WORDS>(a.recvbuff, bytes);
    const uint64_t lines = lines_of(in);
    const auto load = [&](unsigned, uint64_t line) { return load_end_line(in, line); };
    const auto finish = [&](const Bundle &t, uint64_t first, const QuadLine &, const uint64_t *sums, Wait &) {
        return store_sums(t, first, lines, sums, [&](uint64_t line, Pair sum) { store_end_line(out, line, sum); });
    };
    if (reduce_in_bundles<T>(a, rank_region(a, e), lines, sign, load, finish)) epoch_end(a, sign.flag);
}

BL_INSTANTIATE_ONE(bl_allreduce_oneshot_ll128_warps, allreduce_oneshot_ll128_warps)
