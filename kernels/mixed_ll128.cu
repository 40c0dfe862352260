/* mixed_ll128.cu - what a group has of broadcasts, reduces and all-reduces, in lines, in one launch; all-gathers are broadcasts of
 * every rank's block, reduce-scatters reduces.
 *
 * One NVLink one-way, no barrier, no fence; 16/15 of the bytes of the data.  Each group of lanes goes over its lines three times.  First it sends
 * what this rank has at the start, and waits for nobody but peers that have no room: to every peer the lines that it is the root of, or that all
 * ranks reduce; others to the rank that reduces them.  Then it reduces, in rank order, what this rank has to, and sends on what all are to
 * have.  At last it receives what others broadcast or have reduced.  So the first waits for nothing, the second for first ones, the third for both.
 *
 * The lines of a longer all-reduce are divided among the ranks (two shots), those of a short one every rank reduces (one shot): the host says which,
 * by a kind for each message.
 *
 * Contract: messages of at least a byte each, whose counts are in bytes, and as many bytes as make whole elements of T where they are reduced; places that
 * are not used twice (bl_mixed_fill), the span at most a third of layout.oneway_lines lines; a grid of whole warps that is resident as a whole where it
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
    unsigned message, owner; /* who sends it to all, or reduces it */
    bool to_all, to_owner;   /* as this rank has it */
    bool reduces, then_to_all;
    bool comes; /* from the owner */
};

template <int N, class Args> BL_DEVICE MixedLine mixed_line(const Args &b, uint64_t line) {
    const unsigned rank = b.common.rank;
    MixedLine l;
    l.line = line;
    l.message = message_of_line(b, line);
    l.place = line_of_root(b, l.message, line);
    const unsigned kind = b.root[l.message] / BL_MAX_RANKS;
    const bool exists = line < b.lines, shared = kind == BL_MIXED_TWOSHOT;
    l.owner = shared ? (unsigned)(line / WARP_LINES) % nranks_of<N>(b.common) : b.root[l.message] % BL_MAX_RANKS;
    const bool owned = exists && l.owner == rank, reduced = kind == BL_MIXED_REDUCE || shared;
    l.to_all = (owned && kind == BL_MIXED_BROADCAST) || (exists && kind == BL_MIXED_ONESHOT);
    l.to_owner = exists && reduced && !owned;
    l.reduces = (owned && reduced) || (exists && kind == BL_MIXED_ONESHOT);
    l.then_to_all = owned && shared;
    l.comes = exists && !owned && (kind == BL_MIXED_BROADCAST || shared);
    return l;
}

template <class Args> BL_DEVICE Pair load_mixed(const Args &b, const MixedLine &l, bool needed) {
    const BatchInput<TypeU8, Args> in = {b, 0};
    return needed ? load_end_line(message_at(in, l.message), line_in_message(b, l.message, l.line)) : Pair{0, 0};
}
template <class Args> BL_DEVICE void store_mixed(const Args &b, const MixedLine &l, Pair v) {
    const BatchOutput<TypeU8, Args> out = {b, 0};
    store_end_line(message_at(out, l.message), line_in_message(b, l.message, l.line), v);
}
/* Whether what the root sends is to be copied to a buffer of its own, too. */
template <class Args> BL_DEVICE bool is_copied(const Args &b, const MixedLine &l) {
    const struct bl_batch_message &m = b.message[l.message];
    return l.to_all && !l.reduces && m.sendbuff != m.recvbuff;
}

template <int N> BL_DEVICE void send_to_peers(const struct bl_kernel_args &a, const OneWay &o, uint64_t place, Pair v) {
    const unsigned nranks = nranks_of<N>(a);
#pragma unroll
    for (int p = 1; p < N; p++)
        if (p < (int)nranks) send_line(a, o.region, peer_at(a.rank, p, nranks), place, v, o.flag);
}

