/* link.c - link classes.  NVML is asked only about GPUs that CUDA does not show, and need not be there. */
#include "link.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const char *bl_link_name(enum bl_link link) {
    static const char *const names[] = {
        [BL_LINK_NONE] = "none", [BL_LINK_UNKNOWN] = "unknown", [BL_LINK_PCIE] = "pcie", [BL_LINK_NVLINK] = "nvlink"};
    return names[link];
}

static bool find_visible(const unsigned char *uuid, CUdevice *found) {
    const struct bl_driver *cu = bl_driver();
    int count = 0;
    if (cu->cuDeviceGetCount(&count) != CUDA_SUCCESS) return false;
    for (int ordinal = 0; ordinal < count; ordinal++) {
        CUdevice device;
        CUuuid other;
        if (cu->cuDeviceGet(&device, ordinal) != CUDA_SUCCESS || cu->cuDeviceGetUuid(&other, device) != CUDA_SUCCESS)
            continue;
        if (memcmp(other.bytes, uuid, sizeof(other.bytes))) continue;
        *found = device;
        return true;
    }
    return false;
}

static enum bl_link ask_driver(CUdevice device, CUdevice peer) {
    const struct bl_driver *cu = bl_driver();
    int access = 0, atomics = 0;
    if (cu->cuDeviceCanAccessPeer(&access, device, peer) != CUDA_SUCCESS || !access) return BL_LINK_NONE;
    /* Native atomics between GPUs are what NVLink has and PCIe has not. */
    cu->cuDeviceGetP2PAttribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, device, peer);
    return atomics ? BL_LINK_NVLINK : BL_LINK_PCIE;
}

/* The little of nvml.h that is needed: it may not be installed where Beeline is built. */
typedef struct nvmlDevice_st *nvml_device;
enum { NVML_P2P_WRITE = 1, NVML_P2P_NVLINK = 2 };

struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*by_uuid)(const char *, nvml_device *);
    int (*p2p_status)(nvml_device, nvml_device, int, int *);
};

static void format_uuid(const unsigned char *uuid, char *text) {
    static const int dashes = 1 << 4 | 1 << 6 | 1 << 8 | 1 << 10;
    text += sprintf(text, "GPU-");
    for (int i = 0; i < 16; i++) text += sprintf(text, "%s%02x", dashes >> i & 1 ? "-" : "", uuid[i]);
}

static enum bl_link p2p_of(const struct nvml *nvml, CUdevice device, const unsigned char *uuid) {
    CUuuid own;
    char names[2][48];
    nvml_device gpus[2];
    int write, nvlink;
    if (bl_driver()->cuDeviceGetUuid(&own, device) != CUDA_SUCCESS) return BL_LINK_UNKNOWN;
    format_uuid((const unsigned char *)own.bytes, names[0]);
    format_uuid(uuid, names[1]);
    if (nvml->by_uuid(names[0], &gpus[0]) || nvml->by_uuid(names[1], &gpus[1])) return BL_LINK_UNKNOWN;
    if (nvml->p2p_status(gpus[0], gpus[1], NVML_P2P_WRITE, &write)) return BL_LINK_UNKNOWN;
    if (write != 0) return BL_LINK_NONE;
    if (nvml->p2p_status(gpus[0], gpus[1], NVML_P2P_NVLINK, &nvlink)) return BL_LINK_UNKNOWN;
    return nvlink == 0 ? BL_LINK_NVLINK : BL_LINK_PCIE;
}

static enum bl_link ask_nvml(CUdevice device, const unsigned char *uuid) {
    void *handle = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!handle) return BL_LINK_UNKNOWN;
    struct nvml nvml;
    *(void **)&nvml.init = dlsym(handle, "nvmlInit_v2");
    *(void **)&nvml.shutdown = dlsym(handle, "nvmlShutdown");
    *(void **)&nvml.by_uuid = dlsym(handle, "nvmlDeviceGetHandleByUUID");
    *(void **)&nvml.p2p_status = dlsym(handle, "nvmlDeviceGetP2PStatus");
    enum bl_link link = BL_LINK_UNKNOWN;
    if (nvml.init && nvml.shutdown && nvml.by_uuid && nvml.p2p_status && nvml.init() == 0) {
        link = p2p_of(&nvml, device, uuid);
        nvml.shutdown();
    }
    dlclose(handle);
    return link;
}

/* What NVML said, which is asked once a pair of GPUs: it takes long to initialise. */
static enum bl_link remember_nvml(CUdevice device, const unsigned char *uuid) {
    enum { MOST = 256, UUID_BYTES = 16 };
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct {
        CUdevice device;
        unsigned char uuid[UUID_BYTES];
        enum bl_link link;
    } known[MOST];
    static int count;
    int i = 0;
    pthread_mutex_lock(&lock);
    while (i < count && (known[i].device != device || memcmp(known[i].uuid, uuid, UUID_BYTES) != 0)) i++;
    const enum bl_link link = i < count ? known[i].link : ask_nvml(device, uuid);
    if (i == count && count < MOST && link != BL_LINK_UNKNOWN) {
        known[count].device = device;
        known[count].link = link;
        memcpy(known[count++].uuid, uuid, UUID_BYTES);
    }
    pthread_mutex_unlock(&lock);
    return link;
}

enum bl_link bl_link_of(CUdevice device, const unsigned char *uuid) {
    CUdevice peer;
    return find_visible(uuid, &peer) ? ask_driver(device, peer) : remember_nvml(device, uuid);
}
