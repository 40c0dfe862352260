/* mixed_ll128.cu - what a group has of several collectives, in lines, in one launch: broadcasts, reduces, all-reduces; all-gathers are broadcasts of
 * every rank's block, reduce-scatters reduces, all-to-alls exchanges of each rank with the one so many further.
 *
 * One NVLink one-way, no barrier, no fence; 16/15 of the bytes of the data.  Each group of lanes goes over lines twice or three times.  First it
 * sends what this rank has at the start, and waits for nobody but peers that have no room: to every peer the lines that it is the root of, or that all
 * ranks reduce; others to the rank that reduces them, or that they are for.  Then it receives what others have sent so, reduces in rank order what this rank has to, and sends
 * on what all are to have.  At last it receives what others have sent on.  So the first waits for nothing, the second for first ones, the third
 * for second ones.
 *
 * Messages come in an order that is the rank's own, but for what ranks share, which comes first: then what it sends and takes, what it only sends, what it only
 * takes.  So it goes over no line with which it has nothing to do.  Of one shot, whose buffers may be in place, a line that is sent and taken is the same group's
 * each time; of two shots no result comes before our input was there.
 *
 * The lines of a longer all-reduce are divided among the ranks (two shots), those of a short one every rank reduces (one shot): the host says which,
 * by a kind for each message.
 *
 * Contract: messages of at least a byte each, whose counts are in bytes, and as many bytes as make whole elements of T where they are reduced; places that
 * are not used twice (kernels/mixed.c), the span at most a third of layout.oneway_lines lines; a grid of whole warps that is resident as a whole where it
 * differs from another rank's; buffers as of each kind's own kernel.  Flags and reuse of the staging: oneway.cuh.  A wait that is told to stop leaves the
 * kernel with recvbuff unspecified and the communicator unusable.
 */
#include <core/primitives.cuh>
#include "carriers/crews.cuh"
#include "carriers/messages.cuh"
#include "carriers/oneway.cuh"
#include "core/instantiate.cuh"

/* A line, and what this rank has to do with it. */
struct MixedLine {
    uint64_t line, place;
    unsigned message, owner, to; /* owner: who sends it, or reduces it; to: of what goes to one rank */
    bool to_all, to_one, copied; /* as this rank has it */
    bool reduces, then_to_all;
    bool comes, comes_later; /* from the owner: as that has it, or reduced */
};

/* Who owns the line; of an exchange, from which of the two ends this rank sees it. */
template <int N, class Args> BL_DEVICE void find_ends(const Args &b, unsigned kind, MixedLine &l) {
    const unsigned nranks = nranks_of<N>(b.common), rank = b.common.rank, root = b.root[l.message] % BL_MAX_RANKS;
    l.owner = l.to = kind == BL_MIXED_TWOSHOT ? (unsigned)(l.line / WARP_LINES) % nranks : root;
    if (kind != BL_MIXED_EXCHANGE) return;
    l.owner = rank >= root ? rank - root : rank + nranks - root;
    l.to = rank + root < nranks ? rank + root : rank + root - nranks;
}

template <int N, class Args> BL_DEVICE MixedLine mixed_line(const Args &b, uint64_t line, bool exists) {
    MixedLine l;
    l.line = line;
    l.message = message_of_line(b, line);
    l.place = line_of_root(b, l.message, line);
    const unsigned kind = b.root[l.message] / BL_MAX_RANKS;
    find_ends<N>(b, kind, l);
    const bool owned = exists && l.owner == b.common.rank, others = exists && !owned;
    const bool is_sent = kind == BL_MIXED_BROADCAST, is_reduced = kind == BL_MIXED_REDUCE,
               by_all = exists && kind == BL_MIXED_ONESHOT, shared = kind == BL_MIXED_TWOSHOT,
               exchanged = kind == BL_MIXED_EXCHANGE;
    l.to_all = (owned && is_sent) || by_all;
    l.to_one = others && (is_reduced || shared || exchanged);
    l.copied = owned && (is_sent || exchanged);
    l.reduces = (owned && (is_reduced || shared)) || by_all;
    l.then_to_all = owned && shared;
    l.comes = others && (is_sent || exchanged);
    l.comes_later = others && shared;
    return l;
}

/* The lines of each pass, by number.  Of what is shared, the i-th that is this rank's, or the others'; what is sent and taken has the same number, counted
 * from the end of those, in both passes. */
