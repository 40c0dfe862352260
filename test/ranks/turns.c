/* turns.c - the order of calls where only a wait could have made it: the first one is held back at a gate until all are issued.
 * And communicators that end while work of theirs is still held back.
 *
 * A gate is a word of host memory for which a stream waits.  The host opens it some time later, by then a call that does not wait
 * for its turn is over. */
#include "scenarios.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>

struct gate {
    uint32_t *word;
    CUdeviceptr address[BOX_RANKS];
    pthread_t opener;
};

static void nap(long milliseconds) {
    nanosleep(&(struct timespec){.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000}, NULL);
}

/* Holds back what each rank's stream gets from now on. */
static void gate_shut(struct part *part, struct gate *gate, const CUstream *stream) {
    part_enter(part, 0);
    CU_OK(cuMemHostAlloc((void **)&gate->word, sizeof *gate->word, 1 /* CU_MEMHOSTALLOC_PORTABLE */));
    *gate->word = 0;
    each_rank (part, i) {
        CU_OK(cuMemHostGetDevicePointer(&gate->address[i], gate->word, 0));
        CU_OK(cuStreamWaitValue32(stream[i], gate->address[i], 1, CU_STREAM_WAIT_VALUE_EQ));
    }
}

static void gate_open(struct gate *gate) {
    __atomic_store_n(gate->word, 1, __ATOMIC_RELEASE);
}

static void *open_late(void *gate) {
    nap(100);
    gate_open(gate);
    return NULL;
}

static void gate_open_late(struct gate *gate) {
    CHECK(pthread_create(&gate->opener, NULL, open_late, gate) == 0);
}

static void gate_free(struct part *part, struct gate *gate) {
    part_enter(part, 0);
    CU_OK(cuMemFreeHost(gate->word));
}

static void chain_end(struct part *part, struct chain *chain, struct gate *gate) {
    nap(30);
    gate_open(gate);
    chain_finish(part, chain);
    gate_free(part, gate);
}

/* NCCL's call is the communicator's first, and Beeline's, on another stream, reads what it wrote. */
static void first_forwarded(struct part *part, const struct options *o) {
    struct chain chain;
    struct gate gate;
    ncclComm_t comms[BOX_RANKS];
    CUstream first[BOX_RANKS], second[BOX_RANKS];
    part_comms(part, comms);
    part_streams(part, 0, first);
    part_streams(part, 1, second);
    chain_open(part, &chain, 3000);
    gate_shut(part, &gate, first);
    chain_broadcast(part, &chain, comms, first, part->box->nranks - 1);
    chain_allreduce(part, &chain, comms, second);
    chain_end(part, &chain, &gate);
}

/* Beeline's and NCCL's in turn, each behind a gate of its own, of which the first opens last. */
static void gated(struct part *part, const struct options *o) {
    for (int forwarded = 0; forwarded < 4; forwarded++) { /* which of the two calls is NCCL's */
        struct chain chain;
        struct gate gate;
        ncclComm_t comms[BOX_RANKS];
        CUstream first[BOX_RANKS], second[BOX_RANKS];
        part_comms(part, comms);
        part_streams(part, forwarded % BOX_STREAMS, first);
        part_streams(part, (forwarded + 1) % BOX_STREAMS, second);
        chain_open(part, &chain, 2000);
        gate_shut(part, &gate, first);
        for (int k = 0; k < 2; k++) {
            if (forwarded >> k & 1)
                chain_broadcast(part, &chain, comms, k ? second : first, 0);
            else
                chain_allreduce(part, &chain, comms, k ? second : first);
        }
        chain_end(part, &chain, &gate);
    }
}

/* On a nonblocking communicator NCCL launches later than its call returns; once it says so, the next one may come. */
static void nonblocking(struct part *part, const struct options *o) {
    ncclComm_t comms[BOX_RANKS];
    CUstream first[BOX_RANKS], second[BOX_RANKS];
    part_make_nonblocking(part, 1, comms);
    part_streams(part, 0, first);
    part_streams(part, 1, second);
    for (int round = 0; round < 3; round++) {
        enum { COUNT = 3000 };
        struct chain chain;
        struct gate gate;
        chain_open(part, &chain, COUNT);
        gate_shut(part, &gate, first);
        NCCL_OK(ncclGroupStart());
        each_rank (part, i)
            NCCL_GOES(
                ncclBroadcast((void *)chain.from[i], (void *)chain.to[i], COUNT, ncclInt32, 0, comms[i], first[i]));
        NCCL_GOES(ncclGroupEnd());
        part_settle(part, comms);
        for (int i = 0; i < part->count; i++) { /* as chain_broadcast has it, of root 0 */
            CUdeviceptr p = chain.from[i];
            chain.from[i] = chain.to[i];
            chain.to[i] = p;
        }
        chain.rank_factor = 0;
        chain_allreduce(part, &chain, comms, second);
        part_settle(part, comms);
        chain_end(part, &chain, &gate);
    }
    each_rank (part, i) NCCL_OK(ncclCommAbort(comms[i]));
}

