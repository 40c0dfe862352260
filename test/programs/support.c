/* support.c - what the programs share; see programs.h. */
#include "programs.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "reference.h"

/* --- what a rank is doing --- */
static char places[BOX_RANKS][128];
static struct {
    const char *name;
    long seconds;
    _Atomic long deadline; /* of the clock of box_seconds() */
} watched;
static _Atomic long longest_us;

void doing(const struct part *part, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(places[part->rank[0].rank], sizeof places[0], format, list);
    va_end(list);
}

static void *watchdog(void *unused) {
    char line[256];
    while ((long)box_seconds() < watched.deadline) usleep(100000);
    for (int r = 0; r < BOX_RANKS; r++) {
        if (!*places[r]) continue;
        int n = snprintf(line, sizeof line, "%s: no end after %ld s: rank %d: %s\n", watched.name, watched.seconds, r,
                         places[r]);
        if (write(2, line, (size_t)n) < 0) break;
    }
    _exit(2);
}

void watch(const char *name, long seconds) {
    static pthread_t thread;
    watched.name = name;
    watched.seconds = seconds;
    watched.deadline = (long)box_seconds() + seconds;
    longest_us = 0;
    if (!thread) CHECK(pthread_create(&thread, NULL, watchdog, NULL) == 0);
}

void took(double seconds) {
    long us = (long)(seconds * 1e6), longest = longest_us;
    while (us > longest && !atomic_compare_exchange_weak(&longest_us, &longest, us)) {
    }
}

void say_ok(const char *more) {
    printf("%s: ok%s", watched.name, more);
    if (longest_us) printf(" (took %.3f s at most)", 1e-6 * (double)longest_us);
    putchar('\n');
    fflush(stdout);
}

/* --- communicators --- */
static int made[BOX_RANKS]; /* by each rank; equal on all of them at the next one */

static ncclUniqueId next_id(struct part *part) {
    ncclUniqueId id;
    box_unique_id(part, made[self(part)->rank]++, &id);
    return id;
}

ncclComm_t comm_open(struct part *part) {
    ncclComm_t comm;
    const ncclUniqueId id = next_id(part);
    NCCL_OK(ncclCommInitRank(&comm, part->box->nranks, id, self(part)->rank));
    return comm;
}

ncclComm_t comm_open_nonblocking(struct part *part) {
    ncclComm_t comm = NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    const ncclUniqueId id = next_id(part);
    config.blocking = 0;
    ncclResult_t state;
    NCCL_GOES(ncclCommInitRankConfig(&comm, part->box->nranks, id, self(part)->rank, &config));
    while ((state = comm_state(comm)) == ncclInProgress) usleep(100);
    CHECK(state == ncclSuccess, "%s", ncclGetErrorString(state));
    return comm;
}

ncclResult_t comm_state(ncclComm_t comm) {
    ncclResult_t state;
    NCCL_OK(ncclCommGetAsyncError(comm, &state));
    return state;
}

void group_end(ncclComm_t comm) {
    NCCL_GOES(ncclGroupEnd());
    while (comm_state(comm) == ncclInProgress) usleep(100);
}

void comm_close(struct part *part, ncclComm_t comm) {
    doing(part, "destroying a communicator");
    CHECK(comm_state(comm) == ncclSuccess, "%s", ncclGetLastError(comm));
    NCCL_OK(ncclCommDestroy(comm));
}

/* --- streams --- */
CUstream stream_open(void) {
    CUstream stream;
    CU_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

/* Linked against are drivers that have no green contexts. */
static void *driver_function(const char *name) {
    void *address = NULL;
    CUresult (*lookup)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *) =
        (__typeof__(lookup))dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2");
    CHECK(lookup);
    if (lookup(name, &address, 12050, 0, NULL) != CUDA_SUCCESS || !address) box_skip("the driver has no %s", name);
    return address;
}

