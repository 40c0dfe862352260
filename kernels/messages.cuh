/* messages.cuh - batches: several messages as one run of lines, for the kernels that move lines.
 *
 * What those reduce is a run of lines; lines_of, load_line and store_line say where they lie: in a Message (lines.cuh), or,
 * here, in one of several.  Each message begins with a new line, and there are fewer lines than 32 bits count.  What lies
 * beyond the last line reads as zero and is not written.
 */
#ifndef BEELINE_MESSAGES_CUH
#define BEELINE_MESSAGES_CUH

#include <primitives.cuh>
#include "lines.cuh"
#include "mutation.cuh"
#include "words.cuh"

/* What a batch of elements of type T is loaded from, or stored to. */
template <class T> struct BatchInput { const struct bl_batch_args &batch; };
template <class T> struct BatchOutput { const struct bl_batch_args &batch; };

/* The message of a line: as many begin at or before it, the first not counted.  Found in two rounds of comparisons that do
 * not wait for each other; a binary search would be six loads one after another. */
BL_DEVICE unsigned message_at(const struct bl_batch_args &batch, uint64_t line) {
    enum { STRIDE = 8 };
    const uint32_t sought = (uint32_t)line + (BL_MUTATION(21) ? 1 : 0);
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
    return (uint32_t)line - (BL_MUTATION(22) ? 0 : batch.first_line[i]);
}

template <class T> BL_DEVICE uint64_t lines_of(const BatchInput<T> &in) {
    return in.batch.lines;
}
template <class T> BL_DEVICE uint64_t lines_of(const BatchOutput<T> &out) {
    return out.batch.lines;
}

template <class T> BL_DEVICE Pair load_line(const BatchInput<T> &in, uint64_t line) {
    const struct bl_batch_args &b = in.batch;
    const unsigned i = message_at(b, line);
    return load_line(message_of(b.sendbuff[i], b.count[i] * T::SIZE, b.sendbuff[i] == b.recvbuff[i]),
                     line_in_message(b, i, line));
}
template <class T> BL_DEVICE void store_line(const BatchOutput<T> &out, uint64_t line, Pair v) {
    const struct bl_batch_args &b = out.batch;
    const unsigned i = message_at(b, line);
    store_line(message_of(b.recvbuff[i], b.count[i] * T::SIZE), line_in_message(b, i, line), v);
}

#endif
