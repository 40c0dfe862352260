/* box.c - the driver and the ranks of a test; see box.h.  Communicators are communicators.c's, buffers call.c's. */
#include "box.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rendezvous.h"

struct cu cu;

/* --- failing --- */

/* Writes the line at once, past stdio, which other threads may hold. */
static void say(const char *before, const char *format, va_list list) {
    char text[2048];
    int n = snprintf(text, sizeof text, "%s", before);
    n += vsnprintf(text + n, sizeof text - (size_t)n - 1, format, list);
    if (n > (int)sizeof text - 2) n = sizeof text - 2;
    text[n++] = '\n';
    fflush(stdout);
    if (write(2, text, (size_t)n) < 0) _exit(1);
}

static void say_where(const char *file, int line, const char *condition, const char *format, va_list list) {
    char before[512];
    const char *rank = getenv("RANK");
    snprintf(before, sizeof before, "FAIL %s:%d:%s%s %s%s", file, line, rank ? " rank " : "", rank ? rank : "",
             condition, *condition ? ":" : "");
    say(before, format, list);
}

/* Both end the process without exit handlers: other threads may be deep in the driver. */
void box_fail(const char *file, int line, const char *format, ...) {
    va_list list;
    va_start(list, format);
    say_where(file, line, "", format, list);
    va_end(list);
    _exit(1);
}

void box_fail_check(const char *file, int line, const char *condition, const char *format, ...) {
    va_list list;
    va_start(list, format);
    say_where(file, line, condition, format, list);
    va_end(list);
    _exit(1);
}

void box_skip(const char *format, ...) {
    va_list list;
    va_start(list, format);
    say("skip: ", format, list);
    va_end(list);
    _exit(77);
}

const char *box_cu_error(CUresult result) {
    static _Thread_local char text[32];
    snprintf(text, sizeof text, "CUDA error %d", (int)result);
    return text;
}

/* --- the driver --- */

static void open_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library) FAIL("%s", dlerror());
    CUresult (*lookup)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *) =
        (__typeof__(lookup))dlsym(library, "cuGetProcAddress_v2");
    CHECK(lookup, "the driver has no cuGetProcAddress_v2");
#define CU(function, version)                                                                                          \
    {                                                                                                                  \
        void *address = NULL;                                                                                          \
        lookup(#function, &address, version, 0, NULL);                                                                 \
        if (!address) FAIL("the driver has no %s", #function);                                                         \
        memcpy(&cu.function, &address, sizeof address);                                                                \
    }
#include "cu.def"
#undef CU
    CU_OK(cuInit(0));
}

static int wanted_ranks;
static pthread_barrier_t thread_barrier;

void box_upload(CUdeviceptr to, const void *from, size_t bytes) {
    CU_OK(cuMemcpyHtoD(to, from, bytes));
    CU_OK(cuStreamSynchronize(CU_STREAM_LEGACY));
}

/* --- parts --- */

int box_mode(const char *name) {
    static const char *const names[] = {"groups", "threads", "processes"};
    for (int i = 0; i < 3; i++)
        if (strcmp(names[i], name) == 0) return i;
    return -1;
}

double box_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

struct rank *part_enter(struct part *part, int i) {
    CU_OK(cuCtxSetCurrent(part->rank[i].context));
    return &part->rank[i];
}

void part_drain(struct part *part) {
    for (int i = 0; i < part->count; i++) {
        struct rank *rank = part_enter(part, i);
        for (int s = 0; s < BOX_STREAMS; s++) CU_OK(cuStreamSynchronize(rank->stream[s]));
    }
}

void part_barrier(struct part *part) {
    if (part->box->mode == MODE_THREADS) pthread_barrier_wait(&thread_barrier);
    if (part->box->mode == MODE_PROCESSES) CHECK(rendezvous_barrier() == 0);
}

static int gpus_of(const struct box *box) {
    return box->gpus ? box->gpus : box->nranks;
}

static void part_open(struct part *part) {
    const struct box *box = part->box;
    for (int i = 0; i < part->count; i++) {
        struct rank *rank = &part->rank[i];
        CU_OK(cuDeviceGet(&rank->device, rank->rank * gpus_of(box) / box->nranks));
        CU_OK(cuDevicePrimaryCtxRetain(&rank->context, rank->device));
        part_enter(part, i);
        for (int s = 0; s < BOX_STREAMS; s++) CU_OK(cuStreamCreate(&rank->stream[s], CU_STREAM_NON_BLOCKING));
    }
}

static void part_close(struct part *part) {
    part_drain(part);
    for (int i = 0; i < part->count; i++) {
        struct rank *rank = part_enter(part, i);
        for (int s = 0; s < BOX_STREAMS; s++) CU_OK(cuStreamDestroy(rank->stream[s]));
        CU_OK(cuCtxSetCurrent(NULL));
        CU_OK(cuDevicePrimaryCtxRelease(rank->device));
    }
}

struct thread {
    struct box *box;
    void (*body)(struct part *);
    int first, count;
};

static void *run_part(void *argument) {
    const struct thread *thread = argument;
    struct part *part = calloc(1, sizeof *part);
    CHECK(part);
    part->box = thread->box;
    part->count = thread->count;
    for (int i = 0; i < part->count; i++) part->rank[i].rank = thread->first + i;
    part_open(part);
    thread->body(part);
    part_close(part);
    free(part);
    return NULL;
}

static int environment_number(const char *name) {
    const char *value = getenv(name);
    if (!value || !*value) FAIL("%s is not set: start one process a rank, as scripts/emu-box -n does", name);
    return atoi(value);
}

void box_run_bare(struct box *box, void (*body)(struct part *part)) {
    open_driver();
    int devices;
    CU_OK(cuDeviceGetCount(&devices));
    if (box->mode == MODE_PROCESSES) {
        box->nranks = environment_number("WORLD_SIZE");
        CHECK(rendezvous_open() == 0);
    }
    wanted_ranks = box->nranks;
    if (wanted_ranks < 1 || wanted_ranks > BOX_RANKS) FAIL("%d ranks; accepted: 1 to %d", wanted_ranks, BOX_RANKS);
    if (box->gpus < 0 || box->gpus > wanted_ranks) FAIL("%d GPUs for %d ranks", box->gpus, wanted_ranks);
    if (devices < gpus_of(box)) box_skip("%d devices here, %d wanted", devices, gpus_of(box));

    struct thread threads[BOX_RANKS];
    pthread_t id[BOX_RANKS];
    switch (box->mode) {
    case MODE_GROUPS:
        threads[0] = (struct thread){box, body, 0, box->nranks};
        run_part(&threads[0]);
        break;
    case MODE_PROCESSES:
        threads[0] = (struct thread){box, body, environment_number("RANK"), 1};
        run_part(&threads[0]);
        rendezvous_close();
        break;
    case MODE_THREADS:
        pthread_barrier_init(&thread_barrier, NULL, (unsigned)box->nranks);
        for (int r = 0; r < box->nranks; r++) {
            threads[r] = (struct thread){box, body, r, 1};
            CHECK(pthread_create(&id[r], NULL, run_part, &threads[r]) == 0);
        }
        for (int r = 0; r < box->nranks; r++) pthread_join(id[r], NULL);
        pthread_barrier_destroy(&thread_barrier);
        break;
    }
}
