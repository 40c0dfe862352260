/* allreduce_twoshot_line.cu - middle to large all-reduces: reduce-scatter, then all-gather, both in lines, in one launch;
 * of one message or of a batch of messages.
 *
 * Each rank owns one of nranks equal runs of lines.  Three crews of blocks work at once, each going through its lines in
 * order: *senders* send the peers' runs to their owners and never wait; *reducers* receive the peers' versions of this
 * rank's run, reduce them in rank order and send the results to every peer; *collectors* receive the peers' results and
 * store them.  Two NVLink one-ways for the first line, then all crews run at the speed of the links; 2 (n-1)/n of the
 * data crosses each rank's link each way, times 16/15.  No barrier, no fence.
 *
 * Contract: count >= 1 and at most nranks * layout.twoshot_lines lines; any grid of whole warps; sendbuff and recvbuff any
 * alignment, equal or disjoint.  In place, no word is overwritten unread: reducers alone touch this rank's run, and a
 * collector has a peer's result only after that peer had our input.  Every rank sends and receives every line of a run,
 * even those beyond the message's end: staging.cuh needs it.  A wait that is told to stop, or that runs out, leaves the
 * kernel with recvbuff unspecified and the communicator unusable.
 */
#include <primitives.cuh>
#include "instantiate.cuh"
#include "lines.cuh"
#include "messages.cuh"
#include "types.cuh"
#include "words.cuh"

enum { LONG_RUN = 6000 }; /* lines; the shares were measured on H200 (docs/algorithms.md) */

template <int N, class In>
BL_DEVICE void send_inputs(const struct bl_kernel_args &a, const In &in, uint64_t run, const Share &share,
                           uint64_t flag) {
    enum { LOADS = N <= 4 ? N - 1 : AtATime<N>::LOADS };
    const Crew crew = crew_of(share);
    const Region inputs = twoshot_region(a, INPUTS);
    for (uint64_t line = crew.group; line - crew.group + crew.of_warp < run; line += crew.groups) {
#pragma unroll(AtATime <N>::UNROLL)
        for (int begin = 1; begin < N; begin += LOADS) {
            Pair outgoing[LOADS] = {}; /* what is not loaded is not sent */
#pragma unroll
            for (int i = 0; i < LOADS; i++)
                if (line < run && begin + i < (int)a.nranks)
                    outgoing[i] = load_line(in, peer_at(a.rank, begin + i, a.nranks) * run + line);
            warp_sync(); /* lanes may have parted at a tail; a line is stored by all of its lanes at once */
#pragma unroll
            for (int i = 0; i < LOADS; i++)
                if (line < run && begin + i < (int)a.nranks)
                    send_line(a, inputs, peer_at(a.rank, begin + i, a.nranks), line, outgoing[i], flag);
        }
    }
}

template <class T, int N, class In, class Out>
BL_DEVICE bool reduce_run(const struct bl_kernel_args &a, const In &in, const Out &out, uint64_t run,
                          const Share &share, uint64_t flag) {
    const Crew crew = crew_of(share);
    const Region inputs = twoshot_region(a, INPUTS), results = twoshot_region(a, RESULTS);
    Wait wait = {0, 0};
    for (uint64_t line = crew.group; line - crew.group + crew.of_warp < run; line += crew.groups) {
        const bool active = line < run;
        Pair own = {0, 0}, sum;
        if (active) own = load_line(in, a.rank * run + line);
        warp_sync();
        if (!receive_and_reduce<T, N>(a, inputs, line, flag, active, false, own, sum, wait)) return false;
        if (!active) continue;
#pragma unroll
        for (int i = 1; i < N; i++)
            if (i < (int)a.nranks) send_line(a, results, peer_at(a.rank, i, a.nranks), line, sum, flag);
        store_line(out, a.rank * run + line, sum);
    }
    return true;
}

template <int N, class Out>
BL_DEVICE bool collect_results(const struct bl_kernel_args &a, const Out &out, uint64_t run, const Share &share,
                               uint64_t flag) {
    enum { RANKS = AtATime<N>::RANKS };
    const Crew crew = crew_of(share);
    const Region results = twoshot_region(a, RESULTS);
    Wait wait = {0, 0};
    for (uint64_t line = crew.group; line - crew.group + crew.of_warp < run; line += crew.groups) {
        const bool active = line < run;
#pragma unroll(AtATime <N>::UNROLL)
        for (int begin = 0; begin < N; begin += RANKS) {
            if (begin >= (int)a.nranks) break;
            const Pair none = {0, 0};
            uint64_t words[RANKS][2];
            if (!receive_lines<RANKS>(a, results, line, begin, flag, active, false, none, words, wait)) return false;
#pragma unroll
            for (int i = 0; i < RANKS; i++) {
                if (active && begin + i < (int)a.nranks && begin + i != (int)a.rank) {
                    const Pair v = {words[i][0], words[i][1]};
                    store_line(out, (begin + i) * run + line, v);
                }
            }
        }
    }
    return true;
}

template <class T, int N, class In, class Out>
BL_DEVICE void reduce_in_two_shots(const struct bl_kernel_args &a, const In &in, const Out &out) {
    const uint64_t e = epoch_begin(a), flag = e + 1;
    const uint64_t run = (lines_of(in) + a.nranks - 1) / a.nranks; /* lines that each rank owns */
    /* Long messages are not in the L2 cache: with longer loads, more senders fill the links.  With one peer, a line has more
     * to reduce for what there is to send. */
    const unsigned sending = N == 2 ? 6 : run < LONG_RUN ? 7 : 9, reducing = N == 2 ? 16 : run < LONG_RUN ? 15 : 14;
    const Share senders = share_of(0, sending), reducers = share_of(sending, sending + reducing),
                collectors = share_of(sending + reducing, 32);

    if (in_share(senders)) send_inputs<N>(a, in, run, senders, flag);
    if (in_share(reducers) && !reduce_run<T, N>(a, in, out, run, reducers, flag)) return;
    if (in_share(collectors) && !collect_results<N>(a, out, run, collectors, BL_MUTATION(6) ? flag - 2 : flag)) return;
    epoch_end(a, e);
}

template <class T, int N> BL_DEVICE void allreduce_twoshot_line(const struct bl_kernel_args &a) {
    const uint64_t bytes = a.count * T::SIZE;
    reduce_in_two_shots<T, N>(a, message_of(a.sendbuff, bytes, a.sendbuff == a.recvbuff),
                              message_of(a.recvbuff, bytes));
}

template <class T, int N> BL_DEVICE void allreduce_twoshot_line_batch(const struct bl_batch_args &a) {
    reduce_in_two_shots<T, N>(a.common, BatchInput<T>{a}, BatchOutput<T>{a});
}

BL_INSTANTIATE(bl_allreduce_twoshot_line, allreduce_twoshot_line)
BL_INSTANTIATE_BATCH(bl_allreduce_twoshot_line_batch, allreduce_twoshot_line_batch)
