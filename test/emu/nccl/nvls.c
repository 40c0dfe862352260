/* nvls.c - the multicast objects that NCCL holds while it has a communicator: BEELINE_EMU_NCCL_MULTICAST=N of them, on a
 * box with multicast.  Nothing is sent through them; they are there for what they take from others.  As in the real one,
 * init fails where there are none left (nccl#2077, miles#935).
 */
#include <stdlib.h>

#include "emu_nccl.h"
#include "emulated.h"

NEEDS_EMULATED_DRIVER

struct emu_nvls {
    int count;
    CUmemGenericAllocationHandle objects[];
};

/* With memory bound to it, for that is when it takes a slot.  Of this device alone: objects count, not teams. */
static ncclResult_t take_one(CUdevice device, CUmemGenericAllocationHandle *object) {
    CUmulticastObjectProp prop = {.numDevices = 1, .size = 1};
    CUmemAllocationProp memory_prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemGenericAllocationHandle memory;
    EMU_CUDA(cuMulticastGetGranularity(&prop.size, &prop, CU_MULTICAST_GRANULARITY_MINIMUM));
    EMU_CUDA(cuMulticastCreate(object, &prop));
    EMU_CUDA(cuMulticastAddDevice(*object, device));
    EMU_CUDA(cuMemCreate(&memory, prop.size, &memory_prop, 0));
    ncclResult_t result = emu_cuda(cuMulticastBindMem(*object, 0, memory, 0, prop.size, 0), "cuMulticastBindMem");
    EMU_CUDA(cuMemRelease(memory));
    return result;
}

ncclResult_t emu_nvls_take(ncclComm_t comm) {
    const char *text = getenv("BEELINE_EMU_NCCL_MULTICAST");
    int wanted = text ? atoi(text) : 0, supported = 0;
    if (wanted < 1 || comm->rank) return ncclSuccess;
    EMU_CUDA(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, comm->device));
    if (!supported) return ncclSuccess;
    comm->nvls = calloc(1, sizeof *comm->nvls + (size_t)wanted * sizeof *comm->nvls->objects);
    if (!comm->nvls) return emu_fail(ncclSystemError, "out of memory");
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < wanted && result == ncclSuccess; i++) {
        result = take_one(comm->device, &comm->nvls->objects[i]);
        comm->nvls->count = i + 1; /* what failed half-way is given back, too */
    }
    return result;
}

void emu_nvls_give(ncclComm_t comm) {
    for (int i = 0; comm->nvls && i < comm->nvls->count; i++)
        if (comm->nvls->objects[i]) cuMemRelease(comm->nvls->objects[i]);
    free(comm->nvls);
    comm->nvls = NULL;
}
