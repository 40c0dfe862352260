/* link.c - see link.h. */
#include "link.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "nvml.h"
#include "tree.h"

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

static enum bl_link ask(CUdevice device, struct bl_link_end own, struct bl_link_end peer) {
    CUdevice visible;
    enum bl_link link =
        find_visible(peer.uuid, &visible) ? ask_driver(device, visible) : bl_nvml_pair(own.uuid, peer.uuid);
    if (link == BL_LINK_PCIE) link = bl_tree_path(own.pci, peer.pci);
    if (link == BL_LINK_PCIE) link = bl_nvml_path(own.uuid, peer.uuid);
    return link;
}

/* Once a pair: NVML and hwloc take long. */
enum bl_link bl_link_of(CUdevice device, struct bl_link_end own, struct bl_link_end peer) {
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
    while (i < count && (known[i].device != device || memcmp(known[i].uuid, peer.uuid, UUID_BYTES) != 0)) i++;
    const enum bl_link link = i < count ? known[i].link : ask(device, own, peer);
    if (i == count && count < MOST && link != BL_LINK_UNKNOWN) {
        known[count].device = device;
        known[count].link = link;
        memcpy(known[count++].uuid, peer.uuid, UUID_BYTES);
    }
    pthread_mutex_unlock(&lock);
    return link;
}
