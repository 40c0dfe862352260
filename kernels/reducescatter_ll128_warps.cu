/* reducescatter_ll128_warps.cu - every rank sends each peer the block that it owns, in lines; the owner reduces them in rank
 * order: for small blocks of many ranks.
 *
 * One NVLink one-way, no barrier, no fence, no byte but the data.  The peers are spread over the warps of a block:
 * warps.cuh.  A warp sends its rank that rank's lines and receives its version of this rank's; all of a bundle reduce these, and
 * one stores the result.
 *
 * Contract: count >= 1 and at most layout.peer_lines lines; any grid of blocks of at least 32 threads for each two
 * ranks; buffers of any alignment.  sendbuff holds a block for each rank, `stride` bytes apart, and recvbuff is this
 * rank's, or lies elsewhere.  In place, a line is stored once it was loaded; the peers' blocks are not written.  How lines
 * come, and reuse of the staging: staging.cuh.  A wait that is told to stop leaves the kernel with recvbuff unspecified and
 * the communicator unusable.
 */
#include <core/primitives.cuh>
#include "carriers/messages.cuh"
#include "carriers/warps.cuh"
#include "core/instantiate.cuh"

template <class T> BL_DEVICE void reducescatter_ll128_warps(const struct bl_kernel_args &a) {
    const uint64_t e = epoch_begin(a), bytes = a.count * T::SIZE;
    const Blank sign = blank_of(a, e);
    const Blocks in = {a.sendbuff, bytes, a.stride};
    const Run<LINE_WORDS> out = run_of<LINE_WORDS>(a.recvbuff, bytes);
    const uint64_t lines = lines_of(out);
    const auto load = [&](unsigned peer, uint64_t line) { return load_end_line(block_of(in, peer), line); };
    const auto finish = [&](const Bundle &t, uint64_t first, const QuadLine &, const uint64_t *sums, Wait &) {
        return store_sums(t, first, lines, sums, [&](uint64_t line, Pair sum) { store_end_line(out, line, sum); });
    };
    if (reduce_in_bundles<T>(a, peer_region(a, e), lines, sign, load, finish)) epoch_end(a, sign.flag);
}

BL_INSTANTIATE_ONE(bl_reducescatter_ll128_warps, reducescatter_ll128_warps)
