/* staging_test.c - the layout of the staging and the numbers of the launch interface, for every rank count and many
 * sizes. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "base/param_rows.h"
#include "kernels.h"

enum { PACKET = 16, LINE = 128 };

/* Bytes of the slots for the copy engines and their words. */
static uint64_t slots_of(const struct bl_staging_layout *l, int nranks) {
    return l->copy_bytes ? bl_copy_slots(nranks) * ((uint64_t)nranks - 1) * l->copy_bytes + sizeof(struct bl_copy_words)
                         : 0;
}

static uint64_t pair_bytes_of(const struct bl_staging_layout *l, int nranks) {
    const uint64_t words = (uint64_t)nranks * BL_PAIR_CREDIT;
    return l->pair_quads ? words * sizeof(uint64_t) + ((uint64_t)nranks - 1) * l->pair_quads * BL_QUAD * LINE : 0;
}

/* Bytes of a launch below which lines do not go for the sake of rings. */
static uint64_t large_enough(int nranks) {
    return nranks <= 4 ? 18 << 20 : 24 << 20;
}

/* Rings of pairs: none, or of three times a power of two of places, with as many channels as have words, each of enough places. */
static void check_pairs(const struct bl_staging_layout *l, int nranks) {
    const uint64_t quads = l->pair_quads;
    CHECK(l->pair_offset % LINE == 0 && l->pair_offset + pair_bytes_of(l, nranks) <= l->copy_offset);
    if (quads) {
        const unsigned last = (unsigned)nranks - 1;
        CHECK(bl_pair_ring(l, last - 1, last) + quads * BL_QUAD * LINE <= bl_pair_credit(l, 0) &&
              bl_pair_credit(l, 0) % sizeof(uint64_t) == 0);
        CHECK(bl_pair_credit(l, last) + BL_PAIR_CREDIT * sizeof(uint64_t) <= l->copy_offset);
        const uint64_t channels = bl_pair_channels(l);
        CHECK(4 * quads == UINT64_C(3) << bl_pair_lap_log2(l) && quads % channels == 0 &&
                  quads / channels >= BL_PAIR_DEPTH,
              "%d ranks: a ring of %llu quads", nranks, (unsigned long long)quads);
        CHECK(channels == BL_PAIR_CHANNELS || quads / channels == BL_PAIR_DEPTH);
        CHECK(BL_PAIR_AHEAD * bl_pair_quads(bl_kernel_unreceived(BL_KERNEL_SENDRECV_LL128, nranks, l)) <=
              quads / 4 * 3);
    }
    CHECK((bl_kernel_capacity(BL_KERNEL_SENDRECV_LL128, nranks, l) > 0) == (quads > 0));
}

/* One for each quad, or a power of two; never more than there are channels: of one that two warps had, a receiver could tell of a quad before
 * an earlier one is read. */
static void check_pair_warps(const struct bl_staging_layout *l) {
    const uint64_t channels = bl_pair_channels(l);
    unsigned last = 0;
    for (uint64_t quads = 1; quads < 1 << 20; quads += 1 + quads / 3) {
        const unsigned warps = bl_pair_warps(l, quads);
        CHECK(warps == quads || (warps == channels && (warps & (warps - 1)) == 0), "%u warps for %llu quads", warps,
              (unsigned long long)quads);
        CHECK(warps <= channels, "%u warps for %llu quads", warps, (unsigned long long)quads);
        last = warps;
    }
    CHECK(last == channels);
}

/* Regions lie in the staging, apart from each other, aligned for their accesses, and a half of the lines holds what each
 * kernel puts there: from each peer; with this rank's own; from each peer, and as many results. */
