/* pick.h - of all rows of all tuning files those that fit a communicator best.  Private to dispatch/. */
#ifndef BEELINE_PICK_H
#define BEELINE_PICK_H

#include "tuning.h"

/* Which rows: the plain ones that fit best, those for multicast, and of the plain ones that are built in those that fit
 * best, which hold above a user's. */
enum bl_pick_kind { BL_PICK_PLAIN, BL_PICK_MULTICAST, BL_PICK_BUILT_IN, BL_PICKS };

/* The rows that fit best, of one collective: all of one section and number of ranks. */
struct bl_pick {
    struct bl_fit {
        int preference, file, distance, ranks, gpu, serial;
    } fit;
    int rows;
    struct bl_tuning_row row[BL_TUNING_ROWS];
    const char *file;
    bool user; /* from one of the user's files */
};

struct bl_picks {
    struct bl_pick pick[BL_PICKS][BL_COLLECTIVES];
};

/* From the built-in files and the settings', whose mistakes are handed to `warn`, which may be NULL. */
void bl_picks_make(struct bl_picks *picks, const struct bl_facts *facts, const struct bl_settings *settings,
                   void (*warn)(void *arg, const char *message), void *arg);

/* Whether the rows were measured here, with so many ranks, or are the user's word. */
bool bl_pick_measured(const struct bl_pick *pick);

/* How far a row reaches on this communicator. */
uint64_t bl_pick_reach(const struct bl_tuning_row *row, const struct bl_facts *facts);

/* How far the rows say something. */
uint64_t bl_pick_end(const struct bl_pick *pick, const struct bl_facts *facts);

/* Where the thresholds come from. */
void bl_picks_describe(const struct bl_picks *picks, enum bl_collective collective, const struct bl_facts *facts,
                       char *text, size_t size);

#endif
