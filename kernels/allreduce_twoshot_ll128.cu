/* allreduce_twoshot_ll128.cu - middle to large all-reduces: reduce-scatter, then all-gather, both in lines, in one launch;
 * of one message or of a batch of messages.
 *
 * Each rank owns one of nranks equal runs of lines.  Three crews of blocks work at once, each going through its lines in
 * order: *senders* send the peers' runs to their owners and never wait; *reducers* receive the peers' versions of this
 * rank's run, reduce them in rank order and send the results to every peer; *collectors* receive the peers' results and
 * store them.  Two NVLink one-ways for the first line, then all crews run at the speed of the links; 2 (n-1)/n of the
 * data crosses each rank's link each way.  No barrier, no fence.
 *
 * Contract: count >= 1 and at most nranks * layout.peer_lines / 2 lines; any grid of whole warps; sendbuff and recvbuff any
 * alignment, equal or disjoint.  In place, no word is overwritten unread: reducers alone touch this rank's run, and a
 * collector has a peer's result only after that peer had our input.  Every rank sends and receives every line of a run,
 * even those beyond the message's end, so that something comes from each peer: staging.cuh needs it.  A wait that is
 * told to stop leaves the kernel with recvbuff unspecified and the communicator unusable.
 */
#include <core/primitives.cuh>
#include "carriers/crews.cuh"
#include "carriers/messages.cuh"
#include "core/instantiate.cuh"

enum { LONG_RUN = 6000 }; /* lines */

/* Of 32 blocks; the rest collects.  Measured on H200 (docs/notebook.md). */
struct Crews {
    unsigned sending, reducing;
};

/* Long messages are not in the L2 cache: with longer loads, more senders fill the links.  With one peer, a line has more
 * to reduce for what there is to send. */
template <int N> BL_DEVICE Crews crews_for(uint64_t run, bool in_runs) {
    if (in_runs && N > 2) return {8, 14};
    if (in_runs) return is_wide() ? Crews{10, 12} : Crews{9, 14};
    if (N == 2) return {6, 16};
    return run < LONG_RUN ? Crews{7, 15} : Crews{9, 14};
}

/* AT_A_TIME, SENT_AT_A_TIME: so many whole lines are under way where they come in runs, of every peer, and to one.  False: leave the kernel. */
template <class T, int N, int AT_A_TIME, int SENT_AT_A_TIME, class In, class Out>
BL_DEVICE bool by_three_crews(const struct bl_kernel_args &a, const Region &inputs, const Region &results, uint64_t run,
                              bool in_runs, const Blank &sign, const In &in, const Out &out) {
    const unsigned nranks = nranks_of<N>(a);
    const uint64_t own = a.rank * run;
    const Crews crews = crews_for<N>(run, in_runs);
    const unsigned reduced = crews.sending + crews.reducing;
    const Share senders = share_of(0, crews.sending), reducers = share_of(crews.sending, reduced),
                collectors = share_of(reduced, 32);

    const bool whole = in_runs && whole_lines(in) > 0;
    const auto whole_of = [&](unsigned rank) { return whole ? whole_lines_from(in, rank * run, run) : 0; };
    const unsigned fewest = N == 2 ? 1 - a.rank : nranks - 1; /* of the peers' runs none has fewer whole lines */
    /* What lies behind the run may be stored to. */
    const auto load_own_run = [&](uint64_t line, uint64_t step, auto &v, bool is_whole) {
        if (line < run) load_lines(in, own + line, step, v, is_whole);
    };
    const auto load = [&](unsigned peer, uint64_t line, uint64_t step, auto &v, bool is_whole) {
        load_lines(in, peer * run + line, step, v, is_whole);
    };

    if (in_share(senders)) {
        if (whole)
            send_runs_to_each<SENT_AT_A_TIME>(a, nranks, inputs, run, whole_of(fewest), senders, sign, load,
                                              NoPrefetch());
        else
            send_to_each<N, N == 2 ? 2 : 1>(a, inputs, run, senders, sign, load, NoPrefetch());
    }
    if (in_share(reducers) &&
        !reduce_whole<T, N, AT_A_TIME>(a, nranks, inputs, run, whole_of(a.rank), reducers, sign, load_own_run,
                                       [&](uint64_t line, Pair sum, bool is_whole) {
                                           if (is_whole)
                                               warp_sync(); /* lanes may have parted where the last one was stored */
#pragma unroll
                                           for (int i = 1; i < N; i++)
                                               if (i < (int)nranks)
                                                   send_line(a, results, peer_at(a.rank, i, nranks), line, sum, sign);
                                           store_line(out, own + line, sum, is_whole);
                                       }))
        return false;
    return !in_share(collectors) ||
           receive_all_from_each<N, AT_A_TIME>(a, nranks, results, run, whole_of(fewest), collectors, sign,
                                               [&](unsigned peer, uint64_t line, Pair v, bool is_whole) {
                                                   store_line(out, peer * run + line, v, is_whole);
                                               });
}

template <class T, int N, class In, class Out>
BL_DEVICE void reduce_in_two_shots(const struct bl_kernel_args &a, const In &in, const Out &out) {
    const uint64_t e = epoch_begin(a);
    const Blank sign = blank_of(a, e);
    const unsigned nranks = nranks_of<N>(a);
    const uint64_t run = (lines_of(in) + nranks - 1) / nranks; /* lines that each rank owns */
    const Region inputs = peer_region(a, e), results = behind(inputs, run);
    enum { FEW = LinesOfFew<N>::COUNT, SENT_BY_FEW = LinesOfFew<N>::SENT, MANY = LinesAtATime<N>::COUNT };
    if (few_carry<N>(run, FEW) && whole_lines(in) > 0) {
        if (!by_three_crews<T, N, FEW, SENT_BY_FEW>(a, inputs, results, run, true, sign, in, out)) return;
    } else if (!by_three_crews<T, N, MANY, MANY>(a, inputs, results, run, comes_in_runs<N>(run), sign, in, out)) {
        return;
    }
    epoch_end(a, sign.flag);
}

template <class T, int N> BL_DEVICE void allreduce_twoshot_ll128(const struct bl_kernel_args &a) {
    const uint64_t bytes = a.count * T::SIZE;
    reduce_in_two_shots<T, N>(a, run_of<LINE_WORDS>(a.sendbuff, bytes), run_of<LINE_WORDS>(a.recvbuff, bytes));
}

template <class T, int N> BL_DEVICE void allreduce_twoshot_ll128_batch(const struct bl_batch_args &a) {
    reduce_in_two_shots<T, N>(a.common, BatchInput<T, LINE_WORDS, struct bl_batch_args, N == 2>{a, 0},
                              BatchOutput<T, LINE_WORDS>{a, 0});
}

BL_INSTANTIATE(bl_allreduce_twoshot_ll128, allreduce_twoshot_ll128)
BL_INSTANTIATE_BATCH(bl_allreduce_twoshot_ll128_batch, allreduce_twoshot_ll128_batch)
