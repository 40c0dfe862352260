/* types.cuh - datatypes: how an 8-byte word of user data becomes accumulators, how two are combined, and how they go
 * back.
 *
 * Half-width and fp8 floats are accumulated in fp32, double in fp64, and rounded once, to nearest even, at the end (fp8
 * saturates, as CUDA's own conversion to fp8 does).  Integers wrap.  avg divides the finished sum by the number of
 * ranks; integer division truncates.  min and max take the number where the other is a NaN, and -0.0 is below +0.0.
 */
#ifndef BEELINE_TYPES_CUH
#define BEELINE_TYPES_CUH

#include <string.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <primitives.cuh>

#ifdef __CUDA_ARCH__
#define BL_FMIN(a, b) fminf(a, b)
#define BL_FMAX(a, b) fmaxf(a, b)
#define BL_DMIN(a, b) fmin(a, b)
#define BL_DMAX(a, b) fmax(a, b)
#else /* what the instructions do; a host's libm leaves the sign of zero open */
template <class F> static inline F bl_host_min(F a, F b) {
    if (a == b) return __builtin_signbit(a) ? a : b;
    return b < a || a != a ? b : a;
}
template <class F> static inline F bl_host_max(F a, F b) {
    if (a == b) return __builtin_signbit(a) ? b : a;
    return b > a || a != a ? b : a;
}
#define BL_FMIN(a, b) bl_host_min<float>(a, b)
#define BL_FMAX(a, b) bl_host_max<float>(a, b)
#define BL_DMIN(a, b) bl_host_min<double>(a, b)
#define BL_DMAX(a, b) bl_host_max<double>(a, b)
#endif

BL_DEVICE float number_min(float a, float b) {
    return BL_FMIN(a, b);
}
BL_DEVICE float number_max(float a, float b) {
    return BL_FMAX(a, b);
}
BL_DEVICE double number_min(double a, double b) {
    return BL_DMIN(a, b);
}
BL_DEVICE double number_max(double a, double b) {
    return BL_DMAX(a, b);
}
template <class I> BL_DEVICE I number_min(I a, I b) {
    return b < a ? b : a;
}
template <class I> BL_DEVICE I number_max(I a, I b) {
    return b > a ? b : a;
}

/* Integers: Acc wraps like Element does, because arithmetic is unsigned and narrowing keeps the low bits; Accumulator
 * orders and divides. */
template <class Element, class Accumulator, class Unsigned> struct Integer {
    typedef Accumulator Acc;
    enum { SIZE = sizeof(Element), PER_WORD = 8 / sizeof(Element) };
    BL_DEVICE Acc unpack(uint64_t word, int i) { return (Acc)(Element)(word >> (i * SIZE * 8)); }
    BL_DEVICE uint64_t pack(Acc a, int i) {
        const uint64_t mask = SIZE == 8 ? ~(uint64_t)0 : ((uint64_t)1 << (SIZE % 8 * 8)) - 1;
        return ((uint64_t)a & mask) << (i * SIZE * 8);
    }
    BL_DEVICE Acc add(Acc a, Acc b) { return (Acc)((Unsigned)a + (Unsigned)b); }
    BL_DEVICE Acc mul(Acc a, Acc b) { return (Acc)((Unsigned)a * (Unsigned)b); }
    BL_DEVICE Acc average(Acc a, unsigned n) { return (Acc)((Acc)(Element)a / (Acc)n); }
};

/* Floats narrower than fp32: Format has widen(bits) and narrow(float) -> bits. */
template <class Format, int BYTES> struct Narrow {
    typedef float Acc;
    enum { SIZE = BYTES, PER_WORD = 8 / BYTES };
    BL_DEVICE Acc unpack(uint64_t word, int i) {
        return Format::widen((unsigned)(word >> (i * SIZE * 8)) & ((1u << (SIZE * 8)) - 1));
    }
    BL_DEVICE uint64_t pack(Acc a, int i) { return (uint64_t)Format::narrow(a) << (i * SIZE * 8); }
    BL_DEVICE Acc add(Acc a, Acc b) { return a + b; }
    BL_DEVICE Acc mul(Acc a, Acc b) { return a * b; }
    BL_DEVICE Acc average(Acc a, unsigned n) { return a / (float)n; }
};

