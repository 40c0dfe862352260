/* alltoall_ll128.cu - every rank sends each peer a block of its own, of one message or of a batch, in lines; the datatype does
 * not matter.
 *
 * One NVLink one-way, no barrier, no fence, no byte but the data.  If the grid has a group of lanes for each line
 * of a block, each group sends that line of every block to the peer that the block is for, and stores what it receives of a
 * peer in that peer's block of recvbuff.  Longer blocks have two crews: blocks of threads that only send, and those that only
 * receive and store, and copy this rank's own block to its place.
 *
 * Contract: count >= 1 and at most layout.peer_lines lines; any grid of whole warps; buffers of any alignment that do
 * not overlap (NCCL has no all-to-all in place); in each, blocks of all ranks, `stride` bytes apart.  How lines come, and reuse of
 * the staging: staging.cuh.  A wait that is told to stop leaves the kernel with recvbuff unspecified and the
 * communicator unusable.
 */
#include <core/primitives.cuh>
#include "carriers/crews.cuh"
#include "carriers/messages.cuh"
#include "core/instantiate.cuh"

static const unsigned SENDERS = 10, SENDERS_OF_RUNS = 14, SENDERS_OF_FEW = 10,
                      SENDERS_TO_MORE = 12; /* of 32; measured on H200 (docs/notebook.md) */

/* By two crews, or all do one after the other: a line for each group, that sends first, then receives.  AT_A_TIME, SENT_AT_A_TIME: so many whole lines are
 * under way where they come in runs, of every peer, and to one.  False: leave the kernel. */
template <int N, int AT_A_TIME, int SENT_AT_A_TIME, class In, class Out>
BL_DEVICE bool exchange_lines(const struct bl_kernel_args &a, const Region &region, uint64_t lines, bool alone,
                              bool in_runs, const Blank &sign, const In &in, const Out &out) {
    const uint64_t whole = in_runs ? whole_lines(in) : 0;
    const unsigned sending = !in_runs    ? SENDERS
                             : N > 2     ? SENDERS_TO_MORE
                             : is_wide() ? SENDERS_OF_RUNS
                                         : SENDERS_OF_FEW;
    const Share senders = alone ? whole_grid() : share_of(0, sending),
                receivers = alone ? whole_grid() : share_of(sending, 32);
    const auto load = [&](unsigned peer, uint64_t line, uint64_t step, auto &v, bool is_whole) {
        load_end_lines(block_of(in, peer), line, step, v, is_whole);
    };
    const auto store = [&](unsigned peer, uint64_t line, Pair v, bool is_whole) {
        store_end_line(block_of(out, peer), line, v, is_whole);
    };

    if (in_share(senders)) {
        if (whole > 0)
            send_runs_to_each<SENT_AT_A_TIME>(a, a.nranks, region, lines, whole, senders, sign, load, NoPrefetch());
        else
            send_to_each<N, 1>(a, region, lines, senders, sign, load, NoPrefetch());
    }
    if (!in_share(receivers)) return true;
    copy_run<AT_A_TIME>(
        lines, whole, receivers,
        [&](uint64_t line, uint64_t step, auto &v, bool is_whole) { load(a.rank, line, step, v, is_whole); },
        [&](uint64_t line, Pair v, bool is_whole) { store(a.rank, line, v, is_whole); });
    return receive_all_from_each<N, AT_A_TIME>(a, a.nranks, region, lines, whole, receivers, sign, store);
}

/* Runs pay from LATER times as many lines on as there must be for them. */
template <int N, int LATER, class In, class Out>
BL_DEVICE void exchange(const struct bl_kernel_args &a, const In &in, const Out &out) {
    const uint64_t e = epoch_begin(a), lines = lines_of_block(in);
    const Blank sign = blank_of(a, e);
    const Region region = peer_region(a, e);
    const bool alone = lines <= crew_of(whole_grid()).groups;
    enum { FEW = LinesOfFew<N>::COUNT, SENT_BY_FEW = LinesOfFew<N>::SENT, MANY = LinesAtATime<N>::COUNT };
    if (few_carry<N>(lines) && whole_lines(in) > 0) {
        if (!exchange_lines<N, FEW, SENT_BY_FEW>(a, region, lines, false, true, sign, in, out)) return;
    } else if (!exchange_lines<N, MANY, MANY>(a, region, lines, alone, comes_in_runs<N>(lines / LATER), sign, in,
                                              out)) {
        return;
    }
    epoch_end(a, sign.flag);
}

template <int N> BL_DEVICE void alltoall_ll128(const struct bl_kernel_args &a) {
    const uint64_t bytes = a.count * a.size;
    exchange<N, 1>(a, Blocks{a.sendbuff, bytes, a.stride}, Blocks{a.recvbuff, bytes, a.stride});
}

template <int N> BL_DEVICE void alltoall_ll128_batch(const struct bl_batch_args &a) {
    exchange<N, 2>(a.common, BatchInput<TypeU8, LINE_WORDS, struct bl_batch_args, N == 2>{a, 0},
                   BatchOutput<TypeU8, LINE_WORDS>{a, 0});
}

BL_INSTANTIATE_BYTES(bl_alltoall_ll128, alltoall_ll128)
BL_INSTANTIATE_BYTES_BATCH(bl_alltoall_ll128_batch, alltoall_ll128_batch)
