/* reduce_ll128.cu - every rank sends its message to the root, in lines; the root reduces them in rank order.
 *
 * One NVLink one-way, no barrier, no fence; 16/15 of the bytes of the data.  The whole grid of every other rank sends its lines to
 * the root, and waits for nobody, as long as the root has room.  The whole grid of the root waits for a line of every peer,
 * reduces them with its own and stores the result in recvbuff: oneway.cuh.
 *
 * Contract: count >= 1 and at most a third of layout.oneway_lines lines; any grid of whole warps; buffers of any alignment, of
 * the root equal or disjoint; the others' recvbuff is not written.  Flags and reuse of the staging: oneway.cuh.  A wait that is
 * told to stop leaves the kernel with recvbuff unspecified and the communicator unusable.
 */
#include <core/primitives.cuh>
#include "carriers/crews.cuh"
#include "carriers/oneway.cuh"
#include "core/instantiate.cuh"

BL_DEVICE bool send_to_root(const struct bl_kernel_args &a, OneWay &o, const Message &in) {
    return send_run<1>(/* two at a time were slower */
                       whole_grid(), lines_of(in), whole_lines(in),
                       [&](uint64_t line, bool is_whole) { return load_line(in, line, is_whole); }, NoPrefetch(),
                       [&](uint64_t line, Pair v) { send_line(a, o.region, a.root, line, v, o.flag); },
                       [](uint64_t, Pair) {}, [&] { return ready_to_send(a, o, 1u << a.root); });
}

template <class T, int N> BL_DEVICE void reduce_ll128(const struct bl_kernel_args &a) {
    const uint64_t bytes = a.count * T::SIZE;
    const bool in_place = a.rank == a.root && a.sendbuff == a.recvbuff;
    const Message in = message_of(a.sendbuff, bytes, in_place), out = message_of(a.recvbuff, bytes);
    OneWay o = oneway_begin(a, lines_of(in));
    if (a.rank == a.root) {
        tell_begun(a, o);
        if (!reduce_all<T, N>(
                a, o.region, lines_of(in), whole_grid(), o.flag, false,
                [&](uint64_t line) { return load_line(in, line); },
                [&](uint64_t line, Pair sum) { store_line(out, line, sum); }))
            return;
    } else if (!send_to_root(a, o, in)) {
        return;
    }
    oneway_end(a, o, lines_of(in));
}

BL_INSTANTIATE(bl_reduce_ll128, reduce_ll128)
