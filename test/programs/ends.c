/* ends.c - communicators that are finalized, aborted or revoked while something is under way. */
#include "programs.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

/* A communicator that has served a call, and one stream. */
struct session {
    struct part *part;
    struct vector vector;
    ncclComm_t comm;
    CUstream stream;
};

static void serve(struct session *t, uint64_t seed) {
    doing(t->part, "a call of all ranks");
    vector_fill(t->part, &t->vector, seed);
    vector_allreduce(&t->vector, t->comm, t->stream);
    stream_sync(t->stream);
    vector_check_all(t->part, &t->vector);
}

static void session_open(struct session *t, struct part *part, const struct settings *s, long k, bool nonblocking) {
    doing(part, "round %ld: making a communicator", k);
    *t = (struct session){.part = part, .stream = stream_open()};
    t->comm = nonblocking ? comm_open_nonblocking(part) : comm_open(part);
    vector_open(&t->vector, s->small);
    if (!nonblocking) serve(t, s->seed + (uint64_t)k);
    part_barrier(part);
}

static void session_free(struct session *t) {
    stream_close(t->stream);
    vector_close(&t->vector);
    doing(t->part, "waits for the other ranks at the end of a round");
    part_barrier(t->part);
}

/* What ends a communicator from outside: NCCL's function, timed. */
static void end_comm(struct session *t, const char *what, ncclResult_t (*end)(ncclComm_t)) {
    const double start = box_seconds();
    doing(t->part, "%s", what);
    NCCL_OK(end(t->comm));
    took(box_seconds() - start);
}

/* --- a thread launches in a loop, and waits in a launch in the end, since a peer is late; another ends the communicator --- */
struct launcher {
    struct session *session;
    _Atomic bool stop;
    _Atomic long calls;
};

static void *launch_in_a_loop(void *argument) {
    struct launcher *l = argument;
    const struct session *t = l->session;
    part_enter(t->part, 0);
    for (; !l->stop; l->calls++)
        if (ncclAllReduce((void *)t->vector.send, (void *)t->vector.recv, t->vector.count, ncclInt32, ncclSum, t->comm,
                          t->stream) != ncclSuccess)
            break;
    return NULL;
}

static void end_beside_launches(struct part *part, const struct settings *s, const char *what,
                                ncclResult_t (*end)(ncclComm_t), ncclResult_t (*then)(ncclComm_t)) {
    for (long k = 0; k < s->repeat; k++) {
        struct session t;
        struct launcher launcher = {.session = &t};
        pthread_t thread;
        const bool launches = self(part)->rank != last_rank(part);
        session_open(&t, part, s, k, false);
        if (launches) {
            CHECK(pthread_create(&thread, NULL, launch_in_a_loop, &launcher) == 0);
            doing(part, "round %ld: another thread launches", k);
            /* In some rounds its queue is full by then, in some it is not. */
            usleep(k % 2 ? 1000 : 300000);
            launcher.stop = true;
        }
        end_comm(&t, what, end);
        if (launches) {
            doing(part, "round %ld: waits for the thread that launched, after %ld calls", k, launcher.calls);
            pthread_join(thread, NULL);
        }
        doing(part, "round %ld: synchronizing the stream afterwards", k);
        stream_sync(t.stream);
        if (then) NCCL_OK(then(t.comm));
        session_free(&t);
    }
}

static void abort_beside_launches(struct part *part, const struct settings *s) {
    end_beside_launches(part, s, "aborting beside launches", ncclCommAbort, NULL);
}

static ncclResult_t (*comm_revoke)(ncclComm_t, int);
static ncclResult_t revoke_by_default(ncclComm_t comm) {
    return comm_revoke(comm, 0);
}

static void revoke_beside_launches(struct part *part, const struct settings *s) {
    comm_revoke = (__typeof__(comm_revoke))dlsym(RTLD_DEFAULT, "ncclCommRevoke");
    if (!comm_revoke) box_skip("this NCCL has no ncclCommRevoke");
    end_beside_launches(part, s, "revoking beside launches", revoke_by_default, ncclCommDestroy);
}

/* --- a thread has calls in an open group --- */
struct collector {
    struct session *session;
    pthread_barrier_t *met;
};

static void *collect(void *argument) {
    const struct collector *c = argument;
    const struct session *t = c->session;
    part_enter(t->part, 0);
    NCCL_OK(ncclGroupStart());
    for (int i = 0; i < 3; i++) vector_allreduce(&t->vector, t->comm, t->stream);
    pthread_barrier_wait(c->met); /* collected */
    pthread_barrier_wait(c->met); /* aborted */
    ncclGroupEnd();               /* whatever it says, it returns */
    return NULL;
}

