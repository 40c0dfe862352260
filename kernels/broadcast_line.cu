/* broadcast_line.cu - the root sends its message to every peer, in lines; the datatype does not matter.
 *
 * One NVLink one-way, no barrier, no fence.  All blocks of the root send, all of the other ranks receive; where no data
 * goes, a token does.
 *
 * Contract: count >= 1 and at most layout.peer_lines lines; any grid of whole warps; buffers of any alignment, of the
 * root equal or disjoint; the others' sendbuff is not read.  Flags and reuse of the staging: staging.cuh.  A wait that
 * is told to stop leaves the kernel with recvbuff unspecified and the communicator unusable.
 */
#include <primitives.cuh>
#include "crews.cuh"
#include "instantiate.cuh"
#include "words.cuh"

template <int N> BL_DEVICE void broadcast_line(const struct bl_kernel_args &a) {
    const uint64_t e = epoch_begin(a), flag = e + 1, bytes = a.count * a.size;
    const Region region = peer_region(a, e);
    const uint32_t root = 1u << a.root;

    if (a.rank == a.root) {
        const Message in = message_of(a.sendbuff, bytes, false), out = message_of(a.recvbuff, bytes);
        send_to_all<N>(
            a, region, lines_of(in), whole_grid(), flag, [&](uint64_t line) { return load_line(in, line); },
            [&](uint64_t line) { prefetch_line(in, line); },
            [&](uint64_t line, Pair v) {
                if (in.base != out.base && !BL_MUTATION(33)) store_line(out, line, v);
            });
        if (!receive_tokens<N>(a, region, EVERYONE, flag)) return;
    } else {
        const Message out = message_of(a.recvbuff, bytes);
        send_tokens<N>(a, region, EVERYONE, flag);
        if (!receive_all_from_each<N>(
                a, region, lines_of(out), whole_grid(), flag,
                [&](unsigned, uint64_t line, Pair v) { store_line(out, line, v); }, root))
            return;
        if (!receive_tokens<N>(a, region, ~root, flag)) return;
    }
    epoch_end(a, flag);
}

BL_INSTANTIATE_BYTES(bl_broadcast_line, broadcast_line)
