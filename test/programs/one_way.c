/* one_way.c - who has sent what it has to send is done: the root of small broadcasts, and those that reduce to a root, alone and in groups of both. */
#include "programs.h"

#include <stdio.h>

enum { MOST_AHEAD = 8 };

struct one_way {
    struct vector vector[MOST_AHEAD];
    ncclComm_t comm;
    CUstream stream;
};

static void one_way_open(struct part *part, const struct settings *s, struct one_way *o) {
    doing(part, "making a communicator");
    *o = (struct one_way){.comm = comm_open(part), .stream = stream_open()};
    for (int i = 0; i < MOST_AHEAD; i++) vector_open(&o->vector[i], s->small);
}

static void one_way_free(struct one_way *o) {
    stream_close(o->stream);
    for (int i = 0; i < MOST_AHEAD; i++) vector_close(&o->vector[i]);
}

static void issue(const struct one_way *o, bool reduces, int calls) {
    for (int i = 0; i < calls; i++) {
        if (reduces)
            vector_reduce(&o->vector[i], 0, o->comm, o->stream);
        else
            vector_broadcast(&o->vector[i], 0, o->comm, o->stream);
    }
}

/* All ranks call: NCCL connects ranks at the first call of a kind, for which all must come. */
static void meet(struct part *part, struct one_way *o, bool reduces, uint64_t seed) {
    doing(part, "the first call, of all ranks");
    vector_fill(part, &o->vector[0], seed);
    issue(o, reduces, 1);
    stream_sync(o->stream);
    if (!reduces || self(part)->rank == 0) vector_check(part, &o->vector[0], 0, reduces ? last_rank(part) : 0);
}

static void ahead(struct part *part, const struct settings *s, bool reduces, int calls) {
    struct one_way o;
    const bool sends = (self(part)->rank == 0) != reduces;
    one_way_open(part, s, &o);
    for (long k = 0; k < s->repeat; k++) {
        const uint64_t seed = s->seed + (uint64_t)k * MOST_AHEAD;
        meet(part, &o, reduces, seed);
        for (int i = 0; i < calls; i++) vector_fill(part, &o.vector[i], seed + (uint64_t)i);
        part_barrier(part);
        doing(part, "round %ld: %d calls ahead of those who receive", k, calls);
        if (sends) {
            issue(&o, reduces, calls);
            stream_sync(o.stream);
        } else {
            doing(part, "round %ld: waits until those who send have synchronized their streams", k);
        }
        part_barrier(part);
        doing(part, "round %ld: receiving", k);
        if (!sends) {
            issue(&o, reduces, calls);
            stream_sync(o.stream);
        }
        for (int i = 0; i < calls && (!reduces || !sends); i++)
            vector_check(part, &o.vector[i], 0, reduces ? last_rank(part) : 0);
    }
    comm_close(part, o.comm);
    one_way_free(&o);
}

static void one_way_broadcast(struct part *part, const struct settings *s) {
    ahead(part, s, false, 2);
}
static void one_way_broadcast_8(struct part *part, const struct settings *s) {
    ahead(part, s, false, 8);
}
static void one_way_reduce(struct part *part, const struct settings *s) {
    ahead(part, s, true, 2);
}
static void one_way_reduce_8(struct part *part, const struct settings *s) {
    ahead(part, s, true, 8);
}

/* --- one_way_mixed: groups in which rank 0 only sends, broadcasts and sums for rank 1, without the buffers that ranks need not have --- */
enum { SENDS = 3 };

static void group_of_sender(struct part *part, const struct one_way *o) {
    const int rank = self(part)->rank;
    NCCL_OK(ncclGroupStart());
    for (int i = 0; i < SENDS; i++) {
        const void *from = (const void *)o->vector[i].send;
        void *const to = (void *)o->vector[i].recv;
        if (i == 1)
            NCCL_OK(ncclBroadcast(rank ? NULL : from, rank ? to : (void *)o->vector[i].send, o->vector[i].count,
                                  ncclInt32, 0, o->comm, o->stream));
        else
            NCCL_OK(
                ncclReduce(from, rank == 1 ? to : NULL, o->vector[i].count, ncclInt32, ncclSum, 1, o->comm, o->stream));
    }
    NCCL_OK(ncclGroupEnd());
}

