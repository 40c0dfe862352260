/* messages.cuh - batches: several messages as one run of lines, for the kernels that move lines.
 *
 * What those move is a run of lines; lines_of, load_line and store_line say where they lie: in a Message (lines.cuh), or,
 * here, in one of several.  Each message begins with a new line, and there are fewer lines than 32 bits count.  What lies
 * beyond the last line reads as zero and is not written.
 */
#ifndef BEELINE_MESSAGES_CUH
#define BEELINE_MESSAGES_CUH

#include <core/primitives.cuh>
#include "carriers/lines.cuh"

/* What a batch of elements of type T is loaded from, or stored to: the buffers, or the block'th block in each.  Args is
 * struct bl_batch_args or struct bl_batch_few_args.  RUNS: whether several of its lines are loaded, and received, at a time. */
template <class T, int W, class Args = struct bl_batch_args, bool RUNS = false> struct BatchInput {
    const Args &batch;
    unsigned block;
};
template <class T, int W, class Args = struct bl_batch_args> struct BatchOutput {
    const Args &batch;
    unsigned block;
};

/* A buffer that holds a block for each rank. */
struct Blocks {
    const void *buffer;
    uint64_t bytes, stride;
};
BL_DEVICE Run<LINE_WORDS> block_of(const Blocks &b, unsigned block) {
    return run_of<LINE_WORDS>((const unsigned char *)b.buffer + block * b.stride, b.bytes);
}
/* Of every block. */
BL_DEVICE uint64_t whole_lines(const Blocks &b) {
    return whole_lines(block_of(b, 0));
}
BL_DEVICE bool is_aligned(const Blocks &b) {
    return (b.stride & 7) == 0 && is_aligned(block_of(b, 0));
}
template <class T, int W, class Args, bool RUNS>
BL_DEVICE BatchInput<T, W, Args, RUNS> block_of(const BatchInput<T, W, Args, RUNS> &in, unsigned block) {
    return {in.batch, block};
}
template <class T, int W, class Args>
BL_DEVICE BatchOutput<T, W, Args> block_of(const BatchOutput<T, W, Args> &out, unsigned block) {
    return {out.batch, block};
}
BL_DEVICE uint64_t lines_of_block(const Blocks &b) {
    return lines_of(block_of(b, 0));
}
template <class T, int W, class Args, bool RUNS>
BL_DEVICE uint64_t lines_of_block(const BatchInput<T, W, Args, RUNS> &in) {
    return in.batch.lines;
}

/* How many of BL_BATCH_FEW messages, the first not counted, begin at the line or before it: by comparisons that do not wait for
 * each other. */
BL_DEVICE unsigned begin_by(const uint32_t *first_line, uint32_t line) {
    unsigned n = 0;
#pragma unroll
    for (unsigned k = 1; k < BL_BATCH_FEW; k++) n += line >= first_line[k] ? 1 : 0;
    return n;
}

/* The message of a line.  Of many it is found in two rounds; a binary search would be six loads one after another. */
BL_DEVICE unsigned message_of_line(const struct bl_batch_few_args &batch, uint64_t line) {
    return begin_by(batch.first_line, (uint32_t)line);
}
BL_DEVICE unsigned message_of_line(const struct bl_batch_args &batch, uint64_t line) {
    const uint32_t sought = (uint32_t)line;
    unsigned i = 0;
#pragma unroll
    for (unsigned k = BL_BATCH_FEW; k < BL_BATCH_MAX; k += BL_BATCH_FEW)
        i += sought >= batch.first_line[k] ? BL_BATCH_FEW : 0;
    return i + begin_by(batch.first_line + i, sought);
}

/* The line's number within message i. */
template <class Args> BL_DEVICE uint64_t line_in_message(const Args &batch, unsigned i, uint64_t line) {
    return (uint32_t)line - batch.first_line[i];
}

/* And among those of its root's messages: its number in the rings of oneway.cuh. */
template <class Args> BL_DEVICE uint64_t line_of_root(const Args &batch, unsigned i, uint64_t line) {
    return batch.message[i].place + line_in_message(batch, i, line);
}

/* Whether a message has this rank for its root, or another one. */
template <class Args> BL_DEVICE bool is_a_root(const Args &batch) {
    return (batch.roots >> batch.common.rank & 1) != 0;
}
template <class Args> BL_DEVICE bool others_are_roots(const Args &batch) {
    return (batch.roots & ~(1u << batch.common.rank)) != 0;
}

template <class T, int W, class Args, bool RUNS> BL_DEVICE uint64_t lines_of(const BatchInput<T, W, Args, RUNS> &in) {
    return in.batch.lines;
}
template <class T, int W, class Args> BL_DEVICE uint64_t lines_of(const BatchOutput<T, W, Args> &out) {
    return out.batch.lines;
}

