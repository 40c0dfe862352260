/* box.c - one process that drives all GPUs of the box: contexts, staging that all of them map, launches. */
#include "cudatest.h"

#include <string.h>
#include <unistd.h>

CUdeviceptr test_map(CUmemGenericAllocationHandle handle, size_t bytes, int ndevices) {
    CUdeviceptr address = 0;
    OK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    OK(cuMemMap(address, bytes, 0, handle, 0));
    for (int i = 0; i < ndevices; i++) {
        CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = i},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        OK(cuMemSetAccess(address, bytes, &access, 1));
    }
    return address;
}

void test_box_open(struct test_box *box, int n) {
    memset(box, 0, sizeof *box);
    box->n = n;
    OK(cuInit(0));
    for (int i = 0; i < n; i++) {
        CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = i}};
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
        OK(cuMemUnmap(box->staging[i], TEST_STAGING));
        OK(cuMemAddressFree(box->staging[i], TEST_STAGING));
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
