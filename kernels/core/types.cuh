/* types.cuh - datatypes: how an 8-byte word of user data becomes accumulators, how two are combined, and how they go
 * back.
 *
 * Half-width and fp8 floats are accumulated in fp32, double in fp64, and rounded once, to nearest even, at the end (fp8
 * saturates, as CUDA's own conversion to fp8 does).  Integers wrap.  min and max take the number where the other is a NaN, and
 * -0.0 is below +0.0.
 *
 * avg divides the finished sum by the number of ranks n; integer division truncates.  Of bf16, fp32 and fp64, whose sums could
 * overflow where the average does not, what is added is p times each rank's value, with p the largest power of two <= 1/n,
 * in one rounding (fused; the first rank's product is rounded alone), and the sum is divided by n p, which is nothing to do
 * where n is a power of two.  So the average has the bits of sum / n unless something in either over- or underflows; and it is
 * finite wherever the true one is: no sum exceeds n p times the largest number, rounding is monotonic, and the average of n
 * largest numbers is finite for each n up to BL_MAX_RANKS.
 */
#ifndef BEELINE_TYPES_CUH
#define BEELINE_TYPES_CUH

#include <string.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <core/primitives.cuh>

/* Every type has
 *   Acc, and ACCS of them for the PER_WORD elements of a word;
 *   unpack(word, v) and pack(v), between a word and its ACCS accumulators;
 *   add, mul, least, most of two accumulators;
 *   SCALED: whether averages are of scaled values, and then add_scaled(sum, v, scale);
 *   average<COUNT>(v, n, scale), which divides COUNT accumulators by n <= BL_MAX_RANKS, or by n scale. */

/* By a power of two, a product with the reciprocal is the quotient, to the bit. */
template <class F, int COUNT, bool SCALED> BL_DEVICE void average_floats(F *v, unsigned n, float scale) {
    if ((n & (n - 1)) == 0) {
        const F reciprocal = SCALED ? (F)1 : (F)1 / (F)n;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (!SCALED) v[i] *= reciprocal;
    } else {
        const F divisor = SCALED ? (F)n * (F)scale : (F)n;
#pragma unroll
        for (int i = 0; i < COUNT; i++) v[i] /= divisor;
    }
}

/* Integers of 32 and 64 bits: arithmetic is unsigned, which wraps; Element orders and divides. */
template <class Element, class Unsigned> struct Integer {
    typedef Element Acc;
    enum { SIZE = sizeof(Element), PER_WORD = 8 / SIZE, ACCS = PER_WORD, IS_SIGNED = (Element)-1 < 0, SCALED = false };
    BL_DEVICE void unpack(uint64_t word, Acc *v) {
#pragma unroll
        for (int i = 0; i < ACCS; i++) v[i] = (Acc)(Unsigned)(word >> (i * SIZE * 8 % 64));
    }
    BL_DEVICE uint64_t pack(const Acc *v) {
        uint64_t word = 0;
#pragma unroll
        for (int i = 0; i < ACCS; i++) word |= (uint64_t)(Unsigned)v[i] << (i * SIZE * 8 % 64);
        return word;
    }
    BL_DEVICE Acc add(Acc a, Acc b) {
        return (Acc)((Unsigned)a + (Unsigned)b);
    }
    BL_DEVICE Acc mul(Acc a, Acc b) {
        return (Acc)((Unsigned)a * (Unsigned)b);
    }
    BL_DEVICE Acc least(Acc a, Acc b) {
        return b < a ? b : a;
    }
    BL_DEVICE Acc most(Acc a, Acc b) {
        return b > a ? b : a;
    }
    template <int COUNT> BL_DEVICE void average(Acc *v, unsigned n, float) {
        if ((n & (n - 1)) == 0) {
            const int shift = (n > 1) + (n > 2) + (n > 4) + (n > 8);
            const Unsigned to_zero = n - 1; /* a shift alone rounds down */
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                const bool below_zero = IS_SIGNED && (Unsigned)v[i] >> (8 * SIZE - 1);
                v[i] = (Acc)((Unsigned)v[i] + (below_zero ? to_zero : 0)) >> shift;
            }
        } else {
#pragma unroll
            for (int i = 0; i < COUNT; i++) v[i] /= (Acc)n;
        }
    }
};

