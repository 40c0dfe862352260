/* reducescatter_ll128.cu - every rank sends each peer the block that it owns, of one message or of a batch, in lines; the
 * owner reduces them in rank order.
 *
 * One NVLink one-way, no barrier, no fence, no byte but the data.  If the grid has a group of lanes for each line
 * of a block, each group sends that line of every peer's block to its owner, receives every peer's version of that line of
 * this rank's own block, reduces and stores it.  Longer blocks have two crews: blocks of threads that only send, and those that
 * only receive, reduce and store.  Between up to 4 ranks lines go as whole ones (lines.cuh) until the last few, of short blocks if
 * sendbuff is aligned: then all that a group loads or polls is under way at once.
 *
 * Contract: count >= 1 and at most layout.peer_lines lines; any grid of whole warps; buffers of any alignment.  sendbuff
 * holds a block for each rank, `stride` bytes apart, and recvbuff is this rank's, or lies elsewhere.  In place, each
 * byte is stored by the lane that has loaded it, whole lines or not; the peers' blocks are not written.  How lines
 * come, and reuse of the staging: staging.cuh.  A wait that is told to stop leaves the kernel with recvbuff unspecified and the
 * communicator unusable.
 */
#include <core/primitives.cuh>
#include "carriers/crews.cuh"
#include "carriers/messages.cuh"
#include "core/instantiate.cuh"

enum { LINES_OF_ONE = 4 }; /* at a time to a single peer, whose lines are all that a sender has to load */

/* Of 32; measured on H200 with up to 4 ranks (docs/notebook.md). */
BL_DEVICE unsigned senders_among(unsigned nranks, bool whole, bool in_runs) {
    enum { FEWEST = 896 }; /* groups of lanes: 28 blocks of 256 threads */
    if (in_runs && nranks > 2) return crew_of(whole_grid()).groups <= FEWEST ? 14 : 12;
    return in_runs ? 10 : nranks == 2 ? 5 : nranks == 3 || whole ? 7 : 12;
}

/* A whole line for each group, that sends first, then receives.  All that it loads is under way at once: load(peer, line). */
template <class T, int N, class Load, class Store>
BL_DEVICE bool scatter_a_line(const struct bl_kernel_args &a, unsigned nranks, const Region &region, uint64_t line,
                              const Blank &sign, Load load, Store store) {
    Pair outgoing[N] = {}, sum[1];
#pragma unroll
    for (unsigned i = 1; i < N; i++)
        if (i < nranks) outgoing[i] = load(peer_at(a.rank, i, nranks), line);
    const Pair own[1] = {load(a.rank, line)};
    warp_sync();
#pragma unroll
    for (unsigned i = 1; i < N; i++)
        if (i < nranks) send_line(a, region, peer_at(a.rank, i, nranks), line, outgoing[i], sign);
    Wait wait = wait_begin(sign.flag);
    if (!receive_all_and_reduce<T, N, 1>(a, nranks, region, line, 0, sign, own, sum, wait)) return false;
    store(line, sum[0], true);
    return true;
}

/* Longer blocks.  AT_A_TIME: so many of every peer's lines that are whole are under way; in_runs: crews are shared out for that.  FETCHED: lines are asked
 * for ahead of time if they are not in the cache.  False: leave the kernel. */
template <class T, int N, int AT_A_TIME, bool FETCHED, class In, class Out>
BL_DEVICE bool scatter_by_crews(const struct bl_kernel_args &a, unsigned nranks, const Region &region, uint64_t lines,
                                uint64_t whole, bool far, bool in_runs, const Blank &sign, const In &in,
                                const Out &out) {
    const unsigned sending = senders_among(nranks, whole > 0, in_runs);
    const Share senders = share_of(0, sending), receivers = share_of(sending, 32);
    const auto load = [&](unsigned peer, uint64_t line, uint64_t step, auto &v, bool is_whole) {
        load_lines(block_of(in, peer), line, step, v, is_whole);
    };
    const auto prefetch = [&](unsigned peer, uint64_t line) {
        if (FETCHED && far) prefetch_line(block_of(in, peer), line);
    };
    if (in_share(senders)) {
        if (whole > 0)
            send_runs_to_each<LINES_OF_ONE>(a, nranks, region, lines, whole, senders, sign, load, prefetch);
        else
            send_to_each<N, 1>(a, region, lines, senders, sign, load, prefetch);
    }
    return !in_share(receivers) ||
           reduce_whole<T, N, AT_A_TIME>(
               a, nranks, region, lines, whole, receivers, sign,
               [&](uint64_t line, uint64_t step, auto &v, bool is_whole) { load(a.rank, line, step, v, is_whole); },
               [&](uint64_t line, Pair sum, bool is_whole) { store_line(out, line, sum, is_whole); });
}

