/* allgather_nvls.cu - every rank stores its block to all ranks at once; the datatype does not matter.
 *
 * A rank's links take its block away once, whatever the number of ranks, and bring it the blocks of all; one barrier.  Blocks
 * of threads work in chunks, the next sent before this one of all ranks is waited for and copied out.
 *
 * Contract: count >= 1 and nranks blocks of it, each in whole units, at most layout.multicast_half bytes; the same grid
 * of whole warps on all ranks, at most BL_MAX_BLOCKS; recvbuff holds a block of each rank, `stride` bytes apart, and
 * sendbuff is this rank's, or lies elsewhere; any alignment.  Halves and barrier: nvls.cuh.  A wait that is told to
 * stop leaves the kernel with recvbuff unspecified and the communicator unusable.
 */
#include <core/primitives.cuh>
#include "carriers/messages.cuh"
#include "carriers/nvls.cuh"

BL_DEVICE void allgather_nvls(const struct bl_kernel_args &a) {
    Multicast m = multicast_begin(a);
    const uint64_t bytes = a.count * a.size, units = units_of(bytes), offset = data_offset(a, m);
    const Message in = message_of(a.sendbuff, bytes);
    const Blocks out = {a.recvbuff, bytes, a.stride};
    const Message own = block_of(out, a.rank);
    unsigned char *const all = a.multicast + offset + a.rank * units * UNIT_BYTES;
    const Chunks chunks = chunks_of(units, 1);

    const auto send = [&](unsigned i) {
        each_unit(
            chunk_at(chunks, i), [&](uint64_t u) { return load_unit(in, u); },
            [&](uint64_t u, Pair v) {
                if (!m.good) return;
                multicast_store_relaxed_sys(all + u * UNIT_BYTES, v);
                if (own.base != in.base) store_unit(own, u, v);
            });
        return arrive(a, m);
    };
    const auto fetch = [&](unsigned i) {
        for (unsigned k = 1; k < a.nranks; k++) {
            const unsigned peer = peer_at(a.rank, k, a.nranks);
            const Message block = block_of(out, peer);
            const Pair *const place = (const Pair *)(a.replica + offset) + peer * units;
            each_unit(
                chunk_at(chunks, i), [&](uint64_t u) { return load_replica_relaxed_sys(place + u); },
                [&](uint64_t u, Pair v) { store_unit(block, u, v); });
        }
    };

    if (!send(0)) return;
    for (unsigned i = 0; i < chunks.count; i++) {
        if (i + 1 < chunks.count && !send(i + 1)) return;
        if (await_arrivals(a, m)) fetch(i);
    }
    if (m.good) multicast_end(a, m);
}

BL_KERNEL(bl_allgather_nvls_bytes, allgather_nvls)
