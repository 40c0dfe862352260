/* allreduce_oneshot_ll128.cu - every rank sends its whole message, or a batch of messages, to every peer, in lines.
 *
 * One NVLink one-way, no barrier, no fence, no byte but the data.
 *
 * If the grid has a group of lanes for each line, each group loads its line, stores it into each peer's staging, polls
 * its own staging for the same line of each peer, reduces in rank order and stores the result; if it has two, they share
 * that.  Longer messages have two crews: blocks that only send, and never wait for anything, and blocks that only receive,
 * reduce and store; then neither the links nor the reduction stand still for the other.  Between two ranks they have several
 * lines under way where that pays.  In place, this rank's own part goes through its staging, too: that it has come shows the
 * receivers that the senders have read the words which they are about to overwrite.
 *
 * Contract: count >= 1 and at most layout.rank_lines lines; any grid of whole warps; sendbuff and recvbuff any
 * alignment, equal or disjoint.  How lines come, and reuse of the staging: staging.cuh.  A wait that is told to stop leaves the
 * kernel with recvbuff unspecified and the communicator unusable.
 */
#include <core/primitives.cuh>
#include "carriers/crews.cuh"
#include "carriers/messages.cuh"
#include "core/instantiate.cuh"

/* A line for each two groups: each has half of the ranks to send to and to receive from, then one of a lane's two words to
 * reduce. */
template <class T, int N, class In, class Out>
BL_DEVICE bool exchange_by_halves(const struct bl_kernel_args &a, const In &in, const Out &out, const Region &region,
                                  const Blank &sign) {
    enum { RANKS = N / 2 };
    const Crew crew = crew_of(whole_grid());
    const uint64_t lines = lines_of(in), line = crew.group / 2;
    const unsigned half = crew.group % 2, first = half * RANKS;
    if (crew.of_warp / 2 >= lines) return true;
    const bool active = line < lines;
    const Pair own = load_end_line(in, line);
    warp_sync(); /* lanes may have parted at a tail; a line is stored by all of its lanes at once */
    if (active) {
#pragma unroll
        for (int i = 0; i < RANKS; i++)
            if (first + i < a.nranks && first + i != a.rank) send_line(a, region, first + i, line, own, sign);
    }
    Wait wait = wait_begin(sign.flag);
    uint64_t received[RANKS][2], words[N][1], result[1];
    if (!receive_lines<RANKS>(a, region, line, first, sign, active, false, own, received, wait)) return false;
#pragma unroll
    for (int i = 0; i < RANKS; i++) {
        const uint64_t mine = half ? received[i][1] : received[i][0];
        const uint64_t other = exchange_halves(half ? received[i][0] : received[i][1]);
        words[i][0] = half ? other : mine;
        words[RANKS + i][0] = half ? mine : other;
    }
    Sum<T, 1> sum;
    reduce_in_rank_order<T, 1, N>(sum, words, 0, a, a.nranks);
    sum.store(result, a, a.nranks);
    if (active) store_line_by_halves(out, line, half, result[0]);
    return true;
}

/* A line for each group. */
template <class T, int N, class In, class Out>
BL_DEVICE bool exchange(const struct bl_kernel_args &a, const In &in, const Out &out, const Region &region,
                        const Blank &sign) {
    const unsigned nranks = nranks_of<N>(a);
    const Crew crew = crew_of(whole_grid());
    const uint64_t lines = lines_of(in), line = crew.group;
    if (crew.of_warp >= lines) return true;
    const bool active = line < lines;
    const Pair own = load_end_line(in, line);
    warp_sync(); /* lanes may have parted at a tail; a line is stored by all of its lanes at once */
    if (active) {
#pragma unroll
        for (int i = 1; i < N; i++)
            if (i < (int)nranks) send_line(a, region, peer_at(a.rank, i, nranks), line, own, sign);
    }
    Wait wait = wait_begin(sign.flag);
    Pair sum;
    if (!receive_and_reduce<T, N>(a, region, line, sign, active, false, own, sum, wait)) return false;
    if (active) store_end_line(out, line, sum);
    return true;
}

/* In place, what senders have read goes into this rank's own staging. */
BL_DEVICE void keep_own(const struct bl_kernel_args &a, const Region &region, uint64_t line, Pair v,
                        const Blank &sign) {
    put(own_place(a, region) + offset_of(region, line), v, sign);
}

