/* mixed_groups.c - groups with small messages and large ones, which different hands may carry, in every situation of
 * a group. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "messages.h"

/* --- messages_mixed: one rank of a pair has small and large ones in one group, the other takes them step by step --- */
enum { MIXED = 4, STEPS = 3 };

static const struct {
    bool large[MIXED];    /* of which the first two go one way, the others back */
    unsigned step[STEPS]; /* masks of messages, each step waited for */
} mixes[] = {
    {{false, true, false, true}, {1 | 4, 2 | 8}},
    {{false, true, true, false}, {1, 2 | 4, 8}},
    {{true, false, true, false}, {1 | 4, 2 | 8}},
};
enum { MIXES = sizeof mixes / sizeof *mixes };

/* If `captured`: that stream captures such a group of rank 0's meanwhile. */
static void mixed(struct part *part, const struct settings *s, ncclComm_t comm, CUstream stream, CUstream captured) {
    const int n = part->box->nranks, rank = self(part)->rank, first = rank / 2 * MIXED;
    const bool captures = captured && rank == 0;
    struct graph graph;
    messages_connect(part, s, n, comm, stream);
    for (int k = 0; k < 2 * MIXES * s->repeat; k++) {
        const int mix = k / 2 % MIXES;
        struct messages list = {0};
        for (int even = 0; even + 1 < n; even += 2)
            for (int m = 0; m < MIXED; m++)
                messages_add(&list, even + m / 2, even + 1 - m / 2, mixes[mix].large[m] ? s->large : s->small);
        messages_open(part, &list);
        messages_fill(part, &list, s->seed + (uint64_t)k);
        part_barrier(part);
        if (captures) {
            doing(part, "mix %d: capturing", mix);
            capture_begin_relaxed(captured);
            messages_group(part, &list, BOTH_ENDS, 0, list.count, comm, captured);
        }
        doing(part, "mix %d: %s ranks group all", mix, k % 2 ? "odd" : "even");
        if (rank % 2 == k % 2) messages_group(part, &list, BOTH_ENDS, 0, list.count, comm, stream);
        for (int step = 0; rank % 2 != k % 2 && step < STEPS && first < list.count; step++) {
            NCCL_OK(ncclGroupStart());
            for (int m = 0; m < MIXED; m++)
                if (mixes[mix].step[step] >> m & 1)
                    messages_post(part, &list, BOTH_ENDS, first + m, first + m + 1, comm, stream);
            group_end(comm);
            stream_sync(stream);
        }
        stream_sync(stream);
        if (captures) {
            capture_end(captured, &graph);
            graph_close(&graph); /* and was never launched */
        }
        messages_check(part, &list);
        messages_close(&list);
    }
    comm_close(part, comm);
    stream_close(stream);
}

static void messages_mixed(struct part *part, const struct settings *s) {
    mixed(part, s, comm_open(part), stream_open(), NULL);
}
static void messages_mixed_nonblocking(struct part *part, const struct settings *s) {
    mixed(part, s, comm_open_nonblocking(part), stream_open(), NULL);
}
/* NCCL's part has some of the multiprocessors only. */
static void messages_mixed_green(struct part *part, const struct settings *s) {
    const CUgreenCtx green = green_open(part, 4);
    mixed(part, s, comm_open(part), green_stream_open(green), NULL);
    green_close(green);
}

static void messages_mixed_beside_capture(struct part *part, const struct settings *s) {
    const CUstream captured = stream_open();
    mixed(part, s, comm_open(part), stream_open(), captured);
    stream_close(captured);
}

/* --- messages_mixed_polled: it is another thread that hears how a nonblocking communicator is, as watchdogs do; NCCL bears one thread at a
 * time --- */
struct watchdog {
    struct part *part;
    ncclComm_t comm;
    pthread_mutex_t lock;
    atomic_bool stop, busy; /* set by who makes a call; cleared once it is on its stream */
};

static void *poll_state(void *argument) {
    struct watchdog *w = argument;
    part_enter(w->part, 0);
    while (!atomic_load(&w->stop)) {
        pthread_mutex_lock(&w->lock);
        if (comm_state(w->comm) != ncclInProgress) atomic_store(&w->busy, false);
        pthread_mutex_unlock(&w->lock);
        usleep(20);
    }
    return NULL;
}

