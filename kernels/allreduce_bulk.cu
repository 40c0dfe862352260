/* allreduce_bulk.cu - long all-reduces by few blocks: reduce-scatter, then all-gather, both in pieces, in one launch.
 *
 * Each rank owns one of nranks equal runs.  Some blocks send the peers' runs to their owners, some reduce this rank's own and send the
 * sums to all peers, the others collect the peers' sums: bulk.cuh.
 *
 * Contract: count >= 1, of any size; a grid of any size, of which any part may be resident, of 4 to 7 warps, with memory for
 * them (bl_kernel_memory); sendbuff and recvbuff of any alignment, equal or disjoint.  In place, no byte is overwritten unread: only
 * reducers touch this rank's run, each warp the pieces that it has loaded, and a peer's sum comes only after that peer had our input.  A wait that
 * is told to stop leaves the kernel with recvbuff unspecified and the communicator unusable.
 */
#include <core/primitives.cuh>
#include "carriers/bulk.cuh"
#include "core/instantiate.cuh"

/* Bytes of a run that are in the message, of which the last runs may have none. */
struct Run {
    uint64_t begin, bytes;
};
BL_DEVICE Run run_of_rank(uint64_t each, uint64_t bytes, unsigned rank) {
    const uint64_t begin = rank * each < bytes ? rank * each : bytes;
    return {begin, bytes - begin < each ? bytes - begin : each};
}

template <class T, int N> BL_DEVICE void allreduce_bulk(const struct bl_kernel_args &a) {
    enum { BYTES = Piece<N>::BYTES };
    const Cast cast = {8, 15, 9}; /* measured on H200 (docs/notebook.md) */
    const uint64_t e = epoch_begin(a), flag = next_epoch(e), bytes = a.count * T::SIZE;
    const unsigned nranks = nranks_of<N>(a), peers = nranks - 1;
    const uint64_t each = (units_of(bytes) + nranks - 1) / nranks * UNIT_BYTES;
    const Stream taken = stream_of(a, BL_BULK_TAKEN, pieces_of<N>(each)),
                 results = stream_of(a, BL_BULK_RESULTS, pieces_of<N>(each));
    const auto span = [&](const void *buffer, unsigned rank, uint64_t p) {
        const Run run = run_of_rank(each, bytes, rank);
        return span_of((const unsigned char *)buffer + run.begin, run.bytes, p, BYTES);
    };
    const Outgoing inputs = {taken, peers, false}, sums = {results, peers, true};

    if (is_stopped(flag)) return;
    const Launch launch = bulk_begin<N>(a, cast);
    const auto role = [&](unsigned warp) { return role_of_warp(cast, launch.block, warp); };
    bool goes_on = true;
    switch (role(warp_in_block())) {
    case TELLS: goes_on = tell_pieces<N>(a, [&](unsigned warp) { return role(warp) == SENDS ? inputs : sums; }); break;
    case SENDS:
        goes_on = send_pieces<N>(a, launch, inputs, flag, [&](uint64_t item) {
            return span(a.sendbuff, receiver_of(a, inputs, item, 0), piece_of(inputs, item));
        });
        break;
    case REDUCES:
        goes_on = reduce_pieces<T, N, true>(
            a, launch, taken, sums, flag, [&](uint64_t p) { return span(a.sendbuff, a.rank, p); },
            [&](uint64_t p) { return span(a.recvbuff, a.rank, p); });
        break;
    case COLLECTS:
        goes_on = collect_pieces<N>(
            a, launch, results, peers, flag, [&](unsigned i) { return source_in_turn(a, nranks, i); },
            [&](uint64_t p) { return span(a.sendbuff, a.rank, p); },
            [&](unsigned source, uint64_t p) { return span(a.recvbuff, source, p); });
        break;
    default: break;
    }
    if (!goes_on) return;
    epoch_end(a, flag);
    stream_end(a, taken);
    stream_end(a, results);
    bulk_end(a, launch);
}

BL_INSTANTIATE(bl_allreduce_bulk, allreduce_bulk)
