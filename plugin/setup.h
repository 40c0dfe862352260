/* setup.h - makes Beeline's side of new communicators, and takes it down.
 *
 * bl_setup_run() is collective over the ranks of each communicator in the array, and never hangs: every step has a time
 * limit and a vote, and a failure anywhere makes every rank leave that communicator to NCCL with one line that says
 * which rank failed what.  The array holds what one thread made in one group; several ranks of one communicator may be
 * in it.
 *
 * Threads: each function belongs to the thread that uses the communicator, but bl_setup_detach(handle, BL_END_ABORT),
 * which may come from any.  In a forked child all of them leave the parent's communicators alone.
 */
#ifndef BEELINE_SETUP_H
#define BEELINE_SETUP_H

#include "comm.h"
#include "config.h"
#include "meeting.h"

struct bl_setup_request {
    ncclComm_t *handle;        /* where the real NCCL stored, or will store at the group's end, the new communicator */
    bool nonblocking;          /* the real init may still be in progress: Beeline's side follows in the background */
    struct bl_wishes wishes;   /* of its config */
    struct bl_meeting meeting; /* opened before the real call */
};

void bl_setup_run(const struct bl_setup_request *requests, int count);

/* For what does not come about. */
void bl_setup_forget(const struct bl_setup_request *requests, int count);

/* The meeting of a child of `parent`; `facts` tell it from the parent's other children.  Count one more child by it where the
 * real call is made. */
enum bl_child { BL_CHILD_SPLIT, BL_CHILD_SHRINK };
void bl_setup_child(struct bl_meeting *meeting, const struct bl_comm *parent, enum bl_child how, const void *facts,
                    size_t bytes);
void bl_setup_count_child(struct bl_comm *parent, enum bl_child how);

/* True while Beeline is still setting it up on a thread of its own: to the caller it is in progress. */
bool bl_setup_busy(const struct bl_comm *comm);

/* What was asked for when the communicator was made: in its config; that nothing waits. */
struct bl_wishes bl_setup_wishes(const struct bl_comm *comm);
bool bl_setup_nonblocking(const struct bl_comm *comm);

enum bl_end { BL_END_DESTROY, BL_END_ABORT };

/* Before the real destroy or abort: forgets the handle, ends a set-up that is still running, and waits for Beeline's
 * launches (DESTROY) or tells them to leave (ABORT).  Returns what to release afterwards; NULL for an unknown handle.
 */
struct bl_comm *bl_setup_detach(ncclComm_t handle, enum bl_end end);

/* After the real call: releases everything, sooner or later: what may wait for other work of the GPU does so on a thread of its
 * own, for which the caller waits half a second.  NULL is fine. */
void bl_setup_release(struct bl_comm *comm, enum bl_end end);

/* For one that its owner destroyed behind our back.  The thread that finds it may be another than its owner, whose GPU may
 * by now wait for that very thread; to free memory waits for all of that GPU's work.  So it is kept until a thread that uses
 * its context is through with a set-up or a destroy there.  NULL is fine. */
void bl_setup_orphan(struct bl_comm *comm);
void bl_setup_release_orphans(CUcontext context);

/* Waits for Beeline's launches, and serves no more. */
void bl_setup_drain(struct bl_comm *comm);

/* A nonblocking communicator is finalized, and must not be waited for.  False while Beeline's launches have not ended. */
bool bl_setup_finalize(struct bl_comm *comm);

/* Whether it is finalized, and they have not.  Of replays that nothing orders (BEELINE_GRAPH_MIXING=0) nothing is known: destroy
 * waits for the whole context then.  From any thread. */
bool bl_setup_finalizing(struct bl_comm *comm);

/* Serves no more, and tells what runs to leave; the communicator stays known.  From then on the waits of copy engines are
 * let go by a thread, until bl_setup_let_go or bl_setup_release: the real NCCL's own abort may wait for them. */
void bl_setup_revoke(struct bl_comm *comm);
/* Behind that: kernels see for themselves that they are to leave; the waits of copy engines are let go until all have
 * ended, after some time without the caller. */
void bl_setup_let_go(struct bl_comm *comm);

#endif