template <int N, class Args> BL_DEVICE uint64_t shared_lines(const Args &b) {
    return N == 2 ? 0 : b.shared; /* between two ranks one shot is never longer */
}
template <class Args> BL_DEVICE uint32_t owned_line(const Args &b, uint32_t i) {
    return (i / WARP_LINES * b.common.nranks + b.common.rank) * WARP_LINES + i % WARP_LINES;
}
template <class Args> BL_DEVICE uint32_t others_line(const Args &b, uint32_t i) {
    const uint32_t four = i / WARP_LINES, peers = b.common.nranks - 1, peer = four % peers;
    return (four / peers * b.common.nranks + peer + (peer >= b.common.rank)) * WARP_LINES + i % WARP_LINES;
}
template <int N, class Args> BL_DEVICE MixedLine line_to_send(const Args &b, uint64_t i) {
    const uint64_t shared = shared_lines<N>(b), others = N == 2 ? 0 : b.others;
    const bool is_shared = i < others;
    const uint64_t line = is_shared ? others_line(b, (uint32_t)i) : i - others + shared;
    return mixed_line<N>(b, line, line < (is_shared ? shared : b.sent));
}
template <int N, class Args> BL_DEVICE MixedLine line_to_take(const Args &b, uint64_t i) {
    const uint64_t shared = shared_lines<N>(b), owned = N == 2 ? 0 : b.owned;
    const bool is_shared = i < owned;
    uint64_t line = i - owned + shared;
    if (line >= b.both) line += b.sent - b.both;
    if (is_shared) line = owned_line(b, (uint32_t)i);
    return mixed_line<N>(b, line, line < (is_shared ? shared : b.lines));
}
template <int N, class Args> BL_DEVICE MixedLine line_to_take_last(const Args &b, uint64_t i) {
    const uint64_t line = others_line(b, (uint32_t)i);
    return mixed_line<N>(b, line, i < b.others && line < b.shared);
}
template <int N, class Args> BL_DEVICE uint64_t lines_to_send(const Args &b) {
    return N == 2 ? b.sent : b.others + (b.sent - b.shared);
}
template <int N, class Args> BL_DEVICE uint64_t lines_to_take(const Args &b) {
    return (N == 2 ? b.both : b.owned + (b.both - b.shared)) + (b.lines - b.sent);
}
template <int N, class Args> BL_DEVICE uint64_t lines_to_take_last(const Args &b) {
    return N == 2 ? 0 : b.others;
}

template <class Args> BL_DEVICE Pair load_mixed(const Args &b, const MixedLine &l, bool needed) {
    const BatchInput<TypeU8, FLAGGED_WORDS, Args> in = {b, 0};
    return needed ? load_end_line(message_at(in, l.message), line_in_message(b, l.message, l.line)) : Pair{0, 0};
}
template <class Args> BL_DEVICE void store_mixed(const Args &b, const MixedLine &l, Pair v) {
    const BatchOutput<TypeU8, FLAGGED_WORDS, Args> out = {b, 0};
    store_end_line(message_at(out, l.message), line_in_message(b, l.message, l.line), v);
}
/* Of what this rank sends, what it is to have elsewhere, too. */
template <class Args> BL_DEVICE bool is_copied(const Args &b, const MixedLine &l) {
    const struct bl_batch_message &m = b.message[l.message];
    return l.copied && m.sendbuff != m.recvbuff;
}

/* What this rank has at the start. */
template <int N, int K, class Args>
BL_DEVICE void send_first(const Args &b, const OneWay &o, const MixedLine (&l)[K], const Pair (&v)[K]) {
    warp_sync(); /* lanes may have parted at a tail; a line is stored by all of its lanes at once */
#pragma unroll
    for (int k = 0; k < K; k++) {
        if (l[k].to_all) send_to_peers<N>(b.common, o, l[k].place, v[k]);
        if (l[k].to_one) send_line(b.common, o.region, l[k].to, l[k].place, v[k], o.sign);
    }
#pragma unroll
    for (int k = 0; k < K; k++)
        if (is_copied(b, l[k])) store_mixed(b, l[k], v[k]);
}

