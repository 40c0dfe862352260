/* values.c - averages of numbers whose sum is out of range. */
#include "programs.h"

#include <math.h>
#include <stdlib.h>

#include "reference.h"

/* The largest that is tried of each type, and how far off a result may be: as often rounded as there are ranks. */
static const struct {
    ncclDataType_t datatype;
    double largest, tolerance;
} types[] = {{ncclFloat32, 3.4e38, 1e-6},
             {ncclFloat64, 1.7e308, 1e-14},
             {ncclBfloat16, 3.38e38, 0.03},
             {ncclFloat16, 65504, 0.004}};
enum { TYPES = sizeof types / sizeof *types, KINDS = 4 };

/* What rank `rank` has in place i. */
static double value(double largest, int rank, size_t i) {
    switch (i % KINDS) {
    case 0: return -largest;
    case 1: return largest;
    case 2: return rank % 2 ? -(double)rank : rank;
    default: return rank + 1;
    }
}

static double average(double largest, int nranks, size_t i) {
    double sum = 0;
    if (i % KINDS < 2) return value(largest, 0, i);
    for (int r = 0; r < nranks; r++) sum += value(largest, r, i);
    return sum / nranks;
}

static void put(void *image, size_t i, int datatype, double v) {
    const float narrow = (float)v;
    if (datatype == ncclFloat64)
        ((double *)image)[i] = v;
    else if (datatype == ncclFloat32)
        ((float *)image)[i] = narrow;
    else
        ((uint16_t *)image)[i] = (uint16_t)ref_narrow(datatype, narrow);
}

static double get(const void *image, size_t i, int datatype) {
    if (datatype == ncclFloat64) return ((const double *)image)[i];
    if (datatype == ncclFloat32) return ((const float *)image)[i];
    return ref_widen(datatype, ((const uint16_t *)image)[i]);
}

static void check(struct part *part, const void *image, const char *what, int t, size_t count, size_t first) {
    for (size_t i = 0; i < count; i++) {
        const double got = get(image, i, types[t].datatype),
                     want = average(types[t].largest, part->box->nranks, first + i);
        if (!(fabs(got - want) <= types[t].tolerance * fmax(1, fabs(want))))
            FAIL("rank %d: %s avg of %s: element %zu of %zu is %g, expected %g", self(part)->rank, what,
                 ref_datatype_name(types[t].datatype), i, count, got, want);
    }
}

static void one(struct part *part, ncclComm_t comm, CUstream stream, int t, size_t bytes) {
    const ncclDataType_t datatype = types[t].datatype;
    const size_t size = ref_datatype_size(datatype), n = (size_t)part->box->nranks, count = bytes / size / n * n;
    const size_t block = count / n, mine = block * (size_t)self(part)->rank;
    CUdeviceptr send, recv;
    void *image = malloc(bytes);
    CHECK(image);
    CU_OK(cuMemAlloc(&send, bytes));
    CU_OK(cuMemAlloc(&recv, bytes));
    for (size_t i = 0; i < count; i++) put(image, i, datatype, value(types[t].largest, self(part)->rank, i));
    box_upload(send, image, count * size);
    CU_OK(cuStreamSynchronize(CU_STREAM_LEGACY));
    doing(part, "average of %s, %zu bytes", ref_datatype_name(datatype), bytes);

    NCCL_OK(ncclAllReduce((void *)send, (void *)recv, count, datatype, ncclAvg, comm, stream));
    stream_sync(stream);
    CU_OK(cuMemcpyDtoH(image, recv, count * size));
    check(part, image, "all_reduce", t, count, 0);

    NCCL_OK(ncclReduceScatter((void *)send, (void *)recv, block, datatype, ncclAvg, comm, stream));
    stream_sync(stream);
    CU_OK(cuMemcpyDtoH(image, recv, block * size));
    check(part, image, "reduce_scatter", t, block, mine);

    NCCL_OK(ncclReduce((void *)send, (void *)recv, count, datatype, ncclAvg, 0, comm, stream));
    stream_sync(stream);
    if (self(part)->rank == 0) {
        CU_OK(cuMemcpyDtoH(image, recv, count * size));
        check(part, image, "reduce", t, count, 0);
    }
    CU_OK(cuMemFree(send));
    CU_OK(cuMemFree(recv));
    free(image);
}

static void averages(struct part *part, const struct settings *s) {
    const ncclComm_t comm = comm_open(part);
    CUstream stream = stream_open();
    const size_t sizes[] = {s->small, s->middle, s->large};
    for (int t = 0; t < TYPES; t++)
        for (int i = 0; i < 3; i++) one(part, comm, stream, t, sizes[i] & ~(size_t)63);
    comm_close(part, comm);
    stream_close(stream);
}

const struct program value_programs[] = {{"average", averages}, {0}};
