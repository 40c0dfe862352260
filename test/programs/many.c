/* many.c - communicators with calls under way at the same time.  All ranks issue them in the same order. */
#include "programs.h"

#include <stdlib.h>
#include <string.h>
#include <pthread.h>

#include "reference.h"

enum { MOST = 30, ROUNDS = 4 };

/* What a communicator's calls are. */
struct lane {
    ncclComm_t comm;
    CUstream stream;
    struct vector vector[ROUNDS];
    struct graph graph[ROUNDS];
    bool replayed; /* its calls are in graphs */
};

enum sizes { SMALL, MIDDLE, MIXED }; /* of messages; mixed: every third is large, NCCL's */

static size_t bytes_of(const struct settings *s, enum sizes sizes, int c) {
    if (sizes == SMALL) return s->small * 16;
    return sizes == MIXED && c % 3 == 1 ? s->large : s->middle;
}

/* Random, and longer now and then. */
static uint64_t pause_us(const struct part *part, uint64_t seed, uint64_t which) {
    const uint64_t mine = ref_mix(seed, which * BOX_RANKS + (uint64_t)part->rank[0].rank);
    return mine % 8 ? mine / 8 % 100 : mine / 8 % 1000;
}

static void issue(struct part *part, struct lane *lane, int round, uint64_t us) {
    if (us) delay(lane->stream, us);
    if (lane->replayed)
        CU_OK(cuGraphLaunch(lane->graph[round].exec, lane->stream));
    else
        vector_allreduce(&lane->vector[round], lane->comm, lane->stream);
}

/* Their streams are of the green context, if there is one. */
static void lanes_open(struct part *part, const struct settings *s, struct lane *lanes, int count, enum sizes sizes,
                       bool graphs, CUgreenCtx green) {
    for (int c = 0; c < count; c++) {
        doing(part, "making communicator %d of %d", c, count);
        lanes[c] = (struct lane){.comm = comm_open(part),
                                 .stream = green ? green_stream_open(green) : stream_open(),
                                 .replayed = graphs && c % 2};
        for (int r = 0; r < ROUNDS; r++) vector_open(&lanes[c].vector[r], bytes_of(s, sizes, c));
    }
    for (int c = 0; c < count; c++) {
        if (lanes[c].replayed) vector_warm_up(part, &lanes[c].vector[0], lanes[c].comm, lanes[c].stream);
        for (int r = 0; r < ROUNDS && lanes[c].replayed; r++)
            vector_capture(part, &lanes[c].vector[r], lanes[c].comm, lanes[c].stream, &lanes[c].graph[r]);
    }
}

static void lanes_close(struct part *part, struct lane *lanes, int count) {
    for (int c = 0; c < count; c++) {
        for (int r = 0; r < ROUNDS; r++) {
            vector_close(&lanes[c].vector[r]);
            if (lanes[c].replayed) graph_close(&lanes[c].graph[r]);
        }
        comm_close(part, lanes[c].comm);
        stream_close(lanes[c].stream);
    }
}

static void many_of(struct part *part, const struct settings *s, int count, enum sizes sizes, bool graphs,
                    CUgreenCtx green) {
    static _Thread_local struct lane lanes[MOST];
    lanes_open(part, s, lanes, count, sizes, graphs, green);
    for (long k = 0; k < s->repeat; k++) {
        const uint64_t seed = s->seed * 100 + (uint64_t)k;
        for (int c = 0; c < count; c++)
            for (int r = 0; r < ROUNDS; r++)
                vector_fill(part, &lanes[c].vector[r], seed * 1000 + (uint64_t)(c * ROUNDS + r));
        part_barrier(part);
        for (int r = 0; r < ROUNDS; r++)
            for (int c = 0; c < count; c++) {
                doing(part, "repeat %ld: calling on communicator %d of %d, call %d", k, c, count, r);
                issue(part, &lanes[c], r, pause_us(part, seed, (uint64_t)(r * MOST + c)));
            }
        for (int c = 0; c < count; c++) {
            doing(part, "repeat %ld: waiting for communicator %d of %d", k, c, count);
            stream_sync(lanes[c].stream);
        }
        for (int c = 0; c < count; c++)
            for (int r = 0; r < ROUNDS; r++) vector_check_all(part, &lanes[c].vector[r]);
        part_barrier(part);
    }
    lanes_close(part, lanes, count);
}

static void many(struct part *part, const struct settings *s, int count, enum sizes sizes, bool graphs) {
    many_of(part, s, count, sizes, graphs, NULL);
}

