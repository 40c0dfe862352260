/* rounding.c - random values, their exact sums, and what a kernel makes of them; see rounding.h. */
#include <math.h>
#include <stdlib.h>

#include "reference.h"
#include "rounding.h"

struct format {
    int digits, least; /* of the significand; exponent of the smallest subnormal number */
};

static struct format format_of(int datatype) {
    CHECK(datatype == BL_BFLOAT16 || datatype == BL_FLOAT16);
    return datatype == BL_FLOAT16 ? (struct format){11, -24} : (struct format){8, -133};
}

static double ulp(struct format format, double x) {
    int exponent;
    frexp(x, &exponent);
    return ldexp(1, x == 0 || exponent - format.digits < format.least ? format.least : exponent - format.digits);
}

/* Box and Muller's. */
static float normal(uint64_t *state) {
    const double unit = 1.0 / 18446744073709551616.0; /* 2^-64 */
    const double u = ((double)ref_next(state) + 1) * unit, v = (double)ref_next(state) * unit;
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

static void count(struct errors *errors, struct format format, double got, double exact) {
    const double step = ulp(format, exact), units = fabs(got - exact) / step;
    errors->right += got == rint(exact / step) * step; /* to nearest even, as the host's rounding is */
    if (exact == 0) return;
    errors->mean += units;
    if (!(units <= errors->most)) errors->most = units; /* a NaN stays */
}

static double widen(int datatype, const void *values, size_t i) {
    return ref_widen(datatype, ((const uint16_t *)values)[i]);
}

static double narrowed(int datatype, double value) {
    return ref_widen(datatype, ref_narrow(datatype, (float)value));
}

static void share(struct errors *errors, size_t elements) {
    errors->mean /= (double)elements;
    errors->right /= (double)elements;
}

bool rounding_measure(struct rig *rig, struct call *call, const struct shape *shape, struct rounding *result) {
    const struct format format = format_of(call->datatype);
    struct part *part = rig->part;
    const bool blocks = call->collective == BL_REDUCESCATTER;
    const size_t elements = call->count * (blocks ? (size_t)part->count : 1);
    uint16_t *values = malloc(elements * sizeof *values);
    double *exact = calloc(elements, sizeof *exact), *chain = calloc(elements, sizeof *chain);
    size_t received = 0;
    CHECK((blocks || call->collective == BL_ALLREDUCE) && !call->in_place && values && exact && chain);
    *result = (struct rounding){0};
    for (int i = 0; i < part->count; i++) {
        uint64_t state = ref_mix(call->seed, (uint64_t)i + 1);
        for (size_t k = 0; k < elements; k++) {
            values[k] = (uint16_t)ref_narrow(call->datatype, normal(&state));
            exact[k] += widen(call->datatype, values, k);
            chain[k] = narrowed(call->datatype, chain[k] + widen(call->datatype, values, k));
        }
        part_enter(part, i);
        box_upload(call_sendbuff(call, i), values, elements * sizeof *values);
    }
    rig_settle(rig);
    for (int i = 0; i < part->count; i++) rig_launch(rig, call, shape, i);
    part_drain(part);
    for (size_t k = 0; k < elements; k++) {
        if (call->redop == BL_AVG) {
            exact[k] /= part->count;
            chain[k] = narrowed(call->datatype, chain[k] / part->count);
        }
        count(&result->chain, format, chain[k], exact[k]);
    }
    for (int i = 0; i < part->count; i++) {
        const size_t first = blocks ? (size_t)i * call->count : 0;
        part_enter(part, i);
        CU_OK(cuMemcpyDtoH(values, call_recvbuff(call, i), call->count * sizeof *values));
        for (size_t k = 0; k < call->count; k++)
            count(&result->kernel, format, widen(call->datatype, values, k), exact[first + k]);
        received += call->count;
    }
    share(&result->chain, elements);
    share(&result->kernel, received);
    free(values);
    free(exact);
    free(chain);
    return rig_failed(rig) < 0;
}
