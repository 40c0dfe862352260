/* words.cuh - user buffers as a stream of 8-byte words, whatever their alignment and length.
 *
 * Word k of a message holds its bytes [8k, 8k+8); the last may be short, its missing bytes read as zero and are not
 * written.  Only this rank's own accesses depend on the base's alignment, so ranks, and the buffers of one rank, may differ
 * in it.  Nothing outside of the word is touched.
 */
#ifndef BEELINE_WORDS_CUH
#define BEELINE_WORDS_CUH

#include <core/primitives.cuh>

struct Message {
    unsigned char *base;
    uint64_t bytes, words;
    unsigned shift; /* bytes from the last multiple of 8 to the base */
    bool aligned;   /* shift is zero: whole words move in one access */
};

BL_DEVICE Message message_of(const void *base, uint64_t bytes) {
    Message m;
    m.base = (unsigned char *)base;
    m.bytes = bytes;
    m.words = (bytes + 7) / 8;
    m.shift = (unsigned)((uintptr_t)base & 7);
    m.aligned = m.shift == 0;
    return m;
}

/* --- up to 8 bytes anywhere, one by one: rare, and all under way at once, without a computed shift or address --- */

BL_DEVICE uint64_t load_span(const unsigned char *p, unsigned bytes) {
    uint32_t v[8];
#pragma unroll
    for (unsigned i = 0; i < 8; i++) v[i] = i < bytes ? load_own(p + i) : 0;
    const uint32_t low = v[0] | v[1] << 8 | v[2] << 16 | v[3] << 24;
    const uint32_t high = v[4] | v[5] << 8 | v[6] << 16 | v[7] << 24;
    return low | (uint64_t)high << 32;
}

BL_DEVICE void store_span(unsigned char *p, uint64_t v, unsigned bytes) {
#pragma unroll
    for (unsigned i = 0; i < 8; i++)
        if (i < bytes) store_own(p + i, (unsigned char)(v >> (8 * i)));
}

/* --- single words --- */

/* Bytes of word k that exist. */
BL_DEVICE unsigned bytes_of_word(const Message &m, uint64_t k) {
    return k >= m.words ? 0 : m.bytes - 8 * k < 8 ? (unsigned)(m.bytes - 8 * k) : 8;
}

BL_DEVICE uint64_t load_word(const Message &m, uint64_t k) {
    const unsigned char *p = m.base + 8 * k;
    if (m.aligned && 8 * k + 8 <= m.bytes) return load_own((const uint64_t *)p);
    return load_span(p, bytes_of_word(m, k));
}

BL_DEVICE void store_word(const Message &m, uint64_t k, uint64_t v) {
    unsigned char *p = m.base + 8 * k;
    if (m.aligned && 8 * k + 8 <= m.bytes)
        store_own((uint64_t *)p, v);
    else
        store_span(p, v, bytes_of_word(m, k));
}

#endif
