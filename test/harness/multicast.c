#include "multicast.h"

#include <stdlib.h>
#include <string.h>

#include <dlfcn.h>

#include "kernels.h"

/* Looked up here, not in cu.def: no program of the tests so much as finds these functions on a real machine. */
static struct {
    __typeof__(cuMulticastCreate) *create;
    __typeof__(cuMulticastAddDevice) *add_device;
    __typeof__(cuMulticastBindMem) *bind;
    __typeof__(cuMulticastUnbind) *unbind;
    __typeof__(cuMulticastGetGranularity) *granularity;
} calls;

static bool find_calls(void) {
    const char *topology = getenv("BEELINE_EMU_TOPOLOGY");
    if (!topology || strcmp(topology, "nvls")) return false;
    /* A name may be made up; no driver of NVIDIA's has this. */
    CHECK(dlsym(RTLD_DEFAULT, "beeline_emulated_driver"),
          "BEELINE_EMU_TOPOLOGY is set, and the driver is not the emulated one");
    *(void **)&calls.create = dlsym(RTLD_DEFAULT, "cuMulticastCreate");
    *(void **)&calls.add_device = dlsym(RTLD_DEFAULT, "cuMulticastAddDevice");
    *(void **)&calls.bind = dlsym(RTLD_DEFAULT, "cuMulticastBindMem");
    *(void **)&calls.unbind = dlsym(RTLD_DEFAULT, "cuMulticastUnbind");
    *(void **)&calls.granularity = dlsym(RTLD_DEFAULT, "cuMulticastGetGranularity");
    CHECK(calls.create && calls.add_device && calls.bind && calls.unbind && calls.granularity);
    return true;
}

#define MC_OK(call)                                                                                                    \
    do {                                                                                                               \
        CUresult result_ = call;                                                                                       \
        CHECK(result_ == CUDA_SUCCESS, "%s: %s", #call, box_cu_error(result_));                                        \
    } while (0)

static CUdeviceptr map(CUmemGenericAllocationHandle handle, size_t bytes, CUdevice device) {
    const CUmemAccessDesc access = {{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address;
    CU_OK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    CU_OK(cuMemMap(address, bytes, 0, handle, 0));
    CU_OK(cuMemSetAccess(address, bytes, &access, 1));
    return address;
}

static void unmap(CUdeviceptr address, size_t bytes) {
    CU_OK(cuMemUnmap(address, bytes));
    CU_OK(cuMemAddressFree(address, bytes));
}

bool multicast_open(struct part *part, struct multicast *m, size_t bytes) {
    if (!find_calls()) return false;
    CUmulticastObjectProp prop = {
        .numDevices = (unsigned)part->count, .size = bytes, .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    size_t granularity;
    part_enter(part, 0);
    MC_OK(calls.granularity(&granularity, &prop, CU_MULTICAST_GRANULARITY_MINIMUM));
    prop.size = m->bytes = (bytes + granularity - 1) / granularity * granularity;
    MC_OK(calls.create(&m->object, &prop));
    for (int i = 0; i < part->count; i++) MC_OK(calls.add_device(m->object, part->rank[i].device));
    for (int i = 0; i < part->count; i++) {
        struct rank *rank = part_enter(part, i);
        const CUmemAllocationProp allocation = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = rank->device}};
        CU_OK(cuMemCreate(&m->handle[i], m->bytes, &allocation, 0));
        m->replica[i] = map(m->handle[i], m->bytes, rank->device);
        CU_OK(cuMemsetD8Async(m->replica[i], 0, m->bytes, rank->stream[0]));
        CU_OK(cuMemAlloc(&m->words[i], BL_MULTICAST_WORDS * sizeof(uint64_t)));
        CU_OK(cuMemsetD8Async(m->words[i], 0, BL_MULTICAST_WORDS * sizeof(uint64_t), rank->stream[0]));
        CU_OK(cuStreamSynchronize(rank->stream[0]));
        MC_OK(calls.bind(m->object, 0, m->handle[i], 0, m->bytes, 0));
    }
    for (int i = 0; i < part->count; i++) {
        struct rank *rank = part_enter(part, i);
        m->all[i] = map(m->object, m->bytes, rank->device);
    }
    return true;
}

void multicast_close(struct part *part, struct multicast *m) {
    for (int i = 0; i < part->count; i++) {
        struct rank *rank = part_enter(part, i);
        unmap(m->all[i], m->bytes);
        MC_OK(calls.unbind(m->object, rank->device, 0, m->bytes));
        unmap(m->replica[i], m->bytes);
        CU_OK(cuMemRelease(m->handle[i]));
        CU_OK(cuMemFree(m->words[i]));
    }
    CU_OK(cuMemRelease(m->object));
}
