/* kernels.cu - small kernels with which the emulated driver is tested.  What redop says differs from kernel to kernel.
 */
#include "core/primitives.cuh"
#include "cudatest.h"

static void copy(const struct bl_kernel_args &args) {
    const uint64_t *from = (const uint64_t *)args.sendbuff;
    uint64_t *to = (uint64_t *)args.recvbuff;
    for (uint64_t i = thread_in_grid(); i < args.count; i += threads_in_grid())
        store_own(to + i, load_own(from + i) + 1);
}
BL_KERNEL(test_copy, copy)

/* One word past the end of recvbuff, through a primitive. */
static void overrun(const struct bl_kernel_args &args) {
    store_own((uint64_t *)args.recvbuff + args.count, (uint64_t)1);
}
BL_KERNEL(test_overrun, overrun)

static bool wait_word(const struct bl_kernel_args &args, const uint64_t *word, uint64_t value, bool acquire) {
    uint64_t start = clock_ns();
    while ((acquire ? load_acquire_sys(word) : load_relaxed_sys(word)) < value) {
        if (args.timeout_ns && clock_ns() - start > args.timeout_ns) return false;
        spin_pause();
    }
    return true;
}

/* Message passing round a ring: count words, then a flag.  redop: enum test_message, which orders are left out. */
static void message(const struct bl_kernel_args &args) {
    uint64_t *out = (uint64_t *)args.staging[(args.rank + 1) % args.nranks];
    uint64_t *in = (uint64_t *)args.staging[args.rank];
    uint64_t *result = (uint64_t *)args.recvbuff;
    if (thread_in_grid()) return;
    for (uint64_t i = 0; i < args.count; i++) store_own(out + i, i + 1);
    if (args.redop == TEST_FENCE || args.redop == TEST_NO_ACQUIRE) fence_acq_rel_sys();
    if (args.redop == TEST_RELEASE)
        store_release_sys(out + TEST_FLAG, (uint64_t)1);
    else
        store_relaxed_sys(out + TEST_FLAG, (uint64_t)1);
    wait_word(args, in + TEST_FLAG, 1, args.redop != TEST_NO_ACQUIRE && args.redop != TEST_FENCE);
    if (args.redop == TEST_FENCE) fence_acq_rel_sys();
    for (uint64_t i = 0; i < args.count; i++) store_own(result + i, load_own(in + i));
}
BL_KERNEL(test_message, message)

/* The same by a whole block: every thread stores a word, one thread tells of it.  redop: leave the barrier or fence
 * out. */
static void block_message(const struct bl_kernel_args &args) {
    uint64_t *out = (uint64_t *)args.staging[(args.rank + 1) % args.nranks];
    uint64_t *in = (uint64_t *)args.staging[args.rank];
    uint64_t me = thread_in_grid();
    store_own(out + me, me + 1);
    if (args.redop != TEST_NO_BARRIER) block_sync();
    if (me == 0) {
        if (args.redop != TEST_NOTHING) fence_acq_rel_sys();
        store_relaxed_sys(out + TEST_FLAG, (uint64_t)1);
        wait_word(args, in + TEST_FLAG, 1, true);
    }
    block_sync();
    store_own((uint64_t *)args.recvbuff + me, load_own(in + me));
}
BL_KERNEL(test_block_message, block_message)

/* Packets to every rank, every thread its own, again and again; two sets in turn, so that nobody is overrun. */
static void packets(const struct bl_kernel_args &args) {
    uint64_t sum = 0, me = thread_in_grid();
    for (uint64_t round = 1; round <= args.count; round++) {
        uint64_t base = (round & 1) * args.nranks;
        for (unsigned to = 0; to < args.nranks; to++) {
            unsigned char *packet = args.staging[to] + ((base + args.rank) * threads_in_grid() + me) * 16;
            store_packet_relaxed_sys(packet, round * 1000 + args.rank * 100 + me, round);
        }
        for (unsigned from = 0; from < args.nranks; from++) {
            const unsigned char *packet = args.staging[args.rank] + ((base + from) * threads_in_grid() + me) * 16;
            PacketView view = load_packet_relaxed_sys(packet);
            while (!packet_arrived(view, round)) {
                spin_pause();
                view = load_packet_relaxed_sys(packet);
            }
            sum += packet_data(view);
        }
    }
    store_own((uint64_t *)args.recvbuff + me, sum);
}
BL_KERNEL(test_packets, packets)

