/* sha256.h - SHA-256 (FIPS 180-4), for names and proofs that only holders of a secret can make; libc has none. */
#ifndef BEELINE_SHA256_H
#define BEELINE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { BL_SHA256_BYTES = 32 };

struct bl_sha256 {
    uint32_t state[8];
    uint64_t bytes; /* taken so far */
    unsigned char block[64];
};

void bl_sha256_begin(struct bl_sha256 *hash);
void bl_sha256_add(struct bl_sha256 *hash, const void *data, size_t bytes);
void bl_sha256_end(struct bl_sha256 *hash, unsigned char digest[BL_SHA256_BYTES]);

#endif
