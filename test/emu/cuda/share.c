/* share.c - handles that cross processes: as file descriptors, and as fabric handles, which are bytes that name a
 * descriptor of the process that exported it. */
#define _GNU_SOURCE
#include "emu.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The attribute tells what the GPU can; whether this process may is another thing, and shows when memory is made
 * (vllm#45800, mscclpp#467). */
CUresult emu_handle_types(unsigned types) {
    if (types & ~(unsigned)(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!(types & CU_MEM_HANDLE_TYPE_FABRIC) || emu_config.fabric == EMU_FABRIC_ON) return CUDA_SUCCESS;
    return emu_config.fabric == EMU_FABRIC_OFF ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_NOT_PERMITTED;
}

struct fabric { /* lies in a CUmemFabricHandle */
    char magic[16];
    int pid, fd;
    uint64_t identity;
};
static const char magic[16] = "beeline-fabric";
_Static_assert(sizeof(struct fabric) <= sizeof(CUmemFabricHandle), "fits");

int emu_open_of(int pid, int fd, uint64_t identity) {
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    int mine = open(path, O_RDWR | O_CLOEXEC);
    if (mine < 0 || (!fstat(mine, &st) && st.st_ino == identity)) return mine;
    close(mine);
    return -1;
}

EMU_LOCKED(cuMemExportToShareableHandle, 10020,
           (void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags),
           (out, handle, type, flags)) {
    if (!out || flags) return CUDA_ERROR_INVALID_VALUE;
    EMU_TRY(emu_handle_types(type));
    struct emu_handle *h = emu_handle_get(handle);
    if (!h || !(h->types & type)) return CUDA_ERROR_INVALID_VALUE;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
        struct fabric fabric = {.pid = (int)getpid(), .fd = h->fd, .identity = h->identity};
        memcpy(fabric.magic, magic, sizeof magic);
        memset(out, 0, sizeof(CUmemFabricHandle));
        memcpy(out, &fabric, sizeof fabric);
        return CUDA_SUCCESS;
    }
    int fd = fcntl(h->fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    *(int *)out = fd;
    return CUDA_SUCCESS;
}

/* What a descriptor is of: the index on the box of the GPU whose memory it is, or a multicast object. */
enum { NOTHING = -1, MULTICAST = EMU_MAX_DEVICES };
static int owner_of(int fd) {
    char link[64], target[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, target, sizeof target - 1);
    if (n < 0) return NOTHING;
    target[n] = 0;
    if (strstr(target, EMU_NAME_MULTICAST)) return MULTICAST;
    const char *name = strstr(target, EMU_NAME_GPU);
    return name ? (int)strtol(name + strlen(EMU_NAME_GPU), NULL, 10) : NOTHING;
}

/* A descriptor of our own for what `source` names; -1 if there is none. */
static int open_source(void *source, CUmemAllocationHandleType type) {
    struct fabric fabric;
    if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return fcntl((int)(intptr_t)source, F_DUPFD_CLOEXEC, 3);
    if (!source) return -1;
    memcpy(&fabric, source, sizeof fabric);
    return memcmp(fabric.magic, magic, sizeof magic) ? -1 : emu_open_of(fabric.pid, fabric.fd, fabric.identity);
}

/* The handle owns the descriptor if it succeeds. */
static CUresult import(int fd, struct emu_handle **handle) {
    struct stat st;
    int owner = owner_of(fd), here = emu_device_now();
    if (owner == NOTHING || fstat(fd, &st)) return CUDA_ERROR_INVALID_VALUE;
    if (owner == MULTICAST) return emu_multicast_import(fd, handle);
    if (here >= 0 && !emu_peer_possible(emu_config.visible[here], owner)) return CUDA_ERROR_NOT_SUPPORTED;
    *handle = emu_handle_new(fd, (size_t)st.st_size, owner);
    return *handle ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EMU_LOCKED(cuMemImportFromShareableHandle, 10020,
           (CUmemGenericAllocationHandle * out, void *source, CUmemAllocationHandleType type), (out, source, type)) {
    struct emu_handle *handle = NULL;
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    EMU_TRY(emu_handle_types(type));
    int fd = open_source(source, type);
    if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = import(fd, &handle);
    if (result != CUDA_SUCCESS) {
        close(fd);
        return result;
    }
    handle->imported = true;
    handle->types = type;
    *out = (CUmemGenericAllocationHandle)(uintptr_t)handle;
    return CUDA_SUCCESS;
}
