/* comm.h - what Beeline knows of a communicator: the side table from ncclComm_t to its state.
 *
 * The handle that callers hold is the real ncclComm_t.  A communicator that is not in the table, or is in it but not
 * `active`, is served by the real NCCL alone.
 * Threads: bl_comm_find takes no lock.  A communicator is used by one thread at a time, as NCCL demands; Abort and
 * GetAsyncError may come from another thread at any time.
 */
#ifndef BEELINE_COMM_H
#define BEELINE_COMM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "dispatch.h"
#include "driver.h"
#include "kernels.h"
#include "nccl.h"

struct bl_memory;
struct bl_upkeep;

/* Keeps the calls on one communicator in issue order; see order.h.  Zero is a good start. */
struct bl_order {
    CUstream last_stream;
    const void *last_thread;    /* whose CU_STREAM_PER_THREAD last_stream is, else NULL */
    CUevent event;              /* recorded behind Beeline's last eager launch, and every call where order.h says so */
    CUevent fork;               /* joins the streams of one capture, or of one launch */
    unsigned long long capture; /* id of the capture that the last captured call belongs to */
    CUgraphNode last_node, record_node; /* of that capture: the last call, and the record of `event` behind it */
    bool served;                        /* Beeline launched something: before that NCCL's own order is enough */
    bool recorded;                      /* `event` is behind the last call */
    bool used, last_captured, many_streams, captured_ever;
};

/* Of all-gathers by the copy engines; see copy.h.  All zero where the staging has no slots. */
struct bl_copy {
    CUstream emptier; /* empties slots; of the highest priority */
    CUstream rescuer; /* ends waits after an abort */
    CUcontext own;    /* does so where the rescuer waits itself; NULL before */
    uint64_t held_ns; /* when the rescuer was first found waiting; 0: it is not */
    CUevent fork, join;
    CUevent emptied[BL_MAX_RANKS]; /* of each slot and peer, while a graph captures */
    bool broken;                   /* a call failed half way */
};

struct bl_comm {
    ncclComm_t handle;
    uint64_t id; /* equal on all ranks, for the log */
    int rank, nranks;
    CUdevice device;
    CUcontext context;          /* current where the communicator was made; launches need it current */
    _Atomic bool active;        /* Beeline serves it; cleared for good by a failure or abort */
    struct bl_table table;      /* the agreed routes */
    struct bl_kernel_args args; /* all but the buffers, count and redop is filled at set-up */
    CUfunction function[BL_KERNELS][BL_DATATYPES];
    uint64_t most_bytes[BL_KERNELS]; /* of one launch */
    bool early_launch;               /* launches ask to start early: the kernels can wait */
    struct bl_control *control;      /* host address of args.control */
    struct bl_order order;
    struct bl_copy copy;
    struct bl_memory *memory;                              /* staging and mappings; memory.h */
    struct bl_upkeep *upkeep;                              /* what set-up and teardown keep; upkeep.h */
    _Atomic int readers;                                   /* in bl_comm_check; teardown waits for them */
    uint64_t calls[BL_KERNELS + 1], bytes[BL_KERNELS + 1]; /* per route, the last is NCCL */
    uint64_t batches;                                      /* launches of several calls */
    uint64_t told[BL_COLLECTIVES];                         /* routes already told of at INFO, a bit each */
    bool told_fused;
    _Atomic int async_error; /* ncclResult_t that GetAsyncError reports; ncclSuccess while well */
    char error_text[256];    /* what ncclGetLastError says of async_error */
};

/* NULL if Beeline does not know the handle. */
struct bl_comm *bl_comm_find(ncclComm_t handle);

/* ncclSuccess, or the asynchronous error that a kernel of Beeline met on this communicator; one WARN when it is first
 * seen.  Cheap: one read of host memory. */
ncclResult_t bl_comm_check(struct bl_comm *comm);

/* The rest is for set-up and teardown. */

/* A zeroed one that is in no table, NULL if there is no memory.  bl_comm_retire gives it back, with its
 * upkeep: their memory is kept for a while yet, for a thread that found it just before it left the table. */
struct bl_comm *bl_comm_new(void);
void bl_comm_retire(struct bl_comm *comm);

/* Puts it in the table under comm->handle.  False if the table is full.  *stale is what was there under that handle:
 * its owner destroyed it behind our back, and the real NCCL used the handle again. */
bool bl_comm_insert(struct bl_comm *comm, struct bl_comm **stale);

/* Takes it out of the table; NULL if it is not there. */
struct bl_comm *bl_comm_remove(ncclComm_t handle);

/* Calls `visit` for each in the table. */
void bl_comm_each(void (*visit)(struct bl_comm *comm));

#endif
