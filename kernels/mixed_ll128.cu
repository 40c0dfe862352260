/* mixed_ll128.cu - what a group has of several collectives, in lines, in one launch: broadcasts, reduces, all-reduces; all-gathers are broadcasts of
 * every rank's block, reduce-scatters reduces, all-to-alls exchanges of each rank with the one so many further.
 *
 * One NVLink one-way, no barrier, no fence; 16/15 of the bytes of the data.  Each group of lanes goes over its lines twice or three times.  First it
 * sends what this rank has at the start, and waits for nobody but peers that have no room: to every peer the lines that it is the root of, or that all
 * ranks reduce; others to the rank that reduces them, or that they are for.  Then it receives what others have sent so, reduces in rank order what this rank has to, and sends
 * on what all are to have.  At last it receives what others have sent on.  So the first waits for nothing, the second for first ones, the third
 * for second ones.  What is to be done with lines a warp finds once, a line a lane, and goes in each pass over those of its quads with which it has something
 * to do: where each pass found it anew and went over all, it took up to 1.6 times as long (docs/notebook.md).
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

/* What a rank has to do with a line. */
enum : uint32_t {
    TO_ALL = 1 << 0,      /* sends what it has */
    TO_ONE = 1 << 1,      /* the same, to one rank */
    COPIED = 1 << 2,      /* and has it elsewhere, too */
    REDUCES = 1 << 3,     /* what all have */
    THEN_TO_ALL = 1 << 4, /* and sends it on */
    COMES = 1 << 5,       /* from the owner, as that has it, */
    COMES_LATER = 1 << 6, /* or reduced */
    SENDS = TO_ALL | TO_ONE | COPIED,
    TAKES = REDUCES | COMES
};

/* A line; none if there is nothing to do with it.  Line and place are fewer than 32 bits count. */
struct MixedLine {
    uint32_t line, place;
    uint32_t work;
    unsigned message, owner, to; /* owner: who sends it, or reduces it; to: of what goes to one rank */
};

/* Who owns the line; of an exchange, from which of the two ends this rank sees it. */
template <int N, class Args> BL_DEVICE void find_ends(const Args &b, unsigned kind, MixedLine &l) {
    const unsigned nranks = nranks_of<N>(b.common), rank = b.common.rank, root = b.root[l.message] % BL_MAX_RANKS;
    l.owner = l.to = kind == BL_MIXED_TWOSHOT ? l.line / WARP_LINES % nranks : root;
    if (kind != BL_MIXED_EXCHANGE) return;
    l.owner = rank >= root ? rank - root : rank + nranks - root;
    l.to = rank + root < nranks ? rank + root : rank + root - nranks;
}

/* By its kind, for the owner and for others. */
template <class Args> BL_DEVICE uint32_t work_on(const Args &b, unsigned kind, const MixedLine &l) {
    const struct bl_batch_message &m = b.message[l.message];
    const bool owned = l.owner == b.common.rank;
    const uint32_t copied = m.sendbuff != m.recvbuff ? (uint32_t)COPIED : 0;
    switch (kind) {
    case BL_MIXED_BROADCAST: return owned ? TO_ALL | copied : COMES;
    case BL_MIXED_REDUCE: return owned ? REDUCES : TO_ONE;
    case BL_MIXED_ONESHOT: return TO_ALL | REDUCES;
    case BL_MIXED_TWOSHOT: return owned ? REDUCES | THEN_TO_ALL : TO_ONE | COMES_LATER;
    default: return owned ? copied : TO_ONE | COMES;
    }
}

template <int N, class Args> BL_DEVICE MixedLine mixed_line(const Args &b, uint64_t line) {
    MixedLine l;
    l.line = (uint32_t)line;
    l.message = message_of_line(b, line);
    l.place = (uint32_t)line_of_root(b, l.message, line);
    const unsigned kind = b.root[l.message] / BL_MAX_RANKS;
    find_ends<N>(b, kind, l);
    l.work = line < b.lines ? work_on(b, kind, l) : 0;
    return l;
}

