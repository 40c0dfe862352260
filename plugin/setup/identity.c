/* identity.c - the facts of one rank, and the verdict on all. */
#include "identity.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "box/nvml.h"
#include "cuda/multicast.h"
#include "real/real.h"
#include "base/params.h"
#include "base/why.h"

enum { LOWEST_ARCH = 80 };

/* Makes the rank not capable, for the first reason given. */
__attribute__((format(printf, 3, 4))) static void refuse(struct bl_identity *identity, bool alarming,
                                                         const char *format, ...) {
    if (!identity->capable) return;
    identity->capable = 0;
    identity->alarming = alarming;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(identity->reason, sizeof(identity->reason), format, arguments);
    va_end(arguments);
}

static const struct {
    CUdevice_attribute attribute;
    const char *reason;
} needed[] = {
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, "the GPU has no unified addresses"},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, "the GPU cannot map host memory"},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "the GPU has no virtual memory management"},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
     "the GPU's memory cannot be exported as a file descriptor"},
};

/* As far as one can tell. */
static bool nccl_may_nvls(CUdevice device) {
    enum { FIRST_WITH_NVLS = 21700 };
    return bl_real_version() >= FIRST_WITH_NVLS && bl_params_nccl_nvls() &&
           bl_driver_attribute(device, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED);
}

static void fill_gpu(struct bl_identity *identity, CUdevice device) {
    const struct bl_driver *cu = bl_driver();
    CUuuid uuid;
    if (cu->cuDeviceGetUuid(&uuid, device) == CUDA_SUCCESS)
        memcpy(identity->uuid, uuid.bytes, sizeof(identity->uuid));
    else
        refuse(identity, true, "the GPU does not tell its UUID");
    cu->cuDeviceGetPCIBusId(identity->pci, sizeof(identity->pci), device);
    cu->cuDeviceGetName(identity->gpu, sizeof(identity->gpu), device);
    identity->arch = bl_driver_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                     bl_driver_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    identity->sms = (uint32_t)bl_driver_attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    int threads = bl_driver_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    identity->max_threads = (threads < BL_MAX_THREADS ? (uint32_t)threads : BL_MAX_THREADS) / 32 * 32;
    identity->block_memory = (uint32_t)bl_driver_block_memory(device);
    for (size_t i = 0; i < sizeof(needed) / sizeof(*needed); i++)
        if (!bl_driver_attribute(device, needed[i].attribute)) refuse(identity, false, "%s", needed[i].reason);
    if (identity->arch < LOWEST_ARCH)
        refuse(identity, false, "the GPU is sm_%d, Beeline needs sm_%d", identity->arch, LOWEST_ARCH);
    const struct bl_nvml_gpu links = bl_nvml_gpu(identity->uuid);
    identity->nvlinks = (uint16_t)links.nvlinks;
    identity->nvswitch = links.nvswitch;
    identity->nccl_nvls = nccl_may_nvls(device);
    if (strstr(identity->gpu, "MIG ")) refuse(identity, false, "the GPU is a MIG instance, which has no P2P");
}

void bl_identity_fill(struct bl_identity *identity, CUdevice device) {
    const struct bl_params *params = bl_params();
    struct stat pids;
    *identity = (struct bl_identity){
        .pid = (int32_t)getpid(),
        .capable = 1,
        .staging = params->staging,
        .timeout_s = params->timeout,
        .tune = params->tune,
        .multicast_wanted = params->multicast,
        .has_switch = params->switch_file != NULL,
    };
    bl_params_shared(identity->settings, sizeof(identity->settings));
    if (stat("/proc/self/ns/pid", &pids) == 0) identity->pids = pids.st_ino;
    fill_gpu(identity, device);
    if (bl_params_p2p_forbidden()) refuse(identity, false, "%s", bl_params_p2p_forbidden());
    identity->multicast_possible = bl_multicast_possible(device, identity->arch);
    if (!identity->multicast_possible)
        snprintf(identity->multicast_reason, sizeof(identity->multicast_reason), "%s", bl_why());
}

