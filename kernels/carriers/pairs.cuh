/* pairs.cuh - messages between two ranks: a ring for each ordered pair, credit that comes back, and counters of its own.
 *
 * What staging.cuh and oneway.cuh rest on, that all ranks make the same launches, does not hold here: only sender and receiver
 * know of a message.  So each ordered pair has a *ring* in the receiver's staging, and each of the two counts, in words of its own
 * device, what went through it.  The unit is a *quad*, four lines, which a warp carries in one access; a message takes as many quads as
 * it needs, at least one.  Both know a message's bytes, and NCCL matches the messages of a pair in order: so both come to the same
 * *position* for each of its quads, however many the pair has exchanged before, in whatever launches, eager or replayed.
 * A ring has three times a power of two of places, since twice would be too few, and four times more than there is room for.  A position
 * has the number of a lap, and in its low bits a place; behind the last one comes the next lap, so a quarter of all numbers is left out,
 * and nothing is ever divided ahead of a quad.  The quad's lines carry its position + 1 as their flag, which only grows.  What one launch
 * has for a peer is a *stream*: its messages one behind the other.
 *
 * **Credit.** A quad may be sent when the one that it overwrites has been read.  The receiver says what it has read in two ways, by words in the
 * sender's staging.  When a launch begins: the position before which all is read, for its rank has ended the launch before.  That is
 * early, so it costs no time, and is what small messages live on.  And while it runs: the ring's places are dealt out to
 * *channels*, their place modulo the number of these, at least BL_PAIR_DEPTH places each; of each the position of a quad that it has read + 1,
 * each fourth time.
 * So whoever sends no more than three quarters of a ring waits for nobody.  (Relaxed: the quad's loads brought what it held, so they
 * come before the word's store, and no store is made before the load that permits it.  There is nothing that a fence would bring along.)
 *
 * **Warps.** A stream has W warps: any number, if its ring has as many channels as it has quads, else a power of two up to their number.  Warp w carries
 * quads w, w + W, ...: so all quads of a channel, and their words, are one warp's, and what is told of a channel holds for all before it.
 * Both ends choose W for themselves.  Why that goes on: take the first quad of the stream
 * that has not been read.  All before it are, so there is room for it, as told by the last fourth; its sender's warp has sent all
 * before it, and its receiver's warp has read them.  So it is sent, and read.  That asks for warps of both ends that are resident: a launch
 * has no more of them than find room at once, and where its streams are more than that, or its messages more than its arguments hold, there are
 * several launches, with messages in an order that is the same for both ends of each (plugin/launch/pairs.c).
 */
#ifndef BEELINE_PAIRS_CUH
#define BEELINE_PAIRS_CUH

#include "carriers/ll128.cuh"

enum { CREDIT_EVERY = 4 };

/* One end of a stream, as a warp sees it. */
struct PairEnd {
    uint64_t cursor, stop, quads; /* cursor | stop: the position of its first quad, as soon as something needs it */
    unsigned peer, warp, warps;
    unsigned char *ring;
    uint64_t *begun, *credit;       /* a word; one for each channel: both in the sender's staging */
    uint32_t places, lap, channels; /* lap: the positions of one */
    unsigned message, end;          /* those of the launch that are its */
};

/* A message of it. */
struct PairMessage {
    Run<FLAGGED_WORDS> m;
    uint64_t before, whole; /* quads before it; its own that are whole */
};

template <class Args> BL_DEVICE PairMessage pair_message(const Args &b, unsigned i) {
    const Run<FLAGGED_WORDS> m = run_of<FLAGGED_WORDS>(b.message[i].buffer, b.message[i].bytes);
    return {m, b.message[i].quads_before, whole_lines(m) / BL_QUAD};
}

/* Whether there is such a line of it: one at least. */
BL_DEVICE bool is_carried(const PairMessage &p, uint64_t line) {
    return line == 0 || line * BL_FLAGGED_DATA < p.m.bytes;
}

BL_DEVICE uint64_t *pair_cursors(const struct bl_kernel_args &a, unsigned block) {
    return a.epochs + BL_WORD_PAIRS + (uint64_t)block * BL_PAIR_WORDS;
}

/* What counts a stream's quads, of those that are no copies. */
BL_DEVICE unsigned word_of(const struct bl_pairs_stream &stream) {
    return (stream.kind == BL_PAIR_SEND ? 0 : BL_MAX_RANKS) + stream.peer;
}

