/* crews.cuh - what a crew of blocks does with a run of lines: send it, receive it, reduce it.
 *
 * Kernels for longer messages share the grid's blocks out among crews: those that send never wait for anything, those that
 * receive never send before they have received, so the links stand still for neither.  What differs between kernels,
 * where a line is loaded from and where it is stored to, they hand over as functions.
 */
#ifndef BEELINE_CREWS_CUH
#define BEELINE_CREWS_CUH

#include "carriers/ll128.cuh"

/* What senders load is not in the L2 cache if more is moved than fits there, and then they would wait for the memory
 * most of the time: so they may ask for lines some rounds before they load them. */

/* Whether a launch that touches so many lines, here and in the staging, finds them no longer in a cache of 50 MB. */
BL_DEVICE bool beyond_cache(uint64_t lines) {
    return lines > (24 << 20) / LINE_BYTES; /* measured: docs/notebook.md */
}

/* Asks for nothing. */
struct NoPrefetch {
    BL_DEVICE_MEMBER void operator()(uint64_t) const {}
    BL_DEVICE_MEMBER void operator()(unsigned, uint64_t) const {}
};

/* Always. */
struct IsReady {
    BL_DEVICE_MEMBER bool operator()() const { return true; }
};

/* One round of send_run: its lines group + done, group + done + groups, ..., which all are whole, or need not be. */
template <int LOADS, bool WHOLE, class Load, class Prefetch, class Send, class Also, class Ready>
BL_DEVICE bool send_round(const Crew &crew, uint64_t lines, uint64_t done, Load load, Prefetch prefetch, Send send,
                          Also also, Ready ready) {
    enum { AHEAD = 2 * LOADS };
    Pair own[LOADS];
#pragma unroll
    for (int k = 0; k < LOADS; k++) prefetch(crew.group + done + (AHEAD + k) * crew.groups);
    load(crew.group + done, crew.groups, own, WHOLE);
    if (!ready()) return false;
    warp_sync(); /* lanes may have parted at a tail; a line is stored by all of its lanes at once */
#pragma unroll
    for (int k = 0; k < LOADS; k++) {
        const uint64_t line = crew.group + done + k * crew.groups;
        if (!WHOLE && line >= lines) continue;
        send(line, own[k]);
    }
#pragma unroll
    for (int k = 0; k < LOADS; k++) {
        const uint64_t line = crew.group + done + k * crew.groups;
        if (WHOLE || line < lines) also(line, own[k]);
    }
    return true;
}

/* Sends a run of lines, of which the first `whole` are whole, LOADS at a time.  load(line, step, v, whole), here and below,
 * fills the array v with lines, `step` apart, of zeros beyond the end; prefetch(line) asks for it; send(line, data) sends it; also(line, data) is called for each
 * line once it was sent: after the sends of all that are in flight, since lanes part in it.  ready() is asked by all
 * lanes once the first lines are being loaded, and may wait; if it says false, this does, too. */
template <int LOADS, class Load, class Prefetch, class Send, class Also, class Ready = IsReady>
BL_DEVICE bool send_run(const Share &share, uint64_t lines, uint64_t whole, Load load, Prefetch prefetch, Send send,
                        Also also, Ready ready = IsReady()) {
    const Crew crew = crew_of(share);
    uint64_t done = 0;
    for (; crew.of_warp + done + (LOADS - 1) * crew.groups < whole; done += LOADS * crew.groups)
        if (!send_round<LOADS, true>(crew, lines, done, load, prefetch, send, also, ready)) return false;
    for (; crew.of_warp + done < lines; done += LOADS * crew.groups)
        if (!send_round<LOADS, false>(crew, lines, done, load, prefetch, send, also, ready)) return false;
    return true;
}

