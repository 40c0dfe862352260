/* reduce_ll128.cu - every rank sends its message to the root, in lines; the root reduces them in rank order.  A batch has messages of any
 * roots.
 *
 * One NVLink one-way, no barrier, no fence; 16/15 of the bytes of the data.  The whole grid of every other rank sends its lines to
 * the root, and waits for nobody, as long as the root has room.  The whole grid of the root waits for a line of every peer,
 * reduces them with its own and stores the result in recvbuff: oneway.cuh.
 *
 * Of a batch each group of lanes first sends those of its lines that are other roots', in their order, and waits for nobody but roots that
 * have no room; then it waits for those that are its own.  So a rank that is the root of all, or of none, waits as above.
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

template <int LOADS> BL_DEVICE bool send_to_root(const struct bl_kernel_args &a, OneWay &o, const Message &in) {
    return send_run<LOADS>(
        whole_grid(), lines_of(in), whole_lines(in),
        [&](uint64_t line, uint64_t step, auto &v, bool is_whole) { load_end_lines(in, line, step, v, is_whole); },
        NoPrefetch(), [&](uint64_t line, Pair v) { send_line(a, o.region, a.root, line, v, o.flag); },
        [](uint64_t, Pair) {}, [&] { return ready_to_send(a, o, 1u << a.root); });
}

template <class T, int N> BL_DEVICE void reduce_ll128(const struct bl_kernel_args &a) {
    const uint64_t bytes = a.count * T::SIZE;
    const Message in = message_of(a.sendbuff, bytes), out = message_of(a.recvbuff, bytes);
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
                reduce_some<T, N, AT_A_TIME>(a, nranks_of<N>(a), o.region, whole_lines(in), crew, o.flag, 0, load,
                                             [&](uint64_t line, Pair sum, bool) { store_line(out, line, sum, true); });
        if (done == TOLD_TO_LEAVE || !reduce_all<T, N>(
                                         a, o.region, lines_of(in), whole_grid(), o.flag, false, load,
                                         [&](uint64_t line, Pair sum) { store_end_line(out, line, sum); }, done))
            return;
    } else if (!(in_runs ? send_to_root<AT_A_TIME>(a, o, in)
                         : send_to_root<1>(a, o, in))) { /* of few, two at a time were slower */
        return;
    }
    oneway_end(a, o, lines_of(in));
}

template <class T, class Args> BL_DEVICE bool send_to_roots(const Args &b, OneWay &o) {
    const struct bl_kernel_args &a = b.common;
    const BatchInput<T, Args> in = {b, 0};
    const Crew crew = crew_of(whole_grid());
    for (uint64_t line = crew.group; line - crew.group + crew.of_warp < b.lines; line += crew.groups) {
        const unsigned root = b.root[message_of_line(b, line)];
        const bool goes = line < b.lines && root != a.rank;
        const Pair v = goes ? load_end_line(in, line) : Pair{0, 0};
        if (!ready_to_send(a, o, b.roots)) return false;
        warp_sync(); /* lanes may have parted at a tail; a line is stored by all of its lanes at once */
        if (goes) send_line(a, o.region, root, line, v, o.flag);
    }
    return true;
}

/* The lines of messages of which this rank is the root. */
template <class T, int N, class Args> BL_DEVICE bool reduce_own(const Args &b, const OneWay &o) {
    const struct bl_kernel_args &a = b.common;
    const BatchInput<T, Args> in = {b, 0};
    const BatchOutput<T, Args> out = {b, 0};
    const Crew crew = crew_of(whole_grid());
    Wait wait = wait_begin(o.flag);
    if (!o.told) tell_begun(a, o);
    for (uint64_t line = crew.group; line - crew.group + crew.of_warp < b.lines; line += crew.groups) {
        const bool own = line < b.lines && b.root[message_of_line(b, line)] == a.rank;
        const Pair v = own ? load_end_line(in, line) : Pair{0, 0};
        Pair sum;
        warp_sync(); /* lanes may have parted at a tail; a line is received by all of its lanes at once */
        if (!receive_and_reduce<T, N>(a, o.region, line, o.flag, own, false, v, sum, wait)) return false;
        warp_sync();
        if (own) store_line(out, line, sum);
    }
    return true;
}

template <class T, int N, class Args> BL_DEVICE void reduce_ll128_batch(const Args &b) {
    OneWay o = oneway_begin(b.common, b.lines);
    if ((b.roots & ~(1u << b.common.rank)) != 0 && !send_to_roots<T>(b, o)) return;
    if ((b.roots >> b.common.rank & 1) != 0 && !reduce_own<T, N>(b, o)) return;
    oneway_end(b.common, o, b.lines);
}

BL_INSTANTIATE(bl_reduce_ll128, reduce_ll128)
BL_INSTANTIATE_BATCH(bl_reduce_ll128_batch, reduce_ll128_batch)
BL_INSTANTIATE_FEW(bl_reduce_ll128_few, reduce_ll128_batch)
