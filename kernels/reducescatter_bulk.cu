/* reducescatter_bulk.cu - long reduce-scatters by few blocks: every rank sends each peer the block that it owns, in pieces; the
 * owner reduces them in rank order.
 *
 * Some blocks send, the others reduce: bulk.cuh.
 *
 * Contract: count >= 1, of any size; a grid of any size, of which any part may be resident, of 4 to 7 warps, with memory for
 * them (bl_kernel_memory); buffers of any alignment.  sendbuff holds a block for each rank, `stride` bytes apart, and recvbuff is
 * this rank's, or lies elsewhere.  In place, a piece is stored by the warp that has loaded it; the peers' blocks are not written.  A
 * wait that is told to stop leaves the kernel with recvbuff unspecified and the communicator unusable.
 */
#include <core/primitives.cuh>
#include "carriers/bulk.cuh"
#include "core/instantiate.cuh"

template <class T, int N> BL_DEVICE void reducescatter_bulk(const struct bl_kernel_args &a) {
    enum { BYTES = Piece<N>::BYTES };
    const unsigned senders = senders_of(11);
    const Cast cast = {senders, others_than(senders), 0}; /* measured on H200 (docs/notebook.md) */
    const uint64_t e = epoch_begin(a), flag = next_epoch(e), bytes = a.count * T::SIZE;
    const Stream s = stream_of(a, BL_BULK_TAKEN, pieces_of<N>(bytes));
    const unsigned nranks = nranks_of<N>(a), peers = nranks - 1;
    const Outgoing inputs = {s, peers, false}, nothing = {s, peers, true};

    if (is_stopped(flag)) return;
    const Launch launch = bulk_begin<N>(a, cast);
    bool goes_on = true;
    switch (role_of_warp(cast, launch.block, warp_in_block())) {
    case TELLS: goes_on = tell_pieces<N>(a, [&](unsigned) { return inputs; }); break;
    case SENDS:
        goes_on = send_pieces<N>(a, launch, inputs, flag, [&](uint64_t item) {
            return span_of_block<N>(a, a.sendbuff, receiver_of(a, inputs, item, 0), bytes, piece_of(inputs, item));
        });
        break;
    case REDUCES:
        goes_on = reduce_pieces<T, N, false>(
            a, launch, s, nothing, flag, [&](uint64_t p) { return span_of_block<N>(a, a.sendbuff, a.rank, bytes, p); },
            [&](uint64_t p) { return span_of(a.recvbuff, bytes, p, BYTES); });
        break;
    default: break;
    }
    if (!goes_on) return;
    epoch_end(a, flag);
    stream_end(a, s);
    bulk_end(a, launch);
}

BL_INSTANTIATE(bl_reducescatter_bulk, reducescatter_bulk)