/* Integers of 8 bits: four to an accumulator, all at once, since sums need no more than their low bits. */
template <class Element> struct Bytes {
    typedef uint32_t Acc;
    enum { SIZE = 1, PER_WORD = 8, ACCS = 2, IS_SIGNED = (Element)-1 < 0, SCALED = false };
    static const uint32_t TOP = 0x80808080u; /* bits of the bytes */

    BL_DEVICE void unpack(uint64_t word, Acc *v) {
        v[0] = (uint32_t)word;
        v[1] = (uint32_t)(word >> 32);
    }
    BL_DEVICE uint64_t pack(const Acc *v) { return v[0] | (uint64_t)v[1] << 32; }
    BL_DEVICE Element at(Acc a, int i) { return (Element)(a >> (8 * i)); }
    /* The low seven bits carry into the top one and no further; the top ones add without a carry. */
    BL_DEVICE Acc add(Acc a, Acc b) { return ((a & ~TOP) + (b & ~TOP)) ^ ((a ^ b) & TOP); }
    BL_DEVICE Acc mul(Acc a, Acc b) {
        Acc product = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) product |= ((a >> (8 * i)) * (b >> (8 * i)) & 0xff) << (8 * i);
        return product;
    }
    /* 0xff in each byte in which a >= b: the top bits tell, or, where they are alike, the low ones do, by what is left
     * of a's top bit after b's low bits were taken off. */
    BL_DEVICE Acc not_less(Acc a, Acc b) {
        const Acc low = (a | TOP) - (b & ~TOP), above = IS_SIGNED ? ~a & b : a & ~b;
        const Acc top = (above | (~(a ^ b) & low)) & TOP;
        return (top >> 7) * 0xff;
    }
    BL_DEVICE Acc least(Acc a, Acc b) {
        const Acc mask = not_less(a, b);
        return (b & mask) | (a & ~mask);
    }
    BL_DEVICE Acc most(Acc a, Acc b) {
        const Acc mask = not_less(a, b);
        return (a & mask) | (b & ~mask);
    }
    /* x / n is x * ceil(2^16 / n) / 2^16 for all of 8 bits and n <= 16; below zero, rounded up. */
    template <int COUNT> BL_DEVICE void average(Acc *v, unsigned n, float) {
        const int reciprocal = (int)((65535 + n) / n);
#pragma unroll
        for (int a = 0; a < COUNT; a++) {
            Acc quotients = 0;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int x = at(v[a], i), to_zero = (int)((uint32_t)x >> 16); /* 0, or 65535 below zero */
                quotients |= ((uint32_t)(x * reciprocal + to_zero) >> 16 & 0xff) << (8 * i);
            }
            v[a] = quotients;
        }
    }
};

/* Floats narrower than fp32: Format has widen, which makes two floats of the low bits of its argument, and narrow, which
 * goes back.  Two at a time is what the conversions do in one instruction. */
