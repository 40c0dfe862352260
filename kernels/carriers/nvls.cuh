/* nvls.cuh - kernels on a multicast object: where things lie behind it, the barrier, and why nobody overwrites what is
 * still to be read.
 *
 * Every rank has memory of its own behind the object, its *replica*.  An address of a.multicast stands for the same place in
 * all replicas: a store there arrives in each, a load there brings what the switch makes of all.  What a rank stores in its
 * own replica it stores through a.replica.
 *
 * Each launch takes the epoch e that the last one left behind and leaves e + 1; of the two halves of the packets and of the
 * data it uses the one that e's lowest bit names.  In every launch each rank hears from each peer before it ends: by the
 * barrier, or by packets with flag e + 1, which came never before.  So a rank in launch k+1 has ended launch k, hence each
 * peer has begun launch k, hence ended launch k-1: what launch k+1 overwrites, the half of k-1, nobody reads any more.  These
 * epochs are apart from those of staging.cuh, since the memory is.
 *
 * Once a launch has ended here, no peer touches this rank's replica any more until the next: what a peer stores here, or reads
 * here, it does before an arrival, or with a packet, that this rank waits for.  So a communicator may be taken down when its own
 * launches have ended; unless they were told to leave.
 *
 * The barrier is one word a block, for this block of all ranks: an arrival adds 16^rank to it in every replica with one
 * multimem.red.  The sum, less what it is once all have come, shows in each hexadecimal digit how far that rank is ahead
 * (MOST_AHEAD at most) or whether it is missing, so one load tells who has come.  A launch must have the same grid on all
 * ranks.  Blocks wait for the same block of the peers alone, so blocks that begin in order need not be resident together.
 */
#ifndef BEELINE_NVLS_CUH
#define BEELINE_NVLS_CUH

#include "core/staging.cuh"
#include "core/types.cuh"
#include "core/units.cuh"

enum { BARRIER_STRIDE = 128, BARRIER_BYTES = BL_MAX_BLOCKS * BARRIER_STRIDE };

/* A block's work goes in chunks, and it makes its arrival for the next chunk before it waits for this one, so a peer may be
 * ahead of what is waited for.  By how much: a rank that waits for arrival p has made p + 2 at most, in this launch or the next; so a
 * peer may wait for p + 3, and has made p + 5 by then. */
enum { MOST_CHUNKS = 4, MOST_AHEAD = 5, BIAS = 8 };
static_assert(BIAS + MOST_AHEAD < 16, "a digit of the barrier holds it");

struct Multicast {
    uint64_t e;      /* the epoch */
    uint64_t passed; /* arrivals of each rank at this block's barrier that were waited for */
    bool good;       /* no wait of this warp failed */
    Wait wait;
};

BL_DEVICE Multicast multicast_begin(const struct bl_kernel_args &a) {
    stream_wait();
    const uint64_t e = load_own(&a.multicast_words[block_in_grid()]) | load_own(&a.epochs[BL_WORD_STOP]);
    const uint64_t passed = load_own(&a.multicast_words[BL_MAX_BLOCKS + block_in_grid()]);
    const Multicast m = {e, passed, !is_stopped(e), wait_begin(e)};
    return m;
}

BL_DEVICE void multicast_end(const struct bl_kernel_args &a, const Multicast &m) {
    block_sync(); /* every warp has read the words of this block */
    if (thread_in_block() == 0) store_own(&a.multicast_words[BL_MAX_BLOCKS + block_in_grid()], m.passed);
    if (thread_in_block() == 0) store_own(&a.multicast_words[block_in_grid()], m.e + 1);
    for (unsigned b = blocks_in_grid() + thread_in_grid(); b < BL_MAX_BLOCKS; b += threads_in_grid())
        store_own(&a.multicast_words[b], m.e + 1);
}

/* Byte offsets, the same in every replica. */
BL_DEVICE uint64_t packet_offset(const struct bl_kernel_args &a, const Multicast &m, unsigned source) {
    const uint64_t half = m.e & 1;
    return BARRIER_BYTES + (half * a.nranks + source) * a.layout.multicast_packets * PACKET_BYTES;
}
BL_DEVICE uint64_t data_offset(const struct bl_kernel_args &a, const Multicast &m) {
    const uint64_t half = m.e & 1;
    return BARRIER_BYTES + 2 * a.nranks * a.layout.multicast_packets * PACKET_BYTES + half * a.layout.multicast_half;
}

/* All threads of the block call it: what they stored before is seen, through either address, by who waits for it.  False: a
 * wait of one of them has failed, and all leave the kernel: nobody hears of data that never came. */
BL_DEVICE bool arrive(const struct bl_kernel_args &a, const Multicast &m) {
    if (!block_all(m.good)) return false;
    if (thread_in_block() != 0) return true;
    fence_alias(); /* as others do who store through one address and add through the other */
    multicast_add_release_sys((uint64_t *)(a.multicast + block_in_grid() * BARRIER_STRIDE), (uint64_t)1 << 4 * a.rank);
    return true;
}

/* Waits until the next arrival of every rank.  All lanes of the warp call it together.  False: this wait, or an earlier one,
 * has failed, and the warp has nothing more to do than to meet the others where the block arrives, if it does once more. */