static void check_layout(const struct bl_staging_layout *l, int nranks, uint64_t given) {
    const uint64_t peers = (uint64_t)nranks - 1;
    const uint64_t packet_bytes = 2 * peers * l->packets * PACKET, line_bytes = 2 * l->half_lines * LINE;
    const uint64_t ring_bytes = BL_MAX_RANKS * sizeof(uint64_t) + peers * l->oneway_lines * LINE;
    CHECK(l->bytes <= given, "%d ranks, %llu bytes given: %llu taken", nranks, (unsigned long long)given,
          (unsigned long long)l->bytes);
    CHECK(l->packets > 0 && l->peer_lines > 0 && l->rank_lines > 0, "%d ranks, %llu bytes", nranks,
          (unsigned long long)given);
    CHECK(peers * l->peer_lines <= l->half_lines && (peers + 1) * l->rank_lines <= l->half_lines,
          "%d ranks: %llu lines in a half, %llu a peer, %llu a rank", nranks, (unsigned long long)l->half_lines,
          (unsigned long long)l->peer_lines, (unsigned long long)l->rank_lines);
    CHECK(l->packet_offset % LINE == 0 && l->line_offset % LINE == 0 && l->oneway_offset % LINE == 0 &&
          l->copy_offset % LINE == 0 && l->copy_bytes % LINE == 0);
    CHECK(l->packet_offset + packet_bytes <= l->line_offset && l->line_offset + line_bytes <= l->oneway_offset &&
          l->oneway_offset + ring_bytes <= l->pair_offset && l->copy_offset + slots_of(l, nranks) <= l->bytes);
    check_pairs(l, nranks);
    CHECK(l->oneway_lines >= 64 && (l->oneway_lines & (l->oneway_lines - 1)) == 0, "%d ranks, a ring of %llu lines",
          nranks, (unsigned long long)l->oneway_lines);
    CHECK(ring_bytes <= (16 << 20) + 128 &&
              (ring_bytes <= given / 4 || l->peer_lines * peers * BL_LINE_DATA >= large_enough(nranks)),
          "%d ranks, %llu bytes given: rings take %llu, and others want more", nranks, (unsigned long long)given,
          (unsigned long long)ring_bytes);
    CHECK(3 * bl_kernel_capacity(BL_KERNEL_BROADCAST_LL128, nranks, l) <= l->oneway_lines * BL_FLAGGED_DATA &&
          bl_kernel_capacity(BL_KERNEL_REDUCE_LL128, nranks, l) ==
              bl_kernel_capacity(BL_KERNEL_BROADCAST_LL128, nranks, l));
}

static bool is_batch(int kernel) {
    return strstr(bl_kernel_name(kernel), "_batch") || strstr(bl_kernel_name(kernel), "_few");
}

/* A full launch keeps buffers aligned for what follows it; more bytes never get fewer blocks. */
static void check_launches(const struct bl_staging_layout *l, int nranks) {
    static const unsigned threads[] = {32, 64, 96, 128, 256};
    for (int kernel = 0; kernel < BL_KERNELS; kernel++) {
        uint64_t capacity = bl_kernel_capacity(kernel, nranks, l);
        const bool planned = kernel == BL_KERNEL_ALLGATHER_CE ? l->copy_bytes > 0
                             : bl_kernel_multicast(kernel)    ? l->multicast_bytes > 0
                             : bl_kernel_pairs(kernel)        ? l->pair_quads > 0
                             : bl_kernel_bulk(kernel)         ? l->bulk_bytes > 0
                                                              : true;
        CHECK((capacity > 0) == planned && capacity % 128 == 0, "%s: %llu", bl_kernel_name(kernel),
              (unsigned long long)capacity);
        for (unsigned t = 0; t < sizeof threads / sizeof *threads; t++)
            for (unsigned most = 1; most <= 1000; most = most * 3 + 1) {
                unsigned last = 0;
                for (uint64_t bytes = 0; bytes <= capacity && bytes < (uint64_t)1 << 34; bytes = bytes * 3 + 1) {
                    unsigned blocks =
                        bl_kernel_blocks(kernel, nranks, bytes, bl_kernel_threads(kernel, nranks, threads[t]), most);
                    CHECK(blocks >= 1 && blocks <= most, "%s: %u blocks of at most %u", bl_kernel_name(kernel), blocks,
                          most);
                    CHECK(blocks <= BL_MAX_BLOCKS, "%u blocks", blocks);
                    CHECK(blocks >= last, "%s: fewer blocks for more bytes", bl_kernel_name(kernel));
                    last = blocks;
                }
            }
    }
}

