/* emu_nccl.h - the inside of the reference NCCL of the emulated box.
 *
 * A small, slow and strict NCCL: ranks meet in a shared-memory file (area.h), data is computed on the host in stream
 * order by host functions, reductions run in rank order and round once.  It checks what the real one leaves to luck,
 * such as ranks that disagree on a call.
 *
 * Threads: as NCCL, one thread at a time per communicator, except for ncclCommAbort and ncclCommGetAsyncError.
 * Errors: functions return ncclResult_t; emu_fail() records the text that ncclGetLastError tells.
 */
#ifndef EMU_NCCL_H
#define EMU_NCCL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda.h>
#include <nccl.h>

#include "real/nccl_later.h"

enum { EMU_VERSION = 23203 }; /* what it passes for, whatever nccl.h is at hand */

/* An exported function and its pncclX twin.  Calls between exported functions go through the PLT, as in the real one.
 */
#define EMU_API(type, function, ...)                                                                                   \
    extern type function(__VA_ARGS__);                                                                                 \
    extern __typeof__(function) p##function __attribute__((alias(#function)));                                         \
    type function(__VA_ARGS__)

#pragma GCC visibility push(hidden)

/* ---- calls: faults and trace (call.c) ---- */

struct emu_call {
    const char *function;
    int rank;         /* -1: none */
    long long count;  /* -1: none */
    int datatype, op; /* -1: none */
    CUstream stream;
    bool has_stream;
};

#define NCCL_CALL(rank_)                                                                                               \
    { .function = __func__, .rank = (rank_), .count = -1, .datatype = -1, .op = -1 }

/* The result that BEELINE_EMU_NCCL_FAULT orders for this call, else ncclSuccess.  A fault "async:RESULT" is left as the
 * asynchronous error of comm (may be NULL) instead. */
ncclResult_t emu_call_enter(const struct emu_call *call, ncclComm_t comm);
/* Writes the line of BEELINE_EMU_NCCL_TRACE; returns result. */
ncclResult_t emu_call_leave(const struct emu_call *call, ncclResult_t result);

/* The whole of an exported function of comm, or of none: `body` gives the result unless a fault does; count_: of elements or
 * bytes. */
#define NCCL_AROUND(comm, count_, body)                                                                                \
    struct emu_call call = NCCL_CALL(emu_comm_rank(comm));                                                             \
    call.count = (long long)(count_);                                                                                  \
    ncclResult_t result = emu_call_enter(&call, comm);                                                                 \
    return emu_call_leave(&call, result != ncclSuccess ? result : (body))

/* ---- errors and names (info.c) ---- */

ncclResult_t emu_fail(ncclResult_t result, const char *format, ...) __attribute__((format(printf, 2, 3)));
ncclResult_t emu_cuda(CUresult result, const char *what);
const char *emu_result_name(int result); /* "ncclInvalidUsage" */
bool emu_result_parse(const char *name, ncclResult_t *result);
const char *emu_datatype_name(int datatype); /* "bfloat16" */
const char *emu_redop_name(int redop);       /* "sum" */
size_t emu_datatype_size(int datatype);      /* 0: not a datatype */
extern const int emu_version_code;           /* what ncclGetVersion tells unless told otherwise */