template <class Args> BL_DEVICE Pair load_mixed(const Args &b, const MixedLine &l, uint32_t work) {
    const BatchInput<TypeU8, FLAGGED_WORDS, Args> in = {b, 0};
    return l.work & work ? load_end_line(message_at(in, l.message), line_in_message(b, l.message, l.line)) : Pair{0, 0};
}
template <class Args> BL_DEVICE void store_mixed(const Args &b, const MixedLine &l, Pair v) {
    const BatchOutput<TypeU8, FLAGGED_WORDS, Args> out = {b, 0};
    store_end_line(message_at(out, l.message), line_in_message(b, l.message, l.line), v);
}

/* What this rank has at the start. */
template <int N, int K, class Args>
BL_DEVICE void send_first(const Args &b, const OneWay &o, const MixedLine (&l)[K], const Pair (&v)[K]) {
    warp_sync(); /* lanes may have parted at a tail; a line is stored by all of its lanes at once */
#pragma unroll
    for (int k = 0; k < K; k++) {
        if (l[k].work & TO_ALL) send_to_peers<N>(b.common, o, l[k].place, v[k]);
        if (l[k].work & TO_ONE) send_line(b.common, o.region, l[k].to, l[k].place, v[k], o.sign);
    }
#pragma unroll
    for (int k = 0; k < K; k++)
        if (l[k].work & COPIED) store_mixed(b, l[k], v[k]);
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
        if (i % PEERS < nranks - 1 && (of.work & REDUCES || (of.work & COMES && peer == of.owner))) missing |= 1u << i;
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
        result[k] = sent;
        if (!(l[k].work & REDUCES)) continue;
        words_in_rank_order<N, false>(a, view + k * PEERS, own[k], words);
        Sum<T, 2> sum;
        reduce_in_rank_order<T, 2, N>(sum, words, 0, a, nranks);
        sum.store(words[0], a, nranks);
        result[k] = {words[0][0], words[0][1]};
    }
    return true;
}

/* The same for more ranks, for which there are not the registers: one thing after the other. */
template <class T, int N>
BL_DEVICE bool receive_first_of_many(const struct bl_kernel_args &a, const OneWay &o, const MixedLine &l, Pair own,
                                     Pair &result, Wait &wait) {
    const bool reduces = (l.work & REDUCES) != 0, comes = (l.work & COMES) != 0;
    uint64_t words[1][2];
    if (!receive_and_reduce<T, N>(a, o.region, l.place, o.sign, reduces, false, own, result, wait)) return false;
    if (!receive_lines<1>(a, o.region, l.place, l.owner, o.sign, comes, false, {0, 0}, words, wait)) return false;
    if (comes) result = {words[0][0], words[0][1]};
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
        if (l[k].work & THEN_TO_ALL) send_to_peers<N>(b.common, o, l[k].place, result[k]);
#pragma unroll
    for (int k = 0; k < K; k++)
        if (l[k].work & TAKES) store_mixed(b, l[k], result[k]);
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
        at[k] = kept(place_of(a, o.region, a.rank, l[k].work & COMES_LATER ? l[k].owner : a.rank == 0) +
                     offset_of(o.region, l[k].place));
        view[k] = line_of({0, 0});
        if (l[k].work & COMES_LATER) missing |= 1u << k;
    }
    warp_sync();
    if (!poll_lines(a, at, missing, o.sign, view, wait, [&](int k) { return l[k].owner; })) return false;
#pragma unroll
    for (int k = 0; k < K; k++)
        if (l[k].work & COMES_LATER) store_mixed(b, l[k], line_data(view[k]));
    return true;
}

/* A launch with a group of lanes for each line. */
template <class T, int N, class Args> BL_DEVICE bool mixed_at_once(const Args &b, const OneWayWords &words, OneWay &o) {
    const MixedLine l[1] = {mixed_line<N>(b, crew_of(whole_grid()).group)};
    const Pair own[1] = {load_mixed(b, l[0], SENDS | REDUCES)};
    o = oneway_begin(b.common, words, b.span); /* behind the load, which waits for none of it */
    if (!ready_to_send(b.common, o, b.roots)) return false;
    send_first<N, 1>(b, o, l, own);
    Wait wait = wait_begin(o.sign.flag);
    if (!take_first<T, N, 1>(b, o, l, own, wait)) return false;
    return !b.shared || take_last<1>(b, o, l, wait);
}