static void watched_group_begin(struct watchdog *w) {
    pthread_mutex_lock(&w->lock);
    NCCL_OK(ncclGroupStart());
}
static void watched_group_end(struct watchdog *w) {
    NCCL_GOES(ncclGroupEnd());
    atomic_store(&w->busy, true);
    pthread_mutex_unlock(&w->lock);
    while (atomic_load(&w->busy)) usleep(50);
}

static void messages_mixed_polled(struct part *part, const struct settings *s) {
    enum { EACH = 40 }; /* more than a launch takes */
    const int n = part->box->nranks;
    const CUstream stream = stream_open();
    struct watchdog watchdog = {.part = part, .comm = comm_open_nonblocking(part), .lock = PTHREAD_MUTEX_INITIALIZER};
    const ncclComm_t comm = watchdog.comm;
    struct messages list = {0};
    struct vector large, small;
    pthread_t thread;
    messages_connect(part, s, n, comm, stream);
    for (int m = 0; m < EACH; m++)
        for (int r = 0; r < n; r++)
            messages_add(&list, r, (r + 1) % n, m == EACH / 2 ? s->large : s->small + (size_t)m);
    messages_open(part, &list);
    vector_open(&large, s->large);
    vector_open(&small, s->small);
    CHECK(pthread_create(&thread, NULL, poll_state, &watchdog) == 0);
    for (long k = 0; k < 10 * s->repeat; k++) {
        messages_fill(part, &list, s->seed + (uint64_t)k);
        vector_fill(part, &large, s->seed + (uint64_t)k);
        vector_fill(part, &small, s->seed + (uint64_t)k + 1);
        part_barrier(part);
        doing(part, "group %ld of messages", k);
        watched_group_begin(&watchdog);
        messages_post(part, &list, BOTH_ENDS, 0, list.count, comm, stream);
        watched_group_end(&watchdog);
        doing(part, "group %ld of collectives", k);
        watched_group_begin(&watchdog);
        for (int i = 0; i < 3; i++) vector_allreduce(i == 1 ? &large : &small, comm, stream);
        watched_group_end(&watchdog);
        stream_sync(stream);
        messages_check(part, &list);
        vector_check_all(part, &large);
        vector_check_all(part, &small);
    }
    atomic_store(&watchdog.stop, true);
    pthread_join(thread, NULL);
    comm_close(part, comm);
    vector_close(&large);
    vector_close(&small);
    messages_close(&list);
    stream_close(stream);
}

/* --- messages_mixed_abandoned: of a group that is aborted nobody sends anything, or it is not even on its stream yet --- */
static void messages_mixed_abandoned(struct part *part, const struct settings *s) {
    const int last = last_rank(part);
    for (int k = 0; k < 4; k++) {
        const bool nonblocking = k % 2, at_once = k / 2;
        const ncclComm_t comm = nonblocking ? comm_open_nonblocking(part) : comm_open(part);
        const CUstream stream = stream_open();
        struct messages list = {0};
        messages_connect(part, s, part->box->nranks, comm, stream);
        messages_add(&list, last, 0, s->small);
        messages_add(&list, last, 0, s->large);
        messages_open(part, &list);
        messages_fill(part, &list, s->seed + (uint64_t)k);
        part_barrier(part);
        doing(part, "%s receives%s", nonblocking ? "nonblocking" : "blocking", at_once ? ", aborted at once" : "");
        NCCL_OK(ncclGroupStart());
        messages_post(part, &list, RECEIVED, 0, list.count, comm, stream);
        if (at_once)
            NCCL_GOES(ncclGroupEnd());
        else
            group_end(comm);
        if (!at_once) usleep(20000);
        /* Rank 0 first: of a peer's abort its group would hear as of an error, if that is still on its way. */
        if (self(part)->rank != 0) part_barrier(part);
        const double start = box_seconds();
        NCCL_OK(ncclCommAbort(comm));
        stream_sync(stream);
        took(box_seconds() - start);
        if (self(part)->rank == 0) part_barrier(part);
        messages_close(&list); /* NCCL's kernel may leave anything behind when it is told to end */
        stream_close(stream);
        part_barrier(part);
    }
}

