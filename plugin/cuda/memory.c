/* memory.c - staging, epochs and control words of one rank. */
#include "memory.h"

enum { MIB = 1 << 20, EPOCH_BYTES = BL_LOCAL_WORDS * sizeof(uint64_t), LINE_BYTES = 128 };

static uint64_t round_up(uint64_t bytes, uint64_t grain) {
    return (bytes + grain - 1) / grain * grain;
}

static CUmemAllocationProp allocation_of(CUdevice device) {
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
}

/* Reserves addresses for handle[rank], if there are none yet, maps it there and opens it to this device. */
static int map(struct bl_memory *memory, int rank) {
    const struct bl_driver *cu = bl_driver();
    if (!memory->reserved[rank])
        BL_DRIVER_CHECK(cu->cuMemAddressReserve(&memory->address[rank], memory->bytes, 0, 0, 0),
                        "reserving addresses for %llu MiB of staging of rank %d (cuMemAddressReserve)",
                        (unsigned long long)(memory->bytes / MIB), rank);
    memory->reserved[rank] = true;
    BL_DRIVER_CHECK(cu->cuMemMap(memory->address[rank], memory->bytes, 0, memory->handle[rank], 0),
                    "mapping the staging of rank %d (cuMemMap)", rank);
    memory->mapped[rank] = true;
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = memory->device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    BL_DRIVER_CHECK(cu->cuMemSetAccess(memory->address[rank], memory->bytes, &access, 1),
                    "access to the staging of rank %d (cuMemSetAccess)", rank);
    return 0;
}