template <class T, int W, class Args, bool RUNS>
BL_DEVICE Run<W> message_at(const BatchInput<T, W, Args, RUNS> &in, unsigned i) {
    const struct bl_batch_message &m = in.batch.message[i];
    const uint64_t bytes = m.count * T::SIZE;
    return run_of<W>((const unsigned char *)m.sendbuff + in.block * bytes, bytes);
}
template <class T, int W, class Args> BL_DEVICE Run<W> message_at(const BatchOutput<T, W, Args> &out, unsigned i) {
    const struct bl_batch_message &m = out.batch.message[i];
    const uint64_t bytes = m.count * T::SIZE;
    return run_of<W>((unsigned char *)m.recvbuff + out.block * bytes, bytes);
}

template <class T, int W, class Args, bool RUNS>
BL_DEVICE Pair load_end_line(const BatchInput<T, W, Args, RUNS> &in, uint64_t line) {
    const unsigned i = message_of_line(in.batch, line);
    return load_end_line(message_at(in, i), line_in_message(in.batch, i, line));
}
/* Each message has an end and an alignment of its own.  Of runs a whole line is one that exists, so that several are under way together: that some may
 * be a message's last is for who loads and stores them.  Else none is taken for whole. */
template <class T, int W, class Args, bool RUNS>
BL_DEVICE uint64_t whole_lines(const BatchInput<T, W, Args, RUNS> &in) {
    return RUNS ? in.batch.lines / WARP_LINES * WARP_LINES : 0;
}
template <class T, int W, class Args, bool RUNS, int K>
BL_DEVICE void load_whole_lines(const BatchInput<T, W, Args, RUNS> &in, uint64_t line, uint64_t step, Pair (&v)[K]) {
#pragma unroll
    for (int k = 0; k < K; k++) v[k] = load_end_line(in, line + k * step);
}
/* None is taken for aligned, so this is never called. */
template <class T, int W, class Args, bool RUNS>
BL_DEVICE Pair load_aligned_line(const BatchInput<T, W, Args, RUNS> &, uint64_t) {
    return {0, 0};
}
template <class T, int W, class Args, bool RUNS> BL_DEVICE bool is_aligned(const BatchInput<T, W, Args, RUNS> &) {
    return false;
}
template <class T, int W, class Args> BL_DEVICE bool is_aligned(const BatchOutput<T, W, Args> &) {
    return false;
}
template <class T, int W, class Args, bool RUNS>
BL_DEVICE Pair load_line(const BatchInput<T, W, Args, RUNS> &in, uint64_t line) {
    const unsigned i = message_of_line(in.batch, line);
    return load_line(message_at(in, i), line_in_message(in.batch, i, line));
}
/* Others are found too slowly for that to pay. */
template <class T, int W, class Args, bool RUNS>
BL_DEVICE void prefetch_line(const BatchInput<T, W, Args, RUNS> &in, uint64_t line) {
    if (!RUNS) return;
    const unsigned i = message_of_line(in.batch, line);
    prefetch_line(message_at(in, i), line_in_message(in.batch, i, line));
}
template <class T, int W, class Args>
BL_DEVICE void store_end_line(const BatchOutput<T, W, Args> &out, uint64_t line, Pair v, bool = false) {
    const unsigned i = message_of_line(out.batch, line);
    store_end_line(message_at(out, i), line_in_message(out.batch, i, line), v);
}
/* Each message has an end of its own. */
template <class T, int W, class Args>
BL_DEVICE void store_line(const BatchOutput<T, W, Args> &out, uint64_t line, Pair v, bool = false) {
    store_end_line(out, line, v);
}
template <class T, int W, class Args>
BL_DEVICE void store_line_by_halves(const BatchOutput<T, W, Args> &out, uint64_t line, unsigned half, uint64_t word) {
    const unsigned i = message_of_line(out.batch, line);
    store_line_by_halves(message_at(out, i), line_in_message(out.batch, i, line), half, word);
}

/* Whether the line is to be copied: `in` is not the place where it belongs. */
BL_DEVICE bool lies_apart(const Message &in, const Message &out, uint64_t) {
    return in.base != out.base;
}
template <class T, int W, class Args, bool RUNS>
BL_DEVICE bool lies_apart(const BatchInput<T, W, Args, RUNS> &in, const BatchOutput<T, W, Args> &out, uint64_t line) {
    const unsigned i = message_of_line(out.batch, line);
    return message_at(in, i).base != message_at(out, i).base;
}

#endif
