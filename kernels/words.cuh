/* words.cuh - user buffers as a stream of 8-byte words, whatever their alignment and length.
 *
 * Word k of a message holds its bytes [8k, 8k+8); the last may be short, its missing bytes read as zero and are not
 * written.  `unit` is the widest access that all of the message allows: the lowest set bit of address, length and 8.
 * Only this rank's own accesses depend on it, so ranks may differ in alignment.
 */
#ifndef BEELINE_WORDS_CUH
#define BEELINE_WORDS_CUH

#include <primitives.cuh>

struct Message {
    unsigned char *base;
    uint64_t bytes, words;
    unsigned unit;
    bool aligned; /* the base is: whole words move in one access */
};

BL_DEVICE Message message_of(const void *base, uint64_t bytes) {
    Message m;
    m.base = (unsigned char *)base;
    m.bytes = bytes;
    m.words = (bytes + 7) / 8;
    const unsigned mix = (unsigned)(uintptr_t)base | (unsigned)bytes | 8u;
    m.unit = mix & (0u - mix);
    m.aligned = ((uintptr_t)base & 7) == 0;
    return m;
}

BL_DEVICE uint64_t load_unit(const unsigned char *p, unsigned unit) {
    switch (unit) {
    case 4: return load_own((const uint32_t *)p);
    case 2: return load_own((const uint16_t *)p);
    default: return load_own(p);
    }
}

BL_DEVICE void store_unit(unsigned char *p, uint64_t v, unsigned unit) {
    switch (unit) {
    case 4: store_own((uint32_t *)p, (uint32_t)v); break;
    case 2: store_own((uint16_t *)p, (uint16_t)v); break;
    default: store_own(p, (unsigned char)v);
    }
}

BL_DEVICE uint64_t load_word(const Message &m, uint64_t k) {
    const unsigned char *p = m.base + 8 * k;
    if (m.aligned && 8 * k + 8 <= m.bytes) return load_own((const uint64_t *)p);
    uint64_t v = 0;
    if (k < m.words) {
        const uint64_t rest = m.bytes - 8 * k;
#pragma unroll 1
        for (unsigned i = 0; i < 8 && i < rest; i += m.unit) v |= load_unit(p + i, m.unit) << (8 * i);
    }
    return v;
}

BL_DEVICE void store_word(const Message &m, uint64_t k, uint64_t v) {
    unsigned char *p = m.base + 8 * k;
    if (m.aligned && 8 * k + 8 <= m.bytes) {
        store_own((uint64_t *)p, v);
    } else if (k < m.words) {
        const uint64_t rest = m.bytes - 8 * k;
#pragma unroll 1
        for (unsigned i = 0; i < 8 && i < rest; i += m.unit) store_unit(p + i, v >> (8 * i), m.unit);
    }
}

/* The two words that lane `part` (0..7) holds of the 15-word line that starts at word `first`; lane 7 has only one. */
BL_DEVICE Pair load_part(const Message &m, uint64_t first, unsigned part) {
    const uint64_t k = first + 2 * part;
    Pair v;
    v.x = load_word(m, k);
    v.y = part == 7 ? 0 : load_word(m, k + 1);
    return v;
}

BL_DEVICE void store_part(const Message &m, uint64_t first, unsigned part, Pair v) {
    const uint64_t k = first + 2 * part;
    store_word(m, k, v.x);
    if (part != 7) store_word(m, k + 1, v.y);
}

#endif
