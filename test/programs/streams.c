/* streams.c - streams that are gone, that come back under the same handle, and that are not ordinary ones. */
#include "programs.h"

#include <pthread.h>
#include <unistd.h>

/* --- destroyed_stream: the stream of a call is gone when the next call comes --- */
enum goodbye { SYNCHRONIZED, PENDING };

static void destroyed(struct part *part, const struct settings *s, enum goodbye goodbye, bool captures) {
    struct vector large, small, captured;
    struct graph graph;
    const ncclComm_t comm = comm_open(part);
    CUstream kept = stream_open();
    vector_open(&large, s->large);
    vector_open(&small, s->small);
    vector_open(&captured, s->small);
    for (long k = 0; k < s->repeat; k++) {
        const uint64_t seed = s->seed + (uint64_t)k;
        vector_fill(part, &large, seed);
        vector_fill(part, &small, seed + 1);
        vector_fill(part, &captured, seed + 2);
        part_barrier(part);
        doing(part, "round %ld: %zu bytes on a stream that will be destroyed", k, s->large);
        CUstream passing = stream_open();
        vector_allreduce(&large, comm, passing);
        if (goodbye == SYNCHRONIZED) stream_sync(passing);
        stream_close(passing);
        if (captures) { /* on a stream that is gone before the graph is launched */
            doing(part, "round %ld: a captured call behind a destroyed stream", k);
            CUstream other = stream_open();
            capture_begin(other);
            vector_allreduce(&captured, comm, other);
            capture_end(other, &graph);
            stream_close(other);
            CU_OK(cuGraphLaunch(graph.exec, kept));
        }
        doing(part, "round %ld: %zu bytes behind a destroyed stream", k, s->small);
        vector_allreduce(&small, comm, kept);
        stream_sync(kept);
        vector_check_all(part, &small);
        vector_check_all(part, &large);
        if (captures) {
            vector_check_all(part, &captured);
            graph_close(&graph);
        }
    }
    comm_close(part, comm);
    stream_close(kept);
    vector_close(&large);
    vector_close(&small);
    vector_close(&captured);
}

static void destroyed_stream(struct part *part, const struct settings *s) {
    destroyed(part, s, SYNCHRONIZED, false);
}
static void destroyed_stream_pending(struct part *part, const struct settings *s) {
    destroyed(part, s, PENDING, false);
}
static void destroyed_stream_captured(struct part *part, const struct settings *s) {
    destroyed(part, s, PENDING, true);
}

/* --- reused_stream: each call has a stream of its own, destroyed with the call under way; its handle comes back --- */
enum { SLOTS = 32 };

static void reused_stream(struct part *part, const struct settings *s) {
    struct vector vector[SLOTS];
    const ncclComm_t comm = comm_open(part);
    CUstream kept = stream_open();
    for (int i = 0; i < SLOTS; i++) vector_open(&vector[i], s->small);
    for (long k = 0; k < s->repeat; k++) {
        for (int i = 0; i < SLOTS; i++) vector_fill(part, &vector[i], s->seed * 1000 + (uint64_t)(k * SLOTS + i));
        part_barrier(part);
        for (int i = 0; i < SLOTS - 1; i++) {
            const uint64_t call = (uint64_t)(k * SLOTS + i);
            doing(part, "round %ld: call %d on a stream of its own", k, i);
            /* One rank or another is late now and then: before the call, or on the device. */
            if (draw(s->seed, call, (uint64_t)part->box->nranks + 2) == (uint64_t)self(part)->rank) usleep(30);
            CUstream passing = stream_open();
            if (draw(s->seed, ~call, (uint64_t)part->box->nranks * 3) == (uint64_t)self(part)->rank) delay(passing, 30);
            vector_allreduce(&vector[i], comm, passing);
            stream_close(passing);
        }
        doing(part, "round %ld: synchronizing behind %d destroyed streams", k, SLOTS - 1);
        vector_allreduce(&vector[SLOTS - 1], comm, kept);
        stream_sync(kept);
        for (int i = 0; i < SLOTS; i++) vector_check_all(part, &vector[i]);
    }
    comm_close(part, comm);
    stream_close(kept);
    for (int i = 0; i < SLOTS; i++) vector_close(&vector[i]);
}

