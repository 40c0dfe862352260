/* multimem.cuh - the part of primitives.cuh that is about multicast mappings: an address of one stands for the same place
 * in the memory of every rank.
 *
 * multimem.ld_reduce as PTX has it: 16 bytes at once for floats, an element at a time for integers and fp64; fp16 and
 * bf16 are added in fp32 and rounded once, fp8 in fp16 and rounded at each step; min and max take the number where the
 * other is a NaN.  The order is the hardware's: here the driver draws it for every access.
 */
#ifndef BEELINE_EMU_MULTIMEM_CUH
#define BEELINE_EMU_MULTIMEM_CUH

#include <cuda_fp8.h>
#include <string.h>

/* Of types.cuh, which whoever instantiates multimem_load_reduce includes. */
template <class Element, class Unsigned> struct Integer;
template <class Format, int BYTES> struct Narrow;
template <class F> struct Wide;
struct FormatF16;
struct FormatBf16;
template <__nv_fp8_interpretation_t KIND> struct FormatF8;

/* What the instruction has: Type as in types.cuh, bytes of an access, whether there is a min and max, and the format to
 * which each step of a sum is rounded: that of fp8, which came with sm_100. */
template <class T, int BYTES, bool ORDERS, class Step = void> struct BlEmuMultimem {
    typedef T Type;
    typedef Step Rounds;
    enum { ACCESS = BYTES, WORDS = (BYTES + 7) / 8, HAS_ORDER = ORDERS, ARCH = __is_same(Step, void) ? 90 : 100 };
};
template <int DATATYPE> struct BlEmuMultimemOf;
template <> struct BlEmuMultimemOf<BL_INT32> : BlEmuMultimem<Integer<int32_t, uint32_t>, 4, true> {};
template <> struct BlEmuMultimemOf<BL_UINT32> : BlEmuMultimem<Integer<uint32_t, uint32_t>, 4, true> {};
template <> struct BlEmuMultimemOf<BL_INT64> : BlEmuMultimem<Integer<int64_t, uint64_t>, 8, true> {};
template <> struct BlEmuMultimemOf<BL_UINT64> : BlEmuMultimem<Integer<uint64_t, uint64_t>, 8, true> {};
template <> struct BlEmuMultimemOf<BL_FLOAT16> : BlEmuMultimem<Narrow<FormatF16, 2>, 16, true> {};
template <> struct BlEmuMultimemOf<BL_BFLOAT16> : BlEmuMultimem<Narrow<FormatBf16, 2>, 16, true> {};
template <> struct BlEmuMultimemOf<BL_FLOAT32> : BlEmuMultimem<Wide<float>, 16, false> {};
template <> struct BlEmuMultimemOf<BL_FLOAT64> : BlEmuMultimem<Wide<double>, 8, false> {};
template <>
struct BlEmuMultimemOf<BL_FLOAT8E4M3> : BlEmuMultimem<Narrow<FormatF8<__NV_E4M3>, 1>, 16, true, FormatF16> {};
template <>
struct BlEmuMultimemOf<BL_FLOAT8E5M2> : BlEmuMultimem<Narrow<FormatF8<__NV_E5M2>, 1>, 16, true, FormatF16> {};

template <class T, int REDOP, class Step>
BL_DEVICE void bl_emu_combine(typename T::Acc *v, const typename T::Acc *other) {
    for (int i = 0; i < T::ACCS; i++)
        v[i] = REDOP == BL_SUM   ? T::add(v[i], other[i])
               : REDOP == BL_MIN ? T::least(v[i], other[i])
                                 : T::most(v[i], other[i]);
    if constexpr (REDOP == BL_SUM && !__is_same(Step, void))
        for (int i = 0; i < T::ACCS; i += 2) Step::widen(Step::narrow(v + i), v + i);
}

template <int DATATYPE, int REDOP> BL_DEVICE Pair multimem_load_reduce(const void *p) {
    typedef BlEmuMultimemOf<DATATYPE> Of;
    typedef typename Of::Type T;
    static_assert(REDOP == BL_SUM || ((REDOP == BL_MIN || REDOP == BL_MAX) && Of::HAS_ORDER),
                  "multimem.ld_reduce has no such operation for the type");
    Pair result = {0, 0};
    for (unsigned at = 0; at < sizeof result; at += Of::ACCESS) {
        uint64_t words[BL_MAX_RANKS][2] = {};
        bl_emu_switch_point();
        const unsigned count = bl_emu->multicast_load(words, (const char *)p + at, Of::ACCESS, Of::ARCH);
        for (int w = 0; w < Of::WORDS; w++) {
            typename T::Acc v[T::ACCS], other[T::ACCS];
            T::unpack(words[0][w], v);
            for (unsigned i = 1; i < count; i++) {
                T::unpack(words[i][w], other);
                bl_emu_combine<T, REDOP, typename Of::Rounds>(v, other);
            }
            const uint64_t word = T::pack(v);
            memcpy((char *)&result + at + w * 8, &word, Of::ACCESS < 8 ? Of::ACCESS : 8);
        }
    }
    return result;
}

/* 16 bytes, p aligned to 16: arrives whole at each rank, at each at another time. */
BL_DEVICE void multicast_store_relaxed_sys(void *p, Pair v) {
    const uint64_t words[2] = {v.x, v.y};
    bl_emu_switch_point();
    bl_emu->multicast_store(p, words, false);
}
/* The same instruction, for what load_packet_relaxed_sys reads. */
BL_DEVICE void multicast_store_packet_relaxed_sys(void *p, uint64_t data, uint64_t flag) {
    const uint64_t words[2] = {data, flag};
    bl_emu_switch_point();
    bl_emu->multicast_store(p, words, true);
}
/* The box knows memory by its place, not by its address: it needs none. */
BL_DEVICE void fence_alias() {}
BL_DEVICE void multicast_add_release_sys(uint64_t *p, uint64_t v) {
    bl_emu_switch_point();
    bl_emu->multicast_add(p, v);
}

/* This rank's own memory that is bound: two words, in which peers store by multicast, and which they load and reduce. */
BL_DEVICE Pair load_replica_relaxed_sys(const Pair *p) {
    Pair v;
    bl_emu_switch_point();
    bl_emu->load(&v, p, sizeof v, BL_EMU_RELAXED);
    return v;
}
BL_DEVICE void store_replica_relaxed_sys(Pair *p, Pair v) {
    bl_emu_switch_point();
    bl_emu->store(p, &v, sizeof v, BL_EMU_RELAXED);
}

#endif