template <class Args> BL_DEVICE PairEnd pair_end(const Args &b, const struct bl_pairs_stream &stream, unsigned warp) {
    const struct bl_kernel_args &a = b.common;
    PairEnd e;
    e.cursor = load_own(&pair_cursors(a, block_in_grid())[word_of(stream)]);
    e.stop = load_own(&a.epochs[BL_WORD_STOP]);
    e.quads = stream.quads;
    e.peer = stream.peer;
    e.warp = warp;
    e.warps = stream.warps;
    e.lap = 1u << b.lap_log2;
    e.places = e.lap / 4 * 3;
    e.channels = b.channels;
    e.begun = stream.credit;
    e.credit = stream.credit + 1;
    e.ring = stream.ring;
    e.message = stream.first;
    e.end = stream.first + stream.messages;
    return e;
}

BL_DEVICE uint64_t first_position(const PairEnd &e) {
    return e.cursor | e.stop;
}

/* The position so many quads, less than a ring, behind one. */
BL_DEVICE uint64_t behind(const PairEnd &e, uint64_t position, unsigned quads) {
    const bool next_lap = ((uint32_t)position & (e.lap - 1)) + quads >= e.places;
    return position + quads + (next_lap ? e.lap - e.places : 0);
}

BL_DEVICE unsigned char *place_of_line(const PairEnd &e, uint64_t position, unsigned line) {
    return e.ring + (((uint32_t)position & (e.lap - 1)) * BL_QUAD + line) * LINE_BYTES;
}
BL_DEVICE uint64_t *credit_of(const PairEnd &e, uint64_t position) {
    return e.credit + ((uint32_t)position & (e.channels - 1));
}

/* The message that a quad is of. */
template <class Args> BL_DEVICE PairMessage message_of_quad(const Args &b, const PairEnd &e, uint64_t quad) {
    unsigned i = e.message;
    while (i + 1 < e.end && quad >= b.message[i + 1].quads_before) i++;
    return pair_message(b, i);
}

/* Calls some(quad, position, message), for QUADS quads of this warp that are whole, or one(...), for each of its quads in turn; false of
 * either ends it. */
template <int QUADS, class Args, class Some, class One>
BL_DEVICE bool each_quad(const Args &b, const PairEnd &e, Some some, One one) {
    const uint64_t ahead = (QUADS - 1) * (uint64_t)e.warps;
    unsigned i = e.message;
    PairMessage message = pair_message(b, i);
    uint64_t position = behind(e, first_position(e), e.warp);
    for (uint64_t quad = e.warp; quad < e.quads;) {
        if (i + 1 < e.end && quad >= b.message[i + 1].quads_before) {
            do i++;
            while (i + 1 < e.end && quad >= b.message[i + 1].quads_before);
            message = pair_message(b, i);
        }
        const bool together = quad - message.before + ahead < message.whole;
        if (!(together ? some(quad, position, message) : one(quad, position, message))) return false;
        const unsigned step = (together ? QUADS : 1) * e.warps;
        quad += step;
        position = behind(e, position, step);
    }
    return true;
}

/* Whether a warp that may have two quads has both, of one message and whole. */
template <int QUADS> BL_DEVICE bool are_whole(const PairEnd &e, const PairMessage &p) {
    return QUADS > 1 && e.warp + e.warps - p.before < p.whole;
}

/* Calls one(quad, position) for its second, if it has one. */
template <int QUADS, class One> BL_DEVICE bool second_quad(const PairEnd &e, One one) {
    static_assert(QUADS <= 2, "there is no third");
    const uint64_t quad = e.warp + e.warps;
    return QUADS == 1 || quad >= e.quads || one(quad, behind(e, first_position(e), (unsigned)quad));
}

/* --- sending --- */

/* Whether there is room for a quad if all before `read` has been read, or all of its channel. */
BL_DEVICE bool has_room(const PairEnd &e, uint64_t position, uint64_t read) {
    return (int64_t)(read - (position - e.lap)) > 0;
}

/* Waits until there is room for the quads that this warp sends next; each lane asks for one of them.  All lanes of the warp call it
 * together, ahead of a warp_sync.  `read`: what the lane has heard. */
BL_DEVICE bool await_credit(const struct bl_kernel_args &a, const PairEnd &e, uint64_t position, uint64_t read,
                            Wait &wait) {
    for (;;) {
        const bool room = has_room(e, position, read);
        if (warp_all(room)) break;
        if (wait_is_long(wait) && !wait_on(a, wait, room ? a.rank : e.peer)) return false;
        if (!room) read = load_relaxed_sys(credit_of(e, position));
    }
    wait_over(wait);
    return true;
}

