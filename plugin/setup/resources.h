/* resources.h - what set-up leaves behind for teardown: the part of a communicator that calls do not look at. */
#ifndef BEELINE_RESOURCES_H
#define BEELINE_RESOURCES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "comm/comm.h"
#include "real/config.h"
#include "comm/context.h"
#include "nvls_release.h"
#include "meeting.h"
#include "cuda/memory.h"
#include "cuda/modules.h"
#include "cuda/pinned.h"

/* Where set-up is.  That of a nonblocking communicator runs on a thread of its own, once the real NCCL has made it. */
enum bl_stage { BL_STAGE_NONE, BL_STAGE_RUNNING, BL_STAGE_DONE };

struct bl_resources {
    pid_t pid;        /* who made it: a forked child must not touch it */
    bool nonblocking; /* as asked for */
    struct bl_wishes wishes;
    bool unlisted; /* the side table is full */
    struct bl_comm *next_orphan;
    struct bl_meeting meeting; /* its key is where the names of children come from */
    uint32_t splits, shrinks;  /* children so far, those that failed not counted */
    uint32_t resumes;          /* so far */
    bool suspended;            /* the staging is given back; suspend.h */
    bool waits_for_nothing;    /* it is nonblocking on some rank */
    struct bl_modules *modules;
    struct bl_memory memory;
    struct bl_pinned control; /* struct bl_control */
    uint64_t reserved;        /* of the budget */
    struct bl_nvls *nvls;     /* multicast, if there is any */
    bool stuck;               /* a kernel did not leave: what it uses cannot be freed */
    bool early;               /* destroyed ahead of other ranks here: its launches are waited for later */
    char left_why[240];       /* it was left to NCCL when it was made */
    bool left_apart;          /* and the ranks had not met: each knows of itself alone */
    _Atomic int stage;
    atomic_bool finalized; /* a nonblocking one */
    atomic_bool cancel;    /* it is to end */
    atomic_bool revoked;   /* it never serves again */
    bool threaded;
    pthread_t thread;
    bool rescuing; /* a thread lets the waits of copy engines go, while an abort of the real NCCL may wait for them */
    atomic_bool rescued;
    pthread_t rescue;
};

/* Not a communicator that a forked child has from its parent. */
bool bl_resources_are_ours(const struct bl_comm *comm);

/* True while Beeline is still setting it up on a thread of its own: to the caller it is in progress. */
bool bl_resources_busy(const struct bl_comm *comm);

#endif