/* --- heir_of_stream: a stream is destroyed with calls under way, and the next one made in its place has a call of another communicator, which
 * the other ranks make only when they have the results of all before; captured: those calls are graphs --- */
enum { UNDER_WAY = 3 };

static void heir(struct part *part, const struct settings *s, bool captured) {
    const ncclComm_t comm = comm_open(part), other = comm_open(part);
    const bool first = self(part)->rank == 0;
    struct vector vector[UNDER_WAY], behind;
    struct graph graph;
    CUevent ended;
    CUstream kept = stream_open();
    CU_OK(cuEventCreate(&ended, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < UNDER_WAY; i++) vector_open(&vector[i], s->small);
    vector_open(&behind, s->small);
    vector_warm_up(part, &vector[0], comm, kept);
    vector_warm_up(part, &behind, other, kept);
    for (long k = 0; k < s->repeat; k++) {
        for (int i = 0; i < UNDER_WAY; i++) vector_fill(part, &vector[i], s->seed + (uint64_t)(UNDER_WAY * k + i));
        vector_fill(part, &behind, s->seed + (uint64_t)k);
        part_barrier(part);
        doing(part, "round %ld: calls on a stream that is destroyed", k);
        if (!first) usleep(20000); /* all of rank 0's are launched before */
        CUstream passing = stream_open();
        if (captured) capture_begin(passing);
        for (int i = 0; i < UNDER_WAY; i++) vector_allreduce(&vector[i], comm, passing);
        if (captured) capture_end(passing, &graph);
        if (captured) CU_OK(cuGraphLaunch(graph.exec, passing));
        CU_OK(cuEventRecord(ended, passing));
        if (!first) stream_sync(passing);
        stream_close(passing);
        doing(part, "round %ld: a call on its heir", k);
        passing = stream_open();
        vector_allreduce(&behind, other, passing);
        stream_sync(passing);
        stream_close(passing);
        CU_OK(cuEventSynchronize(ended));
        for (int i = 0; i < UNDER_WAY; i++) vector_check_all(part, &vector[i]);
        vector_check_all(part, &behind);
        if (captured) graph_close(&graph);
    }
    comm_close(part, other);
    comm_close(part, comm);
    CU_OK(cuEventDestroy(ended));
    stream_close(kept);
    for (int i = 0; i < UNDER_WAY; i++) vector_close(&vector[i]);
    vector_close(&behind);
}

static void heir_of_stream(struct part *part, const struct settings *s) {
    heir(part, s, false);
}
static void heir_of_stream_captured(struct part *part, const struct settings *s) {
    heir(part, s, true);
}

/* --- captured_beside_eager: two captures at once, each with calls on two streams, and eager calls in between --- */
struct branches {
    CUstream stream[2];
    CUevent event;
    struct graph graph;
    struct vector vector[2];
};

static void branches_open(struct branches *b, size_t bytes) {
    CU_OK(cuEventCreate(&b->event, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < 2; i++) {
        b->stream[i] = stream_open();
        vector_open(&b->vector[i], bytes);
    }
}

static void branches_begin(struct branches *b) {
    capture_begin(b->stream[0]);
    CU_OK(cuEventRecord(b->event, b->stream[0]));
    CU_OK(cuStreamWaitEvent(b->stream[1], b->event, CU_EVENT_WAIT_DEFAULT));
}

static void branches_end(struct branches *b) {
    CU_OK(cuEventRecord(b->event, b->stream[1]));
    CU_OK(cuStreamWaitEvent(b->stream[0], b->event, CU_EVENT_WAIT_DEFAULT));
    CU_OK(cuStreamEndCapture(b->stream[0], &b->graph.graph));
}

static void branches_close(struct branches *b) {
    graph_close(&b->graph);
    CU_OK(cuEventDestroy(b->event));
    for (int i = 0; i < 2; i++) {
        stream_close(b->stream[i]);
        vector_close(&b->vector[i]);
    }
}

static void captured_beside_eager(struct part *part, const struct settings *s) {
    struct branches b[2];
    struct vector eager;
    const ncclComm_t comm = comm_open(part);
    CUstream plain = stream_open();
    vector_open(&eager, s->small);
    for (int g = 0; g < 2; g++) branches_open(&b[g], s->middle);
    vector_warm_up(part, &b[0].vector[0], comm, plain);
    vector_warm_up(part, &eager, comm, plain);
    for (int g = 0; g < 2; g++) branches_begin(&b[g]);
    for (int i = 0; i < 2; i++)
        for (int g = 0; g < 2; g++) {
            doing(part, "capture %d, stream %d", g, i);
            vector_allreduce(&b[g].vector[i], comm, b[g].stream[i]);
            vector_allreduce(&eager, comm, plain);
        }
    for (int g = 0; g < 2; g++) branches_end(&b[g]);
    for (int g = 0; g < 2; g++) CU_OK(cuGraphInstantiateWithFlags(&b[g].graph.exec, b[g].graph.graph, 0));
    stream_sync(plain);
    vector_check_all(part, &eager);
    for (long k = 0; k < s->repeat; k++) {
        for (int v = 0; v < 4; v++) vector_fill(part, &b[v / 2].vector[v % 2], s->seed + (uint64_t)(4 * k + v));
        vector_fill(part, &eager, s->seed + (uint64_t)k);
        part_barrier(part);
        doing(part, "replay %ld", k);
        for (int g = 0; g < 2; g++) {
            CU_OK(cuGraphLaunch(b[g].graph.exec, b[g].stream[0]));
            vector_allreduce(&eager, comm, plain);
        }
        for (int g = 0; g < 2; g++) stream_sync(b[g].stream[0]);
        stream_sync(plain);
        for (int v = 0; v < 4; v++) vector_check_all(part, &b[v / 2].vector[v % 2]);
        vector_check_all(part, &eager);
    }
    comm_close(part, comm);
    for (int g = 0; g < 2; g++) branches_close(&b[g]);
    stream_close(plain);
    vector_close(&eager);
}

/* --- group_on_streams: a group's calls are on three streams, which is as if all of it were on each of them ---
 * What one call sends is written on another's stream, late, and only one of the streams is waited for. */
enum { ON_STREAMS = 3 };

static void group_on_streams(struct part *part, const struct settings *s) {
    const size_t bytes[ON_STREAMS] = {s->small, s->middle, s->large};
    struct vector vector[ON_STREAMS];
    CUstream stream[ON_STREAMS];
    CUdeviceptr kept;
    const ncclComm_t comm = comm_open(part);
    CU_OK(cuMemAlloc(&kept, s->large));
    for (int i = 0; i < ON_STREAMS; i++) {
        stream[i] = stream_open();
        vector_open(&vector[i], bytes[i]);
        vector_warm_up(part, &vector[i], comm, stream[i]);
    }
    for (int k = 0; k < ON_STREAMS * ON_STREAMS * s->repeat; k++) {
        const int late = k % ON_STREAMS, of = (late + 1 + k / ON_STREAMS % 2) % ON_STREAMS,
                  awaited = k / ON_STREAMS % ON_STREAMS;
        for (int i = 0; i < ON_STREAMS; i++) vector_fill(part, &vector[i], s->seed + (uint64_t)(ON_STREAMS * k + i));
        CU_OK(cuMemcpyDtoDAsync(kept, vector[of].send, bytes[of], stream[of]));
        CU_OK(cuMemcpyDtoDAsync(vector[of].send, vector[of].recv, bytes[of], stream[of])); /* poison */
        stream_sync(stream[of]);
        part_barrier(part);
        doing(part, "round %d: call %d sends what comes late on stream %d; stream %d is waited for", k, of, late,
              awaited);
        delay(stream[late], 3000);
        CU_OK(cuMemcpyDtoDAsync(vector[of].send, kept, bytes[of], stream[late]));
        NCCL_OK(ncclGroupStart());
        for (int i = 0; i < ON_STREAMS; i++) vector_allreduce(&vector[i], comm, stream[i]);
        NCCL_OK(ncclGroupEnd());
        stream_sync(stream[awaited]);
        for (int i = 0; i < ON_STREAMS; i++) vector_check_all(part, &vector[i]);
    }
    comm_close(part, comm);
    for (int i = 0; i < ON_STREAMS; i++) {
        stream_close(stream[i]);
        vector_close(&vector[i]);
    }
    CU_OK(cuMemFree(kept));
}

/* --- streams that are not made by cuStreamCreate --- */
/* Calls in turn on `odd` and on an ordinary stream. */
static void in_turn(struct part *part, const struct settings *s, CUstream odd) {
    struct vector small, middle;
    const ncclComm_t comm = comm_open(part);
    CUstream plain = stream_open();
    vector_open(&small, s->small);
    vector_open(&middle, s->middle);
    for (long k = 0; k < s->repeat; k++) {
        vector_fill(part, &small, s->seed + (uint64_t)k);
        vector_fill(part, &middle, s->seed + (uint64_t)k + 7);
        part_barrier(part);
        doing(part, "round %ld: on two streams in turn", k);
        if (draw(s->seed, (uint64_t)k, 2) == (uint64_t)self(part)->rank % 2) delay(odd, 100);
        vector_allreduce(&small, comm, odd);
        vector_allreduce(&middle, comm, plain);
        vector_allreduce(&middle, comm, odd);
        vector_allreduce(&small, comm, plain);
        stream_sync(plain);
        stream_sync(odd);
        vector_check_all(part, &small);
        vector_check_all(part, &middle);
    }
    comm_close(part, comm);
    stream_close(plain);
    vector_close(&small);
    vector_close(&middle);
}

static void legacy_stream(struct part *part, const struct settings *s) {
    in_turn(part, s, CU_STREAM_LEGACY);
    in_turn(part, s, NULL);
}

struct passing_thread {
    struct part *part;
    const struct vector *vector;
    ncclComm_t comm;
    uint64_t us;
};

static void *call_and_leave(void *argument) {
    const struct passing_thread *t = argument;
    part_enter(t->part, 0);
    if (t->us) delay(CU_STREAM_PER_THREAD, t->us);
    vector_allreduce(t->vector, t->comm, CU_STREAM_PER_THREAD);
    return NULL;
}

/* Each call by a thread of its own, on its per-thread stream; it leaves with the call under way. */
static void per_thread_streams(struct part *part, const struct settings *s) {
    struct vector vector[SLOTS];
    const ncclComm_t comm = comm_open(part);
    for (int i = 0; i < SLOTS; i++) vector_open(&vector[i], s->small);
    for (long k = 0; k < s->repeat; k++) {
        for (int i = 0; i < SLOTS; i++) vector_fill(part, &vector[i], s->seed * 1000 + (uint64_t)(k * SLOTS + i));
        part_barrier(part);
        for (int i = 0; i < SLOTS; i++) {
            pthread_t thread;
            const bool late = draw(s->seed, (uint64_t)(k * SLOTS + i), 4) == (uint64_t)self(part)->rank;
            struct passing_thread call = {part, &vector[i], comm, late ? 50 : 0};
            doing(part, "round %ld: call %d by a thread that leaves", k, i);
            if (i == SLOTS - 1) {
                call_and_leave(&call);
                break;
            }
            CHECK(pthread_create(&thread, NULL, call_and_leave, &call) == 0);
            pthread_join(thread, NULL);
        }
        stream_sync(CU_STREAM_PER_THREAD);
        for (int i = 0; i < SLOTS; i++) vector_check_all(part, &vector[i]);
    }
    comm_close(part, comm);
    for (int i = 0; i < SLOTS; i++) vector_close(&vector[i]);
}

/* --- captured_after_small: of each collective, a small call and then a large one that is captured --- */
static struct call call_of(struct part *part, enum bl_collective collective, size_t bytes, uint64_t seed) {
    struct call call = {
        .collective = collective, .datatype = ncclInt32, .redop = ncclSum, .count = bytes / 4, .seed = seed};
    call_allocate(part, &call, bytes * (size_t)part->box->nranks);
    call_prepare(part, &call);
    return call;
}

static void capture_after(struct part *part, const struct settings *s, enum bl_collective collective, unsigned flags,
                          bool grouped) {
    const ncclComm_t comm = comm_open(part);
    struct call small = call_of(part, collective, s->small, s->seed),
                large = call_of(part, collective, s->large, s->seed + 1);
    struct graph graph;
    CUstream stream;
    CU_OK(cuStreamCreate(&stream, flags));
    part_barrier(part);
    doing(part, "%s of %zu bytes", collective_name(collective), s->small);
    NCCL_OK(call_issue_rank(part, &small, 0, comm, stream));
    stream_sync(stream);
    doing(part, "%s of %zu bytes, captured%s", collective_name(collective), s->large, grouped ? " in a group" : "");
    capture_begin(stream);
    if (grouped) NCCL_OK(ncclGroupStart());
    NCCL_OK(call_issue_rank(part, &large, 0, comm, stream));
    if (grouped) NCCL_OK(ncclGroupEnd());
    capture_end(stream, &graph);
    CU_OK(cuGraphLaunch(graph.exec, stream));
    stream_sync(stream);
    call_check(part, &small);
    call_check(part, &large);
    graph_close(&graph);
    comm_close(part, comm);
    stream_close(stream);
    call_free(part, &small);
    call_free(part, &large);
}

static void captured_after_small(struct part *part, const struct settings *s) {
    for (int c = 0; c < BL_COLLECTIVES; c++) {
        capture_after(part, s, (enum bl_collective)c, CU_STREAM_NON_BLOCKING, false);
        capture_after(part, s, (enum bl_collective)c, CU_STREAM_DEFAULT, c % 2);
    }
}

/* --- broadcast_in_place: ncclBcast, which is another call of NCCL's inside --- */
static void broadcast_in_place(struct part *part, const struct settings *s) {
    const ncclComm_t comm = comm_open(part);
    CUstream first = stream_open(), second = stream_open();
    struct vector small, large;
    vector_open(&small, s->small);
    vector_open(&large, s->large);
    for (long k = 0; k < s->repeat; k++) {
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
        vector_fill(part, &small, s->seed + (uint64_t)k);
        vector_fill(part, &large, s->seed + (uint64_t)k);
        part_barrier(part);
        vector_allreduce(&small, comm, first);
        doing(part, "round %ld: a large ncclBcast, then the maximum of some of it on another stream", k);
        delay(second, 50000);
        NCCL_OK(ncclBcast((void *)large.send, large.count, ncclInt32, 0, comm, second));
        struct vector part_of_it = {small.count, s->seed + (uint64_t)k, large.send, large.recv};
        NCCL_OK(ncclAllReduce((void *)large.send, (void *)large.recv, small.count, ncclInt32, ncclMax, comm, first));
        stream_sync(first);
        stream_sync(second);
        CU_OK(cuThreadExchangeStreamCaptureMode(&mode));
        CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL, "rank %d: the thread's capture mode is %d", self(part)->rank,
              (int)mode);
        vector_check_all(part, &small);
        vector_check(part, &part_of_it, 0, 0); /* all ranks have rank 0's */
    }
    comm_close(part, comm);
    stream_close(first);
    stream_close(second);
    vector_close(&small);
    vector_close(&large);
}

static void green_context(struct part *part, const struct settings *s) {
    const CUgreenCtx green = green_open(part, 2);
    CUstream stream = green_stream_open(green);
    in_turn(part, s, stream);
    stream_close(stream);
    green_close(green);
}

const struct program stream_programs[] = {
    {"destroyed_stream", destroyed_stream},
    {"destroyed_stream_pending", destroyed_stream_pending},
    {"destroyed_stream_captured", destroyed_stream_captured},
    {"reused_stream", reused_stream},
    {"heir_of_stream", heir_of_stream},
    {"heir_of_stream_captured", heir_of_stream_captured},
    {"group_on_streams", group_on_streams},
    {"captured_beside_eager", captured_beside_eager},
    {"captured_after_small", captured_after_small},
    {"broadcast_in_place", broadcast_in_place},
    {"legacy_stream", legacy_stream},
    {"per_thread_streams", per_thread_streams},
    {"green_context", green_context},
    {0},
};
