/* trial.h - launches of the kernels on a rig of their own, drawn by a seed. */
#ifndef BEELINE_TEST_TRIAL_H
#define BEELINE_TEST_TRIAL_H

#include "options.h"
#include "rig.h"

enum { PLACES = 8 }; /* blocks that a box of `--sms 4` holds */
enum { MOST_BYTES = 40000 /* of a call's larger buffer, if nothing else is said */ };
enum { POOL = 24 }; /* calls of a salvo, and launches, at most */

/* The kernels on their rig, and what is drawn of them. */
struct trial {
    struct rig rig;
    struct multicast multicast;
    bool (*only)(int kernel); /* NULL, or those that are launched */
    int last_kernel;          /* that was drawn */
    uint64_t state;           /* of the draw */
    int most_threads;         /* a block */
    bool few_places;          /* for all blocks of a grid */
    int arch;                 /* 90 for sm_90 */
    uint64_t launch;          /* the last one */
    int launches;             /* of a salvo, at most */
    uint64_t most_bytes;      /* of a call's larger buffer */
    uint64_t least_scale;     /* sizes are drawn on a logarithmic scale */
    uint64_t most_late_ns;    /* a rank's launches, behind those of another */
};

/* The larger staging has room for every kernel; `staging` bytes are at least bl_staging_minimum(). */
void trial_open(struct trial *trial, struct part *part, const struct options *o);
void trial_open_on(struct trial *trial, struct part *part, const struct options *o, uint64_t staging);
void trial_close(struct trial *trial);

static inline bool is_one_way(int kernel) {
    return bl_kernel_collective(kernel) == BL_BROADCAST || bl_kernel_collective(kernel) == BL_REDUCE;
}

static inline bool is_paired(int kernel) {
    return bl_kernel_collective(kernel) == BL_SENDRECV;
}

/* The kernel's, or drawn. */
int trial_collective(struct trial *trial, int kernel);

bool trial_launches(const struct trial *trial, int kernel);
bool trial_covers(const struct trial *trial, int kernel, int datatype, int redop);
/* For a call's seed: sums that the switch makes in any order are compared where the order does not matter. */
uint64_t trial_seed(int kernel, int redop, uint64_t seed);
/* The largest call of a kernel, of which a buffer holds most_bytes. */
uint64_t trial_most_bytes(const struct trial *trial, int kernel);

/* Salvos of launches issued at once, all checked; `late`: those of the ranks are far apart in time and order. */
void trial_salvos(struct trial *trial, const struct options *o, bool late);

#endif