#define EMU_CUDA(call)                                                                                                 \
    do {                                                                                                               \
        ncclResult_t emu_result_ = emu_cuda(call, #call);                                                              \
        if (emu_result_ != ncclSuccess) return emu_result_;                                                            \
    } while (0)

/* ---- operations ---- */

enum emu_collective {
    EMU_ALLREDUCE,
    EMU_ALLGATHER,
    EMU_REDUCESCATTER,
    EMU_BROADCAST,
    EMU_REDUCE,
    EMU_SEND,
    EMU_RECV,
    EMU_DIRECT, /* the ones above run as they are, those below are made of sends and receives */
    EMU_ALLTOALL = EMU_DIRECT,
    EMU_GATHER,
    EMU_SCATTER,
    EMU_COLLECTIVES
};

enum { EMU_PREMULSUM = ncclNumOps };

struct emu_redop {
    int kind;                  /* ncclSum to ncclAvg, or EMU_PREMULSUM */
    const void *device_scalar; /* read when the operation runs; NULL: scalar holds it */
    unsigned char scalar[8];
};

struct emu_op {
    enum emu_collective collective;
    const void *sendbuff;
    void *recvbuff;
    size_t count;
    ncclDataType_t datatype;
    struct emu_redop redop;
    int peer; /* root or peer */
};

const char *emu_collective_name(enum emu_collective collective);
int emu_redop_salt(ncclComm_t comm); /* part of the values of the operations that its caller made */

/* dst[i] = src[0][i] op src[1][i] op ... in rank order, accumulated in fp32 for floats narrower than that, rounded
 * once. scalars: of EMU_PREMULSUM, each rank's factor for its own input.  dst may be one of src. */
void emu_reduce(void *dst, const void *const *src, int nranks, size_t count, ncclDataType_t datatype, int redop,
                const void *const *scalars);

/* ---- communicators (comm.c, init.c, lifecycle.c) ---- */

struct emu_area;

enum { EMU_COMM_MAGIC = 0x4e43434c, EMU_MAX_REDOPS = 64 };

struct ncclComm {
    /* These outlive destroy, after which the object may serve a new communicator at the same address. */
    _Atomic uint64_t generation; /* changes at destroy, so that work captured earlier does nothing */
    _Atomic uint32_t running;    /* plans at work */
    pthread_mutex_t executing;   /* plans of one rank never interleave */
    pthread_mutex_t launching;   /* nothing is freed under a launch */
    struct ncclComm *next_free;

    uint32_t magic; /* from here on all is 0 after destroy */
    int rank, nranks;
    CUdevice device;
    CUcontext context;
    bool blocking;
    char name[80];                      /* of the shared-memory file; also the seed of children's names */
    struct emu_area *_Atomic area;      /* an abort may look for it while it is made */
    uint32_t data_round, control_round; /* which half of the double buffers is next; equal on all ranks */
    uint64_t collectives;               /* run so far */
    uint32_t splits, shrinks;
    bool connected[2]; /* for collectives; for sends and receives */

    _Atomic int async; /* ncclResult_t */
    _Atomic bool aborted, revoked, finalized, suspended;
    _Atomic uint32_t pending; /* eager plans enqueued and not done */

    /* calls on different streams take effect in issue order */
    CUevent eager_event, capture_event;
    unsigned long long eager_stream; /* its id: a handle may stand for another stream by now */
    CUstream capture_stream;         /* may not be asked for it */
    bool eager_used;
    unsigned long long capture; /* id of the capture that capture_event belongs to; 0: none */

    struct emu_nvls *nvls; /* multicast objects that it holds */

    struct emu_task *simulated; /* messages of simulated groups, which are still to be had: simulated.c */
    struct emu_peers {
        uint64_t met, connected; /* a bit each: there was a call of a message with it; it can come */
    } peers[2];                  /* to receive from, to send to */
    bool stuck;                  /* others are connected no more */

    _Atomic bool worker_started; /* a thread that completes a nonblocking call */
    _Atomic bool joining;
    pthread_t worker;
    struct ncclComm *_Atomic child; /* that it makes: an abort ends that, too */

    struct emu_redop redops[EMU_MAX_REDOPS];
    bool redop_used[EMU_MAX_REDOPS];
};

/* ncclInvalidArgument unless comm is a live communicator; settled: also where an operation is in progress, and its error
 * where one has failed; ready: also one that can be used. */
ncclResult_t emu_comm_check(ncclComm_t comm);
ncclResult_t emu_comm_settled(ncclComm_t comm);
ncclResult_t emu_comm_ready(ncclComm_t comm);
int emu_comm_rank(ncclComm_t comm);                            /* -1 if comm is no communicator */
void emu_comm_set_async(ncclComm_t comm, ncclResult_t result); /* the first error stays */

ncclComm_t emu_comm_new(void);
void emu_comm_join(ncclComm_t comm);    /* waits for the background thread, if there is one */
void emu_comm_release(ncclComm_t comm); /* waits for running plans, frees everything */
void emu_comm_wait_zero(_Atomic uint32_t *word);

/* What making a communicator needs, run at once, in a background thread, or at the end of a group. */
struct emu_job {
    enum { EMU_JOB_INIT, EMU_JOB_SPLIT, EMU_JOB_SHRINK } kind;
    ncclComm_t *newcomm;
    ncclComm_t comm;   /* the new one, preallocated for init */
    ncclComm_t parent; /* of split and shrink */
    ncclComm_t owner;  /* whose asynchronous state tells how it goes: comm or parent */
    CUcontext context;
    char name[80];
    int rank, nranks;
    int color, key;
    int *excluded, nexcluded;
    bool blocking;       /* the call's */
    bool child_blocking; /* the new communicator's */
    ncclResult_t inject; /* fail on this rank, visibly for the others */
    ncclResult_t result;
    pthread_t thread;
    struct emu_job *next;
};

void emu_job_describe(struct emu_job *job); /* tells job->comm who it is, before anybody else sees it */
ncclResult_t emu_job_run(struct emu_job *job);
ncclResult_t emu_job_start(struct emu_job *job); /* nonblocking: ncclInProgress, frees the job when done */
void emu_job_give(const struct emu_job *job);    /* its handle: others may look for it meanwhile */
void emu_job_finish(struct emu_job *job);        /* stores the handle or drops it, frees the job */
void *emu_job_thread(void *job);

/* ---- multicast objects (nvls.c) ---- */

struct emu_nvls;
ncclResult_t emu_nvls_take(ncclComm_t comm);
void emu_nvls_give(ncclComm_t comm);

/* ---- groups and enqueueing (group.c, enqueue.c) ---- */

struct emu_task {
    struct emu_op op;
    ncclComm_t comm;
    CUstream stream;
    struct emu_task *next;
    /* The communicator's, as the call found them: another thread may end it, and the next one have its address. */
    uint64_t generation, place; /* place: where its launch comes among those of others */
    bool blocking;
};

void emu_group_start(void);
ncclResult_t emu_group_end(ncclSimInfo_t *simulate);
void emu_group_error(ncclResult_t result); /* this group will launch nothing */
ncclResult_t emu_group_add_task(const struct emu_op *op, const struct emu_task *call); /* comm, stream, generation */
ncclResult_t emu_group_add_job(struct emu_job *job);                                   /* takes the job */

/* The messages of a group that is only tried, before those of one that is made, at a communicator's end (simulated.c). */
ncclResult_t emu_simulated_keep(const struct emu_task *tasks);
ncclResult_t emu_simulated_take(struct emu_task *tasks);
void emu_simulated_forget(ncclComm_t comm);

/* With its `launching` held: ncclInvalidArgument where the call's communicator has ended meanwhile. */
ncclResult_t emu_task_check(const struct emu_task *task);
/* Launches the tasks of one communicator as one plan. */
ncclResult_t emu_launch(struct emu_task *const *tasks, int ntasks);
/* The same for a nonblocking one, a little later: ncclInProgress. */
ncclResult_t emu_launch_later(struct emu_task *const *tasks, int ntasks);
/* 0 where the stream is not capturing. */
ncclResult_t emu_capture_id(CUstream stream, unsigned long long *id);

/* ---- execution, in kernels (collectives.c, p2p.c) ---- */

ncclResult_t emu_run_collective(ncclComm_t comm, const struct emu_op *op);
ncclResult_t emu_run_p2p(ncclComm_t comm, const struct emu_op *ops, int nops);
bool emu_is_p2p(const struct emu_op *op);
/* Before a launch, as it is made: that this rank comes with a message (nothing for a collective).  Two ranks connect at the first
 * message from the one to the other, for which the call waits until both have come, as the real one's does; whoever drives both
 * announces all first. */
void emu_p2p_announce(const struct emu_task *task);
ncclResult_t emu_p2p_connect(ncclComm_t comm, const struct emu_op *ops, int nops);

#pragma GCC visibility pop
#endif
