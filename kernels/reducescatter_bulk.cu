/* reducescatter_bulk.cu - long reduce-scatters by few blocks: every rank sends each peer the block that it owns, in pieces; the
 * owner reduces them in rank order.
 *
 * Some blocks send, the others reduce: bulk.cuh.
 *
 * Contract: count >= 1, of any size; a grid of which all blocks are resident, of 4 to 8 warps, with memory for them
 * (bl_kernel_memory); buffers of any alignment.  sendbuff holds a block for each rank, `stride` bytes apart, and recvbuff is
 * this rank's, or lies elsewhere.  In place, a piece is stored by the warp that has loaded it; the peers' blocks are not written.  A
 * wait that is told to stop leaves the kernel with recvbuff unspecified and the communicator unusable.
 */
#include <core/primitives.cuh>
#include "carriers/bulk.cuh"
#include "core/instantiate.cuh"

template <class T, int N> BL_DEVICE void reducescatter_bulk(const struct bl_kernel_args &a) {
    enum { SENDING = 13 /* of 32; measured on H200 (docs/notebook.md) */, BYTES = Piece<N>::BYTES };
    const uint64_t e = epoch_begin(a), flag = next_epoch(e), bytes = a.count * T::SIZE;
    const Stream s = stream_of(a, BL_BULK_TAKEN, pieces_of<N>(bytes));
    const unsigned nranks = nranks_of<N>(a), peers = nranks - 1;
    const unsigned first = cast_begin(SENDING, 1, 1), all = carriers_in_grid();
    const Cast senders = {0, first}, reducers = {first, all - first};
    const auto block_of_rank = [&](unsigned rank, uint64_t p) {
        return span_of((const unsigned char *)a.sendbuff + rank * a.stride, bytes, p, BYTES);
    };
    const auto sent_of = [&](unsigned warp) {
        return Outgoing{s, items_of(senders, carrier_in_grid(warp), s.pieces * peers), peers, false};
    };

    if (is_stopped(flag)) return;
    bulk_begin();
    const unsigned warp = warp_in_block(), number = carrier_in_grid(warp);
    if (warp == carriers_in_block()) {
        if (!tell_pieces<N>(a, sent_of)) return;
    } else if (number < first) {
        const Outgoing o = sent_of(warp);
        if (!send_pieces<N>(a, o, flag, [&](uint64_t item) {
                return block_of_rank(receiver_of(a, o, item, 0), piece_of(o, item));
            }))
            return;
    } else if (!reduce_pieces<T, N, false>(
                   a, s, Outgoing{s, items_of(reducers, number, s.pieces), peers, true}, flag,
                   [&](uint64_t p) { return block_of_rank(a.rank, p); },
                   [&](uint64_t p) { return span_of(a.recvbuff, bytes, p, BYTES); })) {
        return;
    }
    epoch_end(a, flag);
    stream_end(a, s);
}

BL_INSTANTIATE(bl_reducescatter_bulk, reducescatter_bulk)
