/* nvml.c - see nvml.h.  The little of nvml.h of NVIDIA's that is needed: it may not be installed where Beeline is built. */
#include "nvml.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "library.h"

typedef struct nvmlDevice_st *nvml_device;

enum { P2P_WRITE = 1, P2P_NVLINK = 2, P2P_OK = 0 };
enum { TO_SWITCH = 2, MOST_NVLINKS = 64, FEATURE_ENABLED = 1 };

struct conf_compute {
    unsigned environment, feature, tools;
};

static struct {
    int (*init)(void);
    int (*by_uuid)(const char *, nvml_device *);
    int (*p2p_status)(nvml_device, nvml_device, int, int *);
    int (*nvlink_state)(nvml_device, unsigned, int *);
    int (*nvlink_version)(nvml_device, unsigned, unsigned *);
    int (*nvlink_remote)(nvml_device, unsigned, int *);
    int (*ancestor)(nvml_device, nvml_device, int *);
    int (*mig)(nvml_device, unsigned *, unsigned *);
    int (*driver)(char *, unsigned);
    int (*conf_compute)(struct conf_compute *);
} nvml;

static const struct bl_library_row functions[] = {
    {"nvmlInit_v2", offsetof(__typeof__(nvml), init), true},
    {"nvmlDeviceGetHandleByUUID", offsetof(__typeof__(nvml), by_uuid), true},
    {"nvmlDeviceGetP2PStatus", offsetof(__typeof__(nvml), p2p_status), true},
    {"nvmlDeviceGetNvLinkState", offsetof(__typeof__(nvml), nvlink_state), true},
    {"nvmlDeviceGetNvLinkVersion", offsetof(__typeof__(nvml), nvlink_version), true},
    {"nvmlDeviceGetNvLinkRemoteDeviceType", offsetof(__typeof__(nvml), nvlink_remote), false},
    {"nvmlDeviceGetTopologyCommonAncestor", offsetof(__typeof__(nvml), ancestor), true},
    {"nvmlDeviceGetMigMode", offsetof(__typeof__(nvml), mig), true},
    {"nvmlSystemGetDriverVersion", offsetof(__typeof__(nvml), driver), true},
    {"nvmlSystemGetConfComputeState", offsetof(__typeof__(nvml), conf_compute), false},
};

static const char *error;
static char driver_version[80];

static void open_library(void) {
    static char text[160];
    error = text;
    if (!bl_library_open("libnvidia-ml.so.1", functions, sizeof(functions) / sizeof(*functions), &nvml, text,
                         sizeof(text)))
        return;
    const int status = nvml.init();
    if (status) {
        snprintf(text, sizeof(text), "nvmlInit_v2 failed: %d", status);
        return;
    }
    if (nvml.driver(driver_version, sizeof(driver_version))) driver_version[0] = 0;
    error = NULL;
}

const char *bl_nvml_error(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_library);
    return error;
}

static bool find(const unsigned char *uuid, nvml_device *device) {
    static const int dashes = 1 << 4 | 1 << 6 | 1 << 8 | 1 << 10;
    char name[48], *at = name + sprintf(name, "GPU-");
    if (bl_nvml_error()) return false;
    for (int i = 0; i < 16; i++) at += sprintf(at, "%s%02x", dashes >> i & 1 ? "-" : "", uuid[i]);
    return nvml.by_uuid(name, device) == 0;
}

static struct bl_nvml_gpu ask(const unsigned char *uuid) {
    struct bl_nvml_gpu gpu = {0};
    unsigned mode = 0, pending;
    nvml_device device;
    if (!find(uuid, &device)) return gpu;
    gpu.known = true;
    gpu.mig = nvml.mig(device, &mode, &pending) == 0 && mode;
    for (unsigned link = 0; link < MOST_NVLINKS; link++) {
        int active = 0, remote = 0;
        if (nvml.nvlink_state(device, link, &active) || !active) continue;
        if (!gpu.nvlinks++) nvml.nvlink_version(device, link, &gpu.nvlink_version);
        if (nvml.nvlink_remote && nvml.nvlink_remote(device, link, &remote) == 0 && remote == TO_SWITCH)
            gpu.nvswitch = true;
    }
    return gpu;
}

/* Once a GPU: each communicator's set-up wants to know. */
struct bl_nvml_gpu bl_nvml_gpu(const unsigned char uuid[16]) {
    enum { MOST = 32, UUID_BYTES = 16 };
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct {
        unsigned char uuid[UUID_BYTES];
        struct bl_nvml_gpu gpu;
    } known[MOST];
    static int count;
    int i = 0;
    pthread_mutex_lock(&lock);
    while (i < count && memcmp(known[i].uuid, uuid, UUID_BYTES) != 0) i++;
    const struct bl_nvml_gpu gpu = i < count ? known[i].gpu : ask(uuid);
    if (i == count && count < MOST && gpu.known) {
        memcpy(known[count].uuid, uuid, UUID_BYTES);
        known[count++].gpu = gpu;
    }
    pthread_mutex_unlock(&lock);
    return gpu;
}

enum bl_link bl_nvml_pair(const unsigned char a[16], const unsigned char b[16]) {
    nvml_device device, peer;
    int write, nvlink;
    if (!find(a, &device) || !find(b, &peer) || nvml.p2p_status(device, peer, P2P_WRITE, &write))
        return BL_LINK_UNKNOWN;
    if (write != P2P_OK) return BL_LINK_NONE;
    if (nvml.p2p_status(device, peer, P2P_NVLINK, &nvlink)) return BL_LINK_UNKNOWN;
    return nvlink == P2P_OK ? BL_LINK_NVLINK : BL_LINK_PCIE;
}

enum bl_link bl_nvml_path(const unsigned char a[16], const unsigned char b[16]) {
    enum { MULTIPLE_SWITCHES = 20, NODE = 40 }; /* levels of nvmlGpuTopologyLevel_t */
    nvml_device device, peer;
    int level;
    if (!find(a, &device) || !find(b, &peer) || nvml.ancestor(device, peer, &level)) return BL_LINK_PCIE;
    if (level <= MULTIPLE_SWITCHES) return BL_LINK_PCIE_SWITCH;
    return level <= NODE ? BL_LINK_PCIE_HOST : BL_LINK_PCIE_SOCKET;
}

bool bl_nvml_confidential(void) {
    struct conf_compute state = {0};
    return !bl_nvml_error() && nvml.conf_compute && nvml.conf_compute(&state) == 0 && state.feature == FEATURE_ENABLED;
}

const char *bl_nvml_driver(void) {
    return bl_nvml_error() ? "" : driver_version;
}
