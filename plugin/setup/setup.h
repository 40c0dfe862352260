/* setup.h - makes Beeline's side of new communicators.
 *
 * bl_setup_run() is collective over the ranks of each communicator in the array, and never hangs: every step has a time
 * limit and a vote, and a failure anywhere makes every rank leave that communicator to NCCL with one line that says
 * which rank failed what.  The array holds what one thread made in one group; several ranks of one communicator may be
 * in it.
 *
 * Threads: the one that makes the communicators; of a nonblocking one, and of a nonblocking parent's child, a thread of its own.
 */
#ifndef BEELINE_SETUP_H
#define BEELINE_SETUP_H

#include "comm/comm.h"
#include "request.h"

void bl_setup_run(const struct bl_setup_request *requests, int count);

/* For what does not come about; and for what does, and is to be NCCL's. */
void bl_setup_forget(const struct bl_setup_request *requests, int count);
void bl_setup_leave(const struct bl_setup_request *request);

/* The meeting of a child of `parent`; `facts` tell it from the parent's other children.  Count one more child by it where the
 * real call is made. */
enum bl_child { BL_CHILD_SPLIT, BL_CHILD_SHRINK };
void bl_setup_child(struct bl_meeting *meeting, const struct bl_comm *parent, enum bl_child how, const void *facts,
                    size_t bytes);
void bl_setup_count_child(struct bl_comm *parent, enum bl_child how);

#endif
