/* multicast.c - the calls of multicast objects and fabric handles: their rules and their error codes. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../emulated.h"
#include "team.h"

NEEDS_EMULATED_DRIVER

static const size_t unit = TEST_STAGING;

static CUmemGenericAllocationHandle create(unsigned devices, size_t size) {
    CUmemGenericAllocationHandle handle = 0;
    CUmulticastObjectProp prop = test_multicast_prop(devices, size);
    OK(cuMulticastCreate(&handle, &prop));
    return handle;
}

static CUmemGenericAllocationHandle memory_of(CUdevice device, size_t size) {
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp prop = test_prop(device);
    OK(cuMemCreate(&handle, size, &prop, 0));
    return handle;
}

static void start(int n) {
    CUcontext context;
    OK(cuInit(0));
    for (int i = n - 1; i >= 0; i--) {
        OK(cuDevicePrimaryCtxRetain(&context, i));
        OK(cuCtxSetCurrent(context));
    }
}

static void refuse(unsigned devices, size_t size, unsigned long long types, unsigned long long flags, CUresult result) {
    CUmulticastObjectProp prop = {.numDevices = devices, .size = size, .handleTypes = types, .flags = flags};
    CUmemGenericAllocationHandle handle = 0;
    EXPECT(cuMulticastCreate(&handle, &prop), result);
}

static void creation(void) {
    const unsigned fd = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmulticastObjectProp prop = test_multicast_prop(2, unit);
    CUmemGenericAllocationHandle handle = 0;
    size_t least = 0, best = 0;
    OK(cuMulticastGetGranularity(&least, &prop, CU_MULTICAST_GRANULARITY_MINIMUM));
    OK(cuMulticastGetGranularity(&best, &prop, CU_MULTICAST_GRANULARITY_RECOMMENDED));
    CHECK(least == unit && best == 512 << 20);
    EXPECT(cuMulticastGetGranularity(NULL, &prop, CU_MULTICAST_GRANULARITY_MINIMUM), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMulticastGetGranularity(&least, NULL, CU_MULTICAST_GRANULARITY_MINIMUM), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMulticastGetGranularity(&least, &prop, (CUmulticastGranularity_flags)7), CUDA_ERROR_INVALID_VALUE);
    prop.size = 0;
    EXPECT(cuMulticastGetGranularity(&least, &prop, CU_MULTICAST_GRANULARITY_MINIMUM), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMulticastCreate(NULL, &prop), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMulticastCreate(&handle, NULL), CUDA_ERROR_INVALID_VALUE);
    refuse(0, unit, fd, 0, CUDA_ERROR_INVALID_VALUE);
    refuse(4, unit, fd, 0, CUDA_ERROR_INVALID_VALUE);
    refuse(2, 0, fd, 0, CUDA_ERROR_INVALID_VALUE);
    refuse(2, unit / 2, fd, 0, CUDA_ERROR_INVALID_VALUE);
    refuse(2, unit, fd, 1, CUDA_ERROR_INVALID_VALUE);
    refuse(2, unit, CU_MEM_HANDLE_TYPE_WIN32, 0, CUDA_ERROR_NOT_SUPPORTED);
    refuse(2, unit, CU_MEM_HANDLE_TYPE_FABRIC, 0, CUDA_ERROR_NOT_SUPPORTED);
}

static void adding(CUmemGenericAllocationHandle mc, CUmemGenericAllocationHandle memory) {
    EXPECT(cuMulticastAddDevice(memory, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMulticastAddDevice(mc, 3), CUDA_ERROR_INVALID_DEVICE);
    OK(cuMulticastAddDevice(mc, 0));
    EXPECT(cuMulticastAddDevice(mc, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMulticastAddDevice(mc, 1));
    EXPECT(cuMulticastAddDevice(mc, 2), CUDA_ERROR_INVALID_VALUE); /* the team is complete */
}