/* What this rank has at the start. */
template <int N, class Args> BL_DEVICE void send_first(const Args &b, const OneWay &o, const MixedLine &l, Pair v) {
    warp_sync(); /* lanes may have parted at a tail; a line is stored by all of its lanes at once */
    if (l.to_all) send_to_peers<N>(b.common, o, l.place, v);
    if (l.to_owner) send_line(b.common, o.region, l.owner, l.place, v, o.flag);
    if (is_copied(b, l)) store_mixed(b, l, v);
}

/* Here and below false: leave the kernel. */
template <class T, int N, class Args>
BL_DEVICE bool reduce_next(const Args &b, const OneWay &o, const MixedLine &l, Pair own, Wait &wait) {
    Pair sum;
    warp_sync();
    if (!reduce_with<T, N>(b.common, o, l.place, l.reduces, own, sum, wait)) return false;
    warp_sync();
    if (l.then_to_all) send_to_peers<N>(b.common, o, l.place, sum);
    if (l.reduces) store_mixed(b, l, sum);
    return true;
}

template <class Args> BL_DEVICE bool receive_last(const Args &b, const OneWay &o, const MixedLine &l, Wait &wait) {
    uint64_t words[1][2];
    warp_sync();
    if (!receive_lines<1>(b.common, o.region, l.place, l.owner, o.flag, l.comes, false, {0, 0}, words, wait))
        return false;
    if (l.comes) store_mixed(b, l, {words[0][0], words[0][1]});
    return true;
}

/* A launch with a group of lanes for each line. */
template <class T, int N, class Args> BL_DEVICE bool mixed_at_once(const Args &b, const OneWayWords &words, OneWay &o) {
    const MixedLine l = mixed_line<N>(b, crew_of(whole_grid()).group);
    const Pair own = load_mixed(b, l, l.to_all || l.to_owner || l.reduces);
    o = oneway_begin(b.common, words, b.span); /* behind the load, which waits for none of it */
    if (!ready_to_send(b.common, o, b.roots)) return false;
    send_first<N>(b, o, l, own);
    Wait wait = wait_begin(o.flag);
    return reduce_next<T, N>(b, o, l, own, wait) && receive_last(b, o, l, wait);
}

template <class T, int N, class Args> BL_DEVICE bool mixed_in_turn(const Args &b, const OneWayWords &words, OneWay &o) {
    const Crew crew = crew_of(whole_grid());
    o = oneway_begin(b.common, words, b.span);
    for (uint64_t line = crew.group; line - crew.group + crew.of_warp < b.lines; line += crew.groups) {
        const MixedLine l = mixed_line<N>(b, line);
        const Pair own = load_mixed(b, l, l.to_all || l.to_owner);
        if (!ready_to_send(b.common, o, b.roots)) return false;
        send_first<N>(b, o, l, own);
    }
    Wait wait = wait_begin(o.flag);
    for (uint64_t line = crew.group; line - crew.group + crew.of_warp < b.lines; line += crew.groups) {
        const MixedLine l = mixed_line<N>(b, line);
        if (!reduce_next<T, N>(b, o, l, load_mixed(b, l, l.reduces), wait)) return false;
    }
    for (uint64_t line = crew.group; line - crew.group + crew.of_warp < b.lines; line += crew.groups)
        if (!receive_last(b, o, mixed_line<N>(b, line), wait)) return false;
    return true;
}

template <class T, int N, class Args> BL_DEVICE void mixed_ll128_batch(const Args &b) {
    const OneWayWords words = oneway_words(b.common);
    const bool at_once = b.lines <= crew_of(whole_grid()).groups;
    OneWay o;
    if (at_once ? mixed_at_once<T, N>(b, words, o) : mixed_in_turn<T, N>(b, words, o)) oneway_end(b.common, o, b.span);
}

BL_INSTANTIATE_BATCH(bl_mixed_ll128_batch, mixed_ll128_batch)
BL_INSTANTIATE_FEW(bl_mixed_ll128_few, mixed_ll128_batch)