/* The same in lines: 8 threads a line.  redop TEST_NOTHING: do not wait for the flag. */
static void lines(const struct bl_kernel_args &args) {
    uint64_t sum = 0, me = thread_in_grid();
    unsigned part = lane_in_warp() & 7;
    for (uint64_t round = 1; round <= args.count; round++) {
        uint64_t base = (round & 1) * args.nranks;
        for (unsigned to = 0; to < args.nranks; to++) {
            unsigned char *line = args.staging[to] + ((base + args.rank) * threads_in_grid() + me - part) * 16;
            store_line_relaxed_sys(line, part, Pair{round * 1000 + args.rank, me}, round);
        }
        for (unsigned from = 0; from < args.nranks; from++) {
            const unsigned char *line = args.staging[args.rank] + ((base + from) * threads_in_grid() + me - part) * 16;
            LineView view = load_line_relaxed_sys(line, part);
            while (args.redop != TEST_NOTHING && !warp_all(line_arrived(view, part, round))) {
                spin_pause();
                view = load_line_relaxed_sys(line, part);
            }
            sum += line_data(view).x;
        }
    }
    store_own((uint64_t *)args.recvbuff + me, sum);
}
BL_KERNEL(test_lines, lines)

/* The same in cells of lines, each for itself: what is not zero has come, and who has it zeroes it.  redop TEST_NOTHING: without the fence by which
 * that is over before anybody may store there again. */
static void cells(const struct bl_kernel_args &args) {
    const unsigned part = lane_in_warp() & 7;
    const uint64_t me = thread_in_grid(), begin = clock_ns();
    uint64_t sum = 0;
    for (uint64_t round = 1; round <= args.count; round++) {
        const uint64_t base = (round & 1) * args.nranks;
        for (unsigned to = 0; to < args.nranks; to++)
            store_cell_relaxed_sys(args.staging[to] + ((base + args.rank) * threads_in_grid() + me - part) * 16, part,
                                   Pair{round * 1000 + args.rank, round});
        for (unsigned from = 0; from < args.nranks; from++) {
            unsigned char *line = args.staging[args.rank] + ((base + from) * threads_in_grid() + me - part) * 16;
            LineView view = load_cell_relaxed_sys(line, part);
            while (!cell_arrived(view, Pair{0, 0}) && clock_ns() - begin < args.timeout_ns) {
                spin_pause();
                view = load_cell_relaxed_sys(line, part);
            }
            sum += line_data(view).x + (line_data(view).y == round ? 0 : UINT64_C(1) << 40);
            store_own_cell(line, part, Pair{0, 0});
        }
        if (args.redop == TEST_FENCE) fence_acq_rel_sys();
    }
    store_own((uint64_t *)args.recvbuff + me, sum);
}
BL_KERNEL(test_cells, cells)

/* Each group of 8 threads sends count lines to the next rank before it waits for any: lanes get far apart. */
static void flood(const struct bl_kernel_args &args) {
    const uint64_t part = lane_in_warp() & 7, me = thread_in_grid(), group = me / 8, groups = threads_in_grid() / 8;
    unsigned char *out = args.staging[(args.rank + 1) % args.nranks];
    const unsigned char *in = args.staging[args.rank];
    uint64_t sum = 0;
    for (uint64_t i = 0; i < args.count; i++)
        store_line_relaxed_sys(out + (i * groups + group) * 128, part, Pair{i, me}, 1);
    for (uint64_t i = 0; i < args.count; i++) {
        LineView view = load_line_relaxed_sys(in + (i * groups + group) * 128, part);
        while (!line_arrived(view, part, 1)) {
            spin_pause();
            view = load_line_relaxed_sys(in + (i * groups + group) * 128, part);
        }
        sum += line_data(view).x;
    }
    store_own((uint64_t *)args.recvbuff + me, sum);
}
BL_KERNEL(test_flood, flood)

/* All blocks wait for the last, which no GPU promises to run beside them. */
static void resident(const struct bl_kernel_args &args) {
    uint64_t me = thread_in_grid();
    if (me == threads_in_grid() - 1) atomic_add_acq_rel_gpu(args.epochs, 1);
    bool came = wait_word(args, args.epochs, 1, true);
    store_own((uint64_t *)args.recvbuff + me, (uint64_t)came);
}
BL_KERNEL(test_resident, resident)

/* Every block waits for the word that the host writes into staging. */
static void gate(const struct bl_kernel_args &args) {
    wait_word(args, (const uint64_t *)args.staging[args.rank], 1, true);
}
BL_KERNEL(test_gate, gate)

/* Every thread of the grid counts; the last one to come tells how many came. */
static void count(const struct bl_kernel_args &args) {
    block_sync();
    uint64_t before = atomic_add_acq_rel_gpu(args.epochs, 1);
    if (before == threads_in_grid() - 1) store_own((uint64_t *)args.recvbuff, before + 1);
}
BL_KERNEL(test_count, count)

/* The same, and may be launched early. */
static void count_behind(const struct bl_kernel_args &args) {
    stream_wait();
    count(args);
}
BL_KERNEL(test_count_behind, count_behind)
