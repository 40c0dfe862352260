/* member.h - one rank of a communicator that is being set up by this thread; between setup.c, build.c and
 * build_multicast.c. */
#ifndef BEELINE_MEMBER_H
#define BEELINE_MEMBER_H

#include "bootstrap.h"
#include "identity.h"
#include "link.h"
#include "selftest.h"
#include "upkeep.h"
#include "verdict.h"

struct bl_member {
    struct bl_comm *comm;
    struct bl_upkeep *upkeep;   /* comm's */
    struct bl_meeting *meeting; /* where the ranks meet this time */
    struct bl_greetings greetings;
    struct bl_mesh mesh;
    struct bl_identity identity, *all;           /* all: nranks of them */
    CUstream stream;                             /* what set-up does on the GPU is in its order */
    struct bl_selftest tests[BL_SELFTEST_KINDS]; /* released behind the last vote */
    struct bl_selftest *selftest;                /* the last */
    int exported; /* our staging, or our multicast object, as a file descriptor, on its way to the peers; else -1 */
    struct bl_verdict verdict;         /* our own until a vote makes it everybody's */
    struct bl_verdict multicast;       /* the same of multicast alone; if not well, other kernels serve */
    struct bl_table multicast_table;   /* the routes once multicast stands; from rank 0 */
    struct bl_multicast_handle handle; /* of rank 0's multicast object */
    enum bl_link link;                 /* the worst of the communicator, once voted */
    bool met;                          /* all ranks have heard each other */
    bool built;                        /* all was well before the last vote */
    bool agreed;                       /* and all ranks were heard in it */
    bool said_well;                    /* in the last vote */
    bool bereft;                       /* a peer is gone or does not answer: no agreement will come */
    uint64_t begin, met_at, built_at;  /* bl_clock_ns */
};

/* Our own rank fails, or declines: "rank 2: " and the text.  The first reason stays. */
void bl_member_fail(struct bl_member *member, enum bl_fate fate, int culprit, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Our own rank has no multicast, so no rank has: the communicator is served without. */
void bl_member_fail_multicast(struct bl_member *member, enum bl_fate fate, int culprit, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* --- the steps, for the members of one communicator on this thread; vote.c --- */

enum bl_step {
    BL_STEP_IDENTITY = 1,
    BL_STEP_MEMORY,
    BL_STEP_TABLE,
    BL_STEP_MULTICAST,
    BL_STEP_MULTICAST_FD,
    BL_STEP_SWITCH,
    BL_STEP_VOTE = 100
};

/* Runs `act` for each member, with its context current. */
void bl_step_each(struct bl_member **members, int count, void (*act)(struct bl_member *));

/* When a wait that begins now ends: BEELINE_SETUP_TIMEOUT. */
uint64_t bl_step_deadline(void);

/* A peer is gone or does not answer. */
void bl_step_fail_for_peer(struct bl_member *member, int peer, const char *why);

void bl_step_send(struct bl_member *member, uint32_t step, const void *data, size_t bytes, int fd);

/* The message of `step` from a peer.  A peer that has to leave sends its verdict, whatever is expected of it: then that is
 * ours, too. */
bool bl_step_receive(struct bl_member *member, int peer, uint32_t step, void *data, size_t bytes, int *fd,
                     uint64_t deadline);

/* Says our verdict to all: before we leave, or as a half of a vote. */
void bl_step_vote_send(struct bl_member *member);

/* True if every rank is well.  Equal on all ranks unless one of them died just now, which the next vote shows.  What it says
 * of multicast is in member->multicast of each then. */
bool bl_step_vote(struct bl_member **members, int count);

/* The self-test of member->selftest, once prepared; 0, or -1 with what went wrong, and whose fault it is. */
int bl_step_test_launch(struct bl_member *member, char *why, size_t size);
int bl_step_test_check(struct bl_member *member, int *culprit, char *why, size_t size);

/* From the meeting to the last vote, for the members of one communicator on this thread, with a vote after each step.  Leaves
 * either all members well and ready to serve, or not well; releases nothing. */
void bl_build(struct bl_member **members, int count);

/* For a suspended communicator: meets again, and has the staging again, zeroed, where it was.  As bl_build. */
void bl_rebuild(struct bl_member **members, int count);

/* The last part of bl_build, if all ranks are well and want multicast: for all of them, or for none. */
void bl_build_multicast(struct bl_member **members, int count);

/* Behind the last vote: a rank whose memory others may reach by multicast keeps its sockets (leave.h). */
void bl_build_leave(struct bl_member *member);

#endif
