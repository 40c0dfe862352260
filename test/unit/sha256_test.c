/* sha256_test.c - the examples of FIPS 180-4, and every length around a block's end. */
#include "base/sha256.h"

#include <stdio.h>
#include <string.h>

static int failed;

static void expect(const char *what, const char *text, size_t times, size_t at_a_time, const char *digest) {
    struct bl_sha256 hash;
    unsigned char got[BL_SHA256_BYTES];
    char hex[2 * BL_SHA256_BYTES + 1];
    const size_t length = strlen(text);
    bl_sha256_begin(&hash);
    for (size_t i = 0; i < times; i++)
        for (size_t from = 0; from < length; from += at_a_time)
            bl_sha256_add(&hash, text + from, length - from < at_a_time ? length - from : at_a_time);
    bl_sha256_end(&hash, got);
    for (int i = 0; i < BL_SHA256_BYTES; i++) snprintf(hex + 2 * i, 3, "%02x", got[i]);
    if (!strcmp(hex, digest)) return;
    printf("FAIL %s: %s, expected %s\n", what, hex, digest);
    failed = 1;
}

int main(void) {
    static const char long_text[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    expect("nothing", "", 1, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect("abc", "abc", 1, 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    for (size_t at_a_time = 1; at_a_time < 60; at_a_time++)
        expect("two blocks", long_text, 1, at_a_time,
               "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    expect("a million", "a", 1000000, 1, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    static const struct {
        size_t length;
        const char *digest;
    } around[] = {
        {55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
        {56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a"},
        {63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34"},
        {64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
    };
    for (size_t i = 0; i < sizeof around / sizeof *around; i++)
        expect("around a block", "a", around[i].length, 1, around[i].digest);
    if (!failed) puts("ok");
    return failed;
}