static void abort_open_group(struct part *part, const struct settings *s) {
    for (long k = 0; k < s->repeat; k++) {
        struct session t;
        pthread_barrier_t met;
        pthread_t thread;
        struct collector collector = {&t, &met};
        session_open(&t, part, s, k, false);
        pthread_barrier_init(&met, NULL, 2);
        doing(part, "round %ld: another thread collects calls in a group", k);
        CHECK(pthread_create(&thread, NULL, collect, &collector) == 0);
        pthread_barrier_wait(&met);
        end_comm(&t, "aborting beside an open group", ncclCommAbort);
        pthread_barrier_wait(&met);
        doing(part, "round %ld: the other thread ends its group", k);
        pthread_join(thread, NULL);
        pthread_barrier_destroy(&met);
        stream_sync(t.stream);
        session_free(&t);
    }
}

/* --- a nonblocking init that a rank never joins --- */
static void abort_init(struct part *part, const struct settings *s) {
    for (long k = 0; k < s->repeat; k++) {
        struct session t;
        ncclUniqueId id;
        session_open(&t, part, s, k, false);
        box_unique_id(part, 2000 + (int)k, &id);
        if (self(part)->rank != last_rank(part)) {
            ncclComm_t comm = NULL;
            ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
            config.blocking = 0;
            doing(part, "round %ld: init", k);
            NCCL_GOES(ncclCommInitRankConfig(&comm, part->box->nranks, id, self(part)->rank, &config));
            usleep((useconds_t)draw(s->seed, (uint64_t)k, 200000));
            const double start = box_seconds();
            doing(part, "round %ld: aborting an init that waits for a rank", k);
            NCCL_GOES(ncclCommAbort(comm));
            took(box_seconds() - start);
        }
        part_barrier(part);
        serve(&t, s->seed + (uint64_t)k + 1); /* other communicators are as they were */
        comm_close(part, t.comm);
        session_free(&t);
    }
}

/* --- a nonblocking communicator's send to a peer that never receives --- */
static void dead_peer(struct part *part, const struct settings *s, bool connected) {
    for (long k = 0; k < s->repeat; k++) {
        struct session t;
        CUdeviceptr buffer;
        const int last = last_rank(part);
        session_open(&t, part, s, k, true);
        CU_OK(cuMemAlloc(&buffer, s->large));
        for (int times = connected ? 2 : 1; times > 0; times--) {
            const bool first = times == 2; /* the peer takes this one */
            part_barrier(part);
            doing(part, "round %ld: %s", k,
                  first ? "sending to a peer that receives" : "sending to a peer that never receives");
            if (self(part)->rank == 0) NCCL_GOES(ncclSend((void *)buffer, s->large, ncclInt8, last, t.comm, t.stream));
            if (self(part)->rank == last && first)
                NCCL_GOES(ncclRecv((void *)buffer, s->large, ncclInt8, 0, t.comm, t.stream));
            doing(part, "round %ld: polling", k);
            for (int polls = 0; first ? comm_state(t.comm) == ncclInProgress : polls < 300; polls++) {
                NCCL_GOES(comm_state(t.comm));
                usleep(1000);
            }
            if (first) stream_sync(t.stream);
        }
        part_barrier(part);
        const double start = box_seconds();
        doing(part, "round %ld: aborting", k);
        NCCL_GOES(ncclCommAbort(t.comm));
        took(box_seconds() - start);
        stream_sync(t.stream);
        CU_OK(cuMemFree(buffer));
        session_free(&t);
    }
}

static void nonblocking_dead_peer(struct part *part, const struct settings *s) {
    dead_peer(part, s, true);
}
static void nonblocking_unconnected_peer(struct part *part, const struct settings *s) {
    dead_peer(part, s, false);
}

/* --- a communicator ends while a call on another one waits for a peer, which comes only then --- */
static void end_beside_another(struct part *part, const struct settings *s, const char *what,
                               ncclResult_t (*end)(ncclComm_t)) {
    for (long k = 0; k < s->repeat; k++) {
        struct session ending, other;
        session_open(&ending, part, s, k, false);
        session_open(&other, part, s, k, false);
        vector_fill(part, &other.vector, s->seed + (uint64_t)k + 1);
        part_barrier(part);
        if (self(part)->rank == 0) vector_allreduce(&other.vector, other.comm, other.stream);
        end_comm(&ending, what, end);
        doing(part, "round %ld: waits until all have ended it", k);
        part_barrier(part);
        if (self(part)->rank > 0) vector_allreduce(&other.vector, other.comm, other.stream);
        doing(part, "round %ld: synchronizing the other communicator's stream", k);
        stream_sync(other.stream);
        vector_check_all(part, &other.vector);
        comm_close(part, other.comm);
        session_free(&other);
        session_free(&ending);
    }
}

