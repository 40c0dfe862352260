/* oneway.cuh - launches in which a rank waits only for ranks whose data it needs: of a broadcast the root waits for nobody, of a
 * reduce only the root waits; of a batch of them, who is to receive something.  Who writes where, and why nobody overwrites what is still to be read.
 *
 * What staging.cuh rests on, that each rank hears from each in every launch, does not hold here.  So these launches have memory
 * of their own, in each rank's staging a *ring* of lines for each source, and a counter of their own, the *cursor*: lines that
 * went before, the same number on all ranks, since all make the same launches.  A launch of so many lines takes the lines from
 * cursor to cursor + lines of every ring, whoever the root is; its flag is cursor + lines.  So flags grow, none came before and
 * none is zero; the words and launches of staging.cuh stay as they are.
 *
 * Of a batch each root's lines are counted by themselves, and the launch takes as many as the root that has most (its span): no two
 * roots' lie in one ring.  In a broadcast all that a ring gets is of its source's messages, in a reduce of its owner's.  Of several collectives each kind has
 * places of its own, so the span is a sum over kinds, and what is reduced and sent on lies in other rings than what it was made of: kernels/mixed.c.
 *
 * A launch begins when its rank has ended the launch before, on whatever stream, and then tells every peer its cursor: all that I
 * was sent before that I have read.  It does not wait for that to arrive.  Before a rank sends to a peer, it waits until the
 * peer's last word of this kind, `begun`, is at least cursor + lines - ring: then the lines that these overwrite are of launches
 * which the peer has ended.  Loads of a launch that has ended brought what it stored, so they come before the word's store; and
 * no store is made before the load that permits it.  (Relaxed both, as elsewhere: there is nothing that a fence would bring along.)
 * Early launches tell nothing, and send nothing, before the stream's earlier work is over (stream_wait).
 *
 * A launch takes a third of the ring at most (bl_kernel_capacity).  So where a peer has ended a launch, and not begun the next,
 * two more can be sent to it, however long; of short ones as many as fit.  And nobody waits for ever while all ranks make their
 * launches: of the launches that are under way take the earliest, and a rank in it.  All others have begun it, or a later one, or
 * are about to; then their words are at least its cursor, and there is room.
 *
 * The shape of a launch may differ from rank to rank: a line's place depends on its number alone.
 */
#ifndef BEELINE_ONEWAY_CUH
#define BEELINE_ONEWAY_CUH

#include "carriers/ll128.cuh"

struct OneWay {
    uint64_t cursor;
    Flag sign;         /* its flag: the cursor that it leaves behind */
    uint64_t launches; /* before this one */
    Region region;
    uint64_t heard; /* what the peer of this lane's number had told when the launch began */
    bool told;      /* this warp has told what it has to tell, and found room */
};

/* What `of` has told this rank, or `rank` tells `of`. */
BL_DEVICE uint64_t *begun_word(const struct bl_kernel_args &a, unsigned owner, unsigned of) {
    return (uint64_t *)(a.staging[owner] + a.layout.oneway_offset) + of;
}

/* What a launch begins with, as it was asked for: nothing waits for it yet. */
struct OneWayWords {
    uint64_t cursor, stop, launches, heard;
};

/* Called first by all threads of a launch. */
BL_DEVICE OneWayWords oneway_words(const struct bl_kernel_args &a) {
    stream_wait();
    const unsigned block = block_in_grid();
    return {load_own(&a.epochs[BL_WORD_CURSORS + block]), load_own(&a.epochs[BL_WORD_STOP]),
            load_own(&a.epochs[BL_WORD_ONEWAYS + block]),
            /* Beside the cursor, not behind it. */
            load_relaxed_sys(begun_word(a, a.rank, lane_in_warp() % BL_MAX_RANKS))};
}

BL_DEVICE OneWay oneway_begin(const struct bl_kernel_args &a, const OneWayWords &words, uint64_t lines) {
    OneWay o;
    o.cursor = words.cursor | words.stop;
    o.launches = words.launches;
    o.heard = words.heard;
    o.sign = {o.cursor + lines};
    const uint64_t stride = a.layout.oneway_lines * LINE_BYTES;
    o.region = {a.layout.oneway_offset + BL_MAX_RANKS * sizeof(uint64_t), stride, o.cursor, a.layout.oneway_lines - 1};
    o.told = false;
    return o;
}
BL_DEVICE OneWay oneway_begin(const struct bl_kernel_args &a, uint64_t lines) {
    return oneway_begin(a, oneway_words(a), lines);
}

