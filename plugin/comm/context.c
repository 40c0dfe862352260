/* context.c - finds and pushes a communicator's context. */
#include "context.h"

#include "real/real.h"

CUresult bl_context_find(struct bl_comm *comm) {
    const struct bl_driver *cu = bl_driver();
    CUcontext current = NULL;
    CUdevice device;
    int ordinal = 0;
    if (comm->context) return CUDA_SUCCESS;
    if (!cu) return CUDA_ERROR_NOT_INITIALIZED;
    if (BL_REAL(ncclCommCuDevice, comm->handle, &ordinal) != ncclSuccess) return CUDA_ERROR_INVALID_DEVICE;
    CUresult status = cu->cuDeviceGet(&comm->device, ordinal);
    if (status != CUDA_SUCCESS) return status;
    if (cu->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current && cu->cuCtxGetDevice(&device) == CUDA_SUCCESS &&
        device == comm->device) {
        comm->context = current;
    } else {
        status = cu->cuDevicePrimaryCtxRetain(&comm->context, comm->device);
        comm->context_retained = status == CUDA_SUCCESS;
    }
    if (status == CUDA_SUCCESS) comm->context_id = bl_context_id(comm->context);
    return status;
}

uint64_t bl_context_id(CUcontext context) {
    unsigned long long id = 0;
    if (!bl_driver()->cuCtxGetId || bl_driver()->cuCtxGetId(context, &id) != CUDA_SUCCESS) return 0;
    return id;
}

/* The device may have been reset since, and have another context under that handle. */
bool bl_context_push(const struct bl_comm *comm) {
    if (!comm->context || !bl_driver() || bl_driver()->cuCtxPushCurrent(comm->context) != CUDA_SUCCESS) return false;
    if (bl_context_id(comm->context) == comm->context_id) return true;
    bl_context_pop();
    return false;
}

void bl_context_pop(void) {
    CUcontext popped;
    bl_driver()->cuCtxPopCurrent(&popped);
}