/* --- CU_STREAM_PER_THREAD is another stream in each thread --- */

struct helper {
    struct part *part;
    struct chain *chain;
    struct gate *gate; /* shut first, or NULL */
    ncclComm_t comms[BOX_RANKS];
    CUstream stream[BOX_RANKS];
    pthread_t thread;
    pthread_barrier_t *issued, *over;
};

static void *call_and_wait(void *argument) {
    struct helper *helper = argument;
    if (helper->gate) gate_shut(helper->part, helper->gate, helper->stream);
    chain_allreduce(helper->part, helper->chain, helper->comms, helper->stream);
    if (helper->gate) chain_broadcast(helper->part, helper->chain, helper->comms, helper->stream, 0);
    pthread_barrier_wait(helper->issued);
    each_rank (helper->part, i) CU_OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    pthread_barrier_wait(helper->over); /* a thread's stream ends with it */
    return NULL;
}

static void per_thread(struct part *part, const struct options *o) {
    enum { THREADS = 3 };
    struct chain chain;
    struct gate gate;
    struct helper helpers[THREADS];
    pthread_barrier_t issued, over;
    chain_open(part, &chain, 3000);
    CHECK(!pthread_barrier_init(&issued, NULL, 2) && !pthread_barrier_init(&over, NULL, THREADS + 1));
    for (int t = 0; t < THREADS; t++) {
        struct helper *helper = &helpers[t];
        *helper = (struct helper){part, &chain, .gate = t ? NULL : &gate, .issued = &issued, .over = &over};
        part_comms(part, helper->comms);
        for (int i = 0; i < part->count; i++) helper->stream[i] = CU_STREAM_PER_THREAD;
        CHECK(pthread_create(&helper->thread, NULL, call_and_wait, helper) == 0);
        pthread_barrier_wait(&issued);
    }
    ncclComm_t comms[BOX_RANKS];
    CUstream stream[BOX_RANKS];
    part_comms(part, comms);
    part_streams(part, 1, stream);
    chain_allreduce(part, &chain, comms, stream); /* behind a thread's stream that cannot be named here */
    nap(30);
    gate_open(&gate);
    pthread_barrier_wait(&over);
    for (int t = 0; t < THREADS; t++) pthread_join(helpers[t].thread, NULL);
    chain_finish(part, &chain);
    gate_free(part, &gate);
    pthread_barrier_destroy(&issued);
    pthread_barrier_destroy(&over);
}

/* --- the end --- */

/* Communicators in launch order (launchOrderImplicit), on streams that nothing else joins: the second's call is behind the first's, eager
 * or replayed. */
static void in_order(struct part *part, const struct options *o) {
    for (int replayed = 0; replayed < 2; replayed++) {
        ncclComm_t one[BOX_RANKS], other[BOX_RANKS];
        CUstream first[BOX_RANKS], second[BOX_RANKS];
        struct chain chain;
        struct gate gate;
        struct graphs graphs;
        part_make_configured(part, 1 + 2 * replayed, NCCL_CONFIG_UNDEF_INT, 1, one);
        part_make_configured(part, 2 + 2 * replayed, NCCL_CONFIG_UNDEF_INT, 1, other);
        part_streams(part, 0, first);
        part_streams(part, 1, second);
        chain_open(part, &chain, 2000);
        if (replayed) {
            graphs_begin(part, 0);
            chain_allreduce(part, &chain, one, first);
            graphs_end(part, 0, &graphs);
        }
        part_synchronize(part);
        gate_shut(part, &gate, first);
        if (replayed)
            graphs_launch(part, &graphs, 0);
        else
            chain_allreduce(part, &chain, one, first);
        chain_allreduce(part, &chain, other, second);
        chain_end(part, &chain, &gate);
        if (replayed) graphs_free(part, &graphs);
        part_destroy_communicators(part, other);
        part_destroy_communicators(part, one);
    }
}

