/* primitives.cuh - every PTX instruction and every memory access of Beeline's kernels (but bulk copies: copies.cuh), one function each, named for its
 * order and scope.  The emulated box replaces this header with test/emu/seam/core/primitives.cuh: the two offer the
 * same names, and kernels use nothing else to reach memory, time, or other threads.
 *
 * Words: a *packet* is 16 bytes, 8 of data and 8 of flag, moved by one thread in one access.  A *line* is 128 bytes, moved by 8 adjacent lanes of
 * one warp, 16 bytes, a *cell*, each in one access.  Its cells come for themselves; or it has a flag, in the upper word of lane 7, and is stored and loaded
 * by an instruction of all eight.  So what is seen vouches for itself, or a flag for the data beside it, and none of them needs a fence.
 *
 * What that rests on: a packet, and a cell, on PTX: an access of type .b128 is one access, performed whole (a
 * vector access, as of .v2.b64, is one for each of its elements, in any order, by the rules, though the machine code is the same).  A line with a flag on
 * hardware: that what a warp's instruction stores to 128 aligned bytes arrives whole, and is loaded whole by one, PTX does not
 * promise.  NCCL's LL128 relies on it, and on H200 1.5e11 loads of lines that peers overwrote without pause, from one and from three
 * of them, under pressure on the L2 cache, never met a flag beside older or newer data.
 */
#ifndef BEELINE_PRIMITIVES_CUH
#define BEELINE_PRIMITIVES_CUH

#include <stdint.h>
#include <string.h>
#include "kernels.h"

/* Machine code for the sm_100 family (100f) has multimem for fp8. */
#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ == 1000
#define BL_MULTIMEM_F8
#endif

#define BL_DEVICE        static __device__ __forceinline__
#define BL_DEVICE_MEMBER __device__ __forceinline__
#define BL_DEVICE_COLD   static __device__ __noinline__ /* what is rare: where it is inlined, it costs what is not */

/* Defines kernel `name`, which calls function(args) and takes one argument of that type by value.  Two of the
 * largest blocks fit on a multiprocessor: then the grids of two communicators can be resident at once, and neither keeps
 * the other from starting. */
#define BL_KERNEL_OF(type, name, ...)                                                                                  \
    extern "C" __global__ void __launch_bounds__(BL_MAX_THREADS, 2) name(const __grid_constant__ type args) {          \
        __VA_ARGS__(args);                                                                                             \
    }
#define BL_KERNEL(name, ...) BL_KERNEL_OF(struct bl_kernel_args, name, __VA_ARGS__)
/* The same of larger blocks, of few registers a thread: they take no more of a multiprocessor. */
#define BL_KERNEL_WIDE(type, name, ...)                                                                                \
    extern "C" __global__ void __launch_bounds__(BL_PAIR_THREADS, 2) name(const __grid_constant__ type args) {         \
        __VA_ARGS__(args);                                                                                             \
    }
/* Of single warps that fit beside whatever else fills the GPU. */
#define BL_KERNEL_NARROW(type, name, ...)                                                                              \
    extern "C" __global__ void __maxnreg__(32) name(const __grid_constant__ type args) {                               \
        __VA_ARGS__(args);                                                                                             \
    }

struct Pair {
    uint64_t x, y;
};

/* 16 bytes in one access, sys scope, relaxed. */
BL_DEVICE void store_b128_relaxed_sys(void *p, uint64_t x, uint64_t y) {
    asm volatile("{ .reg .b128 v; mov.b128 v, {%1, %2}; st.relaxed.sys.global.b128 [%0], v; }" ::"l"(p), "l"(x), "l"(y)
                 : "memory");
}
BL_DEVICE Pair load_b128_relaxed_sys(const void *p) {
    Pair v;
    asm volatile("{ .reg .b128 v; ld.relaxed.sys.global.b128 v, [%2]; mov.b128 {%0, %1}, v; }"
                 : "=l"(v.x), "=l"(v.y)
                 : "l"(p)
                 : "memory");
    return v;
}

