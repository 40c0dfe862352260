/* selftest.h - tests of the reference NCCL of the emulated box by itself, without Beeline.
 *
 *   nccl_selftest                   one process drives all GPUs, with groups
 *   emu-box -n R -- nccl_selftest   this process is one rank
 *
 * Prints `N passed, N failed`; the exit status is 1 if something failed.  What depends on variables that are read once
 * runs in children of this program: nccl_selftest CASE.
 */
#ifndef EMU_SELFTEST_H
#define EMU_SELFTEST_H

#include <cuda.h>
#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>

enum { MAX = 16 };

/* ---- box.c: the ranks first .. first + nlocal - 1 are driven here ---- */
extern int nranks, nlocal, first;
extern CUcontext contexts[MAX];
extern CUstream streams[MAX], side_streams[MAX];
extern ncclComm_t comms[MAX];

bool check(bool good, const char *format, ...) __attribute__((format(printf, 2, 3)));
int summary(void); /* prints it; the exit status */

#define IS(call, wanted)                                                                                               \
    do {                                                                                                               \
        ncclResult_t got_ = call;                                                                                      \
        check(got_ == (wanted), "%s:%d: %s: %s, not " #wanted, __FILE__, __LINE__, #call, ncclGetErrorString(got_));   \
    } while (0)
#define OK(call) IS(call, ncclSuccess)
#define CU(call) check_cuda(call, #call, __FILE__, __LINE__) /* ends the program */
/* For every rank driven here, its context current. */
#define foreach(l) for (int l = 0; l < nlocal && cuCtxSetCurrent(contexts[l]) == CUDA_SUCCESS; l++)

void check_cuda(CUresult result, const char *call, const char *file, int line);
void open_box(void);
void share_id(ncclUniqueId *id); /* rank 0's, to all */
void make_comms(ncclComm_t *made, ncclConfig_t *config);
void synchronize(void);

/* ---- data.c: data with exactly known results ---- */
void store(void *to, ncclDataType_t type, size_t i, double value);
double input(int rank, size_t i, int op);
double expected(size_t i, int op, ncclDataType_t type);

/* n elements between guards: the device's, and the host's copy, which comes to hold what is expected. */
struct buffer {
    CUdeviceptr device;
    unsigned char *copy;
    size_t bytes, n;
    ncclDataType_t type;
};

struct buffer make(ncclDataType_t type, size_t n);
void *at(struct buffer *b, size_t element); /* on the device */
void *host(struct buffer *b);
void upload(struct buffer *b);
void fill(struct buffer *b, int rank, int op);
void expect_sum(struct buffer *b); /* the host's copy becomes the ranks' sum */
bool equal(struct buffer *b);      /* the device's bytes are the host's, guards included */
void drop(struct buffer *b);

/* ---- the tests ---- */
void test_convert(void);
void test_collectives(void);
void test_calls(void);
void test_comms(void);
void test_children(const char *self);
void child_case(const char *name); /* ends the program */

#endif
