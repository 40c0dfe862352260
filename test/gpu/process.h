/* process.h - a program with one rank a process, on the reference NCCL or with Beeline in front of it, and how long its calls take.
 *
 * RANK, WORLD_SIZE, LOCAL_RANK and BEELINE_ID_FILE, where rank 0 leaves the communicator's name, come from whoever starts it.  A call that fails
 * ends the process: its line on stdout says which, its status is 1. */
#ifndef BEELINE_TEST_PROCESS_H
#define BEELINE_TEST_PROCESS_H

#include <cuda.h>
#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        const int status_ = (int)(call);                                                                               \
        if (status_) {                                                                                                 \
            printf("%s: %d\n", #call, status_);                                                                        \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { MOST_RANKS = 16, MOST_REPLAYS = 999 };

struct process {
    int rank, nranks;
    ncclComm_t comm;
    CUstream stream;
    CUdevice device;
};

void process_open(struct process *process);
void process_close(struct process *process);

/* us of one of `calls` calls, the median of `replays` graphs that hold them, or of as many turns without a graph, by this rank's device.
 * The first call, which makes connections, is not timed; behind it poison(arg) overwrites results, so that those which are found then are
 * of what was timed. */
float process_time(const struct process *process, void (*call)(void *), void (*poison)(void *), void *arg,
                   bool captured, int calls, int replays);

/* `1024`, `16K`, `4M`; ends the process if it is not from least to most. */
size_t process_bytes(const char *name, const char *text, size_t least, size_t most);

#endif
