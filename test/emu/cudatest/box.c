/* box.c - one process that drives all GPUs of the box: contexts, staging that all of them map, launches. */
#include "cudatest.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

CUmemAllocationProp test_prop(CUdevice device) {
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
}

static CUdeviceptr map_from_to(CUmemGenericAllocationHandle handle, size_t bytes, CUdevice first, CUdevice last) {
    CUdeviceptr address = 0;
    OK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    OK(cuMemMap(address, bytes, 0, handle, 0));
    for (CUdevice i = first; i <= last; i++) {
        CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = i},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        OK(cuMemSetAccess(address, bytes, &access, 1));
    }
    return address;
}

CUdeviceptr test_map(CUmemGenericAllocationHandle handle, size_t bytes, int ndevices) {
    return map_from_to(handle, bytes, 0, ndevices - 1);
}

CUdeviceptr test_map_for(CUmemGenericAllocationHandle handle, size_t bytes, CUdevice device) {
    return map_from_to(handle, bytes, device, device);
}

void test_unmap(CUdeviceptr address, size_t bytes) {
    OK(cuMemUnmap(address, bytes));
    OK(cuMemAddressFree(address, bytes));
}

CUgraphExec test_end_capture(CUstream stream) {
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    OK(cuGraphDestroy(graph)); /* the instance has its own copy */
    return exec;
}

CUstreamBatchMemOpParams test_op32(CUstreamBatchMemOpType type, CUdeviceptr address, unsigned value, unsigned flags) {
    CUstreamBatchMemOpParams p;
    memset(&p, 0, sizeof p);
    p.waitValue.operation = type; /* a write has its members in the same places */
    p.waitValue.address = address;
    p.waitValue.value = value;
    p.waitValue.flags = flags;
    return p;
}

bool test_ends_within(CUstream stream, int milliseconds) {
    for (; cuStreamQuery(stream) == CUDA_ERROR_NOT_READY; milliseconds--) {
        if (!milliseconds) return false;
        usleep(1000);
    }
    return true;
}

double test_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void test_box_open(struct test_box *box, int n) {
    memset(box, 0, sizeof *box);
    box->n = n;
    OK(cuInit(0));
    for (int i = 0; i < n; i++) {
        const CUmemAllocationProp prop = test_prop(i);
        CUmemGenericAllocationHandle handle = 0;
        OK(cuDevicePrimaryCtxRetain(&box->context[i], i));
        OK(cuCtxSetCurrent(box->context[i]));
        OK(cuStreamCreate(&box->stream[i], CU_STREAM_NON_BLOCKING));
        OK(cuModuleLoadData(&box->module[i], "any image"));
        OK(cuMemAlloc(&box->result[i], TEST_RESULT));
        OK(cuMemAlloc(&box->words[i], 4096));
        OK(settled(cuMemsetD8(box->words[i], 0, 4096)));
        OK(cuMemCreate(&handle, TEST_STAGING, &prop, 0));
        box->staging[i] = test_map(handle, TEST_STAGING, n);
        OK(cuMemRelease(handle));
        OK(settled(cuMemsetD8(box->staging[i], 0, TEST_STAGING)));
    }
}

void test_box_close(struct test_box *box) {
    for (int i = 0; i < box->n; i++) {
        OK(cuCtxSetCurrent(box->context[i]));
        test_unmap(box->staging[i], TEST_STAGING);
        OK(cuMemFree(box->result[i]));
        OK(cuMemFree(box->words[i]));
        OK(cuModuleUnload(box->module[i]));
        OK(cuStreamDestroy(box->stream[i]));
        OK(cuDevicePrimaryCtxRelease(i));
    }
}

struct bl_kernel_args test_args(const struct test_box *box, int rank) {
    struct bl_kernel_args args = {.recvbuff = (void *)(uintptr_t)box->result[rank],
                                  .rank = (uint32_t)rank,
                                  .nranks = (uint32_t)box->n,
                                  .epochs = (uint64_t *)(uintptr_t)box->words[rank]};
    for (int i = 0; i < box->n; i++) args.staging[i] = (unsigned char *)(uintptr_t)box->staging[i];
    return args;
}

CUresult test_launch(struct test_box *box, int rank, const char *kernel, unsigned blocks, unsigned threads,
                     struct bl_kernel_args *args) {
    CUfunction function = NULL;
    void *parameters[] = {args};
    OK(cuCtxSetCurrent(box->context[rank]));
    OK(cuModuleGetFunction(&function, box->module[rank], kernel));
    return cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, box->stream[rank], parameters, NULL);
}