/* --- messages_two_communicators: a group with messages of both kinds on one, and small ones and a sum on the other --- */
static void messages_two_communicators(struct part *part, const struct settings *s) {
    const int n = part->box->nranks;
    const ncclComm_t comm[] = {comm_open(part), comm_open(part)};
    const CUstream stream[] = {stream_open(), stream_open()};
    struct vector sum;
    struct messages list[2] = {{0}, {0}};
    vector_open(&sum, s->small);
    for (int c = 0; c < 2; c++) messages_connect(part, s, n, comm[c], stream[c]);
    vector_warm_up(part, &sum, comm[1], stream[1]);
    for (int m = 0; m < 4; m++)
        for (int r = 0; r < n; r++)
            for (int c = 0; c < 2; c++) messages_add(&list[c], r, (r + 1) % n, c == 0 && m % 2 ? s->large : s->small);
    for (int c = 0; c < 2; c++) messages_open(part, &list[c]);
    for (long k = 0; k < 4 * s->repeat; k++) {
        for (int c = 0; c < 2; c++) messages_fill(part, &list[c], s->seed + (uint64_t)(2 * k + c));
        vector_fill(part, &sum, s->seed + (uint64_t)k);
        part_barrier(part);
        doing(part, "group %ld", k);
        const CUstream other = stream[k % 2]; /* or the same */
        NCCL_OK(ncclGroupStart());
        messages_post(part, &list[1], BOTH_ENDS, 0, n, comm[1], other);
        messages_post(part, &list[0], BOTH_ENDS, 0, list[0].count, comm[0], stream[0]);
        vector_allreduce(&sum, comm[1], other);
        messages_post(part, &list[1], BOTH_ENDS, n, list[1].count, comm[1], other);
        NCCL_OK(ncclGroupEnd());
        for (int i = 0; i < 2; i++) stream_sync(stream[i]);
        for (int c = 0; c < 2; c++) messages_check(part, &list[c]);
        vector_check_all(part, &sum);
    }
    for (int c = 0; c < 2; c++) {
        comm_close(part, comm[c]);
        messages_close(&list[c]);
        stream_close(stream[c]);
    }
    vector_close(&sum);
}

static ncclResult_t simulate(void) {
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    ncclResult_t (*const end)(ncclSimInfo_t *) =
        (ncclResult_t(*)(ncclSimInfo_t *))dlsym(RTLD_DEFAULT, "ncclGroupSimulateEnd");
    if (!end) box_skip("this NCCL has no ncclGroupSimulateEnd");
    return end(&info);
}

/* --- messages_simulated: a group that is only tried, and then made.  (Of another one NCCL would have the messages of that which was tried.) --- */
static void messages_simulated(struct part *part, const struct settings *s) {
    const int n = part->box->nranks;
    const ncclComm_t comm = comm_open(part);
    const CUstream stream = stream_open();
    struct messages list = {0};
    messages_connect(part, s, n, comm, stream);
    for (int m = 0; m < 4; m++)
        for (int r = 0; r < n; r++) messages_add(&list, r, (r + 1) % n, m % 2 ? s->large : s->small);
    messages_open(part, &list);
    for (long k = 0; k < 3 * s->repeat; k++) {
        messages_fill(part, &list, s->seed + (uint64_t)k);
        part_barrier(part);
        doing(part, "group %ld, tried", k);
        NCCL_OK(ncclGroupStart());
        messages_post(part, &list, BOTH_ENDS, 0, list.count, comm, stream);
        NCCL_OK(simulate());
        stream_sync(stream);
        messages_check_untouched(part, &list);
        part_barrier(part);
        doing(part, "group %ld, made", k);
        messages_group(part, &list, BOTH_ENDS, 0, list.count, comm, stream);
        stream_sync(stream);
        messages_check(part, &list);
    }
    comm_close(part, comm);
    messages_close(&list);
    stream_close(stream);
}

/* --- alltoall_simulated: all-to-alls that are only tried, and then made, of which NCCL makes messages, too (and connects no peers any more if the first
 * are only tried) --- */
