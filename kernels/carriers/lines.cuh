/* lines.cuh - user buffers as a run of lines, whatever their alignment and length: how eight lanes load and store one.
 *
 * A line carries W words, 16, or 15 where it has a flag: lane `part` (0..7) of its eight holds words part and 8 + part, of 15 lane 7
 * only the first, so that the lanes of a line touch bytes that lie next to each other.
 *
 * Where the base is not aligned to 8, lines move in aligned 8-byte accesses all the same.  Then a line lies across W + 1 *slots*,
 * aligned places of 8 bytes, of which a lane has slots part and 8 + part; neighbours exchange what words and slots differ in.
 * Of the first slot only the last bytes are the line's, and of the last one only the first, 8 in all, and the message may end in
 * a slot: what is in part the line's moves a byte a lane.  The bytes of the first slot and of the last lie apart in a slot, so lanes that would
 * have one of them have both: of 16 words there is no lane for the 17th slot.
 *
 * Contract: nothing outside of the line is touched, and each of its bytes is stored by the lane that loads it.  All eight lanes
 * call together what loads or stores a part.
 */
#ifndef BEELINE_LINES_CUH
#define BEELINE_LINES_CUH

#include "core/staging.cuh"
#include "core/words.cuh"

/* A message as lines of W words. */
template <int W> struct Run : Message {};
template <int W> BL_DEVICE Run<W> run_of(const void *base, uint64_t bytes) {
    Run<W> run;
    (Message &)run = message_of(base, bytes);
    return run;
}

/* --- a lane's two words of the line that starts at word `first` --- */

/* Whether the lane has a second word. */
template <int W> BL_DEVICE bool has_second(unsigned part) {
    return 8 + part < W;
}
/* Whether they are whole. */
template <int W> BL_DEVICE bool part_is_whole(const Run<W> &m, uint64_t first, unsigned part) {
    return 8 * (first + (has_second<W>(part) ? part + 9 : part + 1)) <= m.bytes;
}

/* Whether all words of the message are, and aligned. */
BL_DEVICE bool has_whole_words(const Message &m) {
    return m.aligned && m.bytes % 8 == 0;
}

/* load_part and store_part for two whole words, of a message that is aligned.  There is no branch: loads of several lines are
 * under way together, and nothing waits for them but what needs them.  A lane that has one word loads it again: lanes stay together. */
template <int W> BL_DEVICE Pair load_whole_part(const Run<W> &m, uint64_t first, unsigned part) {
    const unsigned char *p = m.base + 8 * (first + part);
    const Pair v = {load_own((const uint64_t *)p), load_own((const uint64_t *)(has_second<W>(part) ? p + 64 : p))};
    return v;
}
template <int W> BL_DEVICE void store_whole_part(const Run<W> &m, uint64_t first, unsigned part, Pair v) {
    unsigned char *p = m.base + 8 * (first + part);
    store_own((uint64_t *)p, v.x);
    if (has_second<W>(part)) store_own((uint64_t *)(p + 64), v.y);
}

/* --- a line of a message that is not aligned: slot s has the last `shift` bytes of word s - 1, and the first ones of word s --- */

/* The 8 bytes from byte `from` (1..7) of `low` on, which go on in `high`. */
BL_DEVICE uint64_t across(uint64_t low, uint64_t high, unsigned from) {
    return low >> (8 * from) | high << (64 - 8 * from);
}

/* What a lane's words are, by what its slots hold; and the other way round. */
template <int W> BL_DEVICE Pair words_of_slots(const Run<W> &m, unsigned part, Pair slots) {
    const unsigned next = (part + 1) % LINE_LANES;
    const uint64_t x = exchange_in_line(slots.x, next), y = exchange_in_line(slots.y, next);
    return {across(slots.x, part == 7 ? y : x, m.shift), across(slots.y, part == 7 && W == 16 ? x : y, m.shift)};
}
template <int W> BL_DEVICE Pair slots_of_words(const Run<W> &m, unsigned part, Pair words) {
    const unsigned before = (part + 7) % LINE_LANES, own = 8 - m.shift;
    const uint64_t x = exchange_in_line(words.x, before), y = exchange_in_line(words.y, before);
    return {across(part == 0 && W == 16 ? y : x, words.x, own), across(part == 0 ? x : y, words.y, own)};
}

