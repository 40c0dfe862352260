/* box.h - what the programs of test/ranks share: the driver, the ranks of a run, and buffers that are checked to the
 * byte.
 *
 * A program describes its run (struct box) and hands box_run a body.  The body is called once for each *part*: the
 * ranks that one thread drives.  MODE_GROUPS: one part with all ranks; MODE_THREADS: a thread and a part for each rank;
 * MODE_PROCESSES: this process is one rank (RANK, WORLD_SIZE and LOCAL_RANK say which), one part.
 * Errors: whatever fails says where and ends the program with status 1; box_skip ends it with 77.
 * Threads: a part and all that hangs on it belong to its thread.
 */
#ifndef BEELINE_TEST_BOX_H
#define BEELINE_TEST_BOX_H

#include <cuda.h>
#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels.h"

/* --- the driver, looked up as the plugin does; one member a function --- */
struct cu {
#define CU(function, version) __typeof__(function) *function;
#include "cu.def"
#undef CU
};
extern struct cu cu;

/* --- failing --- */
void box_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4), noreturn));
void box_fail_check(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((format(printf, 4, 5), noreturn));
void box_skip(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
const char *box_cu_error(CUresult result);

#define FAIL(...) box_fail(__FILE__, __LINE__, __VA_ARGS__)
#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) box_fail_check(__FILE__, __LINE__, #condition, " " __VA_ARGS__);                             \
    } while (0)
#define CU_OK(call)                                                                                                    \
    do {                                                                                                               \
        CUresult cu_result_ = cu.call;                                                                                 \
        if (cu_result_ != CUDA_SUCCESS) box_fail(__FILE__, __LINE__, "%s: %s", #call, box_cu_error(cu_result_));       \
    } while (0)
#define NCCL_IS_OR(call, other)                                                                                        \
    do {                                                                                                               \
        ncclResult_t nccl_result_ = call;                                                                              \
        if (nccl_result_ != ncclSuccess && nccl_result_ != (other))                                                    \
            box_fail(__FILE__, __LINE__, "%s: %s (%s)", #call, ncclGetErrorString(nccl_result_),                       \
                     ncclGetLastError(NULL));                                                                          \
    } while (0)
#define NCCL_OK(call)   NCCL_IS_OR(call, ncclSuccess)
#define NCCL_GOES(call) NCCL_IS_OR(call, ncclInProgress) /* of a nonblocking communicator */

/* --- ranks --- */
enum mode { MODE_GROUPS, MODE_THREADS, MODE_PROCESSES };
enum { BOX_RANKS = 16, BOX_STREAMS = 3 };

struct rank {
    int rank;
    CUdevice device;
    CUcontext context;
    ncclComm_t comm;
    CUstream stream[BOX_STREAMS];
};

struct part {
    struct box *box;
    int count; /* ranks here */
    struct rank rank[BOX_RANKS];
};

struct box {
    enum mode mode;
    int nranks;
    uint64_t seed;
    bool no_communicators; /* the body makes its own */
    bool whole;            /* inputs whose sums do not depend on the order: ref_whole */
    int gpus;              /* that the ranks share: rank r is on GPU r * gpus / nranks; 0: each has its own */
    void *argument;        /* for the body */
    /* held by box_run: */
    void (*body)(struct part *part);
};

int box_mode(const char *name); /* "groups", "threads", "processes"; -1 if unknown */

/* Runs body on every part, after making communicators and streams and before destroying them.  Returns when all are
 * done. */
void box_run(struct box *box, void (*body)(struct part *part));
/* The same without communicators, in programs that are not linked to NCCL, either: what is in communicators.c is not for them. */
void box_run_bare(struct box *box, void (*body)(struct part *part));

/* What box_run does for box->nranks ranks, for bodies that need more communicators.  Collective; `which` is equal on
 * all ranks, and one number makes one communicator. */
void box_unique_id(struct part *part, int which, ncclUniqueId *id); /* collective; one number, one id */
void part_make_communicators(struct part *part, int which, ncclComm_t comms[BOX_RANKS]);
/* Nonblocking ones, ready. */
void part_make_nonblocking(struct part *part, int which, ncclComm_t comms[BOX_RANKS]);
/* Waits for what calls of nonblocking ones left in progress. */
void part_settle(struct part *part, const ncclComm_t comms[BOX_RANKS]);
/* A child of each with all ranks. */
void part_split(struct part *part, const ncclComm_t parents[BOX_RANKS], ncclComm_t comms[BOX_RANKS]);
void part_destroy_communicators(struct part *part, ncclComm_t comms[BOX_RANKS]);

/* Makes rank i of the part the current context of this thread. */
struct rank *part_enter(struct part *part, int i);
/* Each of them in turn. */
#define each_rank(part, i) for (int i = 0; i < (part)->count && part_enter(part, i); i++)
/* ncclGroupStart and End where one thread drives several ranks; else nothing. */
void part_group_start(struct part *part);
void part_group_end(struct part *part);
/* Each of them in turn, in such a group. */
#define each_rank_in_group(part, i)                                                                                    \
    for (int i = (part_group_start(part), 0);                                                                          \
         i < (part)->count ? part_enter(part, i) != NULL : (part_group_end(part), false); i++)
/* From pageable memory, and all of it is there on return: a copy itself may return before, and no other stream waits for it. */
void box_upload(CUdeviceptr to, const void *from, size_t bytes);

/* Of a clock that only goes forward. */
double box_seconds(void);

/* Waits for all streams of all ranks of the part; part_synchronize: and for NCCL to report that they are well. */
void part_drain(struct part *part);
void part_synchronize(struct part *part);
/* Waits until every rank of the box has come here. */
void part_barrier(struct part *part);

/* --- calls --- */
const char *collective_name(int collective);     /* "all_reduce" */
int collective_find(const char *name);           /* -1 if unknown */
const char *collective_function(int collective); /* "ncclAllReduce" */
bool collective_has_blocks(int collective);      /* a buffer holds a block for each rank */
bool collective_is_paired(int collective); /* a call is a send to the next rank and a receive from the one before */

/* One collective with its buffers, on every rank of a part: prepared, issued any number of times, then checked. */
struct call {
    enum bl_collective collective;
    int datatype, redop; /* redop: of those that reduce */
    size_t count;        /* as NCCL has it: of a rank where a buffer holds a block for each */
    bool to_itself;      /* of what is paired, by the rig alone: a rank sends to itself */
    bool in_place;       /* as NCCL has it: one buffer, in which the smaller one is this rank's block of the larger;
                            call_prepare takes it back from what has none */
    unsigned send_offset, recv_offset; /* bytes past a 256-byte boundary; in place send_offset counts */
    unsigned skew;                     /* so many more (modulo 8) from one rank to the next */
    int stream;
    uint64_t seed;
    /* held by call_prepare: */
    int nranks, first_rank; /* the box's; the part's */
    int root;               /* of broadcast and reduce; any, as the seed says */
    size_t room;            /* bytes of each buffer */
    CUdeviceptr send[BOX_RANKS], recv[BOX_RANKS];
    unsigned char *expected;  /* what is received; of reduce_scatter all ranks' blocks; of all_to_all, and what is
                               paired, by each rank here */
    uint64_t hash[BOX_RANKS]; /* of the first result seen, 0 before */
};

/* Allocates what the call lacks.  room: bytes of the larger buffer of the largest call that this structure will hold. */
void call_allocate(struct part *part, struct call *call, size_t room);
void call_free(struct part *part, struct call *call);
/* The root that call_prepare will give it. */
int call_root(const struct part *part, const struct call *call);
/* Fills the inputs, poisons outputs and the guards round both. */
void call_prepare(struct part *part, struct call *call);
/* The same once more for a call that was checked: same inputs, outputs poisoned again. */
void call_refill(struct part *part, struct call *call);
/* Where rank i of the part sends from and receives to.  NULL now and then where the call reads or writes nothing: of a
 * broadcast's and a reduce's ranks that are not the root. */
CUdeviceptr call_sendbuff(const struct call *call, int i);
CUdeviceptr call_recvbuff(const struct call *call, int i);
/* Issues it on each rank, in a group if the part has several ranks. */
void call_issue(struct part *part, struct call *call);
/* Issues it on rank i alone, on `comm`. */
ncclResult_t call_issue_rank(struct part *part, struct call *call, int i, ncclComm_t comm, CUstream stream);
/* After synchronizing: every byte of every buffer, and the same bits on all ranks and as at the last check. */
void call_check(struct part *part, struct call *call);
/* After synchronizing: every buffer is as call_prepare left it. */
void call_check_untouched(struct part *part, struct call *call);

/* After synchronizing: how many elements of all results are not as they should be. */
size_t call_count_wrong(struct part *part, const struct call *call);

/* --- routes --- */
/* The route of a call as Beeline tells it: "oneshot_ll", ..., "nccl".  NULL without Beeline. */
const char *box_route(ncclComm_t comm, enum bl_collective collective, size_t count, int datatype, int redop);
/* Times that `function` of the emulated box's NCCL was called in this process so far; -1 without its trace. */
long box_nccl_calls(const char *function);

#endif