/* Sends each peer the same lines, LOADS in flight, so that few blocks fill the links: send_run. */
template <int N, int LOADS = (N <= 4 ? 2 : 1), class S, class Load, class Prefetch, class Also, class Ready = IsReady>
BL_DEVICE bool send_to_all(const struct bl_kernel_args &a, const Region &region, uint64_t lines, uint64_t whole,
                           const Share &share, const S &sign, Load load, Prefetch prefetch, Also also,
                           Ready ready = IsReady()) {
    const auto send = [&](uint64_t line, Pair v) {
#pragma unroll
        for (int i = 1; i < N; i++)
            if (i < (int)a.nranks) send_line(a, region, peer_at(a.rank, i, a.nranks), line, v, sign);
    };
    return send_run<LOADS>(share, lines, LOADS > 1 ? whole : 0, load, prefetch, send, also, ready);
}

/* Sends each peer lines of its own, LINES of them at a time.  load(peer, line, step, v, whole), of lines that exist;
 * prefetch(peer, line), of any. */
template <int N, int LINES, class S, class Load, class Prefetch>
BL_DEVICE void send_to_each(const struct bl_kernel_args &a, const Region &region, uint64_t lines, const Share &share,
                            const S &sign, Load load, Prefetch prefetch) {
    enum { PEERS = N <= 4 ? N - 1 : AtATime<N>::LOADS, LOADS = LINES * PEERS };
    const unsigned nranks = nranks_of<N>(a);
    const Crew crew = crew_of(share);
    for (uint64_t done = 0; crew.of_warp + done < lines; done += LINES * crew.groups) {
#pragma unroll(AtATime <N>::UNROLL)
        for (int begin = 1; begin < N; begin += PEERS) {
            Pair outgoing[LOADS] = {}; /* what is not loaded is not sent */
            const auto line_at = [&](int k) { return crew.group + done + k / PEERS * crew.groups; };
            const auto peer_of = [&](int k) { return peer_at(a.rank, begin + k % PEERS, nranks); };
            const auto exists = [&](int k) { return begin + k % PEERS < (int)nranks; };
#pragma unroll
            for (int k = 0; k < LOADS; k++)
                if (exists(k)) prefetch(peer_of(k), line_at(k) + LINES * crew.groups);
#pragma unroll
            for (int k = 0; k < LOADS; k++)
                if (exists(k) && line_at(k) < lines) {
                    Pair one[1];
                    load(peer_of(k), line_at(k), 0, one, false);
                    outgoing[k] = one[0];
                }
            warp_sync();
#pragma unroll
            for (int k = 0; k < LOADS; k++)
                if (exists(k) && line_at(k) < lines) send_line(a, region, peer_of(k), line_at(k), outgoing[k], sign);
        }
    }
}

/* The same, but a warp has one peer, the next warp another: however many there are, LINES loads are under way.  Where
 * there are fewer warps than peers, a warp serves some peers one after the other, each alone.  The first `whole`
 * lines are whole.  nranks is a.nranks, of which the compiler may know more. */
template <int LINES, class S, class Load, class Prefetch>
BL_DEVICE void send_runs_to_each(const struct bl_kernel_args &a, unsigned nranks, const Region &region, uint64_t lines,
                                 uint64_t whole, const Share &share, const S &sign, Load load, Prefetch prefetch) {
    const Crew crew = crew_of(share);
    const unsigned peers = nranks - 1;
    const unsigned warp = (unsigned)(crew.of_warp / WARP_LINES), warps = (unsigned)(crew.groups / WARP_LINES);
    /* Once, unless there are fewer warps than peers. */
    for (unsigned i = warp % peers; i < peers; i += warps) {
        const unsigned peer = peer_at(a.rank, i + 1, nranks);
        const unsigned step = i < warps ? (warps - i + peers - 1) / peers : 1; /* warps that have this peer */
        const uint64_t of_warp = warp / peers * WARP_LINES, groups = (uint64_t)step * WARP_LINES;
        const uint64_t group = of_warp + lane_in_warp() / LINE_LANES;
        uint64_t done = 0;
        for (; of_warp + done + (LINES - 1) * groups < whole; done += LINES * groups) {
            Pair outgoing[LINES];
#pragma unroll
            for (int k = 0; k < LINES; k++) prefetch(peer, group + done + (LINES + k) * groups);
            load(peer, group + done, groups, outgoing, true);
            warp_sync();
#pragma unroll
            for (int k = 0; k < LINES; k++) send_line(a, region, peer, group + done + k * groups, outgoing[k], sign);
        }
        for (; of_warp + done < lines; done += LINES * groups) {
            Pair outgoing[LINES] = {};
#pragma unroll
            for (int k = 0; k < LINES; k++) prefetch(peer, group + done + (LINES + k) * groups);
#pragma unroll
            for (int k = 0; k < LINES; k++)
                if (group + done + k * groups < lines) {
                    Pair one[1];
                    load(peer, group + done + k * groups, 0, one, false);
                    outgoing[k] = one[0];
                }
            warp_sync(); /* lanes may have parted at a tail; a line is stored by all of its lanes at once */
#pragma unroll
            for (int k = 0; k < LINES; k++)
                if (group + done + k * groups < lines)
                    send_line(a, region, peer, group + done + k * groups, outgoing[k], sign);
        }
    }
}