static void alltoall_simulated(struct part *part, const struct settings *s) {
    enum { CALLS = 4 };
    const ncclComm_t comm = comm_open(part);
    const CUstream stream = stream_open();
    const size_t block[CALLS] = {s->small, s->large, s->large + 4, s->small};
    struct call call[CALLS];
    for (int i = 0; i < CALLS; i++) {
        call[i] = (struct call){.collective = BL_ALLTOALL,
                                .datatype = ncclInt32,
                                .redop = ncclSum,
                                .count = block[i] / 4,
                                .seed = s->seed + (uint64_t)i};
        call_allocate(part, &call[i], block[i] * (size_t)part->box->nranks);
    }
    for (long k = 0; k <= 2 * s->repeat; k++) {
        for (int i = 0; i < CALLS; i++) call_prepare(part, &call[i]);
        for (int made = k == 0; made < 2; made++) {
            part_barrier(part);
            doing(part, "group %ld, %s", k, made ? "made" : "tried");
            NCCL_OK(ncclGroupStart());
            for (int i = 0; i < CALLS; i++) NCCL_OK(call_issue_rank(part, &call[i], 0, comm, stream));
            NCCL_OK(made ? ncclGroupEnd() : simulate());
            stream_sync(stream);
        }
        for (int i = 0; i < CALLS; i++) call_check(part, &call[i]);
    }
    comm_close(part, comm);
    stream_close(stream);
    for (int i = 0; i < CALLS; i++) call_free(part, &call[i]);
}

/* --- messages_mixed_first: a process's first messages are a group with both, of which the small one comes once the large one is there --- */
static void messages_mixed_first(struct part *part, const struct settings *s) {
    const int rank = self(part)->rank, n = part->box->nranks, next = (rank + 1) % n, before = (rank + n - 1) % n;
    const ncclComm_t comm = comm_open(part);
    const CUstream stream = stream_open();
    struct vector large, small;
    vector_open(&large, s->large);
    vector_open(&small, s->small);
    for (long k = 0; k < s->repeat; k++) {
        vector_fill(part, &large, s->seed + (uint64_t)(2 * k));
        vector_fill(part, &small, s->seed + (uint64_t)(2 * k + 1));
        part_barrier(part);
        doing(part, "group %ld", k);
        if (rank % 2 == 0 && next != 0) {
            NCCL_OK(ncclGroupStart());
            NCCL_OK(ncclSend((void *)large.send, large.count, ncclInt32, next, comm, stream));
            NCCL_OK(ncclRecv((void *)small.recv, small.count, ncclInt32, next, comm, stream));
            NCCL_OK(ncclGroupEnd());
        } else if (rank % 2) {
            NCCL_OK(ncclRecv((void *)large.recv, large.count, ncclInt32, before, comm, stream));
            NCCL_OK(ncclSend((void *)small.send, small.count, ncclInt32, before, comm, stream));
        }
        stream_sync(stream);
        if (rank % 2 == 0 && next != 0) vector_check(part, &small, next, next);
        if (rank % 2) vector_check(part, &large, before, before);
    }
    comm_close(part, comm);
    stream_close(stream);
    vector_close(&large);
    vector_close(&small);
}

/* --- messages_mixed_first_collective: NCCL's first collective is in a group with messages of both, of which rank 0 has one of either hand, ranks 1 and 2
 * one each: behind the collective on rank 1, which waits for it on rank 0; messages_mixed_known_collective: it has been there alone --- */
static void first_collective(struct part *part, const struct settings *s, bool known) {
    const int rank = self(part)->rank, n = part->box->nranks;
    if (n < 3) box_skip("of three ranks");
    const ncclComm_t comm = comm_open(part);
    const CUstream stream = stream_open();
    struct vector large, small, summed;
    vector_open(&large, s->large);
    vector_open(&small, s->small);
    vector_open(&summed, s->large);
    if (known) vector_warm_up(part, &summed, comm, stream);
    vector_fill(part, &large, s->seed);
    vector_fill(part, &small, s->seed + 1);
    vector_fill(part, &summed, s->seed + 2);
    NCCL_OK(ncclGroupStart()); /* so that its first messages are not the ones below */
    NCCL_OK(ncclSend((void *)large.send, large.count, ncclInt32, (rank + 1) % n, comm, stream));
    NCCL_OK(ncclRecv((void *)large.recv, large.count, ncclInt32, (rank + n - 1) % n, comm, stream));
    NCCL_OK(ncclGroupEnd());
    stream_sync(stream);
    vector_fill(part, &large, s->seed + 3);
    part_barrier(part);
    doing(part, "the group");
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclAllReduce((void *)summed.send, (void *)summed.recv, summed.count, ncclInt32, ncclSum, comm, stream));
    if (rank == 0) NCCL_OK(ncclSend((void *)large.send, large.count, ncclInt32, 2, comm, stream));
    if (rank == 0) NCCL_OK(ncclRecv((void *)small.recv, small.count, ncclInt32, 1, comm, stream));
    if (rank == 1) NCCL_OK(ncclSend((void *)small.send, small.count, ncclInt32, 0, comm, stream));
    if (rank == 2) NCCL_OK(ncclRecv((void *)large.recv, large.count, ncclInt32, 0, comm, stream));
    NCCL_OK(ncclGroupEnd());
    stream_sync(stream);
    if (rank == 0) vector_check(part, &small, 1, 1);
    if (rank == 2) vector_check(part, &large, 0, 0);
    vector_check_all(part, &summed);
    comm_close(part, comm);
    stream_close(stream);
    vector_close(&large);
    vector_close(&small);
    vector_close(&summed);
}