/* One whose replays leave no event (graphUsageMode 1), while a stream waits for the host: nobody can tell what runs, and destroy comes
 * back all the same. */
static void destroyed_beside(struct part *part, const struct options *o) {
    ncclComm_t comms[BOX_RANKS];
    CUstream first[BOX_RANKS], second[BOX_RANKS];
    struct chain chain;
    struct gate gate;
    struct graphs graphs;
    part_make_configured(part, 1, 1, NCCL_CONFIG_UNDEF_INT, comms);
    part_streams(part, 0, first);
    part_streams(part, 1, second);
    chain_open(part, &chain, 2000);
    graphs_begin(part, 0);
    chain_allreduce(part, &chain, comms, first);
    graphs_end(part, 0, &graphs);
    graphs_launch(part, &graphs, 0);
    part_synchronize(part);
    chain_check(part, &chain);
    graphs_free(part, &graphs);
    gate_shut(part, &gate, second);
    each_rank_in_group (part, i) NCCL_OK(ncclCommDestroy(comms[i]));
    gate_open(&gate);
    part_drain(part);
    chain_close(part, &chain);
    gate_free(part, &gate);
}

/* Destroyed while calls of it, eager or replayed behind an eager one, are held back: they come right, and nothing that they use is
 * gone. */
static void destroyed_behind(struct part *part, const struct options *o) {
    for (int replayed = 0; replayed < 2; replayed++) {
        struct chain chain;
        struct gate gate;
        struct graphs graphs;
        ncclComm_t comms[BOX_RANKS];
        CUstream stream[BOX_RANKS];
        part_make_communicators(part, replayed, comms);
        part_streams(part, 0, stream);
        chain_open(part, &chain, 3000);
        if (replayed) {
            chain_allreduce(part, &chain, comms, stream);
            graphs_begin(part, 0);
            chain_allreduce(part, &chain, comms, stream);
            graphs_end(part, 0, &graphs);
        }
        gate_shut(part, &gate, stream);
        if (replayed)
            graphs_launch(part, &graphs, 0);
        else
            chain_allreduce(part, &chain, comms, stream);
        gate_open_late(&gate);
        each_rank_in_group (part, i) NCCL_OK(ncclCommDestroy(comms[i]));
        pthread_join(gate.opener, NULL);
        part_drain(part);
        chain_check(part, &chain);
        chain_close(part, &chain);
        if (replayed) graphs_free(part, &graphs);
        gate_free(part, &gate);
    }
}

/* Aborted while a call of it is held back for longer than the abort lasts: what that call looks at, once it runs, is there. */
static void aborted_behind(struct part *part, const struct options *o) {
    struct chain chain;
    struct gate gate;
    ncclComm_t comms[BOX_RANKS];
    CUstream stream[BOX_RANKS];
    part_make_communicators(part, 0, comms);
    part_streams(part, 0, stream);
    chain_open(part, &chain, 3000);
    gate_shut(part, &gate, stream);
    chain_allreduce(part, &chain, comms, stream);
    part_barrier(part);
    each_rank (part, i) NCCL_OK(ncclCommAbort(comms[i]));
    part_barrier(part);
    gate_open(&gate);
    part_drain(part);
    chain_close(part, &chain);
    gate_free(part, &gate);
}

/* A simulated group leaves nothing behind, of NCCL's calls either: their streams may go, and the next group is well. */
static void simulated(struct part *part, const struct options *o) {
    struct chain chain;
    ncclComm_t comms[BOX_RANKS];
    CUstream stream[BOX_RANKS], passing[BOX_RANKS];
    part_comms(part, comms);
    part_streams(part, 0, stream);
    chain_open(part, &chain, 500);
    chain_allreduce(part, &chain, comms, stream);
    each_rank (part, i) CU_OK(cuStreamCreate(&passing[i], CU_STREAM_NON_BLOCKING));
    struct chain never = chain;
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    NCCL_OK(ncclGroupStart());
    chain_broadcast(part, &never, comms, passing, 0);
    chain_allreduce(part, &never, comms, passing);
    NCCL_OK(ncclGroupSimulateEnd(&info));
    each_rank (part, i) CU_OK(cuStreamDestroy(passing[i]));
    NCCL_OK(ncclGroupStart());
    chain_allreduce(part, &chain, comms, stream);
    NCCL_OK(ncclGroupEnd());
    chain_finish(part, &chain);
}

