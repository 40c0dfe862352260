/* data.c - inputs whose exact results are known, in buffers with guards. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../nccl/convert.h"
#include "selftest.h"

enum { GUARD = 64 };

static const size_t sizes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

void store(void *to, ncclDataType_t type, size_t i, double value) {
    switch (type) {
    case ncclInt8: ((int8_t *)to)[i] = (int8_t)(int64_t)value; break;
    case ncclUint8: ((uint8_t *)to)[i] = (uint8_t)(int64_t)value; break;
    case ncclInt32: ((int32_t *)to)[i] = (int32_t)(int64_t)value; break;
    case ncclUint32: ((uint32_t *)to)[i] = (uint32_t)(int64_t)value; break;
    case ncclInt64:
    case ncclUint64: ((int64_t *)to)[i] = (int64_t)value; break;
    case ncclFloat16: ((uint16_t *)to)[i] = (uint16_t)emu_narrow((float)value, emu_float16); break;
    case ncclFloat32: ((float *)to)[i] = (float)value; break;
    case ncclFloat64: ((double *)to)[i] = value; break;
    case ncclBfloat16: ((uint16_t *)to)[i] = (uint16_t)emu_narrow_bfloat16((float)value); break;
    case ncclFloat8e4m3: ((uint8_t *)to)[i] = (uint8_t)emu_narrow((float)value, emu_float8e4m3); break;
    default: ((uint8_t *)to)[i] = (uint8_t)emu_narrow((float)value, emu_float8e5m2); break;
    }
}

/* Small whole numbers: 1 to 3; of products at most three ranks bring a 2, so that fp8 holds them all. */
double input(int rank, size_t i, int op) {
    if (op == ncclProd) return (i + (size_t)rank) % 5 == 0 && rank < 3 ? 2 : 1;
    return (double)((i * 7 + (size_t)rank * 3) % 3 + 1);
}

/* Each rank's value is multiplied by 1/n first, in the precision in which it is summed. */
static double average(size_t i, ncclDataType_t type) {
    float share = 0;
    double wide = 0;
    for (int r = 0; r < nranks; r++) {
        share += (float)input(r, i, ncclAvg) * (float)(1.0 / nranks);
        wide += input(r, i, ncclAvg) * (1.0 / nranks);
    }
    return type == ncclFloat64 ? wide : (double)share;
}

double expected(size_t i, int op, ncclDataType_t type) {
    if (op == ncclAvg && type >= ncclFloat16) return average(i, type);
    double result = input(0, i, op);
    for (int r = 1; r < nranks; r++) {
        double next = input(r, i, op);
        if (op == ncclProd)
            result *= next;
        else if (op == ncclMax)
            result = result > next ? result : next;
        else if (op == ncclMin)
            result = result < next ? result : next;
        else
            result += next;
    }
    return op == ncclAvg ? floor(result / nranks) : result;
}

struct buffer make(ncclDataType_t type, size_t n) {
    struct buffer b = {.bytes = n * sizes[type], .n = n, .type = type};
    b.copy = malloc(b.bytes + 2 * GUARD);
    memset(b.copy, 0xa5, b.bytes + 2 * GUARD);
    CU(cuMemAlloc(&b.device, b.bytes + 2 * GUARD));
    upload(&b);
    return b;
}

void *at(struct buffer *b, size_t element) {
    return (char *)b->device + GUARD + element * sizes[b->type];
}
void *host(struct buffer *b) {
    return b->copy + GUARD;
}
void upload(struct buffer *b) {
    CU(cuMemcpyHtoD(b->device, b->copy, b->bytes + 2 * GUARD));
    CU(cuStreamSynchronize(CU_STREAM_LEGACY)); /* a copy from pageable memory may return before it is done */
}
void drop(struct buffer *b) {
    CU(cuMemFree(b->device));
    free(b->copy);
}

void fill(struct buffer *b, int rank, int op) {
    for (size_t i = 0; i < b->n; i++) store(host(b), b->type, i, input(rank, i, op));
    upload(b);
}

void expect_sum(struct buffer *b) {
    for (size_t i = 0; i < b->n; i++) store(host(b), b->type, i, expected(i, ncclSum, b->type));
}

bool equal(struct buffer *b) {
    unsigned char *got = malloc(b->bytes + 2 * GUARD);
    CU(cuMemcpyDtoH(got, b->device, b->bytes + 2 * GUARD));
    bool same = memcmp(got, b->copy, b->bytes + 2 * GUARD) == 0;
    free(got);
    return same;
}
