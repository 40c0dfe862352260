/* request.h - what is known of a new communicator when it is asked for. */
#ifndef BEELINE_REQUEST_H
#define BEELINE_REQUEST_H

#include "meeting.h"
#include "real/config.h"
#include "real/real.h"

struct bl_promise;

struct bl_setup_request {
    ncclComm_t *handle; /* where the real NCCL stores the new communicator: a child at the group's end */
    ncclComm_t made;    /* any other, which it has stored at once: the caller may be done with the place by then */
    bool nonblocking;   /* as asked for; Beeline's side of such an init follows in the background */
    bool child;         /* the parent's state tells of it */
    struct bl_promise *promise; /* of a nonblocking parent's child */
    struct bl_wishes wishes;    /* of its config */
    struct bl_meeting meeting;  /* opened before the real call */
};

#endif
