/* member.h - one rank of a communicator that is being set up by this thread; between setup.c and build.c. */
#ifndef BEELINE_MEMBER_H
#define BEELINE_MEMBER_H

#include "bootstrap.h"
#include "identity.h"
#include "link.h"
#include "selftest.h"
#include "upkeep.h"

/* What a rank tells the others at each vote. */
struct bl_verdict {
    uint32_t magic;
    int32_t fate, culprit; /* culprit: the rank whose fault it is */
    int32_t link;          /* the worst link of the rank */
    char why[240];
};

struct bl_member {
    struct bl_comm *comm;
    struct bl_upkeep *upkeep; /* comm's */
    struct bl_gather gather;
    struct bl_mesh mesh;
    struct bl_identity identity, *all; /* all: nranks of them */
    struct bl_selftest selftest;
    int exported;                          /* our staging as a file descriptor, on its way to the peers; else -1 */
    struct bl_verdict verdict;             /* our own until a vote or the final agreement makes it everybody's */
    enum bl_link link;                     /* the worst of the communicator, once voted */
    bool open;                             /* takes part in the gathers */
    bool gathered;                         /* the identities are known and in order */
    bool built;                            /* our own side was well when the last gather began */
    bool agreed;                           /* the verdict is that of all ranks */
    bool bereft;                           /* a peer is gone or does not answer: no agreement will come */
    uint64_t begin, gathered_at, built_at; /* bl_clock_ns */
};

/* Our own rank fails, or declines: "rank 2: " and the text.  The first reason stays. */
void bl_member_fail(struct bl_member *member, enum bl_fate fate, int culprit, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The verdict that all ranks report, from those of each: the lowest failing rank's, at first hand if possible.  A culprit
 * of -1 has the least to say. */
struct bl_verdict bl_verdict_choose(const struct bl_verdict *verdicts, int nranks);

/* Everything between the two gathers, for the members of one communicator on this thread, with a vote after each step.
 * Leaves either all members well and ready to serve, or not well; releases nothing. */
void bl_build(struct bl_member **members, int count);

#endif