/* Copies a run of lines, LINES at a time as long as all are whole: store(line, data, whole). */
template <int LINES, class Load, class Store>
BL_DEVICE void copy_run(uint64_t lines, uint64_t whole, const Share &share, Load load, Store store) {
    const Crew crew = crew_of(share);
    uint64_t done = 0;
    if (LINES > 1)
        for (; crew.of_warp + done + (LINES - 1) * crew.groups < whole; done += LINES * crew.groups) {
            Pair v[LINES];
            load(crew.group + done, crew.groups, v, true);
#pragma unroll
            for (int k = 0; k < LINES; k++) store(crew.group + done + k * crew.groups, v[k], true);
        }
    for (uint64_t line = crew.group + done; line < lines; line += crew.groups) {
        Pair one[1];
        load(line, 0, one, false);
        store(line, one[0], false);
    }
}

/* Receives `line` of each peer: store(peer, data), on lines that are active.  All lanes of the warp call it together.
 * nranks is a.nranks, of which the compiler may know more.  False here and below: leave the kernel. */
template <int N, class S, class Store>
BL_DEVICE bool receive_from_each(const struct bl_kernel_args &a, unsigned nranks, const Region &region, uint64_t line,
                                 const S &sign, bool active, Wait &wait, Store store) {
    enum { RANKS = AtATime<N>::RANKS };
#pragma unroll(AtATime <N>::UNROLL)
    for (int begin = 0; begin < N; begin += RANKS) {
        if (begin >= (int)nranks) break;
        const Pair none = {0, 0};
        uint64_t words[RANKS][2];
        warp_sync(); /* lanes may have parted where the last line was stored; a line is received by all of its lanes at once */
        if (!receive_lines<RANKS>(a, region, line, begin, sign, active, false, none, words, wait)) return false;
#pragma unroll
        for (int i = 0; i < RANKS; i++) {
            if (active && begin + i < (int)nranks && begin + i != (int)a.rank) {
                const Pair v = {words[i][0], words[i][1]};
                store(begin + i, v);
            }
        }
    }
    return true;
}

/* The same for all lines, of which the first `whole` are whole: store(peer, line, data, whole).  Of those, LINES of
 * each peer are waited for at a time: a warp that has one after the other spends its time on the way to the memory. */
template <int N, int LINES, class S, class Store>
BL_DEVICE bool receive_all_from_each(const struct bl_kernel_args &a, unsigned nranks, const Region &region,
                                     uint64_t lines, uint64_t whole, const Share &share, const S &sign, Store store) {
    enum { PEERS = N - 1 };
    const Crew crew = crew_of(share);
    Wait wait = wait_begin(sign.flag);
    uint64_t done = 0;
    if (LINES > 1)
        for (; crew.of_warp + done + (LINES - 1) * crew.groups < whole; done += LINES * crew.groups) {
            const uint64_t line = crew.group + done;
            LineView view[LINES * PEERS];
            warp_sync(); /* lanes may have parted where the last lines were stored */
            if (!poll_lines_of_peers<N, LINES>(a, nranks, region, line, crew.groups, sign, view, wait)) return false;
#pragma unroll
            for (int i = 0; i < LINES * PEERS; i++)
                if (i % PEERS < (int)nranks - 1)
                    store(peer_in_order<N>(a, i), line + i / PEERS * crew.groups, line_data(view[i]), true);
        }
    for (uint64_t line = crew.group + done; line - crew.group + crew.of_warp < lines; line += crew.groups)
        if (!receive_from_each<N>(a, nranks, region, line, sign, line < lines, wait,
                                  [&](unsigned peer, Pair v) { store(peer, line, v, false); }))
            return false;
    return true;
}

