/* reference.h - what an all-reduce must deliver, computed without a line of the kernels' code.
 *
 * Inputs are a pure function of (seed, rank, element), so every rank can make every rank's input and the expected
 * result. Floats narrower than fp32 are accumulated in fp32 in rank order and rounded once to nearest even; fp8
 * saturates; integers wrap; avg divides the finished sum.  Threads: any.
 */
#ifndef BEELINE_TEST_REFERENCE_H
#define BEELINE_TEST_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { REF_DATATYPES = 12, REF_REDOPS = 5 };

/* Deterministic, well mixed; the tests' only source of randomness. */
uint64_t ref_mix(uint64_t a, uint64_t b);
/* Next number of a generator whose state is *state. */
uint64_t ref_next(uint64_t *state);
/* 0..n-1 */
uint64_t ref_below(uint64_t *state, uint64_t n);

/* Names as nccl-tests has them: "bfloat16", "sum"; numbers as nccl.h has them.  -1 if unknown. */
const char *ref_datatype_name(int datatype);
int ref_datatype(const char *name);
size_t ref_datatype_size(int datatype);
const char *ref_redop_name(int redop);
int ref_redop(const char *name);

/* A seed for floats that are small whole numbers beside zeros, infinities and NaNs: their sums are the same in any order and
 * precision, as the switch adds them.  Of fp8, whose conversions saturate, whole numbers alone. */
uint64_t ref_whole(uint64_t seed);

/* Rank `rank`'s input for the call `seed`: every kind of value, -0.0, denormals, infinities and NaNs among them. */
void ref_input(int datatype, uint64_t seed, int rank, size_t count, void *out);
/* The elements first to first + count - 1 of it. */
void ref_input_from(int datatype, uint64_t seed, int rank, size_t first, size_t count, void *out);

/* The result that every rank must see. */
void ref_allreduce(int datatype, int redop, uint64_t seed, int nranks, size_t count, void *out);

/* Index of the first element that differs, or count.  A NaN equals any NaN; everything else is compared bit by bit. */
size_t ref_differ(int datatype, const void *a, const void *b, size_t count);

/* One value each way, for the tests of the kernels' conversions. */
double ref_widen(int datatype, uint64_t bits);
uint64_t ref_narrow(int datatype, float value);
bool ref_is_nan(int datatype, uint64_t bits);

#endif
