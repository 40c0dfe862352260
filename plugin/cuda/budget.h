/* budget.h - staging of all communicators of this process together (BEELINE_BUDGET), for each GPU.
 *
 * A communicator may have an eighth of what is left (half, where BEELINE_STAGING asks for more than usual), and at most what that
 * says: the first ones have all that they can use, dozens have some, and what comes then is NCCL's.
 *
 * Threads: any.
 */
#ifndef BEELINE_BUDGET_H
#define BEELINE_BUDGET_H

#include <stdint.h>

#include "driver.h"

/* Bytes set aside for one more communicator, `most` or fewer; 0: there is no point in what is left. */
uint64_t bl_budget_reserve(CUdevice device, uint64_t most);

/* Of *reserved it takes `bytes`, 0 at its end: the rest is there for others. */
void bl_budget_settle(CUdevice device, uint64_t *reserved, uint64_t bytes);

#endif
