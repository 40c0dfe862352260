/* bulk_spans.cuh - pieces of the user's buffers, to and from a warp's stages (bulk.cuh).
 *
 * Whole 16 bytes at multiples of 16 go by bulk copies.  What begins elsewhere comes by one, too, with the few bytes around it, and is shifted to the
 * stage's begin there; and it is stored by the lanes in whole 16 bytes, each put together of two.  But of the first and the last piece of
 * a run nothing outside is touched: lanes load them.
 */
#ifndef BEELINE_BULK_SPANS_CUH
#define BEELINE_BULK_SPANS_CUH

#include <core/copies.cuh>
#include "core/units.cuh"

struct Span {
    unsigned char *at;
    uint32_t bytes;      /* at most a piece's */
    bool before, behind; /* 16 bytes that may be read, too */
};
BL_DEVICE bool moves_whole(const Span &s) {
    return (((uintptr_t)s.at | s.bytes) & (UNIT_BYTES - 1)) == 0;
}
BL_DEVICE uint32_t whole_units(uint32_t bytes) {
    return (bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
}
/* Piece p of a run of `bytes`; of none beyond its end. */
BL_DEVICE Span span_of(const void *run, uint64_t bytes, uint64_t piece, uint32_t piece_bytes) {
    const uint64_t at = piece * piece_bytes, left = at < bytes ? bytes - at : 0;
    return {(unsigned char *)run + at, (uint32_t)(left < piece_bytes ? left : piece_bytes), piece > 0,
            left >= piece_bytes + UNIT_BYTES};
}

/* The 16 bytes that begin `shift` bytes, below 16, behind the first of 32. */
BL_DEVICE Pair shifted(Pair low, Pair high, unsigned shift) {
    const uint64_t w0 = shift < 8 ? low.x : low.y, w1 = shift < 8 ? low.y : high.x, w2 = shift < 8 ? high.x : high.y;
    const unsigned bits = shift % 8 * 8;
    if (bits == 0) return {w0, w1};
    return {w0 >> bits | w1 << (64 - bits), w1 >> bits | w2 << (64 - bits)};
}

/* To `to`, the last unit filled up with zeros. */
BL_DEVICE void load_by_lanes(unsigned char *to, const Span &s) {
    enum { AT_ONCE = 4 };
    const unsigned shift = (unsigned)((uintptr_t)s.at % UNIT_BYTES);
    const WholeUnit *const from = (const WholeUnit *)(s.at - shift);
    const uint32_t units = (uint32_t)units_of(s.bytes), whole = s.bytes / UNIT_BYTES;
    const uint32_t first = shift && !s.before && units ? 1 : 0;
    const uint32_t last = shift && !s.behind && whole ? whole - 1 : whole, end = last > first ? last : first;
    for (uint32_t u = first + lane_in_warp(); u < end; u += 32 * AT_ONCE) {
        WholeUnit low[AT_ONCE], high[AT_ONCE];
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            const uint32_t at = u + i * 32 < end ? u + i * 32 : u;
            low[i] = load_own(from + at);
            high[i] = shift ? load_own(from + at + 1) : low[i];
        }
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++)
            if (u + i * 32 < end)
                store_block_pair(to + (u + i * 32) * UNIT_BYTES,
                                 shifted({low[i].x, low[i].y}, {high[i].x, high[i].y}, shift));
    }
    const uint32_t u = lane_in_warp() < first ? 0 : end + lane_in_warp() - first;
    if (u < units) store_block_pair(to + u * UNIT_BYTES, load_unit(message_of(s.at, s.bytes), u));
}

BL_DEVICE void store_by_lanes(const Span &s, const unsigned char *from) {
    const unsigned shift = (unsigned)((uintptr_t)s.at % UNIT_BYTES);
    WholeUnit *const to = (WholeUnit *)(s.at - shift);
    const uint32_t first = shift ? 1 : 0, end = (shift + s.bytes) / UNIT_BYTES;
    const unsigned lane = lane_in_warp();
    for (uint32_t u = first + lane; u < end; u += 32) {
        const unsigned char *const at = from + (u - first) * UNIT_BYTES;
        Pair v = load_block_pair(at);
        if (shift) v = shifted(v, load_block_pair(at + UNIT_BYTES), UNIT_BYTES - shift);
        store_own(to + u, {v.x, v.y});
    }
    /* Bytes before the first whole unit, by half of the lanes, and behind the last. */
    const uint32_t head = shift ? UNIT_BYTES - shift : 0, tail = end || !shift ? end * UNIT_BYTES - shift : s.bytes;
    const uint32_t at = lane < UNIT_BYTES ? lane : tail + lane - UNIT_BYTES;
    if (lane < UNIT_BYTES ? at < head && at < s.bytes : at < s.bytes) {
        const Pair v = load_block_pair(from + at / UNIT_BYTES * UNIT_BYTES);
        store_own(s.at + at, (unsigned char)((at & 8 ? v.y : v.x) >> (at & 7) * 8));
    }
}

/* Whether it comes with what is around it. */
BL_DEVICE bool comes_shifted(const Span &s) {
    return (uintptr_t)s.at % UNIT_BYTES != 0 && s.before && s.behind;
}
/* To a stage, to which `more` bytes come besides; then, once all has come: settle. */
BL_DEVICE void load_span_to(Copies &copies, unsigned stage, unsigned char *to, const Span &s, uint32_t more) {
    const bool shifts = comes_shifted(s), copied = shifts || moves_whole(s);
    const uint32_t bytes = s.bytes + (shifts ? UNIT_BYTES : 0);
    copies_announce(copies, stage, more + (copied ? bytes : 0));
    if (!copied) {
        load_by_lanes(to, s);
        copies_follow_block();
    } else if (bytes) {
        copies_load(copies, stage, to, s.at - (shifts ? (uintptr_t)s.at % UNIT_BYTES : 0), bytes);
    }
}
/* It begins with the stage, as if it had been at a multiple of 16. */
BL_DEVICE void settle(unsigned char *stage, const Span &s) {
    enum { AT_ONCE = 4 };
    if (!comes_shifted(s)) return;
    const unsigned shift = (unsigned)((uintptr_t)s.at % UNIT_BYTES);
    for (uint32_t begin = 0; begin < s.bytes; begin += AT_ONCE * 32 * UNIT_BYTES) {
        Pair v[AT_ONCE];
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            const uint32_t at = begin + (lane_in_warp() + i * 32) * UNIT_BYTES;
            if (at < s.bytes)
                v[i] = shifted(load_block_pair(stage + at), load_block_pair(stage + at + UNIT_BYTES), shift);
        }
        warp_sync(); /* nothing is overwritten that is still to be loaded */
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            const uint32_t at = begin + (lane_in_warp() + i * 32) * UNIT_BYTES;
            if (at < s.bytes) store_block_pair(stage + at, v[i]);
        }
        warp_sync();
    }
    copies_follow_block();
}
/* The stage may be loaded to once the group was read. */
BL_DEVICE void store_span_from(Copies &copies, const Span &s, const unsigned char *from) {
    if (!moves_whole(s)) {
        store_by_lanes(s, from);
        copies_follow_block();
    } else if (s.bytes) {
        copies_store(copies, s.at, from, s.bytes);
    }
}

#endif
