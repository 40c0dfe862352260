/* soak.c - random collectives from one seed, every byte of every result and of the ground round it checked.
 *
 *   soak [options]
 *   --ranks N          ranks (2), each with a GPU
 *   --threads N        threads a rank (2), each with communicators, streams and calls of its own
 *   --seed S           of everything (1)
 *   --seconds S        to go on for (10)
 *   --calls N          stops after so many calls of each thread
 *   --most B           bytes of the largest message (4M)
 *   --no-graphs        nothing is captured
 *   --hang S           seconds without any progress that are taken for a hang (30)
 *   --shrink S         after a failure, seconds in which to look for the shortest prefix that fails (60); --no-shrink
 *
 * It knows of NCCL and the driver alone.  Of each thread, three communicators: of all ranks, of every second one, of each half. Calls
 * go out in batches, some hundred at a time with small messages, on streams that come and go, alone, in groups, or in graphs that
 * are launched up to three times, in the same order on all ranks, the threads of a rank in turn, as NCCL asks for; ranks are late at
 * random, on the host and on the device.  What a call is follows from the seed alone; when things happen does not.
 * Exit status: 0; 1 after a wrong byte or a failed call; 2 after a hang; 77 where there are too few GPUs.
 */
#include "soak.h"

#include <dlfcn.h>
#include <getopt.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "reference.h"

enum { MOST_THREADS = 8 };

static struct {
    struct box box;
    uint64_t seed, calls;
    long threads, seconds, hang, shrink;
    size_t most;
    bool no_graphs, child;
} options = {.box = {.mode = MODE_THREADS, .nranks = 2, .no_communicators = true},
             .seed = 1,
             .calls = UINT64_MAX,
             .threads = 2,
             .seconds = 10,
             .hang = 30,
             .shrink = 60,
             .most = 4 << 20};

/* A thread of a rank, and all that it uses. */
struct worker {
    struct part *part;
    int thread;
    struct plan plan;
    ncclComm_t comm[SOAK_COMMS];
    CUstream stream[SOAK_STREAMS];
    CUevent gone[SOAK_STREAMS + SOAK_CALLS]; /* behind what is on streams that were destroyed */
    int gone_count;
    CUgraph graph[SOAK_CALLS];
    CUgraphExec exec[SOAK_CALLS];
    int graph_count;
    CUdeviceptr send, recv;
    unsigned char *received;
    struct batch batch;
    uint32_t *ended; /* of each call of a batch, written by the GPU behind it: the batch's number from 1 on */
    uint32_t batches;
    /* for whoever watches: */
    _Atomic uint64_t calls, bytes; /* checked so far */
    _Atomic int at;                /* the call of the batch that is issued; count: all are, and waited for */
};

static struct worker *workers[BOX_RANKS][MOST_THREADS];
static _Atomic uint64_t batches_allowed[MOST_THREADS]; /* rank 0 says so, for all ranks to stop at the same one */
static _Atomic bool last_batch_known[MOST_THREADS];
static _Atomic uint64_t made;

/* Of a rank's threads: one has the turn to issue, until it passes it on. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t passed;
    int turn;
    bool left[MOST_THREADS];
} turns[BOX_RANKS];

/* Says what is wrong, and where so that the parent can find it; ends the process. */
static void give_up(int status, uint64_t calls, const char *format, ...)
    __attribute__((format(printf, 3, 4), noreturn));
static void give_up(int status, uint64_t calls, const char *format, ...) {
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    char text[1024];
    va_list list;
    pthread_mutex_lock(&one);
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    dprintf(1, "soak: seed %llu: %s\n# failed within %llu calls\n", (unsigned long long)options.seed, text,
            (unsigned long long)calls);
    _exit(status);
}

/* --- one call --- */
static void CUDA_CB pass_time(void *us) {
    usleep((useconds_t)(uintptr_t)us);
}