template <class Format, int BYTES> struct Narrow {
    typedef float Acc;
    enum { SIZE = BYTES, PER_WORD = 8 / BYTES, ACCS = PER_WORD, PER_HALF = ACCS / 2, SCALED = Format::WIDE_RANGE };
    BL_DEVICE void unpack(uint64_t word, Acc *v) {
#pragma unroll
        for (int i = 0; i < ACCS; i += 2) {
            const uint32_t half = (uint32_t)(word >> (i / PER_HALF * 32));
            Format::widen(half >> (i % PER_HALF * SIZE * 8), v + i);
        }
    }
    BL_DEVICE uint64_t pack(const Acc *v) {
        uint32_t half[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < ACCS; i += 2) half[i / PER_HALF] |= Format::narrow(v + i) << (i % PER_HALF * SIZE * 8);
        return half[0] | (uint64_t)half[1] << 32;
    }
    BL_DEVICE Acc add(Acc a, Acc b) {
        return result_of(a + b);
    }
    BL_DEVICE Acc add_scaled(Acc sum, Acc v, Acc scale) {
        return result_of(fused(v, scale, sum));
    }
    BL_DEVICE Acc mul(Acc a, Acc b) {
        return result_of(a * b);
    }
    BL_DEVICE Acc least(Acc a, Acc b) {
        return number_min(a, b);
    }
    BL_DEVICE Acc most(Acc a, Acc b) {
        return number_max(a, b);
    }
    template <int COUNT> BL_DEVICE void average(Acc *v, unsigned n, float scale) {
        average_floats<Acc, COUNT, SCALED>(v, n, scale);
    }
};

struct FormatBf16 {
    enum { WIDE_RANGE = true }; /* as wide as that of the accumulator */
    BL_DEVICE void widen(uint32_t bits, float *v) {
        const uint32_t low = bits << 16, high = bits & 0xffff0000u;
        memcpy(v, &low, 4);
        memcpy(v + 1, &high, 4);
    }
    BL_DEVICE uint32_t narrow(const float *v) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(v[0], v[1]);
        uint32_t bits;
        memcpy(&bits, &pair, 4);
        return bits;
    }
};
struct FormatF16 {
    enum { WIDE_RANGE = false };
    BL_DEVICE void widen(uint32_t bits, float *v) {
        __half2_raw pair;
        memcpy(&pair, &bits, 4);
        const float2 wide = __half22float2(__half2(pair));
        v[0] = wide.x;
        v[1] = wide.y;
    }
    BL_DEVICE uint32_t narrow(const float *v) {
        const __half2 pair = __floats2half2_rn(v[0], v[1]);
        uint32_t bits;
        memcpy(&bits, &pair, 4);
        return bits;
    }
};
template <__nv_fp8_interpretation_t KIND> struct FormatF8 {
    enum { WIDE_RANGE = false };
    BL_DEVICE void widen(uint32_t bits, float *v) {
        const float2 wide = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)bits, KIND)));
        v[0] = wide.x;
        v[1] = wide.y;
    }
    BL_DEVICE uint32_t narrow(const float *v) {
        return __nv_cvt_float2_to_fp8x2(make_float2(v[0], v[1]), __NV_SATFINITE, KIND);
    }
};

template <class F> struct Wide {
    typedef F Acc;
    enum { SIZE = sizeof(F), PER_WORD = 8 / SIZE, ACCS = PER_WORD, SCALED = true };
    BL_DEVICE void unpack(uint64_t word, Acc *v) { memcpy(v, &word, 8); }
    BL_DEVICE uint64_t pack(const Acc *v) {
        uint64_t word;
        memcpy(&word, v, 8);
        return word;
    }
    BL_DEVICE Acc add(Acc a, Acc b) { return result_of(a + b); }
    BL_DEVICE Acc add_scaled(Acc sum, Acc v, Acc scale) { return result_of(fused(v, scale, sum)); }
    BL_DEVICE Acc mul(Acc a, Acc b) { return result_of(a * b); }
    BL_DEVICE Acc least(Acc a, Acc b) { return number_min(a, b); }
    BL_DEVICE Acc most(Acc a, Acc b) { return number_max(a, b); }
    template <int COUNT> BL_DEVICE void average(Acc *v, unsigned n, float scale) {
        average_floats<Acc, COUNT, SCALED>(v, n, scale);
    }
};

