/* early.cu - who waits for whom where kernels start early (programmatic dependent launch)?  A program for GPUs.
 *
 *   early [--tries N] [--spin US] [--gpus N] [--only chain|gone|collective]
 *
 * On one stream: kernel A lets its dependents start (griddepcontrol.launch_dependents) at its very start, runs on for --spin
 * microseconds and only then writes; then kernels B of some kind; then who reads what A wrote:
 *   chain       kernel C, alone on a GPU, no library: does it see what A wrote?  Says how often, and fails only where it must
 *   collective  an all-reduce of 2 ranks (or --gpus), a thread each: every element is checked
 *   gone        (A waits for the host.)  The stream is destroyed, and a kernel on the next one that is made waits for B: does B end?  Says how
 *               often, and fails where B is not early, or in a graph
 * All launched as they come and in a captured graph.  Linked to NCCL by name; what is preloaded is the caller's affair.
 * Exit status: 0; 1 after a wrong result; 77 where there is no GPU for it.
 */
#include <cuda_runtime.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checked.cuh"

/* --- on the device --- */
enum { A_BLOCKS = 8, THREADS = 256 };

/* In device memory; read back once everything has ended. */
struct notes {
    unsigned value;                         /* of this try, set before it */
    unsigned a_done, stale;                 /* blocks of A that ended; elements that C found old */
    unsigned long long a_end, b_end, c_end; /* by the GPU's clock, of the last block or the last B */
};

static __device__ void let_dependents_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
static __device__ void wait_for_what_came_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

static __device__ unsigned long long now_ns() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}

static __host__ __device__ float element(unsigned value, int rank, size_t i) {
    return (float)(value % 4096 * 64 + rank * 16 + i % 13);
}

__global__ void kernel_a(float *data, size_t count, int rank, unsigned long long spin_ns, struct notes *notes) {
    let_dependents_start();
    const unsigned long long start = now_ns();
    while (now_ns() - start < spin_ns) {
    }
    const unsigned value = *(volatile unsigned *)&notes->value;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        data[i] = element(value, rank, i);
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicMax(&notes->a_end, now_ns());
        atomicAdd(&notes->a_done, 1);
    }
}

template <bool WAITS, bool TRIGGERS> __global__ void kernel_b(struct notes *notes) {
    if (TRIGGERS) let_dependents_start();
    if (WAITS) wait_for_what_came_before();
    if (threadIdx.x == 0) atomicMax(&notes->b_end, now_ns());
}

template <bool WAITS> __global__ void kernel_c(const float *data, size_t count, struct notes *notes) {
    if (WAITS) wait_for_what_came_before();
    const unsigned value = *(volatile unsigned *)&notes->value;
    unsigned stale = 0;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        stale += __ldcg(data + i) != element(value, 0, i);
    if (stale) atomicAdd(&notes->stale, stale);
    if (threadIdx.x == 0) atomicMax(&notes->c_end, now_ns());
}

/* --- one chain of kernels --- */
/* What stands between A and its reader. */
struct between {
    const char *name;
    int count;
    bool early, waits, triggers;
};
static const struct between betweens[] = {
    {"nothing", 0, false, false, false},           {"B, early, waits", 1, true, true, false},
    {"B, not early", 1, false, false, false},      {"B, early", 1, true, false, false},
    {"B, early, triggers", 1, true, false, true},  {"3 B, early", 3, true, false, false},
    {"3 B, early, trigger", 3, true, false, true},
};
enum { BETWEENS = sizeof betweens / sizeof *betweens };

template <class... P, class... A>
static void launch(void (*kernel)(P...), unsigned blocks, bool early, cudaStream_t stream, A... args) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = THREADS;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = early;
    CUDA_OK(cudaLaunchKernelEx(&config, kernel, (P)args...));
}

static void launch_a_and_b(const struct between *b, float *data, size_t count, int rank, unsigned long long spin_ns,
                           struct notes *notes, cudaStream_t stream) {
    launch(kernel_a, A_BLOCKS, false, stream, data, count, rank, spin_ns, notes);
    void (*kernel)(struct notes *) = b->waits      ? kernel_b<true, false>
                                     : b->triggers ? kernel_b<false, true>
                                                   : kernel_b<false, false>;
    for (int i = 0; i < b->count; i++) launch(kernel, 1, b->early, stream, notes);
}