static ncclResult_t send_and_receive(const void *from, void *to, const struct soak_call *c, ncclComm_t comm,
                                     CUstream stream) {
    const int rank = c->team.rank, n = c->team.nranks;
    ncclResult_t result = ncclGroupStart();
    if (result == ncclSuccess) result = ncclSend(from, c->count, c->datatype, (rank + 1) % n, comm, stream);
    if (result == ncclSuccess) result = ncclRecv(to, c->count, c->datatype, (rank + n - 1) % n, comm, stream);
    ncclResult_t end = ncclGroupEnd();
    return result == ncclSuccess ? end : result;
}

/* A message from each rank to each, of as many elements as there are, or as the call's seed says; in blocks of the call's. */
static ncclResult_t sends_to_all(const void *from, void *to, const struct soak_call *c, bool uneven, ncclComm_t comm,
                                 CUstream stream) {
    const size_t block = c->count * ref_datatype_size(c->datatype);
    const int me = c->team.rank;
    ncclResult_t result = ncclGroupStart();
    for (int r = 0; r < c->team.nranks && result == ncclSuccess; r++) {
        const size_t sent = uneven ? uneven_count(c, me, r) : c->count,
                     received = uneven ? uneven_count(c, r, me) : c->count;
        result = ncclSend((const char *)from + (size_t)r * block, sent, c->datatype, r, comm, stream);
        if (result == ncclSuccess)
            result = ncclRecv((char *)to + (size_t)r * block, received, c->datatype, r, comm, stream);
    }
    ncclResult_t end = ncclGroupEnd();
    return result == ncclSuccess ? end : result;
}

/* Of an NCCL that lacks ncclAlltoAll, what it stands for. */
static ncclResult_t all_to_all(const void *from, void *to, const struct soak_call *c, ncclComm_t comm,
                               CUstream stream) {
    static __typeof__(ncclAlltoAll) *whole;
    static _Atomic bool asked;
    if (!asked) whole = (__typeof__(whole))dlsym(RTLD_DEFAULT, "ncclAlltoAll");
    asked = true;
    if (whole) return whole(from, to, c->count, c->datatype, comm, stream);
    return sends_to_all(from, to, c, false, comm, stream);
}

static void call(const struct worker *w, const struct soak_call *c) {
    const void *from = (void *)((c->in_place ? w->recv : w->send) + c->send_at);
    void *to = (void *)(w->recv + c->recv_at);
    const ncclComm_t comm = w->comm[c->comm];
    const CUstream stream = w->stream[c->stream];
    const ncclDataType_t type = (ncclDataType_t)c->datatype;
    const ncclRedOp_t op = (ncclRedOp_t)c->redop;
    ncclResult_t result = ncclInternalError;
    if (c->host_us) usleep(c->host_us);
    if (c->device_us) CU_OK(cuLaunchHostFunc(stream, pass_time, (void *)(uintptr_t)c->device_us));
    switch (c->kind) {
    case BL_ALLREDUCE: result = ncclAllReduce(from, to, c->count, type, op, comm, stream); break;
    case BL_ALLGATHER: result = ncclAllGather(from, to, c->count, type, comm, stream); break;
    case BL_REDUCESCATTER: result = ncclReduceScatter(from, to, c->count, type, op, comm, stream); break;
    case BL_ALLTOALL: result = all_to_all(from, to, c, comm, stream); break;
    case BL_BROADCAST: result = ncclBroadcast(from, to, c->count, type, c->root, comm, stream); break;
    case BL_REDUCE: result = ncclReduce(from, to, c->count, type, op, c->root, comm, stream); break;
    case SEND_RECV: result = send_and_receive(from, to, c, comm, stream); break;
    case UNEVEN: result = sends_to_all(from, to, c, true, comm, stream); break;
    }
    if (result != ncclSuccess)
        give_up(1, w->calls + (uint64_t)w->at + 1, "rank %d thread %d: call %llu: %s (%s)", w->plan.rank, w->thread,
                (unsigned long long)(w->calls + (uint64_t)w->at), ncclGetErrorString(result), ncclGetLastError(comm));
}

