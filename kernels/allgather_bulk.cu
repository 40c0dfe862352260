/* allgather_bulk.cu - long all-gathers by few blocks: every rank sends its block to every peer in pieces; the datatype does not
 * matter.
 *
 * Some blocks send, the others collect what peers send, and copy this rank's own block to its place: bulk.cuh.
 *
 * Contract: count >= 1, of any size; a grid of any size, of which any part may be resident, of 4 to 7 warps, with memory for
 * them (bl_kernel_memory); buffers of any alignment.  recvbuff holds a block of each rank, `stride` bytes apart, and sendbuff is this
 * rank's, or lies elsewhere.  In place, nothing that is read is written.  A wait that is told to stop leaves the kernel with
 * recvbuff unspecified and the communicator unusable.
 */
#include <core/primitives.cuh>
#include "carriers/bulk.cuh"
#include "core/instantiate.cuh"

template <int N> BL_DEVICE void allgather_bulk(const struct bl_kernel_args &a) {
    enum { BYTES = Piece<N>::BYTES };
    const unsigned senders = senders_of(9);
    const Cast cast = {senders, 0, others_than(senders)}; /* measured on H200 (docs/notebook.md) */
    const uint64_t e = epoch_begin(a), flag = next_epoch(e), bytes = a.count * a.size;
    const Stream s = stream_of(a, BL_BULK_RESULTS, pieces_of<N>(bytes));
    const unsigned nranks = nranks_of<N>(a);
    unsigned char *const own = (unsigned char *)a.recvbuff + a.rank * a.stride;
    const unsigned sources = own == a.sendbuff ? nranks - 1 : nranks;
    const auto mine = [&](uint64_t p) { return span_of(a.sendbuff, bytes, p, BYTES); };
    const Outgoing blocks = {s, nranks - 1, true};

    if (is_stopped(flag)) return;
    const Launch launch = bulk_begin<N>(a, cast);
    bool goes_on = true;
    switch (role_of_warp(cast, launch.block, warp_in_block())) {
    case TELLS: goes_on = tell_pieces<N>(a, [&](unsigned) { return blocks; }); break;
    case SENDS: goes_on = send_pieces<N>(a, launch, blocks, flag, mine); break;
    case COLLECTS:
        goes_on = collect_pieces<N>(
            a, launch, s, sources, flag, [&](unsigned i) { return source_in_turn(a, nranks, i); }, mine,
            [&](unsigned source, uint64_t p) { return span_of_block<N>(a, a.recvbuff, source, bytes, p); });
        break;
    default: break;
    }
    if (!goes_on) return;
    epoch_end(a, flag);
    stream_end(a, s);
    bulk_end(a, launch);
}

BL_INSTANTIATE_BYTES(bl_allgather_bulk, allgather_bulk)
