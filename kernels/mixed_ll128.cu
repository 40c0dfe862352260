/* mixed_ll128.cu - what a group has of several collectives, in lines, in one launch: broadcasts, reduces, all-reduces; all-gathers are broadcasts of
 * every rank's block, reduce-scatters reduces, all-to-alls exchanges of each rank with the one so many further.
 *
 * One NVLink one-way, no barrier, no fence; 16/15 of the bytes of the data.  Each group of lanes goes over its lines twice or three times.  First it
 * sends what this rank has at the start, and waits for nobody but peers that have no room: to every peer the lines that it is the root of, or that all
 * ranks reduce; others to the rank that reduces them, or that they are for.  Then it receives what others have sent so, reduces in rank order what this rank has to, and sends
 * on what all are to have.  At last it receives what others have sent on.  So the first waits for nothing, the second for first ones, the third
 * for second ones.
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

template <int N, class Args> BL_DEVICE MixedLine mixed_line(const Args &b, uint64_t line) {
    MixedLine l;
    l.line = line;
    l.message = message_of_line(b, line);
    l.place = line_of_root(b, l.message, line);
    const unsigned kind = b.root[l.message] / BL_MAX_RANKS;
    find_ends<N>(b, kind, l);
    const bool exists = line < b.lines, owned = exists && l.owner == b.common.rank, others = exists && !owned;
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

/* A launch with a group of lanes for each line. */
template <class T, int N, class Args> BL_DEVICE bool mixed_at_once(const Args &b, const OneWayWords &words, OneWay &o) {
    const MixedLine l[1] = {mixed_line<N>(b, crew_of(whole_grid()).group)};
    const Pair own[1] = {load_mixed(b, l[0], l[0].to_all || l[0].to_one || l[0].copied || l[0].reduces)};
    o = oneway_begin(b.common, words, b.span); /* behind the load, which waits for none of it */
    if (!ready_to_send(b.common, o, b.roots)) return false;
    send_first<N, 1>(b, o, l, own);
    Wait wait = wait_begin(o.sign.flag);
    if (!take_first<T, N, 1>(b, o, l, own, wait)) return false;
    return !b.shared || take_last<1>(b, o, l, wait);
}

template <class T, int N, class Args> BL_DEVICE bool mixed_in_turn(const Args &b, const OneWayWords &words, OneWay &o) {
    enum { K = N <= 4 ? 2 : 1 }; /* lines at a time: between two ranks 4 took up to 1.2 times as long */
    const Crew crew = crew_of(whole_grid());
    MixedLine l[K];
    Pair own[K];
    const auto find = [&](uint64_t done) {
#pragma unroll
        for (int k = 0; k < K; k++) l[k] = mixed_line<N>(b, crew.group + done + k * crew.groups);
    };
    o = oneway_begin(b.common, words, b.span);
    for (uint64_t done = 0; crew.of_warp + done < b.lines; done += K * crew.groups) {
        find(done);
#pragma unroll
        for (int k = 0; k < K; k++) own[k] = load_mixed(b, l[k], l[k].to_all || l[k].to_one || l[k].copied);
        if (!ready_to_send(b.common, o, b.roots)) return false;
        send_first<N, K>(b, o, l, own);
    }
    Wait wait = wait_begin(o.sign.flag);
    for (uint64_t done = 0; crew.of_warp + done < b.lines; done += K * crew.groups) {
        find(done);
#pragma unroll
        for (int k = 0; k < K; k++) own[k] = load_mixed(b, l[k], l[k].reduces);
        if (!take_first<T, N, K>(b, o, l, own, wait)) return false;
    }
    for (uint64_t done = 0; b.shared && crew.of_warp + done < b.lines; done += K * crew.groups) {
        find(done);
        if (!take_last<K>(b, o, l, wait)) return false;
    }
    return true;
}

/* A launch that takes more than this part of a ring tells at once that it has read it. */
enum { MUCH = 8 };

template <class T, int N, class Args> BL_DEVICE void mixed_ll128_batch(const Args &b) {
    const OneWayWords words = oneway_words(b.common);
    const bool at_once = b.lines <= crew_of(whole_grid()).groups;
    OneWay o;
    if (!(at_once ? mixed_at_once<T, N>(b, words, o) : mixed_in_turn<T, N>(b, words, o))) return;
    if (b.span > b.common.layout.oneway_lines / MUCH)
        oneway_end_told(b.common, o, b.span);
    else
        oneway_end(b.common, o, b.span);
}

BL_INSTANTIATE_BATCH(bl_mixed_ll128_batch, mixed_ll128_batch)
BL_INSTANTIATE_FEW(bl_mixed_ll128_few, mixed_ll128_batch)
