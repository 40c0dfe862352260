/* sendrecv_ll128.cu - messages from this rank to others and from others to it, all at once, in lines; the datatype does not matter.
 *
 * One NVLink one-way, no barrier, no fence; 16/15 of the bytes of the data.  Each peer that is sent to, or received from, has some warps of
 * the grid: those load the messages to it and store them into the ring that it keeps for this rank, or wait for its lines here and
 * store them in the caller's buffers; a message to itself is copied.  No warp waits for another of its grid.  What is sent ends without its
 * receiver as far as the ring has room.
 *
 * Contract: a grid of whole warps, at most BL_PAIR_BLOCKS blocks of BL_MAX_THREADS threads (of the short kernels BL_PAIR_THREADS), dealt out to
 * the streams one after another; buffers of any alignment and messages of any size, zero, too; none that is received overlaps another.
 * Flags, counters and reuse of the staging: pairs.cuh.  A wait that is told to stop leaves the kernel with the buffers unspecified and the
 * communicator unusable.
 */
#include <core/primitives.cuh>
#include "carriers/pairs.cuh"

enum { AT_A_TIME = 4 }; /* quads of a warp under way, of long messages */

/* AT_ONCE quads of a warp under way, as long as so many are whole. */
template <int AT_ONCE, class Args>
BL_DEVICE void copy_message(const Args &b, const struct bl_pairs_stream &stream, unsigned warp) {
    const struct bl_pairs_message &from = b.message[stream.first], &to = b.message[stream.first + 1];
    const Run<FLAGGED_WORDS> in = run_of<FLAGGED_WORDS>(from.buffer, from.bytes),
                             out = run_of<FLAGGED_WORDS>(to.buffer, to.bytes);
    const uint64_t lines = in.base == out.base ? 0 : lines_of(in), step = stream.warps * (uint64_t)WARP_LINES;
    const unsigned of_warp = lane_in_warp() / LINE_LANES;
    uint64_t first = warp * WARP_LINES;
    if (is_stopped(load_own(&b.common.epochs[BL_WORD_STOP]))) return;
    if (AT_ONCE > 1 && lines)
        for (const uint64_t whole = whole_lines(in); first + (AT_ONCE - 1) * step < whole; first += AT_ONCE * step) {
            Pair v[AT_ONCE];
            load_whole_lines(in, first + of_warp, step, v);
            warp_sync(); /* ahead of what store_line exchanges between lanes */
            store_whole_lines(out, first + of_warp, step, v);
        }
    for (; first < lines; first += step) {
        const uint64_t line = first + of_warp;
        const Pair v = line < lines ? load_line(in, line) : Pair{0, 0};
        warp_sync();
        if (line < lines) store_line(out, line, v);
    }
}

/* False: leave the kernel. */
template <class Args>
BL_DEVICE bool do_stream(const Args &b, const struct bl_pairs_stream &stream, unsigned warp, PairCursors &cursors) {
    if (stream.kind == BL_PAIR_RECV) {
        const PairEnd end = pair_end(b, stream, warp);
        tell_pair_begun(end);
        leave_cursors_of_others(b, cursors);
        return receive_stream<AT_A_TIME>(b, end);
    }
    if (stream.kind == BL_PAIR_COPY)
        copy_message<AT_A_TIME>(b, stream, warp);
    else if (!send_stream<AT_A_TIME>(b, pair_end(b, stream, warp)))
        return false;
    leave_cursors_of_others(b, cursors);
    return true;
}

BL_DEVICE unsigned stream_of(const struct bl_pairs_args &b, unsigned warp) {
    return b.warp_stream[warp];
}
BL_DEVICE unsigned stream_of(const struct bl_pairs_few_args &b, unsigned warp) {
    unsigned i = 0;
#pragma unroll
    for (unsigned k = 0; k < BL_PAIR_FEW; k++) i += k < b.streams && warp >= b.stream[k].first_warp + b.stream[k].warps;
    return i;
}

template <class Args> BL_DEVICE void do_streams(const Args &b) {
    const unsigned warp = thread_in_grid() / 32, i = stream_of(b, warp);
    stream_wait();
    PairCursors cursors = pairs_begin(b);
    if (i >= b.streams)
        leave_cursors_of_others(b, cursors);
    else if (!do_stream(b, b.stream[i], warp - b.stream[i].first_warp, cursors))
        return;
    pairs_end(b, cursors);
}

/* --- launches of which each stream has a warp for each quad, or for every two; what is copied only with all arguments (bl_pairs_kernel) --- */

/* The cursors are read behind what the other end waits for: where there are loops that costs more than it gains (docs/notebook.md). */
template <class Args> BL_DEVICE PairCursors moved_cursors(const Args &b) {
    PairCursors cursors = pairs_begin(b);
    leave_cursors_of_others(b, cursors);
    return cursors;
}

/* False: leave the kernel.  COPIES: messages to oneself are among them, for which others would pay 0.04 us. */
template <int QUADS, bool COPIES, class Args>
BL_DEVICE bool do_brief(const Args &b, const struct bl_pairs_stream &stream, unsigned warp, PairCursors &cursors) {
    const PairEnd end = pair_end(b, stream, warp);
    if (stream.kind == BL_PAIR_RECV)
        return receive_brief<QUADS>(b, end, [&] {
            tell_pair_begun(end);
            cursors = moved_cursors(b);
        });
    if (COPIES && stream.kind == BL_PAIR_COPY)
        copy_message<QUADS>(b, stream, warp);
    else if (!send_brief<QUADS>(b, end))
        return false;
    cursors = moved_cursors(b);
    return true;
}

template <int QUADS, bool COPIES, class Args> BL_DEVICE void do_quads(const Args &b) {
    const unsigned warp = thread_in_grid() / 32, i = stream_of(b, warp);
    PairCursors cursors;
    stream_wait();
    if (i >= b.streams)
        cursors = moved_cursors(b);
    else if (!do_brief<QUADS, COPIES>(b, b.stream[i], warp - b.stream[i].first_warp, cursors))
        return;
    pairs_end(b, cursors);
}

BL_KERNEL_OF(struct bl_pairs_few_args, bl_sendrecv_ll128_bytes, do_streams)
BL_KERNEL_OF(struct bl_pairs_args, bl_sendrecv_ll128_batch_bytes, do_streams)
BL_KERNEL_WIDE(struct bl_pairs_few_args, bl_sendrecv_ll128_short_bytes, do_quads<1, false>)
BL_KERNEL_WIDE(struct bl_pairs_args, bl_sendrecv_ll128_short_batch_bytes, do_quads<1, true>)
BL_KERNEL_WIDE(struct bl_pairs_few_args, bl_sendrecv_ll128_two_bytes, do_quads<2, false>)
BL_KERNEL_WIDE(struct bl_pairs_args, bl_sendrecv_ll128_two_batch_bytes, do_quads<2, true>)