/* What has come of lines that this rank reduces, with its own, or that their owner sends.  Here and below false: leave the kernel. */
template <class T, int N, int K>
BL_DEVICE bool receive_first(const struct bl_kernel_args &a, const OneWay &o, const MixedLine (&l)[K],
                             const Pair (&own)[K], Pair (&result)[K], Wait &wait) {
    enum { PEERS = N - 1 };
    const unsigned nranks = nranks_of<N>(a);
    const unsigned char *at[K * PEERS];
    LineView view[K * PEERS];
    uint32_t missing = 0;
#pragma unroll
    for (unsigned i = 0; i < K * PEERS; i++) {
        const MixedLine &of = l[i / PEERS];
        const unsigned peer = peer_in_order<N>(a, i);
        at[i] = kept(place_of(a, o.region, a.rank, peer) + offset_of(o.region, of.place));
        view[i] = line_of({0, 0});
        if (i % PEERS < nranks - 1 && (of.reduces || (of.comes && peer == of.owner))) missing |= 1u << i;
    }
    if (!poll_lines(a, at, missing, o.sign, view, wait, [&](int i) { return peer_in_order<N>(a, i); })) return false;
#pragma unroll
    for (int k = 0; k < K; k++) {
        uint64_t words[N][2];
        Pair sent = {0, 0}; /* of a line that comes one view was loaded, and the others are zero */
#pragma unroll
        for (int i = 0; i < PEERS; i++) {
            const Pair v = line_data(view[k * PEERS + i]);
            sent = {sent.x | v.x, sent.y | v.y};
        }
        words_in_rank_order<N, false>(a, view + k * PEERS, own[k], words);
        Sum<T, 2> sum;
        reduce_in_rank_order<T, 2, N>(sum, words, 0, a, nranks);
        sum.store(words[0], a, nranks);
        result[k] = l[k].reduces ? Pair{words[0][0], words[0][1]} : sent;
    }
    return true;
}

/* The same for more ranks, for which there are not the registers: one thing after the other. */
template <class T, int N>
BL_DEVICE bool receive_first_of_many(const struct bl_kernel_args &a, const OneWay &o, const MixedLine &l, Pair own,
                                     Pair &result, Wait &wait) {
    uint64_t words[1][2];
    if (!receive_and_reduce<T, N>(a, o.region, l.place, o.sign, l.reduces, false, own, result, wait)) return false;
    if (!receive_lines<1>(a, o.region, l.place, l.owner, o.sign, l.comes, false, {0, 0}, words, wait)) return false;
    if (l.comes) result = {words[0][0], words[0][1]};
    return true;
}

/* Stores that, and sends on what all are to have. */
template <class T, int N, int K, class Args>
BL_DEVICE bool take_first(const Args &b, const OneWay &o, const MixedLine (&l)[K], const Pair (&own)[K], Wait &wait) {
    Pair result[K];
    warp_sync();
    if constexpr (N <= 4) {
        if (!receive_first<T, N, K>(b.common, o, l, own, result, wait)) return false;
    } else {
        static_assert(K == 1, "a line at a time");
        if (!receive_first_of_many<T, N>(b.common, o, l[0], own[0], result[0], wait)) return false;
    }
    warp_sync();
#pragma unroll
    for (int k = 0; k < K; k++)
        if (l[k].then_to_all) send_to_peers<N>(b.common, o, l[k].place, result[k]);
#pragma unroll
    for (int k = 0; k < K; k++)
        if (l[k].reduces || l[k].comes) store_mixed(b, l[k], result[k]);
    return true;
}

/* What others have reduced. */
template <int K, class Args>
BL_DEVICE bool take_last(const Args &b, const OneWay &o, const MixedLine (&l)[K], Wait &wait) {
    const struct bl_kernel_args &a = b.common;
    const unsigned char *at[K];
    LineView view[K];
    uint32_t missing = 0;
#pragma unroll
    for (int k = 0; k < K; k++) {
        at[k] = kept(place_of(a, o.region, a.rank, l[k].comes_later ? l[k].owner : a.rank == 0) +
                     offset_of(o.region, l[k].place));
        view[k] = line_of({0, 0});
        if (l[k].comes_later) missing |= 1u << k;
    }
    warp_sync();
    if (!poll_lines(a, at, missing, o.sign, view, wait, [&](int k) { return l[k].owner; })) return false;
#pragma unroll
    for (int k = 0; k < K; k++)
        if (l[k].comes_later) store_mixed(b, l[k], line_data(view[k]));
    return true;
}

