/* broadcast_ll128.cu - the root sends its message to every peer, in lines; the datatype does not matter.
 *
 * One NVLink one-way, no barrier, no fence; 16/15 of the bytes of the data.  The whole grid of the root sends each line to every
 * peer, and copies it to recvbuff, where that is another buffer; it waits for nobody, as long as peers have room.  The whole
 * grid of every other rank waits for the root's lines, and for nothing else, and stores them in recvbuff: oneway.cuh.
 *
 * Contract: count >= 1 and at most a third of layout.oneway_lines lines; any grid of whole warps; buffers of any alignment, of
 * the root equal or disjoint; the others' sendbuff is not read.  Flags and reuse of the staging: oneway.cuh.  A wait that is
 * told to stop leaves the kernel with recvbuff unspecified and the communicator unusable.
 */
#include <core/primitives.cuh>
#include "carriers/crews.cuh"
#include "carriers/oneway.cuh"
#include "core/instantiate.cuh"

static const uint32_t TO_ALL = UINT32_MAX;

template <int N> BL_DEVICE bool send_message(const struct bl_kernel_args &a, OneWay &o, uint64_t bytes) {
    const Message in = message_of(a.sendbuff, bytes, false), out = message_of(a.recvbuff, bytes);
    return send_to_all<N>(
        a, o.region, lines_of(in), whole_lines(in), whole_grid(), o.flag,
        [&](uint64_t line, bool is_whole) { return load_line(in, line, is_whole); },
        [&](uint64_t line) { prefetch_line(in, line); },
        [&](uint64_t line, Pair v) {
            if (in.base != out.base) store_line(out, line, v);
        },
        [&] { return ready_to_send(a, o, TO_ALL); });
}

BL_DEVICE bool receive_message(const struct bl_kernel_args &a, const OneWay &o, const Message &out) {
    const Crew crew = crew_of(whole_grid());
    const uint64_t lines = lines_of(out);
    Wait wait = wait_begin(o.flag);
    tell_begun(a, o);
    for (uint64_t line = crew.group; line - crew.group + crew.of_warp < lines; line += crew.groups) {
        uint64_t words[1][2];
        warp_sync(); /* lanes may have parted where the last line was stored */
        if (!receive_lines<1>(a, o.region, line, a.root, o.flag, line < lines, false, {0, 0}, words, wait))
            return false;
        if (line < lines) store_line(out, line, {words[0][0], words[0][1]});
    }
    return true;
}

template <int N> BL_DEVICE void broadcast_ll128(const struct bl_kernel_args &a) {
    const uint64_t bytes = a.count * a.size;
    const Message out = message_of(a.recvbuff, bytes);
    OneWay o = oneway_begin(a, lines_of(out));
    if (a.rank == a.root ? send_message<N>(a, o, bytes) : receive_message(a, o, out)) oneway_end(a, o, lines_of(out));
}

BL_INSTANTIATE_BYTES(bl_broadcast_ll128, broadcast_ll128)
