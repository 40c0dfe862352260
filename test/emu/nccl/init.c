/* init.c - the calls that make communicators. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "area.h"

static const char id_magic[8] = "BLNCCL1";

EMU_API(ncclResult_t, ncclGetUniqueId, ncclUniqueId *id) {
    static _Atomic uint32_t counter;
    struct emu_call call = NCCL_CALL(-1);
    ncclResult_t result = emu_call_enter(&call, NULL);
    if (result == ncclSuccess && !id) result = emu_fail(ncclInvalidArgument, "ncclGetUniqueId: uniqueId is NULL");
    if (result == ncclSuccess) {
        const char *run = getenv("BEELINE_EMU_RUN");
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        memset(id, 0, sizeof *id);
        memcpy(id->internal, id_magic, sizeof id_magic);
        snprintf(id->internal + sizeof id_magic, sizeof((struct emu_job *)0)->name, "/beeline-nccl-%.20s-%d-%llx-%u",
                 run ? run : "0", (int)getpid(),
                 (unsigned long long)now.tv_sec * 1000000000u + (unsigned long)now.tv_nsec, counter++);
    }
    return emu_call_leave(&call, result);
}

/* The file's name: that of the only id, or one made of all of them. */
static ncclResult_t name_area(struct emu_job *job, const ncclUniqueId *ids, int nids) {
    uint64_t hash = 14695981039346656037u;
    for (int i = 0; i < nids; i++) {
        if (memcmp(ids[i].internal, id_magic, sizeof id_magic))
            return emu_fail(ncclInvalidArgument, "commId %d did not come from ncclGetUniqueId", i);
        for (size_t c = 0; c < sizeof ids[i]; c++) hash = (hash ^ (unsigned char)ids[i].internal[c]) * 1099511628211u;
    }
    snprintf(job->name, sizeof job->name, "%.60s", ids[0].internal + sizeof id_magic);
    if (nids > 1) {
        size_t length = strlen(job->name);
        snprintf(job->name + length, sizeof job->name - length, "-%llx", (unsigned long long)hash);
    }
    return ncclSuccess;
}

/* The caller's context; as with the CUDA runtime, a thread that has none uses device 0. */
static ncclResult_t current_context(CUcontext *context) {
    CUdevice device;
    EMU_CUDA(cuInit(0));
    EMU_CUDA(cuCtxGetCurrent(context));
    if (*context) return ncclSuccess;
    EMU_CUDA(cuDeviceGet(&device, 0));
    EMU_CUDA(cuDevicePrimaryCtxRetain(context, device));
    EMU_CUDA(cuCtxSetCurrent(*context));
    return ncclSuccess;
}

