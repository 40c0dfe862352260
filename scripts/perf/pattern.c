/* pattern.c - inputs that differ from index to index and from rank to rank, made so that every partial result in every
 * order is exactly representable: what comes out is known to the bit, whoever adds in whatever order.
 *
 * Element i of rank r depends on i % PATTERN_PERIOD alone, so one table serves every size.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"

/* Of a float: significand bits without the implicit one, exponent bias.  `exact`: every integer up to it is
 * representable. */
static const struct format {
    bool is_float, is_signed;
    int fraction, bias;
    int exact;
} formats[BL_DATATYPES] = {
    [BL_INT8] = {false, true, 0, 0, 127},           [BL_UINT8] = {false, false, 0, 0, 127},
    [BL_INT32] = {false, true, 0, 0, 1 << 20},      [BL_UINT32] = {false, false, 0, 0, 1 << 20},
    [BL_INT64] = {false, true, 0, 0, 1 << 20},      [BL_UINT64] = {false, false, 0, 0, 1 << 20},
    [BL_FLOAT16] = {true, true, 10, 15, 1 << 11},   [BL_FLOAT32] = {true, true, 23, 127, 1 << 20},
    [BL_FLOAT64] = {true, true, 52, 1023, 1 << 20}, [BL_BFLOAT16] = {true, true, 7, 127, 1 << 8},
    [BL_FLOAT8E4M3] = {true, true, 3, 7, 1 << 4},   [BL_FLOAT8E5M2] = {true, true, 2, 15, 1 << 3},
};

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* A value that the format holds exactly, and not as a subnormal. */
static uint64_t encode(int datatype, double value) {
    const struct format *f = &formats[datatype];
    int exponent, bits = 8 * (int)bl_datatype_size(datatype);

    if (!f->is_float) return (uint64_t)(int64_t)value;
    if (value == 0) return 0;
    double fraction = frexp(fabs(value), &exponent) * 2 - 1;
    return (uint64_t)(value < 0) << (bits - 1) | (uint64_t)(exponent - 1 + f->bias) << f->fraction |
           (uint64_t)ldexp(fraction, f->fraction);
}

static double decode(int datatype, uint64_t pattern) {
    const struct format *f = &formats[datatype];
    int bits = 8 * (int)bl_datatype_size(datatype);
    uint64_t fraction = pattern & ((1ull << f->fraction) - 1);
    int exponent = pattern >> f->fraction & ((1 << (bits - 1 - f->fraction)) - 1);
    double value = exponent ? ldexp((double)(fraction | 1ull << f->fraction), exponent - f->bias - f->fraction)
                            : ldexp((double)fraction, 1 - f->bias - f->fraction);
    return pattern >> (bits - 1) & 1 ? -value : value;
}

/* Floats.  `at` is mixed from the element's index, `mine` from index and rank; all ranks agree on `at`. */
static double float_sum(const struct format *f, int n, int rank, uint64_t at, uint64_t mine) {
    /* Where not every rank can have a number of its own, some are 0: others at every index. */
    int active = n < f->exact ? n : f->exact, most = f->exact / active;
    if ((int)((rank + at) % n) >= active) return 0;
    return (double)(int)(mine % (2 * most + 1)) - most;
}

static double float_prod(const struct format *f, int n, int rank, uint64_t at, uint64_t mine) {
    /* Powers of two, from four ranks at most: the product stays in range. */
    static const double factors[] = {0.5, 1, 2, 1};
    double factor = (rank + at) % n < 4 ? factors[mine % 4] : 1;
    return mine >> 8 & 1 ? -factor : factor;
}

static double float_extreme(const struct format *f, int n, int rank, uint64_t at, uint64_t mine) {
    return (double)(int)(mine % (2 * f->exact + 1)) - f->exact;
}

/* The average at an index, and each rank's value: one rank is above it by 1, another below, others at every index. */
static int average_of(const struct format *f, int n, uint64_t at) {
    int most = f->exact < 32 ? 6 : f->exact / n - 1;
    return 2 + (int)(at >> 32) % (most - 2);
}

static double average(const struct format *f, int n, int rank, uint64_t at, uint64_t mine) {
    int above = (int)(at % n), below = (int)((above + 1 + (at >> 8) % (n - 1)) % n);
    return average_of(f, n, at) + (rank == above) - (rank == below);
}

static double (*const float_inputs[BL_REDOPS])(const struct format *, int, int, uint64_t, uint64_t) = {
    [BL_SUM] = float_sum,     [BL_PROD] = float_prod, [BL_MAX] = float_extreme,
    [BL_MIN] = float_extreme, [BL_AVG] = average,
};

/* Element i of one rank, as bits.  Integers are any bits at all: sums and products wrap. */
static uint64_t input(const struct pattern *p, int rank, uint64_t i) {
    const struct format *f = &formats[p->datatype];
    uint64_t at = mix(i) & 0x7fffffffffffffff, mine = mix(i * BL_MAX_RANKS + rank + (1ull << 40));

    if (!f->is_float && p->redop != BL_AVG) return mine;
    return encode(p->datatype, float_inputs[p->redop](f, p->nranks, rank, at, mine));
}

