/* types_test.cc - kernels/core/types.cuh, compiled for the host, against the independent reference.
 *
 * Conversions: every pattern of the 8- and 16-bit formats at every place of a word, every pair of fp8, and on the way
 * back every midpoint between neighbours with the floats next to it.  Reductions: all pairs of 8-bit types, seeded
 * inputs of every kind for the others, 2 to 16 ranks.  Averages of 8-bit integers: every sum, 1 to 16 ranks; of floats: next to the
 * largest and the least numbers, against quad precision.
 */
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include <core/types.cuh>

extern "C" {
#include "reference.h"
}

static long checks, failures;

static void expect(bool condition, const char *what, int datatype, uint64_t input, uint64_t got, uint64_t want) {
    checks++;
    if (condition) return;
    if (failures++ < 20)
        printf("%s %s: input 0x%llx gives 0x%llx, expected 0x%llx\n", ref_datatype_name(datatype), what,
               (unsigned long long)input, (unsigned long long)got, (unsigned long long)want);
}

static bool same(int datatype, uint64_t a, uint64_t b) {
    return a == b || (ref_is_nan(datatype, a) && ref_is_nan(datatype, b));
}

/* --- conversions of the narrow floats --- */

static void narrow_one(int datatype, uint64_t (*narrow)(float), float value) {
    uint64_t got = narrow(value), want = ref_narrow(datatype, value);
    uint32_t bits;
    memcpy(&bits, &value, 4);
    expect(same(datatype, got, want), "rounding", datatype, bits, got, want);
}

template <class T> static uint64_t narrow(float value) {
    float v[T::PER_WORD] = {value};
    return T::pack(v);
}

template <class T> static void conversions(int datatype) {
    const int bits = (int)T::SIZE * 8;
    for (uint64_t pattern = 0; pattern < (uint64_t)1 << bits; pattern++) {
        const float want = (float)ref_widen(datatype, pattern);
        for (int i = 0; i < T::PER_WORD; i++) {
            /* the neighbours in the word must not matter, and must stay zero on the way back */
            const uint64_t mask = (((uint64_t)1 << bits) - 1) << (i * bits), word = ~mask | pattern << (i * bits);
            float v[T::PER_WORD], alone[T::PER_WORD] = {};
            T::unpack(word, v);
            const float got = alone[i] = v[i];
            expect(memcmp(&got, &want, 4) == 0 || (got != got && want != want), "widening", datatype, pattern,
                   (uint64_t)got, (uint64_t)want);
            const uint64_t back = T::pack(alone), expected = ref_narrow(datatype, want);
            expect((back & ~mask) == 0 && same(datatype, back >> (i * bits), expected), "there and back", datatype,
                   pattern, back >> (i * bits), expected);
            for (float &other : v) other = -INFINITY;
            v[i] = got;
            expect(same(datatype, (T::pack(v) & mask) >> (i * bits), expected), "back among others", datatype, pattern,
                   (T::pack(v) & mask) >> (i * bits), expected);
        }
        if (want != want || std::isinf(want)) continue;
        const float next = (float)ref_widen(datatype, (pattern + 1) & (((uint64_t)1 << bits) - 1));
        const float middle = want + (next - want) / 2;
        const float near[] = {middle, nextafterf(middle, INFINITY), nextafterf(middle, -INFINITY),
                              nextafterf(want, INFINITY), nextafterf(want, -INFINITY)};
        for (float value : near) narrow_one(datatype, narrow<T>, value);
    }
    uint64_t state = 1;
    for (int i = 0; i < 300000; i++) { /* any float at all */
        const uint32_t pattern = (uint32_t)ref_next(&state);
        float value;
        memcpy(&value, &pattern, 4);
        narrow_one(datatype, narrow<T>, value);
    }
    const float edges[] = {0.0f,     -0.0f,    INFINITY,   -INFINITY,     NAN,      447.9f,   448.0f,
                           464.0f,   465.0f,   480.0f,     57344.0f,      61439.0f, 61440.0f, 65504.0f,
                           65519.0f, 65520.0f, 3.3895e38f, 3.4028235e38f, 1e-45f,   -1e-45f};
    for (float value : edges) narrow_one(datatype, narrow<T>, value);
}

/* Two neighbours in a word are converted at once. */
template <class T> static void conversions_of_pairs(int datatype) {
    for (unsigned pair = 0; pair < 65536; pair++)
        for (int i = 0; i < T::PER_WORD; i += 2) {
            float v[T::PER_WORD], back[T::PER_WORD] = {};
            T::unpack((uint64_t)pair << (i * 8), v);
            back[i] = v[i];
            back[i + 1] = v[i + 1];
            const uint64_t got = T::pack(back) >> (i * 8);
            for (int k = 0; k < 2; k++) {
                const uint64_t in = pair >> (k * 8) & 0xff, want = ref_narrow(datatype, ref_widen(datatype, in));
                expect(same(datatype, got >> (k * 8) & 0xff, want) && got >> 16 == 0, "a pair there and back", datatype,
                       pair, got, want);
            }
        }
}

