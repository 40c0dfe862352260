/* nvml.c - the little of NVIDIA's management library that Beeline asks: what this box's GPUs are joined by.  libnvidia-ml.so.1 of the
 * emulated box is a link to the emulated driver's library.  GPUs are the box's, whatever CUDA_VISIBLE_DEVICES shows. */
#include "emu.h"

#include <stdio.h>
#include <string.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9 };
enum { P2P_OK = 0, P2P_NOT_SUPPORTED = 4, P2P_NVLINK = 2 };
enum { NVLINK_REMOTE_GPU = 0, NVLINK_REMOTE_SWITCH = 2 };

#define NVML(name, ...)                                                                                                \
    __attribute__((visibility("default"))) int name(__VA_ARGS__);                                                      \
    int name(__VA_ARGS__)

static bool initialized;

/* A handle is a place in this. */
static char handles[EMU_MAX_DEVICES];

static int index_of(const void *handle) {
    const char *at = handle;
    return initialized && at >= handles && at < handles + emu_config.gpus ? (int)(at - handles) : -1;
}

NVML(nvmlInit_v2, void) {
    emu_enter("nvmlInit_v2"); /* the configuration is read */
    initialized = emu_config.nvml && emu_config.gpus;
    return initialized ? SUCCESS : DRIVER_NOT_LOADED;
}

NVML(nvmlSystemGetDriverVersion, char *version, unsigned length) {
    if (!initialized) return UNINITIALIZED;
    snprintf(version, length, "0.0.0");
    return SUCCESS;
}

NVML(nvmlDeviceGetHandleByUUID, const char *uuid, void **device) {
    static const char base[17] = "beeline-emulated";
    char name[48], *at = name + sprintf(name, "GPU-");
    if (!initialized) return UNINITIALIZED;
    for (int i = 0; i < 15; i++)
        at += sprintf(at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (unsigned char)base[i]);
    for (int gpu = 0; gpu < emu_config.gpus; gpu++) {
        sprintf(at, "%02x", (unsigned)gpu);
        if (strcmp(name, uuid) != 0) continue;
        *device = &handles[gpu];
        return SUCCESS;
    }
    return NOT_FOUND;
}

NVML(nvmlDeviceGetNvLinkState, void *device, unsigned link, int *active) {
    const int gpu = index_of(device);
    if (gpu < 0) return INVALID_ARGUMENT;
    if (link >= 18 && link >= emu_nvlinks(gpu)) return INVALID_ARGUMENT;
    *active = link < emu_nvlinks(gpu);
    return SUCCESS;
}

NVML(nvmlDeviceGetNvLinkVersion, void *device, unsigned link, unsigned *version) {
    if (index_of(device) < 0) return INVALID_ARGUMENT;
    *version = emu_config.nvlink_version;
    return SUCCESS;
}

NVML(nvmlDeviceGetNvLinkRemoteDeviceType, void *device, unsigned link, int *type) {
    if (index_of(device) < 0) return INVALID_ARGUMENT;
    *type = emu_config.nvswitch ? NVLINK_REMOTE_SWITCH : NVLINK_REMOTE_GPU;
    return SUCCESS;
}

NVML(nvmlDeviceGetP2PStatus, void *device, void *peer, int kind, int *status) {
    const int a = index_of(device), b = index_of(peer);
    if (a < 0 || b < 0) return INVALID_ARGUMENT;
    *status =
        (kind == P2P_NVLINK ? emu_config.nvlinks[a][b] > 0 : emu_peer_possible(a, b)) ? P2P_OK : P2P_NOT_SUPPORTED;
    return SUCCESS;
}

/* hwloc knows better. */
NVML(nvmlDeviceGetTopologyCommonAncestor, void *device, void *peer, int *level) {
    return NOT_SUPPORTED;
}

NVML(nvmlDeviceGetMigMode, void *device, unsigned *current, unsigned *pending) {
    if (index_of(device) < 0) return INVALID_ARGUMENT;
    *current = *pending = strstr(emu_config.name, " MIG ") != NULL;
    return SUCCESS;
}