static void messages_mixed_first_collective(struct part *part, const struct settings *s) {
    first_collective(part, s, false);
}
static void messages_mixed_known_collective(struct part *part, const struct settings *s) {
    first_collective(part, s, true);
}

/* --- messages_mixed_empty: a collective of nothing in a group with messages of both; rank 2 comes to it once rank 1 has its small message, and rank 0
 * connects to rank 2 in it --- */
static _Atomic bool small_has_come;

static void messages_mixed_empty(struct part *part, const struct settings *s) {
    const int rank = self(part)->rank;
    if (part->box->nranks < 3) box_skip("of three ranks");
    const ncclComm_t comm = comm_open(part);
    const CUstream stream = stream_open();
    struct vector large, small;
    vector_open(&large, s->large);
    vector_open(&small, s->small);
    vector_fill(part, &large, s->seed);
    vector_fill(part, &small, s->seed + 1);
    NCCL_OK(ncclGroupStart()); /* so that its first messages are not the ones below */
    if (rank < 2) NCCL_OK(ncclSend((void *)large.send, large.count, ncclInt32, 1 - rank, comm, stream));
    if (rank < 2) NCCL_OK(ncclRecv((void *)large.recv, large.count, ncclInt32, 1 - rank, comm, stream));
    if (rank == 0) NCCL_OK(ncclSend((void *)small.send, small.count, ncclInt32, 2, comm, stream));
    if (rank == 2) NCCL_OK(ncclRecv((void *)small.recv, small.count, ncclInt32, 0, comm, stream));
    NCCL_OK(ncclGroupEnd());
    stream_sync(stream);
    vector_fill(part, &large, s->seed + 2);
    vector_fill(part, &small, s->seed + 3);
    small_has_come = false;
    part_barrier(part);
    doing(part, "the group");
    while (rank == 2 && !small_has_come) usleep(100);
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclAllReduce((void *)large.send, (void *)large.recv, 0, ncclInt32, ncclMax, comm, stream));
    if (rank == 0) NCCL_OK(ncclSend((void *)large.send, large.count, ncclInt32, 2, comm, stream));
    if (rank == 0) NCCL_OK(ncclSend((void *)small.send, small.count, ncclInt32, 1, comm, stream));
    if (rank == 1) NCCL_OK(ncclRecv((void *)small.recv, small.count, ncclInt32, 0, comm, stream));
    if (rank == 2) NCCL_OK(ncclRecv((void *)large.recv, large.count, ncclInt32, 0, comm, stream));
    NCCL_OK(ncclGroupEnd());
    stream_sync(stream);
    if (rank == 1) small_has_come = true;
    if (rank == 1) vector_check(part, &small, 0, 0);
    if (rank == 2) vector_check(part, &large, 0, 0);
    comm_close(part, comm);
    stream_close(stream);
    vector_close(&large);
    vector_close(&small);
}

/* --- messages_mixed_in_order: of one captured group rank 0 has messages of either hand on one communicator, rank 1 on another, and both small ones on
 * both --- */
