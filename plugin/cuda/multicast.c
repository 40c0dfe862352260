/* multicast.c - the door to the driver's multicast calls, and all that goes through it. */
#include "multicast.h"

#include <pthread.h>

#include "base/log.h"
#include "base/params.h"
#include "base/why.h"

enum { LOWEST_ARCH = 90, SINCE = 12010 };

#define CALLS(ROW)                                                                                                     \
    ROW(granularity, cuMulticastGetGranularity)                                                                        \
    ROW(create, cuMulticastCreate)                                                                                     \
    ROW(add_device, cuMulticastAddDevice)                                                                              \
    ROW(bind, cuMulticastBindMem)                                                                                      \
    ROW(unbind, cuMulticastUnbind)

struct bl_multicast_calls {
#define MEMBER(name, function) __typeof__(function) *name;
    CALLS(MEMBER)
};

static struct bl_multicast_calls calls;
static const char *lacking; /* a call that the driver does not have */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void look_up(void) {
#define LOOK_UP(name, function)                                                                                        \
    *(void **)&calls.name = bl_driver_symbol(#function, SINCE);                                                        \
    if (!calls.name) lacking = #function;
    CALLS(LOOK_UP)
}

/* The only way to the calls.  0, or -1 if it is closed. */
static int door(struct bl_multicast *m) {
    const char *forbidden = bl_params_multicast_forbidden();
    if (forbidden) return bl_fail("%s", forbidden);
    pthread_once(&once, look_up);
    if (lacking) return bl_fail("the driver has no %s", lacking);
    m->calls = &calls;
    return 0;
}

bool bl_multicast_possible(CUdevice device, int arch) {
    if (door(&(struct bl_multicast){0})) return false;
    if (arch < LOWEST_ARCH)
        bl_fail("the GPU is sm_%d, multicast needs sm_%d", arch, LOWEST_ARCH);
    else if (!bl_driver_attribute(device, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED))
        bl_fail("the GPU has no multicast");
    else
        return true;
    return false;
}

static CUmulticastObjectProp object_of(const struct bl_multicast *m) {
    return (CUmulticastObjectProp){.numDevices = (unsigned)m->nranks, .size = m->bytes, .handleTypes = m->type};
}

static CUmemAllocationProp memory_of(const struct bl_multicast *m) {
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = m->type,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = m->device},
    };
}

static uint64_t round_up(uint64_t bytes, uint64_t granularity) {
    return granularity ? (bytes + granularity - 1) / granularity * granularity : bytes;
}

