/* memory.c - memory, over processes too, and the box as a process sees it. */
#define _GNU_SOURCE
#include "team.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(memory, "2", NULL, 1, ALWAYS) {
    struct test_box box;
    CUdeviceptr p, base, before = 0;
    size_t bytes, available, total, later;
    unsigned type = 0;
    int device = -1;
    unsigned char data[101], managed = 0;
    void *host;
    test_box_open(&box, 2);
    OK(cuMemGetInfo(&available, &total));
    OK(cuMemAlloc(&p, 101));
    OK(cuMemGetInfo(&later, &total));
    CHECK(later == available - 101);
    CHECK(p % 256 == 0);
    OK(cuMemcpyDtoH(data, p, 101));
    CHECK(data[0] != 0 && data[100] != 0); /* never zero by luck */
    OK(cuMemGetAddressRange(&base, &bytes, p + 50));
    CHECK(base == p && bytes == 101);
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    OK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
    CHECK(type == CU_MEMORYTYPE_DEVICE && device == 1);
    EXPECT(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)data),
           CUDA_ERROR_INVALID_VALUE);
    OK(settled(cuMemsetD32(p, 0x01020304, 25)));
    OK(cuMemcpyDtoH(data, p, 101));
    CHECK(data[0] == 4 && data[99] == 1);
    OK(cuMemFree(p));
    EXPECT(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    OK(cuMemHostGetDevicePointer(&before, host, 0));
    OK(cuMemcpyDtoH(data, before, 101));
    OK(cuMemFreeHost(host));
    OK(cuMemHostRegister(data, sizeof data, 0));
    EXPECT(cuMemHostRegister(data, sizeof data, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    OK(cuMemHostUnregister(data));
    OK(cuMemAllocManaged(&p, 101, CU_MEM_ATTACH_GLOBAL));
    OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
    CHECK(managed);
    memset((void *)p, 3, 101); /* by the host, too */
    OK(cuMemcpyDtoH(data, p, 101));
    CHECK(data[0] == 3 && data[100] == 3);
    OK(cuMemFree(p));
    EXPECT(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemAllocManaged(&p, 101, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemAlloc(&p, (size_t)1 << 50), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuMemAlloc(&p, 0), CUDA_ERROR_INVALID_VALUE);
    test_box_close(&box);
}

TEST(mapping, "2", NULL, 1, ALWAYS) {
    struct test_box box;
    CUmemGenericAllocationHandle handle, again;
    CUmemAllocationProp prop = test_prop(0), fabric = test_prop(0);
    CUdeviceptr address = 0;
    size_t unit = 0;
    test_box_open(&box, 2);
    OK(cuCtxSetCurrent(box.context[0]));
    OK(cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    CHECK(unit == 2 << 20);
    fabric.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    EXPECT(cuMemCreate(&handle, unit, &fabric, 0), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT(cuMemCreate(&handle, unit / 2, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemCreate(&handle, unit, &prop, 0));
    OK(cuMemAddressReserve(&address, 2 * unit, 0, 0, 0));
    EXPECT(cuMemsetD8(address, 0, 8), CUDA_ERROR_INVALID_VALUE); /* reserved is not mapped */
    OK(cuMemMap(address + unit, unit, 0, handle, 0));
    EXPECT(cuMemMap(address + unit, unit, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMemsetD8(address + unit, 0, 8), CUDA_ERROR_INVALID_VALUE); /* mapped is not accessible */
    CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemSetAccess(address + unit, unit, &access, 1));
    OK(settled(cuMemsetD8(address + unit, 0, 8)));
    EXPECT(cuMemAddressFree(address, 2 * unit), CUDA_ERROR_INVALID_VALUE); /* still mapped */
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(address + unit)));
    CHECK(again == handle);
    OK(cuMemRelease(again));
    OK(cuMemRelease(handle)); /* the mapping keeps the memory */
    OK(settled(cuMemsetD8(address + unit, 1, 8)));
    OK(cuMemUnmap(address + unit, unit));
    EXPECT(cuMemsetD8(address + unit, 0, 8), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAddressFree(address, 2 * unit));
    /* A kernel of a GPU that was given no access. */
    OK(cuMemCreate(&handle, unit, &prop, 0));
    address = test_map(handle, unit, 1);
    struct bl_kernel_args args = test_args(&box, 1);
    args.recvbuff = (void *)(uintptr_t)address;
    OK(test_launch(&box, 1, "test_overrun", 1, 1, &args));
    EXPECT(cuStreamSynchronize(box.stream[1]), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void join_pair(struct test_pair *pair, int rank, int socket) {
    CUmemAllocationProp prop = test_prop(rank);
    int fd = -1, device = -1;
    pair->rank = rank;
    pair->socket = socket;
    test_box_open(&pair->box, 2);
    OK(cuCtxSetCurrent(pair->box.context[rank]));
    OK(cuMemCreate(&pair->mine, TEST_STAGING, &prop, 0));
    OK(cuMemExportToShareableHandle(&fd, pair->mine, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    pair->own = test_map(pair->mine, TEST_STAGING, 2);
    OK(settled(cuMemsetD8(pair->own, 0, TEST_STAGING))); /* zeroed before the other knows it */
    test_send_fd(socket, fd);
    close(fd);
    fd = test_receive_fd(socket);
    OK(cuMemImportFromShareableHandle(&pair->theirs, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    pair->other = test_map(pair->theirs, TEST_STAGING, 2);
    OK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pair->other));
    CHECK(device == 1 - rank);
}

void test_pair_meet(const struct test_pair *pair) {
    char byte = 0;
    CHECK(write(pair->socket, &byte, 1) == 1 && read(pair->socket, &byte, 1) == 1);
}

static void leave_pair(struct test_pair *pair) {
    test_pair_meet(pair); /* both are done with both */
    test_unmap(pair->own, TEST_STAGING);
    test_unmap(pair->other, TEST_STAGING);
    OK(cuMemRelease(pair->mine));
    OK(cuMemRelease(pair->theirs));
    test_box_close(&pair->box);
}

void test_pair_run(void (*body)(struct test_pair *)) {
    struct test_pair pair;
    int sockets[2], status = 1;
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    pid_t child = fork(); /* before cuInit: each has a driver of its own */
    int rank = child ? 0 : 1;
    setenv("LOCAL_RANK", rank ? "1" : "0", 1);
    close(sockets[1 - rank]); /* who waits for one that is gone is told */
    join_pair(&pair, rank, sockets[rank]);
    body(&pair);
    leave_pair(&pair);
    if (!child) _exit(test_failures != 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void exchange_by(struct test_pair *pair, const char *kernel, uint64_t rounds) {
    enum { THREADS = 32 };
    struct test_box *box = &pair->box;
    uint64_t got[THREADS];
    struct bl_kernel_args args = test_args(box, pair->rank);
    args.staging[pair->rank] = (unsigned char *)(uintptr_t)pair->own;
    args.staging[1 - pair->rank] = (unsigned char *)(uintptr_t)pair->other;
    args.count = rounds;
    args.redop = TEST_FENCE;
    args.timeout_ns = 5000000000ull;
    OK(test_launch(box, pair->rank, kernel, 1, THREADS, &args));
    OK(cuStreamSynchronize(box->stream[pair->rank]));
    OK(cuMemcpyDtoH(got, box->result[pair->rank], sizeof got));
    for (int i = 0; i < THREADS; i++) CHECK(got[i] == 2 * 1000 * (rounds * (rounds + 1) / 2) + rounds);
}

static void exchange_lines(struct test_pair *pair) {
    exchange_by(pair, "test_lines", 10);
}
static void exchange_cells(struct test_pair *pair) {
    exchange_by(pair, "test_cells", 100);
}

TRIAL(processes, "2", NULL, 3, ALWAYS, test_pair_run(exchange_lines))
TRIAL(processes_cells, "2", NULL, 3, ALWAYS, test_pair_run(exchange_cells))

/* A stray store of the host into what lies behind device memory ends the process that does it. */
TEST(guard, "1", NULL, 1, ALWAYS) {
    struct test_box box;
    test_box_open(&box, 1);
    for (int side = 0; side < 2; side++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) {
            *(volatile char *)(uintptr_t)(side ? box.result[0] + TEST_RESULT : box.result[0] - 1) = 1;
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    }
    test_box_close(&box);
}

TEST(no_peer, "2", "BEELINE_EMU_TOPOLOGY=none", 1, ALWAYS) {
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = test_prop(0);
    CUdeviceptr address;
    CUcontext context, other;
    int can = 1, fd = -1;
    OK(cuInit(0));
    OK(cuDeviceCanAccessPeer(&can, 0, 1));
    CHECK(!can);
    OK(cuDevicePrimaryCtxRetain(&other, 0));
    OK(cuDevicePrimaryCtxRetain(&context, 1));
    OK(cuCtxSetCurrent(context));
    EXPECT(cuCtxEnablePeerAccess(other, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    OK(cuMemCreate(&handle, TEST_STAGING, &prop, 0));
    OK(cuMemAddressReserve(&address, TEST_STAGING, 0, 0, 0));
    OK(cuMemMap(address, TEST_STAGING, 0, handle, 0));
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    EXPECT(cuMemSetAccess(address, TEST_STAGING, &access, 1), CUDA_ERROR_INVALID_DEVICE);
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    EXPECT(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
           CUDA_ERROR_NOT_SUPPORTED);
}

TEST(fork, "1", NULL, 1, ALWAYS) {
    struct test_box box;
    test_box_open(&box, 1);
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr p;
        int count;
        EXPECT(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
        EXPECT(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
        EXPECT(cuMemAlloc(&p, 8), CUDA_ERROR_NOT_INITIALIZED);
        EXPECT(cuStreamSynchronize(box.stream[0]), CUDA_ERROR_NOT_INITIALIZED);
        exit(test_failures != 0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    test_box_close(&box);
}

TEST(proc_address, "1", NULL, 1, ALWAYS) {
    void *old = NULL, *new = NULL;
    CUdriverProcAddressQueryResult status;
    int version = 0;
    OK(cuDriverGetVersion(&version));
    CHECK(version == 13000);
    OK(cuGetProcAddress("cuCtxGetDevice", &old, 12000, 0, &status));
    OK(cuGetProcAddress("cuCtxGetDevice", &new, 13000, 0, &status));
    CHECK(old == (void *)cuCtxGetDevice && new &&new != old); /* another form, with another argument */
    OK(cuGetProcAddress("cuMemAlloc", &new, 12000, 0, &status));
    CHECK(new == (void *)cuMemAlloc &&status == CU_GET_PROC_ADDRESS_SUCCESS);
    OK(cuGetProcAddress("cuStreamBatchMemOp", &old, 8000, 0, &status)); /* a form that is off */
    CHECK(old && old != (void *)cuStreamBatchMemOp);
    CHECK(((CUresult(*)(CUstream, unsigned, CUstreamBatchMemOpParams *, unsigned))old)(NULL, 1, NULL, 0) ==
          CUDA_ERROR_NOT_INITIALIZED);
    OK(cuGetProcAddress("cuStreamBatchMemOp", &new, 11070, 0, &status));
    CHECK(new == (void *)cuStreamBatchMemOp);
    OK(cuGetProcAddress("cuGraphInstantiate", &new, 11000, 0, &status));
    CHECK(!new &&status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    OK(cuGetProcAddress("cuNoSuchCall", &new, 13000, 0, &status));
    CHECK(!new &&status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    EXPECT(cuGetProcAddress("cuMemAlloc", &new, 99000, 0, &status), CUDA_ERROR_INVALID_VALUE);
}

/* A driver that lacks calls. */
TEST(lacks, "1", "BEELINE_EMU_LACKS=cuStreamBatchMemOp,cuStreamWriteValue32", 1, ALWAYS) {
    static const char *const names[] = {"cuStreamBatchMemOp", "cuStreamWriteValue32"};
    CUdriverProcAddressQueryResult status;
    void *address = (void *)names;
    for (int i = 0; i < 2; i++) {
        OK(cuGetProcAddress(names[i], &address, 13000, 0, &status));
        CHECK(!address && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
        EXPECT(cuGetProcAddress(names[i], &address, 13000, 0, NULL), CUDA_ERROR_NOT_FOUND);
    }
    OK(cuGetProcAddress("cuStreamWriteValue64", &address, 13000, 0, &status));
    CHECK(address == (void *)cuStreamWriteValue64 && status == CU_GET_PROC_ADDRESS_SUCCESS);
}

/* An older driver: of a call that has a newer form the older one is found, by its version alone. */
TEST(older, "1", "BEELINE_EMU_DRIVER=12040", 1, ALWAYS) {
    CUdriverProcAddressQueryResult status;
    void *address = NULL;
    int version = 0;
    OK(cuDriverGetVersion(&version));
    CHECK(version == 12040);
    EXPECT(cuGetProcAddress("cuCtxCreate", &address, 12050, 0, &status), CUDA_ERROR_INVALID_VALUE);
    OK(cuGetProcAddress("cuCtxCreate", &address, 12040, 0, &status));
    CHECK(address && address != (void *)cuCtxCreate);
    OK(cuGetProcAddress("cuFuncLoad", &address, 12040, 0, &status));
    CHECK(address == (void *)cuFuncLoad);
}

TEST(fault, "1", "BEELINE_EMU_FAULT=cuMemAlloc#2=CUDA_ERROR_OUT_OF_MEMORY", 1, ALWAYS) {
    CUcontext context;
    CUdeviceptr p;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&p, 8));
    EXPECT(cuMemAlloc(&p, 8), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc(&p, 8));
}

TEST(identity, "4", "CUDA_VISIBLE_DEVICES=2,0", 1, ALWAYS) {
    CUuuid uuid;
    char bus[16];
    int count = 0, value = 0;
    CUdevice device;
    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    CHECK(count == 2);
    OK(cuDeviceGetUuid(&uuid, 0));
    CHECK(uuid.bytes[15] == 2);
    OK(cuDeviceGetPCIBusId(bus, sizeof bus, 1));
    CHECK(!strcmp(bus, "0000:10:00.0"));
    OK(cuDeviceGetByPCIBusId(&device, bus));
    CHECK(device == 1);
    EXPECT(cuDeviceGetByPCIBusId(&device, "0000:11:00.0"), CUDA_ERROR_INVALID_DEVICE);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    CHECK(value == 9);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0));
    CHECK(value == 0);
    EXPECT(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 2), CUDA_ERROR_INVALID_DEVICE);
}

static int threads(void) {
    int n = 0;
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *entry; folder && (entry = readdir(folder));) n += entry->d_name[0] != '.';
    if (folder) closedir(folder);
    return n;
}

/* Loaded and asked for its version, the driver starts no thread; nor do idle streams. */
TEST(quiet, "1", NULL, 1, ALWAYS) {
    int version;
    CUstream stream;
    CUcontext context;
    CHECK(threads() == 1);
    OK(cuDriverGetVersion(&version));
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(threads() == 1);
}
