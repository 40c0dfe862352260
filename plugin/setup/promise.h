/* promise.h - the child of a split or shrink of a nonblocking parent: it comes about after the call has returned.
 *
 * NCCL stores such a child's handle once it has made it, and its owner may use it from then on.  So NCCL is given a place of ours;
 * the owner gets the handle, and the parent is in progress, until Beeline's side of the child is made, too.  The owner's place
 * is there for as long as NCCL might store there: until the parent is no longer in progress, or has ended.
 *
 * Threads: the one that splits, one that waits for the child, and any that ask for the parent's state or end it.
 */
#ifndef BEELINE_PROMISE_H
#define BEELINE_PROMISE_H

#include "comm/comm.h"
#include "request.h"

struct bl_promise {
    ncclComm_t made;    /* NCCL stores it, before the parent's state changes: read atomically */
    ncclComm_t *wanted; /* NULL: the owner has it */
    const struct bl_comm *parent;
    bool parting; /* the parent is ending: nobody asks it */
    bool over;    /* the child is NCCL's, if there is one */
    struct bl_setup_request request;
    struct bl_comm *comm; /* of who enters it */
    struct bl_promise *next;
};

/* NULL if there is no memory.  The owner's place holds NULL meanwhile. */
struct bl_promise *bl_promise_new(const struct bl_comm *parent, ncclComm_t *wanted);

/* The call has been made.  False if NCCL is not at it any more: what is there is all that there will be. */
bool bl_promise_begin(struct bl_promise *promise);

/* Waits until NCCL has made the child; then `enter` puts it into the table, ahead of anybody who might end it.  False if that
 * failed, or the parent has ended: what NCCL has stored is with the owner then, and is NCCL's. */
bool bl_promise_wait(struct bl_promise *promise, void (*enter)(struct bl_promise *promise));

/* Gives the owner what there is, if that has not been done, and frees the promise. */
void bl_promise_keep(struct bl_promise *promise);

/* Of a parent that is no longer in progress to NCCL, but in this state: whether a child is still on its way to its owner. */
bool bl_promise_open(const struct bl_comm *parent, ncclResult_t state);

/* Around the real call that ends the parent: nobody asks it from now on; owners get what there is, and nothing else comes. */
void bl_promise_part(const struct bl_comm *parent);
void bl_promise_end(const struct bl_comm *parent);

#endif
