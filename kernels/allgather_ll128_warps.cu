/* allgather_ll128_warps.cu - every rank sends its block to every peer, in lines, whatever the datatype: for small blocks of
 * many ranks.
 *
 * One NVLink one-way, no barrier, no fence, no byte but the data.  The peers are spread over the warps of a block:
 * warps.cuh.  A warp sends its rank this rank's lines, and stores that rank's in their block of recvbuff.
 *
 * Contract: count >= 1 and at most layout.peer_lines lines; any grid of blocks of at least 32 threads for each two
 * ranks; buffers of any alignment.  recvbuff holds a block of each rank, `stride` bytes apart, and sendbuff is this
 * rank's, or lies elsewhere.  In place, nothing that is read is written.  How lines come, and reuse of the staging: staging.cuh.
 * A wait that is told to stop leaves the kernel with recvbuff unspecified and the communicator unusable.
 */
#include <core/primitives.cuh>
#include "carriers/messages.cuh"
#include "carriers/warps.cuh"

BL_DEVICE void allgather_ll128_warps(const struct bl_kernel_args &a) {
    const uint64_t e = epoch_begin(a), bytes = a.count * a.size;
    const Blank sign = blank_of(a, e);
    const Run<LINE_WORDS> in = run_of<LINE_WORDS>(a.sendbuff, bytes);
    const Blocks out = {a.recvbuff, bytes, a.stride};
    const auto load = [&](unsigned, uint64_t line) { return load_end_line(in, line); };
    const auto store = [&](unsigned peer, uint64_t line, Pair v) {
        const Run<LINE_WORDS> block = block_of(out, peer);
        if (peer != a.rank || lies_apart(in, block, line)) store_end_line(block, line, v);
    };
    if (gather_in_bundles(a, peer_region(a, e), lines_of(in), sign, load, store)) epoch_end(a, sign.flag);
}

BL_KERNEL(bl_allgather_ll128_warps_bytes, allgather_ll128_warps)
