/* broadcast_ll128.cu - the root sends its message to every peer, in lines; or each root of a batch its own; the datatype does not matter.
 *
 * One NVLink one-way, no barrier, no fence; 16/15 of the bytes of the data.  The whole grid of the root sends each line to every
 * peer, and copies it to recvbuff, where that is another buffer; it waits for nobody, as long as peers have room.  The whole
 * grid of every other rank waits for the root's lines, and for nothing else, and stores them in recvbuff: oneway.cuh.
 *
 * Of a batch each group of lanes first sends those of its lines that are of messages of this rank's, in their order, and waits for nobody
 * but peers that have no room; then it waits for the others, each from its root.  So a rank that sends all, or nothing, waits as above.
 *
 * Contract: count >= 1 and at most a third of layout.oneway_lines lines; any grid of whole warps; buffers of any alignment, of
 * the root equal or disjoint; the others' sendbuff is not read.  Flags and reuse of the staging: oneway.cuh.  A wait that is
 * told to stop leaves the kernel with recvbuff unspecified and the communicator unusable.
 */
#include <core/primitives.cuh>
#include "carriers/crews.cuh"
#include "carriers/messages.cuh"
#include "carriers/oneway.cuh"
#include "core/instantiate.cuh"

static const uint32_t TO_ALL = UINT32_MAX;

template <int N> BL_DEVICE bool send_message(const struct bl_kernel_args &a, OneWay &o, uint64_t bytes) {
    const Run<FLAGGED_WORDS> in = run_of<FLAGGED_WORDS>(a.sendbuff, bytes),
                             out = run_of<FLAGGED_WORDS>(a.recvbuff, bytes);
    return send_to_all<N>(
        a, o.region, lines_of(in), whole_lines(in), whole_grid(), o.sign,
        [&](uint64_t line, uint64_t step, auto &v, bool is_whole) { load_end_lines(in, line, step, v, is_whole); },
        [&](uint64_t line) { prefetch_line(in, line); },
        [&](uint64_t line, Pair v) {
            if (in.base != out.base) store_end_line(out, line, v);
        },
        [&] { return ready_to_send(a, o, TO_ALL); });
}

template <int N>
BL_DEVICE bool receive_message(const struct bl_kernel_args &a, const OneWay &o, const Run<FLAGGED_WORDS> &out) {
    enum { AT_A_TIME = LinesAtATime<N>::COUNT };
    const Crew crew = crew_of(whole_grid());
    const uint64_t lines = lines_of(out), whole = comes_in_runs<N>(lines) ? whole_lines(out) : 0;
    uint64_t done = 0;
    Wait wait = wait_begin(o.sign.flag);
    tell_begun(a, o);
    for (; crew.of_warp + done + (AT_A_TIME - 1) * crew.groups < whole; done += AT_A_TIME * crew.groups) {
        const unsigned char *at[AT_A_TIME];
        LineView view[AT_A_TIME];
        const auto line_at = [&](int k) { return crew.group + done + k * crew.groups; };
#pragma unroll
        for (int k = 0; k < AT_A_TIME; k++) {
            at[k] = kept(place_of(a, o.region, a.rank, a.root) + offset_of(o.region, line_at(k)));
            view[k] = line_of({0, 0});
        }
        warp_sync(); /* lanes may have parted where the last lines were stored */
        if (!poll_lines(a, at, (1u << AT_A_TIME) - 1, o.sign, view, wait, [&](int) { return a.root; })) return false;
#pragma unroll
        for (int k = 0; k < AT_A_TIME; k++) store_line(out, line_at(k), line_data(view[k]), true);
    }
    for (uint64_t line = crew.group + done; line - crew.group + crew.of_warp < lines; line += crew.groups) {
        uint64_t words[1][2];
        warp_sync(); /* lanes may have parted where the last line was stored */
        if (!receive_lines<1>(a, o.region, line, a.root, o.sign, line < lines, false, {0, 0}, words, wait))
            return false;
        if (line < lines) store_end_line(out, line, {words[0][0], words[0][1]});
    }
    return true;
}

template <int N> BL_DEVICE void broadcast_ll128(const struct bl_kernel_args &a) {
    const uint64_t bytes = a.count * a.size;
    const Run<FLAGGED_WORDS> out = run_of<FLAGGED_WORDS>(a.recvbuff, bytes);
    OneWay o = oneway_begin(a, lines_of(out));
    if (a.rank == a.root ? send_message<N>(a, o, bytes) : receive_message<N>(a, o, out))
        oneway_end(a, o, lines_of(out));
}

