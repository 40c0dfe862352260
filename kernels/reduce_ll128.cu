/* reduce_ll128.cu - every rank sends its message to the root, in lines; the root reduces them in rank order.  A batch has messages of any
 * roots.
 *
 * One NVLink one-way, no barrier, no fence; 16/15 of the bytes of the data.  The whole grid of every other rank sends its lines to
 * the root, and waits for nobody, as long as the root has room.  The whole grid of the root waits for a line of every peer,
 * reduces them with its own and stores the result in recvbuff: oneway.cuh.
 *
 * Of a batch each group of lanes first sends those of its lines that are other roots', and waits for nobody but roots that have no room;
 * then it waits for those that are its own.  So a rank that is the root of all, or of none, waits as above.  Of many lines between more
 * than two ranks the first blocks do the one, and the others the other.
 *
 * Contract: count >= 1 and at most a third of layout.oneway_lines lines; any grid of whole warps; buffers of any alignment, of
 * the root equal or disjoint; the others' recvbuff is not written.  Flags and reuse of the staging: oneway.cuh.  A wait that is
 * told to stop leaves the kernel with recvbuff unspecified and the communicator unusable.
 */
#include <core/primitives.cuh>
#include "carriers/crews.cuh"
#include "carriers/messages.cuh"
#include "carriers/oneway.cuh"
#include "core/instantiate.cuh"

template <int LOADS>
BL_DEVICE bool send_to_root(const struct bl_kernel_args &a, OneWay &o, const Run<FLAGGED_WORDS> &in) {
    return send_run<LOADS>(
        whole_grid(), lines_of(in), whole_lines(in),
        [&](uint64_t line, uint64_t step, auto &v, bool is_whole) { load_end_lines(in, line, step, v, is_whole); },
        NoPrefetch(), [&](uint64_t line, Pair v) { send_line(a, o.region, a.root, line, v, o.sign); },
        [](uint64_t, Pair) {}, [&] { return ready_to_send(a, o, 1u << a.root); });
}

template <class T, int N> BL_DEVICE void reduce_ll128(const struct bl_kernel_args &a) {
    const uint64_t bytes = a.count * T::SIZE;
    const Run<FLAGGED_WORDS> in = run_of<FLAGGED_WORDS>(a.sendbuff, bytes),
                             out = run_of<FLAGGED_WORDS>(a.recvbuff, bytes);
    enum { AT_A_TIME = LinesAtATime<N>::COUNT };
    OneWay o = oneway_begin(a, lines_of(in));
    const bool in_runs = comes_in_runs<N>(lines_of(in));
    if (a.rank == a.root) {
        const Crew crew = crew_of(whole_grid());
        uint64_t done = 0;
        tell_begun(a, o);
        const auto load = [&](uint64_t line, uint64_t step, auto &v, bool is_whole) {
            load_end_lines(in, line, step, v, is_whole);
        };
        if (in_runs)
            done =
                reduce_some<T, N, AT_A_TIME>(a, nranks_of<N>(a), o.region, whole_lines(in), crew, o.sign, 0, load,
                                             [&](uint64_t line, Pair sum, bool) { store_line(out, line, sum, true); });
        if (done == TOLD_TO_LEAVE || !reduce_all<T, N>(
                                         a, o.region, lines_of(in), whole_grid(), o.sign, false, load,
                                         [&](uint64_t line, Pair sum) { store_end_line(out, line, sum); }, done))
            return;
    } else if (!(in_runs ? send_to_root<AT_A_TIME>(a, o, in)
                         : send_to_root<1>(a, o, in))) { /* of few, two at a time were slower */
        return;
    }
    oneway_end(a, o, lines_of(in));
}

/* Where this rank begins to go over the lines: behind its own share, so that not all send to the same root at first, whose link would be too
 * narrow while others lie idle.  Messages of each rank, in rank order and alike, are what it is for.  Of two ranks each has one root to send to; and of a line for
 * each group all go at once, of which a grid that is not resident as a whole has the same ones first on all ranks. */
template <int N, class Args> BL_DEVICE uint32_t first_in_turn(const Args &b) {
    const unsigned nranks = nranks_of<N>(b.common);
    return nranks == 2 || b.lines <= crew_of(whole_grid()).groups ? 0 : b.lines / nranks * (b.common.rank + 1);
}
/* The line that comes as the number'th, of b.lines. */
template <class Args> BL_DEVICE uint64_t line_in_turn(const Args &b, uint32_t first, uint64_t number) {
    return number + first < b.lines ? number + first : number + first - b.lines;
}

template <class T, int N, class Args> BL_DEVICE bool send_to_roots(const Args &b, OneWay &o, const Crew &crew) {
    const struct bl_kernel_args &a = b.common;
    const BatchInput<T, FLAGGED_WORDS, Args> in = {b, 0};
    const uint32_t first = first_in_turn<N>(b);
    for (uint64_t k = crew.group; k - crew.group + crew.of_warp < b.lines; k += crew.groups) {
        const uint64_t line = line_in_turn(b, first, k);
        const unsigned i = message_of_line(b, line), root = b.root[i];
        const bool goes = k < b.lines && root != a.rank;
        const Pair v = goes ? load_end_line(in, line) : Pair{0, 0};
        if (!ready_to_send(a, o, b.roots)) return false;
        warp_sync(); /* lanes may have parted at a tail; a line is stored by all of its lanes at once */
        if (goes) send_line(a, o.region, root, line_of_root(b, i, line), v, o.sign);
    }
    return true;
}

