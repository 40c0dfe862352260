/* allgather_bulk.cu - long all-gathers by few blocks: every rank sends its block to every peer in pieces; the datatype does not
 * matter.
 *
 * Some blocks send, the others collect what peers send, and copy this rank's own block to its place: bulk.cuh.
 *
 * Contract: count >= 1, of any size; a grid of which all blocks are resident, of 4 to 8 warps, with memory for them
 * (bl_kernel_memory); buffers of any alignment.  recvbuff holds a block of each rank, `stride` bytes apart, and sendbuff is this
 * rank's, or lies elsewhere.  In place, nothing that is read is written.  A wait that is told to stop leaves the kernel with
 * recvbuff unspecified and the communicator unusable.
 */
#include <core/primitives.cuh>
#include "carriers/bulk.cuh"
#include "core/instantiate.cuh"

template <int N> BL_DEVICE void allgather_bulk(const struct bl_kernel_args &a) {
    enum { SENDING = 14 /* of 32; measured on H200 (docs/notebook.md) */, BYTES = Piece<N>::BYTES };
    const uint64_t e = epoch_begin(a), flag = next_epoch(e), bytes = a.count * a.size;
    const Stream s = stream_of(a, BL_BULK_RESULTS, pieces_of<N>(bytes));
    const unsigned nranks = nranks_of<N>(a);
    const unsigned first = cast_begin(SENDING, 1, 1), all = carriers_in_grid();
    const Cast senders = {0, first}, collectors = {first, all - first};
    unsigned char *const own = (unsigned char *)a.recvbuff + a.rank * a.stride;
    const unsigned sources = own == a.sendbuff ? nranks - 1 : nranks;
    const auto mine = [&](uint64_t p) { return span_of(a.sendbuff, bytes, p, BYTES); };
    const auto outgoing = [&](unsigned warp) {
        return Outgoing{s, items_of(senders, carrier_in_grid(warp), s.pieces), nranks - 1, true};
    };

    if (is_stopped(flag)) return;
    bulk_begin();
    const unsigned warp = warp_in_block(), number = carrier_in_grid(warp);
    if (warp == carriers_in_block()) {
        if (!tell_pieces<N>(a, outgoing)) return;
    } else if (number < first) {
        if (!send_pieces<N>(a, outgoing(warp), flag, mine)) return;
    } else if (!collect_pieces<N>(
                   a, s, items_of(collectors, number, s.pieces * sources), sources, flag,
                   [&](unsigned i) { return i + 1 < nranks ? peer_at(a.rank, nranks - 1 - i, nranks) : a.rank; }, mine,
                   [&](unsigned source, uint64_t p) {
                       return span_of((unsigned char *)a.recvbuff + source * a.stride, bytes, p, BYTES);
                   })) {
        return;
    }
    epoch_end(a, flag);
    stream_end(a, s);
}

BL_INSTANTIATE_BYTES(bl_allgather_bulk, allgather_bulk)