/* --- where am I --- */
BL_DEVICE unsigned thread_in_grid() {
    return blockIdx.x * blockDim.x + threadIdx.x;
}
BL_DEVICE unsigned threads_in_grid() {
    return gridDim.x * blockDim.x;
}
BL_DEVICE unsigned lane_in_warp() {
    return threadIdx.x & 31;
}
BL_DEVICE unsigned block_in_grid() {
    return blockIdx.x;
}
BL_DEVICE unsigned blocks_in_grid() {
    return gridDim.x;
}
BL_DEVICE unsigned thread_in_block() {
    return threadIdx.x;
}
BL_DEVICE unsigned threads_in_block() {
    return blockDim.x;
}

/* --- arithmetic of floats that a host has otherwise --- */
/* The number where the other is a NaN; -0.0 is below +0.0. */
BL_DEVICE float number_min(float a, float b) {
    return fminf(a, b);
}
BL_DEVICE float number_max(float a, float b) {
    return fmaxf(a, b);
}
BL_DEVICE double number_min(double a, double b) {
    return fmin(a, b);
}
BL_DEVICE double number_max(double a, double b) {
    return fmax(a, b);
}
/* x, what a sum or product has made: of NaNs there is one. */
template <class F> BL_DEVICE F result_of(F x) {
    return x;
}
/* x * y + z, rounded once. */
template <class F> BL_DEVICE F fused(F x, F y, F z) {
    return fma(x, y, z);
}

/* p; the compiler must keep it, and not compute it again where it is used, in a loop that polls for instance. */
BL_DEVICE const unsigned char *kept(const unsigned char *p) {
    asm volatile("" : "+l"(p));
    return p;
}

/* v; the compiler must not know what it is, or it would compute what follows from it ahead of a loop, where that takes registers all the
 * way, though it is rarely used. */
BL_DEVICE unsigned opaque(unsigned v) {
    asm volatile("" : "+r"(v));
    return v;
}
BL_DEVICE uint64_t opaque(uint64_t v) {
    asm volatile("" : "+l"(v));
    return v;
}

/* --- what came before on the stream --- */
/* Until it returns, the stream's earlier work may still run: a launch may start early (programmatic dependent launch).
 * Nothing may be read or written before. */
BL_DEVICE void stream_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* --- warp --- */
/* True on hardware when `mine` is true on all lanes of the warp, which must be converged.  The emulated box returns
 * `mine`: a loop that ends on warp_all must be right when each lane ends on its own. */
BL_DEVICE bool warp_all(bool mine) {
    return __all_sync(0xffffffffu, mine);
}
/* The least of what the lanes pass, which must be converged.  The emulated box returns `mine`. */
BL_DEVICE unsigned warp_least(unsigned mine) {
    return __reduce_min_sync(0xffffffffu, mine);
}
BL_DEVICE void warp_sync() {
    __syncwarp();
}
/* The same behind code in which lanes may part, between two votes of one loop.  In the emulated box each lane goes round such a
 * loop on its own. */
BL_DEVICE void warp_rejoin() {
    __syncwarp();
}
/* What all lanes pass, or'ed; what lane `from` (0..31) passes as v.  All lanes of the warp call them together. */
BL_DEVICE uint32_t warp_or(uint32_t mine) {
    return __reduce_or_sync(0xffffffffu, mine);
}
BL_DEVICE uint32_t exchange_in_warp(uint32_t v, unsigned from) {
    return __shfl_sync(0xffffffffu, v, from);
}
/* The number of the lowest bit of v, which is not 0. */
BL_DEVICE unsigned lowest_bit(uint32_t v) {
    return (unsigned)__ffs((int)v) - 1;
}
/* What lane `from` (0..7) of this lane's group of eight passes as v; all eight call it together. */
template <class V> BL_DEVICE V exchange_in_line(V v, unsigned from) {
    return __shfl_sync(0xffu << (lane_in_warp() & 24), v, from, 8);
}

