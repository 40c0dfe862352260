/* client.c - see client.h. */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "client.h"

struct gpu {
    CUcontext context;
    CUstream stream;
    CUdeviceptr send, receive;
    ncclComm_t comm;
};

#define DRIVER_FUNCTIONS(X)                                                                                            \
    X(cuInit, cuInit)                                                                                                  \
    X(cuDeviceGetCount, cuDeviceGetCount)                                                                              \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)                                                              \
    X(cuCtxSetCurrent, cuCtxSetCurrent)                                                                                \
    X(cuMemAlloc, cuMemAlloc_v2)                                                                                       \
    X(cuMemFree, cuMemFree_v2)                                                                                         \
    X(cuMemcpyHtoD, cuMemcpyHtoD_v2)                                                                                   \
    X(cuMemcpyDtoH, cuMemcpyDtoH_v2)                                                                                   \
    X(cuStreamCreate, cuStreamCreate)                                                                                  \
    X(cuStreamDestroy, cuStreamDestroy_v2)                                                                             \
    X(cuStreamSynchronize, cuStreamSynchronize)

static struct {
#define MEMBER(function, symbol) __typeof__(function) *function;
    DRIVER_FUNCTIONS(MEMBER)
} driver;

#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "client.c:%d: %s: ", __LINE__, #condition);                                                \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)
#define CU(call)   CHECK((result = driver.call) == CUDA_SUCCESS, "CUDA error %d", (int)result)
#define NCCL(call) CHECK((nccl_result = nccl->call) == ncclSuccess, "%s", nccl->ncclGetErrorString(nccl_result))

static int open_driver(void) {
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(handle, "%s", dlerror());
#define LOAD(function, symbol) CHECK((*(void **)&driver.function = dlsym(handle, #symbol)), "%s", dlerror());
    DRIVER_FUNCTIONS(LOAD)
    return 0;
}

static void tell(const char *name, void *function) {
    Dl_info info;
    const char *file = dladdr(function, &info) ? info.dli_fname : "?";
    printf("%s is in %s\n", name, strrchr(file, '/') ? strrchr(file, '/') + 1 : file);
}

/* The sum over both GPUs of values that differ by rank and element. */
static int all_reduce(const struct client_nccl *nccl, struct gpu *gpus, int count, int opt_out) {
    float host[CLIENT_OPT_OUT_COUNT];
    CUresult result;
    ncclResult_t nccl_result;
    for (int g = 0; g < CLIENT_GPUS; g++) {
        for (int i = 0; i < count; i++) host[i] = (float)(i * (g + 1));
        CU(cuCtxSetCurrent(gpus[g].context));
        CU(cuMemcpyHtoD(gpus[g].send, host, (size_t)count * sizeof(float)));
        CU(cuStreamSynchronize(CU_STREAM_LEGACY)); /* a copy from pageable memory may return before it is done */
    }
    if (opt_out)
        NCCL(pncclGroupStart());
    else
        NCCL(ncclGroupStart());
    for (int g = 0; g < CLIENT_GPUS; g++) {
        const void *send = (const void *)gpus[g].send;
        void *receive = (void *)gpus[g].receive;
        cudaStream_t stream = (cudaStream_t)gpus[g].stream;
        if (opt_out)
            NCCL(pncclAllReduce(send, receive, (size_t)count, ncclFloat, ncclSum, gpus[g].comm, stream));
        else
            NCCL(ncclAllReduce(send, receive, (size_t)count, ncclFloat, ncclSum, gpus[g].comm, stream));
    }
    if (opt_out)
        NCCL(pncclGroupEnd());
    else
        NCCL(ncclGroupEnd());
    for (int g = 0; g < CLIENT_GPUS; g++) {
        CU(cuCtxSetCurrent(gpus[g].context));
        CU(cuStreamSynchronize(gpus[g].stream));
        CU(cuMemcpyDtoH(host, gpus[g].receive, (size_t)count * sizeof(float)));
        for (int i = 0; i < count; i++)
            CHECK(host[i] == (float)(3 * i), "rank %d element %d: %g, not %d", g, i, (double)host[i], 3 * i);
    }
    return 0;
}

int client_run(const struct client_nccl *nccl) {
    struct gpu gpus[CLIENT_GPUS];
    ncclComm_t comms[CLIENT_GPUS];
    CUresult result;
    ncclResult_t nccl_result;
    int version = 0, count = 0;
    if (open_driver()) return 1;
    CU(cuInit(0));
    CU(cuDeviceGetCount(&count));
    if (count < CLIENT_GPUS) {
        fprintf(stderr, "%d GPUs, want %d\n", count, CLIENT_GPUS);
        return 77;
    }
    tell("ncclAllReduce", (void *)nccl->ncclAllReduce);
    tell("pncclAllReduce", (void *)nccl->pncclAllReduce);
    NCCL(ncclGetVersion(&version));
    printf("version %d\n", version);
    for (int g = 0; g < CLIENT_GPUS; g++) {
        CU(cuDevicePrimaryCtxRetain(&gpus[g].context, g));
        CU(cuCtxSetCurrent(gpus[g].context));
        CU(cuMemAlloc(&gpus[g].send, CLIENT_OPT_OUT_COUNT * sizeof(float)));
        CU(cuMemAlloc(&gpus[g].receive, CLIENT_OPT_OUT_COUNT * sizeof(float)));
        CU(cuStreamCreate(&gpus[g].stream, CU_STREAM_NON_BLOCKING));
    }
    NCCL(ncclCommInitAll(comms, CLIENT_GPUS, NULL));
    for (int g = 0; g < CLIENT_GPUS; g++) gpus[g].comm = comms[g];
    if (all_reduce(nccl, gpus, CLIENT_COUNT, 0) || all_reduce(nccl, gpus, CLIENT_OPT_OUT_COUNT, 1)) return 1;
    NCCL(ncclGroupStart());
    for (int g = 0; g < CLIENT_GPUS; g++) NCCL(ncclCommDestroy(comms[g]));
    NCCL(ncclGroupEnd());
    for (int g = 0; g < CLIENT_GPUS; g++) {
        CU(cuCtxSetCurrent(gpus[g].context));
        CU(cuStreamDestroy(gpus[g].stream));
        CU(cuMemFree(gpus[g].send));
        CU(cuMemFree(gpus[g].receive));
    }
    printf("sums are right\n");
    return 0;
}
