/* shared.c - one structure that every part of every process of a run sees, and a barrier in it. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "perf.h"

enum { READY = 0xb3371e };

double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void sort_seconds(double *seconds, size_t count) {
    qsort(seconds, count, sizeof *seconds, by_value);
}

static void nap(long ns) {
    struct timespec t = {0, ns};
    nanosleep(&t, NULL);
}

static struct shared *map(int fd) {
    void *p =
        mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
    if (p != MAP_FAILED) return p;
    fprintf(stderr, "beeline-perf: mmap of %zu bytes: %s\n", sizeof(struct shared), strerror(errno));
    return NULL;
}

struct shared *shared_make(void) {
    struct shared *shared = map(-1);
    if (!shared) return NULL;
    shared->owner = getpid();
    atomic_store(&shared->free_bytes, UINT64_MAX);
    atomic_store(&shared->ready, READY);
    return shared;
}

static struct shared *create(const char *path) {
    char temporary[512];
    snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    int fd = mkstemp(temporary);
    if (fd < 0 || ftruncate(fd, sizeof(struct shared))) {
        fprintf(stderr, "beeline-perf: cannot write %s: %s\n", temporary, strerror(errno));
        if (fd >= 0) close(fd);
        return NULL;
    }
    struct shared *shared = map(fd);
    close(fd);
    if (!shared) return NULL;
    shared->owner = getpid();
    atomic_store(&shared->free_bytes, UINT64_MAX);
    atomic_store(&shared->ready, READY);
    if (!rename(temporary, path)) return shared; /* others see it whole, or not at all */
    fprintf(stderr, "beeline-perf: cannot make %s: %s\n", path, strerror(errno));
    unlink(temporary);
    return NULL;
}

/* NULL if there is none yet: an old run's file, whose owner is gone, is none. */
static struct shared *join(const char *path) {
    struct stat status;
    int fd = open(path, O_RDWR);
    if (fd < 0) return NULL;
    bool whole = !fstat(fd, &status) && status.st_size == sizeof(struct shared) && status.st_uid == getuid();
    struct shared *shared = whole ? map(fd) : NULL;
    close(fd);
    if (!shared) return NULL;
    if (atomic_load(&shared->ready) == READY && !kill(shared->owner, 0)) return shared;
    munmap(shared, sizeof *shared);
    return NULL;
}

struct shared *shared_attach(const struct options *options) {
    char path[400];
    double start = now();
    struct shared *shared = NULL;

    /* Processes of one host that a launcher started have the launcher as parent. */
    if (options->id_file)
        snprintf(path, sizeof path, "%s", options->id_file);
    else
        snprintf(path, sizeof path, "/tmp/beeline-perf.%d.%d", (int)getuid(), (int)getppid());

    if (options->rank == 0) {
        shared = create(path);
    } else {
        while (!(shared = join(path)) && now() - start < options->timeout) nap(1000000);
        if (!shared)
            fprintf(stderr, "beeline-perf: rank 0 did not make %s (--id-file or BEELINE_ID_FILE names it)\n", path);
    }
    if (!shared) return NULL;
    atomic_fetch_add(&shared->attached, 1);
    while (options->rank == 0 && (int)atomic_load(&shared->attached) < options->processes) {
        if (now() - start > options->timeout) {
            shared_fail(shared, "only %u of %d processes came to %s", atomic_load(&shared->attached),
                        options->processes, path);
            break;
        }
        nap(1000000);
    }
    if (options->rank == 0) unlink(path);
    return atomic_load(&shared->failed) ? NULL : shared;
}

void shared_fail(struct shared *shared, const char *format, ...) {
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "%sbeeline-perf: %s\n", isatty(STDERR_FILENO) ? "\r\033[K" : "", text);
    atomic_store(&shared->failed, 1);
}

int shared_barrier(struct shared *shared, int parts, double timeout) {
    uint32_t generation = atomic_load(&shared->generation);
    double start = 0;

    if ((int)atomic_fetch_add(&shared->arrived, 1) + 1 == parts) {
        atomic_store(&shared->arrived, 0);
        atomic_fetch_add(&shared->generation, 1);
    }
    /* A short spin starts all parts within a fraction of a microsecond; who waits long gives the processor away. */
    for (unsigned spins = 0; atomic_load(&shared->generation) == generation; spins++) {
        if (atomic_load(&shared->failed)) return -1;
        if (spins < 200) continue;
        sched_yield();
        if (spins % 64) continue;
        if (!start) start = now();
        double waited = now() - start;
        if (waited > 0.02) nap(50000);
        if (waited > timeout) {
            shared_fail(shared, "a rank did not come to the barrier within %g s", timeout);
            return -1;
        }
    }
    return atomic_load(&shared->failed) ? -1 : 0;
}
