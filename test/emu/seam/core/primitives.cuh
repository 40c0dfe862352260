/* primitives.cuh - the emulated box's stand-in for kernels/core/primitives.cuh: the same names, for kernels compiled
 * with a host compiler.  Each CUDA thread is a fiber of the emulated driver, and each primitive is a point at which another
 * may run.
 *
 * What is modelled: stores to memory that peers can see are delivered late and out of order, except that stores to one
 * address keep their order, a packet, a cell or a line with a flag is delivered whole, and a fence or release delivers all that came before
 * it. Loads of such memory may return what was there before the newest store until the thread has acquired.
 */
#ifndef BEELINE_PRIMITIVES_CUH
#define BEELINE_PRIMITIVES_CUH

#include <stdint.h>

/* What kernel sources say around functions.  CUDA's own headers, which some of them include for the datatypes, have
 * empty definitions for a host compiler: those come first. */
#if __has_include(<vector_types.h>)
#include <vector_types.h>
#endif
#define BL_EMU_EMPTY
#ifndef __device__
#define __device__   BL_EMU_EMPTY
#define __host__     BL_EMU_EMPTY
#define __global__   BL_EMU_EMPTY
#define __constant__ BL_EMU_EMPTY
#endif
#ifndef __forceinline__
#define __forceinline__ inline __attribute__((always_inline))
#endif
#ifndef __launch_bounds__
#define __launch_bounds__(...)
#endif
#ifndef __grid_constant__
#define __grid_constant__
#endif

#include "kernels.h"
#include "seam.h"

/* One pointer a library, set by the driver. */
extern "C" {
__attribute__((weak, visibility("default"))) struct bl_emu_seam *bl_emu;
}

/* Inlined where the compiler likes: forced, as on a GPU, it takes nearly three times as long to compile, and runs no faster. */
#define BL_DEVICE        static inline __attribute__((unused))
#define BL_DEVICE_MEMBER inline
#define BL_DEVICE_COLD   static __attribute__((noinline, unused))

/* The size of the argument goes with the kernel, so that the driver can copy it at launch; and the most threads of a block, as launch
 * bounds say. */
#define BL_EMU_KERNEL(threads, type, name, ...)                                                                        \
    extern "C" __attribute__((visibility("default"))) const unsigned name##_argument_size;                             \
    const unsigned name##_argument_size = sizeof(type);                                                                \
    extern "C" __attribute__((visibility("default"))) const unsigned name##_most_threads;                              \
    const unsigned name##_most_threads = threads;                                                                      \
    extern "C" __attribute__((visibility("default"))) void name(const type *args);                                     \
    void name(const type *args) {                                                                                      \
        __VA_ARGS__(*args);                                                                                            \
    }
#define BL_KERNEL_OF(type, name, ...)     BL_EMU_KERNEL(BL_MAX_THREADS, type, name, __VA_ARGS__)
#define BL_KERNEL(name, ...)              BL_KERNEL_OF(struct bl_kernel_args, name, __VA_ARGS__)
#define BL_KERNEL_WIDE(type, name, ...)   BL_EMU_KERNEL(BL_PAIR_THREADS, type, name, __VA_ARGS__)
#define BL_KERNEL_NARROW(type, name, ...) BL_EMU_KERNEL(1024, type, name, __VA_ARGS__)

struct Pair {
    uint64_t x, y;
};

BL_DEVICE void bl_emu_switch_point() {
    if (--bl_emu->budget < 0) bl_emu->yield();
}

/* --- where am I --- */
BL_DEVICE unsigned thread_in_grid() {
    return bl_emu->block.x * bl_emu->block_dim.x + bl_emu->thread.x;
}
BL_DEVICE unsigned threads_in_grid() {
    return bl_emu->grid_dim.x * bl_emu->block_dim.x;
}
BL_DEVICE unsigned lane_in_warp() {
    return bl_emu->thread.x & 31;
}
BL_DEVICE unsigned block_in_grid() {
    return bl_emu->block.x;
}
BL_DEVICE unsigned blocks_in_grid() {
    return bl_emu->grid_dim.x;
}
BL_DEVICE unsigned thread_in_block() {
    return bl_emu->thread.x;
}
BL_DEVICE unsigned threads_in_block() {
    return bl_emu->block_dim.x;
}

/* --- arithmetic: what a GPU's instructions do; a host's libm leaves the sign of zero open --- */
template <class F> BL_DEVICE F number_min(F a, F b) {
    if (a == b) return __builtin_signbit(a) ? a : b;
    return b < a || a != a ? b : a;
}
template <class F> BL_DEVICE F number_max(F a, F b) {
    if (a == b) return __builtin_signbit(a) ? b : a;
    return b > a || a != a ? b : a;
}
/* A GPU's arithmetic has one NaN; a host's passes on that of the operand which its compiler happened to put first. */
template <class F> BL_DEVICE F result_of(F x) {
    return x != x ? (F)__builtin_nan("") : x;
}
/* Which a host's compiler makes a call of, slow for what is mostly a sum. */
template <class F> BL_DEVICE F fused(F x, F y, F z) {
    return y == 1                       ? x + z
           : sizeof(F) == sizeof(float) ? (F)__builtin_fmaf((float)x, (float)y, (float)z)
                                        : (F)__builtin_fma(x, y, z);
}

