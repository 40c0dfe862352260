/* allgather_ll128.cu - every rank sends its block, or a batch of blocks, to every peer, in lines; the datatype does not
 * matter.
 *
 * One NVLink one-way, no barrier, no fence, no byte but the data.  If the grid has a group of lanes for each
 * line, each group loads its line, stores it into each peer's staging, and waits for the same line of each peer, which
 * it stores in that peer's block of recvbuff.  Longer blocks have two crews: blocks of threads that only send, and those that
 * only receive and store; one of them copies this rank's own data to its place, too.
 *
 * Contract: count >= 1 and at most layout.peer_lines lines; any grid of whole warps; buffers of any alignment.  recvbuff
 * holds a block of each rank, `stride` bytes apart, and sendbuff is this rank's, or lies elsewhere.  In place, nothing
 * that is read is written.  How lines come, and reuse of the staging: staging.cuh.  A wait that is told to stop leaves the kernel
 * with recvbuff unspecified and the communicator unusable.
 */
#include <core/primitives.cuh>
#include "carriers/crews.cuh"
#include "carriers/messages.cuh"
#include "core/instantiate.cuh"

/* Of 32; measured on H200 (docs/notebook.md). */
BL_DEVICE unsigned senders_among(unsigned nranks, bool in_runs) {
    return in_runs ? (nranks > 2 ? 14 : 16) : nranks > 2 ? 8 : 5;
}

/* Longer blocks.  AT_A_TIME: of lines that come in runs and are whole, so many of each peer are under way.  False: leave the kernel. */
template <int N, int AT_A_TIME, class In, class Out>
BL_DEVICE bool gather_by_crews(const struct bl_kernel_args &a, const Region &region, uint64_t lines, bool in_runs,
                               const Blank &sign, const In &in, const Out &out) {
    const auto own = block_of(out, a.rank);
    const uint64_t whole = in_runs ? whole_lines(in) : 0;
    const unsigned sending = senders_among(a.nranks, in_runs);
    const Share senders = share_of(0, sending), receivers = share_of(sending, 32);
    /* Who copies this rank's own data to its place: between two ranks a sender has a load for each store, and a
     * receiver, where there are many, has more time. */
    const bool by_senders = N > 2 || in_runs;
    enum { LOADS = N == 2 ? LinesAtATime<N>::COUNT : N <= 4 ? 2 : 1 };
    const auto load = [&](uint64_t line, uint64_t step, auto &v, bool is_whole) {
        load_lines(in, line, step, v, is_whole);
    };
    if (in_share(senders))
        send_to_all<N, LOADS>(
            a, region, lines, whole_lines(in), senders, sign, load, [&](uint64_t line) { prefetch_line(in, line); },
            [&](uint64_t line, Pair v) {
                if (by_senders && lies_apart(in, own, line)) store_line(own, line, v, line < whole);
            });
    return !in_share(receivers) ||
           receive_all_from_each<N, AT_A_TIME>(a, a.nranks, region, lines, whole, receivers, sign,
                                               [&](unsigned peer, uint64_t line, Pair v, bool is_whole) {
                                                   store_line(block_of(out, peer), line, v, is_whole);
                                                   if (!by_senders && lies_apart(in, own, line))
                                                       store_line(own, line, load_line(in, line));
                                               });
}

template <int N, class In, class Out>
BL_DEVICE void gather(const struct bl_kernel_args &a, const In &in, const Out &out) {
    const uint64_t e = epoch_begin(a), lines = lines_of(in);
    const Blank sign = blank_of(a, e);
    const Region region = peer_region(a, e);
    const auto own = block_of(out, a.rank);

    if (lines <= crew_of(whole_grid()).groups) {
        const Crew crew = crew_of(whole_grid());
        const uint64_t line = crew.group;
        if (crew.of_warp < lines) {
            const bool active = line < lines;
            const Pair v = load_end_line(in, line);
            warp_sync(); /* lanes may have parted at a tail; a line is stored by all of its lanes at once */
            if (active) {
#pragma unroll
                for (int i = 1; i < N; i++)
                    if (i < (int)a.nranks) send_line(a, region, peer_at(a.rank, i, a.nranks), line, v, sign);
                if (lies_apart(in, own, line)) store_end_line(own, line, v);
            }
            Wait wait = wait_begin(sign.flag);
            if (!receive_from_each<N>(a, a.nranks, region, line, sign, active, wait,
                                      [&](unsigned peer, Pair got) { store_end_line(block_of(out, peer), line, got); }))
                return;
        }
    } else if (few_carry<N>(lines) && whole_lines(in) > 0) {
        if (!gather_by_crews<N, LinesOfFew<N>::COUNT>(a, region, lines, true, sign, in, out)) return;
    } else {
        if (!gather_by_crews<N, LinesAtATime<N>::COUNT>(a, region, lines, comes_in_runs<N>(lines), sign, in, out))
            return;
    }
    epoch_end(a, sign.flag);
}

template <int N> BL_DEVICE void allgather_ll128(const struct bl_kernel_args &a) {
    const uint64_t bytes = a.count * a.size;
    gather<N>(a, run_of<LINE_WORDS>(a.sendbuff, bytes), Blocks{a.recvbuff, bytes, a.stride});
}

template <int N> BL_DEVICE void allgather_ll128_batch(const struct bl_batch_args &a) {
    gather<N>(a.common, BatchInput<TypeU8, LINE_WORDS, struct bl_batch_args, N == 2>{a, 0},
              BatchOutput<TypeU8, LINE_WORDS>{a, 0});
}

BL_INSTANTIATE_BYTES(bl_allgather_ll128, allgather_ll128)
BL_INSTANTIATE_BYTES_BATCH(bl_allgather_ll128_batch, allgather_ll128_batch)
