/* alltoall_bulk.cu - long all-to-alls by few blocks: every rank sends each peer a block of its own in pieces; the datatype does not
 * matter.
 *
 * Some blocks send, the others collect what peers send, and copy this rank's own block to its place: bulk.cuh.
 *
 * Contract: count >= 1, of any size; a grid of any size, of which any part may be resident, of 4 to 7 warps, with memory for
 * them (bl_kernel_memory); buffers of any alignment that do not overlap (NCCL has no all-to-all in place); in each, blocks of
 * all ranks, `stride` bytes apart.  A wait that is told to stop leaves the kernel with recvbuff unspecified and the communicator
 * unusable.
 */
#include <core/primitives.cuh>
#include "carriers/bulk.cuh"
#include "core/instantiate.cuh"

template <int N> BL_DEVICE void alltoall_bulk(const struct bl_kernel_args &a) {
    const unsigned senders = senders_of(9);
    const Cast cast = {senders, 0, others_than(senders)}; /* as of all-gathers */
    const uint64_t e = epoch_begin(a), flag = next_epoch(e), bytes = a.count * a.size;
    const Stream s = stream_of(a, BL_BULK_RESULTS, pieces_of<N>(bytes));
    const unsigned nranks = nranks_of<N>(a);
    const Outgoing blocks = {s, nranks - 1, false};

    if (is_stopped(flag)) return;
    const Launch launch = bulk_begin<N>(a, cast);
    bool goes_on = true;
    switch (role_of_warp(cast, launch.block, warp_in_block())) {
    case TELLS: goes_on = tell_pieces<N>(a, [&](unsigned) { return blocks; }); break;
    case SENDS:
        goes_on = send_pieces<N>(a, launch, blocks, flag, [&](uint64_t item) {
            return span_of_block<N>(a, a.sendbuff, receiver_of(a, blocks, item, 0), bytes, piece_of(blocks, item));
        });
        break;
    case COLLECTS:
        goes_on = collect_pieces<N>(
            a, launch, s, nranks, flag, [&](unsigned i) { return source_in_turn(a, nranks, i); },
            [&](uint64_t p) { return span_of_block<N>(a, a.sendbuff, a.rank, bytes, p); },
            [&](unsigned source, uint64_t p) { return span_of_block<N>(a, a.recvbuff, source, bytes, p); });
        break;
    default: break;
    }
    if (!goes_on) return;
    epoch_end(a, flag);
    stream_end(a, s);
    bulk_end(a, launch);
}

BL_INSTANTIATE_BYTES(bl_alltoall_bulk, alltoall_bulk)