/* What the lane 8 further up or down passes as v, of lanes 0-15 or 16-31; all 16 call it together. */
BL_DEVICE uint64_t exchange_halves(uint64_t v) {
    return __shfl_xor_sync(0xffffu << (lane_in_warp() & 16), v, 8);
}

/* --- user buffers and this device's own words: plain accesses, ordered by the stream alone --- */
template <class T> BL_DEVICE T load_own(const T *p) {
    return *p;
}
template <class T> BL_DEVICE void store_own(T *p, T v) {
    *p = v;
}

/* Asks for what lies at p in the L2 cache; it will be loaded soon. */
BL_DEVICE void prefetch_own(const void *p) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/* --- packets, sys scope, relaxed --- */
struct PacketView {
    uint64_t data, flag;
};
BL_DEVICE void store_packet_relaxed_sys(void *packet, uint64_t data, uint64_t flag) {
    store_b128_relaxed_sys(packet, data, flag);
}
BL_DEVICE PacketView load_packet_relaxed_sys(const void *packet) {
    const Pair whole = load_b128_relaxed_sys(packet);
    const PacketView v = {whole.x, whole.y};
    return v;
}
BL_DEVICE bool packet_arrived(const PacketView &v, uint64_t flag) {
    return v.flag == flag;
}
BL_DEVICE uint64_t packet_data(const PacketView &v) {
    return v.data;
}
/* As if `data` had been loaded. */
BL_DEVICE PacketView packet_of(uint64_t data) {
    PacketView v;
    v.data = data;
    v.flag = 0;
    return v;
}

/* --- lines, sys scope, relaxed; `part` (0..7) is the lane within the line --- */
struct LineView {
    Pair v;
};
/* A cell: any lane for itself, though one access for the whole line where all eight do so together. */
BL_DEVICE void store_cell_relaxed_sys(void *line, unsigned part, Pair v) {
    store_b128_relaxed_sys((char *)line + part * 16, v.x, v.y);
}
BL_DEVICE LineView load_cell_relaxed_sys(const void *line, unsigned part) {
    const LineView l = {load_b128_relaxed_sys((const char *)line + part * 16)};
    return l;
}
/* A cell of this rank's own, which nobody else stores to, or waits for, before the launch has ended: plain. */
BL_DEVICE void store_own_cell(void *line, unsigned part, Pair v) {
    asm volatile("st.global.v2.b64 [%0], {%1, %2};" ::"l"((char *)line + part * 16), "l"(v.x), "l"(v.y) : "memory");
}
/* bits | (a ^ b), in a way that the compiler does not turn into comparisons. */
BL_DEVICE uint32_t or_difference(uint32_t bits, uint32_t a, uint32_t b) {
    asm("lop3.b32 %0, %1, %2, %0, 0xbe;" : "+r"(bits) : "r"(a), "r"(b));
    return bits;
}
/* By arithmetic: comparisons take predicates, of which there are few, and polls then wait for one load before the next. */
BL_DEVICE bool cell_arrived(const LineView &l, Pair blank) {
    uint32_t bits = or_difference(0, (uint32_t)l.v.x, (uint32_t)blank.x);
    bits = or_difference(bits, (uint32_t)(l.v.x >> 32), (uint32_t)(blank.x >> 32));
    bits = or_difference(bits, (uint32_t)l.v.y, (uint32_t)blank.y);
    return or_difference(bits, (uint32_t)(l.v.y >> 32), (uint32_t)(blank.y >> 32)) != 0;
}
/* A line with a flag. */
/* All 8 lanes of the line call it together: a warp_sync, called by all lanes of the warp, stands ahead of it, and no access to
 * memory of another kind in between, since lanes may part there.  The emulated box fails a kernel of which that is not true.
 * Lane 7's data.y is replaced by the flag. */
