/* rendezvous.c - see rendezvous.h. */
#include "rendezvous.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 60000, PATH_SIZE = 4000 };

/* In the file PATH.barrier, zeros at first. */
struct meeting {
    _Atomic unsigned arrived, generation;
};

static struct {
    int rank, nranks;
    unsigned told; /* things told so far */
    struct meeting *meeting;
} run;

static const char *base_path(void) {
    const char *path = getenv("BEELINE_ID_FILE");
    if (path && *path && strlen(path) < PATH_SIZE - 64) return path;
    fprintf(stderr, "rendezvous: BEELINE_ID_FILE='%s' is not a path: start the ranks with scripts/emu-box -n\n",
            path ? path : "");
    return NULL;
}

/* Sleeps a little; -1 once the whole wait is too long. */
static int wait_more(int *waited_us, const char *what) {
    int pause = *waited_us < 2000 ? 100 : 1000;
    struct timespec time = {0, pause * 1000L};
    nanosleep(&time, NULL);
    *waited_us += pause;
    if (*waited_us / 1000 < PATIENCE_MS) return 0;
    fprintf(stderr, "rendezvous: rank %d waited %d s for %s\n", run.rank, PATIENCE_MS / 1000, what);
    return -1;
}

static int tell(const char *path, const void *data, size_t size) {
    char temporary[PATH_SIZE + 8];
    snprintf(temporary, sizeof temporary, "%s.new", path);
    FILE *file = fopen(temporary, "wb");
    int written = file && fwrite(data, 1, size, file) == size;
    if (file && fclose(file)) written = 0;
    if (written && rename(temporary, path) == 0) return 0;
    fprintf(stderr, "rendezvous: writing %s: %s\n", path, strerror(errno));
    return -1;
}

static int hear(const char *path, void *data, size_t size) {
    FILE *file;
    int waited_us = 0;
    while (!(file = fopen(path, "rb")))
        if (wait_more(&waited_us, path)) return -1;
    size_t got = fread(data, 1, size, file);
    fclose(file);
    if (got == size) return 0;
    fprintf(stderr, "rendezvous: %s holds %zu bytes, rank %d wants %zu\n", path, got, run.rank, size);
    return -1;
}

static int tell_all(void *data, size_t size, int rank, int nranks) {
    char path[PATH_SIZE];
    const char *base = nranks > 1 ? base_path() : "";
    if (nranks == 1) return 0;
    if (!base) return -1;
    snprintf(path, sizeof path - 8, run.told ? "%s.%u" : "%s", base, run.told);
    run.told++;
    return rank == 0 ? tell(path, data, size) : hear(path, data, size);
}

int bl_rendezvous_id(ncclUniqueId *id, int rank, int nranks) {
    return tell_all(id, sizeof *id, rank, nranks);
}

static int number(const char *name, int *value) {
    const char *text = getenv(name);
    char *end;
    long parsed = text ? strtol(text, &end, 10) : -1;
    if (!text || !*text || *end || parsed < 0 || parsed > 1 << 20) {
        fprintf(stderr, "rendezvous: %s='%s' is not a number of ranks\n", name, text ? text : "");
        return -1;
    }
    *value = (int)parsed;
    return 0;
}

int rendezvous_open(void) {
    char path[PATH_SIZE];
    if (number("RANK", &run.rank) || number("WORLD_SIZE", &run.nranks)) return -1;
    if (run.nranks < 2) return 0;
    const char *base = base_path();
    if (!base) return -1;
    snprintf(path, sizeof path, "%s.barrier", base);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *address = fd >= 0 && ftruncate(fd, sizeof *run.meeting) == 0
                        ? mmap(NULL, sizeof *run.meeting, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                        : MAP_FAILED;
    if (address == MAP_FAILED) fprintf(stderr, "rendezvous: %s: %s\n", path, strerror(errno));
    if (fd >= 0) close(fd);
    if (address == MAP_FAILED) return -1;
    run.meeting = address;
    return 0;
}

int rendezvous_broadcast(void *data, size_t size) {
    return tell_all(data, size, run.rank, run.nranks);
}

int rendezvous_barrier(void) {
    struct meeting *meeting = run.meeting;
    int waited_us = 0;
    if (run.nranks < 2) return 0;
    if (!meeting) {
        fprintf(stderr, "rendezvous: a barrier before rendezvous_open\n");
        return -1;
    }
    unsigned generation = meeting->generation;
    if (atomic_fetch_add(&meeting->arrived, 1) + 1 == (unsigned)run.nranks) {
        meeting->arrived = 0;
        atomic_fetch_add(&meeting->generation, 1);
        return 0;
    }
    while (meeting->generation == generation)
        if (wait_more(&waited_us, "the others at a barrier")) return -1;
    return 0;
}

void rendezvous_close(void) {
    if (run.meeting) munmap(run.meeting, sizeof *run.meeting);
    run.meeting = NULL;
}