static void abort_beside_another(struct part *part, const struct settings *s) {
    end_beside_another(part, s, "aborting beside another's call", ncclCommAbort);
}
static void destroy_beside_another(struct part *part, const struct settings *s) {
    end_beside_another(part, s, "destroying beside another's call", ncclCommDestroy);
}

/* A nonblocking communicator's finalize is in progress as long as its calls are. */
static void finalize_nonblocking(struct part *part, const struct settings *s) {
    const ncclComm_t comm = comm_open_nonblocking(part);
    const CUstream stream = stream_open();
    struct vector v;
    vector_open(&v, s->small);
    for (int late = 0; late < 2; late++) { /* ranks connect at the first call */
        vector_fill(part, &v, s->seed + (uint64_t)late);
        part_barrier(part);
        if (late) delay(stream, 100000);
        NCCL_GOES(ncclAllReduce((void *)v.send, (void *)v.recv, v.count, ncclInt32, ncclSum, comm, stream));
        while (comm_state(comm) == ncclInProgress) usleep(100);
        if (!late) stream_sync(stream);
    }
    NCCL_GOES(ncclCommFinalize(comm));
    while (comm_state(comm) == ncclInProgress) usleep(100);
    CHECK(cu.cuStreamQuery(stream) == CUDA_SUCCESS, "finalized, and its last call has not ended");
    vector_check_all(part, &v);
    part_barrier(part);
    NCCL_OK(ncclCommDestroy(comm));
    stream_close(stream);
    vector_close(&v);
}

/* NCCL finalizes at the end of the group, so the group's calls and messages are made.  2.28.9 does so ahead of them, and fails where ranks are not yet
 * connected, which the first group sees to. */
static void finalize_in_group(struct part *part, const struct settings *s) {
    const int rank = self(part)->rank, n = part->box->nranks, next = (rank + 1) % n, before = (rank + n - 1) % n;
    for (long k = 0; k < s->repeat; k++) {
        const ncclComm_t comm = comm_open(part);
        const CUstream stream = stream_open();
        struct vector small, large, message;
        struct vector *const all[] = {&small, &large, &message};
        for (int i = 0; i < 3; i++) vector_open(all[i], i == 1 ? s->middle : s->small);
        for (int ends = 0; ends < 2; ends++) {
            for (int i = 0; i < 3; i++) vector_fill(part, all[i], s->seed + (uint64_t)(6 * k + 3 * ends + i));
            part_barrier(part);
            doing(part, ends ? "a group that ends it" : "the same group");
            NCCL_OK(ncclGroupStart());
            vector_allreduce(&small, comm, stream);
            NCCL_OK(ncclSend((void *)message.send, message.count, ncclInt32, next, comm, stream));
            NCCL_OK(ncclRecv((void *)message.recv, message.count, ncclInt32, before, comm, stream));
            if (k % 2) vector_allreduce(&large, comm, stream);
            if (ends) NCCL_OK(ncclCommFinalize(comm));
            NCCL_OK(ncclGroupEnd());
            stream_sync(stream);
            vector_check_all(part, &small);
            vector_check(part, &message, before, before);
            if (k % 2) vector_check_all(part, &large);
        }
        part_barrier(part);
        NCCL_OK(ncclCommDestroy(comm));
        stream_close(stream);
        for (int i = 0; i < 3; i++) vector_close(all[i]);
    }
}

/* Rank 0 ends what has failed, and then the others. */
static void abort_first(struct part *part, ncclComm_t comm, CUstream stream) {
    doing(part, "abort");
    if (self(part)->rank == 0) NCCL_OK(ncclCommAbort(comm));
    if (self(part)->rank == 0) stream_sync(stream);
    part_barrier(part);
    if (self(part)->rank) NCCL_OK(ncclCommAbort(comm));
    stream_close(stream);
}

/* Of rank 0 NCCL finds that it has failed, as the box has it at this call, while its last call waits for rank 1, which does not come: once that is known
 * its calls are refused, and so are its finalize and destroy, at once; an abort ends it. */