/* By two crews, of which each has some lines under way: so a grid of few blocks fills the links, too. */
template <class T, int N, class In, class Out>
BL_DEVICE bool exchange_in_runs(const struct bl_kernel_args &a, const In &in, const Out &out, const Region &region,
                                const Blank &sign, bool in_place) {
    enum { AT_A_TIME = LinesAtATime<N>::COUNT, SENDING = 12 };
    const Share senders = share_of(0, SENDING), receivers = share_of(SENDING, 32);
    const uint64_t lines = lines_of(in), whole = whole_lines(in);
    const auto load = [&](uint64_t line, uint64_t step, auto &v, bool is_whole) {
        load_lines(in, line, step, v, is_whole);
    };
    const auto store = [&](uint64_t line, Pair sum, bool is_whole = false) { store_line(out, line, sum, is_whole); };
    const auto keep = [&](uint64_t line, Pair v) {
        if (in_place) keep_own(a, region, line, v, sign);
    };
    if (in_share(senders)) send_to_all<N>(a, region, lines, whole, senders, sign, load, NoPrefetch(), keep);
    if (!in_share(receivers)) return true;
    const Crew crew = crew_of(receivers);
    const uint64_t done =
        in_place ? reduce_some<T, N, AT_A_TIME, true>(a, nranks_of<N>(a), region, whole, crew, sign, 0, load, store)
                 : reduce_some<T, N, AT_A_TIME>(a, nranks_of<N>(a), region, whole, crew, sign, 0, load, store);
    return done != TOLD_TO_LEAVE && reduce_all<T, N>(a, region, lines, receivers, sign, in_place, load, store, done);
}

/* Whether lines that are many enough for runs are to come in them.  A grid of nearly all multiprocessors fills the links with a line at a
 * time, unless two of these hold: there are many; they are in place, so that own ones are stored and polled, too; they are not aligned.
 * Measured on H200 and H100 (docs/notebook.md, docs/benchmarks/h100-x2-2026-11-26.md). */
template <class In, class Out> BL_DEVICE bool runs_pay(const In &in, const Out &out, bool in_place) {
    enum { ROUNDS = 8 };
    const uint64_t groups = crew_of(whole_grid()).groups;
    const bool aligned = is_aligned(in) && is_aligned(out), many = lines_of(in) >= ROUNDS * groups;
    return !is_wide() || (in_place ? !aligned || many : !aligned && many);
}

/* in_place: of any message. */
template <class T, int N, class In, class Out>
BL_DEVICE void reduce_in_one_shot(const struct bl_kernel_args &a, const In &in, const Out &out, bool in_place) {
    const uint64_t e = epoch_begin(a);
    const Blank sign = blank_of(a, e);
    const Region region = rank_region(a, e);

    if (2 * lines_of(in) <= crew_of(whole_grid()).groups) {
        if (!exchange_by_halves<T, N>(a, in, out, region, sign)) return;
    } else if (lines_of(in) <= crew_of(whole_grid()).groups) {
        if (!exchange<T, N>(a, in, out, region, sign)) return;
    } else if (comes_in_runs<N>(lines_of(in)) && runs_pay(in, out, in_place)) {
        if (!exchange_in_runs<T, N>(a, in, out, region, sign, in_place)) return;
    } else {
        const Share senders = share_of(0, 6), receivers = share_of(6, 32);
        const auto load = [&](uint64_t line, uint64_t step, auto &v, bool) { load_lines(in, line, step, v, false); };
        const auto keep = [&](uint64_t line, Pair v) {
            if (in_place) keep_own(a, region, line, v, sign);
        };
        if (in_share(senders)) send_to_all<N>(a, region, lines_of(in), 0, senders, sign, load, NoPrefetch(), keep);
        if (in_share(receivers) && !reduce_all<T, N>(a, region, lines_of(out), receivers, sign, in_place, load,
                                                     [&](uint64_t line, Pair sum) { store_line(out, line, sum); }))
            return;
    }
    epoch_end(a, sign.flag);
}

template <class T, int N> BL_DEVICE void allreduce_oneshot_ll128(const struct bl_kernel_args &a) {
    const uint64_t bytes = a.count * T::SIZE;
    const bool in_place = a.sendbuff == a.recvbuff;
    reduce_in_one_shot<T, N>(a, run_of<LINE_WORDS>(a.sendbuff, bytes), run_of<LINE_WORDS>(a.recvbuff, bytes), in_place);
}

template <class T, int N> BL_DEVICE void allreduce_oneshot_ll128_batch(const struct bl_batch_args &a) {
    reduce_in_one_shot<T, N>(a.common, BatchInput<T, LINE_WORDS, struct bl_batch_args, N == 2>{a, 0},
                             BatchOutput<T, LINE_WORDS>{a, 0}, a.in_place != 0);
}

BL_INSTANTIATE(bl_allreduce_oneshot_ll128, allreduce_oneshot_ll128)
BL_INSTANTIATE_BATCH(bl_allreduce_oneshot_ll128_batch, allreduce_oneshot_ll128_batch)