/* One rank's kernel waits for its peers, who first make a communicator with it. */
static void made_beside(struct part *part, const struct options *o) {
    struct chain chain;
    CUstream stream[BOX_RANKS];
    ncclComm_t comms[BOX_RANKS], made[BOX_RANKS];
    part_streams(part, 0, stream);
    part_comms(part, comms);
    chain_open(part, &chain, 2000);
    chain_allreduce(part, &chain, comms, stream); /* what is loaded at first use is loaded */
    part_synchronize(part);
    for (int round = 0; round < 2; round++) {
        for (int late = 0; late < 2; late++) {
            for (int i = 0; i < part->count; i++) {
                if ((part->rank[i].rank == 0) == late) continue;
                part_enter(part, i);
                NCCL_OK(ncclAllReduce((void *)chain.from[i], (void *)chain.to[i], chain.count, ncclInt32, ncclSum,
                                      comms[i], stream[i]));
            }
            if (late) break;
            part_split(part, comms, made);
        }
        chain_reduced(part, &chain);
        part_synchronize(part);
        chain_check(part, &chain);
        part_destroy_communicators(part, made);
    }
    chain_close(part, &chain);
}

/* Calls that some ranks make alone, and that come to nothing. */
static void made_in_vain(struct part *part, const struct chain *chain, ncclComm_t *comms, CUstream *stream) {
    struct chain never = *chain;
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    NCCL_OK(ncclGroupStart());
    for (int k = 0; k < 3; k++) chain_allreduce(part, &never, comms, stream);
    NCCL_OK(ncclGroupSimulateEnd(&info));
    each_rank (part, i)
        CHECK(ncclAllReduce((void *)chain->from[i], (void *)chain->to[i], chain->count, (ncclDataType_t)77, ncclSum,
                            comms[i], stream[i]) == ncclInvalidArgument,
              "rank %d: there is no type 77", part->rank[i].rank);
}

/* Beside a switch that somebody turns: chains go on being right, and end on the route that the file says. */
static void switched(struct part *part, const struct options *o) {
    const char *path = getenv("BEELINE_SWITCH");
    CHECK(path, "BEELINE_SWITCH names the file");
    struct chain chain;
    CUstream stream[BOX_RANKS];
    ncclComm_t comms[BOX_RANKS];
    part_streams(part, 0, stream);
    part_comms(part, comms);
    chain_open(part, &chain, 50);
    for (int turn = 0; turn < 4; turn++) {
        const bool off = turn % 2 == 0;
        part_barrier(part);
        if (part->rank[0].rank == 0) {
            FILE *file = off ? fopen(path, "w") : NULL;
            if (file) fclose(file);
            CHECK(off ? file != NULL : remove(path) == 0, "%s", path);
        }
        /* Ranks come to the new route each in its own time, at one call; at least 2 s pass, in which rank 0 looks. */
        for (int k = 0; k < 500; k++) {
            chain_allreduce(part, &chain, comms, stream);
            if (k % 20 == 7 && part->rank[0].rank == 0) made_in_vain(part, &chain, comms, stream);
            if (k % 50 == 0) {
                part_synchronize(part);
                nanosleep(&(struct timespec){.tv_nsec = 250000000}, NULL);
            }
        }
        part_synchronize(part);
        chain_check(part, &chain);
    }
    chain_close(part, &chain);
}

const struct scenario turn_scenarios[] = {
    {.name = "turn_first_forwarded", .run = first_forwarded},
    {.name = "turn_gated", .run = gated},
    {.name = "turn_nonblocking", .run = nonblocking, .no_communicators = true},
    {.name = "turn_per_thread", .run = per_thread},
    {.name = "turn_simulated", .run = simulated},
    {.name = "turn_in_order", .run = in_order, .no_communicators = true},
    {.name = "turn_destroyed_beside", .run = destroyed_beside, .no_communicators = true},
    {.name = "turn_destroyed_behind", .run = destroyed_behind, .no_communicators = true},
    {.name = "turn_aborted_behind", .run = aborted_behind, .no_communicators = true},
    {.name = "turn_switched", .run = switched},
    {.name = "turn_made_beside", .run = made_beside},
    {0},
};