static ncclResult_t read_config(const ncclConfig_t *config, bool *blocking) {
    if (!config) return ncclSuccess;
    if (config->magic != 0xcafebeef)
        return emu_fail(ncclInvalidArgument, "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
    if (config->size < offsetof(ncclConfig_t, cgaClusterSize))
        return emu_fail(ncclInvalidArgument, "ncclConfig_t of %zu bytes", config->size);
    int value = config->blocking;
    if (value != NCCL_CONFIG_UNDEF_INT && value != 0 && value != 1)
        return emu_fail(ncclInvalidArgument, "Invalid config blocking attribute value %d", value);
    if (value != NCCL_CONFIG_UNDEF_INT) *blocking = value;
    return ncclSuccess;
}

static ncclResult_t drop(struct emu_job *job, ncclResult_t result) {
    if (job->comm) emu_comm_release(job->comm);
    free(job->excluded);
    free(job);
    return result;
}

static ncclResult_t init_rank(ncclComm_t *newcomm, int nranks, int rank, const ncclUniqueId *ids, int nids,
                              const ncclConfig_t *config, ncclResult_t inject) {
    ncclResult_t result;
    if (!newcomm) return emu_fail(ncclInvalidArgument, "newcomm is NULL");
    *newcomm = NULL;
    if (nranks < 1 || nranks > EMU_MAX_RANKS || rank < 0 || rank >= nranks)
        return emu_fail(ncclInvalidArgument, "Invalid rank requested : %d/%d", rank, nranks);
    if (!ids || nids < 1 || nids > nranks)
        return emu_fail(ncclInvalidArgument, "improper usage of ncclCommInitRankScalable, nId = %d, nranks=%d", nids,
                        nranks);
    struct emu_job *job = calloc(1, sizeof *job);
    if (!job) return emu_fail(ncclSystemError, "out of memory");
    *job = (struct emu_job){
        .kind = EMU_JOB_INIT, .newcomm = newcomm, .blocking = true, .nranks = nranks, .rank = rank, .inject = inject};
    if ((result = read_config(config, &job->blocking)) != ncclSuccess) return drop(job, result);
    if ((result = name_area(job, ids, nids)) != ncclSuccess) return drop(job, result);
    if ((result = current_context(&job->context)) != ncclSuccess) return drop(job, result);
    job->comm = job->owner = emu_comm_new();
    if (!job->comm) return drop(job, emu_fail(ncclSystemError, "out of memory"));
    emu_job_describe(job);
    return emu_group_add_job(job);
}

#define INIT_CALL(rank_, count_)                                                                                       \
    struct emu_call call = NCCL_CALL(rank_);                                                                           \
    call.count = (count_);                                                                                             \
    ncclResult_t inject = emu_call_enter(&call, NULL)

/* Inside a group a bad argument spoils the group. */
static ncclResult_t init_leave(const struct emu_call *call, ncclResult_t result) {
    if (result != ncclSuccess && result != ncclInProgress) emu_group_error(result);
    return emu_call_leave(call, result);
}

EMU_API(ncclResult_t, ncclCommInitRank, ncclComm_t *newcomm, int nranks, ncclUniqueId id, int rank) {
    INIT_CALL(rank, nranks);
    return init_leave(&call, init_rank(newcomm, nranks, rank, &id, 1, NULL, inject));
}

EMU_API(ncclResult_t, ncclCommInitRankConfig, ncclComm_t *newcomm, int nranks, ncclUniqueId id, int rank,
        ncclConfig_t *config) {
    INIT_CALL(rank, nranks);
    ncclResult_t result = init_rank(newcomm, nranks, rank, &id, 1, config, inject);
    if (result == ncclInProgress) ncclCommGetAsyncError(*newcomm, &result); /* through the PLT, as the real one does */
    return init_leave(&call, result);
}

EMU_API(ncclResult_t, ncclCommInitRankScalable, ncclComm_t *newcomm, int nranks, int rank, int nids, ncclUniqueId *ids,
        ncclConfig_t *config) {
    INIT_CALL(rank, nranks);
    return init_leave(&call, init_rank(newcomm, nranks, rank, ids, nids, config, inject));
}

static ncclResult_t init_device(ncclComm_t *newcomm, int ndev, ncclUniqueId id, int rank, int ordinal) {
    CUdevice device;
    CUcontext context;
    EMU_CUDA(cuDeviceGet(&device, ordinal));
    EMU_CUDA(cuDevicePrimaryCtxRetain(&context, device));
    EMU_CUDA(cuCtxPushCurrent(context));
    ncclResult_t result = ncclCommInitRank(newcomm, ndev, id, rank);
    cuCtxPopCurrent(NULL);
    return result;
}

static ncclResult_t check_devices(const ncclComm_t *comms, int ndev, const int *devlist) {
    int available;
    EMU_CUDA(cuInit(0));
    EMU_CUDA(cuDeviceGetCount(&available));
    if (!comms || ndev < 1) return emu_fail(ncclInvalidArgument, "Invalid device count requested : %d", ndev);
    for (int i = 0; i < ndev; i++) {
        int device = devlist ? devlist[i] : i;
        if (device < 0 || device >= available)
            return emu_fail(ncclInvalidArgument, "Invalid device %d (%d available)", device, available);
        for (int j = 0; devlist && j < i; j++)
            if (devlist[j] == device) return emu_fail(ncclInvalidUsage, "Duplicate GPU %d in ncclCommInitAll", device);
    }
    return ncclSuccess;
}

EMU_API(ncclResult_t, ncclCommInitAll, ncclComm_t *comms, int ndev, const int *devlist) {
    INIT_CALL(-1, ndev);
    ncclUniqueId id;
    ncclResult_t result = inject != ncclSuccess ? inject : check_devices(comms, ndev, devlist), end;
    if (result == ncclSuccess) result = ncclGetUniqueId(&id);
    if (result != ncclSuccess) return init_leave(&call, result);
    /* Through the PLT, so that a library in front sees the pieces of this call too. */
    ncclGroupStart();
    for (int i = 0; i < ndev && result == ncclSuccess; i++)
        result = init_device(&comms[i], ndev, id, i, devlist ? devlist[i] : i);
    end = ncclGroupEnd();
    if (result == ncclSuccess && end != ncclSuccess) {
        for (int i = 0; i < ndev; i++)
            if (comms[i]) ncclCommAbort(comms[i]);
        result = end;
    }
    return init_leave(&call, result);
}

static ncclResult_t new_child(struct emu_job **job_out, ncclComm_t parent, ncclComm_t *newcomm,
                              const ncclConfig_t *config, ncclResult_t inject) {
    struct emu_job *job = calloc(1, sizeof *job);
    if (!job) return emu_fail(ncclSystemError, "out of memory");
    *newcomm = NULL;
    *job = (struct emu_job){.newcomm = newcomm,
                            .parent = parent,
                            .owner = parent,
                            .context = parent->context,
                            .blocking = parent->blocking,
                            .child_blocking = config || parent->blocking, /* a config that does not say is blocking */
                            .inject = inject};
    ncclResult_t result = read_config(config, &job->child_blocking);
    if (result != ncclSuccess) return drop(job, result);
    *job_out = job;
    return ncclSuccess;
}

/* Splitting and shrinking are what a revoked communicator is still good for. */
static ncclResult_t parent_ready(ncclComm_t comm, bool failed_too) {
    ncclResult_t result = emu_comm_check(comm);
    if (result != ncclSuccess) return result;
    if (comm->async == ncclInProgress) return emu_fail(ncclInvalidArgument, "the communicator is not ready");
    emu_comm_join(comm);
    if (failed_too) return ncclSuccess;
    return comm->aborted || comm->finalized ? ncclInvalidUsage : (ncclResult_t)comm->async;
}

static ncclResult_t split(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, const ncclConfig_t *config,
                          ncclResult_t inject) {
    struct emu_job *job;
    ncclResult_t result = parent_ready(comm, false);
    if (result != ncclSuccess) return result;
    if (!newcomm) return emu_fail(ncclInvalidArgument, "newcomm is NULL");
    if ((result = new_child(&job, comm, newcomm, config, inject)) != ncclSuccess) return result;
    job->kind = EMU_JOB_SPLIT;
    job->color = color;
    job->key = key;
    return emu_group_add_job(job);
}

EMU_API(ncclResult_t, ncclCommSplit, ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config) {
    INIT_CALL(emu_comm_rank(comm), color);
    const ncclResult_t result = split(comm, color, key, newcomm, config, inject);
    return init_leave(&call, result == ncclInProgress ? ncclSuccess : result); /* as the real one says */
}

static ncclResult_t shrink(ncclComm_t comm, const int *excluded, int nexcluded, ncclComm_t *newcomm,
                           const ncclConfig_t *config, int flags) {
    struct emu_job *job;
    ncclResult_t result = parent_ready(comm, flags & NCCL_SHRINK_ABORT);
    if (result != ncclSuccess) return result;
    if (!newcomm || !excluded || nexcluded < 1 || nexcluded >= comm->nranks || flags & ~NCCL_SHRINK_ABORT)
        return emu_fail(ncclInvalidArgument, "ncclCommShrink: %d ranks of %d excluded, flags %d", nexcluded,
                        comm->nranks, flags);
    for (int i = 0; i < nexcluded; i++) {
        if (excluded[i] < 0 || excluded[i] >= comm->nranks || excluded[i] == comm->rank)
            return emu_fail(ncclInvalidArgument, "ncclCommShrink: rank %d excludes rank %d of %d", comm->rank,
                            excluded[i], comm->nranks);
    }
    if (flags & NCCL_SHRINK_ABORT) {
        emu_area_stop(comm, true);
        emu_comm_wait_zero(&comm->running);
    }
    if ((result = new_child(&job, comm, newcomm, config, ncclSuccess)) != ncclSuccess) return result;
    job->kind = EMU_JOB_SHRINK;
    job->excluded = malloc((size_t)nexcluded * sizeof *excluded);
    if (!job->excluded) return drop(job, emu_fail(ncclSystemError, "out of memory"));
    memcpy(job->excluded, excluded, (size_t)nexcluded * sizeof *excluded);
    job->nexcluded = nexcluded;
    return emu_group_add_job(job);
}

EMU_API(ncclResult_t, ncclCommShrink, ncclComm_t comm, int *excluded, int nexcluded, ncclComm_t *newcomm,
        ncclConfig_t *config, int flags) {
    INIT_CALL(emu_comm_rank(comm), nexcluded);
    if (inject == ncclSuccess) inject = shrink(comm, excluded, nexcluded, newcomm, config, flags);
    return init_leave(&call, inject == ncclInProgress ? ncclSuccess : inject);
}
