/* copies.cuh - memory of a block, and a warp's bulk copies between it and other memory: from sm_90 on the copies of the
 * tensor memory accelerator, which go on while the warp does something else; before, loads and stores of all lanes.  Part of
 * what primitives.cuh is: the emulated box replaces it with test/emu/seam/core/copies.cuh.
 *
 * All lanes of a warp call these together, unless it says otherwise.  Addresses and sizes of copies are multiples of 16 bytes.  What is copied
 * comes into *stages*, whose number is below 32: of each a warp waits for all that it has announced.
 */
#ifndef BEELINE_COPIES_CUH
#define BEELINE_COPIES_CUH

#include <core/primitives.cuh>

/* The bytes that the launch gives each block, of any content at first; a multiple of 128. */
BL_DEVICE unsigned char *block_memory() {
    extern __shared__ __align__(128) unsigned char bl_block_memory[];
    return bl_block_memory;
}

/* 16 bytes of it, and a word that its threads tell each other; by any lane. */
BL_DEVICE Pair load_block_pair(const void *p) {
    const ulonglong2 v = *(const ulonglong2 *)p;
    const Pair pair = {v.x, v.y};
    return pair;
}
BL_DEVICE void store_block_pair(void *p, Pair v) {
    *(ulonglong2 *)p = make_ulonglong2(v.x, v.y);
}
BL_DEVICE uint64_t load_acquire_block(const uint64_t *p) {
    uint64_t v;
    asm volatile("ld.acquire.cta.b64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
BL_DEVICE void store_release_block(uint64_t *p, uint64_t v) {
    asm volatile("st.release.cta.b64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

/* What a warp has under way. */
struct Copies {
    uint64_t *arrived; /* in the block's memory, a word for each stage */
    uint32_t phases;   /* a bit each */
    uint32_t comes;    /* to which stages something does */
};

#if __CUDA_ARCH__ >= 900
BL_DEVICE uint32_t address_in_block(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

BL_DEVICE Copies copies_begin(uint64_t *words, unsigned stages) {
    if (lane_in_warp() < stages)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address_in_block(words + lane_in_warp()))
                     : "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
    warp_sync();
    const Copies c = {words, 0, 0};
    return c;
}

/* What lanes have seen by acquiring is there for copies behind it. */
BL_DEVICE void copies_follow() {
    asm volatile("fence.proxy.async;" ::: "memory");
    warp_sync();
}
/* What they have stored to the block's memory is, and what they have loaded of that may be overwritten. */
BL_DEVICE void copies_follow_block() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    warp_sync();
}

/* So many bytes come to the stage: by copies_load, once. */
BL_DEVICE void copies_announce(Copies &c, unsigned stage, uint32_t bytes) {
    c.comes |= 1u << stage;
    if (lane_in_warp() == 0)
        asm volatile(
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_in_block(c.arrived + stage)),
            "r"(bytes)
            : "memory");
}
BL_DEVICE void copies_load(Copies &c, unsigned stage, void *to, const void *from, uint32_t bytes) {
    if (lane_in_warp() == 0)
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                         address_in_block(to)),
                     "l"(from), "r"(bytes), "r"(address_in_block(c.arrived + stage))
                     : "memory");
}
/* Until all of it is there. */
BL_DEVICE void copies_await(Copies &c, unsigned stage) {
    const uint32_t phase = c.phases >> stage & 1;
    uint32_t there;
    do
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(there)
                     : "r"(address_in_block(c.arrived + stage)), "r"(phase)
                     : "memory");
    while (!there);
    c.phases ^= 1u << stage;
    c.comes &= ~(1u << stage);
    warp_sync();
}

BL_DEVICE void copies_store(Copies &, void *to, const void *from, uint32_t bytes) {
    if (lane_in_warp() == 0)
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                     "r"(address_in_block(from)), "r"(bytes)
                     : "memory");
}
/* Those stores since the last time are a group, if there are none, too. */
BL_DEVICE void copies_group(Copies &) {
    if (lane_in_warp() == 0) asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/* Until all groups but the last LEFT have been read, and so what they were stored from may be overwritten; until they are stored, and
 * a thread that this one tells by store_release_block, and that fences, may tell others. */
template <int LEFT> BL_DEVICE void copies_await_read(Copies &) {
    if (lane_in_warp() == 0) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory");
    warp_sync();
}
template <int LEFT> BL_DEVICE void copies_await_stored(Copies &) {
    if (lane_in_warp() == 0) asm volatile("cp.async.bulk.wait_group %0;" ::"n"(LEFT) : "memory");
    warp_sync();
}
#else
BL_DEVICE Copies copies_begin(uint64_t *words, unsigned) {
    const Copies c = {words, 0, 0};
    return c;
}
BL_DEVICE void copies_follow() {
    warp_sync();
}
BL_DEVICE void copies_follow_block() {
    warp_sync();
}
BL_DEVICE void copies_announce(Copies &, unsigned, uint32_t) {}
BL_DEVICE void copies_load(Copies &, unsigned, void *to, const void *from, uint32_t bytes) {
    for (uint32_t at = lane_in_warp() * 16; at < bytes; at += 32 * 16)
        store_block_pair((unsigned char *)to + at, load_b128_relaxed_sys((const unsigned char *)from + at));
}
BL_DEVICE void copies_await(Copies &, unsigned) {
    warp_sync();
}
BL_DEVICE void copies_store(Copies &, void *to, const void *from, uint32_t bytes) {
    for (uint32_t at = lane_in_warp() * 16; at < bytes; at += 32 * 16) {
        const Pair v = load_block_pair((const unsigned char *)from + at);
        store_b128_relaxed_sys((unsigned char *)to + at, v.x, v.y);
    }
}
BL_DEVICE void copies_group(Copies &) {}
template <int LEFT> BL_DEVICE void copies_await_read(Copies &) {
    warp_sync();
}
template <int LEFT> BL_DEVICE void copies_await_stored(Copies &) {
    __threadfence_block();
    warp_sync();
}
#endif

/* Before a warp leaves in the middle: what it has under way is in the block's memory, which is another block's then. */
BL_DEVICE void copies_leave(Copies &c) {
    for (unsigned stage = 0; c.comes >> stage; stage++)
        if (c.comes >> stage & 1) copies_await(c, stage);
    copies_await_read<0>(c);
}

#endif