/* QUADS quads of a warp, from `quad` on, all of whose lines are whole, or need not be.  position() gives where they go. */
template <int QUADS, bool WHOLE, class Position>
BL_DEVICE bool send_quads(const struct bl_kernel_args &a, const PairEnd &e, const PairMessage &p, uint64_t quad,
                          Position position, uint64_t begun, Wait &wait) {
    static_assert(WHOLE || QUADS == 1, "only the first is asked whether it exists");
    const unsigned lane = lane_in_warp(), line = lane / LINE_LANES;
    const uint64_t row = (quad - p.before) * BL_QUAD + line;
    Pair v[QUADS];
    load_end_lines(p.m, row, (uint64_t)e.warps * BL_QUAD, v, WHOLE);
    /* Behind the loads, which wait neither for the position nor for `begun`. */
    const uint64_t first = position(), asked = behind(e, first, lane % QUADS * e.warps);
    const uint64_t read = has_room(e, asked, begun) ? begun : load_relaxed_sys(credit_of(e, asked));
    if (!await_credit(a, e, asked, read, wait)) return false;
    warp_sync(); /* lanes may have parted; a line is stored by all of its lanes at once */
#pragma unroll
    for (int k = 0; k < QUADS; k++) {
        const uint64_t at = behind(e, first, k * e.warps);
        if ((WHOLE || is_carried(p, row)) && !is_stopped(first))
            store_line_relaxed_sys(place_of_line(e, at, line), lane % LINE_LANES, v[k], at + 1);
    }
    return true;
}

/* False here and below: leave the kernel. */
template <int QUADS, class Args> BL_DEVICE bool send_stream(const Args &b, const PairEnd &e) {
    const struct bl_kernel_args &a = b.common;
    const uint64_t begun = load_relaxed_sys(e.begun);
    Wait wait = wait_begin(first_position(e));
    return each_quad<QUADS>(
        b, e,
        [&](uint64_t quad, uint64_t position, const PairMessage &p) {
            return send_quads<QUADS, true>(
                a, e, p, quad, [=] { return position; }, begun, wait);
        },
        [&](uint64_t quad, uint64_t position, const PairMessage &p) {
            return send_quads<1, false>(
                a, e, p, quad, [=] { return position; }, begun, wait);
        });
}

/* The same for a warp that has QUADS quads, one or two, at most. */
template <int QUADS, class Args> BL_DEVICE bool send_brief(const Args &b, const PairEnd &e) {
    const uint64_t begun = load_relaxed_sys(e.begun);
    Wait wait;
    const auto position = [&] {
        wait = wait_begin(first_position(e));
        return behind(e, first_position(e), e.warp);
    };
    const PairMessage p = message_of_quad(b, e, e.warp);
    if (are_whole<QUADS>(e, p)) return send_quads<QUADS, true>(b.common, e, p, e.warp, position, begun, wait);
    if (!send_quads<1, false>(b.common, e, p, e.warp, position, begun, wait)) return false;
    return second_quad<QUADS>(e, [&](uint64_t quad, uint64_t at) {
        return send_quads<1, false>(
            b.common, e, message_of_quad(b, e, quad), quad, [=] { return at; }, begun, wait);
    });
}

/* --- receiving --- */

/* Tells the sender that this launch has begun; a warp of the stream does. */
BL_DEVICE void tell_pair_begun(const PairEnd &e) {
    const uint64_t first = first_position(e);
    if (e.warp == 0 && lane_in_warp() == 0 && !is_stopped(first)) store_relaxed_sys(e.begun, first);
}

struct Nothing {
    BL_DEVICE_MEMBER void operator()() const {}
};

/* meanwhile() is called once it is known where to look, and what is looked for may still be on its way. */
template <int QUADS, bool WHOLE, class Meanwhile = Nothing>
BL_DEVICE bool receive_quads(const struct bl_kernel_args &a, const PairEnd &e, const PairMessage &p, uint64_t quad,
                             uint64_t position, Wait &wait, Meanwhile meanwhile = Nothing()) {
    static_assert(WHOLE || QUADS == 1, "only the first is stored where not all are whole");
    const unsigned lane = lane_in_warp(), line = lane / LINE_LANES, part = lane % LINE_LANES;
    const uint64_t row = (quad - p.before) * BL_QUAD + line;
    const unsigned char *at[QUADS];
    LineView view[QUADS];
    uint32_t missing = 0;
#pragma unroll
    for (int k = 0; k < QUADS; k++) {
        at[k] = kept(place_of_line(e, behind(e, position, k * e.warps), line));
        view[k] = line_of({0, 0});
        if (WHOLE || is_carried(p, row)) missing |= 1u << k;
    }
    meanwhile();
    warp_sync(); /* lanes may have parted where the last quad was stored; a line is received by all of its lanes at once */
    for (;;) {
#pragma unroll
        for (int k = 0; k < QUADS; k++)
            if (missing >> k & 1) view[k] = load_line_relaxed_sys(at[k], part);
        bool all = true;
#pragma unroll
        for (int k = 0; k < QUADS; k++) {
            const uint64_t flag = behind(e, position, k * e.warps) + 1;
            const bool here = warp_all((missing >> k & 1) == 0 || line_arrived(view[k], part, flag));
            all = all && here;
            if (here) missing &= ~(1u << k);
        }
        if (all) break;
        if (wait_is_long(wait) && !wait_on(a, wait, missing ? e.peer : a.rank)) return false;
    }
    wait_over(wait);
    Pair v[QUADS];
#pragma unroll
    for (int k = 0; k < QUADS; k++) v[k] = line_data(view[k]);
    if (WHOLE)
        store_whole_lines(p.m, row, (uint64_t)e.warps * BL_QUAD, v);
    else if (is_carried(p, row))
        store_end_line(p.m, row, v[0]);
    const uint64_t read = behind(e, position, lane % QUADS * e.warps);
    const bool told = ((uint32_t)read & (CREDIT_EVERY * e.channels - 1)) >= (CREDIT_EVERY - 1) * e.channels;
    warp_sync(); /* all lanes have read their parts */
    if (lane < QUADS && told) store_relaxed_sys(credit_of(e, read), read + 1);
    return true;
}

