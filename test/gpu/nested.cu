/* nested.cu - calls in the bodies of conditional nodes, and in graphs that a device may launch.  A program for GPUs.
 *
 *   nested
 *
 * All-reduces of 2 ranks, a thread each, of three sizes, captured as a graph of its own, as the body of an if, as the body of a while of
 * five rounds, and as a graph for launches by a device (launched by the host); ten replays each, every element checked.  A graph of the
 * last three kinds cannot have nodes of events, which NCCL adds, and Beeline as NCCL, where calls beside the graph may overlap it: run it
 * with NCCL_GRAPH_MIXING_SUPPORT=0, or build it with an nccl.h of 2.29 or later, which has that in a config.  (As it is, NCCL 2.28.9
 * alone has these refused.)  Linked to NCCL by name; what is preloaded is the caller's affair.
 * Exit status: 0; 1 after a wrong result, or where a graph is refused; 77 where there are not two GPUs.
 */
#include <cuda_runtime.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

#include "checked.cuh"

enum { RANKS = 2, ROUNDS = 5, REPLAYS = 10 };
enum kind { PLAIN, IF, WHILE, FOR_DEVICES, KINDS };
static const char *const names[KINDS] = {"a graph of its own", "the body of an if", "the body of a while",
                                         "for launches by a device"};
static const size_t counts[] = {1000, 130000, 16900000}; /* Beeline's by packets, by lines, and NCCL's */

static ncclUniqueId id;

/* --- on the device --- */
__global__ void count_down(cudaGraphConditionalHandle handle, int *left) {
    cudaGraphSetConditional(handle, --*left > 0);
}

/* --- on the host --- */
struct place {
    int rank;
    ncclComm_t comm;
    cudaStream_t stream;
    float *sent, *got;
    int *left; /* rounds of the while */
};

static float element(int rank, size_t i) {
    return (float)(rank + 1 + i % 7);
}

/* The second call needs the first one's result, and leaves it as it is. */
static void call(const struct place *place, size_t count) {
    NCCL_OK(ncclAllReduce(place->sent, place->got, count, ncclFloat, ncclSum, place->comm, place->stream));
    NCCL_OK(ncclAllReduce(place->got, place->got, count, ncclFloat, ncclMax, place->comm, place->stream));
}

static cudaGraph_t capture(const struct place *place, size_t count) {
    cudaGraph_t graph;
    CUDA_OK(cudaStreamBeginCapture(place->stream, cudaStreamCaptureModeThreadLocal));
    call(place, count);
    CUDA_OK(cudaStreamEndCapture(place->stream, &graph));
    return graph;
}

static cudaGraph_t capture_body(const struct place *place, size_t count, enum kind kind) {
    cudaGraph_t graph, body;
    cudaGraphConditionalHandle handle;
    cudaGraphNode_t node;
    CUDA_OK(cudaGraphCreate(&graph, 0));
    CUDA_OK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
    cudaGraphNodeParams params = {cudaGraphNodeTypeConditional};
    params.conditional.handle = handle;
    params.conditional.type = kind == IF ? cudaGraphCondTypeIf : cudaGraphCondTypeWhile;
    params.conditional.size = 1;
    CUDA_OK(cudaGraphAddNode(&node, graph, NULL, NULL, 0, &params));
    CUDA_OK(cudaStreamBeginCaptureToGraph(place->stream, params.conditional.phGraph_out[0], NULL, NULL, 0,
                                          cudaStreamCaptureModeThreadLocal));
    call(place, count);
    if (kind == WHILE) count_down<<<1, 1, 0, place->stream>>>(handle, place->left);
    CUDA_OK(cudaStreamEndCapture(place->stream, &body));
    return graph;
}

static void check(const struct place *place, size_t count, enum kind kind) {
    std::vector<float> got(count);
    CUDA_OK(cudaMemcpy(got.data(), place->got, count * sizeof(float), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++) {
        const float expected = element(0, i) + element(1, i);
        if (got[i] == expected) continue;
        fprintf(stderr, "nested: rank %d: %s, %zu elements: [%zu] is %g, expected %g\n", place->rank, names[kind],
                count, i, got[i], expected);
        exit(1);
    }
}

static void replay(const struct place *place, size_t count, enum kind kind) {
    const unsigned flags = kind == FOR_DEVICES ? cudaGraphInstantiateFlagDeviceLaunch : 0;
    const int rounds = ROUNDS;
    cudaGraph_t graph = kind == IF || kind == WHILE ? capture_body(place, count, kind) : capture(place, count);
    cudaGraphExec_t exec;
    CUDA_OK(cudaMemset(place->got, 0xff, count * sizeof(float)));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, flags));
    if (kind == FOR_DEVICES) CUDA_OK(cudaGraphUpload(exec, place->stream));
    for (int k = 0; k < REPLAYS; k++) {
        CUDA_OK(cudaMemcpyAsync(place->left, &rounds, sizeof(rounds), cudaMemcpyHostToDevice, place->stream));
        CUDA_OK(cudaGraphLaunch(exec, place->stream));
    }
    CUDA_OK(cudaStreamSynchronize(place->stream));
    check(place, count, kind);
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
}

static void *rank_main(void *arg) {
    struct place place = {.rank = (int)(size_t)arg};
    const size_t most = counts[2];
    std::vector<float> sent(most);
    for (size_t i = 0; i < most; i++) sent[i] = element(place.rank, i);
    CUDA_OK(cudaSetDevice(place.rank));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 0)
    config.graphUsageMode = 1; /* no other calls while a graph is under way */
#endif
    NCCL_OK(ncclCommInitRankConfig(&place.comm, RANKS, id, place.rank, &config));
    CUDA_OK(cudaStreamCreateWithFlags(&place.stream, cudaStreamNonBlocking));
    CUDA_OK(cudaMalloc(&place.sent, most * sizeof(float)));
    CUDA_OK(cudaMalloc(&place.got, most * sizeof(float)));
    CUDA_OK(cudaMalloc(&place.left, sizeof(int)));
    CUDA_OK(cudaMemcpy(place.sent, sent.data(), most * sizeof(float), cudaMemcpyHostToDevice));
    for (size_t count : counts) call(&place, count); /* NCCL connects outside captures */
    CUDA_OK(cudaStreamSynchronize(place.stream));
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t count : counts) replay(&place, count, (enum kind)kind);
    NCCL_OK(ncclCommDestroy(place.comm));
    return NULL;
}

int main() {
    pthread_t thread[RANKS];
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus < RANKS) {
        fprintf(stderr, "nested: %d GPUs, and %d are needed\n", gpus, RANKS);
        return 77;
    }
    NCCL_OK(ncclGetUniqueId(&id));
    for (int rank = 0; rank < RANKS; rank++) pthread_create(&thread[rank], NULL, rank_main, (void *)(size_t)rank);
    for (int rank = 0; rank < RANKS; rank++) pthread_join(thread[rank], NULL);
    printf("nested: ok, %d kinds of %d sizes\n", KINDS, (int)(sizeof(counts) / sizeof(counts[0])));
    return 0;
}