/* What a lane moves of a line: two slots, if they are the line's alone; byte `part` of its *edge*, which is the first slot from byte
 * `shift` on, and the last one ahead of that; and byte `part` of a slot between, if the message ends there.  Of whole lines the
 * compiler is to know that they are. */
struct Places {
    unsigned char *x, *edge, *end;
    unsigned last; /* the slot that the line, or the message, ends in */
    bool has_x, has_y, has_edge, has_end;
};
template <int W> BL_DEVICE Places places_of(const Run<W> &m, uint64_t first, unsigned part, bool whole) {
    unsigned char *const begin = m.base - m.shift + 8 * first;
    const uint64_t left = 8 * first < m.bytes ? m.bytes - 8 * first : 0;
    const unsigned bytes = m.shift + (whole || left > 8 * W ? 8 * W : (unsigned)left);
    const unsigned last = bytes / 8, at = part < m.shift ? 8 * W + part : part;
    return {begin + 8 * part,
            begin + at,
            begin + 8 * last + part,
            last,
            part != 0 && (whole || part < last),
            has_second<W>(part) && (whole || 8 + part < last),
            whole || at < bytes,
            !whole && last > 0 && last < W && part < bytes % 8};
}

/* As they were loaded: nothing waits for them yet. */
struct Slots {
    Pair v;
    unsigned char edge, end;
};
template <int W> BL_DEVICE Slots load_slots(const Run<W> &m, uint64_t first, unsigned part, bool whole) {
    const Places at = places_of(m, first, part, whole);
    Slots s = {{0, 0}, 0, 0};
    if (at.has_x) s.v.x = load_own((const uint64_t *)at.x);
    if (at.has_y) s.v.y = load_own((const uint64_t *)(at.x + 64));
    if (at.has_edge) s.edge = load_own(at.edge);
    if (at.has_end) s.end = load_own(at.end);
    return s;
}
/* Of the bytes that the lanes of a line pass. */
BL_DEVICE uint64_t word_of_bytes(unsigned part, unsigned char byte) {
    uint32_t half = (uint32_t)byte << 8 * (part % 4);
    half |= exchange_in_line(half, part ^ 1);
    half |= exchange_in_line(half, part ^ 2);
    const uint32_t other = exchange_in_line(half, part ^ 4);
    return part < 4 ? half | (uint64_t)other << 32 : other | (uint64_t)half << 32;
}
template <int W> BL_DEVICE Pair words_loaded(const Run<W> &m, uint64_t first, unsigned part, Slots s, bool whole) {
    const Places at = places_of(m, first, part, whole);
    if (!whole) {
        const uint64_t end = word_of_bytes(part, s.end);
        if (part == at.last) s.v.x = end;
        if (8 + part == at.last) s.v.y = end;
    }
    /* In both of its slots, of which words_of_slots takes what is the line's; of 16 words lane 0's is both. */
    const uint64_t edge = word_of_bytes(part, s.edge);
    if (part == 0) s.v.x = edge;
    if (!has_second<W>(part)) s.v.y = edge;
    return words_of_slots(m, part, s.v);
}
template <int W> BL_DEVICE Pair load_words(const Run<W> &m, uint64_t first, unsigned part) {
    first = opaque(first), part = opaque(part);
    return words_loaded(m, first, part, load_slots(m, first, part, false), false);
}
template <int W> BL_DEVICE void store_words(const Run<W> &m, uint64_t first, unsigned part, Pair words, bool whole) {
    first = opaque(first), part = opaque(part);
    const Places at = places_of(m, first, part, whole);
    const Pair v = slots_of_words(m, part, words);
    const uint64_t edge = exchange_in_line(part == 0 ? v.x : v.y, part < m.shift && W < 16 ? 7 : 0);
    const uint64_t end = whole ? 0 : exchange_in_line(at.last < 8 ? v.x : v.y, at.last % 8);
    if (at.has_x) store_own((uint64_t *)at.x, v.x);
    if (at.has_y) store_own((uint64_t *)(at.x + 64), v.y);
    if (at.has_edge) store_own(at.edge, (unsigned char)(edge >> 8 * part));
    if (at.has_end) store_own(at.end, (unsigned char)(end >> 8 * part));
}