/* Of every size; with slots for the copy engines these take three quarters at most, or nothing if too little were left. */
static void plans_of(int nranks, uint64_t bytes) {
    struct bl_staging_layout l, copy;
    CHECK(bl_staging_plan(&l, nranks, bytes, false, false) == 0, "%d ranks, %llu bytes", nranks,
          (unsigned long long)bytes);
    CHECK(l.copy_bytes == 0 && bl_kernel_capacity(BL_KERNEL_ALLGATHER_CE, nranks, &l) == 0);
    check_layout(&l, nranks, bytes);
    CHECK(bl_staging_plan(&copy, nranks, bytes, true, false) == 0, "%d ranks, %llu bytes", nranks,
          (unsigned long long)bytes);
    check_layout(&copy, nranks, bytes);
    CHECK(slots_of(&copy, nranks) <= bytes / 4 * 3 + sizeof(struct bl_copy_words));
    CHECK(copy.copy_bytes || bytes < 2 * (bl_staging_minimum(nranks) + sizeof(struct bl_copy_words)) + 8,
          "%d ranks, %llu bytes: no slots", nranks, (unsigned long long)bytes);
    CHECK(copy.copy_bytes || memcmp(&l, &copy, sizeof l) == 0, "without slots, lines have their room");
    CHECK(bl_kernel_capacity(BL_KERNEL_ALLGATHER_CE, nranks, &copy) == copy.copy_bytes);
}

/* With room for a multicast object: a third at most, or nothing; the parts fit, and nothing else gets less than its least. */
static void multicast_plans_of(int nranks, uint64_t bytes, bool copy) {
    struct bl_staging_layout l, without;
    CHECK(bl_staging_plan(&l, nranks, bytes, copy, true) == 0);
    check_layout(&l, nranks, bytes - l.multicast_bytes);
    const uint64_t packets = 2 * (uint64_t)nranks * l.multicast_packets * 16;
    if (!l.multicast_bytes) {
        CHECK(bl_staging_plan(&without, nranks, bytes, copy, false) == 0);
        CHECK(memcmp(&l, &without, sizeof l) == 0, "without multicast, the others have its room");
        CHECK(bytes < 3 * ((uint64_t)4 << 20), "%d ranks, %llu bytes: no multicast", nranks, (unsigned long long)bytes);
        CHECK(!bl_kernel_capacity(BL_KERNEL_ALLREDUCE_TWOSHOT_NVLS, nranks, &l));
        return;
    }
    CHECK(l.multicast_bytes <= bytes / 3, "%llu of %llu bytes", (unsigned long long)l.multicast_bytes,
          (unsigned long long)bytes);
    CHECK(l.multicast_bytes == BL_MAX_BLOCKS * 128 + packets + 2 * l.multicast_half);
    CHECK(l.multicast_half % 128 == 0 && l.multicast_half >= 64 << 10 && l.multicast_half <= 8 << 20);
    CHECK(bl_kernel_capacity(BL_KERNEL_ALLREDUCE_ONESHOT_NVLS, nranks, &l) == l.multicast_packets * 8);
    CHECK(bl_kernel_capacity(BL_KERNEL_ALLREDUCE_TWOSHOT_NVLS, nranks, &l) == l.multicast_half);
    const uint64_t block = bl_kernel_capacity(BL_KERNEL_ALLGATHER_NVLS, nranks, &l);
    CHECK(block && block % 128 == 0 && block * (uint64_t)nranks <= l.multicast_half);
    CHECK(bl_kernel_capacity(BL_KERNEL_REDUCESCATTER_NVLS, nranks, &l) == block);
}