static void many_communicators(struct part *part, const struct settings *s) {
    many(part, s, 5, MIDDLE, false);
}
static void many_communicators_12(struct part *part, const struct settings *s) {
    many(part, s, 12, SMALL, false);
}
static void many_communicators_30(struct part *part, const struct settings *s) {
    many(part, s, 30, SMALL, false);
}
static void many_communicators_mixed(struct part *part, const struct settings *s) {
    many(part, s, 5, MIXED, false);
}
static void many_communicators_graphs(struct part *part, const struct settings *s) {
    many(part, s, 5, MIDDLE, true);
}

/* A quarter of a GPU: what finds room on all of it may be too much there.  A few of NCCL's kernels are, too. */
static void many_in_green(struct part *part, const struct settings *s, bool graphs) {
    const CUgreenCtx green = green_open(part, 4);
    many_of(part, s, 5, MIDDLE, graphs, green);
    green_close(green);
}
static void green_communicators(struct part *part, const struct settings *s) {
    many_in_green(part, s, false);
}
static void green_communicators_graphs(struct part *part, const struct settings *s) {
    many_in_green(part, s, true);
}

/* Threads of a GPU, each with a communicator and a stream, that call at the same moment: nothing orders them. */
enum { THREADS = 4 };

struct driver_thread {
    struct part *part;
    struct lane *lane;
    pthread_barrier_t *start;
    uint64_t seed;
};

static void *drive(void *argument) {
    const struct driver_thread *t = argument;
    part_enter(t->part, 0);
    for (int r = 0; r < ROUNDS; r++) {
        pthread_barrier_wait(t->start);
        issue(t->part, t->lane, r, r % 2 ? 0 : pause_us(t->part, t->seed, (uint64_t)r));
    }
    stream_sync(t->lane->stream);
    return NULL;
}

static void many_communicators_threads(struct part *part, const struct settings *s) {
    struct lane lanes[THREADS];
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, THREADS);
    lanes_open(part, s, lanes, THREADS, MIDDLE, false, NULL);
    for (long k = 0; k < s->repeat; k++) {
        struct driver_thread threads[THREADS];
        pthread_t id[THREADS];
        for (int c = 0; c < THREADS; c++)
            for (int r = 0; r < ROUNDS; r++)
                vector_fill(part, &lanes[c].vector[r], s->seed * 1000 + (uint64_t)(k * 16 + c * ROUNDS + r));
        part_barrier(part);
        doing(part, "repeat %ld: %d threads, each with a communicator", k, (int)THREADS);
        for (int c = 0; c < THREADS; c++) {
            threads[c] = (struct driver_thread){part, &lanes[c], &start, s->seed + (uint64_t)(THREADS * k + c)};
            CHECK(pthread_create(&id[c], NULL, drive, &threads[c]) == 0);
        }
        for (int c = 0; c < THREADS; c++) pthread_join(id[c], NULL);
        for (int c = 0; c < THREADS; c++)
            for (int r = 0; r < ROUNDS; r++) vector_check_all(part, &lanes[c].vector[r]);
        part_barrier(part);
    }
    lanes_close(part, lanes, THREADS);
    pthread_barrier_destroy(&start);
}

/* --- nccl_between: of odd ranks the second communicator's call waits for the first one's; of even ranks that is late ---
 * Legal: the second can always begin on even ranks, and the first does not wait for it anywhere. */
static void between(struct part *part, const struct settings *s, size_t first_bytes, size_t second_bytes) {
    struct vector first, second;
    const ncclComm_t first_comm = comm_open(part), second_comm = comm_open(part);
    CUstream first_stream = stream_open(), second_stream = stream_open();
    CUevent event;
    CU_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    vector_open(&first, first_bytes);
    vector_open(&second, second_bytes);
    for (long k = 0; k < s->repeat; k++) {
        vector_fill(part, &first, s->seed + (uint64_t)k);
        vector_fill(part, &second, s->seed + (uint64_t)k + 1);
        part_barrier(part);
        doing(part, "round %ld: the first communicator's call, %zu bytes", k, first_bytes);
        if (self(part)->rank % 2 == 0) delay(first_stream, 20000);
        vector_allreduce(&first, first_comm, first_stream);
        if (self(part)->rank % 2) {
            CU_OK(cuEventRecord(event, first_stream));
            CU_OK(cuStreamWaitEvent(second_stream, event, CU_EVENT_WAIT_DEFAULT));
        }
        doing(part, "round %ld: the second communicator's call, %zu bytes", k, second_bytes);
        vector_allreduce(&second, second_comm, second_stream);
        doing(part, "round %ld: waiting for both calls", k);
        stream_sync(first_stream);
        stream_sync(second_stream);
        vector_check_all(part, &first);
        vector_check_all(part, &second);
    }
    comm_close(part, first_comm);
    comm_close(part, second_comm);
    stream_close(first_stream);
    stream_close(second_stream);
    CU_OK(cuEventDestroy(event));
    vector_close(&first);
    vector_close(&second);
}

