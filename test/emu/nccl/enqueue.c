/* enqueue.c - from tasks to a kernel on a stream, which runs on the host and takes BEELINE_EMU_NCCL_DELAY microseconds longer than it need. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "area.h"
#include "emulated.h"

/* What one launch runs; captured plans run at every replay and live as long as the process. */
struct plan {
    ncclComm_t comm;
    uint64_t generation;
    bool captured;
    struct plan *next_captured;
    int ncollectives, nops; /* collectives first, then sends and receives */
    struct emu_op ops[];
};

/* The multiprocessors that a launch holds: BEELINE_EMU_NCCL_SMS of them, by default a quarter of the GPU's, but not more than 8.
 * The real one has a block a channel, and such a block leaves no room for others where it runs. */
static unsigned multiprocessors(ncclComm_t comm) {
    const char *text = getenv("BEELINE_EMU_NCCL_SMS");
    int all = 0;
    if (comm->nranks == 1) return 0; /* copies */
    if (text) return (unsigned)atoi(text);
    if (cuDeviceGetAttribute(&all, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, comm->device) != CUDA_SUCCESS) return 1;
    return all / 4 > 8 ? 8 : all / 4 > 1 ? (unsigned)all / 4 : 1;
}

static _Atomic(struct plan *) captured_plans; /* so that they stay reachable */

static ncclResult_t run_ops(const struct plan *plan) {
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < plan->ncollectives && result == ncclSuccess; i++)
        result = emu_run_collective(plan->comm, &plan->ops[i]);
    if (result == ncclSuccess && plan->nops > plan->ncollectives)
        result = emu_run_p2p(plan->comm, plan->ops + plan->ncollectives, plan->nops - plan->ncollectives);
    return result;
}

static void dawdle(void) {
    const char *text = getenv("BEELINE_EMU_NCCL_DELAY");
    if (text) usleep((useconds_t)atoi(text));
}

static void CUDA_CB run_plan(void *argument) {
    struct plan *plan = argument;
    ncclComm_t comm = plan->comm;
    comm->running++; /* before the look at the generation: emu_comm_release changes that first and then waits */
    if (comm->generation == plan->generation) {
        pthread_mutex_lock(&comm->executing);
        ncclResult_t result = (ncclResult_t)comm->async;
        if (result == ncclSuccess || result == ncclInProgress)
            result = emu_area_stopped(comm); /* in progress: finalize */
        if (result == ncclSuccess) dawdle();
        if (result == ncclSuccess) result = run_ops(plan);
        if (result == ncclInternalError && !comm->aborted && !comm->revoked) emu_area_stop(comm, true);
        if (result != ncclSuccess && !comm->revoked) emu_comm_set_async(comm, result);
        pthread_mutex_unlock(&comm->executing);
        if (!plan->captured && --comm->pending == 0) emu_futex_wake(&comm->pending);
    }
    if (--comm->running == 0) emu_futex_wake(&comm->running);
    if (!plan->captured) free(plan);
}

ncclResult_t emu_capture_id(CUstream stream, unsigned long long *id) {
    CUstreamCaptureStatus status;
    cuuint64_t capture = 0;
    *id = 0;
    EMU_CUDA(cuStreamIsCapturing(stream, &status));
    if (status == CU_STREAM_CAPTURE_STATUS_NONE) return ncclSuccess;
    EMU_CUDA(cuStreamGetCaptureInfo(stream, &status, &capture, NULL, NULL, NULL, NULL));
    *id = capture;
    return ncclSuccess;
}

static struct plan *make_plan(ncclComm_t comm, struct emu_task *const *tasks, int ntasks, bool captured) {
    struct plan *plan = calloc(1, sizeof *plan + (size_t)ntasks * sizeof plan->ops[0]);
    if (!plan) return NULL;
    *plan = (struct plan){.comm = comm, .generation = comm->generation, .captured = captured};
    for (int p2p = 0; p2p < 2; p2p++) {
        for (int i = 0; i < ntasks; i++) {
            if (emu_is_p2p(&tasks[i]->op) == p2p) plan->ops[plan->nops++] = tasks[i]->op;
        }
        if (!p2p) plan->ncollectives = plan->nops;
    }
    return plan;
}

