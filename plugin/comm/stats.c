/* stats.c - one line a communicator. */
#include "stats.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/params.h"

static pid_t armed_by;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void at_exit(void) {
    if (getpid() == armed_by) bl_comm_each(bl_stats_log); /* a forked child has made none of these calls */
}

static void arm(void) {
    if (!bl_params()->stats) return;
    armed_by = getpid();
    atexit(at_exit);
}

void bl_stats_arm(void) {
    pthread_once(&once, arm);
}

void bl_stats_log(struct bl_comm *comm) {
    if (!bl_params()->stats) return;
    char text[1800] = "no calls";
    size_t used = 0;
    for (int row = 0; row <= BL_KERNELS; row++) {
        if (!comm->calls[row]) continue;
        int n = snprintf(text + used, sizeof(text) - used, "%s%s %llu calls %llu bytes", used ? ", " : "",
                         row < BL_KERNELS ? bl_kernel_name(row) : "nccl", (unsigned long long)comm->calls[row],
                         (unsigned long long)comm->bytes[row]);
        if (n < 0 || (size_t)n >= sizeof(text) - used) break;
        used += (size_t)n;
    }
    if (comm->batches)
        snprintf(text + used, sizeof(text) - used, "; batches launched: %llu", (unsigned long long)comm->batches);
    bl_log(BL_LOG_NONE, "stats: communicator %016llx rank %d of %d: %s", (unsigned long long)comm->id, comm->rank,
           comm->nranks, text);
}
