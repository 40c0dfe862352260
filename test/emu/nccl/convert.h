/* convert.h - floats narrower than fp32, exactly as CUDA's headers convert them on the host: to nearest even, one
 * canonical NaN, fp8 saturating to the largest finite number.
 */
#ifndef EMU_CONVERT_H
#define EMU_CONVERT_H

#include <stdint.h>
#include <string.h>

static inline uint32_t emu_float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float emu_bits_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A format of one sign bit, an exponent with this bias, and this many mantissa bits. */
struct emu_format {
    int width, mantissa, bias;
    uint32_t largest;  /* magnitude of the largest finite number */
    uint32_t overflow; /* magnitude of what lies above it: infinity, or the largest */
    uint32_t nan;      /* the canonical NaN */
};

static const struct emu_format emu_float16 = {16, 10, 15, 0x7bff, 0x7c00, 0x7fff};
static const struct emu_format emu_float8e4m3 = {8, 3, 7, 0x7e, 0x7e, 0x7f};
static const struct emu_format emu_float8e5m2 = {8, 2, 15, 0x7b, 0x7b, 0x7f};

static inline uint32_t emu_narrow(float value, struct emu_format to) {
    uint32_t bits = emu_float_bits(value), magnitude = bits & 0x7fffffffu;
    uint32_t sign = bits >> 31 << (to.width - 1);
    int exponent = (int)(magnitude >> 23) - 127, smallest = 1 - to.bias;
    int shift = 23 - to.mantissa + (exponent < smallest ? smallest - exponent : 0);
    if (magnitude > 0x7f800000u) return to.nan;
    if (shift > 24) return sign; /* under half of the smallest subnormal, as is every fp32 subnormal */
    uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
    uint32_t result = significand >> shift, rest = significand & ((1u << shift) - 1), half = 1u << (shift - 1);
    if (rest > half || (rest == half && (result & 1))) result++;
    /* The implicit bit adds one to the exponent field, and so does a carry out of the mantissa. */
    if (exponent > smallest) result += (uint32_t)(exponent - smallest) << to.mantissa;
    return sign | (result > to.largest ? to.overflow : result);
}

static inline float emu_widen(uint32_t bits, struct emu_format from) {
    uint32_t magnitude = bits & ((1u << (from.width - 1)) - 1);
    uint32_t sign = bits >> (from.width - 1) << 31;
    if (magnitude > from.largest) {
        /* Only a format with infinities overflows to something else than its largest; e5m2 saturates but has them. */
        uint32_t infinity = (from.largest | ((1u << from.mantissa) - 1)) + 1;
        return emu_bits_float(magnitude == infinity ? sign | 0x7f800000u : 0x7fffffffu);
    }
    if (magnitude >> from.mantissa) {
        uint32_t wide = (magnitude << (23 - from.mantissa)) + ((uint32_t)(127 - from.bias) << 23);
        return emu_bits_float(sign | wide);
    }
    float scale = emu_bits_float((uint32_t)(127 + 1 - from.bias - from.mantissa) << 23); /* of the smallest subnormal */
    return emu_bits_float(sign | emu_float_bits((float)magnitude * scale));
}

static inline uint32_t emu_narrow_bfloat16(float value) {
    uint32_t bits = emu_float_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}

static inline float emu_widen_bfloat16(uint32_t bits) {
    return emu_bits_float(bits << 16);
}

#endif
