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

/* What a batch of elements of type T is loaded from, or stored to: the buffers, or the block'th block in each. */
template <class T> struct BatchInput {
    const struct bl_batch_args &batch;
    unsigned block;
};
template <class T> struct BatchOutput {
    const struct bl_batch_args &batch;
    unsigned block;
};

/* A buffer that holds a block for each rank; `written` is where the launch writes to, the buffer or another one. */
struct Blocks {
    const void *buffer;
    uint64_t bytes, stride;
    const void *written;
};
BL_DEVICE Message block_of(const Blocks &b, unsigned block) {
    const unsigned char *base = (const unsigned char *)b.buffer + block * b.stride;
    return message_of(base, b.bytes, base == b.written);
}
/* Of every block. */
BL_DEVICE uint64_t whole_lines(const Blocks &b) {
    return (b.stride & 7) == 0 ? whole_lines(message_of(b.buffer, b.bytes)) : 0;
}
template <class T> BL_DEVICE BatchInput<T> block_of(const BatchInput<T> &in, unsigned block) {
    return {in.batch, block};
}
template <class T> BL_DEVICE BatchOutput<T> block_of(const BatchOutput<T> &out, unsigned block) {
    return {out.batch, block};
}
BL_DEVICE uint64_t lines_of_block(const Blocks &b) {
    return lines_of(message_of(b.buffer, b.bytes));
}
template <class T> BL_DEVICE uint64_t lines_of_block(const BatchInput<T> &in) {
    return in.batch.lines;
}

/* The message of a line: as many begin at or before it, the first not counted.  Found in two rounds of comparisons that do
 * not wait for each other; a binary search would be six loads one after another. */
BL_DEVICE unsigned message_of_line(const struct bl_batch_args &batch, uint64_t line) {
    enum { STRIDE = 8 };
    const uint32_t sought = (uint32_t)line;
    unsigned i = 0;
#pragma unroll
    for (unsigned k = STRIDE; k < BL_BATCH_MAX; k += STRIDE) i += sought >= batch.first_line[k] ? STRIDE : 0;
    const uint32_t *const rest = batch.first_line + i;
#pragma unroll
    for (unsigned k = 1; k < STRIDE; k++) i += sought >= rest[k] ? 1 : 0;
    return i;
}

/* The line's number within message i. */
BL_DEVICE uint64_t line_in_message(const struct bl_batch_args &batch, unsigned i, uint64_t line) {
    return (uint32_t)line - batch.first_line[i];
}

template <class T> BL_DEVICE uint64_t lines_of(const BatchInput<T> &in) {
    return in.batch.lines;
}
template <class T> BL_DEVICE uint64_t lines_of(const BatchOutput<T> &out) {
    return out.batch.lines;
}

template <class T> BL_DEVICE Message message_at(const BatchInput<T> &in, unsigned i) {
    const struct bl_batch_args &b = in.batch;
    const uint64_t bytes = b.count[i] * T::SIZE;
    const unsigned char *base = (const unsigned char *)b.sendbuff[i] + in.block * bytes;
    return message_of(base, bytes, base == b.recvbuff[i]);
}
template <class T> BL_DEVICE Message message_at(const BatchOutput<T> &out, unsigned i) {
    const struct bl_batch_args &b = out.batch;
    const uint64_t bytes = b.count[i] * T::SIZE;
    return message_of((unsigned char *)b.recvbuff[i] + out.block * bytes, bytes);
}

/* Each message has an end of its own. */
template <class T> BL_DEVICE uint64_t whole_lines(const BatchInput<T> &) {
    return 0;
}
template <class T> BL_DEVICE uint64_t whole_lines(const BatchOutput<T> &) {
    return 0;
}
template <class T> BL_DEVICE Pair load_line(const BatchInput<T> &in, uint64_t line, bool = false) {
    const unsigned i = message_of_line(in.batch, line);
    return load_line(message_at(in, i), line_in_message(in.batch, i, line));
}
template <class T> BL_DEVICE Pair load_end_line(const BatchInput<T> &in, uint64_t line) {
    const unsigned i = message_of_line(in.batch, line);
    return load_end_line(message_at(in, i), line_in_message(in.batch, i, line));
}
/* Batches are of small messages. */
template <class T> BL_DEVICE void prefetch_line(const BatchInput<T> &, uint64_t) {}
template <class T> BL_DEVICE void store_line(const BatchOutput<T> &out, uint64_t line, Pair v, bool = false) {
    const unsigned i = message_of_line(out.batch, line);
    store_line(message_at(out, i), line_in_message(out.batch, i, line), v);
}
template <class T>
BL_DEVICE void store_line_by_halves(const BatchOutput<T> &out, uint64_t line, unsigned half, uint64_t word) {
    const unsigned i = message_of_line(out.batch, line);
    store_line_by_halves(message_at(out, i), line_in_message(out.batch, i, line), half, word);
}

/* Whether the line is to be copied: `in` is not the place where it belongs. */
BL_DEVICE bool lies_apart(const Message &in, const Message &out, uint64_t) {
    return in.base != out.base;
}
template <class T> BL_DEVICE bool lies_apart(const BatchInput<T> &in, const BatchOutput<T> &out, uint64_t line) {
    const unsigned i = message_of_line(out.batch, line);
    return message_at(in, i).base != message_at(out, i).base;
}

#endif
