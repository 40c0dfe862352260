/* programs.h - small programs that NCCL runs: as any job, they know of NCCL and the driver, and of nothing in front of them.
 *
 *   programs [options] NAME...       without a name: the names
 *   --ranks N                        ranks (2), a thread and a GPU each
 *   --processes                      this process is one rank, as scripts/emu-box -n and torchrun start them
 *   --seed S   --repeat N            inputs and delays (1); times that everything is done (1)
 *   --small B --middle B --large B   bytes of messages (4K, 4M, 64M)
 *   --late S                         seconds, 0.2 too, by which a peer is late where that counts (8)
 *   --may-fail                       a late peer may make calls fail: only what completes has to be right
 *   --limit S                        after so many seconds of one it says where each rank is, and ends with 2 (60)
 *
 * Each prints `NAME: ok`, and so the next one runs.  Exit status: 0; 1 after a line about what is wrong; 2; 77 where it cannot run.
 */
#ifndef BEELINE_TEST_PROGRAMS_H
#define BEELINE_TEST_PROGRAMS_H

#include "box.h"

struct settings {
    struct box box;
    uint64_t seed;
    long repeat, limit;
    double late;
    size_t small, middle, large;
    bool may_fail;
};

struct program {
    const char *name;
    void (*run)(struct part *part, const struct settings *settings);
};
extern const struct program stream_programs[], many_programs[], crowded_programs[], value_programs[], late_programs[],
    one_way_programs[], end_programs[], exchange_programs[], ahead_programs[], order_programs[], mixed_programs[],
    update_programs[], both_programs[], refused_programs[], drawn_programs[], gather_programs[], registered_programs[],
    meanwhile_programs[];
/* Which the real NCCL does not run. */
extern const struct program unlisted_many_programs[], unlisted_end_programs[], unlisted_order_programs[],
    unlisted_ahead_programs[], unlisted_wide_programs[];

/* A part here is one rank: part->rank[0]. */
static inline struct rank *self(struct part *part) {
    return &part->rank[0];
}
static inline int last_rank(const struct part *part) {
    return part->box->nranks - 1;
}

/* --- what a rank is doing, for whoever has to say why nothing ends --- */
void doing(const struct part *part, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Program `name` begins; if it has not said that it is ok within so many seconds, the process ends with 2. */
void watch(const char *name, long seconds);
/* Something that took so long; the longest is told beside "ok". */
void took(double seconds);
/* Prints `NAME: ok`, what is to be added, and what took longest. */
void say_ok(const char *more);

/* --- communicators of all ranks --- */
/* Collective: one more. */
ncclComm_t comm_open(struct part *part);
/* The same, nonblocking, ready when it returns. */
ncclComm_t comm_open_nonblocking(struct part *part);
ncclResult_t comm_state(ncclComm_t comm);
/* Ends a group of calls on the communicator; of a nonblocking one they are on their streams when it returns. */
void group_end(ncclComm_t comm);
void comm_close(struct part *part, ncclComm_t comm);

/* --- streams --- */
CUstream stream_open(void);
void stream_close(CUstream stream);
/* A `share`-th of the GPU's multiprocessors, and a stream that has no others.  Where the driver has no such thing, the process ends
 * with 77. */
CUgreenCtx green_open(struct part *part, unsigned share);
CUstream green_stream_open(CUgreenCtx green);
void green_close(CUgreenCtx green);
void stream_sync(CUstream stream);
/* Whether all of it ends within so many milliseconds. */
bool is_through(CUstream stream, int ms);
/* What comes next on the stream waits so many microseconds.  May be captured. */
void delay(CUstream stream, uint64_t us);
/* A number below n that `seed` and `which` give; the same on all ranks if `which` is. */
uint64_t draw(uint64_t seed, uint64_t which, uint64_t n);

/* A captured stream's graph. */
struct graph {
    CUgraph graph;
    CUgraphExec exec;
};
void capture_begin(CUstream stream);
/* So that the thread may wait for other streams meanwhile. */
void capture_begin_relaxed(CUstream stream);
void capture_end(CUstream stream, struct graph *graph);
void graph_close(struct graph *graph);

/* --- vectors of 32-bit integers, whose sums over ranks are known --- */
struct vector {
    size_t count;
    uint64_t seed;
    CUdeviceptr send, recv;
};

void vector_open(struct vector *vector, size_t bytes);
void vector_close(struct vector *vector);
/* This rank's input for `seed`, and poison for the result; nothing that uses them may be under way. */
void vector_fill(struct part *part, struct vector *vector, uint64_t seed);
void vector_allreduce(const struct vector *vector, ncclComm_t comm, CUstream stream);
/* A call that is over when this returns: NCCL fails where a communicator's first one is captured. */
void vector_warm_up(struct part *part, struct vector *vector, ncclComm_t comm, CUstream stream);
/* An all-reduce as a graph. */
void vector_capture(struct part *part, const struct vector *vector, ncclComm_t comm, CUstream stream,
                    struct graph *graph);
void vector_broadcast(const struct vector *vector, int root, ncclComm_t comm, CUstream stream);
void vector_reduce(const struct vector *vector, int root, ncclComm_t comm, CUstream stream);
/* After synchronizing: every element is the sum of the inputs of ranks first to last. */
bool vector_is_sum(struct part *part, const struct vector *vector, int first, int last, char *wrong, size_t size);
void vector_check(struct part *part, const struct vector *vector, int first, int last);
void vector_check_all(struct part *part, const struct vector *vector); /* of all ranks */

#endif