/* nranks is a.nranks, of which the compiler may know more.  NEAR: whole lines come several at a time, and ahead of time if they are not in the cache;
 * of batches of more than two ranks finding them costs more than either gains while they are in it (docs/notebook.md). */
template <class T, int N, bool NEAR, class In, class Out>
BL_DEVICE void scatter(const struct bl_kernel_args &a, unsigned nranks, const In &in, const Out &out) {
    const uint64_t e = epoch_begin(a), lines = lines_of_block(in);
    const Blank sign = blank_of(a, e);
    const bool far = beyond_cache((3 * nranks - 1) * lines);
    /* For more ranks there are not the registers. */
    const uint64_t whole = N > 4 || !(NEAR || far) ? 0 : whole_lines(in);
    const Region region = peer_region(a, e);
    const Crew crew = crew_of(whole_grid());

    if (lines > crew.groups) {
        if (NEAR && few_carry<N>(lines) && whole > 0) {
            if (!scatter_by_crews<T, N, LinesOfFew<N>::COUNT, NEAR>(a, nranks, region, lines, whole, far, true, sign,
                                                                    in, out))
                return;
        } else if (!scatter_by_crews<T, N, LinesAtATime<N>::COUNT, NEAR>(a, nranks, region, lines, whole, far,
                                                                         comes_in_runs<N>(lines), sign, in, out)) {
            return;
        }
    } else if (crew.of_warp < whole && is_aligned(in)) {
        const auto load_one = [&](unsigned peer, uint64_t line) { return load_aligned_line(block_of(in, peer), line); };
        if (!scatter_a_line<T, N>(
                a, nranks, region, crew.group, sign, load_one,
                [&](uint64_t line, Pair sum, bool is_whole) { store_line(out, line, sum, is_whole); }))
            return;
    } else {
        const auto load_end = [&](unsigned peer, uint64_t line, uint64_t step, auto &v, bool) {
            load_end_lines(block_of(in, peer), line, step, v, false);
        };
        send_to_each<N, 1>(a, region, lines, whole_grid(), sign, load_end, NoPrefetch());
        if (!reduce_all<T, N>(
                a, region, lines, whole_grid(), sign, false,
                [&](uint64_t line, uint64_t step, auto &v, bool is_whole) {
                    load_end(a.rank, line, step, v, is_whole);
                },
                [&](uint64_t line, Pair sum) { store_end_line(out, line, sum); }))
            return;
    }
    epoch_end(a, sign.flag);
}

template <class T, int N> BL_DEVICE void reducescatter_ll128(const struct bl_kernel_args &a) {
    const uint64_t bytes = a.count * T::SIZE;
    scatter<T, N, true>(a, N <= 4 ? N : a.nranks, Blocks{a.sendbuff, bytes, a.stride},
                        run_of<LINE_WORDS>(a.recvbuff, bytes));
}

template <class T, int N> BL_DEVICE void reducescatter_ll128_batch(const struct bl_batch_args &a) {
    scatter<T, N, N == 2>(a.common, a.common.nranks, BatchInput<T, LINE_WORDS, struct bl_batch_args, N <= 4>{a, 0},
                          BatchOutput<T, LINE_WORDS>{a, 0});
}

BL_INSTANTIATE_EXACT(bl_reducescatter_ll128, reducescatter_ll128)
BL_INSTANTIATE_BATCH(bl_reducescatter_ll128_batch, reducescatter_ll128_batch)