/* Puts `first` behind the communicator's last call and behind the other streams of this launch. */
static ncclResult_t join_streams(ncclComm_t comm, const CUstream *streams, int nstreams, unsigned long long capture) {
    unsigned long long stream = 0;
    if (!capture) EMU_CUDA(cuStreamGetId(streams[0], &stream));
    if (capture && comm->capture == capture && comm->capture_stream != streams[0])
        EMU_CUDA(cuStreamWaitEvent(streams[0], comm->capture_event, 0));
    if (!capture && comm->eager_used && comm->eager_stream != stream)
        EMU_CUDA(cuStreamWaitEvent(streams[0], comm->eager_event, 0));
    CUevent event = capture ? comm->capture_event : comm->eager_event;
    for (int i = 1; i < nstreams; i++) {
        EMU_CUDA(cuEventRecord(event, streams[i]));
        EMU_CUDA(cuStreamWaitEvent(streams[0], event, 0));
    }
    return ncclSuccess;
}

/* The next call on another stream waits for this event, and so do the other streams of this launch. */
static ncclResult_t fork_streams(ncclComm_t comm, const CUstream *streams, int nstreams, unsigned long long capture) {
    CUevent event = capture ? comm->capture_event : comm->eager_event;
    EMU_CUDA(cuEventRecord(event, streams[0]));
    for (int i = 1; i < nstreams; i++) EMU_CUDA(cuStreamWaitEvent(streams[i], event, 0));
    if (capture) {
        comm->capture = capture;
        comm->capture_stream = streams[0];
    } else {
        comm->eager_used = true;
        EMU_CUDA(cuStreamGetId(streams[0], &comm->eager_stream));
    }
    return ncclSuccess;
}

/* At the first call that needs it, by calls of the driver that a capture forbids; the real one's are such where ranks share a
 * process. */
static ncclResult_t connect(ncclComm_t comm, const struct plan *plan) {
    const bool needed[2] = {plan->ncollectives > 0, plan->nops > plan->ncollectives};
    for (int i = 0; i < 2; i++) {
        if (!needed[i] || comm->connected[i] || comm->nranks == 1) continue;
        const CUresult result = cuEventQuery(comm->eager_event);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
            return emu_fail(ncclInternalError, "failed to peer: %d", (int)result);
        comm->connected[i] = true;
    }
    return emu_p2p_connect(comm, plan->ops + plan->ncollectives, plan->nops - plan->ncollectives);
}

/* By made-up speeds. */
static ncclResult_t take_time(CUstream stream, const struct emu_op *op) {
    const size_t bytes = op->count * emu_datatype_size(op->datatype);
    return emu_cuda(beelineEmulatedTime(stream, emu_collective_name(op->collective), bytes), "a made-up time");
}

/* A kernel that needs more local memory than any before it on the GPU waits, on the host, until nothing runs there: as NCCL's first
 * one for messages (NCCL 2.28.9, driver 580), and, for all we know, the first that has a collective as well, which is another kernel. */
static void find_local_memory(const struct plan *plan) {
    static _Atomic unsigned found[16]; /* as many devices as a box has at most */
    unsigned kinds = 1u << EMU_SEND;
    if (plan->nops == plan->ncollectives) return;
    for (int i = 0; i < plan->ncollectives; i++) kinds |= 1u << plan->ops[i].collective;
    if (kinds & ~atomic_fetch_or(&found[plan->comm->device], kinds)) cuCtxSynchronize();
}

static ncclResult_t launch(ncclComm_t comm, struct emu_task *const *tasks, int ntasks, CUstream *streams) {
    unsigned long long capture = 0, other;
    int nstreams = 0;
    for (int i = 0; i < ntasks; i++) {
        int known = 0;
        while (known < nstreams && streams[known] != tasks[i]->stream) known++;
        if (known == nstreams) streams[nstreams++] = tasks[i]->stream;
    }
    for (int i = 0; i < nstreams; i++) {
        ncclResult_t result = emu_capture_id(streams[i], &other);
        if (result != ncclSuccess) return result;
        if (i && other != capture)
            return emu_fail(ncclInvalidUsage, "streams of one group are not all captured by the same graph");
        capture = other;
    }
    ncclResult_t result = join_streams(comm, streams, nstreams, capture);
    if (result != ncclSuccess) return result;
    struct plan *plan = make_plan(comm, tasks, ntasks, capture != 0);
    if (!plan) return emu_fail(ncclSystemError, "out of memory");
    result = connect(comm, plan);
    if (result != ncclSuccess) {
        free(plan);
        return result;
    }
    for (int i = 0; i < plan->nops && result == ncclSuccess; i++) result = take_time(streams[0], &plan->ops[i]);
    if (result != ncclSuccess) {
        free(plan);
        return result;
    }
    if (!capture) find_local_memory(plan);
    if (!capture) comm->pending++;
    result = emu_cuda(beelineEmulatedKernel(streams[0], run_plan, plan, multiprocessors(comm)), "launch");
    if (result != ncclSuccess) {
        if (!capture) comm->pending--;
        free(plan);
        return result;
    }
    if (capture) {
        plan->next_captured = captured_plans;
        while (!atomic_compare_exchange_weak(&captured_plans, &plan->next_captured, plan)) {
        }
    }
    return fork_streams(comm, streams, nstreams, capture);
}