/* --- one batch --- */
static void renew(struct worker *w, int stream) {
    CUevent *event = &w->gone[w->gone_count++];
    CU_OK(cuEventCreate(event, CU_EVENT_DISABLE_TIMING));
    CU_OK(cuEventRecord(*event, w->stream[stream]));
    CU_OK(cuStreamDestroy(w->stream[stream]));
    CU_OK(cuStreamCreate(&w->stream[stream], CU_STREAM_NON_BLOCKING));
}

static void run_begin(struct worker *w, const struct soak_call *c) {
    if (c->run == GROUP) ncclGroupStart();
    if (c->run == GRAPH) CU_OK(cuStreamBeginCapture(w->stream[c->stream], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

/* Behind a run that ends with call `last`: whoever looks at a hang sees which calls have ended. */
static void mark(struct worker *w, int last) {
    const struct soak_call *call = w->batch.call;
    for (int i = last; i >= 0 && call[i].number == call[last].number; i--)
        CU_OK(cuStreamWriteValue32(w->stream[call[i].stream], (CUdeviceptr)(uintptr_t)&w->ended[i], w->batches, 0));
}

static void run_end(struct worker *w, const struct soak_call *c) {
    if (c->run == GROUP) {
        ncclResult_t result = ncclGroupEnd();
        if (result != ncclSuccess)
            give_up(1, w->calls + (uint64_t)w->at + 1, "rank %d thread %d: a group that ends with call %llu: %s",
                    w->plan.rank, w->thread, (unsigned long long)(w->calls + (uint64_t)w->at),
                    ncclGetErrorString(result));
    }
    if (c->run == GRAPH) {
        CUgraph *graph = &w->graph[w->graph_count];
        CUgraphExec *exec = &w->exec[w->graph_count++];
        CU_OK(cuStreamEndCapture(w->stream[c->stream], graph));
        CU_OK(cuGraphInstantiateWithFlags(exec, *graph, 0));
        for (unsigned i = 0; i < c->launches; i++) CU_OK(cuGraphLaunch(*exec, w->stream[c->stream]));
    }
}

static void take_turn(const struct worker *w) {
    const int rank = w->plan.rank;
    pthread_mutex_lock(&turns[rank].lock);
    while (turns[rank].turn != w->thread) pthread_cond_wait(&turns[rank].passed, &turns[rank].lock);
    pthread_mutex_unlock(&turns[rank].lock);
}

/* To the next thread that has not left; the one that does takes the turn first. */
static void pass_turn(const struct worker *w, bool leaves) {
    const int rank = w->plan.rank, n = (int)options.threads;
    int next = w->thread;
    pthread_mutex_lock(&turns[rank].lock);
    turns[rank].left[w->thread] = leaves;
    for (int i = 0; i < n && (i == 0 || turns[rank].left[next]); i++) next = (next + 1) % n;
    turns[rank].turn = next;
    pthread_cond_broadcast(&turns[rank].passed);
    pthread_mutex_unlock(&turns[rank].lock);
}

static void issue(struct worker *w) {
    const struct batch *b = &w->batch;
    for (int i = 0; i < b->count; i++) {
        const struct soak_call *c = &b->call[i];
        w->at = i;
        if (i == 0 || b->call[i - 1].number != c->number) take_turn(w);
        if (c->renew) renew(w, c->stream);
        if (i == 0 || b->call[i - 1].number != c->number) run_begin(w, c);
        call(w, c);
        if (i + 1 < b->count && b->call[i + 1].number == c->number) continue;
        run_end(w, c);
        mark(w, i);
        pass_turn(w, false);
    }
    w->at = b->count;
}

static void wait_for_all(struct worker *w) {
    for (int s = 0; s < SOAK_STREAMS; s++) CU_OK(cuStreamSynchronize(w->stream[s]));
    for (; w->gone_count; w->gone_count--) {
        CU_OK(cuEventSynchronize(w->gone[w->gone_count - 1]));
        CU_OK(cuEventDestroy(w->gone[w->gone_count - 1]));
    }
    for (; w->graph_count; w->graph_count--) {
        CU_OK(cuGraphExecDestroy(w->exec[w->graph_count - 1]));
        CU_OK(cuGraphDestroy(w->graph[w->graph_count - 1]));
    }
}

static void compare(struct worker *w, uint64_t which, const unsigned char *wanted, CUdeviceptr got, bool sent) {
    char text[512];
    struct batch *b = &w->batch;
    CU_OK(cuMemcpyDtoHAsync(w->received, got, b->used, w->stream[0]));
    CU_OK(cuStreamSynchronize(w->stream[0]));
    if (sent) {
        if (memcmp(w->received, wanted, b->used))
            give_up(1, w->calls + (uint64_t)b->count,
                    "rank %d thread %d: a buffer that is only sent was changed in batch %llu", w->plan.rank, w->thread,
                    (unsigned long long)which);
        return;
    }
    const int i = batch_differs(b, w->received, text, sizeof text);
    if (i >= 0)
        give_up(1, w->calls + (uint64_t)b->count, "rank %d thread %d: call %llu (%d of batch %llu): %s", w->plan.rank,
                w->thread, (unsigned long long)(w->calls + (uint64_t)i), i, (unsigned long long)which, text);
}

static void run_batch(struct worker *w, uint64_t which) {
    struct batch *b = &w->batch;
    batch_draw(b, &w->plan, which, options.calls - w->calls);
    CU_OK(cuMemcpyHtoDAsync(w->send, b->send, b->used, w->stream[0]));
    CU_OK(cuMemcpyHtoDAsync(w->recv, b->recv, b->used, w->stream[0]));
    CU_OK(cuStreamSynchronize(w->stream[0]));
    w->batches++;
    issue(w);
    wait_for_all(w);
    compare(w, which, b->image, w->recv, false);
    if (which % 16 == 0) compare(w, which, b->send, w->send, true);
    w->calls += (uint64_t)b->count;
    w->bytes += b->used;
}

/* Rank 0 lets all begin one batch more while there is time; none is behind the last one. */
static bool may_begin(struct worker *w, uint64_t which, double end) {
    const int t = w->thread;
    if (w->calls >= options.calls) return false;
    if (w->plan.rank == 0) {
        if (box_seconds() < end)
            batches_allowed[t] = which + 1;
        else
            last_batch_known[t] = true;
        return !last_batch_known[t];
    }
    while (batches_allowed[t] <= which && !last_batch_known[t]) sched_yield();
    return batches_allowed[t] > which;
}

static void *work(void *argument) {
    struct worker *w = argument;
    part_enter(w->part, 0);
    const double end = box_seconds() + (double)options.seconds;
    for (uint64_t which = 0; may_begin(w, which, end); which++) run_batch(w, which);
    take_turn(w);
    pass_turn(w, true);
    return NULL;
}

/* --- a rank --- */
static unsigned char *pinned(size_t bytes) {
    void *p;
    CU_OK(cuMemHostAlloc(&p, bytes, 0));
    return p;
}

static void team_open(struct worker *w, int which, int color, int nranks, int rank) {
    w->plan.team[which] = (struct team){rank, nranks};
    if (which) NCCL_OK(ncclCommSplit(w->comm[0], color, w->plan.rank, &w->comm[which], NULL));
}

static struct worker *worker_open(struct part *part, int thread) {
    struct worker *w = calloc(1, sizeof *w);
    const int rank = part->rank[0].rank, n = part->box->nranks, half = n / 2;
    const bool teams = n >= 4, upper = rank >= half;
    ncclUniqueId id;
    CHECK(w);
    w->part = part;
    w->thread = thread;
    w->plan = (struct plan){.seed = ref_mix(options.seed, 0x50a4u + (uint64_t)thread),
                            .rank = rank,
                            .most = options.most,
                            .graphs = !options.no_graphs,
                            .room = options.most * 8 + (2 << 20)};
    box_unique_id(part, thread, &id);
    NCCL_OK(ncclCommInitRank(&w->comm[0], n, id, rank));
    team_open(w, 0, 0, n, rank);
    if (teams) {
        team_open(w, 1, rank % 2, (n + 1 - rank % 2) / 2, rank / 2);
        team_open(w, 2, upper, upper ? n - half : half, upper ? rank - half : rank);
    } else {
        team_open(w, 1, 0, n, rank);
        team_open(w, 2, 0, n, rank);
    }
    for (int s = 0; s < SOAK_STREAMS; s++) CU_OK(cuStreamCreate(&w->stream[s], CU_STREAM_NON_BLOCKING));
    CU_OK(cuMemAlloc(&w->send, w->plan.room));
    CU_OK(cuMemAlloc(&w->recv, w->plan.room));
    w->batch.send = pinned(w->plan.room);
    w->batch.recv = pinned(w->plan.room);
    w->batch.image = pinned(w->plan.room);
    w->received = pinned(w->plan.room);
    w->ended = (uint32_t *)pinned(SOAK_CALLS * sizeof *w->ended);
    memset(w->ended, 0, SOAK_CALLS * sizeof *w->ended);
    return w;
}

static void worker_close(struct worker *w) {
    for (int c = SOAK_COMMS - 1; c >= 0; c--) NCCL_OK(ncclCommDestroy(w->comm[c]));
    for (int s = 0; s < SOAK_STREAMS; s++) CU_OK(cuStreamDestroy(w->stream[s]));
    CU_OK(cuMemFree(w->send));
    CU_OK(cuMemFree(w->recv));
    CU_OK(cuMemFreeHost(w->batch.send));
    CU_OK(cuMemFreeHost(w->batch.recv));
    CU_OK(cuMemFreeHost(w->batch.image));
    CU_OK(cuMemFreeHost(w->received));
    CU_OK(cuMemFreeHost(w->ended));
}

static void body(struct part *part) {
    const int rank = part->rank[0].rank;
    pthread_t threads[MOST_THREADS];
    pthread_mutex_init(&turns[rank].lock, NULL);
    pthread_cond_init(&turns[rank].passed, NULL);
    for (int t = 0; t < options.threads; t++) workers[rank][t] = worker_open(part, t);
    made++;
    part_barrier(part);
    for (int t = 0; t < options.threads; t++) CHECK(pthread_create(&threads[t], NULL, work, workers[rank][t]) == 0);
    for (int t = 0; t < options.threads; t++) pthread_join(threads[t], NULL);
    part_barrier(part);
    for (int t = 0; t < options.threads; t++) worker_close(workers[rank][t]);
}

/* --- what watches over it --- */
static uint64_t progress(void) {
    uint64_t sum = made;
    for (int r = 0; r < options.box.nranks && made == (uint64_t)options.box.nranks; r++)
        for (int t = 0; t < options.threads; t++) sum += workers[r][t]->calls + (uint64_t)workers[r][t]->at;
    return sum;
}

/* Calls of the thread that has come furthest, its batch included. */
static uint64_t reached(void) {
    uint64_t most = 0;
    for (int r = 0; r < options.box.nranks && made == (uint64_t)options.box.nranks; r++)
        for (int t = 0; t < options.threads; t++) {
            const uint64_t calls = workers[r][t]->calls + (uint64_t)workers[r][t]->batch.count;
            if (calls > most) most = calls;
        }
    return most;
}

/* Where a thread is, and the first of its calls that have not ended. */
static void tell_place(const struct worker *w) {
    enum { MOST = 6 };
    const int at = w->at, count = w->batch.count;
    char text[256];
    dprintf(1, "# rank %d thread %d: %llu calls checked, then %d of %d issued%s\n", w->plan.rank, w->thread,
            (unsigned long long)w->calls, at, count, at == count ? ", waits for them" : "");
    for (int i = 0, told = 0; i < at && told < MOST; i++) {
        if (*(volatile uint32_t *)&w->ended[i] == w->batches) continue;
        call_text(&w->batch.call[i], text, sizeof text);
        dprintf(1, "#   not ended: %d, communicator %d, %s\n", i, w->batch.call[i].comm, text);
        told++;
    }
}

static void *watchdog(void *unused) {
    uint64_t before = 0;
    for (double since = box_seconds(); box_seconds() - since < (double)options.hang; usleep(500000)) {
        const uint64_t sum = progress();
        if (sum != before) since = box_seconds();
        before = sum;
        dprintf(1, "# reached %llu calls\n", (unsigned long long)reached());
    }
    for (int r = 0; r < options.box.nranks; r++)
        for (int t = 0; t < options.threads && workers[r][t]; t++) tell_place(workers[r][t]);
    give_up(2, reached(), "no progress for %ld s", options.hang);
}

static int run(void) {
    pthread_t thread;
    const double start = box_seconds();
    uint64_t calls = 0, bytes = 0;
    CHECK(pthread_create(&thread, NULL, watchdog, NULL) == 0);
    box_run(&options.box, body);
    for (int r = 0; r < options.box.nranks; r++)
        for (int t = 0; t < options.threads; t++) {
            calls += r ? 0 : workers[r][t]->calls;
            bytes += workers[r][t]->bytes;
            free(workers[r][t]);
        }
    printf(
        "soak: ok, seed %llu: %llu calls of each of %d ranks by %ld threads in %.0f s, %.3g bytes checked, 0 wrong\n",
        (unsigned long long)options.seed, (unsigned long long)calls, options.box.nranks, options.threads,
        box_seconds() - start, (double)bytes);
    return 0;
}

/* --- main --- */
static size_t number(const char *what, const char *text) {
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (end != text && *end == 'K') value <<= 10, end++;
    if (end != text && *end == 'M') value <<= 20, end++;
    if (*end || end == text) {
        fprintf(stderr, "%s %s: not a number\n", what, text);
        exit(2);
    }
    return value;
}

static const struct option accepted[] = {
    {"ranks", required_argument, NULL, 'n'},  {"threads", required_argument, NULL, 't'},
    {"seed", required_argument, NULL, 's'},   {"seconds", required_argument, NULL, 'T'},
    {"calls", required_argument, NULL, 'c'},  {"most", required_argument, NULL, 'm'},
    {"no-graphs", no_argument, NULL, 'g'},    {"hang", required_argument, NULL, 'h'},
    {"shrink", required_argument, NULL, 'k'}, {"no-shrink", no_argument, NULL, 'K'},
    {"child", no_argument, NULL, 'C'},        {0}};

int main(int argc, char **argv) {
    for (int c; (c = getopt_long(argc, argv, "", accepted, NULL)) != -1;) {
        switch (c) {
        case 'n': options.box.nranks = (int)number("--ranks", optarg); break;
        case 't': options.threads = (long)number("--threads", optarg); break;
        case 's': options.seed = number("--seed", optarg); break;
        case 'T': options.seconds = (long)number("--seconds", optarg); break;
        case 'c':
            options.calls = number("--calls", optarg);
            options.seconds = 1 << 20;
            break;
        case 'm': options.most = number("--most", optarg); break;
        case 'g': options.no_graphs = true; break;
        case 'h': options.hang = (long)number("--hang", optarg); break;
        case 'k': options.shrink = (long)number("--shrink", optarg); break;
        case 'K': options.shrink = 0; break;
        case 'C': options.child = true; break;
        default: return 2;
        }
    }
    if (options.threads < 1 || options.threads > MOST_THREADS || options.most < 1) {
        fprintf(stderr, "--threads: 1 to %d; --most: 1 or more\n", MOST_THREADS);
        return 2;
    }
    /* A stream for each thread and one for what NCCL does beside would share queues by default, in which one waits for another. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    if (options.child) return run();
    return soak_parent(argc, argv, options.seed, options.shrink);
}
