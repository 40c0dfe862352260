/* memory.c - allocation and registration.  Registering changes nothing here: it is accepted, and checked when undone.
 */
#include <stdlib.h>
#include <string.h>

#include "emu_nccl.h"

struct allocation {
    CUdeviceptr address;
    size_t bytes;
    CUmemGenericAllocationHandle handle;
    struct allocation *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct allocation *allocations;

static ncclResult_t map(struct allocation *made, const CUmemAllocationProp *prop) {
    CUmemAccessDesc access = {.location = prop->location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    EMU_CUDA(cuMemMap(made->address, made->bytes, 0, made->handle, 0));
    EMU_CUDA(cuMemSetAccess(made->address, made->bytes, &access, 1));
    return ncclSuccess;
}

static ncclResult_t allocate(void **address, size_t bytes) {
    CUdevice device;
    size_t granularity;
    struct allocation made = {0}, *kept;
    if (!address) return emu_fail(ncclInvalidArgument, "ncclMemAlloc: ptr is NULL");
    *address = NULL;
    if (bytes == 0) return ncclSuccess;
    EMU_CUDA(cuCtxGetDevice(&device));
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    EMU_CUDA(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    made.bytes = (bytes + granularity - 1) / granularity * granularity;
    EMU_CUDA(cuMemCreate(&made.handle, made.bytes, &prop, 0));
    ncclResult_t result = emu_cuda(cuMemAddressReserve(&made.address, made.bytes, 0, 0, 0), "cuMemAddressReserve");
    if (result == ncclSuccess) result = map(&made, &prop);
    kept = result == ncclSuccess ? malloc(sizeof *kept) : NULL;
    if (!kept) {
        if (made.address) cuMemAddressFree(made.address, made.bytes);
        cuMemRelease(made.handle);
        return result != ncclSuccess ? result : emu_fail(ncclSystemError, "out of memory");
    }
    *kept = made;
    pthread_mutex_lock(&lock);
    kept->next = allocations;
    allocations = kept;
    pthread_mutex_unlock(&lock);
    *address = (void *)made.address;
    return ncclSuccess;
}

static ncclResult_t release(void *address) {
    if (!address) return ncclSuccess;
    pthread_mutex_lock(&lock);
    struct allocation **link = &allocations;
    while (*link && (*link)->address != (CUdeviceptr)address) link = &(*link)->next;
    struct allocation *found = *link;
    if (found) *link = found->next;
    pthread_mutex_unlock(&lock);
    if (!found) return emu_fail(ncclInvalidArgument, "ncclMemFree: %p did not come from ncclMemAlloc", address);
    struct allocation gone = *found;
    free(found);
    EMU_CUDA(cuMemUnmap(gone.address, gone.bytes));
    EMU_CUDA(cuMemRelease(gone.handle));
    EMU_CUDA(cuMemAddressFree(gone.address, gone.bytes));
    return ncclSuccess;
}

EMU_API(ncclResult_t, ncclMemAlloc, void **address, size_t bytes) {
    NCCL_AROUND(NULL, bytes, allocate(address, bytes));
}

EMU_API(ncclResult_t, ncclMemFree, void *address) {
    NCCL_AROUND(NULL, -1, release(address));
}

/* A registration or a window. */
struct registration {
    ncclComm_t comm;
    void *address;
    size_t bytes;
    struct registration *next;
};

static struct registration *registrations;

static ncclResult_t enter(ncclComm_t comm, void *address, size_t bytes, void **handle) {
    ncclResult_t result = emu_comm_ready(comm);
    if (result != ncclSuccess) return result;
    struct registration *made = malloc(sizeof *made);
    if (!handle || !address || !made) {
        free(made);
        return emu_fail(ncclInvalidArgument, "registering %zu bytes at %p", bytes, address);
    }
    pthread_mutex_lock(&lock);
    *made = (struct registration){comm, address, bytes, registrations};
    registrations = made;
    pthread_mutex_unlock(&lock);
    *handle = made;
    return ncclSuccess;
}

static ncclResult_t leave(ncclComm_t comm, void *handle) {
    ncclResult_t result = emu_comm_check(comm);
    if (result != ncclSuccess || !handle) return result;
    pthread_mutex_lock(&lock);
    struct registration **link = &registrations;
    while (*link && *link != handle) link = &(*link)->next;
    struct registration *found = *link && (*link)->comm == comm ? *link : NULL;
    if (found) *link = found->next;
    pthread_mutex_unlock(&lock);
    free(found);
    return found ? ncclSuccess : emu_fail(ncclInvalidArgument, "%p is no registration of this communicator", handle);
}

EMU_API(ncclResult_t, ncclCommRegister, const ncclComm_t comm, void *buff, size_t size, void **handle) {
    NCCL_AROUND(comm, size, enter(comm, buff, size, handle));
}

EMU_API(ncclResult_t, ncclCommDeregister, const ncclComm_t comm, void *handle) {
    NCCL_AROUND(comm, -1, leave(comm, handle));
}

EMU_API(ncclResult_t, ncclCommWindowRegister, ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int flags) {
    struct emu_call call = NCCL_CALL(emu_comm_rank(comm));
    call.count = (long long)size;
    if (!win || !buff || !size || emu_comm_check(comm) != ncclSuccess) /* the group goes on */
        return emu_call_leave(&call, emu_fail(ncclInvalidArgument, "window arguments"));
    ncclResult_t result = emu_call_enter(&call, comm);
    if (result == ncclSuccess) result = enter(comm, buff, size, (void **)win);
    if (result != ncclSuccess) emu_group_error(result);
    return emu_call_leave(&call, result);
}

EMU_API(ncclResult_t, ncclCommWindowDeregister, ncclComm_t comm, ncclWindow_t win) {
    NCCL_AROUND(comm, -1, leave(comm, win));
}