/* Everything launched on the stream has ended, A in any case; what was noted. */
static struct notes finish(cudaStream_t stream, struct notes *notes, long *sync_too_soon) {
    struct notes seen;
    CUDA_OK(cudaStreamSynchronize(stream));
    for (bool first = true;; first = false) {
        CUDA_OK(cudaMemcpyAsync(&seen, notes, sizeof seen, cudaMemcpyDeviceToHost, stream));
        CUDA_OK(cudaStreamSynchronize(stream));
        if (seen.a_done == A_BLOCKS) return seen;
        *sync_too_soon += first;
    }
}

static void start(struct notes *notes, unsigned value, cudaStream_t stream) {
    const struct notes fresh = {value, 0, 0, 0, 0, 0};
    CUDA_OK(cudaMemcpyAsync(notes, &fresh, sizeof fresh, cudaMemcpyHostToDevice, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
}

/* What body issues on the stream, as it comes or captured and replayed. */
template <class Body> struct Issue {
    cudaStream_t stream;
    bool captured;
    Body body;
    cudaGraph_t graph;
    cudaGraphExec_t exec;

    Issue(cudaStream_t s, bool c, Body b) : stream(s), captured(c), body(b) {
        if (!captured) return;
        CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        body();
        CUDA_OK(cudaStreamEndCapture(stream, &graph));
        CUDA_OK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    }
    void operator()() {
        if (captured)
            CUDA_OK(cudaGraphLaunch(exec, stream));
        else
            body();
    }
    ~Issue() {
        if (!captured) return;
        CUDA_OK(cudaGraphExecDestroy(exec));
        CUDA_OK(cudaGraphDestroy(graph));
    }
};

static struct {
    long tries = 1000, spin_us = 300, gpus = 2;
    const char *only = "";
} options;

/* --- chain: no library --- */
enum reader { EARLY_WAITS, PLAIN, READERS };
static const char *const reader_names[] = {"C, early, waits", "C, not early"};

/* Wrong results where there may be none: with nothing that hides A from C. */
static long chain(const struct between *b, enum reader reader, bool captured, cudaStream_t stream) {
    const size_t count = 16384;
    const unsigned long long spin_ns = options.spin_us * 1000ull;
    float *data;
    struct notes *notes;
    CUDA_OK(cudaMalloc(&data, count * sizeof *data));
    CUDA_OK(cudaMalloc(&notes, sizeof *notes));
    CUDA_OK(cudaMemset(data, 0, count * sizeof *data));
    long stale_tries = 0, b_before_a = 0, c_before_a = 0, too_soon = 0;
    Issue issue(stream, captured, [=] {
        launch_a_and_b(b, data, count, 0, spin_ns, notes, stream);
        if (reader == EARLY_WAITS)
            launch(kernel_c<true>, 4, true, stream, data, count, notes);
        else
            launch(kernel_c<false>, 4, false, stream, data, count, notes);
    });
    for (long k = 0; k < options.tries; k++) {
        start(notes, (unsigned)k + 1, stream);
        issue();
        const struct notes seen = finish(stream, notes, &too_soon);
        stale_tries += seen.stale != 0;
        b_before_a += b->count && seen.b_end < seen.a_end;
        c_before_a += seen.c_end < seen.a_end;
    }
    printf("chain      %-7s A, %-20s %-16s sees A's writes in %ld of %ld (B ended before A in %ld, C in %ld; "
           "synchronised before A's end: %ld)\n",
           captured ? "graph" : "eager", b->name, reader_names[reader], options.tries - stale_tries, options.tries,
           b_before_a, c_before_a, too_soon);
    fflush(stdout);
    CUDA_OK(cudaFree(data));
    CUDA_OK(cudaFree(notes));
    return b->count == 0 || b->waits || !b->early ? stale_tries : 0;
}

static long chains(void) {
    cudaStream_t stream;
    long wrong = 0;
    CUDA_OK(cudaSetDevice(0));
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int captured = 0; captured < 2; captured++)
        for (int reader = 0; reader < READERS; reader++)
            for (int b = 0; b < BETWEENS; b++) wrong += chain(&betweens[b], (enum reader)reader, captured, stream);
    CUDA_OK(cudaStreamDestroy(stream));
    return wrong;
}

/* --- gone: the stream is destroyed, and another one made --- */
enum { GO, B_DONE, BEGUN, END, WORDS, GONE_TRIES = 5, PATIENCE_MS = 200 };

/* In the host's memory. */
__global__ void wait_then_tell(volatile unsigned *awaited, volatile unsigned *begun, volatile unsigned *told) {
    wait_for_what_came_before();
    *begun = 1;
    while (awaited && !*awaited) {
    }
    *told = 1;
}

static bool comes(volatile unsigned *word, int ms) {
    for (int us = 0; us < ms * 1000 && !*word; us += 50) usleep(50);
    return *word;
}

/* Whether B ends, though the heir's kernel waits for it; then all is let go. */
static bool ends_behind(bool early, bool captured, bool heir_captured, volatile unsigned *words) {
    cudaStream_t old, heir;
    for (int i = 0; i < WORDS; i++) words[i] = 0;
    CUDA_OK(cudaStreamCreateWithFlags(&old, cudaStreamNonBlocking));
    {
        Issue issue(old, captured, [=] {
            launch(wait_then_tell, 1, false, old, words + GO, words + END, words + END);
            launch(wait_then_tell, 1, early, old, (volatile unsigned *)NULL, words + END, words + B_DONE);
        });
        issue();
    } /* the graph's instance is destroyed under way, too */
    CUDA_OK(cudaStreamDestroy(old));
    CUDA_OK(cudaStreamCreateWithFlags(&heir, cudaStreamNonBlocking));
    Issue behind(heir, heir_captured,
                 [=] { launch(wait_then_tell, 1, early, heir, words + B_DONE, words + BEGUN, words + END); });
    behind();
    comes(words + BEGUN, 2);
    words[GO] = 1;
    const bool ends = comes(words + B_DONE, PATIENCE_MS);
    words[B_DONE] = 1;
    CUDA_OK(cudaStreamSynchronize(heir));
    CUDA_OK(cudaStreamDestroy(heir));
    CUDA_OK(cudaDeviceSynchronize());
    return ends;
}

static long gone(void) {
    unsigned *words;
    long wrong = 0;
    CUDA_OK(cudaSetDevice(0));
    CUDA_OK(cudaHostAlloc(&words, WORDS * sizeof *words, cudaHostAllocMapped));
    for (int way = 0; way < 8; way++) {
        const bool early = way & 1, captured = way & 2, heir_captured = way & 4;
        long ended = 0;
        for (int k = 0; k < GONE_TRIES; k++) ended += ends_behind(early, captured, heir_captured, words);
        printf("gone       %-7s A, B%-7s of a destroyed stream, %-7s C on its heir waits for B: ends in %ld of %d\n",
               captured ? "graph" : "eager", early ? ", early" : "", heir_captured ? "graph" : "eager", ended,
               GONE_TRIES);
        fflush(stdout);
        if (captured || !early) wrong += GONE_TRIES - ended;
    }
    CUDA_OK(cudaFreeHost(words));
    return wrong;
}

/* --- collective: an all-reduce of what A wrote --- */
enum { MOST_RANKS = 8 };
static const size_t counts[] = {250, 16384, 262144}; /* elements: small, middle, 1 MB */
enum { COUNTS = sizeof counts / sizeof *counts };

struct rank {
    int rank;
    pthread_t thread;
    long wrong[2][BETWEENS][COUNTS]; /* tries */
};
static ncclUniqueId id;

static void collective(struct rank *r, const struct between *b, bool captured, int c, ncclComm_t comm,
                       cudaStream_t stream) {
    const size_t count = counts[c];
    const int rank = r->rank, n = (int)options.gpus;
    float *from, *to, *image = (float *)malloc(count * sizeof *image);
    struct notes *notes;
    CUDA_OK(cudaMalloc(&from, count * sizeof *from));
    CUDA_OK(cudaMalloc(&to, count * sizeof *to));
    CUDA_OK(cudaMalloc(&notes, sizeof *notes));
    CUDA_OK(cudaMemset(from, 0, count * sizeof *from));
    long too_soon = 0, *wrong = &r->wrong[captured][b - betweens][c];
    /* Ranks end their kernels A at different times. */
    const unsigned long long spin_ns = (unsigned long long)options.spin_us * 1000 * (unsigned)(rank + 1) / (unsigned)n;
    Issue issue(stream, captured, [=] {
        launch_a_and_b(b, from, count, rank, spin_ns, notes, stream);
        NCCL_OK(ncclAllReduce(from, to, count, ncclFloat, ncclSum, comm, stream));
    });
    for (long k = 0; k < options.tries; k++) {
        start(notes, (unsigned)k + 1, stream);
        CUDA_OK(cudaMemsetAsync(to, 0xff, count * sizeof *to, stream));
        issue();
        finish(stream, notes, &too_soon);
        CUDA_OK(cudaMemcpyAsync(image, to, count * sizeof *to, cudaMemcpyDeviceToHost, stream));
        CUDA_OK(cudaStreamSynchronize(stream));
        size_t bad = 0;
        for (size_t i = 0; i < count; i++) {
            float want = 0;
            for (int p = 0; p < n; p++) want += element((unsigned)k + 1, p, i);
            bad += image[i] != want;
        }
        *wrong += bad != 0;
    }
    CUDA_OK(cudaFree(from));
    CUDA_OK(cudaFree(to));
    CUDA_OK(cudaFree(notes));
    free(image);
}

static void *rank_main(void *argument) {
    struct rank *r = (struct rank *)argument;
    ncclComm_t comm;
    cudaStream_t stream;
    CUDA_OK(cudaSetDevice(r->rank));
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    NCCL_OK(ncclCommInitRank(&comm, (int)options.gpus, id, r->rank));
    for (int captured = 0; captured < 2; captured++)
        for (int b = 0; b < BETWEENS; b++)
            for (int c = 0; c < COUNTS; c++) collective(r, &betweens[b], captured, c, comm, stream);
    CUDA_OK(cudaStreamSynchronize(stream));
    NCCL_OK(ncclCommDestroy(comm));
    CUDA_OK(cudaStreamDestroy(stream));
    return NULL;
}

static long collectives(void) {
    static struct rank ranks[MOST_RANKS];
    NCCL_OK(ncclGetUniqueId(&id));
    for (int i = 0; i < options.gpus; i++) {
        ranks[i].rank = i;
        pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]);
    }
    for (int i = 0; i < options.gpus; i++) pthread_join(ranks[i].thread, NULL);
    long all = 0;
    for (int captured = 0; captured < 2; captured++)
        for (int b = 0; b < BETWEENS; b++)
            for (int c = 0; c < COUNTS; c++) {
                long wrong = 0;
                for (int i = 0; i < options.gpus; i++) wrong += ranks[i].wrong[captured][b][c];
                printf("collective %-7s A, %-20s all-reduce of %7zu bytes: %ld of %ld results wrong\n",
                       captured ? "graph" : "eager", betweens[b].name, counts[c] * sizeof(float), wrong,
                       options.tries * options.gpus);
                all += wrong;
            }
    return all;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (value && strcmp(argv[i], "--tries") == 0)
            options.tries = atol(argv[++i]);
        else if (value && strcmp(argv[i], "--spin") == 0)
            options.spin_us = atol(argv[++i]);
        else if (value && strcmp(argv[i], "--gpus") == 0)
            options.gpus = atol(argv[++i]);
        else if (value && strcmp(argv[i], "--only") == 0)
            options.only = argv[++i];
        else {
            fprintf(stderr, "early: %s; accepted: --tries N, --spin US, --gpus N, --only chain|gone|collective\n",
                    argv[i]);
            return 2;
        }
    }
    int gpus = 0;
    cudaDeviceProp properties;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus < 1) {
        printf("early: no GPU\n");
        return 77;
    }
    CUDA_OK(cudaGetDeviceProperties(&properties, 0));
    if (properties.major < 9) {
        printf("early: %s has no programmatic dependent launch\n", properties.name);
        return 77;
    }
    printf("%s, compute capability %d.%d\n", properties.name, properties.major, properties.minor);
    const auto wanted = [](const char *what) { return !*options.only || strcmp(options.only, what) == 0; };
    if (!wanted("chain") && !wanted("gone") && !wanted("collective")) {
        fprintf(stderr, "early: --only %s; accepted: chain, gone, collective\n", options.only);
        return 2;
    }
    long wrong = 0;
    if (wanted("chain")) wrong += chains();
    if (wanted("gone")) wrong += gone();
    if (wanted("collective")) {
        if (options.gpus < 2 || options.gpus > MOST_RANKS || gpus < options.gpus) {
            printf("early: collective: %ld GPUs wanted, %d here\n", options.gpus, gpus);
            return wrong ? 1 : 77;
        }
        wrong += collectives();
    }
    puts(wrong ? "early: WRONG" : "early: ok");
    return wrong != 0;
}