static void messages_mixed_in_order(struct part *part, const struct settings *s) {
    if (part->box->nranks != 2) box_skip("of two ranks");
    const int rank = self(part)->rank, peer = 1 - rank;
    const ncclComm_t comm[] = {comm_open(part), comm_open(part)};
    const CUstream stream = stream_open();
    struct vector own, small[2];
    struct graph graph;
    vector_open(&own, s->large);
    for (int c = 0; c < 2; c++) vector_open(&small[c], s->small);
    for (int c = 0; c < 2; c++) { /* a communicator's first message of NCCL's may not be captured */
        NCCL_OK(ncclGroupStart());
        NCCL_OK(ncclSend((void *)own.send, own.count, ncclInt32, rank, comm[c], stream));
        NCCL_OK(ncclRecv((void *)own.recv, own.count, ncclInt32, rank, comm[c], stream));
        NCCL_OK(ncclGroupEnd());
        stream_sync(stream);
    }
    capture_begin(stream);
    NCCL_OK(ncclGroupStart());
    for (int c = 0; c < 2; c++) {
        NCCL_OK(ncclSend((void *)small[c].send, small[c].count, ncclInt32, peer, comm[c], stream));
        NCCL_OK(ncclRecv((void *)small[c].recv, small[c].count, ncclInt32, peer, comm[c], stream));
    }
    NCCL_OK(ncclSend((void *)own.send, own.count, ncclInt32, rank, comm[rank], stream));
    NCCL_OK(ncclRecv((void *)own.recv, own.count, ncclInt32, rank, comm[rank], stream));
    NCCL_OK(ncclGroupEnd());
    capture_end(stream, &graph);
    for (int k = 0; k < 3; k++) {
        vector_fill(part, &own, s->seed + (uint64_t)(3 * k));
        for (int c = 0; c < 2; c++) vector_fill(part, &small[c], s->seed + (uint64_t)(3 * k + 1 + c));
        part_barrier(part);
        doing(part, "replay %d", k);
        CU_OK(cuGraphLaunch(graph.exec, stream));
        stream_sync(stream);
        vector_check(part, &own, rank, rank);
        for (int c = 0; c < 2; c++) vector_check(part, &small[c], peer, peer);
    }
    graph_close(&graph);
    for (int c = 0; c < 2; c++) comm_close(part, comm[c]);
    stream_close(stream);
    vector_close(&own);
    for (int c = 0; c < 2; c++) vector_close(&small[c]);
}

/* --- messages_mixed_collectives: groups of two all-reduces, one of either hand, in which only ranks 0 and 1 have a message --- */
static void messages_mixed_collectives(struct part *part, const struct settings *s) {
    const int rank = self(part)->rank;
    const ncclComm_t comm = comm_open(part);
    CUstream stream = stream_open();
    struct vector large, middle, message;
    vector_open(&large, s->large);
    vector_open(&middle, s->middle);
    vector_open(&message, s->large);
    vector_warm_up(part, &large, comm, stream);
    vector_warm_up(part, &middle, comm, stream);
    for (int k = 0; k < 10 * s->repeat; k++) {
        vector_fill(part, &large, s->seed + (uint64_t)(3 * k));
        vector_fill(part, &middle, s->seed + (uint64_t)(3 * k + 1));
        vector_fill(part, &message, s->seed + (uint64_t)(3 * k + 2));
        part_barrier(part);
        doing(part, "group %d", k);
        if (rank == last_rank(part)) usleep(20000);
        NCCL_OK(ncclGroupStart());
        vector_allreduce(&large, comm, stream);
        vector_allreduce(&middle, comm, stream);
        if (rank == 0) NCCL_OK(ncclSend((void *)message.send, message.count, ncclInt32, 1, comm, stream));
        if (rank == 1) NCCL_OK(ncclRecv((void *)message.recv, message.count, ncclInt32, 0, comm, stream));
        NCCL_OK(ncclGroupEnd());
        stream_sync(stream);
        vector_check_all(part, &large);
        vector_check_all(part, &middle);
        if (rank == 1) vector_check(part, &message, 0, 0);
    }
    comm_close(part, comm);
    stream_close(stream);
    vector_close(&large);
    vector_close(&middle);
    vector_close(&message);
}

const struct program mixed_programs[] = {
    {"messages_mixed", messages_mixed},
    {"messages_mixed_nonblocking", messages_mixed_nonblocking},
    {"messages_mixed_first", messages_mixed_first},
    {"messages_mixed_first_collective", messages_mixed_first_collective},
    {"messages_mixed_known_collective", messages_mixed_known_collective},
    {"messages_mixed_empty", messages_mixed_empty},
    {"messages_mixed_in_order", messages_mixed_in_order},
    {"messages_mixed_collectives", messages_mixed_collectives},
    {"messages_mixed_green", messages_mixed_green},
    {"messages_mixed_beside_capture", messages_mixed_beside_capture},
    {"messages_mixed_polled", messages_mixed_polled},
    {"messages_mixed_abandoned", messages_mixed_abandoned},
    {"messages_two_communicators", messages_two_communicators},
    {"messages_simulated", messages_simulated},
    {"alltoall_simulated", alltoall_simulated},
    {0},
};
