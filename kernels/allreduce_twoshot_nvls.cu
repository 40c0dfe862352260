/* allreduce_twoshot_nvls.cu - the switch adds: every rank reduces its share with loads that bring one value for all ranks,
 * and stores it to all ranks at once.
 *
 * (1 + 1/n) of the bytes of the data each way on every rank's links, whatever the number of ranks; two barriers.  Each
 * block of threads goes through its part of the message in chunks: it copies a chunk of sendbuff into its replica; once
 * all ranks have, it reduces its rank's share of it and stores that over what it was made of, in all replicas; once all
 * ranks have, it copies the chunk out, to recvbuff.  The next chunk is copied in before this one is waited for, and the
 * last one out after, so that blocks use the links while others copy.
 *
 * Contract: count >= 1 and at most layout.multicast_half bytes; the same grid of whole warps on all ranks, at most
 * BL_MAX_BLOCKS; datatype and redop of bl_multimem_redops(); sendbuff and recvbuff any alignment, equal or disjoint.
 * The order of additions is the switch's: all ranks get the same bits, another run may get others.  Halves and barrier:
 * nvls.cuh.  A wait that is told to stop leaves the kernel with recvbuff unspecified and the communicator unusable.
 */
#include <core/primitives.cuh>
#include "carriers/nvls.cuh"

template <int DATATYPE> BL_DEVICE void allreduce_twoshot_nvls(const struct bl_kernel_args &a) {
    Multicast m = multicast_begin(a);
    const uint64_t bytes = a.count * a.size, offset = data_offset(a, m);
    const Message in = message_of(a.sendbuff, bytes), out = message_of(a.recvbuff, bytes);
    Pair *const own = (Pair *)(a.replica + offset);
    unsigned char *const all = a.multicast + offset;
    const Chunks chunks = chunks_of(units_of(bytes), a.nranks);

    const auto bring = [&](unsigned i) {
        each_unit(
            chunk_at(chunks, i), [&](uint64_t u) { return load_unit(in, u); },
            [&](uint64_t u, Pair v) {
                if (m.good) store_replica_relaxed_sys(own + u, v);
            });
        return arrive(a, m);
    };
    const auto reduce = [&](unsigned i) {
        const unsigned share = a.rank; /* ahead of the wait */
        if (await_arrivals(a, m))
            reduce_units<DATATYPE>(share_of_units(chunk_at(chunks, i), share, a.nranks), all, a.redop,
                                   [&](uint64_t u, Pair v) { multicast_store_relaxed_sys(all + u * UNIT_BYTES, v); });
        return arrive(a, m);
    };
    const auto fetch = [&](unsigned i) {
        if (!await_arrivals(a, m)) return;
        each_unit(
            chunk_at(chunks, i), [&](uint64_t u) { return load_replica_relaxed_sys(own + u); },
            [&](uint64_t u, Pair v) { store_unit(out, u, v); });
    };

    if (!bring(0)) return;
    for (unsigned i = 0; i < chunks.count; i++) {
        if (i + 1 < chunks.count && !bring(i + 1)) return;
        if (!reduce(i)) return;
        if (i > 0) fetch(i - 1);
    }
    fetch(chunks.count - 1);
    if (m.good) multicast_end(a, m);
}

BL_INSTANTIATE_MULTIMEM(bl_allreduce_twoshot_nvls, allreduce_twoshot_nvls)