enum bl_outcome bl_identity_judge(const struct bl_identity *all, int nranks) {
    for (int b = 1; b < nranks; b++) {
        for (int a = 0; a < b; a++) {
            if (memcmp(all[a].uuid, all[b].uuid, sizeof(all[a].uuid))) continue;
            bl_fail("ranks %d and %d share a GPU", a, b);
            return BL_DECLINED;
        }
    }
    for (int rank = 0; rank < nranks; rank++) {
        if (all[rank].capable) continue;
        bl_fail("rank %d: %s", rank, all[rank].reason);
        return all[rank].alarming ? BL_FAILED : BL_DECLINED;
    }
    struct bl_staging_layout layout;
    for (int rank = 0; rank < nranks; rank++) {
        if (all[rank].offered >= bl_staging_minimum(nranks)) continue;
        bl_fail("rank %d: its process's BEELINE_BUDGET is used up by other communicators", rank);
        return BL_DECLINED;
    }
    if (bl_identity_layout(all, nranks, &layout)) {
        bl_fail("BEELINE_STAGING=%llu of rank 0 is too small: %d ranks need %llu bytes or more",
                (unsigned long long)all[0].staging, nranks, (unsigned long long)bl_staging_minimum(nranks));
        return BL_FAILED;
    }
    return BL_WELL;
}

struct bl_identity_least bl_identity_least(const struct bl_identity *all, int nranks) {
    struct bl_identity_least least = {.sms = all[0].sms,
                                      .max_threads = all[0].max_threads,
                                      .block_memory = all[0].block_memory,
                                      .max_blocks = UINT_MAX,
                                      .nvlinks = all[0].nvlinks,
                                      .arch = all[0].arch};
    for (int rank = 1; rank < nranks; rank++) {
        if (all[rank].sms < least.sms) least.sms = all[rank].sms;
        if (all[rank].max_threads < least.max_threads) least.max_threads = all[rank].max_threads;
        if (all[rank].block_memory < least.block_memory) least.block_memory = all[rank].block_memory;
        if (all[rank].arch < least.arch) least.arch = all[rank].arch;
        if (all[rank].nvlinks < least.nvlinks) least.nvlinks = all[rank].nvlinks;
    }
    for (int rank = 0; rank < nranks; rank++) {
        least.nccl_nvls = least.nccl_nvls || all[rank].nccl_nvls;
        least.zero_ctas = least.zero_ctas || all[rank].zero_ctas;
    }
    for (int rank = 0; rank < nranks; rank++)
        if (all[rank].max_blocks && all[rank].max_blocks < least.max_blocks) least.max_blocks = all[rank].max_blocks;
    return least;
}

static int lay_out(const struct bl_identity *all, int nranks, uint64_t bytes, struct bl_staging_layout *layout) {
    bool copy = all[0].copy_engines;
    for (int rank = 0; rank < nranks; rank++) copy = copy && all[rank].copy_possible;
    const bool multicast = bl_identity_multicast(all, nranks) == 0;
    /* What is beside it (memory.h) is not to take another granule of device memory; little takes one anyway. */
    const uint64_t beside = BL_LOCAL_WORDS * sizeof(uint64_t) + 128;
    const unsigned with = (copy ? BL_WITH_SLOTS : 0) | (all[0].pieces ? BL_WITH_PIECES : 0);
    return bl_staging_plan(layout, nranks, bytes >= 32 << 20 ? bytes - beside : bytes, with, multicast);
}

int bl_identity_layout(const struct bl_identity *all, int nranks, struct bl_staging_layout *layout) {
    uint64_t bytes = all[0].staging;
    for (int rank = 0; rank < nranks; rank++)
        if (all[rank].offered < bytes) bytes = all[rank].offered;
    return lay_out(all, nranks, bytes, layout);
}

bool bl_identity_short(const struct bl_identity *all, int nranks) {
    const uint64_t staging = all[0].staging < BL_STAGING_USUAL ? all[0].staging : BL_STAGING_USUAL;
    struct bl_staging_layout has, asked;
    return !bl_identity_layout(all, nranks, &has) && !lay_out(all, nranks, staging, &asked) &&
           has.bytes < asked.bytes / 2;
}

int bl_identity_multicast(const struct bl_identity *all, int nranks) {
    if (!all[0].multicast_wanted) return bl_fail("BEELINE_MULTICAST=0");
    for (int rank = 0; rank < nranks; rank++)
        if (!all[rank].multicast_possible)
            return bl_fail("rank %d: %.*s", rank, (int)sizeof(all[rank].multicast_reason) - 1,
                           all[rank].multicast_reason);
    return 0;
}