/* As epoch_end. */
BL_DEVICE void oneway_end(const struct bl_kernel_args &a, const OneWay &o, uint64_t lines) {
    uint64_t *const cursors = a.epochs + BL_WORD_CURSORS, *const launches = a.epochs + BL_WORD_ONEWAYS;
    const auto leave_behind = [&](unsigned block) {
        store_own(&cursors[block], o.cursor + lines);
        store_own(&launches[block], o.launches + 1);
    };
    block_sync(); /* every warp has read the words of this block */
    if (thread_in_block() == 0) leave_behind(block_in_grid());
    for (unsigned b = blocks_in_grid() + thread_in_grid(); b < BL_MAX_BLOCKS; b += threads_in_grid()) leave_behind(b);
}

/* The same of a launch that took much of the rings: that all of it was read this rank tells at once, by its last block, and not with its next launch
 * of this kind, for peers may be calls ahead by then. */
BL_DEVICE void oneway_end_told(const struct bl_kernel_args &a, const OneWay &o, uint64_t lines) {
    uint64_t *const ended = a.epochs + BL_WORD_ENDED;
    oneway_end(a, o, lines);
    if (thread_in_block() != 0 || atomic_add_acq_rel_gpu(ended, 1) + 1 != blocks_in_grid()) return;
    store_own(ended, (uint64_t)0);
    for (unsigned peer = 0; peer < a.nranks && !is_stopped(o.cursor); peer++)
        if (peer != a.rank) store_relaxed_sys(begun_word(a, peer, a.rank), o.cursor + lines);
}

/* Tells the peers that this launch has begun: a word each of the grid's first threads. */
BL_DEVICE void tell_begun(const struct bl_kernel_args &a, const OneWay &o) {
    const unsigned peer = thread_in_grid();
    if (peer < a.nranks && peer != a.rank && !is_stopped(o.cursor))
        store_relaxed_sys(begun_word(a, peer, a.rank), o.cursor);
}

/* Waits until there is room for what this launch sends to the peers in the mask `to`; called by all lanes of the warp, ahead of
 * a warp_sync: each asks for one peer.  False: leave the kernel. */
BL_DEVICE bool await_room(const struct bl_kernel_args &a, const OneWay &o, uint32_t to) {
    const unsigned peer = lane_in_warp() % BL_MAX_RANKS;
    const bool asks = peer < a.nranks && peer != a.rank && (to >> peer & 1) != 0;
    const uint64_t *const word = begun_word(a, a.rank, peer);
    const uint64_t least = o.sign.flag - a.layout.oneway_lines;
    Wait wait = wait_begin(o.sign.flag);
    for (uint64_t heard = o.heard;; heard = load_relaxed_sys(word)) {
        const bool room = !asks || (int64_t)(heard - least) >= 0;
        if (warp_all(room)) return true;
        if (wait_is_long(wait) && !wait_on(a, wait, room ? a.rank : peer)) return false;
    }
}

/* Both, once a launch: by senders when their first loads are under way; also by the threads that tell, for their warp has a line. */
BL_DEVICE bool ready_to_send(const struct bl_kernel_args &a, OneWay &o, uint32_t to) {
    if (o.told) return true;
    tell_begun(a, o);
    o.told = true;
    return await_room(a, o, to);
}

/* The same, at once, of a launch in which this rank may have nothing to send; which all lanes of a warp see alike, for each of them asks for
 * one peer on behalf of all. */
BL_DEVICE bool ready_to_send_if(const struct bl_kernel_args &a, OneWay &o, uint32_t to, bool sends) {
    if (sends) return ready_to_send(a, o, to);
    tell_begun(a, o);
    return true;
}

/* A line to every peer, to its place in this rank's ring there. */
template <int N> BL_DEVICE void send_to_peers(const struct bl_kernel_args &a, const OneWay &o, uint64_t place, Pair v) {
    const unsigned nranks = nranks_of<N>(a);
#pragma unroll
    for (int p = 1; p < N; p++)
        if (p < (int)nranks) send_line(a, o.region, peer_at(a.rank, p, nranks), place, v, o.sign);
}

#endif