BL_DEVICE void store_line_relaxed_sys(void *line, unsigned part, Pair data, uint64_t flag) {
    store_b128_relaxed_sys((char *)line + part * 16, data.x, part == 7 ? flag : data.y);
}
/* All 8 lanes of the line call it together, as above; one access for the whole line. */
BL_DEVICE LineView load_line_relaxed_sys(const void *line, unsigned part) {
    const LineView l = {load_b128_relaxed_sys((const char *)line + part * 16)};
    return l;
}
/* On hardware only lane 7 sees the flag and the other lanes say true: ask warp_all. */
BL_DEVICE bool line_arrived(const LineView &l, unsigned part, uint64_t flag) {
    return part != 7 || l.v.y == flag;
}
BL_DEVICE Pair line_data(const LineView &l) {
    return l.v;
}
/* As if v had been loaded. */
BL_DEVICE LineView line_of(Pair v) {
    LineView l;
    l.v = v;
    return l;
}

/* --- waiting --- */
enum { POLLS_PER_LOOK = 512 }; /* failed polls before a look at anything else is worth its time: 0.3 ms or so */
/* Called once per failed poll. */
BL_DEVICE void spin_pause() {}
BL_DEVICE uint64_t clock_ns() {
    uint64_t t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}

/* --- words in host memory, sys scope, relaxed --- */
BL_DEVICE uint32_t load_host_relaxed_sys(const uint32_t *p) {
    uint32_t v;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
BL_DEVICE void store_host_relaxed_sys(uint32_t *p, uint32_t v) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
BL_DEVICE void store_host64_relaxed_sys(uint64_t *p, uint64_t v) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
/* Orders this thread's earlier stores before its later ones, for every thread of the system. */
BL_DEVICE void fence_acq_rel_sys() {
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}

/* --- single words that peers see --- */
BL_DEVICE uint64_t load_relaxed_sys(const uint64_t *p) {
    uint64_t v;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
BL_DEVICE uint64_t load_acquire_sys(const uint64_t *p) {
    uint64_t v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
BL_DEVICE void store_relaxed_sys(uint64_t *p, uint64_t v) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
BL_DEVICE void store_relaxed_sys(uint32_t *p, uint32_t v) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
BL_DEVICE void store_release_sys(uint64_t *p, uint64_t v) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

/* --- words of this rank's own memory that peers reach through a multicast object, 16 bytes, sys scope, relaxed --- */
BL_DEVICE void store_replica_relaxed_sys(Pair *p, Pair v) {
    store_b128_relaxed_sys(p, v.x, v.y);
}
BL_DEVICE Pair load_replica_relaxed_sys(const Pair *p) {
    return load_b128_relaxed_sys(p);
}

/* --- multicast: p is where a multicast object is mapped, and stands for one place in every rank's memory.  Such an address
 * is for these alone, and they are for no other.  Older architectures have none: kernels for them are never launched. --- */
#if __CUDA_ARCH__ >= 900
/* 16 bytes, whole at each rank (NCCL's LL kernels with multicast rely on it), at each in its own time. */
BL_DEVICE void multicast_store_relaxed_sys(void *p, Pair v) {
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"((uint32_t)v.x),
                 "r"((uint32_t)(v.x >> 32)), "r"((uint32_t)v.y), "r"((uint32_t)(v.y >> 32))
                 : "memory");
}
/* Adds to a word of every rank, after all that this thread did, or knows of, is visible to whoever acquires the word. */
BL_DEVICE void multicast_add_release_sys(uint64_t *p, uint64_t v) {
    asm volatile("multimem.red.release.sys.global.add.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
/* Replica and object are two addresses of the same memory: between an access through one and an access through the other that is
 * to come after it, the PTX memory model wants this, by some thread on the way from the first to the second. */
BL_DEVICE void fence_alias() {
    asm volatile("fence.proxy.alias;" ::: "memory");
}
#else
BL_DEVICE void multicast_store_relaxed_sys(void *, Pair) {}
BL_DEVICE void multicast_add_release_sys(uint64_t *, uint64_t) {}
BL_DEVICE void fence_alias() {}
#endif
/* A packet, as load_packet_relaxed_sys loads it. */
BL_DEVICE void multicast_store_packet_relaxed_sys(void *p, uint64_t data, uint64_t flag) {
    const Pair v = {data, flag};
    multicast_store_relaxed_sys(p, v);
}

/* What the switch makes of 16 bytes at p of every rank, in an order of its own: BL_SUM, BL_MIN or BL_MAX of elements of the
 * datatype.  Half-width floats are accumulated in fp32, fp8 in fp16; each is rounded to its type once, at the end.  What has no
 * row here the instruction lacks.  fp8 is for the sm_100 family. */
#define BL_LOAD_REDUCE_V4(datatype, redop, form)                                                                       \
    if constexpr (DATATYPE == datatype && REDOP == redop) {                                                            \
        asm volatile("multimem.ld_reduce.relaxed.sys.global." form " {%0, %1, %2, %3}, [%4];"                          \
                     : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])                                                  \
                     : "l"(p)                                                                                          \
                     : "memory");                                                                                      \
    } else
#define BL_LOAD_REDUCE_32(datatype, redop, form)                                                                       \
    if constexpr (DATATYPE == datatype && REDOP == redop) {                                                            \
        _Pragma("unroll") for (int i = 0; i < 4; i++) asm volatile("multimem.ld_reduce.relaxed.sys.global." form       \
                                                                   " %0, [%1];" : "=r"(v[i]) :                         \
                                                                   "l"((const uint32_t *)p + i) : "memory");           \
    } else
#define BL_LOAD_REDUCE_64(datatype, redop, form, constraint, type)                                                     \
    if constexpr (DATATYPE == datatype && REDOP == redop) {                                                            \
        _Pragma("unroll") for (int i = 0; i < 2; i++) {                                                                \
            type d;                                                                                                    \
            asm volatile("multimem.ld_reduce.relaxed.sys.global." form " %0, [%1];"                                    \
                         : constraint(d)                                                                               \
                         : "l"((const uint64_t *)p + i)                                                                \
                         : "memory");                                                                                  \
            uint64_t bits;                                                                                             \
            memcpy(&bits, &d, 8);                                                                                      \
            v[2 * i] = (uint32_t)bits;                                                                                 \
            v[2 * i + 1] = (uint32_t)(bits >> 32);                                                                     \
        }                                                                                                              \
    } else

template <int DATATYPE, int REDOP> BL_DEVICE Pair multimem_load_reduce(const void *p) {
    uint32_t v[4] = {0, 0, 0, 0};
#if __CUDA_ARCH__ >= 900
    BL_LOAD_REDUCE_V4(BL_FLOAT16, BL_SUM, "add.acc::f32.v4.f16x2")
    BL_LOAD_REDUCE_V4(BL_FLOAT16, BL_MIN, "min.v4.f16x2")
    BL_LOAD_REDUCE_V4(BL_FLOAT16, BL_MAX, "max.v4.f16x2")
    BL_LOAD_REDUCE_V4(BL_BFLOAT16, BL_SUM, "add.acc::f32.v4.bf16x2")
    BL_LOAD_REDUCE_V4(BL_BFLOAT16, BL_MIN, "min.v4.bf16x2")
    BL_LOAD_REDUCE_V4(BL_BFLOAT16, BL_MAX, "max.v4.bf16x2")
    BL_LOAD_REDUCE_V4(BL_FLOAT32, BL_SUM, "add.v4.f32")
    BL_LOAD_REDUCE_64(BL_FLOAT64, BL_SUM, "add.f64", "=d", double)
    BL_LOAD_REDUCE_32(BL_INT32, BL_SUM, "add.s32")
    BL_LOAD_REDUCE_32(BL_INT32, BL_MIN, "min.s32")
    BL_LOAD_REDUCE_32(BL_INT32, BL_MAX, "max.s32")
    BL_LOAD_REDUCE_32(BL_UINT32, BL_SUM, "add.u32")
    BL_LOAD_REDUCE_32(BL_UINT32, BL_MIN, "min.u32")
    BL_LOAD_REDUCE_32(BL_UINT32, BL_MAX, "max.u32")
    BL_LOAD_REDUCE_64(BL_INT64, BL_SUM, "add.u64", "=l", uint64_t)
    BL_LOAD_REDUCE_64(BL_INT64, BL_MIN, "min.s64", "=l", uint64_t)
    BL_LOAD_REDUCE_64(BL_INT64, BL_MAX, "max.s64", "=l", uint64_t)
    BL_LOAD_REDUCE_64(BL_UINT64, BL_SUM, "add.u64", "=l", uint64_t)
    BL_LOAD_REDUCE_64(BL_UINT64, BL_MIN, "min.u64", "=l", uint64_t)
    BL_LOAD_REDUCE_64(BL_UINT64, BL_MAX, "max.u64", "=l", uint64_t)
#ifdef BL_MULTIMEM_F8
    BL_LOAD_REDUCE_V4(BL_FLOAT8E4M3, BL_SUM, "add.acc::f16.v4.e4m3x4")
    BL_LOAD_REDUCE_V4(BL_FLOAT8E4M3, BL_MIN, "min.v4.e4m3x4")
    BL_LOAD_REDUCE_V4(BL_FLOAT8E4M3, BL_MAX, "max.v4.e4m3x4")
    BL_LOAD_REDUCE_V4(BL_FLOAT8E5M2, BL_SUM, "add.acc::f16.v4.e5m2x4")
    BL_LOAD_REDUCE_V4(BL_FLOAT8E5M2, BL_MIN, "min.v4.e5m2x4")
    BL_LOAD_REDUCE_V4(BL_FLOAT8E5M2, BL_MAX, "max.v4.e5m2x4")
#endif
    static_assert(DATATYPE == BL_FLOAT8E4M3 || DATATYPE == BL_FLOAT8E5M2, "the instruction has no such form");
#endif
    const Pair result = {v[0] | (uint64_t)v[1] << 32, v[2] | (uint64_t)v[3] << 32};
    return result;
}
#undef BL_LOAD_REDUCE_V4
#undef BL_LOAD_REDUCE_32
#undef BL_LOAD_REDUCE_64

/* --- threads of a block, blocks of a grid --- */
/* Of those that have not left the kernel. */
BL_DEVICE void block_sync() {
    __syncthreads();
}
/* The same, and true if all of them said true. */
BL_DEVICE bool block_all(bool mine) {
    return __syncthreads_and(mine);
}
/* So many words that the threads share, of any content at first: one array for each number of words. */
template <int WORDS> BL_DEVICE uint64_t *block_words() {
    __shared__ uint64_t words[WORDS];
    return words;
}
BL_DEVICE uint64_t load_block(const uint64_t *p) {
    return *p;
}
BL_DEVICE void store_block(uint64_t *p, uint64_t v) {
    *p = v;
}
/* Stores v if *p is `expected`; returns what *p was. */
BL_DEVICE uint64_t atomic_cas_relaxed_gpu(uint64_t *p, uint64_t expected, uint64_t v) {
    uint64_t old;
    asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(old)
                 : "l"(p), "l"(expected), "l"(v)
                 : "memory");
    return old;
}
BL_DEVICE uint64_t atomic_add_relaxed_gpu(uint64_t *p, uint64_t v) {
    uint64_t old;
    asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(p), "l"(v) : "memory");
    return old;
}
BL_DEVICE uint64_t atomic_add_acq_rel_gpu(uint64_t *p, uint64_t v) {
    uint64_t old;
    asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(p), "l"(v) : "memory");
    return old;
}

#endif