ncclResult_t emu_task_check(const struct emu_task *task) {
    const ncclResult_t result = emu_comm_check(task->comm);
    if (result != ncclSuccess || task->comm->generation == task->generation) return result;
    return emu_fail(ncclInvalidArgument, "comm %p is another communicator by now", (void *)task->comm);
}

/* With `launching` held. */
static ncclResult_t launch_held(ncclComm_t comm, struct emu_task *const *tasks, int ntasks) {
    ncclResult_t result = emu_task_check(tasks[0]);
    if (result != ncclSuccess) return result;
    CUstream *streams = calloc((size_t)ntasks, sizeof *streams);
    if (!streams) return emu_fail(ncclSystemError, "out of memory");
    result = emu_cuda(cuCtxPushCurrent(comm->context), "cuCtxPushCurrent");
    if (result == ncclSuccess) {
        result = launch(comm, tasks, ntasks, streams);
        cuCtxPopCurrent(NULL);
    }
    free(streams);
    return result;
}

ncclResult_t emu_launch(struct emu_task *const *tasks, int ntasks) {
    ncclComm_t comm = tasks[0]->comm;
    pthread_mutex_lock(&comm->launching);
    const ncclResult_t result = launch_held(comm, tasks, ntasks);
    pthread_mutex_unlock(&comm->launching);
    return result;
}

/* --- nonblocking communicators: the call returns, and its launch comes later, as the real one's may --- */

enum { LATER_US = 3000 };

struct later {
    int ntasks;
    struct emu_task tasks[];
};

static void *launch_later(void *argument) {
    struct later *later = argument;
    ncclComm_t comm = later->tasks[0].comm;
    struct emu_task *tasks[later->ntasks];
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    usleep(LATER_US);
    for (int i = 0; i < later->ntasks; i++) tasks[i] = &later->tasks[i];
    ncclResult_t result = emu_cuda(cuThreadExchangeStreamCaptureMode(&mode), "cuThreadExchangeStreamCaptureMode");
    pthread_mutex_lock(&comm->launching);
    if (result == ncclSuccess) result = launch_held(comm, tasks, later->ntasks);
    int expected = ncclInProgress;
    if (emu_task_check(tasks[0]) == ncclSuccess) atomic_compare_exchange_strong(&comm->async, &expected, result);
    pthread_mutex_unlock(&comm->launching);
    free(later);
    return NULL;
}

ncclResult_t emu_launch_later(struct emu_task *const *tasks, int ntasks) {
    ncclComm_t comm = tasks[0]->comm;
    struct later *later = malloc(sizeof *later + (size_t)ntasks * sizeof later->tasks[0]);
    if (!later) return emu_fail(ncclSystemError, "out of memory");
    *later = (struct later){.ntasks = ntasks};
    for (int i = 0; i < ntasks; i++) later->tasks[i] = *tasks[i];
    pthread_mutex_lock(&comm->launching);
    ncclResult_t result = emu_task_check(tasks[0]);
    pthread_mutex_unlock(&comm->launching);
    if (result == ncclSuccess) emu_comm_join(comm);
    pthread_mutex_lock(&comm->launching);
    if (result == ncclSuccess) result = emu_task_check(tasks[0]);
    if (result == ncclSuccess) {
        comm->async = ncclInProgress;
        comm->worker_started = !pthread_create(&comm->worker, NULL, launch_later, later);
        if (!comm->worker_started) {
            comm->async = ncclSuccess;
            result = emu_fail(ncclSystemError, "no thread");
        }
    }
    pthread_mutex_unlock(&comm->launching);
    if (result == ncclSuccess) return ncclInProgress;
    free(later);
    return result;
}
