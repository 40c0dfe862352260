/* member.h - one rank of a communicator that is being set up by this thread. */
#ifndef BEELINE_MEMBER_H
#define BEELINE_MEMBER_H

#include "base/clock.h"
#include "bootstrap.h"
#include "identity.h"
#include "dispatch.h"
#include "selftest.h"
#include "resources.h"
#include "verdict.h"

/* Of a rank's pairs, or of all: plain bytes, enum bl_link. */
struct bl_links {
    int32_t worst, best;
};

static inline void bl_links_add(struct bl_links *links, struct bl_links more) {
    if (more.worst < links->worst) links->worst = more.worst;
    if (more.best > links->best) links->best = more.best;
}

struct bl_member {
    struct bl_comm *comm;
    struct bl_resources *resources; /* comm's */
    struct bl_meeting *meeting;     /* where the ranks meet this time */
    struct bl_greetings greetings;
    struct bl_mesh mesh;
    struct bl_identity identity, *all;           /* all: nranks of them */
    CUstream stream;                             /* what set-up does on the GPU is in its order */
    struct bl_selftest tests[BL_SELFTEST_KINDS]; /* released behind the last vote */
    struct bl_selftest *selftest;                /* the last */
    int exported; /* our staging, or our multicast object, as a file descriptor, on its way to the peers; else -1 */
    struct bl_verdict verdict;         /* our own until a vote makes it everybody's */
    struct bl_verdict multicast;       /* the same of multicast alone; if not well, other kernels serve */
    struct bl_verdict tuning_verdict;  /* and of measuring thresholds; if not well, those that there are hold */
    struct bl_tuning *tuning;          /* NULL: nothing is measured; tune.c */
    struct bl_table multicast_table;   /* the routes once multicast stands; from rank 0 */
    struct bl_multicast_handle handle; /* of rank 0's multicast object */
    struct bl_links links;             /* our own */
    enum bl_link link;                 /* the communicator's class, once voted */
    bool met;                          /* all ranks have heard each other */
    bool built;                        /* all was well before the last vote */
    bool agreed;                       /* and all ranks were heard in it */
    bool said_well;                    /* in the last vote */
    bool peer_lost;                    /* a peer is gone or does not answer: no agreement will come */
    bool multicast_ran;                /* its self-test */
    int culprit;                       /* whose fault it is if the act that runs fails: our own, or else it says */
    const char *step;                  /* where it is */
    uint64_t begin, met_at, built_at;  /* bl_clock_ns */
};

static inline struct bl_member bl_member_of(struct bl_comm *comm, struct bl_meeting *meeting) {
    const struct bl_verdict none = {.magic = BL_VERDICT_MAGIC};
    return (struct bl_member){.comm = comm,
                              .resources = comm->resources,
                              .meeting = meeting,
                              .exported = -1,
                              .verdict = none,
                              .multicast = none,
                              .tuning_verdict = none,
                              .step = "begin",
                              .begin = bl_clock_ns()};
}

/* It has said that all is well here, and not heard that of all: its peers may serve. */
static inline bool bl_member_in_doubt(const struct bl_member *member) {
    return member->built && !member->agreed;
}

/* Our own rank fails, or declines: outcome, culprit, and a format with its arguments (bl_verdict_say).  The first reason stays. */
#define bl_member_fail(member, ...) bl_verdict_say(&(member)->verdict, (member)->comm->rank, __VA_ARGS__)

/* Our own rank has no multicast, so no rank has: the communicator is served without. */
#define bl_member_fail_multicast(member, ...) bl_verdict_say(&(member)->multicast, (member)->comm->rank, __VA_ARGS__)

#endif
