/* link.c - see link.h. */
#include "link.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "nvml.h"

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
    if (cu->cuDeviceCanAccessPeer(&access, device, peer) != CUDA_SUCCESS) return BL_LINK_UNKNOWN;
    if (!access) return BL_LINK_NONE;
    /* Native atomics between GPUs are what NVLink has and PCIe has not. */
    cu->cuDeviceGetP2PAttribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, device, peer);
    return atomics ? BL_LINK_NVLINK : BL_LINK_PCIE;
}

/* Once a pair: NVML takes long. */
enum bl_link bl_link_of(CUdevice device, const unsigned char *own, const unsigned char *peer) {
    enum { MOST = 256, UUID_BYTES = 16 };
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct {
        CUdevice device;
        unsigned char uuid[UUID_BYTES];
        enum bl_link link;
    } known[MOST];
    static int count;
    CUdevice visible;
    if (find_visible(peer, &visible)) return ask_driver(device, visible);
    int i = 0;
    pthread_mutex_lock(&lock);
    while (i < count && (known[i].device != device || memcmp(known[i].uuid, peer, UUID_BYTES) != 0)) i++;
    const enum bl_link link = i < count ? known[i].link : bl_nvml_pair(own, peer);
    if (i == count && count < MOST && link != BL_LINK_UNKNOWN) {
        known[count].device = device;
        known[count].link = link;
        memcpy(known[count++].uuid, peer, UUID_BYTES);
    }
    pthread_mutex_unlock(&lock);
    return link;
}