static void check_group_of_sender(struct part *part, const struct one_way *o) {
    const int rank = self(part)->rank;
    if (rank) vector_check(part, &o->vector[1], 0, 0);
    for (int i = 0; i < SENDS && rank == 1; i += 2) vector_check(part, &o->vector[i], 0, last_rank(part));
}

static void one_way_mixed(struct part *part, const struct settings *s) {
    struct one_way o;
    one_way_open(part, s, &o);
    for (long k = -1; k < s->repeat; k++) { /* first all of them, for which NCCL connects ranks */
        const bool sends = self(part)->rank == 0 && k >= 0;
        for (int i = 0; i < SENDS; i++) vector_fill(part, &o.vector[i], s->seed + (uint64_t)(k * SENDS + i));
        for (int receives = 0; receives < 2; receives++) {
            part_barrier(part);
            doing(part, "round %ld: groups %s", k, receives ? "of who receives" : "ahead of those who receive");
            if (sends == (bool)receives) continue;
            for (int group = 0; group < 2; group++) group_of_sender(part, &o);
            stream_sync(o.stream);
        }
        check_group_of_sender(part, &o);
    }
    comm_close(part, o.comm);
    one_way_free(&o);
}

/* --- one_way_behind: eight broadcasts ahead of those who receive, behind a group in which all take part --- */
static void one_way_behind(struct part *part, const struct settings *s) {
    struct vector sum, gathered;
    struct one_way o;
    one_way_open(part, s, &o);
    vector_open(&sum, s->middle);
    vector_open(&gathered, s->middle);
    meet(part, &o, false, s->seed);
    for (long k = 0; k < s->repeat; k++) {
        const uint64_t seed = s->seed + (uint64_t)(k + 1) * (MOST_AHEAD + 1);
        for (int i = 0; i < MOST_AHEAD; i++) vector_fill(part, &o.vector[i], seed + (uint64_t)i);
        vector_fill(part, &sum, seed + MOST_AHEAD);
        part_barrier(part);
        doing(part, "round %ld: the group", k);
        NCCL_OK(ncclGroupStart());
        vector_allreduce(&sum, o.comm, o.stream);
        NCCL_OK(ncclAllGather((void *)gathered.send, (void *)gathered.recv, gathered.count / (size_t)part->box->nranks,
                              ncclInt32, o.comm, o.stream));
        NCCL_OK(ncclGroupEnd());
        stream_sync(o.stream);
        vector_check_all(part, &sum);
        for (int receives = 0; receives < 2; receives++) {
            part_barrier(part);
            doing(part, "round %ld: broadcasts %s", k, receives ? "of who receives" : "ahead of those who receive");
            if ((self(part)->rank == 0) == (bool)receives) continue;
            issue(&o, false, MOST_AHEAD);
            stream_sync(o.stream);
        }
        for (int i = 0; i < MOST_AHEAD; i++) vector_check(part, &o.vector[i], 0, 0);
    }
    comm_close(part, o.comm);
    one_way_free(&o);
    vector_close(&sum);
    vector_close(&gathered);
}

/* --- one_way_unreceived: two calls of any size at least are through for who sends ahead of those who receive --- */
enum { LEAST_UNRECEIVED = 2, MOST_UNRECEIVED = 12 };

typedef void one_way_call(const struct vector *vector, int root, ncclComm_t comm, CUstream stream);