static int round_up_bytes(struct bl_memory *memory) {
    const CUmemAllocationProp allocation = allocation_of(memory->device);
    size_t granularity = 0;
    BL_DRIVER_CHECK(
        bl_driver()->cuMemGetAllocationGranularity(&granularity, &allocation, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "the granularity of device memory (cuMemGetAllocationGranularity)");
    memory->bytes = round_up(memory->bytes, granularity ? granularity : 1);
    return 0;
}

static int allocate(struct bl_memory *memory) {
    const CUmemAllocationProp allocation = allocation_of(memory->device);
    const int rank = memory->rank;
    BL_DRIVER_CHECK(bl_driver()->cuMemCreate(&memory->handle[rank], memory->bytes, &allocation, 0),
                    "allocating %llu MiB of device memory (cuMemCreate)", (unsigned long long)(memory->bytes / MIB));
    memory->have_handle[rank] = true;
    return map(memory, rank);
}

/* What is there is copied behind itself: a driver fills with four bytes at most. */
static int fill_blank(const struct bl_memory *memory, CUstream stream) {
    const struct bl_driver *cu = bl_driver();
    const CUdeviceptr first = memory->address[memory->rank] + memory->blank_at;
    BL_DRIVER_CHECK(cu->cuMemcpyHtoDAsync(first, memory->blank, sizeof(memory->blank), stream),
                    "filling the staging (cuMemcpyHtoDAsync)");
    for (uint64_t filled = sizeof(memory->blank), more; filled < memory->blank_bytes; filled += more) {
        more = filled < memory->blank_bytes - filled ? filled : memory->blank_bytes - filled;
        BL_DRIVER_CHECK(cu->cuMemcpyDtoDAsync(first + filled, first, more, stream),
                        "filling the staging (cuMemcpyDtoDAsync)");
    }
    return 0;
}

static int zero(struct bl_memory *memory, CUstream stream) {
    const struct bl_driver *cu = bl_driver();
    BL_DRIVER_CHECK(cu->cuMemsetD8Async(memory->address[memory->rank], 0, memory->bytes, stream),
                    "zeroing the staging (cuMemsetD8Async)");
    BL_DRIVER_CHECK(cu->cuStreamSynchronize(stream), "zeroing the staging (cuStreamSynchronize)");
    return 0;
}

/* Before any peer can map it: what a peer wrote must never be wiped out. */
static int fill(struct bl_memory *memory, CUstream stream) {
    if (zero(memory, stream) || fill_blank(memory, stream)) return -1;
    BL_DRIVER_CHECK(bl_driver()->cuStreamSynchronize(stream), "filling the staging (cuStreamSynchronize)");
    return 0;
}

int bl_memory_create(struct bl_memory *memory, CUdevice device, int rank, int nranks,
                     const struct bl_staging_layout *layout, const uint64_t blank[2], CUstream stream) {
    const uint64_t epochs_at = round_up(layout->bytes, LINE_BYTES);
    *memory = (struct bl_memory){.device = device,
                                 .rank = rank,
                                 .nranks = nranks,
                                 .bytes = epochs_at + EPOCH_BYTES,
                                 .blank_at = layout->line_offset,
                                 .blank_bytes = layout->oneway_offset - layout->line_offset,
                                 .blank = {blank[0], blank[1]}};
    if (round_up_bytes(memory) || allocate(memory)) return -1;

    /* To free memory of their own would wait for all of the GPU's work. */
    memory->epochs = memory->address[rank] + epochs_at;
    return fill(memory, stream);
}

int bl_memory_export(const struct bl_memory *memory, int *fd) {
    int exported = -1;
    BL_DRIVER_CHECK(bl_driver()->cuMemExportToShareableHandle(&exported, memory->handle[memory->rank],
                                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                    "exporting the staging as a file descriptor (cuMemExportToShareableHandle)");
    *fd = exported;
    return 0;
}

int bl_memory_import(struct bl_memory *memory, int peer, int fd) {
    BL_DRIVER_CHECK(bl_driver()->cuMemImportFromShareableHandle(&memory->handle[peer], (void *)(uintptr_t)fd,
                                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                    "importing the staging of rank %d (cuMemImportFromShareableHandle)", peer);
    memory->have_handle[peer] = true;
    return map(memory, peer);
}

static void give_back(struct bl_memory *memory, int rank) {
    const struct bl_driver *cu = bl_driver();
    if (memory->mapped[rank]) bl_driver_undo(cu->cuMemUnmap(memory->address[rank], memory->bytes), "cuMemUnmap");
    if (memory->have_handle[rank]) bl_driver_undo(cu->cuMemRelease(memory->handle[rank]), "cuMemRelease");
    memory->mapped[rank] = memory->have_handle[rank] = false;
}

static void release_mapping(struct bl_memory *memory, int rank) {
    give_back(memory, rank);
    if (memory->reserved[rank])
        bl_driver_undo(bl_driver()->cuMemAddressFree(memory->address[rank], memory->bytes), "cuMemAddressFree");
}

/* Runs fill or zero on a stream of its own. */
static int with_stream(struct bl_memory *memory, int (*work)(struct bl_memory *, CUstream)) {
    CUstream stream;
    BL_DRIVER_CHECK(bl_driver()->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "making a stream (cuStreamCreate)");
    const int status = work(memory, stream);
    bl_driver()->cuStreamDestroy(stream);
    return status;
}

/* What anybody may have next is not to hold the blank, which is the same once the communicator resumes.  If that fails, nothing works here. */
void bl_memory_suspend(struct bl_memory *memory) {
    if (memory->mapped[memory->rank]) with_stream(memory, zero);
    for (int rank = 0; rank < memory->nranks; rank++) give_back(memory, rank);
}

int bl_memory_resume(struct bl_memory *memory) {
    return allocate(memory) ? -1 : with_stream(memory, fill);
}

void bl_memory_release(struct bl_memory *memory) {
    for (int peer = memory->nranks - 1; peer >= 0; peer--)
        if (peer != memory->rank) release_mapping(memory, peer);
    if (memory->nranks) release_mapping(memory, memory->rank);
    *memory = (struct bl_memory){0};
}

int bl_memory_scratch(struct bl_memory *memory, CUdevice device, uint64_t bytes) {
    *memory = (struct bl_memory){.device = device, .nranks = 1, .bytes = bytes};
    if (!round_up_bytes(memory) && !allocate(memory)) return 0;
    bl_memory_release(memory);
    return -1;
}
