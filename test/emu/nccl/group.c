/* group.c - ncclGroupStart and ncclGroupEnd: all that a thread calls in between happens at the outermost end. */
#include <stdlib.h>

#include "emu_nccl.h"

static _Thread_local struct {
    int depth;
    ncclResult_t error; /* the first; nothing is launched then */
    struct emu_task *tasks, **last_task;
    struct emu_job *jobs, **last_job;
    size_t ntasks;
} group;

void emu_group_start(void) {
    group.depth++;
}

void emu_group_error(ncclResult_t result) {
    if (group.depth && group.error == ncclSuccess) group.error = result;
}

/* Equal on all ranks, and else as good as drawn; of a communicator's ranks here one behind the other. */
static uint64_t place_of(const struct ncclComm *comm) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char *c = comm->name; *c; c++) hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    return (hash ^ hash >> 32) << 8 | (unsigned)comm->rank;
}

/* Without a lock, since another thread may wait in a launch for what this group brings: of a communicator that ends meanwhile the place is
 * any, and its launch finds another generation. */
ncclResult_t emu_group_add_task(const struct emu_op *op, const struct emu_task *call) {
    struct emu_task *task = malloc(sizeof *task);
    if (!task) return emu_fail(ncclSystemError, "out of memory");
    *task = *call;
    task->op = *op;
    task->place = place_of(call->comm);
    task->blocking = call->comm->blocking;
    if (!group.tasks) group.last_task = &group.tasks;
    *group.last_task = task;
    group.last_task = &task->next;
    group.ntasks++;
    return ncclSuccess;
}

ncclResult_t emu_group_add_job(struct emu_job *job) {
    if (job->kind == EMU_JOB_INIT) emu_job_give(job); /* as the real one: at once, and no more later */
    if (group.depth) {
        if (!group.jobs) group.last_job = &group.jobs;
        *group.last_job = job;
        group.last_job = &job->next;
        if (!job->blocking) job->owner->async = ncclInProgress;
        return job->blocking ? ncclSuccess : ncclInProgress;
    }
    if (!job->blocking) return emu_job_start(job);
    const ncclResult_t result = emu_job_run(job);
    emu_job_finish(job);
    return result;
}

/* One thread each: they wait for one another. */
static ncclResult_t run_jobs(struct emu_job *jobs) {
    ncclResult_t result = ncclSuccess;
    struct emu_job *blocking = NULL, *next;
    for (struct emu_job *job = jobs; job; job = next) {
        next = job->next;
        if (!job->blocking) {
            ncclResult_t started = emu_job_start(job);
            if (result == ncclSuccess) result = started;
            continue;
        }
        job->next = blocking;
        blocking = job;
        if (pthread_create(&job->thread, NULL, emu_job_thread, job)) {
            job->thread = 0;
            job->result = emu_fail(ncclSystemError, "no thread");
        }
    }
    for (struct emu_job *job = blocking; job; job = next) {
        next = job->next;
        if (job->thread) pthread_join(job->thread, NULL);
        if (job->result != ncclSuccess && (result == ncclSuccess || result == ncclInProgress)) result = job->result;
        emu_job_finish(job);
    }
    return result;
}

/* The task of the communicator that comes behind the one of that place, NULL: none does. */
static struct emu_task *first_behind(struct emu_task *tasks, const uint64_t *place) {
    struct emu_task *least = NULL;
    for (struct emu_task *task = tasks; task; task = task->next)
        if ((!place || task->place > *place) && (!least || task->place < least->place)) least = task;
    return least;
}

/* One plan a communicator, in the order of hashes, as the real one does. */
static ncclResult_t launch_tasks(struct emu_task *tasks, size_t ntasks) {
    ncclResult_t result = ncclSuccess;
    struct emu_task **mine = calloc(ntasks ? ntasks : 1, sizeof *mine), *first = first_behind(tasks, NULL);
    if (!mine) return emu_fail(ncclSystemError, "out of memory");
    for (struct emu_task *task = tasks; task; task = task->next) emu_p2p_announce(task);
    while (first && (result == ncclSuccess || result == ncclInProgress)) {
        int n = 0;
        for (struct emu_task *task = tasks; task; task = task->next)
            if (task->place == first->place) mine[n++] = task;
        const ncclResult_t one = (first->blocking ? emu_launch : emu_launch_later)(mine, n);
        if (one != ncclSuccess) result = one;
        first = first_behind(tasks, &first->place);
    }
    free(mine);
    return result;
}

static void drop_jobs(struct emu_job *jobs, ncclResult_t result) {
    for (struct emu_job *job = jobs, *next; job; job = next) {
        next = job->next;
        job->result = result;
        emu_job_finish(job);
    }
}

/* Ends the group on this thread; *simulate, if given, gets an estimate and nothing is launched.  Communicators are made, as the
 * real one does. */
ncclResult_t emu_group_end(ncclSimInfo_t *simulate) {
    if (group.depth == 0) return emu_fail(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
    if (--group.depth) return ncclSuccess;
    struct emu_task *tasks = group.tasks, *next;
    struct emu_job *jobs = group.jobs;
    ncclResult_t result = group.error;
    size_t ntasks = group.ntasks, ncollectives = 0, bytes = 0;
    group.tasks = NULL;
    group.jobs = NULL;
    group.ntasks = 0;
    group.error = ncclSuccess;
    for (struct emu_task *task = tasks; task; task = task->next) {
        if (emu_is_p2p(&task->op)) continue;
        ncollectives++;
        bytes += task->op.count * emu_datatype_size(task->op.datatype);
    }
    if (result != ncclSuccess) {
        drop_jobs(jobs, result);
    } else {
        result = run_jobs(jobs);
        if (result == ncclSuccess || result == ncclInProgress) {
            ncclResult_t launched = simulate ? emu_simulated_keep(tasks) : emu_simulated_take(tasks);
            if (launched == ncclSuccess && !simulate) launched = launch_tasks(tasks, ntasks);
            if (launched != ncclSuccess) result = launched;
        }
    }
    /* Microseconds, some; of messages NCCL has none. */
    if (simulate && ncollectives) simulate->estimatedTime = (float)ncollectives * 5.0f + (float)bytes * 1e-5f;
    for (; tasks; tasks = next) {
        next = tasks->next;
        free(tasks);
    }
    return result;
}

EMU_API(ncclResult_t, ncclGroupStart, void) {
    struct emu_call call = NCCL_CALL(-1);
    ncclResult_t result = emu_call_enter(&call, NULL);
    if (result == ncclSuccess) emu_group_start();
    return emu_call_leave(&call, result);
}

EMU_API(ncclResult_t, ncclGroupEnd, void) {
    struct emu_call call = NCCL_CALL(-1);
    ncclResult_t result = emu_call_enter(&call, NULL);
    if (result != ncclSuccess) emu_group_error(result);
    result = emu_group_end(NULL);
    return emu_call_leave(&call, result);
}

EMU_API(ncclResult_t, ncclGroupSimulateEnd, ncclSimInfo_t *info) {
    struct emu_call call = NCCL_CALL(-1);
    ncclResult_t result = emu_call_enter(&call, NULL);
    if (result == ncclSuccess && info && info->magic != 0x74685283)
        result = emu_fail(ncclInvalidArgument, "ncclSimInfo_t argument not initialized via NCCL_SIM_INFO_INITIALIZER");
    if (result != ncclSuccess) emu_group_error(result);
    result = emu_group_end(info); /* without it launches, as the real one */
    return emu_call_leave(&call, result);
}
