/* comm.h - what Beeline knows of a communicator: the side table from ncclComm_t to its state.
 *
 * The handle that callers hold is the real ncclComm_t.  A communicator that is not in the table, or is in it but not
 * `active`, is served by the real NCCL alone.
 * Threads: bl_comm_find takes no lock.  A communicator is used by one thread at a time, as NCCL demands; Abort and
 * GetAsyncError may come from another thread at any time.
 */
#ifndef BEELINE_COMM_H
#define BEELINE_COMM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "dispatch.h"
#include "cuda/driver.h"
#include "kernels.h"
#include "nccl.h"

struct bl_collected;
struct bl_memory;
struct bl_resources;
struct bl_stats;

/* What is asked of a stream when a call's turn begins; see order.h. */
struct bl_order_turn {
    bool capturing;
    unsigned long long capture;
    uint64_t stream; /* its id; 0: it captures, or the driver cannot tell */
};

enum { BL_ORDER_NODES = 16, BL_ORDER_CAPTURES = 128 };

enum bl_beside_state {
    BL_BESIDE_NONE,
    BL_BESIDE_MIXED, /* the group that ends has calls of NCCL's that go on with others */
    BL_BESIDE_APART, /* Beeline's of it are launched and not joined yet; no event is behind those that are not captured */
};

/* Of a group with calls of Beeline's on the communicator: its streams (streams.h), and what goes on beside NCCL's calls (beside.h). */
struct bl_beside {
    CUstream eager, captured; /* the communicator's own, of the highest priority; NULL until there was such a group */
    CUstream *streams; /* one of these, and behind it those of the group's calls, whoever serves them, each once */
    int count, capacity;
    bool meets;    /* these are still to: streams.h */
    bool messages; /* of Beeline's are in the group */
    _Atomic int state;
};

/* Of one capture. */
struct bl_order_capture {
    unsigned long long id;
    CUgraphNode last[BL_ORDER_NODES]; /* what the last call in it ends with */
    int lasts;                        /* 0: it holds none */
    CUgraphNode record_node;          /* the event's */
};

/* Keeps the calls on one communicator in issue order; see order.h. */
struct bl_order {
    CUevent event;        /* recorded behind every eager call, and by graphs; bl_room's, too */
    CUevent fork;         /* joins the streams of one launch */
    uint64_t last_stream; /* id of the last call's; 0: not known */
    struct bl_order_capture captures[BL_ORDER_CAPTURES]; /* those that began last, in turn */
    unsigned next_capture;
    struct bl_order_capture before; /* ahead of the group whose calls go on beside NCCL's */
    bool served;                    /* Beeline launched something */
    bool used, captured_ever;
};

/* What it holds of its GPU's multiprocessors; see room.h. */
struct bl_hold {
    struct bl_room *of;        /* NULL: it is in none */
    _Atomic uint64_t holds;    /* room.c has the bits */
    _Atomic uint32_t captured; /* blocks of its largest captured launch */
    _Atomic bool of_nccl;      /* it has had kernels of NCCL's */
    _Atomic bool nccl_comes;   /* a call of NCCL's has taken room, and is not issued yet */
    const void *_Atomic whose; /* by this thread: room.c has its mark */
    uint64_t turn;             /* its last launch beside others was the room's how-many-th; under the room's lock */
};

/* Calls of the real NCCL's on a nonblocking communicator are on their stream only once NCCL says so: whoever hears that ends
 * their turn, and launches what Beeline serves of their group (launch.h).  Until then the caller may neither use the
 * communicator nor let the stream go. */
struct bl_pending {
    pthread_mutex_t lock;
    _Atomic bool set;
    CUstream stream;
    struct bl_order_turn turn;
    bool beside;                /* it ends with calls of Beeline's: beside.h */
    _Atomic unsigned kinds;     /* of its kernels: turn.h */
    bool expected;              /* while a group keeps what comes behind it */
    struct bl_collected *calls; /* fuse.h */
    int count;
};

/* What is known of its kernels' waits; see watch.h. */
struct bl_watch {
    struct bl_comm *next;
    bool added;
    uint64_t beat, launch; /* seen last; told last */
};

/* Of all-gathers by the copy engines; see copy.h.  All zero where the staging has no slots. */
struct bl_copy {
    CUstream drain_stream; /* empties slots; of the highest priority */
    CUstream abort_stream; /* ends waits after an abort */
    CUcontext own;         /* does so where the abort stream waits itself; NULL before */
    uint64_t held_ns;      /* when the abort stream was first found waiting; 0: it is not */
    CUevent fork, join;
    CUevent emptied[BL_MAX_RANKS]; /* of each slot and peer, while a graph captures */
    bool broken;                   /* a call failed half way */
};

