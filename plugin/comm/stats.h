/* stats.h - which calls went where, on request: a line of the log a communicator (BEELINE_STATS), or JSON lines in a file
 * (BEELINE_STATS_FILE), at its end or the process's.
 */
#ifndef BEELINE_STATS_H
#define BEELINE_STATS_H

#include "comm.h"

/* Sizes up to 256 bytes, 1K, 4K, ... 1G, and above. */
enum { BL_STATS_SIZES = 13 };

/* Where a call goes: to a kernel, to NCCL for a reason of its route's, or to NCCL with all others of its communicator. */
enum { BL_STATS_LEFT = BL_KERNELS + BL_REASONS, BL_STATS_WHERE };

static inline int bl_stats_nccl(enum bl_reason why) {
    return BL_KERNELS + (int)why;
}

struct bl_stats {
    uint64_t batches; /* launches of several calls */
    atomic_bool said; /* at the process's end, so not again at the communicator's */
    struct bl_stats_count {
        uint64_t calls, bytes;
    } count[BL_COLLECTIVES][BL_STATS_SIZES][BL_STATS_WHERE];
};

/* For a new communicator; NULL if nobody asks, or there is no memory.  Arranges for what is said at the process's end. */
struct bl_stats *bl_stats_new(void);

/* One call that was made.  By who makes it, while the communicator is not freed. */
void bl_stats_add(struct bl_stats *stats, const struct bl_request *request, int where);

static inline void bl_stats_count(struct bl_comm *comm, const struct bl_request *request, int where) {
    if (comm->stats) bl_stats_add(comm->stats, request, where);
}

/* It has been set up; left: why it is NCCL's, NULL if Beeline serves it; failed: somebody should know of that. */
void bl_stats_begin(const struct bl_comm *comm, const char *left, bool failed);

/* What it has counted, at its end. */
void bl_stats_end(struct bl_comm *comm);

#endif
