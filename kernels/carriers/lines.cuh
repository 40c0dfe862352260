/* lines.cuh - user buffers as a run of lines, whatever their alignment and length: how eight lanes load and store one.
 *
 * A line carries 15 words: lane `part` (0..7) of its eight holds words part and 8 + part, lane 7 only the first, so that the
 * lanes of a line touch bytes that lie next to each other.
 *
 * Where the base is not aligned to 8, lines move in aligned 8-byte accesses all the same: a word is loaded from the two
 * places that it lies across, and stored together with a part of its neighbour, which another lane of the line hands
 * over; what lies across a line's end moves in narrower pieces.
 *
 * Contract: nothing outside of the message is touched, and nothing is stored but a line's own words.  A load may read bytes
 * of neighbouring words and drop them: of the whole message if nobody stores to it during the launch, else (in place) of its
 * own line only, since those of other lines may be stored to at any time, and a race between accesses of different sizes has
 * no meaning in the PTX memory model.  Within a line there is none: a byte is stored by lanes that have exchanged words with
 * its owner, which has loaded it before; all eight lanes call store_part, or store_end_part, together, and a warp_sync stands between them and
 * the loads.
 */
#ifndef BEELINE_LINES_CUH
#define BEELINE_LINES_CUH

#include "core/staging.cuh"
#include "core/words.cuh"

/* --- a lane's two words of the line that starts at word `first` --- */

/* Whether they are whole. */
BL_DEVICE bool part_is_whole(const Message &m, uint64_t first, unsigned part) {
    return 8 * (first + (part == 7 ? 8 : part + 9)) <= m.bytes;
}

/* Whether all words of the message are, and aligned. */
BL_DEVICE bool has_whole_words(const Message &m) {
    return m.aligned && m.bytes % 8 == 0;
}

/* The 8 bytes from byte `from` (1..7) of `low` on, which go on in `high`. */
BL_DEVICE uint64_t across(uint64_t low, uint64_t high, unsigned from) {
    return low >> (8 * from) | high << (64 - 8 * from);
}

/* load_part and store_part for two whole words, of a message that is aligned.  There is no branch: loads of several lines are
 * under way together, and nothing waits for them but what needs them.  Lane 7 loads its own word again: lanes stay together. */
BL_DEVICE Pair load_whole_part(const Message &m, uint64_t first, unsigned part) {
    const unsigned char *p = m.base + 8 * (first + part);
    const Pair v = {load_own((const uint64_t *)p), load_own((const uint64_t *)(part == 7 ? p : p + 64))};
    return v;
}
BL_DEVICE void store_whole_part(const Message &m, uint64_t first, unsigned part, Pair v) {
    unsigned char *p = m.base + 8 * (first + part);
    store_own((uint64_t *)p, v.x);
    if (part != 7) store_own((uint64_t *)(p + 64), v.y);
}

/* Lane 7's y is anything. */
BL_DEVICE Pair load_part(const Message &m, uint64_t first, unsigned part) {
    const uint64_t k = first + part;
    const unsigned char *p = m.base + 8 * k;
    Pair v = {0, 0};
    if (m.aligned && part_is_whole(m, first, part)) {
        /* As load_whole_part, of which the compiler would make other code here: docs/notebook.md. */
        v.x = load_own((const uint64_t *)p);
        v.y = load_own((const uint64_t *)(part == 7 ? p : p + 64));
        return v;
    }
    bool want_x = k < m.words, want_y = part != 7 && k + 8 < m.words;
    if (!m.aligned) {
        /* What may be read of the message, and where the first of the words begins that they lie across. */
        const int64_t begin = m.stored_to ? (int64_t)(8 * first) : 0, at = (int64_t)(8 * k - m.shift);
        int64_t end = (int64_t)m.bytes;
        if (m.stored_to && end > (int64_t)(8 * first + 120)) end = (int64_t)(8 * first + 120);
        const uint64_t *q = (const uint64_t *)(p - m.shift);
        if (at >= begin && at + 16 <= end) {
            v.x = across(load_own(q), load_own(q + 1), m.shift);
            want_x = false;
        }
        if (want_y && at + 80 <= end) {
            v.y = across(load_own(q + 8), load_own(q + 9), m.shift);
            want_y = false;
        }
    }
#pragma unroll 1
    while (want_x || want_y) { /* mostly once: the first lane's x beside the last's y */
        const uint64_t span = load_span(want_x ? p : p + 64, bytes_of_word(m, want_x ? k : k + 8));
        if (want_x)
            v.x = span;
        else
            v.y = span;
        want_y = want_x && want_y;
        want_x = false;
    }
    return v;
}

/* As load_part for a part that may well be the message's end: whole words come without a branch, so that the loads of several
 * messages are under way together, and lanes stay together behind them.  In the loops of long messages load_part may be the faster:
 * docs/notebook.md. */
BL_DEVICE Pair load_end_part(const Message &m, uint64_t first, unsigned part) {
    if (!has_whole_words(m)) return load_part(m, first, part);
    const uint64_t k = first + part;
    const unsigned char *p = m.base + 8 * k;
    Pair v = {0, 0};
    if (k < m.words) v.x = load_own((const uint64_t *)p);
    if (part != 7 && k + 8 < m.words) v.y = load_own((const uint64_t *)(p + 64));
    return v;
}