BL_DEVICE bool await_arrivals(const struct bl_kernel_args &a, Multicast &m) {
    if (!m.good) return false;
    const uint64_t *word = (const uint64_t *)(a.replica + block_in_grid() * BARRIER_STRIDE);
    const uint64_t ones = UINT64_C(0x1111111111111111) >> (64 - 4 * a.nranks); /* of each rank a one */
    const uint64_t come = ++m.passed * ones, enough = BIAS * ones;
    for (;;) {
        const uint64_t missing = enough & ~(load_relaxed_sys(word) - come + enough);
        if (warp_all(missing == 0)) break;
        if (wait_is_long(m.wait)) {
            unsigned peer = a.rank;
            for (unsigned r = 0; r < a.nranks; r++)
                if (missing >> 4 * r & BIAS) peer = r;
            m.good = wait_on(a, m.wait, peer);
            if (!m.good) return false;
        }
    }
    load_acquire_sys(word); /* what polls did not have to do each time */
    fence_alias(); /* before: stores through either address, here and by peers; after it: loads through the other one */
    wait_over(m.wait);
    return true;
}

/* A block's part of a run of units, and its chunks. */
struct Chunks {
    uint64_t begin, end, each;
    unsigned count;
};

/* Chunks are large enough for each of `shares` to have a unit for each thread, if the part is. */
BL_DEVICE Chunks chunks_of(uint64_t units, unsigned shares) {
    const uint64_t each_block = (units + blocks_in_grid() - 1) / blocks_in_grid();
    const uint64_t begin = block_in_grid() * each_block, end = begin + each_block;
    Chunks c;
    c.begin = begin < units ? begin : units;
    c.end = end < units ? end : units;
    const uint64_t rounds = each_block / ((uint64_t)threads_in_block() * shares);
    c.count = rounds < 1 ? 1 : rounds > MOST_CHUNKS ? (unsigned)MOST_CHUNKS : (unsigned)rounds;
    c.each = (each_block + c.count - 1) / c.count;
    return c;
}

struct Units {
    uint64_t begin, end;
};
BL_DEVICE Units chunk_at(const Chunks &c, unsigned i) {
    const uint64_t begin = c.begin + i * c.each, end = begin + c.each;
    const Units u = {begin < c.end ? begin : c.end, end < c.end ? end : c.end};
    return u;
}
/* The share of `one` of so many. */
BL_DEVICE Units share_of_units(const Units &u, unsigned one, unsigned many) {
    const uint64_t each = (u.end - u.begin + many - 1) / many, begin = u.begin + one * each, end = begin + each;
    const Units share = {begin < u.end ? begin : u.end, end < u.end ? end : u.end};
    return share;
}

/* Calls store(u, load(u)) for each unit, this block's threads side by side; some loads are under way at once, since each takes
 * as long as the way to the switch and back. */
template <class Load, class Store> BL_DEVICE void each_unit(const Units &units, Load load, Store store) {
    enum { AT_ONCE = 4 };
    const unsigned step = threads_in_block();
    for (uint64_t u = units.begin + thread_in_block(); u < units.end; u += AT_ONCE * step) {
        Pair v[AT_ONCE] = {};
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (u + k * step < units.end) v[k] = load(u + k * step);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (u + k * step < units.end) store(u + k * step, v[k]);
    }
}

/* What the instruction can do: see multimem_load_reduce. */
template <int DATATYPE> struct Multimem {
    enum { MIN_MAX = DATATYPE != BL_FLOAT32 && DATATYPE != BL_FLOAT64 };
};

/* store(u, what the switch makes of unit u), with units of data that begin at `from`. */
template <int DATATYPE, class Store>
BL_DEVICE void reduce_units(const Units &units, const unsigned char *from, unsigned redop, Store store) {
    if constexpr (Multimem<DATATYPE>::MIN_MAX) {
        if (redop == BL_MIN)
            return each_unit(
                units, [&](uint64_t u) { return multimem_load_reduce<DATATYPE, BL_MIN>(from + u * UNIT_BYTES); },
                store);
        if (redop == BL_MAX)
            return each_unit(
                units, [&](uint64_t u) { return multimem_load_reduce<DATATYPE, BL_MAX>(from + u * UNIT_BYTES); },
                store);
    }
    each_unit(
        units, [&](uint64_t u) { return multimem_load_reduce<DATATYPE, BL_SUM>(from + u * UNIT_BYTES); }, store);
}

/* For the datatypes that only code for a family has, as 100f is. */
#define BL_INSTANTIATE_FAMILY(name, function)                                                                          \
    BL_KERNEL(name##_e4m3, function<BL_FLOAT8E4M3>)                                                                    \
    BL_KERNEL(name##_e5m2, function<BL_FLOAT8E5M2>)
/* One kernel for each datatype that the instruction has, for any number of ranks; see bl_kernel_symbol().  With
 * BL_FAMILY_ONLY, for those alone. */
#ifdef BL_FAMILY_ONLY
#define BL_INSTANTIATE_MULTIMEM BL_INSTANTIATE_FAMILY
#else
#define BL_INSTANTIATE_MULTIMEM(name, function)                                                                        \
    BL_KERNEL(name##_i32, function<BL_INT32>)                                                                          \
    BL_KERNEL(name##_u32, function<BL_UINT32>)                                                                         \
    BL_KERNEL(name##_i64, function<BL_INT64>)                                                                          \
    BL_KERNEL(name##_u64, function<BL_UINT64>)                                                                         \
    BL_KERNEL(name##_f16, function<BL_FLOAT16>)                                                                        \
    BL_KERNEL(name##_f32, function<BL_FLOAT32>)                                                                        \
    BL_KERNEL(name##_f64, function<BL_FLOAT64>)                                                                        \
    BL_KERNEL(name##_bf16, function<BL_BFLOAT16>)                                                                      \
    BL_INSTANTIATE_FAMILY(name, function)
#endif

#endif
