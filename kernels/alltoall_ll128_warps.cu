/* alltoall_ll128_warps.cu - every rank sends each peer a block of its own, in lines, whatever the datatype: for small blocks
 * of many ranks.
 *
 * One NVLink one-way, no barrier, no fence, no byte but the data.  The peers are spread over the warps of a block:
 * warps.cuh.  A warp sends its rank the block for that rank, and stores what comes from there in that rank's block of recvbuff.
 *
 * Contract: count >= 1 and at most layout.peer_lines lines; any grid of blocks of at least 32 threads for each two
 * ranks; buffers of any alignment that do not overlap (NCCL has no all-to-all in place); in each, blocks of all ranks,
 * `stride` bytes apart.  How lines come, and reuse of the staging: staging.cuh.  A wait that is told to stop leaves the kernel with
 * recvbuff unspecified and the communicator unusable.
 */
#include <core/primitives.cuh>
#include "carriers/messages.cuh"
#include "carriers/warps.cuh"

BL_DEVICE void alltoall_ll128_warps(const struct bl_kernel_args &a) {
    const uint64_t e = epoch_begin(a), bytes = a.count * a.size;
    const Blank sign = blank_of(a, e);
    const Blocks in = {a.sendbuff, bytes, a.stride}, out = {a.recvbuff, bytes, a.stride};
    const auto load = [&](unsigned peer, uint64_t line) { return load_end_line(block_of(in, peer), line); };
    const auto store = [&](unsigned peer, uint64_t line, Pair v) { store_end_line(block_of(out, peer), line, v); };
    if (gather_in_bundles(a, peer_region(a, e), lines_of_block(in), sign, load, store)) epoch_end(a, sign.flag);
}

BL_KERNEL(bl_alltoall_ll128_warps_bytes, alltoall_ll128_warps)
