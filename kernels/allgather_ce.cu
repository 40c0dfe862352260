/* allgather_ce.cu - what an all-gather by the copy engines needs a kernel for: copies what a peer's copy engine has put
 * into a slot to its place in recvbuff, gives the slot back, and maybe copies a piece of this rank's own block.
 *
 * A copy within a GPU takes multiprocessors, whoever makes it.  So that it need not wait for a kernel that fills the GPU, its
 * blocks are single warps of 32 registers: measured on H200, two of them find room beside a block of the large matrix products
 * (384 threads of 168 registers), where no other copy does (docs/algorithms.md).
 *
 * Contract: bytes >= 1; any grid of single warps; buffers of any alignment; the slot is full, nothing is waited for; one launch
 * at a time.  Memory order: a warp's lanes meet when they have read the slot, and its first adds to a count; who finds all
 * others' there tells the sender, behind a fence.
 */
#include <core/primitives.cuh>
#include "core/units.cuh"

enum { WARP = 32, IN_FLIGHT = 4 /* accesses of a lane: as 32 registers allow */ };

/* Copies what there is of whole words of the type from byte `begin` on, a multiple of their size; returns how far. */
template <class Word>
BL_DEVICE uint32_t copy_words(const unsigned char *source, unsigned char *target, uint32_t begin, uint32_t end) {
    enum { GROUP = IN_FLIGHT * WARP };
    const Word *from = (const Word *)(source + begin);
    Word *to = (Word *)(target + begin);
    const uint32_t words = (end - begin) / sizeof(Word), grouped = words / GROUP * GROUP;
    for (uint32_t w = block_in_grid() * GROUP + lane_in_warp(); w < grouped; w += blocks_in_grid() * GROUP) {
        Word v[IN_FLIGHT];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) v[k] = load_own(from + w + k * WARP);
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) store_own(to + w + k * WARP, v[k]);
    }
    for (uint32_t w = grouped + thread_in_grid(); w < words; w += threads_in_grid())
        store_own(to + w, load_own(from + w));
    return begin + words * (uint32_t)sizeof(Word);
}

/* In the widest accesses that both allow. */
BL_DEVICE void copy_bytes(const unsigned char *source, unsigned char *target, uint32_t bytes) {
    const unsigned alignment = (unsigned)((uintptr_t)source | (uintptr_t)target);
    uint32_t done = 0;
    if (alignment % 16 == 0)
        done = copy_words<WholeUnit>(source, target, 0, bytes);
    else if (alignment % 8 == 0)
        done = copy_words<uint64_t>(source, target, 0, bytes);
    else if (alignment % 4 == 0)
        done = copy_words<uint32_t>(source, target, 0, bytes);
    else if (alignment % 2 == 0)
        done = copy_words<uint16_t>(source, target, 0, bytes);
    copy_words<uint8_t>(source, target, done, bytes);
}

BL_DEVICE void allgather_ce(const struct bl_copy_args &a) {
    stream_wait();
    copy_bytes((const unsigned char *)a.slot, (unsigned char *)a.slot_to, (uint32_t)a.bytes);
    warp_sync();
    if (lane_in_warp() == 0 && atomic_add_acq_rel_gpu(a.emptied, 1) + 1 == blocks_in_grid()) {
        store_own(a.emptied, (uint64_t)0);
        fence_acq_rel_sys();
        store_relaxed_sys(a.busy, 0u);
    }
    if (a.own_to != a.own) copy_bytes((const unsigned char *)a.own, (unsigned char *)a.own_to, (uint32_t)a.bytes);
}

BL_KERNEL_NARROW(struct bl_copy_args, bl_allgather_ce_bytes, allgather_ce)