template <int QUADS, class Args> BL_DEVICE bool receive_stream(const Args &b, const PairEnd &e) {
    const struct bl_kernel_args &a = b.common;
    Wait wait = wait_begin(first_position(e));
    return each_quad<QUADS>(
        b, e,
        [&](uint64_t quad, uint64_t position, const PairMessage &p) {
            return receive_quads<QUADS, true>(a, e, p, quad, position, wait);
        },
        [&](uint64_t quad, uint64_t position, const PairMessage &p) {
            return receive_quads<1, false>(a, e, p, quad, position, wait);
        });
}

template <int QUADS, class Args, class Meanwhile>
BL_DEVICE bool receive_brief(const Args &b, const PairEnd &e, Meanwhile meanwhile) {
    Wait wait = wait_begin(first_position(e));
    const uint64_t position = behind(e, first_position(e), e.warp);
    const PairMessage p = message_of_quad(b, e, e.warp);
    if (are_whole<QUADS>(e, p)) return receive_quads<QUADS, true>(b.common, e, p, e.warp, position, wait, meanwhile);
    if (!receive_quads<1, false>(b.common, e, p, e.warp, position, wait, meanwhile)) return false;
    return second_quad<QUADS>(e, [&](uint64_t quad, uint64_t at) {
        return receive_quads<1, false>(b.common, e, message_of_quad(b, e, quad), quad, at, wait);
    });
}

/* --- the cursors --- */

/* What a launch leaves behind.  As with the epoch each block has words of its own, and the blocks of this launch share those of the
 * blocks that it lacks.  A thread has a stream's word: that of its number, modulo a power of two which no more than a warp has. */
struct PairCursors {
    unsigned stream;
    bool is_one;
    unsigned word;
    uint64_t position, launches; /* of the stream's first quad; of what comes behind its last one, once that is left */
};

template <class Args> BL_DEVICE PairCursors pairs_begin(const Args &b) {
    const uint64_t *const own = pair_cursors(b.common, block_in_grid());
    PairCursors c;
    c.stream = lane_in_warp() & ((1u << b.pairs_log2) - 1);
    c.is_one = c.stream < b.pairs;
    c.word = c.is_one ? word_of(b.stream[c.stream]) : 0;
    c.position = c.is_one ? load_own(&own[c.word]) : 0;
    c.launches = load_own(&own[BL_PAIR_LAUNCHES]) + 1;
    return c;
}

/* The position so many quads, which may be many laps, behind one. */
BL_DEVICE uint64_t far_behind(uint64_t position, uint64_t quads, unsigned lap_log2) {
    const uint64_t place = (position & ((UINT64_C(1) << lap_log2) - 1)) + quads;
    return position + quads + ((place >> (lap_log2 - 2)) / 3 << (lap_log2 - 2));
}

BL_DEVICE void leave_cursors(const struct bl_kernel_args &a, const PairCursors &c, unsigned block) {
    uint64_t *const words = pair_cursors(a, block);
    if (c.is_one) store_own(&words[c.word], c.position);
    if (c.stream == 0) store_own(&words[BL_PAIR_LAUNCHES], c.launches);
}

/* While others are waited for: nobody reads those in this launch.  Every warp that goes on to pairs_end has called it once. */
template <class Args> BL_DEVICE void leave_cursors_of_others(const Args &b, PairCursors &c) {
    const unsigned step = threads_in_grid() >> b.pairs_log2;
    if (c.is_one) c.position = far_behind(c.position, b.stream[c.stream].quads, b.lap_log2);
    for (unsigned block = blocks_in_grid() + (thread_in_grid() >> b.pairs_log2); block < BL_PAIR_BLOCKS; block += step)
        leave_cursors(b.common, c, block);
}

template <class Args> BL_DEVICE void pairs_end(const Args &b, const PairCursors &c) {
    block_sync(); /* every warp has read the words of this block */
    if (thread_in_block() < 1u << b.pairs_log2) leave_cursors(b.common, c, block_in_grid());
}

#endif
