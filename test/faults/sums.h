/* sums.h - what the scenarios of this folder share: sums whose results are known, and the ends of communicators.
 *
 * A part has the ranks of one process or thread (test/harness/box.h); i is the place of one of them in it.
 */
#ifndef FAULTS_SUMS_H
#define FAULTS_SUMS_H

#include "box.h"

enum { ELEMENTS = 1000 };

/* Of n ranks rank r gives r + 1. */
struct sums {
    CUdeviceptr buffer[BOX_RANKS];
};

void sums_open(struct part *part, struct sums *sums);
void sums_close(struct part *part, struct sums *sums);
ncclResult_t sums_call(struct part *part, struct sums *sums, int i, ncclComm_t comm);
void sums_check(struct part *part, struct sums *sums, int i, int n);

/* New communicators, on which rank 0 has called, alone.  Where rank 0 is in the part; -1 if it is not. */
int sums_alone(struct part *part, struct sums *sums, ncclComm_t *comms);

/* Every communicator that is not NULL has `n` ranks and works. */
void works(struct part *part, ncclComm_t *comms, int n);

void destroy(struct part *part, ncclComm_t *comms);
void abort_all(struct part *part, ncclComm_t *comms);

/* Where the rank is in the part; -1 if it is not. */
int index_of(const struct part *part, int rank);

void nap(void);

/* refused.c: calls and groups that NCCL refuses, or fails. */
void group_refused(struct part *part);
void group_refused_nonblocking(struct part *part);
void revoke_refused(struct part *part);
void window_fails(struct part *part);

#endif