/* --- reductions --- */

/* One word of each rank, reduced in the order of ranks. */
template <class T> static uint64_t reduce(const std::vector<uint64_t> &words, int redop) {
    Sum<T, 1> sum, next;
    uint64_t result;
    struct bl_kernel_args args = {};
    args.nranks = (uint32_t)words.size();
    bl_set_redop(&args, redop);
    sum.begin(&words[0], args.scale);
    for (size_t r = 1; r < words.size(); r++) {
        next.load(&words[r]);
        sum.combine(next, args.redop, args.scale);
    }
    sum.store(&result, args, args.nranks);
    return result;
}

template <class T> static void reductions(int datatype) {
    const size_t count = 3 * 5 * 7 * 8, words = count * T::SIZE / 8;
    for (uint64_t seed = 0; seed < 12; seed++)
        for (int nranks = 2; nranks <= 16; nranks++)
            for (int redop = 0; redop < BL_REDOPS; redop++) {
                std::vector<std::vector<uint64_t>> in(nranks, std::vector<uint64_t>(words));
                std::vector<uint64_t> want(words), operands(nranks);
                for (int r = 0; r < nranks; r++) ref_input(datatype, seed, r, count, in[r].data());
                ref_allreduce(datatype, redop, seed, nranks, count, want.data());
                for (size_t w = 0; w < words; w++) {
                    for (int r = 0; r < nranks; r++) operands[r] = in[r][w];
                    const uint64_t result = reduce<T>(operands, redop);
                    const bool right = ref_differ(datatype, &result, &want[w], T::PER_WORD) == T::PER_WORD;
                    expect(right, ref_redop_name(redop), datatype, w, result, want[w]);
                }
            }
}

/* --- averages of floats, against quad precision --- */

#ifdef __SIZEOF_FLOAT128__
typedef __float128 Quad;
#else
typedef long double Quad;
#endif

/* The pattern of a float that is k steps of the format from the largest number. */
static uint64_t next_to_largest(int datatype, uint64_t k) {
    return (datatype == BL_FLOAT64 ? 0x7fefffffffffffff : datatype == BL_FLOAT32 ? 0x7f7fffff : 0x7f7f) - k;
}

template <class T> static void average(int datatype, const std::vector<uint64_t> &patterns, bool same_bits) {
    const int n = (int)patterns.size(), bits = (int)T::SIZE * 8;
    const uint64_t mask = bits == 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1;
    Quad sum = 0, size = 0;
    double plain = 0;
    float plain32 = 0;
    for (uint64_t pattern : patterns) {
        const double x = ref_widen(datatype, pattern);
        sum += x;
        size += x < 0 ? -x : x;
        plain += x;
        plain32 += (float)x;
    }
    const uint64_t got = reduce<T>(patterns, BL_AVG) & mask;
    const double value = ref_widen(datatype, got), truth = (double)(sum / n);
    /* n roundings of fp32 or fp64, one of the format, and n steps of the least number */
    const double unit = datatype == BL_FLOAT64 ? 0x1p-53 : 0x1p-24, least = datatype == BL_FLOAT64   ? 0x1p-1074
                                                                            : datatype == BL_FLOAT32 ? 0x1p-149
                                                                                                     : 0x1p-133;
    const double step = datatype == BL_BFLOAT16 ? 0x1p-8 : unit,
                 close = (n * unit + step) * (double)(size / n) + n * least;
    expect(std::fabs(value - truth) <= close, "avg", datatype, patterns[0], got, (uint64_t)n);
    if (!same_bits) return;
    const double quotient = datatype == BL_FLOAT64 ? plain / n : plain32 / (float)n;
    uint64_t want;
    memcpy(&want, &quotient, 8);
    if (datatype != BL_FLOAT64) want = ref_narrow(datatype, (float)quotient);
    expect(got == want, "avg as sum / n", datatype, patterns[0], got, want);
}

template <class T> static void averages(int datatype) {
    const uint64_t sign = (uint64_t)1 << (T::SIZE * 8 - 1);
    uint64_t state = 11;
    for (int n = 2; n <= BL_MAX_RANKS; n++)
        for (int round = 0; round < 2000; round++) {
            std::vector<uint64_t> large(n), mixed(n), little(n), moderate(n);
            for (int r = 0; r < n; r++) {
                const uint64_t h = ref_next(&state);
                large[r] = next_to_largest(datatype, round < 2 ? 0 : h % 8) | (round % 2 ? sign : 0);
                mixed[r] = next_to_largest(datatype, h % 64) | (h >> 63 ? sign : 0);
                little[r] = (h >> 8) % 64 | (h >> 63 ? sign : 0);
                const double x = (double)(int64_t)h * 0x1p-50;
                uint64_t bits;
                memcpy(&bits, &x, 8);
                moderate[r] = datatype == BL_FLOAT64 ? bits : ref_narrow(datatype, (float)x);
            }
            average<T>(datatype, large, false);
            average<T>(datatype, mixed, false);
            average<T>(datatype, little, false);
            average<T>(datatype, moderate, true);
        }
}

