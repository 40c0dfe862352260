/* allreduce_oneshot_ll.cu - the smallest all-reduces: every rank sends its whole message to every peer, a word a
 * packet.
 *
 * One NVLink one-way, no barrier, no fence; twice the bytes of the data.  A thread loads a word, stores it into each peer's
 * staging, polls its own staging for that word of each peer, reduces all in rank order and stores the result (ll.cuh).
 *
 * Contract: count >= 1 and at most layout.packets words; any grid of whole warps; sendbuff and recvbuff any alignment,
 * equal or disjoint.  Flags and reuse of the staging: staging.cuh.  A wait that is told to stop leaves the kernel with
 * recvbuff unspecified and the communicator unusable (control->abort).
 */
#include <core/primitives.cuh>
#include "carriers/ll.cuh"
#include "core/instantiate.cuh"

template <class T, int N> BL_DEVICE void allreduce_oneshot_ll(const struct bl_kernel_args &a) {
    const uint64_t e = epoch_begin(a), flag = next_epoch(e);
    const Region region = packet_region(a, e);
    const auto send = [&](uint64_t k, uint64_t word) {
#pragma unroll
        for (int i = 1; i < N; i++) {
            if (i < (int)a.nranks && !is_stopped(flag))
                store_packet_relaxed_sys(place_of(a, region, peer_at(a.rank, i, a.nranks), a.rank) + k * PACKET_BYTES,
                                         word, flag);
        }
    };
    const auto from = [&](unsigned source) { return place_of(a, region, a.rank, source); };
    if (reduce_packets<T, N>(a, flag, send, from)) epoch_end(a, flag);
}

BL_INSTANTIATE(bl_allreduce_oneshot_ll, allreduce_oneshot_ll)