static void plans(void) {
    for (int nranks = 2; nranks <= BL_MAX_RANKS; nranks++) {
        uint64_t least = bl_staging_minimum(nranks);
        CHECK(least > 0 && least <= 2 << 20, "%d ranks need %llu bytes: more than a small setting", nranks,
              (unsigned long long)least);
        struct bl_staging_layout l, untouched;
        memset(&l, 0x5a, sizeof l);
        untouched = l;
        CHECK(bl_staging_plan(&l, nranks, least - 1, false, false) == -1);
        CHECK(bl_staging_plan(&l, nranks, 0, false, false) == -1);
        CHECK(memcmp(&l, &untouched, sizeof l) == 0, "a plan that failed wrote its result");
        for (uint64_t bytes = least; bytes <= (uint64_t)1 << 30; bytes = bytes * 5 / 4 + 4097) {
            plans_of(nranks, bytes);
            multicast_plans_of(nranks, bytes, false);
            multicast_plans_of(nranks, bytes, true);
        }
        CHECK(bl_staging_plan(&l, nranks, least - 1, true, false) == -1);
        static const uint64_t sizes[] = {1 << 20, 3 << 20, BL_STAGING_USUAL};
        for (int s = 0; s < 12; s++) {
            if (sizes[s / 4] < least) continue;
            CHECK(bl_staging_plan(&l, nranks, sizes[s / 4], s % 2, s / 2 % 2) == 0);
            CHECK(!l.bulk_bytes);
            check_launches(&l, nranks);
        }
    }
    struct bl_staging_layout l;
    CHECK(bl_staging_plan(&l, 1, 1 << 26, false, false) == -1);
    CHECK(bl_staging_plan(&l, BL_MAX_RANKS + 1, 1 << 30, false, false) == -1);
    CHECK(bl_staging_plan(&l, -1, 1 << 30, false, false) == -1);
}

/* What is used still fits, and nothing is larger than before; what goes in pieces keeps everything. */
static void trims_of(uint64_t staging) {
    for (int nranks = 2; nranks <= BL_MAX_RANKS; nranks++)
        for (int with = 0; with < 4; with++) {
            struct bl_staging_layout whole, l;
            uint64_t bytes[BL_KERNELS] = {0}, last = 0;
            CHECK(bl_staging_plan(&whole, nranks, staging, with & 1, with & 2) == 0);
            l = whole;
            bl_staging_trim(&l, nranks, bytes);
            check_launches(&l, nranks);
            CHECK(l.bytes - slots_of(&l, nranks) < 8 << 20, "%d ranks: %llu bytes for nothing", nranks,
                  (unsigned long long)l.bytes);
            for (uint64_t most = 1; most <= staging; most = most * 2 + most / 8) {
                for (int kernel = 0; kernel < BL_KERNELS; kernel++) {
                    const uint64_t fits = bl_kernel_capacity(kernel, nranks, &whole);
                    uint64_t alone[BL_KERNELS] = {0};
                    alone[kernel] = bytes[kernel] = most;
                    l = whole;
                    bl_staging_trim(&l, nranks, alone);
                    CHECK(bl_kernel_capacity(kernel, nranks, &l) >= (most < fits ? most : fits),
                          "%d ranks: %s of %llu bytes alone", nranks, bl_kernel_name(kernel), (unsigned long long)most);
                    l = whole;
                    bl_staging_trim(&l, nranks, bytes);
                    CHECK(bl_kernel_capacity(kernel, nranks, &l) >= (most < fits ? most : fits),
                          "%d ranks: %s of %llu bytes", nranks, bl_kernel_name(kernel), (unsigned long long)most);
                    const uint64_t unreceived = bl_kernel_unreceived(kernel, nranks, &whole);
                    CHECK(bl_kernel_unreceived(kernel, nranks, &l) >= (most < unreceived ? most : unreceived),
                          "%d ranks: %s of %llu bytes", nranks, bl_kernel_name(kernel), (unsigned long long)most);
                }
                check_layout(&l, nranks, UINT64_MAX);
                CHECK(l.bytes >= last && l.bytes <= whole.bytes && l.copy_bytes == whole.copy_bytes &&
                      l.multicast_bytes == whole.multicast_bytes);
                last = l.bytes;
            }
            CHECK(memcmp(&l, &whole, sizeof l) == 0, "%d ranks: all is used", nranks);
        }
}
static void trims(void) {
    trims_of(BL_STAGING_USUAL);
    trims_of(3ull * BL_STAGING_USUAL);
}

