/* reduce_line.cu - every rank sends its message to the root, in lines, which reduces them in rank order.
 *
 * One NVLink one-way, no barrier, no fence.  All blocks of the root receive, all of the other ranks send; where no data
 * goes, a token does.
 *
 * Contract: count >= 1 and at most layout.peer_lines lines; any grid of whole warps; buffers of any alignment, of the
 * root equal or disjoint; the others' recvbuff is not written.  Flags and reuse of the staging: staging.cuh.  A wait
 * that is told to stop leaves the kernel with recvbuff unspecified and the communicator unusable.
 */
#include <primitives.cuh>
#include "crews.cuh"
#include "instantiate.cuh"
#include "types.cuh"
#include "words.cuh"

template <class T, int N> BL_DEVICE void reduce_line(const struct bl_kernel_args &a) {
    const uint64_t e = epoch_begin(a), flag = e + 1, bytes = a.count * T::SIZE;
    const Region region = peer_region(a, e);
    const uint32_t root = 1u << a.root;

    if (a.rank == a.root) {
        const Message in = message_of(a.sendbuff, bytes, a.sendbuff == a.recvbuff), out = message_of(a.recvbuff, bytes);
        send_tokens<N>(a, region, EVERYONE, flag);
        if (!reduce_all<T, N>(
                a, region, lines_of(in), whole_grid(), flag, false, [&](uint64_t line) { return load_line(in, line); },
                [&](uint64_t line, Pair sum) { store_line(out, line, sum); }))
            return;
    } else {
        const Message in = message_of(a.sendbuff, bytes, false);
        const Crew crew = crew_of(whole_grid());
        for (uint64_t line = crew.group; line - crew.group + crew.of_warp < lines_of(in); line += crew.groups) {
            const Pair v = load_line(in, line);
            warp_sync(); /* lanes may have parted at a tail; a line is stored by all of its lanes at once */
            if (line < lines_of(in)) send_line(a, region, a.root, line, v, flag);
        }
        send_tokens<N>(a, region, ~root, flag);
        if (!receive_tokens<N>(a, region, EVERYONE, flag)) return;
    }
    epoch_end(a, flag);
}

BL_INSTANTIATE(bl_reduce_line, reduce_line)
