/* allreduce_oneshot_line.cu - small to middle all-reduces: every rank sends its whole message to every peer, in lines.
 *
 * Eight lanes carry one line of 15 words: they load it, store it into each peer's staging, poll their own for the same
 * line of each peer, and reduce in rank order.  One NVLink one-way, no barrier, no fence; 16/15 of the bytes of the
 * data.
 *
 * Contract: count >= 1 and at most 2 * layout.lines lines; equal grid on all ranks, whole warps; sendbuff and recvbuff
 * any alignment, equal or disjoint (a line's own words are loaded by the lanes that later store them).  Flags and reuse
 * of the staging: staging.cuh.  A wait that is told to stop, or that runs out, leaves the kernel with recvbuff
 * unspecified and the communicator unusable.
 */
#include <primitives.cuh>
#include "instantiate.cuh"
#include "lines.cuh"
#include "types.cuh"
#include "words.cuh"

template <class T, int N> BL_DEVICE void allreduce_oneshot_line(const struct bl_kernel_args &a) {
    const uint64_t e = epoch_begin(a), flag = e + 1, bytes = a.count * T::SIZE;
    const Message in = message_of(a.sendbuff, bytes, a.sendbuff == a.recvbuff), out = message_of(a.recvbuff, bytes);
    const unsigned n = a.nranks, rank = a.rank, part = lane_in_warp() % LINE_LANES;
    const uint64_t lines = (in.words + LINE_WORDS - 1) / LINE_WORDS;
    const uint64_t stride = 2 * line_stride(a); /* between sources */
    Wait wait = {0, 0};

    for (uint64_t line = thread_in_grid() / LINE_LANES; line - lane_in_warp() / LINE_LANES < lines;
         line += threads_in_grid() / LINE_LANES) {
        const bool active = line < lines;
        const unsigned char *slot = lines_begin(a, e) + line * LINE_BYTES;
        const Pair own = load_part(in, line * LINE_WORDS, part);
        warp_sync(); /* lanes may have parted at a tail; a line is stored by all of its lanes at once */
        if (active) {
#pragma unroll
            for (int i = 1; i < N; i++) {
                if (i < (int)n)
                    store_line_relaxed_sys(staging_of(a, slot, peer_at(rank, i, n)) + rank * stride, part, own, flag);
            }
        }
        Pair sum;
        if (!receive_and_reduce<T, N>(a, slot, stride, flag, active, own, sum, wait)) return;
        if (active) store_part(out, line * LINE_WORDS, part, sum);
    }
    epoch_end(a, BL_MUTATION(4) ? e + 1 : e, 1); /* the mutation keeps every launch in one half */
}

BL_INSTANTIATE(bl_allreduce_oneshot_line, allreduce_oneshot_line)