static int unreceived(struct part *part, const struct settings *s, struct vector *vector, one_way_call *call,
                      bool sends, ncclComm_t comm, CUstream stream) {
    int calls = 0, taken = 0;
    call(vector, 0, comm, stream); /* NCCL connects */
    stream_sync(stream);
    vector_fill(part, vector, s->seed + vector->count);
    part_barrier(part);
    doing(part, "%zu elements that nobody receives yet", vector->count);
    for (; sends && calls < MOST_UNRECEIVED && taken == calls; calls++) {
        call(vector, 0, comm, stream);
        taken += is_through(stream, calls < LEAST_UNRECEIVED ? 10000 : 600);
    }
    part_barrier(part);
    doing(part, "%zu elements: the others", vector->count);
    for (; calls < MOST_UNRECEIVED; calls++) call(vector, 0, comm, stream);
    stream_sync(stream);
    CHECK(!sends || taken >= LEAST_UNRECEIVED, "%d calls of %zu elements end without a receiver", taken, vector->count);
    return taken;
}

static void one_way_unreceived(struct part *part, const struct settings *s) {
    const ncclComm_t comm = comm_open(part);
    const CUstream stream = stream_open();
    const bool is_root = self(part)->rank == 0;
    for (size_t bytes = s->small; bytes <= s->middle; bytes *= 4) {
        struct vector vector;
        vector_open(&vector, bytes);
        const int broadcasts = unreceived(part, s, &vector, vector_broadcast, is_root, comm, stream);
        vector_check(part, &vector, 0, 0);
        const int reduces = unreceived(part, s, &vector, vector_reduce, !is_root, comm, stream);
        if (is_root) vector_check(part, &vector, 0, last_rank(part));
        if (self(part)->rank < 2)
            printf("%8zu K: %d %s\n", bytes >> 10, is_root ? broadcasts : reduces, is_root ? "broadcasts" : "reduces");
        vector_close(&vector);
    }
    comm_close(part, comm);
    stream_close(stream);
}

/* --- the root leaves after its broadcasts, for which the others never call --- */
enum farewell { FINALIZE, DESTROY, ABORT };

static void leave(struct part *part, const struct settings *s, enum farewell farewell) {
    for (long k = 0; k < s->repeat; k++) {
        struct one_way o;
        one_way_open(part, s, &o);
        meet(part, &o, false, s->seed + (uint64_t)k);
        part_barrier(part);
        if (self(part)->rank == 0) {
            const double start = box_seconds();
            doing(part, "round %ld: broadcasting", k);
            issue(&o, false, 2);
            doing(part, "round %ld: leaving a communicator whose other ranks never called", k);
            if (farewell == FINALIZE) NCCL_OK(ncclCommFinalize(o.comm));
            if (farewell == ABORT)
                NCCL_OK(ncclCommAbort(o.comm));
            else
                NCCL_OK(ncclCommDestroy(o.comm));
            stream_sync(o.stream);
            took(box_seconds() - start);
            part_barrier(part);
        } else {
            doing(part, "round %ld: waits until rank 0 has left", k);
            part_barrier(part);
            doing(part, "round %ld: aborting", k);
            NCCL_OK(ncclCommAbort(o.comm));
        }
        one_way_free(&o);
    }
}

static void one_way_finalize(struct part *part, const struct settings *s) {
    leave(part, s, FINALIZE);
}
static void one_way_destroy(struct part *part, const struct settings *s) {
    leave(part, s, DESTROY);
}
static void one_way_abort(struct part *part, const struct settings *s) {
    leave(part, s, ABORT);
}

const struct program one_way_programs[] = {
    {"one_way_broadcast", one_way_broadcast},
    {"one_way_broadcast_8", one_way_broadcast_8},
    {"one_way_reduce", one_way_reduce},
    {"one_way_reduce_8", one_way_reduce_8},
    {"one_way_finalize", one_way_finalize},
    {"one_way_destroy", one_way_destroy},
    {"one_way_abort", one_way_abort},
    {"one_way_unreceived", one_way_unreceived},
    {"one_way_mixed", one_way_mixed},
    {"one_way_behind", one_way_behind},
    {0},
};
