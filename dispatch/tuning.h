/* tuning.h - reads tuning files; the format is described in docs/tuning.md.  Private to dispatch/. */
#ifndef BEELINE_TUNING_H
#define BEELINE_TUNING_H

#include "dispatch.h"

/* Rows of one section for one collective and number of ranks.  A table needs up to two ranges for each, of plain ones for a user's and for
 * the built-in ones above them; rows for multicast may cut each other row in two; up to two for each that the user names, one more where a
 * row changes how it works, and three at the end. */
enum { BL_TUNING_ROWS = 12 };
_Static_assert(2 * BL_TUNING_ROWS + 2 * (2 + 1) * BL_TUNING_ROWS + 2 * BL_ROUTES_ROWS + 3 * BL_TUNING_ROWS + 3 <=
                   BL_MAX_RANGES,
               "a tuning file's rows fit a table, and a user's");

enum { BL_TUNING_PLAIN = -3 }; /* `plain`: what the rows of the section without multicast say */

struct bl_tuning_row {
    int section;      /* 0, 1, ... within the file */
    char gpu[64];     /* "" for `gpu any` */
    int arch;         /* 0 for `gpu any` */
    int link;         /* enum bl_link; -1: whatever */
    int nccl_nvls;    /* 0, 1; -1: whatever */
    unsigned nvlinks; /* 0: whatever */
    bool multicast;   /* the section is for communicators with a multicast object */
    enum bl_collective collective;
    int ranks;
    uint64_t max_bytes;       /* UINT64_MAX for `max`; above that of the row before */
    int algorithm;            /* index of bl_algorithms, BL_ROUTE_NCCL, or, with multicast, BL_TUNING_PLAIN */
    unsigned blocks, threads; /* 0: not given */
    enum bl_spread spread;
};

/* Hands every good row of `text`, in order, to `visit`.  Every bad one is skipped, with one message to `warn` (either
 * may be NULL) that names file, line, the offending word and what is accepted; after some messages only a count. */
void bl_tuning_parse(const char *name, const char *text, void (*visit)(void *arg, const struct bl_tuning_row *row),
                     void *visit_arg, void (*warn)(void *arg, const char *message), void *warn_arg);

#endif