template <class Args> BL_DEVICE Pair load_to_send(const Args &b, const MixedLine &l) {
    return load_mixed(b, l, l.to_all || l.to_one || l.copied);
}
template <class Args> BL_DEVICE Pair load_to_reduce(const Args &b, const MixedLine &l) {
    return load_mixed(b, l, l.reduces);
}

/* A launch with a group of lanes for each line. */
template <class T, int N, class Args> BL_DEVICE bool mixed_at_once(const Args &b, const OneWayWords &words, OneWay &o) {
    const uint64_t i = crew_of(whole_grid()).group;
    const MixedLine first[1] = {line_to_send<N>(b, i)};
    const Pair v[1] = {load_to_send(b, first[0])};
    o = oneway_begin(b.common, words, b.span); /* behind the load, which waits for none of it */
    if (!ready_to_send(b.common, o, b.roots)) return false;
    send_first<N, 1>(b, o, first, v);
    const MixedLine l[1] = {line_to_take<N>(b, i)}; /* while the first are under way */
    const Pair own[1] = {load_to_reduce(b, l[0])};
    Wait wait = wait_begin(o.sign.flag);
    if (!take_first<T, N, 1>(b, o, l, own, wait)) return false;
    return lines_to_take_last<N>(b) == 0 || take_last<1>(b, o, first, wait); /* which were the first that were sent */
}

template <class T, int N, class Args> BL_DEVICE bool mixed_in_turn(const Args &b, const OneWayWords &words, OneWay &o) {
    enum { K = N <= 4 ? 2 : 1 }; /* lines at a time: between two ranks 4 took up to 1.2 times as long */
    const Crew crew = crew_of(whole_grid());
    MixedLine l[K];
    Pair own[K];
    const auto at = [&](uint64_t done, int k) { return crew.group + done + k * crew.groups; };
    o = oneway_begin(b.common, words, b.span);
    if (lines_to_send<N>(b) == 0) tell_begun(b.common, o);
    for (uint64_t done = 0; crew.of_warp + done < lines_to_send<N>(b); done += K * crew.groups) {
#pragma unroll
        for (int k = 0; k < K; k++) l[k] = line_to_send<N>(b, at(done, k));
#pragma unroll
        for (int k = 0; k < K; k++) own[k] = load_to_send(b, l[k]);
        if (!ready_to_send(b.common, o, b.roots)) return false;
        send_first<N, K>(b, o, l, own);
    }
    Wait wait = wait_begin(o.sign.flag);
    for (uint64_t done = 0; crew.of_warp + done < lines_to_take<N>(b); done += K * crew.groups) {
#pragma unroll
        for (int k = 0; k < K; k++) l[k] = line_to_take<N>(b, at(done, k));
#pragma unroll
        for (int k = 0; k < K; k++) own[k] = load_to_reduce(b, l[k]);
        if (!take_first<T, N, K>(b, o, l, own, wait)) return false;
    }
    for (uint64_t done = 0; crew.of_warp + done < lines_to_take_last<N>(b); done += K * crew.groups) {
#pragma unroll
        for (int k = 0; k < K; k++) l[k] = line_to_take_last<N>(b, at(done, k));
        if (!take_last<K>(b, o, l, wait)) return false;
    }
    return true;
}

/* A launch that takes more than this part of a ring tells at once that it has read it. */
enum { MUCH = 8 };

template <class T, int N, class Args> BL_DEVICE void mixed_ll128_batch(const Args &b) {
    const OneWayWords words = oneway_words(b.common);
    const uint64_t groups = crew_of(whole_grid()).groups;
    const bool at_once = lines_to_send<N>(b) <= groups && lines_to_take<N>(b) <= groups;
    OneWay o;
    if (!(at_once ? mixed_at_once<T, N>(b, words, o) : mixed_in_turn<T, N>(b, words, o))) return;
    if (b.span > b.common.layout.oneway_lines / MUCH)
        oneway_end_told(b.common, o, b.span);
    else
        oneway_end(b.common, o, b.span);
}

BL_INSTANTIATE_BATCH(bl_mixed_ll128_batch, mixed_ll128_batch)
BL_INSTANTIATE_FEW(bl_mixed_ll128_few, mixed_ll128_batch)