/* What the default memory holds in one launch is what the algorithms are used for. */
static void capacities(void) {
    struct bl_staging_layout l;
    for (int nranks = 2; nranks <= BL_MAX_RANKS; nranks++) {
        CHECK(bl_staging_plan(&l, nranks, BL_STAGING_USUAL, false, false) == 0);
        CHECK(bl_kernel_capacity(BL_KERNEL_ALLREDUCE_ONESHOT_LL, nranks, &l) >= 64 << 10);
        CHECK(bl_kernel_capacity(BL_KERNEL_ALLREDUCE_ONESHOT_LL128, nranks, &l) >=
              (nranks == 2 ? 4u << 20 : 192u << 10));
        CHECK(bl_kernel_capacity(BL_KERNEL_ALLREDUCE_TWOSHOT_LL128, nranks, &l) >=
              (nranks <= 10 ? 13u << 20 : 12u << 20));
        const uint64_t sent = bl_kernel_capacity(BL_KERNEL_ALLGATHER_LL128, nranks, &l) * ((uint64_t)nranks - 1);
        CHECK(sent >= (nranks == 3 ? 11u << 20 : nranks == 4 ? 15u << 20 : 16u << 20));
        CHECK(bl_kernel_unreceived(BL_KERNEL_SENDRECV_LL128, nranks, &l) >= (nranks <= 3   ? 1080u << 10
                                                                             : nranks == 4 ? 540u << 10
                                                                             : nranks <= 8 ? 64u << 10
                                                                                           : 32u << 10));
        CHECK(bl_kernel_capacity(BL_KERNEL_REDUCESCATTER_LL128, nranks, &l) ==
              bl_kernel_capacity(BL_KERNEL_ALLGATHER_LL128, nranks, &l));
        for (int kernel = 0; kernel < BL_KERNELS; kernel++) {
            CHECK(!is_batch(kernel) || !bl_kernel_in_pieces(kernel, nranks), "%s", bl_kernel_name(kernel));
            CHECK(!is_batch(kernel) || bl_kernel_pairs(kernel) ||
                  bl_kernel_capacity(kernel, nranks, &l) % bl_kernel_line(kernel) == 0);
        }
        CHECK(bl_kernel_capacity(BL_KERNEL_BROADCAST_LL128, nranks, &l) * ((uint64_t)nranks - 1) >= 2u << 20);
        CHECK(bl_kernel_in_pieces(BL_KERNEL_BROADCAST_LL128, nranks) &&
              bl_kernel_in_pieces(BL_KERNEL_REDUCE_LL128, nranks));
        CHECK(bl_kernel_in_pieces(BL_KERNEL_ALLGATHER_LL128, nranks));
        CHECK(bl_kernel_in_pieces(BL_KERNEL_REDUCESCATTER_LL128, nranks));
        CHECK(bl_kernel_in_pieces(BL_KERNEL_ALLGATHER_CE, nranks));
        CHECK(!bl_kernel_in_pieces(BL_KERNEL_ALLREDUCE_ONESHOT_LL, nranks));
        CHECK(bl_kernel_in_pieces(BL_KERNEL_ALLREDUCE_ONESHOT_LL128, nranks) == (nranks == 2));
        CHECK(bl_kernel_in_pieces(BL_KERNEL_ALLREDUCE_TWOSHOT_LL128, nranks));
        CHECK(bl_kernel_unreceived(BL_KERNEL_SENDRECV_LL128, nranks, &l) >= (nranks == 2   ? 1u << 20
                                                                             : nranks <= 6 ? 256u << 10
                                                                             : nranks <= 8 ? 128u << 10
                                                                                           : 32u << 10),
              "%d ranks: messages of up to %llu bytes", nranks,
              (unsigned long long)bl_kernel_unreceived(BL_KERNEL_SENDRECV_LL128, nranks, &l));
        CHECK(bl_kernel_in_pieces(BL_KERNEL_SENDRECV_LL128, nranks));
        CHECK(bl_kernel_capacity(BL_KERNEL_SENDRECV_LL128, nranks, &l) >= (uint64_t)1 << 40,
              "messages of any size: what the ring does not hold waits");
        check_pair_warps(&l);
        /* The copy engines' slots leave enough for the kernels. */
        CHECK(bl_staging_plan(&l, nranks, BL_STAGING_USUAL, true, false) == 0);
        CHECK(l.copy_bytes > (48u << 20) / (bl_copy_slots(nranks) * ((unsigned)nranks - 1)) - 128,
              "%d ranks: slots of %llu", nranks, (unsigned long long)l.copy_bytes);
        CHECK(bl_kernel_capacity(BL_KERNEL_ALLREDUCE_ONESHOT_LL, nranks, &l) >= 64 << 10);
        CHECK(bl_kernel_capacity(BL_KERNEL_ALLGATHER_LL128, nranks, &l) >= 128 << 10);
        /* Of the least staging, which test/ranks/matrix.py has cases at the edges of. */
        CHECK(bl_staging_plan(&l, nranks, 1 << 20, true, false) || nranks > 4 ||
              l.copy_bytes == (nranks == 4 ? 262144 : 393216));
        CHECK(bl_staging_plan(&l, nranks, 1 << 20, true, false) || nranks != 8 || l.copy_bytes == 83584);
        /* A multicast object takes nothing from what the lines need, but the rings do. */
        struct bl_staging_layout without = l;
        CHECK(bl_staging_plan(&without, nranks, BL_STAGING_USUAL, false, false) == 0);
        CHECK(bl_staging_plan(&l, nranks, BL_STAGING_USUAL, false, true) == 0);
        CHECK(l.multicast_half >= 7 << 20 && l.multicast_bytes + l.bytes <= BL_STAGING_USUAL);
        CHECK(l.bytes <= without.bytes && l.packets == without.packets);
        CHECK(nranks <= 4 ? l.peer_lines * ((uint64_t)nranks - 1) * BL_LINE_DATA >= large_enough(nranks)
                          : l.peer_lines >= without.peer_lines / 10 * 9,
              "%d ranks: %llu lines of %llu", nranks, (unsigned long long)l.peer_lines,
              (unsigned long long)without.peer_lines);
        CHECK(bl_kernel_capacity(BL_KERNEL_ALLREDUCE_ONESHOT_NVLS, nranks, &l) >= 64 << 10);
        for (int kernel = 0; kernel < BL_KERNELS; kernel++) {
            const bool multicast = strstr(bl_kernel_name(kernel), "nvls");
            CHECK(bl_kernel_multicast(kernel) == multicast, "%s", bl_kernel_name(kernel));
            CHECK(!multicast || !bl_kernel_capacity(kernel, nranks, &without));
            if (multicast) CHECK(bl_kernel_in_pieces(kernel, nranks) == (kernel != BL_KERNEL_ALLREDUCE_ONESHOT_NVLS));
        }
    }
}

