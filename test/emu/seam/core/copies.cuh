/* copies.cuh - the emulated box's stand-in for kernels/core/copies.cuh.
 *
 * Each lane makes its share of a warp's copies.  A load is made when it is announced or when it is awaited, as it happens, and what
 * was in the stage is gone at once; a store likewise, when it is asked for or when its group is waited for.  Who overwrites
 * what is still to be stored, or reads what has not come, finds out.
 */
#ifndef BEELINE_COPIES_CUH
#define BEELINE_COPIES_CUH

#include <string.h>
#include <core/primitives.cuh>

BL_DEVICE unsigned char *block_memory() {
    return bl_emu->block_memory;
}
BL_DEVICE Pair load_block_pair(const void *p) {
    Pair v;
    bl_emu_switch_point();
    memcpy(&v, p, sizeof v);
    return v;
}
BL_DEVICE void store_block_pair(void *p, Pair v) {
    bl_emu_switch_point();
    memcpy(p, &v, sizeof v);
}
BL_DEVICE uint64_t load_acquire_block(const uint64_t *p) {
    bl_emu_switch_point();
    return *p;
}
BL_DEVICE void store_release_block(uint64_t *p, uint64_t v) {
    bl_emu_switch_point();
    *p = v;
}

struct Copies {
    enum { MOST = 64, STAGES = 32 };
    struct Copy {
        unsigned char *to;
        const unsigned char *from;
        uint32_t bytes, where; /* the stage, or the group */
    } load[MOST], store[MOST];
    unsigned loads = 0, stores = 0;
    uint32_t groups = 0;
    int64_t comes[STAGES] = {}; /* bytes announced and not yet asked for */

    /* On a GPU they would end up in another block's memory. */
    ~Copies() {
        if (loads || stores) bl_emu->fault("a warp leaves its bulk copies under way", nullptr);
        for (int64_t bytes : comes)
            if (bytes) bl_emu->fault("a warp leaves bulk copies that it has not awaited", nullptr);
    }

    /* This lane's share of it. */
    template <class Step> static void each(const Copy &c, Step step) {
        for (uint32_t at = lane_in_warp() * 16; at < c.bytes; at += 32 * 16) step(c.to + at, c.from + at);
    }
    static void make_load(const Copy &c) {
        each(c, [](unsigned char *to, const unsigned char *from) {
            uint64_t v[2];
            bl_emu_switch_point();
            bl_emu->load(v, from, sizeof v, BL_EMU_OWN);
            memcpy(to, v, sizeof v);
        });
    }
    static void make_store(const Copy &c) {
        each(c, [](unsigned char *to, const unsigned char *from) {
            uint64_t v[2];
            bl_emu_switch_point();
            memcpy(v, from, sizeof v);
            bl_emu->store(to, v, sizeof v, BL_EMU_OWN);
        });
    }
    static void check(const void *a, const void *b, uint32_t bytes) {
        if (((uintptr_t)a | (uintptr_t)b | bytes) % 16 || !bytes)
            bl_emu->fault("a bulk copy that is not of 16 bytes", a);
    }
};

BL_DEVICE Copies copies_begin(uint64_t *, unsigned) {
    return Copies();
}
BL_DEVICE void copies_follow() {
    warp_sync();
}
BL_DEVICE void copies_follow_block() {
    warp_sync();
}
BL_DEVICE void copies_announce(Copies &c, unsigned stage, uint32_t bytes) {
    if (c.comes[stage]) bl_emu->fault("bulk copies announced and not awaited", nullptr);
    c.comes[stage] = bytes + 1; /* so that none is something, too */
}
BL_DEVICE void copies_load(Copies &c, unsigned stage, void *to, const void *from, uint32_t bytes) {
    const Copies::Copy copy = {(unsigned char *)to, (const unsigned char *)from, bytes, stage};
    Copies::check(to, from, bytes);
    c.comes[stage] -= bytes;
    if (c.loads == Copies::MOST || bl_emu->chance()) {
        Copies::make_load(copy);
        return;
    }
    Copies::each(copy, [](unsigned char *at, const unsigned char *) { memset(at, 0xa5, 16); });
    c.load[c.loads++] = copy;
}
BL_DEVICE void copies_await(Copies &c, unsigned stage) {
    if (c.comes[stage] != 1) bl_emu->fault("bulk copies of other sizes than announced, or none", nullptr);
    c.comes[stage] = 0;
    unsigned left = 0;
    for (unsigned i = 0; i < c.loads; i++) {
        if (c.load[i].where == stage)
            Copies::make_load(c.load[i]);
        else
            c.load[left++] = c.load[i];
    }
    c.loads = left;
    warp_sync();
}
BL_DEVICE void copies_store(Copies &c, void *to, const void *from, uint32_t bytes) {
    const Copies::Copy copy = {(unsigned char *)to, (const unsigned char *)from, bytes, c.groups};
    Copies::check(to, from, bytes);
    if (c.stores == Copies::MOST || bl_emu->chance()) {
        Copies::make_store(copy);
        return;
    }
    c.store[c.stores++] = copy;
}
BL_DEVICE void copies_group(Copies &c) {
    c.groups++;
}
template <int LEFT> BL_DEVICE void bl_emu_make_stores(Copies &c) {
    unsigned left = 0;
    for (unsigned i = 0; i < c.stores; i++) {
        if (c.store[i].where + LEFT < c.groups)
            Copies::make_store(c.store[i]);
        else
            c.store[left++] = c.store[i];
    }
    c.stores = left;
}
template <int LEFT> BL_DEVICE void copies_await_read(Copies &c) {
    bl_emu_make_stores<LEFT>(c);
    warp_sync();
}
BL_DEVICE void copies_leave(Copies &c) {
    for (unsigned stage = 0; stage < Copies::STAGES; stage++)
        if (c.comes[stage]) copies_await(c, stage);
    copies_await_read<0>(c);
}
template <int LEFT> BL_DEVICE void copies_await_stored(Copies &c) {
    bl_emu_make_stores<LEFT>(c);
    bl_emu->stored();
    warp_sync();
}

#endif
