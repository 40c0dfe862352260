/* growth.c - communicators come and go by the hundred, and leave nothing behind: no memory, descriptor, thread or mapping.
 * BEELINE_TEST_COMMUNICATORS says how many (110). */
#include "scenarios.h"

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { USUAL = 110, WARM = 80 /* more than Beeline keeps for a while of those that ended */ };

static long entries(const char *folder) {
    long count = 0;
    DIR *directory = opendir(folder);
    CHECK(directory, "%s", folder);
    while (readdir(directory)) count++;
    closedir(directory);
    return count;
}

static long lines(const char *path) {
    long count = 0;
    FILE *file = fopen(path, "r");
    CHECK(file, "%s", path);
    for (int c; (c = getc(file)) != EOF;) count += c == '\n';
    fclose(file);
    return count;
}

struct footprint {
    long descriptors, threads, mappings, kib; /* kib: of malloc */
    size_t device;
};

static struct footprint look(struct part *part) {
    size_t available, all;
    part_enter(part, 0);
    CU_OK(cuMemGetInfo(&available, &all));
    return (struct footprint){entries("/proc/self/fd"), entries("/proc/self/task"), lines("/proc/self/maps"),
                              (long)(mallinfo2().uordblks >> 10), all - available};
}

/* Of mappings and memory there is a limit that does not grow with the count.  (Resident memory would not do: the emulated driver
 * keeps what it knows of objects that have ended.) */
static bool grown(const struct footprint *before, const struct footprint *after) {
    return after->descriptors > before->descriptors || after->threads > before->threads + 1 ||
           after->mappings > before->mappings + 40 || after->kib > before->kib + 1024 || after->device > before->device;
}

static void one(struct part *part, struct chain *chain, int k) {
    ncclComm_t comms[BOX_RANKS];
    CUstream stream[BOX_RANKS];
    part_streams(part, 0, stream);
    part_make_communicators(part, 1 + k % 40, comms);
    chain_allreduce(part, chain, comms, stream);
    part_synchronize(part);
    if (k % 16 == 0) chain_check(part, chain);
    part_destroy_communicators(part, comms);
}

static void growth(struct part *part, const struct options *o) {
    const char *text = getenv("BEELINE_TEST_COMMUNICATORS");
    const int count = text ? atoi(text) : USUAL;
    struct chain chain;
    struct footprint before = {0}, after = {0};
    chain_open(part, &chain, 100);
    for (int k = 0; k < count; k++) {
        if (k == WARM) {
            part_barrier(part);
            before = look(part);
            part_barrier(part);
        }
        one(part, &chain, k);
    }
    part_barrier(part);
    /* What ends in threads of its own has some time to. */
    for (int i = 0; i < 50 && (i == 0 || grown(&before, &after)); i++) {
        after = look(part);
        if (grown(&before, &after)) nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    CHECK(
        !grown(&before, &after),
        "from %d to %d communicators: descriptors %ld to %ld, threads %ld to %ld, mappings %ld to %ld, KiB %ld to %ld, "
        "device memory %zu to %zu",
        WARM, count, before.descriptors, after.descriptors, before.threads, after.threads, before.mappings,
        after.mappings, before.kib, after.kib, before.device, after.device);
    part_barrier(part);
    chain_close(part, &chain);
}

const struct scenario growth_scenarios[] = {
    {.name = "growth", .run = growth, .no_communicators = true},
    {0},
};
