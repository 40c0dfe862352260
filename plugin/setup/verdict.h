/* verdict.h - how a rank, or a communicator, fares in set-up. */
#ifndef BEELINE_VERDICT_H
#define BEELINE_VERDICT_H

#include <stdint.h>

/* DECLINED: left to NCCL for an ordinary reason (several hosts, no P2P).  FAILED: for one that somebody should know of. */
enum bl_outcome { BL_WELL, BL_DECLINED, BL_FAILED };

/* Plain bytes: goes from rank to rank. */
struct bl_verdict {
    uint32_t magic;           /* 0: none came */
    int32_t outcome, culprit; /* culprit: the rank whose fault it is; -1: no single one's */
    char why[240];
};

enum { BL_VERDICT_MAGIC = 0x0bee11e1 };

/* What `rank` found out; of its own fault the text begins with "rank 2: ".  The first reason stays. */
void bl_verdict_say(struct bl_verdict *verdict, int rank, enum bl_outcome outcome, int culprit, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* The verdict that all ranks report, from those of each: the lowest failing rank's, at first hand if possible.  A culprit
 * of -1 has the least to say. */
struct bl_verdict bl_verdict_choose(const struct bl_verdict *verdicts, int nranks);

#endif
