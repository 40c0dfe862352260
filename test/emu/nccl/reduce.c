/* reduce.c - reductions in rank order.
 *
 * Floats narrower than fp32 are accumulated in fp32 and rounded once; fp32 and fp64 in themselves; integers wrap.
 * avg of floats multiplies each input by 1/n, so that it overflows no more than its inputs; that of integers divides the finished
 * sum, and truncates.  premulsum multiplies each input first, too.  min and max take the number
 * where the other is a NaN, and -0 is below +0.
 */
#include "convert.h"
#include "emu_nccl.h"

#define FLOAT_MIN(a, b) ((a) == (b) ? (__builtin_signbit(a) ? (a) : (b)) : ((b) < (a) || (a) != (a)) ? (b) : (a))
#define FLOAT_MAX(a, b) ((a) == (b) ? (__builtin_signbit(a) ? (b) : (a)) : ((b) > (a) || (a) != (a)) ? (b) : (a))

#define LOOP(ACC, WIDEN, NARROW, INPUT, COMBINE, LAST)                                                                 \
    for (size_t i = 0; i < count; i++) {                                                                               \
        ACC a = 0;                                                                                                     \
        for (int r = 0; r < nranks; r++) {                                                                             \
            ACC b = WIDEN(in[r][i]);                                                                                   \
            b = INPUT;                                                                                                 \
            a = r ? COMBINE : b;                                                                                       \
        }                                                                                                              \
        out[i] = NARROW(LAST);                                                                                         \
    }                                                                                                                  \
    break;

#define REDUCTION(NAME, ELEMENT, ACC, WIDEN, NARROW, ADD, MUL, MIN, MAX, SHARE, AVERAGE)                               \
    static void NAME(void *dst, const void *const *src, int nranks, size_t count, int redop,                           \
                     const void *const *scalars) {                                                                     \
        ELEMENT *out = dst;                                                                                            \
        const ELEMENT *const *in = (const ELEMENT *const *)src, *const *factor = (const ELEMENT *const *)scalars;      \
        switch (redop) {                                                                                               \
        case ncclSum: LOOP(ACC, WIDEN, NARROW, b, ADD(a, b), a)                                                        \
        case ncclProd: LOOP(ACC, WIDEN, NARROW, b, MUL(a, b), a)                                                       \
        case ncclMin: LOOP(ACC, WIDEN, NARROW, b, MIN(a, b), a)                                                        \
        case ncclMax: LOOP(ACC, WIDEN, NARROW, b, MAX(a, b), a)                                                        \
        case ncclAvg: LOOP(ACC, WIDEN, NARROW, SHARE(b), ADD(a, b), AVERAGE(a))                                        \
        case EMU_PREMULSUM: LOOP(ACC, WIDEN, NARROW, MUL(b, WIDEN(*factor[r])), ADD(a, b), a)                          \
        }                                                                                                              \
    }

#define SAME(a)           (a)
#define FLOAT_ADD(a, b)   ((a) + (b))
#define FLOAT_MUL(a, b)   ((a) * (b))
#define FLOAT_SHARE(a)    ((a) * ((__typeof__(a))(1.0 / nranks)))
#define INTEGER_MIN(a, b) ((b) < (a) ? (b) : (a))
#define INTEGER_MAX(a, b) ((b) > (a) ? (b) : (a))
#define WIDE_ADD(a, b)    ((int64_t)((uint64_t)(a) + (uint64_t)(b)))
#define WIDE_MUL(a, b)    ((int64_t)((uint64_t)(a) * (uint64_t)(b)))

/* Integers are carried in 64 bits: narrowing keeps the low bits, so they wrap as the element would. */
#define INTEGER_AVERAGE(a) ((__typeof__(*out))(a) / nranks)
#define SIGNED(NAME, ELEMENT)                                                                                          \
    REDUCTION(NAME, ELEMENT, int64_t, SAME, (ELEMENT), WIDE_ADD, WIDE_MUL, INTEGER_MIN, INTEGER_MAX, SAME,             \
              INTEGER_AVERAGE)
#define UNSIGNED(NAME, ELEMENT)                                                                                        \
    REDUCTION(NAME, ELEMENT, uint64_t, SAME, (ELEMENT), FLOAT_ADD, FLOAT_MUL, INTEGER_MIN, INTEGER_MAX, SAME,          \
              INTEGER_AVERAGE)

SIGNED(reduce_int8, int8_t)
SIGNED(reduce_int32, int32_t)
SIGNED(reduce_int64, int64_t)
UNSIGNED(reduce_uint8, uint8_t)
UNSIGNED(reduce_uint32, uint32_t)
UNSIGNED(reduce_uint64, uint64_t)

#define FLOATING(NAME, ELEMENT, ACC, WIDEN, NARROW)                                                                    \
    REDUCTION(NAME, ELEMENT, ACC, WIDEN, NARROW, FLOAT_ADD, FLOAT_MUL, FLOAT_MIN, FLOAT_MAX, FLOAT_SHARE, SAME)

#define WIDEN_HALF(a)  emu_widen(a, emu_float16)
#define NARROW_HALF(a) (uint16_t) emu_narrow(a, emu_float16)
#define NARROW_BF16(a) (uint16_t) emu_narrow_bfloat16(a)
#define WIDEN_E4M3(a)  emu_widen(a, emu_float8e4m3)
#define NARROW_E4M3(a) (uint8_t) emu_narrow(a, emu_float8e4m3)
#define WIDEN_E5M2(a)  emu_widen(a, emu_float8e5m2)
#define NARROW_E5M2(a) (uint8_t) emu_narrow(a, emu_float8e5m2)

FLOATING(reduce_float16, uint16_t, float, WIDEN_HALF, NARROW_HALF)
FLOATING(reduce_bfloat16, uint16_t, float, emu_widen_bfloat16, NARROW_BF16)
FLOATING(reduce_float8e4m3, uint8_t, float, WIDEN_E4M3, NARROW_E4M3)
FLOATING(reduce_float8e5m2, uint8_t, float, WIDEN_E5M2, NARROW_E5M2)
FLOATING(reduce_float32, float, float, SAME, SAME)
FLOATING(reduce_float64, double, double, SAME, SAME)

typedef void reduction(void *, const void *const *, int, size_t, int, const void *const *);

static reduction *const reductions[ncclNumTypes] = {
    [ncclInt8] = reduce_int8,         [ncclUint8] = reduce_uint8,           [ncclInt32] = reduce_int32,
    [ncclUint32] = reduce_uint32,     [ncclInt64] = reduce_int64,           [ncclUint64] = reduce_uint64,
    [ncclFloat16] = reduce_float16,   [ncclFloat32] = reduce_float32,       [ncclFloat64] = reduce_float64,
    [ncclBfloat16] = reduce_bfloat16, [ncclFloat8e4m3] = reduce_float8e4m3, [ncclFloat8e5m2] = reduce_float8e5m2,
};

void emu_reduce(void *dst, const void *const *src, int nranks, size_t count, ncclDataType_t datatype, int redop,
                const void *const *scalars) {
    size_t bytes = count * emu_datatype_size(datatype);
    if (nranks == 1 && redop != EMU_PREMULSUM) { /* a copy, of NaNs too */
        if (dst != src[0]) memmove(dst, src[0], bytes);
        return;
    }
    reductions[datatype](dst, src, nranks, count, redop, scalars);
}