/* Receives an active line of every peer and reduces them with `own` in rank order. */
template <class T, int N>
BL_DEVICE bool reduce_with(const struct bl_kernel_args &a, const OneWay &o, uint64_t line, bool active, Pair own,
                           Pair &sum, Wait &wait) {
    if constexpr (N <= 4) {
        const Pair mine[1] = {own};
        Pair sums[1];
        if (!receive_all_and_reduce<T, N, 1>(a, nranks_of<N>(a), o.region, line, 0, o.sign, mine, sums, wait, active))
            return false;
        sum = sums[0];
        return true;
    } else { /* for more there are not the registers */
        return receive_and_reduce<T, N>(a, o.region, line, o.sign, active, false, own, sum, wait);
    }
}

/* A line of message i, if this rank is that's root, of which it has v.  False: leave the kernel. */
template <class T, int N, class Args>
BL_DEVICE bool reduce_own_line(const Args &b, const OneWay &o, unsigned i, uint64_t line, bool own, Pair v,
                               Wait &wait) {
    const BatchOutput<T, FLAGGED_WORDS, Args> out = {b, 0};
    Pair sum;
    warp_sync(); /* lanes may have parted at a tail; a line is received by all of its lanes at once */
    if (!reduce_with<T, N>(b.common, o, line_of_root(b, i, line), own, v, sum, wait)) return false;
    warp_sync();
    if (own) store_line(out, line, sum);
    return true;
}

/* The lines of messages of which this rank is the root. */
template <class T, int N, class Args> BL_DEVICE bool reduce_own(const Args &b, const OneWay &o, const Crew &crew) {
    const BatchInput<T, FLAGGED_WORDS, Args> in = {b, 0};
    const uint32_t first = first_in_turn<N>(b);
    Wait wait = wait_begin(o.sign.flag);
    for (uint64_t k = crew.group; k - crew.group + crew.of_warp < b.lines; k += crew.groups) {
        const uint64_t line = line_in_turn(b, first, k);
        const unsigned i = message_of_line(b, line);
        const bool own = k < b.lines && b.root[i] == b.common.rank;
        const Pair v = own ? load_end_line(in, line) : Pair{0, 0};
        if (!reduce_own_line<T, N>(b, o, i, line, own, v, wait)) return false;
    }
    return true;
}

/* A launch with a group of lanes for each line. */
template <class T, int N, class Args> BL_DEVICE bool reduce_line(const Args &b, const OneWayWords &words, OneWay &o) {
    const struct bl_kernel_args &a = b.common;
    const BatchInput<T, FLAGGED_WORDS, Args> in = {b, 0};
    const uint64_t line = crew_of(whole_grid()).group;
    const unsigned i = message_of_line(b, line), root = b.root[i];
    const bool exists = line < b.lines, own = exists && root == a.rank, goes = exists && !own;
    const Pair v = exists ? load_end_line(in, line) : Pair{0, 0};
    o = oneway_begin(a, words, b.span); /* behind the load, which waits for none of it */
    if (!ready_to_send_if(a, o, b.roots, others_are_roots(b))) return false;
    warp_sync(); /* lanes may have parted at a tail; a line is stored by all of its lanes at once */
    if (goes) send_line(a, o.region, root, line_of_root(b, i, line), v, o.sign);
    Wait wait = wait_begin(o.sign.flag);
    return reduce_own_line<T, N>(b, o, i, line, own, v, wait);
}

/* Of 32, of more than two ranks; measured on H200 (docs/notebook.md). */
enum { SENDERS = 14 };

/* Of many lines some blocks send while the others receive: a group of lanes that sent all of its lines first would come late to those that
 * wait for it. */
template <class T, int N, class Args> BL_DEVICE bool reduce_lines(const Args &b, const OneWayWords &words, OneWay &o) {
    const struct bl_kernel_args &a = b.common;
    const bool sends = others_are_roots(b), receives = is_a_root(b);
    const bool apart = nranks_of<N>(a) > 2 && b.lines > 2 * crew_of(whole_grid()).groups;
    const Share senders = apart ? share_of(0, SENDERS) : whole_grid();
    const Share receivers = apart ? share_of(SENDERS, 32) : whole_grid();
    o = oneway_begin(a, words, b.span);
    if (!sends) tell_begun(a, o); /* by the grid's first threads, which do not receive where blocks are apart */
    if (sends && in_share(senders) && !send_to_roots<T, N>(b, o, crew_of(senders))) return false;
    return !(receives && in_share(receivers)) || reduce_own<T, N>(b, o, crew_of(receivers));
}

template <class T, int N, class Args> BL_DEVICE void reduce_ll128_batch(const Args &b) {
    const OneWayWords words = oneway_words(b.common);
    const bool at_once = N <= 4 && b.lines <= crew_of(whole_grid()).groups; /* of more it was not measured */
    OneWay o;
    if (at_once ? reduce_line<T, N>(b, words, o) : reduce_lines<T, N>(b, words, o)) oneway_end(b.common, o, b.span);
}

BL_INSTANTIATE(bl_reduce_ll128, reduce_ll128)
BL_INSTANTIATE_BATCH(bl_reduce_ll128_batch, reduce_ll128_batch)
BL_INSTANTIATE_FEW(bl_reduce_ll128_few, reduce_ll128_batch)