/* Lines have what rings that no route needs give up, up to what a launch is to have. */
static void room_of_rings(void) {
    uint64_t gathers[BL_KERNELS] = {[BL_KERNEL_ALLGATHER_LL128] = UINT64_C(1) << 40};
    for (int nranks = 3; nranks <= 4; nranks++) {
        struct bl_staging_layout whole, l, usual;
        CHECK(bl_staging_plan(&usual, nranks, BL_STAGING_USUAL, false, false) == 0);
        CHECK(bl_staging_plan(&whole, nranks, BL_STAGING_USUAL / 2, false, false) == 0);
        l = whole;
        bl_staging_trim(&l, nranks, gathers);
        CHECK(l.peer_lines > whole.peer_lines && l.bytes <= whole.bytes, "%d ranks: %llu lines of %llu", nranks,
              (unsigned long long)l.peer_lines, (unsigned long long)whole.peer_lines);
        l = usual;
        bl_staging_trim(&l, nranks, gathers);
        CHECK(l.peer_lines * ((uint64_t)nranks - 1) * BL_LINE_DATA <= 25 << 20, "%d ranks", nranks);
    }
}

/* More of it is for longer launches, and makes none shorter than the usual. */
static void more_memory(void) {
    for (int nranks = 2; nranks <= BL_MAX_RANKS; nranks++)
        for (int with = 0; with < 4; with++) {
            struct bl_staging_layout usual, l;
            CHECK(bl_staging_plan(&usual, nranks, BL_STAGING_USUAL, with & 1, with & 2) == 0);
            /* Beside multicast rings of pairs grow first, at the lines' expense. */
            for (uint64_t bytes = (with & 2 ? 2 : 1) * BL_STAGING_USUAL; bytes <= 1 << 30; bytes += 7654321) {
                CHECK(bl_staging_plan(&l, nranks, bytes, with & 1, with & 2) == 0);
                for (int kernel = 0; kernel < BL_KERNELS; kernel++)
                    CHECK(bl_kernel_capacity(kernel, nranks, &l) >= bl_kernel_capacity(kernel, nranks, &usual) &&
                              bl_kernel_unreceived(kernel, nranks, &l) >= bl_kernel_unreceived(kernel, nranks, &usual),
                          "%d ranks, %llu bytes, with %d: %s", nranks, (unsigned long long)bytes, with,
                          bl_kernel_name(kernel));
            }
        }
    struct bl_staging_layout l;
    for (int nranks = 2; nranks <= 4; nranks++) {
        CHECK(bl_staging_plan(&l, nranks, 320 << 20, false, false) == 0);
        CHECK(bl_kernel_capacity(BL_KERNEL_ALLREDUCE_TWOSHOT_LL128, nranks, &l) >= 64 << 20, "%d ranks", nranks);
    }
}