/* Which of its calls are Beeline's; see switch.h. */
struct bl_turnout {
    struct bl_switch_page *_Atomic page; /* NULL: all */
    uint64_t calls, claimed;             /* made so far; the first that is not claimed */
    uint64_t grouped;                    /* those of the group that is open, which are none of `calls` yet */
};

struct bl_comm {
    ncclComm_t handle;
    uint64_t id; /* equal on all ranks, for the log */
    int rank, nranks;
    CUdevice device;
    CUcontext context;          /* current where the communicator was made; launches need it current */
    uint64_t context_id;        /* context.h */
    bool context_retained;      /* which has to be released */
    _Atomic bool active;        /* Beeline serves it; not while it is suspended, nor from its end on */
    _Atomic bool shares_room;   /* it is NCCL's, and its calls take room beside those that Beeline serves */
    struct bl_table table;      /* the agreed routes */
    struct bl_kernel_args args; /* all but the buffers, count and redop is filled at set-up */
    CUfunction function[BL_KERNELS][BL_DATATYPES];
    uint64_t most_bytes[BL_KERNELS]; /* of one launch */
    bool wide_blocks;                /* of BL_PAIR_THREADS threads are possible */
    bool early_launch; /* launches ask to start early where they may (bl_driver_launch): the kernels can wait */
    struct bl_control *control;      /* host address of args.control */
    bool unmixed, in_order, checked; /* as the environment or its configuration asks: real/config.h */
    struct bl_order order;
    struct bl_beside beside;
    struct bl_hold room;
    int group_turn;      /* of the turns of the group that is open, its last one's number, from 1 on: group.h */
    bool group_messages; /* NCCL has some of that group */
    unsigned group_seen; /* collectives of that group, a bit each, while together.c looks at it */
    struct bl_pending pending;
    struct bl_watch watch;
    struct bl_turnout turnout;
    struct bl_copy copy;
    struct bl_memory *memory;           /* staging and mappings; memory.h */
    struct bl_resources *resources;     /* what set-up and teardown keep; resources.h */
    _Atomic int users;                  /* threads that use it now; teardown waits for them */
    _Atomic int pins;                   /* calls that groups have collected: its memory stays */
    struct bl_stats *stats;             /* where its calls went, NULL if nobody asks; stats.h */
    uint64_t logged[BL_COLLECTIVES][2]; /* kernels, and reasons for NCCL, told of at INFO: a bit each */
    bool logged_fused;
    uint64_t warned;         /* why sums of its have NCCL's bits, as far as that was said: bits.c */
    _Atomic int async_error; /* ncclResult_t that GetAsyncError reports; ncclSuccess while well */
    char error_text[256];    /* what ncclGetLastError says of async_error */
};

/* NULL if Beeline does not know the handle. */
struct bl_comm *bl_comm_find(ncclComm_t handle);

/* Whether Beeline serves it now. */
static inline bool bl_comm_active(const struct bl_comm *comm) {
    return atomic_load_explicit(&comm->active, memory_order_acquire);
}

/* ncclSuccess, or the asynchronous error that a kernel of Beeline met on this communicator; one WARN when it is first
 * seen.  Cheap: one read of host memory. */
ncclResult_t bl_comm_check(struct bl_comm *comm);

/* Something went wrong half way, so that this rank is no longer where its peers are: the communicator's calls fail from now
 * on, with this error and these words, which are also logged. The first error stays. */
void bl_comm_break(struct bl_comm *comm, ncclResult_t error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Its kernels leave their waits, and those that come do nothing; but for waits of the copy engines (copy.h). */
void bl_comm_tell_to_leave(struct bl_comm *comm);

/* A launch, or what else needs the communicator's memory, begins on this thread: the context is current then, and nothing is
 * freed until bl_comm_leave.  False if the communicator has ended, and nothing is to be left. */
struct bl_visit {
    bool pushed;
};
bool bl_comm_visit(struct bl_comm *comm, struct bl_visit *visit);
void bl_comm_leave(struct bl_comm *comm, const struct bl_visit *visit);

/* The rest is for set-up and teardown. */

/* A zeroed one that is in no table, NULL if there is no memory.  bl_comm_retire gives it back, with its
 * resources and statistics: their memory is kept for a while yet, for a thread that found it just before it left the table. */
struct bl_comm *bl_comm_new(void);
void bl_comm_retire(struct bl_comm *comm);

/* Puts it in the table under comm->handle.  False if the table is full.  *stale is what was there under that handle:
 * its owner destroyed it behind our back, and the real NCCL used the handle again. */
bool bl_comm_insert(struct bl_comm *comm, struct bl_comm **stale);

/* Takes it out of the table; NULL if it is not there. */
struct bl_comm *bl_comm_remove(ncclComm_t handle);

/* Calls `visit` for each in the table. */
void bl_comm_each(void (*visit)(struct bl_comm *comm, void *arg), void *arg);

#endif