/* Asks for what load_part will load, if it exists. */
BL_DEVICE void prefetch_part(const Message &m, uint64_t first, unsigned part) {
    const uint64_t at = 8 * first + 16 * part;
    if (at < m.bytes) prefetch_own(m.base + at);
}

BL_DEVICE void store_part(const Message &m, uint64_t first, unsigned part, Pair v) {
    const uint64_t k = first + part;
    unsigned char *p = m.base + 8 * k;
    if (m.aligned && part_is_whole(m, first, part)) return store_whole_part(m, first, part, v);
    /* What is left for narrower pieces. */
    unsigned char *to = p;
    uint64_t rest = v.x;
    unsigned bytes = bytes_of_word(m, k), bytes_y = bytes_of_word(m, k + 8);
    if (!m.aligned && part_is_whole(m, first, 6)) { /* the same for all lanes of the line */
        const unsigned before = (part + 7) % 8, own = 8 - m.shift;
        const uint64_t x = exchange_in_line(v.x, before), y = exchange_in_line(v.y, before);
        uint64_t *q = (uint64_t *)(p - m.shift);
        bytes = bytes_y = 0;
        if (part == 0)
            bytes = own;
        else
            store_own(q, across(x, v.x, own));
        if (part == 7) {
            to = (unsigned char *)(q + 8);
            rest = y >> (8 * own);
            bytes = m.shift;
        } else {
            store_own(q + 8, across(part == 0 ? x : y, v.y, own));
        }
    }
#pragma unroll 1
    while (bytes) {
        store_span(to, rest, bytes);
        to = p + 64;
        rest = v.y;
        bytes = bytes_y;
        bytes_y = 0;
    }
}

/* As store_part, for the same. */
BL_DEVICE void store_end_part(const Message &m, uint64_t first, unsigned part, Pair v) {
    if (!has_whole_words(m)) return store_part(m, first, part, v);
    const uint64_t k = first + part;
    unsigned char *p = m.base + 8 * k;
    if (k < m.words) store_own((uint64_t *)p, v.x);
    if (part != 7 && k + 8 < m.words) store_own((uint64_t *)(p + 64), v.y);
}

/* --- a run of them: which lane has which part --- */

BL_DEVICE uint64_t lines_of(const Message &m) {
    return (m.words + LINE_WORDS - 1) / LINE_WORDS;
}
enum { WARP_LINES = 4 }; /* a line for each eight lanes */

/* So many lines, from the first on, load_line and store_line may take for *whole*: a warp's lines are so all or none. */
BL_DEVICE uint64_t whole_lines(const Message &m) {
    return m.aligned ? m.bytes / (8 * LINE_WORDS * WARP_LINES) * WARP_LINES : 0;
}
/* Of the lines from `first` on, of which a crew has its share. */
template <class M> BL_DEVICE uint64_t whole_lines_from(const M &m, uint64_t first, uint64_t lines) {
    const uint64_t all = whole_lines(m), left = all > first ? all - first : 0;
    return (left < lines ? left : lines) / WARP_LINES * WARP_LINES;
}
BL_DEVICE Pair load_line(const Message &m, uint64_t line, bool whole = false) {
    const unsigned part = lane_in_warp() % LINE_LANES;
    return whole ? load_whole_part(m, line * LINE_WORDS, part) : load_part(m, line * LINE_WORDS, part);
}
BL_DEVICE Pair load_end_line(const Message &m, uint64_t line, bool whole = false) {
    const unsigned part = lane_in_warp() % LINE_LANES;
    return whole ? load_whole_part(m, line * LINE_WORDS, part) : load_end_part(m, line * LINE_WORDS, part);
}
BL_DEVICE void prefetch_line(const Message &m, uint64_t line) {
    prefetch_part(m, line * LINE_WORDS, lane_in_warp() % LINE_LANES);
}
BL_DEVICE void store_line(const Message &m, uint64_t line, Pair v, bool whole = false) {
    const unsigned part = lane_in_warp() % LINE_LANES;
    if (whole)
        store_whole_part(m, line * LINE_WORDS, part, v);
    else
        store_part(m, line * LINE_WORDS, part, v);
}
BL_DEVICE void store_end_line(const Message &m, uint64_t line, Pair v, bool whole = false) {
    const unsigned part = lane_in_warp() % LINE_LANES;
    if (whole)
        store_whole_part(m, line * LINE_WORDS, part, v);
    else
        store_end_part(m, line * LINE_WORDS, part, v);
}
/* The same by two groups that have a word a lane: the line's first eight, and the rest. */
BL_DEVICE void store_line_by_halves(const Message &m, uint64_t line, unsigned half, uint64_t word) {
    const unsigned part = lane_in_warp() % LINE_LANES;
    if (m.aligned) {
        if (half == 0 || part < 7) store_word(m, line * LINE_WORDS + 8 * half + part, word);
        return;
    }
    const Pair v = {word, exchange_halves(word)};
    if (half == 0) store_line(m, line, v);
}

#endif
