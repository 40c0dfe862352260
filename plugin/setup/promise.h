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
    /* NCCL stores it, also of a child that failed, before the parent's state changes: read atomically. */
    ncclComm_t made;
    ncclComm_t *wanted;           /* NULL: the owner has it */
    const struct bl_comm *parent; /* NULL: it has ended */
    bool begun;                   /* the parent's state tells of it */
    bool unattended;              /* no thread waits for it: the child is NCCL's */
    bool over;                    /* nothing more will come */
    struct bl_setup_request request;
    struct bl_comm *comm; /* of who enters it */
    struct bl_promise *next;
};

/* Before the real call; NULL if there is no memory. */
struct bl_promise *bl_promise_new(const struct bl_comm *parent, ncclComm_t *wanted);

/* The real call has been made: the owner's place holds NULL meanwhile, as NCCL leaves it. */
void bl_promise_called(struct bl_promise *promise);

/* And its group has ended, if there is one.  False if the child is there already. */
bool bl_promise_begin(struct bl_promise *promise);

/* Waits until NCCL has stored the handle; then `enter` puts the child into the table, ahead of anybody who might end it.  False if
 * none comes, or the owner has it already: it is NCCL's.  The parent is not asked: its owner may be asking, and NCCL takes that
 * from one thread only. */
bool bl_promise_wait(struct bl_promise *promise, void (*enter)(struct bl_promise *promise));

/* Gives the owner what there is, if that has not been done, and frees the promise. */
void bl_promise_keep(struct bl_promise *promise);

/* There is nobody to wait: the owner gets the child by asking for the parent's state. */
void bl_promise_leave(struct bl_promise *promise);

/* Of a parent that NCCL says is in this state, and not in progress: whether a child is still on its way to its owner. */
bool bl_promise_open(const struct bl_comm *parent, ncclResult_t state);

/* The parent has ended: owners get what there is now, and nothing else comes. */
void bl_promise_end(const struct bl_comm *parent);

#endif