struct FormatBf16 {
    BL_DEVICE float widen(unsigned bits) {
        unsigned wide = bits << 16;
        float f;
        memcpy(&f, &wide, 4);
        return f;
    }
    BL_DEVICE unsigned narrow(float f) { return __bfloat16_as_ushort(__float2bfloat16_rn(f)); }
};
struct FormatF16 {
    BL_DEVICE float widen(unsigned bits) { return __half2float(__ushort_as_half((unsigned short)bits)); }
    BL_DEVICE unsigned narrow(float f) { return __half_as_ushort(__float2half_rn(f)); }
};
template <__nv_fp8_interpretation_t KIND> struct FormatF8 {
    BL_DEVICE float widen(unsigned bits) {
        return __half2float(__half(__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)bits, KIND)));
    }
    BL_DEVICE unsigned narrow(float f) { return __nv_cvt_float_to_fp8(f, __NV_SATFINITE, KIND); }
};

template <class F> struct Wide {
    typedef F Acc;
    enum { SIZE = sizeof(F), PER_WORD = 8 / sizeof(F) };
    BL_DEVICE Acc unpack(uint64_t word, int i) {
        word >>= i * SIZE * 8 % 64;
        F f;
        memcpy(&f, &word, SIZE);
        return f;
    }
    BL_DEVICE uint64_t pack(Acc a, int i) {
        uint64_t word = 0;
        memcpy(&word, &a, SIZE);
        return word << (i * SIZE * 8 % 64);
    }
    BL_DEVICE Acc add(Acc a, Acc b) { return a + b; }
    BL_DEVICE Acc mul(Acc a, Acc b) { return a * b; }
    BL_DEVICE Acc average(Acc a, unsigned n) { return a / (F)n; }
};

typedef Integer<int8_t, int32_t, uint32_t> TypeI8;
typedef Integer<uint8_t, uint32_t, uint32_t> TypeU8;
typedef Integer<int32_t, int32_t, uint32_t> TypeI32;
typedef Integer<uint32_t, uint32_t, uint32_t> TypeU32;
typedef Integer<int64_t, int64_t, uint64_t> TypeI64;
typedef Integer<uint64_t, uint64_t, uint64_t> TypeU64;
typedef Narrow<FormatF16, 2> TypeF16;
typedef Narrow<FormatBf16, 2> TypeBf16;
typedef Narrow<FormatF8<__NV_E4M3>, 1> TypeE4M3;
typedef Narrow<FormatF8<__NV_E5M2>, 1> TypeE5M2;
typedef Wide<float> TypeF32;
typedef Wide<double> TypeF64;

/* WORDS words of user data as accumulators. */
template <class T, int WORDS> struct Sum {
    enum { COUNT = WORDS * T::PER_WORD };
    typename T::Acc v[COUNT];

    BL_DEVICE_MEMBER void load(const uint64_t *words) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) v[i] = T::unpack(words[i / T::PER_WORD], i % T::PER_WORD);
    }
    /* this = this op other; redop is uniform, so the switch costs one branch for all elements. */
    BL_DEVICE_MEMBER void combine(const Sum &other, unsigned redop) {
        switch (redop) {
        case BL_PROD:
#pragma unroll
            for (int i = 0; i < COUNT; i++) v[i] = T::mul(v[i], other.v[i]);
            break;
        case BL_MAX:
#pragma unroll
            for (int i = 0; i < COUNT; i++) v[i] = number_max(v[i], other.v[i]);
            break;
        case BL_MIN:
#pragma unroll
            for (int i = 0; i < COUNT; i++) v[i] = number_min(v[i], other.v[i]);
            break;
        default: /* BL_SUM, BL_AVG */
#pragma unroll
            for (int i = 0; i < COUNT; i++) v[i] = T::add(v[i], other.v[i]);
        }
    }
    BL_DEVICE_MEMBER void store(uint64_t *words, unsigned redop, unsigned nranks) const {
#pragma unroll
        for (int w = 0; w < WORDS; w++) words[w] = 0;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            typename T::Acc a = redop == BL_AVG ? T::average(v[i], nranks) : v[i];
            words[i / T::PER_WORD] |= T::pack(a, i % T::PER_WORD);
        }
    }
};

/* Adds ranks first..first+RANKS-1, as far as they exist, to `sum` in rank order; words[i] are rank first + i's.  The
 * order is 0..nranks-1 whoever computes it: a result has the same bits on every rank. */
template <class T, int WORDS, int RANKS>
BL_DEVICE void reduce_in_rank_order(Sum<T, WORDS> &sum, const uint64_t (*words)[WORDS], int first, unsigned redop,
                                    unsigned nranks) {
    if (first == 0) sum.load(words[0]);
#pragma unroll
    for (int i = 0; i < RANKS; i++) {
        if (first + i > 0 && first + i < (int)nranks) {
            Sum<T, WORDS> next;
            next.load(words[i]);
            sum.combine(next, redop);
        }
    }
}

#endif