static void binding(CUmemGenericAllocationHandle mc, CUmemGenericAllocationHandle memory) {
    CUmemGenericAllocationHandle outside = memory_of(2, unit), private = 0, local = 0;
    CUmemAllocationProp prop = test_prop(0);
    CUmulticastObjectProp here = test_multicast_prop(1, unit);
    EXPECT(cuMulticastBindMem(mc, 0, memory, 0, unit, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMulticastBindMem(mc, 0, mc, 0, unit, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMulticastBindMem(memory, 0, memory, 0, unit, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMulticastBindMem(mc, 0, memory, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMulticastBindMem(mc, 0, memory, 0, unit / 2, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMulticastBindMem(mc, 4096, memory, 0, unit, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMulticastBindMem(mc, 0, memory, 4096, unit, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMulticastBindMem(mc, 3 * unit, memory, 0, 2 * unit, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMulticastBindMem(mc, 0, memory, unit, 2 * unit, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMulticastBindMem(mc, 0, outside, 0, unit, 0), CUDA_ERROR_INVALID_DEVICE);
    OK(cuMulticastBindMem(mc, unit, memory, 0, 2 * unit, 0));
    EXPECT(cuMulticastBindMem(mc, 2 * unit, memory, 0, unit, 0), CUDA_ERROR_INVALID_VALUE); /* bound already */
    OK(cuMulticastBindMem(mc, 3 * unit, memory, unit, unit, 0));
    EXPECT(cuMulticastUnbind(mc, 3, unit, 2 * unit), CUDA_ERROR_INVALID_DEVICE);
    EXPECT(cuMulticastUnbind(mc, 1, unit, 2 * unit), CUDA_ERROR_INVALID_VALUE); /* nothing of that device */
    EXPECT(cuMulticastUnbind(mc, 0, unit, unit), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMulticastUnbind(mc, 0, 0, unit), CUDA_ERROR_INVALID_VALUE);
    OK(cuMulticastUnbind(mc, 0, unit, 2 * unit));
    EXPECT(cuMulticastUnbind(mc, 0, unit, 2 * unit), CUDA_ERROR_INVALID_VALUE);
    OK(cuMulticastUnbind(mc, 0, 3 * unit, unit));
    /* An object that others may have takes memory that others may have. */
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    OK(cuMemCreate(&private, unit, &prop, 0));
    EXPECT(cuMulticastBindMem(mc, 0, private, 0, unit, 0), CUDA_ERROR_INVALID_VALUE);
    here.handleTypes = 0;
    OK(cuMulticastCreate(&local, &here));
    OK(cuMulticastAddDevice(local, 0));
    OK(cuMulticastBindMem(local, 0, private, 0, unit, 0));
    OK(cuMemRelease(local)); /* unbinds, too */
    OK(cuMemRelease(private));
    OK(cuMemRelease(outside));
}

static void binding_by_address(CUmemGenericAllocationHandle mc, CUmemGenericAllocationHandle memory) {
    CUdeviceptr own = test_map_for(memory, 2 * unit, 0), plain = 0;
    OK(cuMemAlloc(&plain, 2 * unit));
    EXPECT(cuMulticastBindAddr(mc, 0, plain, unit, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMulticastBindAddr(mc, 0, 0, unit, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMulticastBindAddr(mc, 0, own + 4096, unit, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMulticastBindAddr(mc, 0, own + unit, 2 * unit, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMulticastBindAddr(mc, 0, own, unit, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuMulticastBindAddr(mc, 0, own + unit, unit, 0));
    OK(cuMulticastUnbind(mc, 0, 0, unit));
    test_unmap(own, 2 * unit);
    OK(cuMemFree(plain));
}

static void mapping(CUmemGenericAllocationHandle mc) {
    CUdeviceptr address = 0;
    CUmemAllocationProp prop;
    CUmemGenericAllocationHandle again = 0;
    unsigned long long flags = 0;
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 2},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(cuMemAddressReserve(&address, 8 * unit, 0, 0, 0));
    EXPECT(cuMemMap(address, 8 * unit, 0, mc, 0), CUDA_ERROR_INVALID_VALUE); /* larger than the object */
    EXPECT(cuMemMap(address, unit, unit, mc, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(address, 4 * unit, 0, mc, 0));
    EXPECT(cuMemSetAccess(address, 4 * unit, &access, 1), CUDA_ERROR_INVALID_DEVICE); /* not of the team */
    access.location.id = 1;
    OK(cuMemSetAccess(address, 4 * unit, &access, 1));
    OK(cuMemGetAccess(&flags, &access.location, address));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT(cuMemGetAllocationPropertiesFromHandle(&prop, mc), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)address));
    CHECK(again == mc);
    OK(cuMemRelease(again));
    OK(cuMemUnmap(address, 4 * unit));
    OK(cuMemAddressFree(address, 8 * unit));
}

TEST(multicast_rules, "3", NVLS, 1, ALWAYS) {
    start(3);
    creation();
    CUmemGenericAllocationHandle mc = create(2, 4 * unit), memory = memory_of(0, 2 * unit);
    adding(mc, memory);
    binding(mc, memory);
    binding_by_address(mc, memory);
    mapping(mc);
    OK(cuMemRelease(memory));
    OK(cuMemRelease(mc));
}

static void *add_later(void *handle) {
    usleep(30000);
    OK(cuMulticastAddDevice(*(CUmemGenericAllocationHandle *)handle, 1));
    return NULL;
}

/* Bind and map wait until all devices are there, and, here, not for ever. */
TEST(multicast_wait, "2", NVLS " BEELINE_EMU_MULTICAST_WAIT=1500", 1, ALWAYS) {
    pthread_t thread;
    CUdeviceptr address = 0;
    start(2);
    CUmemGenericAllocationHandle mc = create(2, unit), memory = memory_of(0, unit);
    OK(cuMemAddressReserve(&address, unit, 0, 0, 0));
    OK(cuMulticastAddDevice(mc, 0));
    EXPECT(cuMulticastBindMem(mc, 0, memory, 0, unit, 0), CUDA_ERROR_SYSTEM_NOT_READY);
    EXPECT(cuMemMap(address, unit, 0, mc, 0), CUDA_ERROR_SYSTEM_NOT_READY);
    CHECK(!pthread_create(&thread, NULL, add_later, &mc));
    OK(cuMulticastBindMem(mc, 0, memory, 0, unit, 0));
    pthread_join(thread, NULL);
    OK(cuMemMap(address, unit, 0, mc, 0));
    OK(cuMemRelease(mc)); /* the mapping keeps the object, and the object the memory */
    OK(cuMemRelease(memory));
    size_t available, whole;
    OK(cuMemGetInfo(&available, &whole));
    CHECK(available == whole - unit);
    test_unmap(address, unit);
    OK(cuMemGetInfo(&available, &whole));
    CHECK(available == whole);
}

/* Of two slots; the same environment in all processes of a box. */
static CUresult take(CUmemGenericAllocationHandle *mc) {
    CUmemGenericAllocationHandle memory = memory_of(0, unit);
    *mc = create(1, unit);
    OK(cuMulticastAddDevice(*mc, 0));
    CUresult result = cuMulticastBindMem(*mc, 0, memory, 0, unit, 0);
    OK(cuMemRelease(memory));
    return result;
}

static void keep_one(struct test_star *star) {
    CUmemGenericAllocationHandle mine, more;
    start(1);
    OK(take(&mine)); /* each of two */
    test_star_meet(star);
    EXPECT(take(&more), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemRelease(more));
    test_star_meet(star);
    if (star->rank) raise(SIGKILL);
    for (int tries = 0; take(&more) != CUDA_SUCCESS && tries < 1000; tries++) { /* the dead give theirs back */
        OK(cuMemRelease(more));
        usleep(1000);
    }
    OK(cuMemRelease(more));
    OK(cuMemRelease(mine));
}

TEST(multicast_slots, "1", NVLS " BEELINE_EMU_MULTICAST_SLOTS=2", 1, ALWAYS) {
    CUmemGenericAllocationHandle mc[3];
    test_star_run(2, keep_one, 1);
    OK(take(&mc[0]));
    OK(take(&mc[1]));
    EXPECT(take(&mc[2]), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMulticastUnbind(mc[0], 0, 0, unit)); /* gives none back: the object has it */
    EXPECT(take(&mc[2]), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemRelease(mc[0]));
    OK(take(&mc[0]));
}

TEST(multicast_fault, "1",
     NVLS
     " BEELINE_EMU_FAULT=cuMulticastGetGranularity#1=CUDA_ERROR_UNKNOWN,cuMulticastCreate#1=CUDA_ERROR_OUT_OF_MEMORY,"
     "cuMulticastAddDevice#1=CUDA_ERROR_ILLEGAL_STATE,cuMulticastBindMem#1=CUDA_ERROR_SYSTEM_NOT_READY,"
     "cuMulticastBindAddr#1=CUDA_ERROR_OUT_OF_MEMORY,cuMulticastUnbind#1=CUDA_ERROR_NOT_PERMITTED",
     1, ALWAYS) {
    CUmulticastObjectProp prop = test_multicast_prop(1, unit);
    CUmemGenericAllocationHandle mc = 0;
    size_t size;
    start(1);
    CUmemGenericAllocationHandle memory = memory_of(0, unit);
    EXPECT(cuMulticastGetGranularity(&size, &prop, CU_MULTICAST_GRANULARITY_MINIMUM), CUDA_ERROR_UNKNOWN);
    EXPECT(cuMulticastCreate(&mc, &prop), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMulticastCreate(&mc, &prop));
    EXPECT(cuMulticastAddDevice(mc, 0), CUDA_ERROR_ILLEGAL_STATE);
    OK(cuMulticastAddDevice(mc, 0));
    EXPECT(cuMulticastBindMem(mc, 0, memory, 0, unit, 0), CUDA_ERROR_SYSTEM_NOT_READY);
    OK(cuMulticastBindMem(mc, 0, memory, 0, unit, 0));
    EXPECT(cuMulticastBindAddr(mc, 0, 0, unit, 0), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cuMulticastUnbind(mc, 0, 0, unit), CUDA_ERROR_NOT_PERMITTED);
    OK(cuMulticastUnbind(mc, 0, 0, unit));
}

/* Without multicast there is none. */
TEST(multicast_unsupported, "2", "BEELINE_EMU_LACKS=cuMulticastBindMem", 1, ALWAYS) {
    CUmulticastObjectProp prop = test_multicast_prop(2, unit);
    CUmemGenericAllocationHandle mc = 0;
    CUdriverProcAddressQueryResult found;
    void *address = NULL;
    size_t size;
    int value = 1;
    start(2);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0));
    CHECK(value == 0);
    EXPECT(cuMulticastCreate(&mc, &prop), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT(cuMulticastGetGranularity(&size, &prop, CU_MULTICAST_GRANULARITY_MINIMUM), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuGetProcAddress("cuMulticastCreate", &address, 12000, 0, &found));
    CHECK(found == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    OK(cuGetProcAddress("cuMulticastCreate", &address, 12010, 0, &found));
    CHECK(address == (void *)cuMulticastCreate);
    OK(cuGetProcAddress("cuMulticastBindMem", &address, 13000, 0, &found)); /* left out by the environment */
    CHECK(!address && found == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}
TRIAL(multicast_old, "2", NVLS " BEELINE_EMU_ARCH=80 BEELINE_EMU_LACKS=cuMulticastBindMem", 1, ALWAYS,
      test_multicast_unsupported())

/* Who is no member of the team is found out wherever it is; an object outlives who made it. */
static void share(struct test_star *star) {
    struct test_member m;
    test_star_join(star, &m);
    EXPECT(cuMulticastAddDevice(m.multicast, m.rank), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMulticastUnbind(m.multicast, 1 - m.rank, 0, unit), CUDA_ERROR_INVALID_VALUE);
    EXPECT(cuMulticastBindAddr(m.multicast, 0, m.own, unit, 0), CUDA_ERROR_INVALID_VALUE);
    test_star_leave(star, &m);
}

TRIAL(multicast_processes, "2", NVLS, 3, ALWAYS, test_star_run(2, share, 0))

/* A peer that is killed has taken its memory along: accesses fail, and do not go to what is there now. */
static void lose(struct test_star *star) {
    struct test_member m;
    struct bl_kernel_args args = {.redop = TEST_MULTICAST_STORE};
    char byte;
    test_star_join(star, &m);
    if (star->rank) raise(SIGKILL);
    CHECK(read(star->socket[1], &byte, 1) <= 0); /* it is gone */
    usleep(20000);
    args.sendbuff = (void *)(uintptr_t)m.all;
    OK(test_member_launch(&m, "test_multimem_forbidden", 1, &args));
    EXPECT(cuStreamSynchronize(m.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TRIAL(multicast_lost, "2", NVLS, 1, ALWAYS, test_star_run(2, lose, 1))

/* --- fabric handles --- */
static void fabric_pair(struct test_star *star) {
    const CUmemAllocationHandleType type = CU_MEM_HANDLE_TYPE_FABRIC;
    CUmemAllocationProp prop = test_prop(star->rank);
    CUmulticastObjectProp object = test_multicast_prop(2, unit);
    CUmemGenericAllocationHandle memory = 0, mc = 0, theirs = 0;
    CUmemFabricHandle mine, received;
    int fd, device = -1;
    start(2);
    CUcontext context;
    OK(cuDevicePrimaryCtxRetain(&context, star->rank));
    OK(cuCtxSetCurrent(context));
    prop.requestedHandleTypes = type;
    object.handleTypes = type;
    OK(cuMemCreate(&memory, unit, &prop, 0));
    EXPECT(cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
           CUDA_ERROR_INVALID_VALUE);
    OK(cuMemExportToShareableHandle(&mine, memory, type, 0));
    int socket = star->socket[star->rank ? 0 : 1];
    CHECK(write(socket, &mine, sizeof mine) == sizeof mine &&
          read(socket, &received, sizeof received) == sizeof received);
    OK(cuMemImportFromShareableHandle(&theirs, &received, type));
    CUdeviceptr address = test_map_for(theirs, unit, star->rank);
    OK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
    CHECK(device == 1 - star->rank);
    test_unmap(address, unit);
    OK(cuMemRelease(theirs));
    if (!star->rank) {
        OK(cuMulticastCreate(&mc, &object));
        OK(cuMemExportToShareableHandle(&mine, mc, type, 0));
        CHECK(write(socket, &mine, sizeof mine) == sizeof mine);
    } else {
        CHECK(read(socket, &received, sizeof received) == sizeof received);
        OK(cuMemImportFromShareableHandle(&mc, &received, type));
    }
    OK(cuMulticastAddDevice(mc, star->rank));
    OK(cuMulticastBindMem(mc, 0, memory, 0, unit, 0));
    test_star_meet(star);
    OK(cuMemRelease(mc));
    test_star_meet(star);
    memset(&mine, 0, sizeof mine);
    EXPECT(cuMemImportFromShareableHandle(&theirs, &mine, type), CUDA_ERROR_INVALID_VALUE);
    if (star->rank) /* released by its maker */
        EXPECT(cuMemImportFromShareableHandle(&theirs, &received, type), CUDA_ERROR_INVALID_VALUE);
    test_star_meet(star);
    OK(cuMemRelease(memory));
}

TRIAL(fabric, "2", NVLS " BEELINE_EMU_FABRIC=on", 1, ALWAYS, test_star_run(2, fabric_pair, 0))

static void no_fabric(int claimed, CUresult result) {
    CUmemAllocationProp prop = test_prop(0);
    CUmulticastObjectProp object = test_multicast_prop(1, unit);
    CUmemGenericAllocationHandle handle = 0;
    CUmemFabricHandle fabric = {{0}};
    int value = -1;
    start(1);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 0));
    CHECK(value == claimed);
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    object.handleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    EXPECT(cuMemCreate(&handle, unit, &prop, 0), result);
    EXPECT(cuMulticastCreate(&handle, &object), result);
    EXPECT(cuMemImportFromShareableHandle(&handle, &fabric, CU_MEM_HANDLE_TYPE_FABRIC), result);
    handle = memory_of(0, unit);
    EXPECT(cuMemExportToShareableHandle(&fabric, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0), result);
    OK(cuMemRelease(handle));
}
TRIAL(fabric_denied, "1", NVLS " BEELINE_EMU_FABRIC=denied", 1, ALWAYS, no_fabric(1, CUDA_ERROR_NOT_PERMITTED))
TRIAL(fabric_off, "1", NVLS, 1, ALWAYS, no_fabric(0, CUDA_ERROR_NOT_SUPPORTED))