BL_DEVICE const unsigned char *kept(const unsigned char *p) {
    return p;
}

template <class V> BL_DEVICE V opaque(V v) {
    return v;
}

/* --- what came before on the stream --- */
BL_DEVICE void stream_wait() {
    bl_emu->stream_wait();
}

/* --- warp: lanes run on their own, in any order, and meet only where they wait for each other --- */
BL_DEVICE bool warp_all(bool mine) {
    return mine;
}
BL_DEVICE unsigned warp_least(unsigned mine) {
    return mine;
}
BL_DEVICE void warp_sync() {
    bl_emu->warp_sync();
}
BL_DEVICE void warp_rejoin() {}
BL_DEVICE uint32_t exchange_in_warp(uint32_t v, unsigned from) {
    bl_emu_switch_point();
    return (uint32_t)bl_emu->exchange(v, (bl_emu->thread.x & ~31u) + from, BL_EMU_WARP);
}
BL_DEVICE uint32_t warp_or(uint32_t mine) {
    for (unsigned step = 1; step < 32; step *= 2) mine |= exchange_in_warp(mine, (bl_emu->thread.x & 31) ^ step);
    return mine;
}
BL_DEVICE unsigned lowest_bit(uint32_t v) {
    return (unsigned)__builtin_ctz(v);
}
template <class V> BL_DEVICE V exchange_in_line(V v, unsigned from) {
    bl_emu_switch_point();
    return (V)bl_emu->exchange(v, (bl_emu->thread.x & ~7u) + from, BL_EMU_LINE);
}
BL_DEVICE uint64_t exchange_halves(uint64_t v) {
    bl_emu_switch_point();
    return bl_emu->exchange(v, bl_emu->thread.x ^ 8, BL_EMU_HALVES);
}

/* --- block --- */
BL_DEVICE void block_sync() {
    bl_emu->block_sync(true);
}
BL_DEVICE bool block_all(bool mine) {
    return bl_emu->block_sync(mine);
}
template <int WORDS> BL_DEVICE uint64_t *block_words() {
    static_assert(WORDS <= BL_EMU_BLOCK_WORDS, "the driver gives a block so many");
    return bl_emu->block_words;
}
BL_DEVICE uint64_t load_block(const uint64_t *p) {
    bl_emu_switch_point();
    return *p;
}
BL_DEVICE void store_block(uint64_t *p, uint64_t v) {
    bl_emu_switch_point();
    *p = v;
}

/* --- user buffers and this device's own words --- */
BL_DEVICE void prefetch_own(const void *) {} /* no cache here */
template <class T> BL_DEVICE T load_own(const T *p) {
    static_assert(sizeof(T) <= 16, "one access");
    T v;
    bl_emu_switch_point();
    bl_emu->load(&v, p, sizeof v, BL_EMU_OWN);
    return v;
}
template <class T> BL_DEVICE void store_own(T *p, T v) {
    static_assert(sizeof(T) <= 16, "one access");
    bl_emu_switch_point();
    bl_emu->store(p, &v, sizeof v, BL_EMU_OWN);
}

/* --- packets --- */
struct PacketView {
    uint64_t data, flag;
    const void *at; /* of the flag */
};
BL_DEVICE bool bl_emu_arrived(uint64_t seen, uint64_t flag, const void *at) {
    if (seen == flag) return true;
    bl_emu->missing = at;
    bl_emu->saw = seen;
    return false;
}
BL_DEVICE bool bl_emu_arrived_but(uint64_t seen, uint64_t blank, const void *at) {
    if (seen != blank) return true;
    bl_emu->missing = at;
    bl_emu->saw = seen;
    return false;
}
BL_DEVICE void store_packet_relaxed_sys(void *packet, uint64_t data, uint64_t flag) {
    bl_emu_switch_point();
    bl_emu->store_packet(packet, data, flag);
}
BL_DEVICE PacketView load_packet_relaxed_sys(const void *packet) {
    uint64_t v[2];
    bl_emu_switch_point();
    bl_emu->load_packet(v, packet);
    return PacketView{v[0], v[1], (const uint64_t *)packet + 1};
}
BL_DEVICE bool packet_arrived(const PacketView &v, uint64_t flag) {
    return bl_emu_arrived(v.flag, flag, v.at);
}
BL_DEVICE uint64_t packet_data(const PacketView &v) {
    return v.data;
}
BL_DEVICE PacketView packet_of(uint64_t data) {
    return PacketView{data, 0, nullptr};
}