template <class T> static void all_pairs(int datatype) {
    for (uint64_t a = 0; a < 256; a++)
        for (uint64_t b = 0; b < 256; b++) {
            const float x = (float)ref_widen(datatype, a), y = (float)ref_widen(datatype, b);
            const bool x_first = std::signbit(x) && !std::signbit(y);
            const float least = x != x ? y : y != y ? x : x == y ? (x_first ? x : y) : x < y ? x : y;
            const float most = x != x ? y : y != y ? x : x == y ? (x_first ? y : x) : x < y ? y : x;
            const float want[BL_REDOPS] = {x + y, x * y, most, least, (x + y) / 2.0f};
            for (int redop = 0; redop < BL_REDOPS; redop++) {
                const uint64_t result = reduce<T>({a, b}, redop) & 0xff;
                const uint64_t expected = ref_narrow(datatype, want[redop]);
                expect(same(datatype, result, expected), ref_redop_name(redop), datatype, a << 8 | b, result, expected);
            }
        }
}

/* All pairs of 8-bit integers, at every place of a word whose other bytes are anything; and every sum divided. */
template <class T, class Element> static void all_pairs_of_bytes(int datatype) {
    uint64_t state = 7;
    for (int a = 0; a < 256; a++)
        for (int b = 0; b < 256; b++) {
            uint64_t x[2] = {ref_next(&state), ref_next(&state)};
            const int place = b % 8 * 8;
            x[0] = (x[0] & ~((uint64_t)0xff << place)) | (uint64_t)a << place;
            x[1] = (x[1] & ~((uint64_t)0xff << place)) | (uint64_t)b << place;
            for (int redop = 0; redop < BL_REDOPS; redop++) {
                const uint64_t got = reduce<T>({x[0], x[1]}, redop);
                uint64_t want = 0;
                for (int i = 0; i < 8; i++) {
                    const Element p = (Element)(x[0] >> (i * 8)), q = (Element)(x[1] >> (i * 8));
                    const int of[BL_REDOPS] = {p + q, p * q, p > q ? p : q, p < q ? p : q, (Element)(p + q) / 2};
                    want |= (uint64_t)(of[redop] & 0xff) << (i * 8);
                }
                expect(got == want, ref_redop_name(redop), datatype, (uint64_t)a << 8 | b, got, want);
            }
        }
    for (int n = 1; n <= BL_MAX_RANKS; n++)
        for (int sum = 0; sum < 256; sum++) {
            std::vector<uint64_t> words(n);
            words[n - 1] = (uint64_t)sum * 0x0101010101010101u;
            const uint64_t got = reduce<T>(words, BL_AVG);
            const uint64_t want = (uint64_t)(uint8_t)((Element)sum / n) * 0x0101010101010101u;
            expect(got == want, "avg of a sum", datatype, (uint64_t)sum << 8 | n, got, want);
        }
}

int main() {
    conversions<TypeF16>(BL_FLOAT16);
    conversions<TypeBf16>(BL_BFLOAT16);
    conversions<TypeE4M3>(BL_FLOAT8E4M3);
    conversions<TypeE5M2>(BL_FLOAT8E5M2);
    conversions_of_pairs<TypeE4M3>(BL_FLOAT8E4M3);
    conversions_of_pairs<TypeE5M2>(BL_FLOAT8E5M2);
    averages<TypeBf16>(BL_BFLOAT16);
    averages<TypeF32>(BL_FLOAT32);
    averages<TypeF64>(BL_FLOAT64);
    all_pairs<TypeE4M3>(BL_FLOAT8E4M3);
    all_pairs<TypeE5M2>(BL_FLOAT8E5M2);
    all_pairs_of_bytes<TypeI8, int8_t>(BL_INT8);
    all_pairs_of_bytes<TypeU8, uint8_t>(BL_UINT8);
    reductions<TypeI8>(BL_INT8);
    reductions<TypeU8>(BL_UINT8);
    reductions<TypeI32>(BL_INT32);
    reductions<TypeU32>(BL_UINT32);
    reductions<TypeI64>(BL_INT64);
    reductions<TypeU64>(BL_UINT64);
    reductions<TypeF16>(BL_FLOAT16);
    reductions<TypeF32>(BL_FLOAT32);
    reductions<TypeF64>(BL_FLOAT64);
    reductions<TypeBf16>(BL_BFLOAT16);
    reductions<TypeE4M3>(BL_FLOAT8E4M3);
    reductions<TypeE5M2>(BL_FLOAT8E5M2);
    printf("%ld checks, %ld failures\n", checks, failures);
    return failures != 0;
}
