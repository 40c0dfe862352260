/* jobs.c - making communicators: what init, split and shrink do once all arguments are known to be good. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "area.h"

static ncclResult_t make_events(ncclComm_t comm) {
    EMU_CUDA(cuEventCreate(&comm->eager_event, CU_EVENT_DISABLE_TIMING));
    EMU_CUDA(cuEventCreate(&comm->capture_event, CU_EVENT_DISABLE_TIMING));
    return ncclSuccess;
}

void emu_job_describe(struct emu_job *job) {
    ncclComm_t comm = job->comm;
    memcpy(comm->name, job->name, sizeof comm->name);
    comm->rank = job->rank;
    comm->nranks = job->nranks;
    comm->context = job->context;
    comm->blocking = job->kind == EMU_JOB_INIT ? job->blocking : job->child_blocking;
}

static ncclResult_t build(struct emu_job *job) {
    EMU_CUDA(cuCtxGetDevice(&job->comm->device));
    ncclResult_t result = make_events(job->comm);
    if (result == ncclSuccess) result = emu_nvls_take(job->comm);
    return emu_area_attach(job->comm, job->inject != ncclSuccess ? job->inject : result);
}

/* A child's file is named after its parent's and what makes it this child: no exchange is needed. */
static void name_child(struct emu_job *job, const char *kind, uint32_t sequence, const int *values, int count) {
    const char *run = getenv("BEELINE_EMU_RUN");
    uint64_t hash = 14695981039346656037u;
    for (const char *c = job->parent->name; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    for (int i = 0; i < count; i++) hash = (hash ^ (uint32_t)values[i]) * 1099511628211u;
    snprintf(job->name, sizeof job->name, "/beeline-nccl-%.20s-%016llx-%s%u", run ? run : "0", (unsigned long long)hash,
             kind, sequence);
}

static ncclResult_t build_child(struct emu_job *job) {
    job->comm = emu_comm_new();
    if (!job->comm) return emu_fail(ncclSystemError, "out of memory");
    emu_job_describe(job);
    job->parent->child = job->comm;
    if (job->parent->aborted) job->comm->aborted = true;
    ncclResult_t result = build(job);
    job->parent->child = NULL;
    return result;
}

static ncclResult_t split(struct emu_job *job) {
    struct said {
        int color, key, failed;
    } said = {job->color, job->key, job->inject}, heard[EMU_MAX_RANKS];
    ncclComm_t parent = job->parent;
    uint32_t sequence = parent->splits++;
    ncclResult_t result = emu_area_exchange(parent, &said, sizeof said, heard);
    if (result != ncclSuccess) return result;
    if (job->inject != ncclSuccess) return job->inject;
    for (int r = 0; r < parent->nranks; r++)
        if (heard[r].failed) return emu_fail(ncclRemoteError, "ncclCommSplit: rank %d failed", r);
    if (job->color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
    for (int r = 0; r < parent->nranks; r++) {
        if (heard[r].color != job->color) continue;
        job->nranks++;
        bool earlier = r < parent->rank;
        if (heard[r].key < job->key || (heard[r].key == job->key && earlier)) job->rank++;
    }
    name_child(job, "s", sequence, &job->color, 1);
    return build_child(job);
}

static ncclResult_t shrink(struct emu_job *job) {
    bool excluded[EMU_MAX_RANKS] = {false};
    ncclComm_t parent = job->parent;
    for (int i = 0; i < job->nexcluded; i++) excluded[job->excluded[i]] = true;
    job->nranks = job->rank = 0;
    for (int r = 0; r < parent->nranks; r++) {
        if (excluded[r]) continue;
        job->nranks++;
        if (r < parent->rank) job->rank++;
    }
    name_child(job, "k", parent->shrinks++, job->excluded, job->nexcluded);
    return build_child(job);
}

static ncclResult_t (*const kinds[])(struct emu_job *) = {
    [EMU_JOB_INIT] = build, [EMU_JOB_SPLIT] = split, [EMU_JOB_SHRINK] = shrink};

ncclResult_t emu_job_run(struct emu_job *job) {
    job->result = emu_cuda(cuCtxPushCurrent(job->context), "cuCtxPushCurrent");
    if (job->result != ncclSuccess) return job->result;
    job->result = kinds[job->kind](job);
    cuCtxPopCurrent(NULL);
    return job->result;
}

void emu_job_give(const struct emu_job *job) {
    __atomic_store_n(job->newcomm, job->comm, __ATOMIC_RELEASE);
}

void emu_job_finish(struct emu_job *job) {
    ncclResult_t result = job->result;
    if (job->comm && result != ncclSuccess && job->blocking) {
        emu_comm_release(job->comm);
        job->comm = NULL;
    } else if (job->comm && result != ncclSuccess && job->kind != EMU_JOB_INIT) {
        job->comm->async = result; /* as the real one: of what fails in the background its owner has the handle */
    }
    /* An init has stored its handle when it began, but for one that has failed and is gone. */
    if (job->kind != EMU_JOB_INIT || (job->blocking && result != ncclSuccess)) emu_job_give(job);
    if (!job->blocking) {
        int expected = ncclInProgress;
        atomic_compare_exchange_strong(&job->owner->async, &expected, result);
    }
    free(job->excluded);
    free(job);
}

void *emu_job_thread(void *argument) {
    struct emu_job *job = argument;
    emu_job_run(job);
    if (!job->blocking) emu_job_finish(job);
    return NULL;
}

ncclResult_t emu_job_start(struct emu_job *job) {
    ncclComm_t owner = job->owner;
    emu_comm_join(owner);
    owner->async = ncclInProgress;
    owner->worker_started = true;
    if (pthread_create(&owner->worker, NULL, emu_job_thread, job)) {
        owner->worker_started = false;
        job->result = emu_fail(ncclSystemError, "no thread");
        emu_job_finish(job);
        return ncclSystemError;
    }
    return ncclInProgress;
}
