/* teardown.h - takes Beeline's side of a communicator down: nothing is freed while a kernel may use it.
 *
 * Threads: each function belongs to the thread that uses the communicator, but bl_teardown_detach(handle, BL_END_ABORT),
 * which may come from any.  In a forked child all of them leave the parent's communicators alone.
 */
#ifndef BEELINE_TEARDOWN_H
#define BEELINE_TEARDOWN_H

#include "comm/comm.h"

enum bl_end { BL_END_DESTROY, BL_END_ABORT };

/* Before the real destroy or abort: forgets the handle, ends a set-up that is still running, and waits for Beeline's
 * launches (DESTROY, of the last rank that the process has) or tells them to leave (ABORT).  Returns what to release afterwards; NULL for an unknown handle.
 */
struct bl_comm *bl_teardown_detach(ncclComm_t handle, enum bl_end end);

/* After the real call: releases everything, sooner or later: what may wait for other work of the GPU does so on a thread of its
 * own, for which the caller waits half a second.  NULL is fine. */
void bl_teardown_release(struct bl_comm *comm, enum bl_end end);

/* For one that its owner destroyed behind our back.  The thread that finds it may be another than its owner, whose GPU may
 * by now wait for that very thread; to free memory waits for all of that GPU's work.  So it is kept until a thread that uses
 * its context is through with a set-up or a destroy there.  NULL is fine. */
void bl_teardown_orphan(struct bl_comm *comm);
void bl_teardown_release_orphans(CUcontext context);

/* Waits for Beeline's launches, and serves no more. */
void bl_teardown_drain(struct bl_comm *comm);

/* A nonblocking communicator is finalized, and must not be waited for.  False while Beeline's launches have not ended. */
bool bl_teardown_finalize(struct bl_comm *comm);

/* Whether it is finalized, and they have not.  Of replays that nothing orders (comm->unmixed) nothing is known: destroy
 * waits for the whole context then, some seconds, and else leaves the staging as it is.  From any thread. */
bool bl_teardown_finalizing(struct bl_comm *comm);

/* Serves no more, and tells what runs to leave; the communicator stays known.  From then on the waits of copy engines are
 * let go by a thread, until bl_teardown_let_go or bl_teardown_release: the real NCCL's own abort may wait for them. */
void bl_teardown_revoke(struct bl_comm *comm);
/* Behind that: kernels see for themselves that they are to leave; the waits of copy engines are let go until all have
 * ended, after some time without the caller. */
void bl_teardown_let_go(struct bl_comm *comm);

#endif