/* Sign- or zero-extended, so that comparing 64 bits compares the values. */
static int64_t extend(const struct pattern *p, uint64_t value) {
    int unused = 64 - 8 * (int)p->size;
    return formats[p->datatype].is_signed ? (int64_t)(value << unused) >> unused : (int64_t)(value << unused >> unused);
}

static uint64_t reduce_integers(const struct pattern *p, uint64_t i) {
    uint64_t result = input(p, 0, i);
    for (int rank = 1; rank < p->nranks; rank++) {
        uint64_t value = input(p, rank, i);
        int64_t a = extend(p, result), b = extend(p, value);
        bool less = formats[p->datatype].is_signed ? b < a : (uint64_t)b < (uint64_t)a;
        switch (p->redop) {
        case BL_PROD: result *= value; break;
        case BL_MAX: result = less ? result : value; break;
        case BL_MIN: result = less ? value : result; break;
        default: result += value; break;
        }
    }
    return result;
}

static uint64_t reduce_floats(const struct pattern *p, uint64_t i) {
    double result = decode(p->datatype, input(p, 0, i));
    for (int rank = 1; rank < p->nranks; rank++) {
        double value = decode(p->datatype, input(p, rank, i));
        switch (p->redop) {
        case BL_PROD: result *= value; break;
        case BL_MAX: result = value > result ? value : result; break;
        case BL_MIN: result = value < result ? value : result; break;
        default: result += value; break;
        }
    }
    return encode(p->datatype, result);
}

static uint64_t reduce(const struct pattern *p, uint64_t i) {
    const struct format *f = &formats[p->datatype];
    if (p->redop == BL_AVG) return encode(p->datatype, average_of(f, p->nranks, mix(i) & 0x7fffffffffffffff));
    return f->is_float ? reduce_floats(p, i) : reduce_integers(p, i);
}

/* Repeats the first period over the whole table. */
static void repeat(unsigned char *table, size_t period, size_t bytes) {
    for (size_t done = period; done < bytes; done += period)
        memcpy(table + done, table, bytes - done < period ? bytes - done : period);
}

int pattern_make(struct pattern *p, int datatype, int redop, int nranks) {
    enum { CHUNK_BYTES = 1 << 19 };
    size_t size = bl_datatype_size(datatype), period = PATTERN_PERIOD * size;
    size_t chunk = (CHUNK_BYTES + period - 1) / period * PATTERN_PERIOD, bytes = (chunk + PATTERN_PERIOD) * size;

    pattern_free(p);
    *p = (struct pattern){.datatype = datatype, .redop = redop, .nranks = nranks, .size = size, .chunk = chunk};
    for (int rank = 0; rank <= nranks; rank++) {
        unsigned char *table = malloc(bytes);
        if (!table) return -1;
        for (size_t i = 0; i < PATTERN_PERIOD; i++) {
            uint64_t value = rank < nranks ? input(p, rank, i) : reduce(p, i);
            memcpy(table + i * size, &value, size); /* little-endian, as every host of such GPUs */
        }
        repeat(table, period, bytes);
        *(rank < nranks ? &p->input[rank] : &p->result) = table;
    }
    return 0;
}

void pattern_free(struct pattern *p) {
    for (int rank = 0; rank < BL_MAX_RANKS; rank++) free(p->input[rank]);
    free(p->result);
    memset(p, 0, sizeof *p);
}

static uint64_t element(const unsigned char *at, size_t size) {
    uint64_t value = 0;
    memcpy(&value, at, size);
    return value;
}

uint64_t pattern_count_wrong(const struct pattern *p, const void *got, const unsigned char *want, size_t count,
                             double tolerance, size_t *first) {
    const unsigned char *g = got;
    uint64_t wrong = 0;

    if (!memcmp(got, want, count * p->size)) return 0;
    for (size_t i = 0; i < count; i++) {
        const unsigned char *a = g + i * p->size, *b = want + i * p->size;
        if (!memcmp(a, b, p->size)) continue;
        double is = tolerance ? decode(p->datatype, element(a, p->size)) : 0;
        double ought = tolerance ? decode(p->datatype, element(b, p->size)) : 0;
        if (tolerance && fabs(is - ought) <= tolerance * fabs(ought)) continue;
        if (!wrong++) *first = i;
    }
    return wrong;
}

/* NCCL averages floats by multiplying each rank's value with 1/n in the datatype, rounded, before it adds, and may
 * round fp8 at every hop.  Only with a power of two and enough significand is that exact. */
double pattern_nccl_tolerance(const struct pattern *p) {
    const struct format *f = &formats[p->datatype];
    bool exact = !(p->nranks & (p->nranks - 1)) && f->fraction >= 7;
    if (p->redop != BL_AVG || !f->is_float || exact) return 0;
    return ldexp(p->nranks, -f->fraction);
}
