/* multimem_kernels.cu - kernels with which the multicast primitives are tested.  sendbuff is the multicast mapping, count the
 * round, redop what is left out. */
#include "core/types.cuh"
#include "cudatest.h"

static void wait_for(const struct bl_kernel_args &args, const uint64_t *word, uint64_t value, bool acquire) {
    const uint64_t start = clock_ns();
    while ((acquire ? load_acquire_sys(word) : load_relaxed_sys(word)) < value && clock_ns() - start < args.timeout_ns)
        spin_pause();
}

/* All threads of all ranks have come here, and see what the others stored before. */
static void barrier(const struct bl_kernel_args &args) {
    unsigned char *all = (unsigned char *)args.sendbuff + TEST_FLAG * 8, *own = args.staging[args.rank] + TEST_FLAG * 8;
    if (args.redop != TEST_NO_BARRIER) block_sync();
    if (thread_in_grid() == 0 && args.redop == TEST_NOTHING) { /* told without a release */
        multicast_store_relaxed_sys(all + args.rank * 16, Pair{args.count, 0});
        for (unsigned r = 0; r < args.nranks; r++) wait_for(args, (uint64_t *)(own + r * 16), args.count, true);
    } else if (thread_in_grid() == 0) {
        multicast_add_release_sys((uint64_t *)all, 1);
        wait_for(args, (uint64_t *)own, args.count * args.nranks, args.redop != TEST_NO_ACQUIRE);
    }
    block_sync();
}

/* Every thread of every rank stores two words at all ranks, and adds up what all stored here. */
static void gather(const struct bl_kernel_args &args) {
    const uint64_t me = thread_in_grid(), threads = threads_in_grid();
    uint64_t sum = 0;
    multicast_store_relaxed_sys((Pair *)args.sendbuff + args.rank * threads + me,
                                Pair{args.count * 1000 + args.rank, me});
    barrier(args);
    for (unsigned r = 0; r < args.nranks; r++) {
        const Pair v = load_replica_relaxed_sys((Pair *)args.staging[args.rank] + r * threads + (me + 1) % threads);
        sum += v.x + v.y;
    }
    store_own((uint64_t *)args.recvbuff + me, sum);
}
BL_KERNEL(test_multimem_gather, gather)

/* Every thread stores in its rank's own memory, and reduces what all ranks have where another thread stored. */
static void reduce(const struct bl_kernel_args &args) {
    const uint64_t me = thread_in_grid(), other = (me + 1) % threads_in_grid();
    store_replica_relaxed_sys((Pair *)args.staging[args.rank] + me, Pair{args.count * 1000 + args.rank, me});
    barrier(args);
    const Pair v = multimem_load_reduce<BL_UINT64, BL_SUM>((const Pair *)args.sendbuff + other);
    store_own((uint64_t *)args.recvbuff + me, v.x + v.y);
}
BL_KERNEL(test_multimem_reduce, reduce)

/* Packets to all ranks at once, again and again; two sets in turn. */
static void packets(const struct bl_kernel_args &args) {
    const uint64_t me = thread_in_grid(), threads = threads_in_grid();
    uint64_t sum = 0;
    for (uint64_t round = args.count * TEST_PACKETS; round < (args.count + 1) * TEST_PACKETS; round++) {
        const uint64_t base = (round & 1) * args.nranks;
        unsigned char *all = (unsigned char *)args.sendbuff;
        multicast_store_packet_relaxed_sys(all + ((base + args.rank) * threads + me) * 16, round * 100 + args.rank,
                                           round);
        for (unsigned r = 0; r < args.nranks; r++) {
            const unsigned char *packet = args.staging[args.rank] + ((base + r) * threads + me) * 16;
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
BL_KERNEL(test_multimem_packets, packets)

/* The reduction of each datatype and operation, in the order of TEST_REDUCTIONS, TEST_TRIES times: the i-th of the 16-byte
 * blocks of data into the i-th of results. */
template <int DATATYPE, int REDOP> static void reduce_block(const struct bl_kernel_args &args, int i) {
    for (int k = 0; k < TEST_TRIES; k++)
        store_own((Pair *)args.recvbuff + k * TEST_REDUCTION_COUNT + i,
                  multimem_load_reduce<DATATYPE, REDOP>((const Pair *)args.sendbuff + i));
}
static void types(const struct bl_kernel_args &args) {
    int i = 0;
    if (thread_in_grid()) return;
#define ROW(type, op) reduce_block<BL_##type, BL_##op>(args, i++);
    TEST_REDUCTIONS
#undef ROW
}
BL_KERNEL(test_multimem_types, types)

/* One access to sendbuff that must not be. */
static void forbidden(const struct bl_kernel_args &args) {
    const Pair v = {1, 2};
    void *p = (void *)args.sendbuff;
    switch (args.redop) {
    case TEST_MULTICAST_STORE: multicast_store_relaxed_sys(p, v); break;
    case TEST_MULTICAST_ADD: multicast_add_release_sys((uint64_t *)p, 1); break;
    case TEST_MULTICAST_REDUCE: store_own((Pair *)args.recvbuff, multimem_load_reduce<BL_FLOAT32, BL_SUM>(p)); break;
    case TEST_MULTICAST_REDUCE_FP8:
        store_own((Pair *)args.recvbuff, multimem_load_reduce<BL_FLOAT8E4M3, BL_SUM>(p));
        break;
    case TEST_PLAIN_STORE: store_replica_relaxed_sys((Pair *)p, v); break;
    case TEST_PLAIN_LOAD: store_own((Pair *)args.recvbuff, load_own((const Pair *)p)); break;
    case TEST_PLAIN_PACKET: store_packet_relaxed_sys(p, 1, 2); break;
    case TEST_PLAIN_ADD: atomic_add_acq_rel_gpu((uint64_t *)p, 1); break;
    }
}
BL_KERNEL(test_multimem_forbidden, forbidden)