#define DRIVER_OK(function, ...)                                                                                       \
    do {                                                                                                               \
        CUresult result_ = ((__typeof__(function) *)driver_function(#function))(__VA_ARGS__);                          \
        CHECK(result_ == CUDA_SUCCESS, "%s: %s", #function, box_cu_error(result_));                                    \
    } while (0)

CUgreenCtx green_open(struct part *part, unsigned share) {
    CUdevResource all, some, rest;
    CUdevResourceDesc description;
    CUgreenCtx green;
    unsigned groups = 1;
    DRIVER_OK(cuDeviceGetDevResource, self(part)->device, &all, CU_DEV_RESOURCE_TYPE_SM);
    DRIVER_OK(cuDevSmResourceSplitByCount, &some, &groups, &all, &rest, 0, all.sm.smCount / share);
    DRIVER_OK(cuDevResourceGenerateDesc, &description, &some, 1);
    DRIVER_OK(cuGreenCtxCreate, &green, description, self(part)->device, CU_GREEN_CTX_DEFAULT_STREAM);
    return green;
}

CUstream green_stream_open(CUgreenCtx green) {
    CUstream stream;
    DRIVER_OK(cuGreenCtxStreamCreate, &stream, green, CU_STREAM_NON_BLOCKING, 0);
    return stream;
}

void green_close(CUgreenCtx green) {
    DRIVER_OK(cuGreenCtxDestroy, green);
}

void stream_close(CUstream stream) {
    CU_OK(cuStreamDestroy(stream));
}

void stream_sync(CUstream stream) {
    CU_OK(cuStreamSynchronize(stream));
}

bool is_through(CUstream stream, int ms) {
    for (; ms > 0; ms--) {
        if (cu.cuStreamQuery(stream) == CUDA_SUCCESS) return true;
        usleep(1000);
    }
    return false;
}

static void CUDA_CB pass_time(void *us) {
    usleep((useconds_t)(uintptr_t)us);
}

void delay(CUstream stream, uint64_t us) {
    CU_OK(cuLaunchHostFunc(stream, pass_time, (void *)(uintptr_t)us));
}

uint64_t draw(uint64_t seed, uint64_t which, uint64_t n) {
    return ref_mix(seed, which) % n;
}

void capture_begin(CUstream stream) {
    CU_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

void capture_begin_relaxed(CUstream stream) {
    CU_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
}

void capture_end(CUstream stream, struct graph *graph) {
    CU_OK(cuStreamEndCapture(stream, &graph->graph));
    CU_OK(cuGraphInstantiateWithFlags(&graph->exec, graph->graph, 0));
}

void graph_close(struct graph *graph) {
    CU_OK(cuGraphExecDestroy(graph->exec));
    CU_OK(cuGraphDestroy(graph->graph));
}

/* --- vectors --- */
/* Linear, so that a sum costs no more than a value. */
static uint32_t value(uint64_t seed, int rank, size_t i) {
    return (uint32_t)seed * 0x9e3779b1u + (uint32_t)rank * 0x85ebca6bu + (uint32_t)i * 0x27d4eb2fu;
}

void vector_open(struct vector *vector, size_t bytes) {
    *vector = (struct vector){.count = bytes / 4};
    CU_OK(cuMemAlloc(&vector->send, bytes));
    CU_OK(cuMemAlloc(&vector->recv, bytes));
}

void vector_close(struct vector *vector) {
    CU_OK(cuMemFree(vector->send));
    CU_OK(cuMemFree(vector->recv));
}

void vector_fill(struct part *part, struct vector *vector, uint64_t seed) {
    const size_t bytes = vector->count * 4;
    uint32_t *image = malloc(bytes);
    CHECK(image);
    vector->seed = seed;
    for (size_t i = 0; i < vector->count; i++) image[i] = value(seed, self(part)->rank, i);
    box_upload(vector->send, image, bytes);
    memset(image, 0xa5, bytes);
    box_upload(vector->recv, image, bytes);
    free(image);
}

void vector_allreduce(const struct vector *v, ncclComm_t comm, CUstream stream) {
    NCCL_OK(ncclAllReduce((void *)v->send, (void *)v->recv, v->count, ncclInt32, ncclSum, comm, stream));
}

void vector_warm_up(struct part *part, struct vector *vector, ncclComm_t comm, CUstream stream) {
    doing(part, "warming a communicator up");
    vector_fill(part, vector, 0);
    vector_allreduce(vector, comm, stream);
    stream_sync(stream);
}

void vector_capture(struct part *part, const struct vector *vector, ncclComm_t comm, CUstream stream,
                    struct graph *graph) {
    doing(part, "capturing a call");
    capture_begin(stream);
    vector_allreduce(vector, comm, stream);
    capture_end(stream, graph);
}

void vector_broadcast(const struct vector *v, int root, ncclComm_t comm, CUstream stream) {
    NCCL_OK(ncclBroadcast((void *)v->send, (void *)v->recv, v->count, ncclInt32, root, comm, stream));
}

void vector_reduce(const struct vector *v, int root, ncclComm_t comm, CUstream stream) {
    NCCL_OK(ncclReduce((void *)v->send, (void *)v->recv, v->count, ncclInt32, ncclSum, root, comm, stream));
}

bool vector_is_sum(struct part *part, const struct vector *v, int first, int last, char *wrong, size_t size) {
    uint32_t *image = malloc(v->count * 4), rank_sum = 0;
    const uint32_t ranks = (uint32_t)(last - first + 1);
    size_t bad = 0, at = 0;
    CHECK(image);
    CU_OK(cuMemcpyDtoH(image, v->recv, v->count * 4));
    for (int r = first; r <= last; r++) rank_sum += value(v->seed, r, 0);
    for (size_t i = 0; i < v->count; i++) {
        if (image[i] == rank_sum + ranks * (value(0, 0, i))) continue;
        if (!bad++) at = i;
    }
    if (bad)
        snprintf(wrong, size, "%zu of %zu elements are wrong, first %zu: %08x, expected %08x", bad, v->count, at,
                 image[at], rank_sum + ranks * value(0, 0, at));
    free(image);
    return !bad;
}

void vector_check(struct part *part, const struct vector *vector, int first, int last) {
    char wrong[160];
    if (!vector_is_sum(part, vector, first, last, wrong, sizeof wrong))
        FAIL("rank %d: %s: %s", self(part)->rank, places[self(part)->rank], wrong);
}

void vector_check_all(struct part *part, const struct vector *vector) {
    vector_check(part, vector, 0, last_rank(part));
}