/* What the instruction has, as ptxas takes it. */
static void multimem(void) {
    enum { SUM = 1 << BL_SUM, ALL = 1 << BL_SUM | 1 << BL_MIN | 1 << BL_MAX };
    static const uint32_t hopper[BL_DATATYPES] = {0, 0, ALL, ALL, ALL, ALL, ALL, SUM, SUM, ALL, 0, 0};
    for (int d = 0; d < BL_DATATYPES; d++) {
        const bool f8 = d == BL_FLOAT8E4M3 || d == BL_FLOAT8E5M2;
        CHECK(bl_multimem_redops(d, 80) == 0 && bl_multimem_redops(d, 89) == 0, "%s", bl_datatype_name(d));
        CHECK(bl_multimem_redops(d, 90) == hopper[d] && bl_multimem_redops(d, 120) == hopper[d], "%s",
              bl_datatype_name(d));
        CHECK(bl_multimem_redops(d, 100) == (f8 ? (uint32_t)ALL : hopper[d]), "%s", bl_datatype_name(d));
        CHECK(bl_multimem_redops(d, 103) == bl_multimem_redops(d, 100), "%s", bl_datatype_name(d));
    }
    CHECK(bl_multimem_redops(-1, 100) == 0 && bl_multimem_redops(BL_DATATYPES, 100) == 0);
}

/* Those by warps need a warp for each two ranks, those of pieces one for each role and one that tells, and have no more than leave others room; nothing else
 * asks for more than was wished for, and one for less. */
static void threads(void) {
    for (int k = 0; k < BL_KERNELS; k++)
        for (int n = 2; n <= BL_MAX_RANKS; n++)
            for (unsigned wished = 0; wished <= BL_MAX_THREADS; wished += 32) {
                const unsigned least = strstr(bl_kernel_name(k), ":warps") ? ((unsigned)n + 1) / 2 * 32
                                       : bl_kernel_bulk(k)                 ? 4 * 32
                                                                           : 32;
                const unsigned given = bl_kernel_threads(k, n, wished);
                const unsigned most = k == BL_KERNEL_ALLGATHER_CE ? least /* single warps */
                                      : bl_kernel_bulk(k)         ? 7 * 32
                                                                  : BL_MAX_THREADS;
                CHECK(given == (wished < least  ? least
                                : wished > most ? most
                                                : wished),
                      "%s, %d ranks: %u threads for %u", bl_kernel_name(k), n, given, wished);
            }
}

