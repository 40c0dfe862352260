/* clusters.cu - whether NCCL's blocks find room beside Beeline's, as room.c counts it.  A program for GPUs of sm_90 and later.
 *
 *   clusters [--all]
 *
 * On each GPU: B blocks stay on as many multiprocessors, as a launch of Beeline's does that waits for its peers; then a kernel of 16, 24 or 32 blocks begins that take a
 * whole multiprocessor each, in clusters of four, as NCCL's do on Hopper, and those that are resident are counted.  With --all a line for each B from 56 on.
 * Exit status: 0; 1 if 32 blocks are not resident beside as many blocks as room.c allows then; 77 without such a GPU.
 */
#include <string.h>
#include <unistd.h>

#include "checked.cuh"

enum { THREADS = 256, NCCL_THREADS = 640, CLUSTER = 4, MOST = 32, GPC_SMS = 18 /* room.c's */ };
enum : size_t { TWO_FIT = 100 << 10, ONE_FITS = 150 << 10 }; /* bytes of shared memory for each block */

/* In host memory. */
struct board {
    unsigned started, go;
};

__global__ void stay(volatile board *b) {
    if (threadIdx.x) return;
    atomicAdd_system((unsigned *)&b->started, 1u);
    while (!b->go) __nanosleep(200);
}

static board *launch(unsigned blocks, unsigned threads, size_t shared, unsigned cluster, cudaStream_t stream) {
    board *b;
    cudaLaunchAttribute in_clusters = {};
    cudaLaunchConfig_t config = {};
    CUDA_OK(cudaHostAlloc(&b, sizeof *b, cudaHostAllocMapped));
    memset(b, 0, sizeof *b);
    in_clusters.id = cudaLaunchAttributeClusterDimension;
    in_clusters.val.clusterDim.x = cluster;
    in_clusters.val.clusterDim.y = in_clusters.val.clusterDim.z = 1;
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = &in_clusters;
    config.numAttrs = 1;
    CUDA_OK(cudaLaunchKernelEx(&config, stay, (volatile board *)b));
    return b;
}

/* How many are resident, once they all are or 5 ms have passed. */
static unsigned resident(const volatile board *b, unsigned wanted) {
    for (int i = 0; i < 500 && b->started < wanted; i++) usleep(10);
    return b->started;
}

static unsigned beside(unsigned blocks, unsigned wanted, unsigned cluster, const cudaStream_t *stream) {
    board *ours = launch(blocks, THREADS, TWO_FIT, 1, stream[0]);
    resident(ours, blocks);
    board *theirs = launch(wanted, NCCL_THREADS, ONE_FITS, cluster, stream[1]);
    const unsigned found = resident(theirs, wanted);
    ((volatile board *)ours)->go = ((volatile board *)theirs)->go = 1;
    CUDA_OK(cudaDeviceSynchronize());
    CUDA_OK(cudaFreeHost(ours));
    CUDA_OK(cudaFreeHost(theirs));
    return found;
}

/* What a launch of Beeline's has at most while a kernel of NCCL's may be in flight. */
static unsigned allowed(unsigned sms) {
    return sms - sms / 4 - (CLUSTER - 1) * ((sms + GPC_SMS - 1) / GPC_SMS);
}

int main(int argc, char **argv) {
    const bool all = argc == 2 && !strcmp(argv[1], "--all");
    int count = 0, tried = 0, wrong = 0;
    if (argc > 1 && !all) {
        fprintf(stderr, "clusters: %s; accepted: --all\n", argv[1]);
        return 2;
    }
    if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
    for (int gpu = 0; gpu < count; gpu++) {
        cudaDeviceProp has;
        cudaStream_t stream[2];
        CUDA_OK(cudaSetDevice(gpu));
        CUDA_OK(cudaGetDeviceProperties(&has, gpu));
        if (has.major < 9) continue;
        for (int i = 0; i < 2; i++) CUDA_OK(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
        CUDA_OK(cudaFuncSetAttribute(stay, cudaFuncAttributeMaxDynamicSharedMemorySize, ONE_FITS));
        const unsigned sms = (unsigned)has.multiProcessorCount, most = allowed(sms),
                       found = beside(most, MOST, CLUSTER, stream);
        printf("GPU %d, %s: beside %u blocks on %u multiprocessors %u of %d are resident\n", gpu, has.name, most, sms,
               found, MOST);
        for (unsigned blocks = 56; all && blocks + 16 < sms; blocks++)
            printf("  %3u blocks: in clusters %2u of 16, %2u of 24, %2u of 32; one by one %2u of 32\n", blocks,
                   beside(blocks, 16, CLUSTER, stream), beside(blocks, 24, CLUSTER, stream),
                   beside(blocks, MOST, CLUSTER, stream), beside(blocks, MOST, 1, stream));
        wrong += found < MOST;
        tried++;
    }
    if (!tried) puts("clusters: no GPU of compute capability 9.0 or later here");
    if (!tried) return 77;
    puts(wrong ? "clusters: NO ROOM" : "clusters: ok");
    return wrong != 0;
}