/* What a lane has found out of a line of its warp: of the warp's quads from `first` on that with its number among their lines.  And with which of
 * them the warp has something to do in each pass, a bit each. */
enum { QUADS = 8 };
enum { SENDING, TAKING, TAKING_LAST, PASSES };
struct MixedQuads {
    uint64_t first;
    uint32_t place, found; /* found: work, message, owner, to, a byte each */
    uint32_t quads[PASSES];
};

template <int N, class Args> BL_DEVICE MixedQuads find_quads(const Args &b, const Crew &crew, uint64_t first) {
    const unsigned lane = lane_in_warp(), quad = lane / WARP_LINES;
    const MixedLine l = mixed_line<N>(b, crew.of_warp + (first + quad) * crew.groups + lane % WARP_LINES);
    const uint32_t bits =
        (l.work & SENDS ? 1u : 0) | (l.work & TAKES ? 1u << QUADS : 0) | (l.work & COMES_LATER ? 1u << 2 * QUADS : 0);
    const uint32_t all = warp_or(bits << quad);
    return {first,
            l.place,
            l.work | l.message << 8 | l.owner << 16 | l.to << 24,
            {all & 0xff, all >> QUADS & 0xff, all >> 2 * QUADS}}; /* in the order of the passes */
}

/* This group's line of the first quad that is left; of none, no work. */
BL_DEVICE MixedLine next_line(const MixedQuads &q, const Crew &crew, uint32_t &left) {
    const unsigned quad = left ? lowest_bit(left) : 0, from = quad * WARP_LINES + lane_in_warp() / LINE_LANES;
    const uint32_t place = exchange_in_warp(q.place, from), found = exchange_in_warp(q.found, from);
    MixedLine l;
    l.line = (uint32_t)(crew.group + (q.first + quad) * crew.groups);
    l.place = place;
    l.work = left ? found & 0xff : 0;
    l.message = found >> 8 & 0xff;
    l.owner = found >> 16 & 0xff;
    l.to = found >> 24;
    left &= left - 1;
    return l;
}

/* act(l), of K lines at a time, over those of the warp's quads with which it has something to do in a pass, in ascending order. */
template <int N, int K, class Args, class Act>
BL_DEVICE bool over_quads(const Args &b, const Crew &crew, MixedQuads &q, unsigned pass, Act act) {
    for (uint64_t first = 0; crew.of_warp + first * crew.groups < b.lines; first += QUADS) {
        if (q.first != first) q = find_quads<N>(b, crew, first);
        for (uint32_t left = q.quads[pass]; left;) {
            MixedLine l[K];
#pragma unroll
            for (int k = 0; k < K; k++) l[k] = next_line(q, crew, left);
            if (!act(l)) return false;
        }
    }
    return true;
}

template <class T, int N, class Args> BL_DEVICE bool mixed_in_turn(const Args &b, const OneWayWords &words, OneWay &o) {
    enum { K = N <= 4 ? 2 : 1 }; /* lines at a time: between two ranks 4 took up to 1.2 times as long */
    const Crew crew = crew_of(whole_grid());
    MixedQuads q = find_quads<N>(b, crew, 0);
    Pair own[K];
    o = oneway_begin(b.common, words, b.span);
    const auto send = [&](const MixedLine(&l)[K]) {
#pragma unroll
        for (int k = 0; k < K; k++) own[k] = load_mixed(b, l[k], SENDS);
        if (!ready_to_send(b.common, o, b.roots)) return false;
        send_first<N, K>(b, o, l, own);
        return true;
    };
    if (!over_quads<N, K>(b, crew, q, SENDING, send)) return false;
    if (!o.told)
        tell_begun(b.common, o); /* what it sends on it has from all, who have begun this launch, so there is room */
    Wait wait = wait_begin(o.sign.flag);
    const auto take = [&](const MixedLine(&l)[K]) {
#pragma unroll
        for (int k = 0; k < K; k++) own[k] = load_mixed(b, l[k], REDUCES);
        return take_first<T, N, K>(b, o, l, own, wait);
    };
    if (!over_quads<N, K>(b, crew, q, TAKING, take)) return false;
    return !b.shared || over_quads<N, K>(b, crew, q, TAKING_LAST,
                                         [&](const MixedLine(&l)[K]) { return take_last<K>(b, o, l, wait); });
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
