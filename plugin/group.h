/* group.h - ncclGroupStart/End of this thread: calls and new communicators are collected, and run at the outermost end. */
#ifndef BEELINE_GROUP_H
#define BEELINE_GROUP_H

#include <stdbool.h>

#include "comm.h"
#include "setup.h"

/* True between the outermost ncclGroupStart and its end on this thread. */
bool bl_group_open(void);

/* A communicator whose real init was called on this thread: sets Beeline's side up now, or at the outermost group end. */
void bl_group_add_init(const struct bl_setup_request *request);

#endif