/* Reduces each line of every rank in rank order.  load is called for this rank's own line, unless it comes
 * through the staging, as `own_comes` says; store(line, sum) is called for lines that exist.  The crew's first `done`
 * lines are left out. */
template <class T, int N, class S, class Load, class Store>
BL_DEVICE bool reduce_all(const struct bl_kernel_args &a, const Region &region, uint64_t lines, const Share &share,
                          const S &sign, bool own_comes, Load load, Store store, uint64_t done = 0) {
    const Crew crew = crew_of(share);
    Wait wait = wait_begin(sign.flag);
    for (uint64_t line = crew.group + done; line - crew.group + crew.of_warp < lines; line += crew.groups) {
        Pair own[1] = {}, sum;
        if (!own_comes) load(line, 0, own, false);
        warp_sync(); /* lanes may have parted at a tail; a line is received by all of its lanes at once */
        if (!receive_and_reduce<T, N>(a, region, line, sign, line < lines, own_comes, own[0], sum, wait)) return false;
        warp_sync(); /* it may be sent */
        if (line < lines) store(line, sum);
    }
    return true;
}

/* Those of the crew's lines from `done` on that come LINES at a time, all whole: returns behind which, or
 * TOLD_TO_LEAVE.  load is called for this rank's own, unless OWN_COMES through the staging. */
enum : uint64_t { TOLD_TO_LEAVE = UINT64_MAX };
template <class T, int N, int LINES, bool OWN_COMES = false, class S, class Load, class Store>
BL_DEVICE uint64_t reduce_some(const struct bl_kernel_args &a, unsigned nranks, const Region &region, uint64_t whole,
                               const Crew &crew, const S &sign, uint64_t done, Load load, Store store) {
    Wait wait = wait_begin(sign.flag);
    for (; crew.of_warp + done + (LINES - 1) * crew.groups < whole; done += LINES * crew.groups) {
        const uint64_t line = crew.group + done;
        Pair own[LINES] = {}, sum[LINES];
        if (!OWN_COMES) load(line, crew.groups, own, true);
        warp_sync();
        if (!receive_all_and_reduce<T, N, LINES, OWN_COMES>(a, nranks, region, line, crew.groups, sign, own, sum, wait))
            return TOLD_TO_LEAVE;
#pragma unroll
        for (int k = 0; k < LINES; k++) store(line + k * crew.groups, sum[k], true);
    }
    return done;
}

/* As reduce_all, with less to wait for between polls where lines are whole, as the first `whole` of them are, LINES
 * at a time as long as there are so many: store(line, sum, whole). */
template <class T, int N, int LINES, class S, class Load, class Store>
BL_DEVICE bool reduce_whole(const struct bl_kernel_args &a, unsigned nranks, const Region &region, uint64_t lines,
                            uint64_t whole, const Share &share, const S &sign, Load load, Store store) {
    const Crew crew = crew_of(share);
    uint64_t done = 0;
    if (LINES > 1) done = reduce_some<T, N, LINES>(a, nranks, region, whole, crew, sign, done, load, store);
    if (done != TOLD_TO_LEAVE) done = reduce_some<T, N, 1>(a, nranks, region, whole, crew, sign, done, load, store);
    return done != TOLD_TO_LEAVE && reduce_all<T, N>(
                                        a, region, lines, share, sign, false, load,
                                        [&](uint64_t line, Pair sum) { store(line, sum, false); }, done);
}

#endif
