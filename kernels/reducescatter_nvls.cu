/* reducescatter_nvls.cu - the switch adds: every rank copies its blocks into its replica, and reads its own block with
 * loads that bring one value for all ranks.
 *
 * Each rank's links bring it a block and take away one for each rank; a barrier before the loads, and one behind them, since
 * peers read here.  Blocks of threads work in chunks, as in allreduce_twoshot_nvls.cu.
 *
 * Contract: count >= 1 and nranks blocks of it, each in whole units, at most layout.multicast_half bytes; the same grid
 * of whole warps on all ranks, at most BL_MAX_BLOCKS; datatype and redop of bl_multimem_redops(); sendbuff holds a block
 * for each rank, `stride` bytes apart, and recvbuff is this rank's block of it, or lies elsewhere; any alignment.  The
 * order of additions is the switch's.  Halves and barrier: nvls.cuh.  A wait that is told to stop leaves the kernel
 * with recvbuff unspecified and the communicator unusable.
 */
#include <core/primitives.cuh>
#include "carriers/messages.cuh"
#include "carriers/nvls.cuh"

template <int DATATYPE> BL_DEVICE void reducescatter_nvls(const struct bl_kernel_args &a) {
    Multicast m = multicast_begin(a);
    const uint64_t bytes = a.count * a.size, units = units_of(bytes), offset = data_offset(a, m);
    const Blocks in = {a.sendbuff, bytes, a.stride};
    const Message out = message_of(a.recvbuff, bytes);
    const Chunks chunks = chunks_of(units, 1);

    const auto bring = [&](unsigned i) {
        for (unsigned block = 0; block < a.nranks; block++) {
            const Message one = block_of(in, block);
            Pair *const place = (Pair *)(a.replica + offset) + block * units;
            each_unit(
                chunk_at(chunks, i), [&](uint64_t u) { return load_unit(one, u); },
                [&](uint64_t u, Pair v) {
                    if (m.good) store_replica_relaxed_sys(place + u, v);
                });
        }
        return arrive(a, m);
    };

    if (!bring(0)) return;
    for (unsigned i = 0; i < chunks.count; i++) {
        if (i + 1 < chunks.count && !bring(i + 1)) return;
        if (!await_arrivals(a, m)) continue;
        reduce_units<DATATYPE>(chunk_at(chunks, i), a.multicast + offset + a.rank * units * UNIT_BYTES, a.redop,
                               [&](uint64_t u, Pair v) { store_unit(out, u, v); });
    }
    if (!arrive(a, m)) return; /* nobody reads here any more once all have */
    if (await_arrivals(a, m)) multicast_end(a, m);
}

BL_INSTANTIATE_MULTIMEM(bl_reducescatter_nvls, reducescatter_nvls)
