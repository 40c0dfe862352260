/* lines.cu - what Beeline's kernels rest on beyond PTX, tried for a minute.  A program for GPUs.
 *
 *   lines [--gpus N] [--seconds S]
 *
 * Kernels store a line of 128 bytes by 8 lanes of one warp instruction, 120 bytes of data and 8 of flag, and take it that who loads
 * it so sees the flag only beside its own data; likewise packets of 16 bytes by one lane.  PTX promises neither.  Here peers overwrite
 * lines, or packets, in each GPU's memory without pause, each value told by its flag; the GPU loads them as often as it can, by the
 * kernels' own functions, and counts those whose data are not their flag's.  From one peer and from all, with and without other
 * traffic that pushes the lines out of the L2 cache.
 * Exit status: 0; 1 after a torn line or packet; 77 where there are no GPUs that reach each other.
 */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checked.cuh"
#include "core/primitives.cuh"

enum { MOST_GPUS = 8, THREADS = 256, LINE = 128, PACKET = 16 };
enum : size_t {
    REGION = 2 << 20,   /* bytes that one peer overwrites */
    TRAFFIC = 256 << 20 /* several times a GPU's L2 cache */
};

struct tally {
    unsigned long long loads, stores, torn;
    unsigned long long flag, got, wanted, word; /* of one that was torn */
};

/* What stands beside flag `flag` in word `word` of 8 bytes. */
BL_DEVICE uint64_t data_of(uint64_t flag, unsigned word) {
    return (flag + word) * 0x9e3779b97f4a7c15ull ^ flag >> 7;
}

BL_DEVICE void note_torn(struct tally *tally, uint64_t flag, unsigned word, uint64_t got) {
    if (atomicAdd(&tally->torn, 1ull)) return;
    tally->flag = flag;
    tally->word = word;
    tally->got = got;
    tally->wanted = data_of(flag, word);
}

/* A warp takes so many bytes of a region at a time: 4 lines, or 32 packets. */
template <bool LINES> BL_DEVICE char *place_of_lane(char *region, size_t step) {
    return region + step * (LINES ? 4 * LINE : 32 * PACKET) +
           (LINES ? lane_in_warp() / 8 * LINE : lane_in_warp() * PACKET);
}
enum : size_t { STEPS = REGION / (4 * LINE) };
static_assert(4 * LINE == 32 * PACKET, "steps are equally long");

/* Each warp has lines of its own: nobody else stores to them, as in the kernels. */
template <bool LINES> __global__ void store_all(char *region, struct tally *tally, uint64_t ns) {
    const uint64_t end = clock_ns() + ns;
    const unsigned part = lane_in_warp() % 8;
    const size_t warp = thread_in_grid() / 32, warps = threads_in_grid() / 32;
    unsigned long long stores = 0;
    if (warp >= STEPS) return;
    for (uint64_t flag = 1; warp_all(clock_ns() < end); flag++)
        for (size_t step = warp; step < STEPS; step += warps, stores++) {
            char *p = place_of_lane<LINES>(region, step);
            warp_sync();
            if (LINES) {
                const Pair v = {data_of(flag, 2 * part), data_of(flag, 2 * part + 1)};
                store_line_relaxed_sys(p, part, v, flag);
            } else {
                store_packet_relaxed_sys(p, data_of(flag, 0), flag);
            }
        }
    if (!LINES || part == 0) atomicAdd(&tally->stores, stores);
}

template <bool LINES> __global__ void load_all(char *region, struct tally *tally, uint64_t ns) {
    const uint64_t end = clock_ns() + ns;
    const unsigned part = lane_in_warp() % 8;
    size_t step = thread_in_grid() / 32 % STEPS;
    unsigned long long loads = 0;
    while (warp_all(clock_ns() < end))
        for (int i = 0; i < 64; i++, loads++, step = (step + 61) % STEPS) {
            const char *p = place_of_lane<LINES>(region, step);
            warp_sync();
            if (LINES) {
                const Pair v = line_data(load_line_relaxed_sys(p, part));
                const uint64_t flag = exchange_in_line(v.y, 7); /* 0: not yet stored to */
                if (flag && v.x != data_of(flag, 2 * part)) note_torn(tally, flag, 2 * part, v.x);
                if (flag && part != 7 && v.y != data_of(flag, 2 * part + 1)) note_torn(tally, flag, 2 * part + 1, v.y);
            } else {
                const PacketView v = load_packet_relaxed_sys(p);
                if (v.flag && v.data != data_of(v.flag, 0)) note_torn(tally, v.flag, 0, v.data);
            }
        }
    if (!LINES || part == 0) atomicAdd(&tally->loads, loads);
}

__global__ void push_out_of_cache(uint4 *memory, uint64_t ns) {
    const uint64_t end = clock_ns() + ns;
    const size_t count = TRAFFIC / sizeof *memory;
    while (clock_ns() < end)
        for (size_t i = thread_in_grid(), steps = 0; steps < 1024; i = (i + threads_in_grid()) % count, steps++) {
            uint4 v = memory[i];
            v.x++;
            memory[i] = v;
        }
}

/* --- the box --- */
struct gpu {
    char *region[MOST_GPUS]; /* in this GPU's memory: one for each peer to overwrite */
    uint4 *traffic;
    struct tally *tally;
    cudaStream_t stream[2 * MOST_GPUS + 1];
};
static struct gpu gpus[MOST_GPUS];
static int count = 0;