/* --- a lane's part of any line --- */

/* Where a lane has one word, y is anything. */
template <int W> BL_DEVICE Pair load_part(const Run<W> &m, uint64_t first, unsigned part) {
    const uint64_t k = first + part;
    const unsigned char *p = m.base + 8 * k;
    Pair v = {0, 0};
    if (m.aligned && part_is_whole(m, first, part)) {
        /* As load_whole_part, of which the compiler would make other code here: docs/notebook.md. */
        v.x = load_own((const uint64_t *)p);
        v.y = load_own((const uint64_t *)(has_second<W>(part) ? p + 64 : p));
        return v;
    }
    if (!m.aligned) return load_words(m, first, part);
    bool want_x = k < m.words, want_y = has_second<W>(part) && k + 8 < m.words;
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
template <int W> BL_DEVICE Pair load_end_part(const Run<W> &m, uint64_t first, unsigned part) {
    if (!has_whole_words(m)) return load_part(m, first, part);
    const uint64_t k = first + part;
    const unsigned char *p = m.base + 8 * k;
    Pair v = {0, 0};
    if (k < m.words) v.x = load_own((const uint64_t *)p);
    if (has_second<W>(part) && k + 8 < m.words) v.y = load_own((const uint64_t *)(p + 64));
    return v;
}

/* Asks for what load_part will load, if it exists. */
template <int W> BL_DEVICE void prefetch_part(const Run<W> &m, uint64_t first, unsigned part) {
    const uint64_t at = 8 * first + 16 * part;
    if (at < m.bytes) prefetch_own(m.base + at);
}

template <int W> BL_DEVICE void store_part(const Run<W> &m, uint64_t first, unsigned part, Pair v) {
    const uint64_t k = first + part;
    if (m.aligned && part_is_whole(m, first, part)) return store_whole_part(m, first, part, v);
    if (!m.aligned) return store_words(m, first, part, v, false);
    unsigned char *to = m.base + 8 * k;
    uint64_t rest = v.x;
    unsigned bytes = bytes_of_word(m, k), bytes_y = has_second<W>(part) ? bytes_of_word(m, k + 8) : 0;
#pragma unroll 1
    while (bytes) {
        store_span(to, rest, bytes);
        to += 64;
        rest = v.y;
        bytes = bytes_y;
        bytes_y = 0;
    }
}

/* As store_part, for the same. */
template <int W> BL_DEVICE void store_end_part(const Run<W> &m, uint64_t first, unsigned part, Pair v) {
    if (!has_whole_words(m)) return store_part(m, first, part, v);
    const uint64_t k = first + part;
    unsigned char *p = m.base + 8 * k;
    if (k < m.words) store_own((uint64_t *)p, v.x);
    if (has_second<W>(part) && k + 8 < m.words) store_own((uint64_t *)(p + 64), v.y);
}

/* --- a run of them: which lane has which part --- */

template <int W> BL_DEVICE uint64_t lines_of(const Run<W> &m) {
    return (m.words + W - 1) / W;
}
enum { WARP_LINES = 4 }; /* a line for each eight lanes */

/* So many lines, from the first on, are whole: a warp's are so all or none. */
template <int W> BL_DEVICE uint64_t whole_lines(const Run<W> &m) {
    return m.bytes / (8 * W * WARP_LINES) * WARP_LINES;
}
/* Of the lines from `first` on, of which a crew has its share. */
template <class M> BL_DEVICE uint64_t whole_lines_from(const M &m, uint64_t first, uint64_t lines) {
    const uint64_t all = whole_lines(m), left = all > first ? all - first : 0;
    return (left < lines ? left : lines) / WARP_LINES * WARP_LINES;
}
template <int W> BL_DEVICE bool is_aligned(const Run<W> &m) {
    return m.aligned;
}
template <int W> BL_DEVICE Pair load_line(const Run<W> &m, uint64_t line) {
    return load_part(m, line * W, lane_in_warp() % LINE_LANES);
}
template <int W> BL_DEVICE Pair load_end_line(const Run<W> &m, uint64_t line) {
    return load_end_part(m, line * W, lane_in_warp() % LINE_LANES);
}
/* A whole line of a message that is aligned. */
template <int W> BL_DEVICE Pair load_aligned_line(const Run<W> &m, uint64_t line) {
    return load_whole_part(m, line * W, lane_in_warp() % LINE_LANES);
}
/* K whole lines, `step` apart: all are under way before anything waits for one. */
template <int W, int K> BL_DEVICE void load_whole_lines(const Run<W> &m, uint64_t line, uint64_t step, Pair (&v)[K]) {
    uint64_t first[K]; /* ahead of the branch, since what follows may ask for the lines again */
#pragma unroll
    for (int k = 0; k < K; k++) first[k] = (line + k * step) * W;
    if (m.aligned) {
        const unsigned part = lane_in_warp() % LINE_LANES;
#pragma unroll
        for (int k = 0; k < K; k++) v[k] = load_whole_part(m, first[k], part);
    } else {
        const unsigned part = opaque(lane_in_warp() % LINE_LANES);
        Slots s[K];
#pragma unroll
        for (int k = 0; k < K; k++) s[k] = load_slots(m, first[k], part, true);
#pragma unroll
        for (int k = 0; k < K; k++) v[k] = words_loaded(m, first[k], part, s[k], true);
    }
}
/* K lines, of which each is whole, or need not be. */
template <class In, int K>
BL_DEVICE void load_lines(const In &in, uint64_t line, uint64_t step, Pair (&v)[K], bool whole) {
    if (whole) return load_whole_lines(in, line, step, v);
#pragma unroll
    for (int k = 0; k < K; k++) v[k] = load_line(in, line + k * step);
}
template <class In, int K>
BL_DEVICE void load_end_lines(const In &in, uint64_t line, uint64_t step, Pair (&v)[K], bool whole) {
    if (whole) return load_whole_lines(in, line, step, v);
#pragma unroll
    for (int k = 0; k < K; k++) v[k] = load_end_line(in, line + k * step);
}
template <int W> BL_DEVICE void prefetch_line(const Run<W> &m, uint64_t line) {
    prefetch_part(m, line * W, lane_in_warp() % LINE_LANES);
}
/* K whole lines, `step` apart, with one branch for all. */
template <int W, int K>
BL_DEVICE void store_whole_lines(const Run<W> &m, uint64_t line, uint64_t step, const Pair (&v)[K]) {
    const unsigned part = lane_in_warp() % LINE_LANES;
    if (m.aligned) {
#pragma unroll
        for (int k = 0; k < K; k++) store_whole_part(m, (line + k * step) * W, part, v[k]);
    } else {
#pragma unroll
        for (int k = 0; k < K; k++) store_words(m, (line + k * step) * W, part, v[k], true);
    }
}
template <int W> BL_DEVICE void store_whole_line(const Run<W> &m, uint64_t line, Pair v) {
    const Pair one[1] = {v};
    store_whole_lines(m, line, 0, one);
}
template <int W> BL_DEVICE void store_line(const Run<W> &m, uint64_t line, Pair v, bool whole = false) {
    if (whole) return store_whole_line(m, line, v);
    store_part(m, line * W, lane_in_warp() % LINE_LANES, v);
}
template <int W> BL_DEVICE void store_end_line(const Run<W> &m, uint64_t line, Pair v, bool whole = false) {
    if (whole) return store_whole_line(m, line, v);
    store_end_part(m, line * W, lane_in_warp() % LINE_LANES, v);
}
/* The same by two groups that have a word a lane: the line's first eight, and the rest. */
template <int W> BL_DEVICE void store_line_by_halves(const Run<W> &m, uint64_t line, unsigned half, uint64_t word) {
    const unsigned part = lane_in_warp() % LINE_LANES;
    if (m.aligned) {
        if (half == 0 || has_second<W>(part)) store_word(m, line * W + 8 * half + part, word);
        return;
    }
    const Pair v = {word, exchange_halves(word)};
    if (half == 0) store_line(m, line, v);
}

#endif