/* Rounds the size up to what both the object and the memory behind it come in.  *what: the call that it ended with. */
static CUresult size_up(struct bl_multicast *m, uint64_t bytes, const char **what) {
    size_t of_object = 0, of_memory = 0;
    m->bytes = bytes;
    const CUmulticastObjectProp object = object_of(m);
    const CUmemAllocationProp memory = memory_of(m);
    *what = "the granularity of a multicast object (cuMulticastGetGranularity)";
    CUresult status = m->calls->granularity(&of_object, &object, CU_MULTICAST_GRANULARITY_MINIMUM);
    if (status == CUDA_SUCCESS) {
        *what = "the granularity of memory for multicast (cuMemGetAllocationGranularity)";
        status = bl_driver()->cuMemGetAllocationGranularity(&of_memory, &memory, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    }
    /* Both are powers of two. */
    m->granularity = of_object > of_memory ? of_object : of_memory;
    m->bytes = round_up(bytes, m->granularity);
    return status;
}

static const char *name_of(CUmemAllocationHandleType type) {
    return type == CU_MEM_HANDLE_TYPE_FABRIC ? "fabric handle" : "file descriptor";
}

/* An object that can be handed on in one way.  *refused: another way may do. */
static int create_as(struct bl_multicast *m, CUmemAllocationHandleType type, uint64_t bytes, void *shared,
                     bool *refused) {
    const char *what;
    m->type = type;
    CUresult status = size_up(m, bytes, &what);
    if (status == CUDA_SUCCESS) {
        const CUmulticastObjectProp object = object_of(m);
        what = "creating a multicast object (cuMulticastCreate)";
        status = m->calls->create(&m->object, &object);
        m->have_object = status == CUDA_SUCCESS;
    }
    if (status == CUDA_SUCCESS) {
        what = "exporting a multicast object (cuMemExportToShareableHandle)";
        status = bl_driver()->cuMemExportToShareableHandle(shared, m->object, type, 0);
    }
    *refused = status == CUDA_ERROR_NOT_SUPPORTED || status == CUDA_ERROR_NOT_PERMITTED;
    BL_DRIVER_CHECK(status, "%s as a %s", what, name_of(type));
    return 0;
}

static void release_object(struct bl_multicast *m);

int bl_multicast_create(struct bl_multicast *m, CUdevice device, int rank, int nranks, uint64_t bytes,
                        struct bl_multicast_handle *handle, int *fd) {
    bool refused;
    *m = (struct bl_multicast){.device = device, .rank = rank, .nranks = nranks};
    *handle = (struct bl_multicast_handle){0};
    *fd = -1;
    if (door(m)) return -1;
    int status = create_as(m, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, bytes, fd, &refused);
    if (status && refused && bl_driver_attribute(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED)) {
        bl_info("%s; trying a fabric handle", bl_why());
        release_object(m);
        status = create_as(m, CU_MEM_HANDLE_TYPE_FABRIC, bytes, handle->fabric, &refused);
    }
    handle->bytes = m->bytes;
    handle->type = (uint32_t)m->type;
    return status;
}

int bl_multicast_import(struct bl_multicast *m, CUdevice device, int rank, int nranks, uint64_t bytes,
                        const struct bl_multicast_handle *handle, int fd) {
    *m = (struct bl_multicast){
        .device = device, .rank = rank, .nranks = nranks, .type = (CUmemAllocationHandleType)handle->type};
    if (door(m)) return -1;
    const char *what;
    BL_DRIVER_CHECK(size_up(m, bytes, &what), "%s", what);
    if (m->bytes != handle->bytes)
        return bl_fail("a multicast object has %llu bytes here, and %llu on rank 0", (unsigned long long)m->bytes,
                       (unsigned long long)handle->bytes);

    void *shared = m->type == CU_MEM_HANDLE_TYPE_FABRIC ? (void *)handle->fabric : (void *)(uintptr_t)fd;
    BL_DRIVER_CHECK(bl_driver()->cuMemImportFromShareableHandle(&m->object, shared, m->type),
                    "importing the multicast object as a %s (cuMemImportFromShareableHandle)", name_of(m->type));
    m->have_object = true;
    return 0;
}

/* Reserves addresses for `handle`, maps it there and opens it to this device. */
static int map(struct bl_multicast *m, CUmemGenericAllocationHandle handle, CUdeviceptr *address, bool *reserved,
               bool *mapped, const char *what) {
    const struct bl_driver *cu = bl_driver();
    BL_DRIVER_CHECK(cu->cuMemAddressReserve(address, m->bytes, m->granularity, 0, 0),
                    "reserving addresses for %s (cuMemAddressReserve)", what);
    *reserved = true;
    BL_DRIVER_CHECK(cu->cuMemMap(*address, m->bytes, 0, handle, 0), "mapping %s (cuMemMap)", what);
    *mapped = true;
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = m->device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    BL_DRIVER_CHECK(cu->cuMemSetAccess(*address, m->bytes, &access, 1), "access to %s (cuMemSetAccess)", what);
    return 0;
}

int bl_multicast_join(struct bl_multicast *m, CUstream stream) {
    const struct bl_driver *cu = bl_driver();
    const size_t words_bytes = BL_MULTICAST_WORDS * sizeof(uint64_t);
    if (door(m)) return -1;
    BL_DRIVER_CHECK(m->calls->add_device(m->object, m->device), "joining the multicast object (cuMulticastAddDevice)");
    const CUmemAllocationProp memory = memory_of(m);
    BL_DRIVER_CHECK(cu->cuMemCreate(&m->memory, m->bytes, &memory, 0), "allocating memory for multicast (cuMemCreate)");
    m->have_memory = true;
    if (map(m, m->memory, &m->replica, &m->replica_reserved, &m->replica_mapped, "memory for multicast")) return -1;
    BL_DRIVER_CHECK(cu->cuMemAlloc(&m->words, words_bytes), "allocating words for multicast (cuMemAlloc)");
    BL_DRIVER_CHECK(cu->cuMemsetD8Async(m->replica, 0, m->bytes, stream),
                    "zeroing memory for multicast (cuMemsetD8Async)");
    BL_DRIVER_CHECK(cu->cuMemsetD8Async(m->words, 0, words_bytes, stream),
                    "zeroing words for multicast (cuMemsetD8Async)");
    BL_DRIVER_CHECK(cu->cuStreamSynchronize(stream), "zeroing memory for multicast (cuStreamSynchronize)");
    return 0;
}

int bl_multicast_bind(struct bl_multicast *m) {
    if (door(m)) return -1;
    BL_DRIVER_CHECK(m->calls->bind(m->object, 0, m->memory, 0, m->bytes, 0),
                    "binding memory to the multicast object (cuMulticastBindMem)");
    m->bound = true;
    return 0;
}

int bl_multicast_map(struct bl_multicast *m) {
    if (door(m)) return -1;
    return map(m, m->object, &m->address, &m->address_reserved, &m->address_mapped, "the multicast object");
}

static void unmap(CUdeviceptr address, uint64_t bytes, bool *reserved, bool *mapped) {
    const struct bl_driver *cu = bl_driver();
    if (*mapped) bl_driver_undo(cu->cuMemUnmap(address, bytes), "cuMemUnmap");
    if (*reserved) bl_driver_undo(cu->cuMemAddressFree(address, bytes), "cuMemAddressFree");
    *mapped = *reserved = false;
}

void bl_multicast_withdraw(struct bl_multicast *m) {
    unmap(m->address, m->bytes, &m->address_reserved, &m->address_mapped);
    if (m->words) bl_driver_undo(bl_driver()->cuMemFree(m->words), "cuMemFree");
    m->words = 0;
    unmap(m->replica, m->bytes, &m->replica_reserved, &m->replica_mapped);
}

static void release_object(struct bl_multicast *m) {
    if (m->bound) bl_driver_undo(m->calls->unbind(m->object, m->device, 0, m->bytes), "cuMulticastUnbind");
    if (m->have_object) bl_driver_undo(bl_driver()->cuMemRelease(m->object), "cuMemRelease");
    m->bound = m->have_object = false;
}

void bl_multicast_release(struct bl_multicast *m) {
    bl_multicast_withdraw(m);
    release_object(m);
    if (m->have_memory) bl_driver_undo(bl_driver()->cuMemRelease(m->memory), "cuMemRelease");
    *m = (struct bl_multicast){0};
}