typedef Bytes<int8_t> TypeI8;
typedef Bytes<uint8_t> TypeU8;
typedef Integer<int32_t, uint32_t> TypeI32;
typedef Integer<uint32_t, uint32_t> TypeU32;
typedef Integer<int64_t, uint64_t> TypeI64;
typedef Integer<uint64_t, uint64_t> TypeU64;
typedef Narrow<FormatF16, 2> TypeF16;
typedef Narrow<FormatBf16, 2> TypeBf16;
typedef Narrow<FormatF8<__NV_E4M3>, 1> TypeE4M3;
typedef Narrow<FormatF8<__NV_E5M2>, 1> TypeE5M2;
typedef Wide<float> TypeF32;
typedef Wide<double> TypeF64;

/* WORDS words of user data as accumulators.  redop is uniform, so what depends on it costs one branch for all elements; sums
 * and averages have none between them: `scale` is p or 1 (bl_kernel_args), and a product with 1 changes nothing. */
template <class T, int WORDS> struct Sum {
    enum { COUNT = WORDS * T::ACCS };
    typedef typename T::Acc Acc;
    Acc v[COUNT];

    BL_DEVICE_MEMBER void load(const uint64_t *words) {
#pragma unroll
        for (int w = 0; w < WORDS; w++) T::unpack(words[w], v + w * T::ACCS);
    }
    /* Of the first rank. */
    BL_DEVICE_MEMBER void begin(const uint64_t *words, float scale) {
        load(words);
        if constexpr (T::SCALED) {
#pragma unroll
            for (int i = 0; i < COUNT; i++) v[i] = T::mul(v[i], (Acc)scale);
        }
    }
    BL_DEVICE_MEMBER void add(const Sum &other, float scale) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            if constexpr (T::SCALED)
                v[i] = T::add_scaled(v[i], other.v[i], (Acc)scale);
            else
                v[i] = T::add(v[i], other.v[i]);
        }
    }
    /* this = this op other.  Sums and averages are found by bits that no other operation has, and so not by a table: that jump
     * would take a line longer than all the rest. */
    BL_DEVICE_MEMBER void combine(const Sum &other, unsigned redop, float scale) {
        static_assert(BL_SUM == 0 && BL_AVG == 4 && BL_REDOPS == 5, "");
        if ((redop & 3) == 0) {
            add(other, scale);
            return;
        }
        switch (redop) {
        case BL_PROD:
#pragma unroll
            for (int i = 0; i < COUNT; i++) v[i] = T::mul(v[i], other.v[i]);
            break;
        case BL_MAX:
#pragma unroll
            for (int i = 0; i < COUNT; i++) v[i] = T::most(v[i], other.v[i]);
            break;
        default: /* BL_MIN */
#pragma unroll
            for (int i = 0; i < COUNT; i++) v[i] = T::least(v[i], other.v[i]);
        }
    }
    /* Leaves the average in place of the sum, where that was asked for. */
    BL_DEVICE_MEMBER void store(uint64_t *words, const struct bl_kernel_args &a, unsigned nranks) {
        if (a.redop == BL_AVG) T::template average<COUNT>(v, nranks, a.scale);
#pragma unroll
        for (int w = 0; w < WORDS; w++) words[w] = T::pack(v + w * T::ACCS);
    }
};

/* Adds ranks first..first+RANKS-1, as far as they exist, to `sum` in rank order; words[i] are rank first + i's.  The
 * order is 0..nranks-1 whoever computes it: a result has the same bits on every rank.  nranks is a.nranks, of which the
 * compiler may know more. */
template <class T, int WORDS, int RANKS>
BL_DEVICE void reduce_in_rank_order(Sum<T, WORDS> &sum, const uint64_t (*words)[WORDS], int first,
                                    const struct bl_kernel_args &a, unsigned nranks) {
    if (first == 0) sum.begin(words[0], a.scale);
#pragma unroll
    for (int i = 0; i < RANKS; i++) {
        if (first + i > 0 && first + i < (int)nranks) {
            Sum<T, WORDS> next;
            next.load(words[i]);
            sum.combine(next, a.redop, a.scale);
        }
    }
}

#endif
