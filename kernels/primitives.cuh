/* primitives.cuh - every PTX instruction and every memory access of Beeline's kernels, one function each, named for its
 * order and scope.  The emulated box replaces this header with test/emu/seam/primitives.cuh: the two offer the same
 * names, and kernels use nothing else to reach memory, time, or other threads.
 *
 * Words: a *packet* is 16 bytes, 8 of data and 8 of flag, moved by one thread in one access (single-copy atomic: .b128
 * and 16-byte vector accesses are performed whole on sm_70 and later over NVLink, as NCCL's LL relies on).  A *line* is
 * 128 bytes, 120 of data and 8 of flag, moved by 8 adjacent lanes of one warp in one access of 16 bytes each; lane 7
 * holds the flag in its upper word.  That a line written by one warp instruction arrives whole is what NCCL's LL128
 * relies on. So a flag that is seen vouches for the data beside it, and neither needs a fence.
 */
#ifndef BEELINE_PRIMITIVES_CUH
#define BEELINE_PRIMITIVES_CUH

#include <stdint.h>
#include "kernels.h"

#define BL_DEVICE        static __device__ __forceinline__
#define BL_DEVICE_MEMBER __device__ __forceinline__

/* Defines kernel `name`, which calls function(args) and takes one argument of that type by value.  Two of the
 * largest blocks fit on a multiprocessor: then the grids of two communicators can be resident at once, and neither keeps
 * the other from starting. */
#define BL_KERNEL_OF(type, name, ...)                                                                                  \
    extern "C" __global__ void __launch_bounds__(BL_MAX_THREADS, 2) name(const __grid_constant__ type args) {          \
        __VA_ARGS__(args);                                                                                             \
    }
#define BL_KERNEL(name, ...) BL_KERNEL_OF(struct bl_kernel_args, name, __VA_ARGS__)

struct Pair {
    uint64_t x, y;
};

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

/* p; the compiler must keep it, and not compute it again where it is used, in a loop that polls for instance. */
BL_DEVICE const unsigned char *kept(const unsigned char *p) {
    asm volatile("" : "+l"(p));
    return p;
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
BL_DEVICE void warp_sync() {
    __syncwarp();
}
/* What lane `from` (0..7) of this lane's group of eight passes as v; all eight call it together. */
BL_DEVICE uint64_t exchange_in_line(uint64_t v, unsigned from) {
    return __shfl_sync(0xffu << (lane_in_warp() & 24), v, from, 8);
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
    asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(packet), "l"(data), "l"(flag) : "memory");
}
BL_DEVICE PacketView load_packet_relaxed_sys(const void *packet) {
    PacketView v;
    asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];" : "=l"(v.data), "=l"(v.flag) : "l"(packet) : "memory");
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
/* All 8 lanes of the line call it together.  Lane 7's data.y is replaced by the flag. */
BL_DEVICE void store_line_relaxed_sys(void *line, unsigned part, Pair data, uint64_t flag) {
    char *p = (char *)line + part * 16;
    uint64_t y = part == 7 ? flag : data.y;
    asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(p), "l"(data.x), "l"(y) : "memory");
}
/* All 8 lanes of the line call it together; one access for the whole line. */
BL_DEVICE LineView load_line_relaxed_sys(const void *line, unsigned part) {
    LineView l;
    const char *p = (const char *)line + part * 16;
    asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];" : "=l"(l.v.x), "=l"(l.v.y) : "l"(p) : "memory");
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
BL_DEVICE void store_release_sys(uint64_t *p, uint64_t v) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

/* --- threads of a block, blocks of a grid --- */
/* Of those that have not left the kernel. */
BL_DEVICE void block_sync() {
    __syncthreads();
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
BL_DEVICE uint64_t atomic_add_acq_rel_gpu(uint64_t *p, uint64_t v) {
    uint64_t old;
    asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(p), "l"(v) : "memory");
    return old;
}

#endif