static void gpu_open(int g) {
    CUDA_OK(cudaSetDevice(g));
    for (int p = 0; p < count; p++) {
        if (p == g) continue;
        CUDA_OK(cudaDeviceEnablePeerAccess(p, 0));
        CUDA_OK(cudaMalloc(&gpus[g].region[p], REGION));
    }
    CUDA_OK(cudaMalloc(&gpus[g].traffic, TRAFFIC));
    CUDA_OK(cudaMalloc(&gpus[g].tally, sizeof *gpus[g].tally));
    for (int s = 0; s < 2 * count + 1; s++)
        CUDA_OK(cudaStreamCreateWithFlags(&gpus[g].stream[s], cudaStreamNonBlocking));
}

static bool all_reach_each_other() {
    for (int a = 0; a < count; a++)
        for (int b = 0; b < count; b++) {
            int can = 1;
            if (a != b) CUDA_OK(cudaDeviceCanAccessPeer(&can, a, b));
            if (!can) return false;
        }
    return true;
}

/* Peers first + 1 to first + senders of each GPU, modulo their number, overwrite. */
template <bool LINES> static unsigned long long run(int senders, bool traffic, double seconds) {
    const uint64_t ns = (uint64_t)(seconds * 1e9);
    struct tally sum = {};
    for (int g = 0; g < count; g++) {
        CUDA_OK(cudaSetDevice(g));
        CUDA_OK(cudaMemset(gpus[g].tally, 0, sizeof *gpus[g].tally));
        for (int p = 0; p < count; p++)
            if (p != g) CUDA_OK(cudaMemset(gpus[g].region[p], 0, REGION));
        CUDA_OK(cudaDeviceSynchronize());
    }
    for (int g = 0; g < count; g++) {
        int multiprocessors;
        CUDA_OK(cudaSetDevice(g));
        CUDA_OK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, g));
        for (int s = 1; s <= senders; s++) {
            const int to = (g + s) % count, from = (g + count - s) % count;
            const unsigned blocks = (unsigned)(2 * multiprocessors / senders);
            store_all<LINES><<<blocks / 2, THREADS, 0, gpus[g].stream[2 * s]>>>(gpus[to].region[g], gpus[g].tally, ns);
            load_all<LINES><<<blocks, THREADS, 0, gpus[g].stream[2 * s - 1]>>>(gpus[g].region[from], gpus[g].tally, ns);
        }
        if (traffic) push_out_of_cache<<<multiprocessors, THREADS, 0, gpus[g].stream[0]>>>(gpus[g].traffic, ns);
        CUDA_OK(cudaGetLastError());
    }
    for (int g = 0; g < count; g++) {
        struct tally t;
        CUDA_OK(cudaSetDevice(g));
        CUDA_OK(cudaDeviceSynchronize());
        CUDA_OK(cudaMemcpy(&t, gpus[g].tally, sizeof t, cudaMemcpyDeviceToHost));
        if (t.torn)
            printf("GPU %d: torn: beside flag %llu word %llu is %016llx, not %016llx\n", g, t.flag, t.word, t.got,
                   t.wanted);
        sum.loads += t.loads;
        sum.stores += t.stores;
        sum.torn += t.torn;
    }
    printf("%-7s overwritten by %d peer%s%-18s %9.2e loads, %9.2e stores, %llu torn\n", LINES ? "lines" : "packets",
           senders, senders > 1 ? "s" : "", traffic ? ", L2 pressure" : "", (double)sum.loads, (double)sum.stores,
           sum.torn);
    fflush(stdout);
    if (!sum.loads || !sum.stores) {
        printf("lines: nothing was loaded or stored\n");
        exit(1);
    }
    return sum.torn;
}

int main(int argc, char **argv) {
    double seconds = 60;
    int wanted = 0, version = 0, steps = 0;
    unsigned long long torn = 0;
    cudaDeviceProp properties;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 < argc && strcmp(argv[i], "--gpus") == 0)
            wanted = atoi(argv[i + 1]);
        else if (i + 1 < argc && strcmp(argv[i], "--seconds") == 0)
            seconds = atof(argv[i + 1]);
        else {
            fprintf(stderr, "lines: %s; accepted: --gpus N, --seconds S\n", argv[i]);
            return 2;
        }
    }
    if (cudaGetDeviceCount(&count) != cudaSuccess || count < 2 || count < wanted) {
        printf("lines: %d GPUs here, %d wanted\n", count, wanted > 2 ? wanted : 2);
        return 77;
    }
    if (wanted) count = wanted;
    if (count > MOST_GPUS) count = MOST_GPUS;
    if (count < 2 || !all_reach_each_other()) {
        printf("lines: GPUs 0 to %d do not all reach each other's memory\n", count - 1);
        return 77;
    }
    CUDA_OK(cudaGetDeviceProperties(&properties, 0));
    CUDA_OK(cudaDriverGetVersion(&version));
    printf("%d %s, compute capability %d.%d, driver for CUDA %d.%d\n", count, properties.name, properties.major,
           properties.minor, version / 1000, version % 1000 / 10);
    for (int g = 0; g < count; g++) gpu_open(g);
    const int others[] = {1, count - 1};
    const int kinds = count > 2 ? 2 : 1;
    steps = 4 * kinds;
    for (int k = 0; k < kinds; k++)
        for (int traffic = 0; traffic < 2; traffic++) {
            torn += run<true>(others[k], traffic, seconds / steps);
            torn += run<false>(others[k], traffic, seconds / steps);
        }
    puts(torn ? "lines: TORN" : "lines: ok");
    return torn != 0;
}