static void failed_communicator(struct part *part, const struct settings *s) {
    const ncclComm_t comm = comm_open(part);
    const CUstream stream = stream_open();
    struct vector v;
    vector_open(&v, s->small);
    vector_warm_up(part, &v, comm, stream);
    vector_fill(part, &v, s->seed);
    part_barrier(part);
    if (self(part)->rank == 0) {
        void *registered;
        ncclResult_t state;
        vector_allreduce(&v, comm, stream);
        ncclCommRegister(comm, (void *)v.send, s->small, &registered);
        doing(part, "asking");
        NCCL_OK(ncclCommGetAsyncError(comm, &state));
        CHECK(state == ncclRemoteError, "it has not failed: %d", state);
        doing(part, "a call");
        state = ncclAllReduce((void *)v.send, (void *)v.recv, v.count, ncclInt32, ncclSum, comm, stream);
        CHECK(state == ncclRemoteError, "a call is taken: %d", state);
        doing(part, "finalize");
        state = ncclCommFinalize(comm);
        CHECK(state == ncclRemoteError, "finalize: %d", state);
        doing(part, "destroy");
        state = ncclCommDestroy(comm);
        CHECK(state == ncclRemoteError, "destroy: %d", state);
    }
    abort_first(part, comm, stream);
    vector_close(&v);
}

/* The same of a nonblocking one, of whose last group NCCL has a large sum, and a small message comes behind that: which is not launched any more, though its
 * peer may have made its call.  Nobody has asked how the communicator is before the next call, which is refused. */
static void failed_nonblocking(struct part *part, const struct settings *s) {
    const ncclComm_t comm = comm_open_nonblocking(part);
    const CUstream stream = stream_open();
    struct vector small, large;
    vector_open(&small, s->small);
    vector_open(&large, s->large);
    vector_fill(part, &small, s->seed);
    vector_fill(part, &large, s->seed + 1);
    part_barrier(part);
    if (self(part)->rank == 0) {
        void *registered;
        doing(part, "a group");
        NCCL_OK(ncclGroupStart());
        vector_allreduce(&large, comm, stream);
        NCCL_OK(ncclSend((void *)small.send, small.count, ncclInt32, 1, comm, stream));
        NCCL_GOES(ncclGroupEnd());
        ncclCommRegister(comm, (void *)small.send, s->small, &registered);
        doing(part, "a call");
        const ncclResult_t called =
            ncclAllReduce((void *)small.send, (void *)small.recv, small.count, ncclInt32, ncclSum, comm, stream);
        CHECK(called == ncclRemoteError, "a call is taken: %d", called);
        CHECK(comm_state(comm) == ncclRemoteError, "it is well");
    }
    abort_first(part, comm, stream);
    vector_close(&small);
    vector_close(&large);
}

/* Ranks of one process: the call is behind something that the host lets go once rank 0's communicator is destroyed, which waits for nothing while there are
 * others. */
static CUdeviceptr gate;
static volatile uint32_t *gate_on_host;

static void destroyed_first(struct part *part, const struct settings *s) {
    const ncclComm_t comm = comm_open(part);
    const CUstream stream = stream_open();
    const bool first = self(part)->rank == 0;
    struct vector v;
    vector_open(&v, s->small);
    vector_warm_up(part, &v, comm, stream);
    vector_fill(part, &v, s->seed);
    if (first) {
        CU_OK(cuMemHostAlloc((void **)&gate_on_host, 4096, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
        CU_OK(cuMemHostGetDevicePointer(&gate, (void *)gate_on_host, 0));
        *gate_on_host = 0;
    }
    part_barrier(part);
    if (!first) CU_OK(cuStreamWaitValue32(stream, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
    vector_allreduce(&v, comm, stream);
    part_barrier(part);
    doing(part, "destroy");
    if (first) NCCL_OK(ncclCommDestroy(comm));
    if (first) *gate_on_host = 1;
    part_barrier(part); /* the last one waits for all */
    if (!first) NCCL_OK(ncclCommDestroy(comm));
    doing(part, "sync");
    stream_sync(stream);
    vector_check_all(part, &v);
    part_barrier(part);
    if (first) CU_OK(cuMemFreeHost((void *)gate_on_host));
    stream_close(stream);
    vector_close(&v);
}

const struct program end_programs[] = {
    {"finalize_nonblocking", finalize_nonblocking},
    {"finalize_in_group", finalize_in_group},
    {"destroyed_first", destroyed_first},
    {"abort_beside_launches", abort_beside_launches},
    {"revoke_beside_launches", revoke_beside_launches},
    {"abort_open_group", abort_open_group},
    {"abort_init", abort_init},
    {"nonblocking_dead_peer", nonblocking_dead_peer},
    {"nonblocking_unconnected_peer", nonblocking_unconnected_peer},
    {0},
};

/* The real NCCL's own abort and destroy wait for the other call, too; and it has not failed. */
const struct program unlisted_end_programs[] = {
    {"abort_beside_another", abort_beside_another},
    {"destroy_beside_another", destroy_beside_another},
    {"failed_communicator", failed_communicator},
    {"failed_nonblocking", failed_nonblocking},
    {0},
};
