/* allreduce_oneshot_packet.cu - the smallest all-reduces: every rank sends its whole message to every peer, a word a
 * packet.
 *
 * One thread carries one word: it loads it, stores a packet into each peer's staging, polls its own staging for the
 * same word of each peer, and reduces in rank order.  One NVLink one-way, no barrier, no fence; twice the bytes of the
 * data.
 *
 * Contract: count >= 1 and at most layout.packets words; any grid of whole warps; sendbuff and recvbuff
 * any alignment, equal or disjoint.  Flags and reuse of the staging: staging.cuh.  A wait that is told to stop, or that
 * runs out, leaves the kernel with recvbuff unspecified and the communicator unusable (control->error, control->abort).
 */
#include <primitives.cuh>
#include "instantiate.cuh"
#include "mutation.cuh"
#include "staging.cuh"
#include "types.cuh"
#include "words.cuh"

template <class T, int N> BL_DEVICE void allreduce_oneshot_packet(const struct bl_kernel_args &a) {
    const uint64_t e = epoch_begin(a), flag = e + 1, bytes = a.count * T::SIZE;
    const Message in = message_of(a.sendbuff, bytes, a.sendbuff == a.recvbuff), out = message_of(a.recvbuff, bytes);
    const unsigned n = a.nranks, rank = a.rank;
    const Region region = packet_region(a, e);
    Wait wait = {0, 0};

    /* The bound is rounded up to whole warps: all lanes of a warp stay in the loop together. */
    for (uint64_t k = thread_in_grid(); k - lane_in_warp() < in.words; k += threads_in_grid()) {
        const bool active = k < in.words;
        const uint64_t own = active ? load_word(in, k) : 0;
        if (active) {
#pragma unroll
            for (int i = 1; i < N; i++) {
                if (i < (int)n)
                    store_packet_relaxed_sys(place_of(a, region, peer_at(rank, i, n), rank) + k * PACKET_BYTES, own,
                                             BL_MUTATION(1) ? flag - 1 : flag);
            }
        }
        const unsigned char *at[N];
        PacketView view[N];
        bool missing[N];
#pragma unroll
        for (int r = 0; r < N; r++) {
            at[r] = kept(place_of(a, region, rank, r) + k * PACKET_BYTES);
            view[r] = packet_of(own);
            missing[r] = active && r < (int)n && r != (int)rank;
        }
        for (;;) {
#pragma unroll
            for (int r = 0; r < N; r++)
                if (missing[r]) view[r] = load_packet_relaxed_sys(at[r]);
            bool all = true;
#pragma unroll
            for (int r = 0; r < N; r++) {
                missing[r] = missing[r] && !packet_arrived(view[r], flag) && !BL_MUTATION(2);
                all = all && !missing[r];
            }
            if (warp_all(all)) break;
            if (wait_is_long(wait)) {
                unsigned peer = rank;
#pragma unroll
                for (int r = 0; r < N; r++)
                    if (missing[r]) peer = r;
                if (!wait_on(a, wait, peer, flag)) return;
            }
        }
        wait_over(wait);
        if (active) {
            Sum<T, 1> sum;
            uint64_t words[N][1], result[1];
#pragma unroll
            for (int r = 0; r < N; r++) words[r][0] = packet_data(view[r]);
            reduce_in_rank_order<T, 1, N>(sum, words, 0, a.redop, n);
            sum.store(result, a.redop, n);
            store_word(out, k, result[0]);
        }
    }
    epoch_end(a, flag);
}

BL_INSTANTIATE(bl_allreduce_oneshot_packet, allreduce_oneshot_packet)
