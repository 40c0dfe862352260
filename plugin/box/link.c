/* link.c - see link.h. */
#include "link.h"

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

enum bl_link bl_link_of(CUdevice device, const unsigned char *own, const unsigned char *peer) {
    CUdevice visible;
    return find_visible(peer, &visible) ? ask_driver(device, visible) : bl_nvml_pair(own, peer);
}
