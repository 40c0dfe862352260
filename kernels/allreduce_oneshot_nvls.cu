/* allreduce_oneshot_nvls.cu - the smallest all-reduces of many ranks: every rank sends its whole message to all peers at
 * once, a word a packet.
 *
 * As allreduce_oneshot_ll.cu, but with one store for all peers instead of one for each.  The switch copies and adds
 * nothing: the result is that of any other kernel, to the bit, for all datatypes and operations.  A packet is stored through
 * the object's address and polled through the replica's without a fence between the two, which the PTX memory model leaves
 * open; NCCL's LL kernels on multicast do the same.
 *
 * Contract: count >= 1 and at most layout.multicast_packets words; any grid of whole warps; sendbuff and recvbuff any
 * alignment, equal or disjoint.  Flags and halves: nvls.cuh.  A wait that is told to stop leaves the kernel with
 * recvbuff unspecified and the communicator unusable.
 */
#include <core/primitives.cuh>
#include "carriers/ll.cuh"
#include "carriers/nvls.cuh"
#include "core/instantiate.cuh"

template <class T, int N> BL_DEVICE void allreduce_oneshot_nvls(const struct bl_kernel_args &a) {
    const Multicast m = multicast_begin(a);
    const uint64_t flag = m.e + 1, to = packet_offset(a, m, a.rank);
    const auto send = [&](uint64_t k, uint64_t word) {
        if (is_stopped(flag)) return;
        multicast_store_packet_relaxed_sys(a.multicast + to + k * PACKET_BYTES, word, flag);
    };
    const auto from = [&](unsigned source) { return a.replica + packet_offset(a, m, source); };
    if (reduce_packets<T, N>(a, flag, send, from)) multicast_end(a, m);
}

BL_INSTANTIATE_SOME(bl_allreduce_oneshot_nvls, allreduce_oneshot_nvls)
