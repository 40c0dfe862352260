/* scenarios.c - runs one scenario by name, and holds what scenarios share. */
#include "scenarios.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct scenario *const suites[] = {
    group_scenarios,   stream_scenarios, graph_scenarios,    comm_scenarios,  argument_scenarios,
    torture_scenarios, fused_scenarios,  together_scenarios, block_scenarios, turn_scenarios,
    oneway_scenarios,  later_scenarios,  growth_scenarios,   bits_scenarios,  message_scenarios};

/* --- single calls --- */

void scenario_call(const struct part *part, struct call *call, int k, size_t count, int stream) {
    uint64_t draw = ref_mix(part->box->seed, 0x5ce0u + (uint64_t)k);
    static const enum bl_collective collectives[] = {BL_ALLREDUCE, BL_ALLREDUCE, BL_ALLGATHER, BL_REDUCESCATTER};
    call->collective = collectives[(draw >> 24) % 4];
    call->seed = draw;
    call->datatype = (int)(draw % REF_DATATYPES);
    call->redop = (int)((draw >> 8) % REF_REDOPS);
    call->count = count;
    call->in_place = draw >> 16 & 1;
    call->send_offset = call->recv_offset = 0;
    call->stream = stream;
}

void scenario_works(struct part *part, int k) {
    struct call call = {0};
    scenario_call(part, &call, k, 333, 0);
    call_prepare(part, &call);
    call_issue(part, &call);
    part_synchronize(part);
    call_check(part, &call);
    call_free(part, &call);
}

/* --- chains --- */

static uint32_t chain_value(const struct chain *chain, int rank, size_t i) {
    return chain->rank_factor * (uint32_t)rank + chain->index_factor * (uint32_t)(i % 7) + chain->constant;
}

void chain_open(struct part *part, struct chain *chain, size_t count) {
    *chain = (struct chain){.count = count, .rank_factor = 3, .index_factor = 5, .constant = 1};
    uint32_t *image = malloc(count * sizeof *image);
    CHECK(image);
    each_rank (part, i) {
        CU_OK(cuMemAlloc(&chain->from[i], count * sizeof *image));
        CU_OK(cuMemAlloc(&chain->to[i], count * sizeof *image));
        for (size_t k = 0; k < count; k++) image[k] = chain_value(chain, part->rank[i].rank, k);
        box_upload(chain->from[i], image, count * sizeof *image);
    }
    free(image);
}

static void chain_swap(const struct part *part, struct chain *chain) {
    for (int i = 0; i < part->count; i++) {
        CUdeviceptr p = chain->from[i];
        chain->from[i] = chain->to[i];
        chain->to[i] = p;
    }
    chain->rank_factor = 0;
}

void chain_allreduce(struct part *part, struct chain *chain, const ncclComm_t *comms, CUstream stream[BOX_RANKS]) {
    each_rank_in_group (part, i)
        NCCL_OK(ncclAllReduce((void *)chain->from[i], (void *)chain->to[i], chain->count, ncclInt32, ncclSum, comms[i],
                              stream[i]));
    chain_reduced(part, chain);
}

void chain_reduced(const struct part *part, struct chain *chain) {
    const uint32_t n = (uint32_t)part->box->nranks;
    chain->constant = n * chain->constant + chain->rank_factor * (n * (n - 1) / 2);
    chain->index_factor *= n;
    chain_swap(part, chain);
}

void chain_broadcast(struct part *part, struct chain *chain, const ncclComm_t *comms, CUstream stream[BOX_RANKS],
                     int root) {
    each_rank_in_group (part, i)
        NCCL_OK(ncclBroadcast((void *)chain->from[i], (void *)chain->to[i], chain->count, ncclInt32, root, comms[i],
                              stream[i]));
    chain->constant += chain->rank_factor * (uint32_t)root;
    chain_swap(part, chain);
}

void chain_check(struct part *part, const struct chain *chain) {
    uint32_t *image = malloc(chain->count * sizeof *image);
    CHECK(image);
    each_rank (part, i) {
        CU_OK(cuMemcpyDtoH(image, chain->from[i], chain->count * sizeof *image));
        for (size_t k = 0; k < chain->count; k++) {
            uint32_t want = chain_value(chain, part->rank[i].rank, k);
            if (image[k] != want)
                FAIL("rank %d: element %zu of the chain is %u, expected %u", part->rank[i].rank, k, image[k], want);
        }
    }
    free(image);
}

void chain_close(struct part *part, struct chain *chain) {
    each_rank (part, i) {
        CU_OK(cuMemFree(chain->from[i]));
        CU_OK(cuMemFree(chain->to[i]));
    }
}

void chain_finish(struct part *part, struct chain *chain) {
    part_synchronize(part);
    chain_check(part, chain);
    chain_close(part, chain);
}

void part_streams(const struct part *part, int s, CUstream stream[BOX_RANKS]) {
    for (int i = 0; i < part->count; i++) stream[i] = part->rank[i].stream[s];
}

void part_comms(const struct part *part, ncclComm_t comms[BOX_RANKS]) {
    for (int i = 0; i < part->count; i++) comms[i] = part->rank[i].comm;
}

/* --- main --- */

static const struct scenario *chosen;

static void body(struct part *part) {
    chosen->run(part, part->box->argument);
}

int main(int argc, char **argv) {
    static struct options options;
    options_read(&options, argc, argv);
    for (size_t i = 0; i < sizeof suites / sizeof *suites; i++)
        for (const struct scenario *s = suites[i]; s->name; s++) {
            if (!options.name)
                puts(s->name);
            else if (strcmp(s->name, options.name) == 0)
                chosen = s;
        }
    if (!options.name) return 0;
    if (!chosen) {
        fprintf(stderr, "no scenario %s; without a name they are listed\n", options.name);
        return 2;
    }
    options.box.no_communicators = chosen->no_communicators;
    box_run(&options.box, body);
    return 0;
}