/* --- lines: a cell is delivered as a packet is; of a line with a flag a lane cannot ask lane 7, so each carries the flag that it saw --- */
struct LineView {
    Pair v;
    uint64_t flag;
    const void *at; /* of the flag, or the cell */
};
BL_DEVICE void store_cell_relaxed_sys(void *line, unsigned part, Pair v) {
    bl_emu_switch_point();
    bl_emu->store_packet((char *)line + part * 16, v.x, v.y);
}
BL_DEVICE LineView load_cell_relaxed_sys(const void *line, unsigned part) {
    const void *cell = (const char *)line + part * 16;
    uint64_t v[2];
    bl_emu_switch_point();
    bl_emu->load_packet(v, cell);
    return LineView{{v[0], v[1]}, 0, cell};
}
BL_DEVICE void store_own_cell(void *line, unsigned part, Pair v) {
    store_cell_relaxed_sys(line, part, v); /* delivered late, too */
}
BL_DEVICE bool cell_arrived(const LineView &l, Pair blank) {
    return l.v.y != blank.y || bl_emu_arrived_but(l.v.x, blank.x, l.at);
}
BL_DEVICE void store_line_relaxed_sys(void *line, unsigned part, Pair data, uint64_t flag) {
    bl_emu_switch_point();
    bl_emu->store_line(line, part, data.x, part == 7 ? flag : data.y);
}
BL_DEVICE LineView load_line_relaxed_sys(const void *line, unsigned part) {
    uint64_t v[3];
    bl_emu_switch_point();
    bl_emu->load_line(v, line, part);
    return LineView{{v[0], v[1]}, v[2], (const uint64_t *)line + 15};
}
BL_DEVICE bool line_arrived(const LineView &l, unsigned, uint64_t flag) {
    return bl_emu_arrived(l.flag, flag, l.at);
}
BL_DEVICE Pair line_data(const LineView &l) {
    return l.v;
}
BL_DEVICE LineView line_of(Pair v) {
    return LineView{v, 0, nullptr};
}

/* --- single words that peers see --- */
#define BL_EMU_WORD(type)                                                                                              \
    BL_DEVICE type load_relaxed_sys(const type *p) {                                                                   \
        type v;                                                                                                        \
        bl_emu_switch_point();                                                                                         \
        bl_emu->load(&v, p, sizeof v, BL_EMU_RELAXED);                                                                 \
        return v;                                                                                                      \
    }                                                                                                                  \
    BL_DEVICE type load_acquire_sys(const type *p) {                                                                   \
        type v;                                                                                                        \
        bl_emu_switch_point();                                                                                         \
        bl_emu->load(&v, p, sizeof v, BL_EMU_ACQUIRE);                                                                 \
        return v;                                                                                                      \
    }                                                                                                                  \
    BL_DEVICE void store_relaxed_sys(type *p, type v) {                                                                \
        bl_emu_switch_point();                                                                                         \
        bl_emu->store(p, &v, sizeof v, BL_EMU_RELAXED);                                                                \
    }                                                                                                                  \
    BL_DEVICE void store_release_sys(type *p, type v) {                                                                \
        bl_emu_switch_point();                                                                                         \
        bl_emu->store(p, &v, sizeof v, BL_EMU_RELEASE);                                                                \
    }
BL_EMU_WORD(uint64_t)
BL_EMU_WORD(uint32_t)
#undef BL_EMU_WORD

/* --- words that the blocks of one grid share --- */
BL_DEVICE uint64_t atomic_cas_relaxed_gpu(uint64_t *p, uint64_t expected, uint64_t v) {
    bl_emu_switch_point();
    return bl_emu->atomic_cas(p, expected, v);
}
BL_DEVICE uint64_t atomic_add_relaxed_gpu(uint64_t *p, uint64_t v) {
    bl_emu_switch_point();
    return bl_emu->atomic_add(p, v, sizeof v);
}
BL_DEVICE uint64_t atomic_add_acq_rel_gpu(uint64_t *p, uint64_t v) {
    bl_emu_switch_point();
    return bl_emu->atomic_add(p, v, sizeof v);
}

/* --- waiting: a poll takes longer here --- */
enum { POLLS_PER_LOOK = 64 };
BL_DEVICE void spin_pause() {
    bl_emu->pause();
}
BL_DEVICE uint64_t clock_ns() {
    return bl_emu->clock();
}

/* --- words in host memory --- */
BL_DEVICE uint32_t load_host_relaxed_sys(const uint32_t *p) {
    uint32_t v;
    bl_emu_switch_point();
    bl_emu->load(&v, p, sizeof v, BL_EMU_RELAXED);
    return v;
}
BL_DEVICE void store_host_relaxed_sys(uint32_t *p, uint32_t v) {
    bl_emu_switch_point();
    bl_emu->store(p, &v, sizeof v, BL_EMU_RELAXED);
}
BL_DEVICE void store_host64_relaxed_sys(uint64_t *p, uint64_t v) {
    bl_emu_switch_point();
    bl_emu->store(p, &v, sizeof v, BL_EMU_RELAXED);
}
BL_DEVICE void fence_acq_rel_sys() {
    bl_emu_switch_point();
    bl_emu->fence();
}

/* --- multicast --- */
#include "multimem.cuh"

#endif
