/* streams.c - calls on one communicator take effect in issue order, whatever streams they use. */
#include "scenarios.h"

/* Each call reads what the last one wrote, on another stream. */
static void alternate(struct part *part, const struct options *o) {
    struct chain chain;
    ncclComm_t comms[BOX_RANKS];
    CUstream stream[BOX_RANKS];
    part_comms(part, comms);
    static const size_t counts[] = {3, 700, 20000};
    for (int c = 0; c < 3; c++) {
        chain_open(part, &chain, counts[c]);
        for (int k = 0; k < 9; k++) {
            part_streams(part, k * 2 % BOX_STREAMS, stream);
            chain_allreduce(part, &chain, comms, stream);
        }
        chain_finish(part, &chain);
    }
}

/* Beeline's calls and NCCL's take turns, on one stream and on several. */
static void alternate_routes(struct part *part, const struct options *o) {
    struct chain chain;
    ncclComm_t comms[BOX_RANKS];
    CUstream stream[BOX_RANKS];
    part_comms(part, comms);
    for (int many = 0; many < 2; many++) {
        chain_open(part, &chain, 333);
        for (int k = 0; k < 12; k++) {
            part_streams(part, many ? (k + k / 5) % BOX_STREAMS : 0, stream);
            if (k % 3 == 1)
                chain_broadcast(part, &chain, comms, stream, k % part->box->nranks);
            else
                chain_allreduce(part, &chain, comms, stream);
        }
        chain_finish(part, &chain);
    }
}

/* The stream of the last call is gone when the next one comes. */
static void destroyed_stream(struct part *part, const struct options *o) {
    struct chain chain;
    ncclComm_t comms[BOX_RANKS];
    CUstream stream[BOX_RANKS], passing[BOX_RANKS];
    part_comms(part, comms);
    part_streams(part, 0, stream);
    chain_open(part, &chain, 1000);
    for (int k = 0; k < 6; k++) {
        each_rank (part, i) CU_OK(cuStreamCreate(&passing[i], CU_STREAM_NON_BLOCKING));
        chain_allreduce(part, &chain, comms, passing);
        if (k % 2) {
            chain_broadcast(part, &chain, comms, passing, 0);
        }
        each_rank (part, i) {
            if (k >= 2) CU_OK(cuStreamSynchronize(passing[i])); /* it may also be destroyed with work in it */
            CU_OK(cuStreamDestroy(passing[i]));
        }
        if (k % 3 == 0) chain_allreduce(part, &chain, comms, stream);
    }
    chain_allreduce(part, &chain, comms, stream);
    chain_finish(part, &chain);
}

/* The null stream is a stream like others. */
static void null_stream(struct part *part, const struct options *o) {
    struct chain chain;
    ncclComm_t comms[BOX_RANKS];
    CUstream stream[BOX_RANKS], null[BOX_RANKS] = {0};
    part_comms(part, comms);
    part_streams(part, 1, stream);
    chain_open(part, &chain, 130);
    for (int k = 0; k < 6; k++) chain_allreduce(part, &chain, comms, k % 2 ? null : stream);
    chain_allreduce(part, &chain, comms, null);
    chain_broadcast(part, &chain, comms, stream, 0);
    part_synchronize(part);
    each_rank (part, i) CU_OK(cuStreamSynchronize(NULL));
    chain_check(part, &chain);
    chain_close(part, &chain);
}

/* Two communicators on two streams: their calls may overlap, those of each are in order. */
static void two_communicators(struct part *part, const struct options *o) {
    struct chain chain[2];
    ncclComm_t comms[2][BOX_RANKS];
    CUstream stream[BOX_RANKS];
    part_comms(part, comms[0]);
    part_make_communicators(part, 1, comms[1]);
    for (int c = 0; c < 2; c++) chain_open(part, &chain[c], 900);
    for (int k = 0; k < 16; k++) {
        int c = (k ^ k >> 1) & 1;
        part_streams(part, c, stream);
        chain_allreduce(part, &chain[c], comms[c], stream);
    }
    part_synchronize(part);
    for (int c = 0; c < 2; c++) chain_check(part, &chain[c]);
    /* and on one stream */
    part_streams(part, 2, stream);
    for (int k = 0; k < 8; k++) chain_allreduce(part, &chain[k & 1], comms[k & 1], stream);
    part_synchronize(part);
    for (int c = 0; c < 2; c++) {
        chain_check(part, &chain[c]);
        chain_close(part, &chain[c]);
    }
    part_destroy_communicators(part, comms[1]);
}

/* The test's own work and the calls, in the order of one stream. */
static void between_copies(struct part *part, const struct options *o) {
    struct chain chain;
    ncclComm_t comms[BOX_RANKS];
    CUstream stream[BOX_RANKS];
    part_comms(part, comms);
    part_streams(part, 0, stream);
    chain_open(part, &chain, 2000);
    for (int k = 0; k < 6; k++) {
        chain_allreduce(part, &chain, comms, stream);
        each_rank (part, i) { /* the result moves on, its place is overwritten */
            CU_OK(cuMemcpyDtoDAsync(chain.to[i], chain.from[i], chain.count * 4, stream[i]));
            CU_OK(cuMemsetD8Async(chain.from[i], 0xee, chain.count * 4, stream[i]));
            CUdeviceptr p = chain.to[i];
            chain.to[i] = chain.from[i];
            chain.from[i] = p;
        }
    }
    chain_finish(part, &chain);
}

const struct scenario stream_scenarios[] = {
    {.name = "stream_alternate", .run = alternate},
    {.name = "stream_alternate_routes", .run = alternate_routes},
    {.name = "stream_destroyed", .run = destroyed_stream},
    {.name = "stream_null", .run = null_stream},
    {.name = "stream_two_communicators", .run = two_communicators},
    {.name = "stream_between_copies", .run = between_copies},
    {0},
};
