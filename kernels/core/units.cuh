/* units.cuh - user buffers as a stream of 16-byte units, whatever their alignment and length.
 *
 * Unit u of a message holds its bytes [16u, 16u+16); the last may be short, its missing bytes read as zero and are not
 * written.  Whole units move in pieces of the largest power of two that the base is a multiple of; nothing outside of the
 * unit is touched, so buffers may be read and written, unit by unit, in any order.
 */
#ifndef BEELINE_UNITS_CUH
#define BEELINE_UNITS_CUH

#include <core/primitives.cuh>
#include "core/words.cuh"

enum { UNIT_BYTES = 16 };

BL_DEVICE uint64_t units_of(uint64_t bytes) {
    return (bytes + UNIT_BYTES - 1) / UNIT_BYTES;
}

/* 16 bytes in one access. */
struct alignas(UNIT_BYTES) WholeUnit {
    uint64_t x, y;
};
BL_DEVICE bool holds_whole_units(const Message &m) {
    return ((uintptr_t)m.base & (UNIT_BYTES - 1)) == 0;
}

/* 16 bytes at p, a multiple of sizeof(Piece). */
template <class Piece> BL_DEVICE Pair load_pieces(const unsigned char *p) {
    enum { PIECES = 8 / sizeof(Piece) };
    uint64_t word[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 2 * PIECES; i++)
        word[i / PIECES] |= (uint64_t)load_own((const Piece *)p + i) << (i % PIECES * sizeof(Piece) * 8);
    const Pair v = {word[0], word[1]};
    return v;
}
template <class Piece> BL_DEVICE void store_pieces(unsigned char *p, Pair v) {
    enum { PIECES = 8 / sizeof(Piece) };
#pragma unroll
    for (int i = 0; i < 2 * PIECES; i++)
        store_own((Piece *)p + i, (Piece)((i < PIECES ? v.x : v.y) >> (i % PIECES * sizeof(Piece) * 8)));
}

BL_DEVICE Pair load_unit(const Message &m, uint64_t u) {
    const unsigned char *p = m.base + u * UNIT_BYTES;
    const uint64_t left = m.bytes - u * UNIT_BYTES;
    if (left < UNIT_BYTES) {
        const Pair end = {load_span(p, left < 8 ? (unsigned)left : 8),
                          left > 8 ? load_span(p + 8, (unsigned)left - 8) : 0};
        return end;
    }
    if (holds_whole_units(m)) {
        const WholeUnit whole = load_own((const WholeUnit *)p);
        const Pair v = {whole.x, whole.y};
        return v;
    }
    if (m.shift == 0) return load_pieces<uint64_t>(p);
    if (m.shift % 4 == 0) return load_pieces<uint32_t>(p);
    if (m.shift % 2 == 0) return load_pieces<uint16_t>(p);
    return load_pieces<uint8_t>(p);
}

BL_DEVICE void store_unit(const Message &m, uint64_t u, Pair v) {
    unsigned char *p = m.base + u * UNIT_BYTES;
    const uint64_t left = m.bytes - u * UNIT_BYTES;
    if (left < UNIT_BYTES) {
        store_span(p, v.x, left < 8 ? (unsigned)left : 8);
        if (left > 8) store_span(p + 8, v.y, (unsigned)left - 8);
    } else if (holds_whole_units(m)) {
        const WholeUnit whole = {v.x, v.y};
        store_own((WholeUnit *)p, whole);
    } else if (m.shift == 0) {
        store_pieces<uint64_t>(p, v);
    } else if (m.shift % 4 == 0) {
        store_pieces<uint32_t>(p, v);
    } else if (m.shift % 2 == 0) {
        store_pieces<uint16_t>(p, v);
    } else {
        store_pieces<uint8_t>(p, v);
    }
}

#endif
