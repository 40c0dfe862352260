/* gather.h - a small all-gather among the ranks of a new communicator, by the real NCCL.
 *
 * It runs on a stream of its own.  One that did not end in time stays enqueued, with what it needs: NCCL keeps the
 * calls on a communicator in order, so whatever a late rank sends still meets its counterpart.  That is why every rank
 * makes exactly two of them, whatever happens in between.
 *
 * Functions that return int return 0, or -1 with what failed and why in `why`.  The context of the rank's device must
 * be current.  Threads: one at a time for one struct bl_gather.
 */
#ifndef BEELINE_GATHER_H
#define BEELINE_GATHER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"
#include "nccl.h"

enum { BL_GATHERS = 2 };

struct bl_gather {
    CUstream stream; /* serves the rest of set-up too */
    bool own_stream;
    int rank, nranks, turn; /* turn: gathers made so far, at most BL_GATHERS */
    size_t piece;           /* most bytes of one rank */
    bool page_locked;
    void *host;         /* nranks pieces, then those to send */
    CUdeviceptr device; /* as many; 0: `host` serves */
    CUdeviceptr buffer; /* what NCCL is given */
    bool pending;       /* something is enqueued that has not been seen to end */
};

int bl_gather_open(struct bl_gather *gather, int rank, int nranks, size_t piece, char *why, size_t size);

/* Enqueues it: `bytes` of `mine` from each rank.  Within a real NCCL group where one thread does so for several ranks.
 */
int bl_gather_post_copy(struct bl_gather *gather, const void *mine, size_t bytes, char *why, size_t size);
int bl_gather_post_call(struct bl_gather *gather, ncclComm_t handle, size_t bytes, char *why, size_t size);
int bl_gather_post_result(struct bl_gather *gather, size_t bytes, char *why, size_t size);

/* Waits for it until the deadline, NCCL's own failure, or *cancel.  Then the pieces are in gather->host. */
int bl_gather_wait(struct bl_gather *gather, ncclComm_t handle, uint64_t deadline, const atomic_bool *cancel, char *why,
                   size_t size);

/* Waits until the real NCCL is no longer busy with the last call on a nonblocking communicator. */
int bl_gather_settle(ncclComm_t handle, uint64_t deadline, const atomic_bool *cancel, char *why, size_t size);

/* Frees everything.  Only if nothing is pending, or the real communicator is gone. */
void bl_gather_close(struct bl_gather *gather);

#endif
