/* budget.c - see budget.h. */
#include "budget.h"

#include <pthread.h>

#include "base/params.h"

enum { DEVICES = 64, LEAST = 1 << 20, SHARE = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t used[DEVICES]; /* of GPUs beyond, nobody keeps count */

uint64_t bl_budget_reserve(CUdevice device, uint64_t most) {
    const uint64_t budget = bl_params()->budget;
    if (device < 0 || device >= DEVICES) return most;
    pthread_mutex_lock(&lock);
    const uint64_t share = budget > used[device] ? (budget - used[device]) / (most > BL_STAGING_USUAL ? 2 : SHARE) : 0;
    const uint64_t bytes = share < LEAST ? 0 : share < most ? share : most;
    used[device] += bytes;
    pthread_mutex_unlock(&lock);
    return bytes;
}

void bl_budget_settle(CUdevice device, uint64_t *reserved, uint64_t bytes) {
    if (device < 0 || device >= DEVICES) return;
    pthread_mutex_lock(&lock);
    used[device] = used[device] - *reserved + bytes;
    pthread_mutex_unlock(&lock);
    *reserved = bytes;
}
