/* ll.cuh - one-shot all-reduces a word a packet: what those that send to each peer and those that send to all at once
 * have in common.
 */
#ifndef BEELINE_LL_CUH
#define BEELINE_LL_CUH

#include "core/staging.cuh"
#include "core/types.cuh"
#include "core/words.cuh"

/* One thread carries one word: it loads it, hands it to send(k, word), polls for the same word of each peer, and reduces in
 * rank order.  from(source) is where that rank's packets come.  All threads of the grid call it.  False: leave the kernel. */
template <class T, int N, class Send, class From>
BL_DEVICE bool reduce_packets(const struct bl_kernel_args &a, uint64_t flag, Send send, From from) {
    const uint64_t bytes = a.count * T::SIZE;
    const Message in = message_of(a.sendbuff, bytes), out = message_of(a.recvbuff, bytes);
    const unsigned n = a.nranks, rank = a.rank;
    Wait wait = wait_begin(flag);

    /* The bound is rounded up to whole warps: all lanes of a warp stay in the loop together. */
    for (uint64_t k = thread_in_grid(); k - lane_in_warp() < in.words; k += threads_in_grid()) {
        const bool active = k < in.words;
        const uint64_t own = active ? load_word(in, k) : 0;
        if (active) send(k, own);
        const unsigned char *at[N];
        PacketView view[N];
        bool missing[N];
#pragma unroll
        for (int r = 0; r < N; r++) {
            at[r] = kept(from(r) + k * PACKET_BYTES);
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
                missing[r] = missing[r] && !packet_arrived(view[r], flag);
                all = all && !missing[r];
            }
            if (warp_all(all)) break;
            if (wait_is_long(wait)) {
                unsigned peer = rank;
#pragma unroll
                for (int r = 0; r < N; r++)
                    if (missing[r]) peer = r;
                if (!wait_on(a, wait, peer)) return false;
            }
        }
        wait_over(wait);
        if (active) {
            Sum<T, 1> sum;
            uint64_t words[N][1], result[1];
#pragma unroll
            for (int r = 0; r < N; r++) words[r][0] = packet_data(view[r]);
            reduce_in_rank_order<T, 1, N>(sum, words, 0, a, n);
            sum.store(result, a, n);
            store_word(out, k, result[0]);
        }
    }
    return true;
}

#endif