static void nccl_between(struct part *part, const struct settings *s) {
    between(part, s, s->large, s->middle);
}
static void nccl_between_reversed(struct part *part, const struct settings *s) {
    between(part, s, s->middle, s->large);
}

/* --- grouped_crosswise: calls of two communicators on one stream, as one group; rank 0 calls the one first, the others the other --- */
enum { TWO = 2 };

static void grouped_crosswise(struct part *part, const struct settings *s) {
    ncclComm_t comm[TWO];
    struct vector sum[TWO], last[TWO]; /* which only the last rank has */
    CUstream stream = stream_open();
    for (int c = 0; c < TWO; c++) {
        comm[c] = comm_open(part);
        vector_open(&sum[c], s->small);
        vector_open(&last[c], s->small);
        vector_warm_up(part, &sum[c], comm[c], stream);
    }
    for (long k = 0; k < s->repeat; k++) {
        for (int c = 0; c < TWO; c++) {
            vector_fill(part, &sum[c], s->seed + (uint64_t)(TWO * k + c));
            vector_fill(part, &last[c], s->seed + (uint64_t)(TWO * k + c) + 7);
        }
        part_barrier(part);
        doing(part, "round %ld: a group of two communicators", k);
        NCCL_OK(ncclGroupStart());
        for (int i = 0; i < TWO; i++) {
            const int c = self(part)->rank == 0 ? i : TWO - 1 - i;
            vector_allreduce(&sum[c], comm[c], stream);
            vector_reduce(&last[c], last_rank(part), comm[c], stream);
        }
        NCCL_OK(ncclGroupEnd());
        stream_sync(stream);
        for (int c = 0; c < TWO; c++) {
            vector_check_all(part, &sum[c]);
            if (self(part)->rank == last_rank(part)) vector_check_all(part, &last[c]);
        }
    }
    for (int c = 0; c < TWO; c++) {
        comm_close(part, comm[c]);
        vector_close(&sum[c]);
        vector_close(&last[c]);
    }
    stream_close(stream);
}

/* --- made_in_passing: two communicators of a group, in other orders on other ranks, whose handles were never where they are kept --- */
static void made_in_passing(struct part *part, const struct settings *s) {
    ncclComm_t comm[TWO];
    ncclUniqueId id[TWO];
    struct vector sum;
    const CUstream stream = stream_open();
    vector_open(&sum, s->small);
    for (long k = 0; k < s->repeat; k++) {
        for (int c = 0; c < TWO; c++) box_unique_id(part, (int)(2000 + TWO * k) + c, &id[c]);
        doing(part, "round %ld: communicators are made", k);
        NCCL_OK(ncclGroupStart());
        for (int i = 0; i < TWO; i++) {
            const int c = self(part)->rank % 2 ? TWO - 1 - i : i;
            ncclComm_t *const passing = malloc(sizeof *passing);
            NCCL_OK(ncclCommInitRank(passing, part->box->nranks, id[c], self(part)->rank));
            comm[c] = *passing; /* NCCL has stored it, and is done with the place */
            memset(passing, 0x5a, sizeof *passing);
            free(passing);
        }
        NCCL_OK(ncclGroupEnd());
        for (int c = 0; c < TWO; c++) {
            vector_fill(part, &sum, s->seed + (uint64_t)(TWO * k + c));
            part_barrier(part);
            doing(part, "round %ld: communicator %d", k, c);
            vector_allreduce(&sum, comm[c], stream);
            stream_sync(stream);
            vector_check_all(part, &sum);
        }
        for (int c = 0; c < TWO; c++) NCCL_OK(ncclCommDestroy(comm[c]));
    }
    stream_close(stream);
    vector_close(&sum);
}

const struct program many_programs[] = {
    {"many_communicators", many_communicators},
    {"many_communicators_12", many_communicators_12},
    {"many_communicators_30", many_communicators_30},
    {"many_communicators_mixed", many_communicators_mixed},
    {"many_communicators_graphs", many_communicators_graphs},
    {"many_communicators_threads", many_communicators_threads},
    {"nccl_between", nccl_between},
    {"nccl_between_reversed", nccl_between_reversed},
    {"grouped_crosswise", grouped_crosswise},
    {"made_in_passing", made_in_passing},
    {0},
};

/* There is no room for so many of its kernels. */
const struct program unlisted_many_programs[] = {
    {"green_communicators", green_communicators},
    {"green_communicators_graphs", green_communicators_graphs},
    {0},
};
