/* reducescatter_line.cu - every rank sends each peer the block that it owns, of one message or of a batch, in lines; the
 * owner reduces them in rank order.
 *
 * One NVLink one-way, no barrier, no fence; 16/15 of the bytes of the data.  If the grid has a group of lanes for each line
 * of a block, each group sends that line of every peer's block and receives its own block's.  Longer blocks have two
 * crews: blocks of threads that only send, and those that only receive and reduce.
 *
 * Contract: count >= 1 and at most layout.peer_lines lines; any grid of whole warps; buffers of any alignment.  sendbuff
 * holds a block for each rank, `stride` bytes apart, and recvbuff is this rank's, or lies elsewhere.  In place, each word
 * is stored by the lanes that have loaded it; the peers' blocks are not written.  Flags and reuse of the staging:
 * staging.cuh.  A wait that is told to stop, or that runs out, leaves the kernel with recvbuff unspecified and the
 * communicator unusable.
 */
#include <primitives.cuh>
#include "crews.cuh"
#include "instantiate.cuh"
#include "messages.cuh"
#include "types.cuh"
#include "words.cuh"

enum { LINES_OF_ONE = 4 }; /* at a time to a single peer, whose lines are all that a sender has to load */

/* Of 32; measured on H200 (docs/algorithms.md). */
BL_DEVICE unsigned senders_among(unsigned nranks, bool far) {
    return nranks == 2 ? (far ? 6 : 5) : nranks == 3 ? 7 : 12;
}

template <class T, int N, class In, class Out>
BL_DEVICE void scatter(const struct bl_kernel_args &a, const In &in, const Out &out) {
    const uint64_t e = epoch_begin(a), flag = e + 1, lines = lines_of_block(in);
    const Region region = peer_region(a, e);
    const auto store = [&](uint64_t line, Pair sum) { store_line(out, line, sum); };

    if (lines <= crew_of(whole_grid()).groups) { /* a line for each group, that sends first, then receives */
        const auto load = [&](unsigned peer, uint64_t line) { return load_end_line(block_of(in, peer), line); };
        send_to_each<N, 1>(a, region, lines, whole_grid(), flag, load, NoPrefetch());
        if (!reduce_all<T, N>(
                a, region, lines, whole_grid(), flag, false, [&](uint64_t line) { return load(a.rank, line); }, store))
            return;
    } else {
        const bool far = beyond_cache((3 * a.nranks - 1) * lines);
        const unsigned sending = senders_among(a.nranks, far);
        const Share senders = share_of(0, sending), receivers = share_of(sending, 32);
        const auto load = [&](unsigned peer, uint64_t line) { return load_line(block_of(in, peer), line); };
        const auto prefetch = [&](unsigned peer, uint64_t line) {
            if (far) prefetch_line(block_of(in, peer), line);
        };
        if (in_share(senders))
            send_to_each<N, N == 2 ? LINES_OF_ONE : 1>(a, region, lines, senders, flag, load, prefetch);
        if (in_share(receivers) &&
            !reduce_all<T, N>(
                a, region, lines, receivers, flag, false, [&](uint64_t line) { return load(a.rank, line); }, store))
            return;
    }
    epoch_end(a, flag);
}

template <class T, int N> BL_DEVICE void reducescatter_line(const struct bl_kernel_args &a) {
    const uint64_t bytes = a.count * T::SIZE;
    scatter<T, N>(a, Blocks{a.sendbuff, bytes, a.stride, a.recvbuff}, message_of(a.recvbuff, bytes));
}

template <class T, int N> BL_DEVICE void reducescatter_line_batch(const struct bl_batch_args &a) {
    scatter<T, N>(a.common, BatchInput<T>{a, 0}, BatchOutput<T>{a, 0});
}

BL_INSTANTIATE(bl_reducescatter_line, reducescatter_line)
BL_INSTANTIATE_BATCH(bl_reducescatter_line_batch, reducescatter_line_batch)