/* A line of message i, of which this rank is the root, to every peer and to its place here. */
template <int N, class Args>
BL_DEVICE void send_own_line(const Args &b, const OneWay &o, unsigned i, uint64_t line, Pair v) {
    const BatchInput<TypeU8, FLAGGED_WORDS, Args> in = {b, 0};
    const BatchOutput<TypeU8, FLAGGED_WORDS, Args> out = {b, 0};
    send_to_peers<N>(b.common, o, line_of_root(b, i, line), v);
    if (lies_apart(in, out, line)) store_line(out, line, v);
}

/* A line of message i, if it comes from that's root.  False: leave the kernel. */
template <class Args>
BL_DEVICE bool receive_other_line(const Args &b, const OneWay &o, unsigned i, uint64_t line, bool comes, Wait &wait) {
    const BatchOutput<TypeU8, FLAGGED_WORDS, Args> out = {b, 0};
    const uint64_t place = line_of_root(b, i, line);
    uint64_t words[1][2];
    warp_sync(); /* lanes may have parted where the last line was stored */
    if (!receive_lines<1>(b.common, o.region, place, b.root[i], o.sign, comes, false, {0, 0}, words, wait))
        return false;
    if (comes) store_line(out, line, {words[0][0], words[0][1]});
    return true;
}

/* The lines of messages of which this rank is the root. */
template <int N, class Args> BL_DEVICE bool send_own(const Args &b, OneWay &o) {
    const BatchInput<TypeU8, FLAGGED_WORDS, Args> in = {b, 0};
    const Crew crew = crew_of(whole_grid());
    for (uint64_t line = crew.group; line - crew.group + crew.of_warp < b.lines; line += crew.groups) {
        const unsigned i = message_of_line(b, line);
        const bool own = line < b.lines && b.root[i] == b.common.rank;
        const Pair v = own ? load_end_line(in, line) : Pair{0, 0};
        if (!ready_to_send(b.common, o, TO_ALL)) return false;
        warp_sync(); /* lanes may have parted at a tail; a line is stored by all of its lanes at once */
        if (own) send_own_line<N>(b, o, i, line, v);
    }
    return true;
}

template <class Args> BL_DEVICE bool receive_others(const Args &b, const OneWay &o) {
    const Crew crew = crew_of(whole_grid());
    Wait wait = wait_begin(o.sign.flag);
    for (uint64_t line = crew.group; line - crew.group + crew.of_warp < b.lines; line += crew.groups) {
        const unsigned i = message_of_line(b, line);
        const bool comes = line < b.lines && b.root[i] != b.common.rank;
        if (!receive_other_line(b, o, i, line, comes, wait)) return false;
    }
    return true;
}

/* A launch with a group of lanes for each line. */
template <int N, class Args> BL_DEVICE bool broadcast_line(const Args &b, const OneWayWords &words, OneWay &o) {
    const BatchInput<TypeU8, FLAGGED_WORDS, Args> in = {b, 0};
    const uint64_t line = crew_of(whole_grid()).group;
    const unsigned i = message_of_line(b, line);
    const bool exists = line < b.lines, own = exists && b.root[i] == b.common.rank;
    const Pair v = own ? load_end_line(in, line) : Pair{0, 0};
    o = oneway_begin(b.common, words, b.span); /* behind the load, which waits for none of it */
    if (!ready_to_send_if(b.common, o, TO_ALL, is_a_root(b))) return false;
    warp_sync(); /* lanes may have parted at a tail; a line is stored by all of its lanes at once */
    if (own) send_own_line<N>(b, o, i, line, v);
    Wait wait = wait_begin(o.sign.flag);
    return receive_other_line(b, o, i, line, exists && !own, wait);
}

template <int N, class Args> BL_DEVICE bool broadcast_lines(const Args &b, const OneWayWords &words, OneWay &o) {
    o = oneway_begin(b.common, words, b.span);
    if (!is_a_root(b)) tell_begun(b.common, o);
    if (is_a_root(b) && !send_own<N>(b, o)) return false;
    return !others_are_roots(b) || receive_others(b, o);
}

template <int N, class Args> BL_DEVICE void broadcast_ll128_batch(const Args &b) {
    const OneWayWords words = oneway_words(b.common);
    const bool at_once = b.lines <= crew_of(whole_grid()).groups;
    OneWay o;
    if (at_once ? broadcast_line<N>(b, words, o) : broadcast_lines<N>(b, words, o)) oneway_end(b.common, o, b.span);
}

BL_INSTANTIATE_BYTES(bl_broadcast_ll128, broadcast_ll128)
BL_INSTANTIATE_BYTES_BATCH(bl_broadcast_ll128_batch, broadcast_ll128_batch)
BL_INSTANTIATE_BYTES_FEW(bl_broadcast_ll128_few, broadcast_ll128_batch)