static void names(void) {
    static const size_t sizes[BL_DATATYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    static const int unknown[] = {-1, BL_DATATYPES, 1000}, no_kernel[] = {-1, BL_KERNELS, 1000};
    char symbol[128], seen[BL_KERNELS * BL_DATATYPES * 4][128];
    int symbols = 0;
    for (int d = 0; d < BL_DATATYPES; d++) {
        CHECK(bl_datatype_size(d) == sizes[d], "%s", bl_datatype_name(d));
        CHECK(strcmp(bl_datatype_name(d), "?") != 0);
        for (int k = 0; k < BL_KERNELS; k++)
            for (int n = 2; n <= BL_MAX_RANKS; n++) {
                int status = bl_kernel_symbol(k, d, n, symbol, sizeof symbol);
                const bool by_switch = k == BL_KERNEL_ALLREDUCE_TWOSHOT_NVLS || k == BL_KERNEL_REDUCESCATTER_NVLS;
                CHECK((status == 0) == (!by_switch || bl_multimem_redops(d, 100)), "%s %s %d", bl_kernel_name(k),
                      bl_datatype_name(d), n);
                if (status) continue;
                int s = 0;
                while (s < symbols && strcmp(seen[s], symbol) != 0) s++;
                if (s == symbols) strcpy(seen[symbols++], symbol);
            }
    }
    /* One for each datatype where it matters; of those by warps, and for messages between two ranks, one, of batches three, of others four; see enum instances. */
    int expected = 0;
    for (int k = 0; k < BL_KERNELS; k++) {
        const char *name = bl_kernel_name(k);
        const bool moves =
            strstr(name, "gather") || strstr(name, "alltoall") || strstr(name, "broadcast") || strstr(name, "sendrecv");
        CHECK(bl_kernel_reduces(k) == !moves, "%s", name);
        if (k == BL_KERNEL_ALLREDUCE_TWOSHOT_NVLS || k == BL_KERNEL_REDUCESCATTER_NVLS)
            expected += BL_DATATYPES - 2; /* not 8-bit integers */
        else if (strstr(name, ":warps"))
            expected += bl_kernel_reduces(k) ? BL_DATATYPES : 1;
        else if (k == BL_KERNEL_ALLGATHER_NVLS || k == BL_KERNEL_ALLGATHER_CE || bl_kernel_pairs(k))
            expected++;
        else if (k == BL_KERNEL_ALLREDUCE_ONESHOT_NVLS)
            expected += 3 * BL_DATATYPES;
        else if (k == BL_KERNEL_REDUCESCATTER_LL128)
            expected += 5 * BL_DATATYPES;
        else
            expected += (bl_kernel_reduces(k) ? BL_DATATYPES : 1) * (is_batch(k) ? 3 : 4);
    }
    CHECK(symbols == expected, "%d symbols, expected %d", symbols, expected);
    for (int i = 0; i < 3; i++) {
        CHECK(bl_datatype_size(unknown[i]) == 0);
        CHECK(strcmp(bl_datatype_name(unknown[i]), "?") == 0);
        CHECK(strcmp(bl_redop_name(unknown[i]), "?") == 0);
        CHECK(strcmp(bl_kernel_name(no_kernel[i]), "?") == 0);
        CHECK(bl_kernel_symbol(0, unknown[i], 4, symbol, sizeof symbol) == -1);
        CHECK(bl_kernel_symbol(no_kernel[i], 0, 4, symbol, sizeof symbol) == -1);
        CHECK(bl_kernel_capacity(no_kernel[i], 4, &(struct bl_staging_layout){0}) == 0);
        CHECK(!bl_kernel_reduces(no_kernel[i]) && !bl_kernel_in_pieces(no_kernel[i], 4));
    }
    CHECK(bl_kernel_symbol(0, 0, 1, symbol, sizeof symbol) == -1 &&
          bl_kernel_symbol(0, 0, 17, symbol, sizeof symbol) == -1);
    CHECK(bl_kernel_symbol(0, 0, 4, symbol, 4) == -1, "a symbol that does not fit");
}

int main(void) {
    plans();
    trims();
    capacities();
    room_of_rings();
    more_memory();
    multimem();
    threads();
    names();
    return say_checks();
}
