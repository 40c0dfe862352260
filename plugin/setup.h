/* setup.h - makes Beeline's side of new communicators, and takes it down.
 *
 * bl_setup_run() is collective over the ranks of each communicator in the array, and never hangs: every step has a time
 * limit and a vote, and a failure anywhere makes every rank leave that communicator to NCCL with one line that says which
 * rank failed what.  The array holds what one thread made in one group; several ranks of one communicator may be in it.
 */
#ifndef BEELINE_SETUP_H
#define BEELINE_SETUP_H

#include "comm.h"

struct bl_setup_request {
    ncclComm_t *handle; /* where the real NCCL stored, or will store at the group's end, the new communicator */
    uint64_t key;       /* equal for the ranks of one communicator on this thread (hash of the unique id, of parent and color) */
    bool nonblocking;   /* the real init may still be in progress: set up when GetAsyncError first says success */
};

void bl_setup_run(const struct bl_setup_request *requests, int count);

/* Runs what was put off for a nonblocking communicator; called when the real NCCL first reports success for it. */
void bl_setup_deferred(ncclComm_t handle);

/* Waits for Beeline's launches on the communicator (unless `abort`, which tells them to leave), releases all that Beeline
 * holds for it and forgets the handle.  To be called before the real destroy or abort.  Unknown handles are fine. */
void bl_setup_forget(ncclComm_t handle, bool abort);

#endif
