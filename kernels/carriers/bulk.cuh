/* bulk.cuh - pieces of long messages by bulk copies (copies.cuh), with a flag behind each: so that few blocks fill the links.
 *
 * A rank has a *ring* in its staging for each peer and each of two streams: BL_BULK_TAKEN for what this rank is to reduce, BL_BULK_RESULTS for what
 * is as it stays.  Piece p of a launch goes to the place (base + p) of the ring, where `base` counts the pieces of the stream in all launches
 * before, which is the same on all ranks.  Beside each place lies a flag: base + p + 1 says that the piece is there; and in the sender's
 * staging a word of credit: base + p + 1 says that it was taken, so the place is free for the piece that comes a lap later.
 * A message of any length is one launch, whatever a ring holds.
 *
 * Of a block all warps but the last carry pieces, each by itself: *senders* from the user's buffer into the peers' rings,
 * *collectors* from rings into the user's, *reducers* from rings, and this rank's own, to sums.  Blocks do one of these each, since in one that waits for the
 * links receiving would wait, too.  The last warp tells the peers what the others have sent: a flag must be behind
 * a fence, and that waits for all that its thread has under way (docs/notebook.md).
 *
 * Blocks wait for each other's pieces, so all of a grid must come to run, beside whatever else does: room.h sees to that as far as it can
 * (docs/limits.md).  Grids may differ between ranks.
 * Senders wait for credit of collectors and reducers, reducers for credit of collectors, collectors for nothing but
 * pieces: there is no circle.
 */
#ifndef BEELINE_BULK_CUH
#define BEELINE_BULK_CUH

#include <core/copies.cuh>
#include "core/staging.cuh"
#include "core/types.cuh"
#include "core/units.cuh"

/* A warp has stages for pieces of all ranks, some sets of them. */
template <int N> struct Piece {
    enum { STAGES = BL_BULK_SETS * N, BYTES = BL_BULK_WARP_BYTES / STAGES };
    enum {
        LAG = STAGES / 4,
        LOADS = STAGES - LAG
    }; /* stores that may be under way beside the next loads; measured on H200 (docs/notebook.md) */
};

/* --- who does what --- */

/* Warps that carry, numbered through the grid, of which a role has some. */
struct Cast {
    unsigned first, warps;
};
BL_DEVICE unsigned carriers_in_block() {
    return threads_in_block() / 32 - 1;
}
BL_DEVICE unsigned warp_in_block() {
    return thread_in_block() / 32;
}
/* The warp with this number in its block, in the grid. */
BL_DEVICE unsigned carrier_in_grid(unsigned warp) {
    return block_in_grid() * carriers_in_block() + warp;
}
BL_DEVICE unsigned carriers_in_grid() {
    return blocks_in_grid() * carriers_in_block();
}
/* Where a role begins, so many 32nds of the way: with a whole block, or of few blocks with a warp, so that each role has one. */
BL_DEVICE unsigned cast_begin(unsigned begin, unsigned roles_before, unsigned roles_behind) {
    enum { ENOUGH = 6 };
    const unsigned all = carriers_in_grid();
    if (blocks_in_grid() >= ENOUGH) return blocks_in_grid() * begin / 32 * carriers_in_block();
    const unsigned at = all * begin / 32;
    return at < roles_before ? roles_before : at > all - roles_behind ? all - roles_behind : at;
}

/* Items first, first + step, ..., `count` of them, of this warp. */
struct Items {
    uint64_t first, step, count;
    BL_DEVICE_MEMBER uint64_t at(uint64_t k) const { return first + k * step; }
};
/* Of `all`, those of the warp of the cast with this number in the grid. */
BL_DEVICE Items items_of(const Cast &cast, unsigned warp, uint64_t all) {
    const uint64_t first = warp - cast.first;
    if (warp - cast.first >= cast.warps || first >= all) return {0, 1, 0};
    return {first, cast.warps, (all - first + cast.warps - 1) / cast.warps};
}

/* --- memory of a block: the stages of its warps, then words --- */
BL_DEVICE unsigned char *stages_of_warp() {
    return block_memory() + warp_in_block() * BL_BULK_WARP_BYTES;
}
BL_DEVICE uint64_t *words_of_block() {
    return (uint64_t *)(block_memory() + carriers_in_block() * BL_BULK_WARP_BYTES);
}
/* For Copies, of each warp; and how many of its items each has sent. */
BL_DEVICE uint64_t *words_of_warp() {
    return words_of_block() + warp_in_block() * BL_BULK_STAGES;
}
BL_DEVICE uint64_t *sent_by(unsigned warp) {
    return words_of_block() + carriers_in_block() * BL_BULK_STAGES + warp;
}
static const uint64_t WARP_HAS_LEFT = UINT64_MAX;

/* --- rings --- */
struct Stream {
    unsigned which;
    uint64_t base, pieces; /* of all launches before; of this one */
};
BL_DEVICE Stream stream_of(const struct bl_kernel_args &a, unsigned which, uint64_t pieces) {
    return {which, load_own(&a.epochs[BL_WORD_BULK + which * BL_MAX_BLOCKS + block_in_grid()]), pieces};
}
BL_DEVICE uint64_t ring_places(const struct bl_kernel_args &a, unsigned piece_bytes) {
    return a.layout.bulk_bytes / piece_bytes;
}
/* Of the owner's rings of this stream that for what `other` sends, or of its credit that which `other` gives. */
BL_DEVICE unsigned ring_number(const struct bl_kernel_args &a, unsigned which, unsigned owner, unsigned other) {
    return which * (a.nranks - 1) + other - (other > owner);
}
template <int N>
BL_DEVICE unsigned char *place_in_ring(const struct bl_kernel_args &a, const Stream &s, unsigned owner, unsigned source,
                                       uint64_t piece) {
    const uint64_t place = (s.base + piece) & (ring_places(a, Piece<N>::BYTES) - 1);
    return a.staging[owner] + a.layout.bulk_offset + ring_number(a, s.which, owner, source) * a.layout.bulk_bytes +
           place * Piece<N>::BYTES;
}
template <int N>
BL_DEVICE uint64_t *word_of_place(const struct bl_kernel_args &a, const Stream &s, unsigned owner, unsigned ring,
                                  uint64_t piece) {
    const uint64_t places = ring_places(a, Piece<N>::BYTES), rings = BL_BULK_STREAMS * (a.nranks - 1);
    return (uint64_t *)(a.staging[owner] + a.layout.bulk_offset + rings * a.layout.bulk_bytes) + ring * places +
           ((s.base + piece) & (places - 1));
}
template <int N>
BL_DEVICE uint64_t *flag_of_piece(const struct bl_kernel_args &a, const Stream &s, unsigned owner, unsigned source,
                                  uint64_t piece) {
    return word_of_place<N>(a, s, owner, ring_number(a, s.which, owner, source), piece);
}
template <int N>
BL_DEVICE uint64_t *credit_of_piece(const struct bl_kernel_args &a, const Stream &s, unsigned sender, unsigned receiver,
                                    uint64_t piece) {
    const unsigned rings = BL_BULK_STREAMS * (a.nranks - 1);
    return word_of_place<N>(a, s, sender, rings + ring_number(a, s.which, sender, receiver), piece);
}

/* --- between the user's buffers and stages --- */
struct Span {
    unsigned char *at;
    uint32_t bytes; /* at most a piece's */
};
BL_DEVICE bool moves_whole(const Span &s) {
    return (((uintptr_t)s.at | s.bytes) & (UNIT_BYTES - 1)) == 0;
}
BL_DEVICE uint32_t whole_units(uint32_t bytes) {
    return (bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
}
/* Piece p of a run of `bytes`; of none beyond its end. */
BL_DEVICE Span span_of(const void *run, uint64_t bytes, uint64_t piece, uint32_t piece_bytes) {
    const uint64_t at = piece * piece_bytes, left = at < bytes ? bytes - at : 0;
    return {(unsigned char *)run + at, (uint32_t)(left < piece_bytes ? left : piece_bytes)};
}
/* To a stage, to which `more` bytes come besides. */
BL_DEVICE void load_span_to(Copies &copies, unsigned stage, unsigned char *to, const Span &s, uint32_t more) {
    const bool whole = moves_whole(s);
    copies_announce(copies, stage, more + (whole ? s.bytes : 0));
    if (whole) {
        if (s.bytes) copies_load(copies, stage, to, s.at, s.bytes);
        return;
    }
    const Message m = message_of(s.at, s.bytes);
    for (uint32_t u = lane_in_warp(); u < units_of(s.bytes); u += 32)
        store_block_pair(to + u * UNIT_BYTES, load_unit(m, u));
    copies_follow_block();
}
/* The stage may be loaded to once the group was read. */
BL_DEVICE void store_span_from(Copies &copies, const Span &s, const unsigned char *from) {
    if (moves_whole(s)) {
        if (s.bytes) copies_store(copies, s.at, from, s.bytes);
        return;
    }
    const Message m = message_of(s.at, s.bytes);
    for (uint32_t u = lane_in_warp(); u < units_of(s.bytes); u += 32)
        store_unit(m, u, load_block_pair(from + u * UNIT_BYTES));
    copies_follow_block();
}

/* --- waiting --- */

/* How many of `most` words, at most 32, from the first on are there: word(i) says where and what is enough. */
struct Awaited {
    const uint64_t *at; /* NULL: nothing is to be awaited */
    uint64_t least;
};
template <class WordOf> BL_DEVICE unsigned words_there(unsigned most, WordOf word) {
    const unsigned lane = lane_in_warp();
    bool missing = false;
    if (lane < most) {
        const Awaited w = word(lane);
        missing = w.at != nullptr && load_acquire_sys(w.at) < w.least;
    }
    const uint32_t all = warp_or(missing ? 1u << lane : 0);
    return all ? lowest_bit(all) : most;
}
template <int N>
BL_DEVICE Awaited flag_awaited(const struct bl_kernel_args &a, const Stream &s, unsigned source, uint64_t piece) {
    return {flag_of_piece<N>(a, s, a.rank, source, piece), s.base + piece + 1};
}
template <int N>
BL_DEVICE Awaited credit_awaited(const struct bl_kernel_args &a, const Stream &s, unsigned receiver, uint64_t piece) {
    const uint64_t places = ring_places(a, Piece<N>::BYTES), position = s.base + piece + 1;
    if (position <= places) return {nullptr, 0};
    return {credit_of_piece<N>(a, s, a.rank, receiver, piece), position - places};
}
template <int N>
BL_DEVICE void give_credit(const struct bl_kernel_args &a, const Stream &s, unsigned source, uint64_t piece) {
    store_relaxed_sys(credit_of_piece<N>(a, s, source, a.rank, piece), s.base + piece + 1);
}

/* A failed poll of all lanes; false: leave the kernel, all of them, since they go on together.  `missing` is a rank that is waited for. */
BL_DEVICE bool poll_again(const struct bl_kernel_args &a, Wait &wait, unsigned missing) {
    return !wait_is_long(wait) || !warp_or(!wait_on(a, wait, missing));
}

/* --- senders --- */

/* What a warp sends: items, of which each is a piece for all peers, or one for one peer, of each piece the peers' in turn. */
struct Outgoing {
    Stream stream;
    Items items;
    unsigned peers;
    bool to_all;
};
BL_DEVICE unsigned receivers_of(const Outgoing &o) {
    return o.to_all ? o.peers : 1;
}
BL_DEVICE uint64_t piece_of(const Outgoing &o, uint64_t item) {
    return o.to_all ? item : item / o.peers;
}
/* The i-th of them. */
BL_DEVICE unsigned receiver_of(const struct bl_kernel_args &a, const Outgoing &o, uint64_t item, unsigned i) {
    return peer_at(a.rank, (o.to_all ? i : (unsigned)(item % o.peers)) + 1, o.peers + 1);
}

/* Of the items that a warp has stored, for the warp that tells; all of them, before it waits: whoever it waits for may wait for these. */
template <int N> BL_DEVICE void note_sent(Copies &copies, uint64_t sent) {
    enum { LAG = Piece<N>::LAG };
    copies_await_stored<LAG>(copies);
    if (sent > LAG && lane_in_warp() == 0) store_release_block(sent_by(warp_in_block()), sent - LAG);
}
BL_DEVICE void note_all_sent(Copies &copies, uint64_t sent) {
    copies_await_stored<0>(copies);
    if (lane_in_warp() == 0) store_release_block(sent_by(warp_in_block()), sent);
}
BL_DEVICE bool leave(Copies &copies) {
    copies_leave(copies);
    if (lane_in_warp() == 0) store_release_block(sent_by(warp_in_block()), WARP_HAS_LEFT);
    return false;
}

/* Until there is room for the warp's next items from the k-th on, as many as are returned; 0: leave the kernel. */
template <int N>
BL_DEVICE unsigned await_room(const struct bl_kernel_args &a, const Outgoing &o, uint64_t k, Copies &copies,
                              Wait &wait) {
    const unsigned receivers = receivers_of(o), most = 32 / receivers;
    const unsigned looked = o.items.count - k < most ? (unsigned)(o.items.count - k) : most;
    for (bool noted = false;; noted = true) {
        const unsigned there = words_there(looked * receivers, [&](unsigned i) {
            const uint64_t item = o.items.at(k + i / receivers);
            return credit_awaited<N>(a, o.stream, receiver_of(a, o, item, i % receivers), piece_of(o, item));
        });
        if (there >= receivers) {
            wait_over(wait);
            return there / receivers;
        }
        if (!noted) note_all_sent(copies, k);
        if (!poll_again(a, wait, receiver_of(a, o, o.items.at(k), there))) return 0;
    }
}

/* What is in a stage, to all that get it; there is room. */
template <int N>
BL_DEVICE void send_piece(const struct bl_kernel_args &a, const Outgoing &o, Copies &copies, uint64_t item,
                          const unsigned char *stage, uint32_t bytes) {
    for (unsigned i = 0; i < receivers_of(o) && bytes; i++)
        copies_store(copies, place_in_ring<N>(a, o.stream, receiver_of(a, o, item, i), a.rank, piece_of(o, item)),
                     stage, whole_units(bytes));
}

/* from(item): a span of the user's. */
template <int N, class From>
BL_DEVICE bool send_pieces(const struct bl_kernel_args &a, const Outgoing &o, uint64_t flag, From from) {
    enum { STAGES = Piece<N>::STAGES, LOADS = Piece<N>::LOADS };
    unsigned char *const stages = stages_of_warp();
    Copies copies = copies_begin(words_of_warp(), STAGES);
    Wait wait = wait_begin(flag);
    unsigned room = 0;
    for (uint64_t loaded = 0, sent = 0; sent < o.items.count;) {
        for (; loaded < o.items.count && loaded < sent + LOADS; loaded++) {
            const unsigned stage = (unsigned)(loaded % STAGES);
            copies_await_read<Piece<N>::LAG>(copies);
            load_span_to(copies, stage, stages + stage * Piece<N>::BYTES, from(o.items.at(loaded)), 0);
        }
        if (!room && !(room = await_room<N>(a, o, sent, copies, wait))) return leave(copies);
        const uint64_t item = o.items.at(sent);
        const unsigned stage = (unsigned)(sent % STAGES);
        copies_await(copies, stage);
        send_piece<N>(a, o, copies, item, stages + stage * Piece<N>::BYTES, from(item).bytes);
        copies_group(copies);
        room--;
        note_sent<N>(copies, ++sent);
    }
    note_all_sent(copies, o.items.count);
    return true;
}

/* The last warp of a block: a lane for each other one tells the peers what that has sent.  outgoing(warp), of the warp with this number in
 * the block.  False: leave the kernel. */
template <int N, class OutgoingOf> BL_DEVICE bool tell_pieces(const struct bl_kernel_args &a, OutgoingOf outgoing) {
    const unsigned lane = lane_in_warp();
    const bool tells = lane < carriers_in_block();
    const Outgoing o = outgoing(tells ? lane : 0);
    const uint64_t count = tells ? o.items.count : 0;
    uint64_t told = 0;
    bool left = false;
    while (warp_or(told < count && !left)) {
        const uint64_t sent = told < count ? load_acquire_block(sent_by(lane)) : told;
        left = left || sent == WARP_HAS_LEFT;
        if (!warp_or(sent != told && !left)) {
            spin_pause();
            continue;
        }
        fence_acq_rel_sys();
        for (; !left && told < sent; told++) {
            const uint64_t item = o.items.at(told), piece = piece_of(o, item);
            for (unsigned i = 0; i < receivers_of(o); i++)
                store_relaxed_sys(flag_of_piece<N>(a, o.stream, receiver_of(a, o, item, i), a.rank, piece),
                                  o.stream.base + piece + 1);
        }
    }
    return !warp_or(left);
}

/* --- collectors --- */

/* Of each piece what each of `sources` ranks sends: items are pieces of the sources in turn.  source(i), i below sources, is a
 * rank; own(piece) a span of the user's, where that is this one; to(source, piece) too. */
template <int N, class Source, class Own, class To>
BL_DEVICE bool collect_pieces(const struct bl_kernel_args &a, const Stream &s, const Items &items, unsigned sources,
                              uint64_t flag, Source source, Own own, To to) {
    enum { STAGES = Piece<N>::STAGES, LOADS = Piece<N>::LOADS };
    unsigned char *const stages = stages_of_warp();
    Copies copies = copies_begin(words_of_warp(), STAGES);
    Wait wait = wait_begin(flag);
    const auto source_of = [&](uint64_t k) { return source((unsigned)(items.at(k) % sources)); };
    const auto piece_of = [&](uint64_t k) { return items.at(k) / sources; };
    unsigned there = 0;
    for (uint64_t loaded = 0, stored = 0; stored < items.count;) {
        if (loaded < items.count && loaded < stored + LOADS) {
            if (!there) {
                const uint64_t left = items.count - loaded;
                there = words_there(left < 32 ? (unsigned)left : 32, [&](unsigned i) {
                    const unsigned from = source_of(loaded + i);
                    return from == a.rank ? Awaited{nullptr, 0} : flag_awaited<N>(a, s, from, piece_of(loaded + i));
                });
                if (there) copies_follow();
            }
            if (there) {
                const unsigned from = source_of(loaded), stage = (unsigned)(loaded % STAGES);
                unsigned char *const at = stages + stage * Piece<N>::BYTES;
                Span span = to(from, piece_of(loaded));
                if (from == a.rank) {
                    span = own(piece_of(loaded));
                } else {
                    span.at = place_in_ring<N>(a, s, a.rank, from, piece_of(loaded));
                    span.bytes = whole_units(span.bytes);
                }
                copies_await_read<Piece<N>::LAG>(copies);
                load_span_to(copies, stage, at, span, 0);
                loaded++;
                there--;
                wait_over(wait);
                continue;
            }
            if (stored == loaded) {
                if (!poll_again(a, wait, source_of(loaded))) return leave(copies);
                continue;
            }
        }
        const unsigned from = source_of(stored), stage = (unsigned)(stored % STAGES);
        copies_await(copies, stage);
        if (from != a.rank && lane_in_warp() == 0) give_credit<N>(a, s, from, piece_of(stored));
        store_span_from(copies, to(from, piece_of(stored)), stages + stage * Piece<N>::BYTES);
        copies_group(copies);
        stored++;
    }
    copies_await_stored<0>(copies);
    return true;
}

/* --- reducers --- */

/* Sums of this warp's share of `units` units that lie in stages, one for each rank, in rank order; they replace the first rank's. */
template <class T, int N>
BL_DEVICE void reduce_stages(const struct bl_kernel_args &a, unsigned char *set, uint32_t units) {
    const unsigned nranks = N == 2 ? 2 : a.nranks;
#pragma unroll(N <= 4 ? 4 : 1) /* what it loads is under way at once */
    for (uint32_t u = lane_in_warp(); u < units; u += 32) {
        unsigned char *const at = set + u * UNIT_BYTES;
        Sum<T, 2> sum;
#pragma unroll(N <= 4 ? N : 1)
        for (int r = 0; r < N; r++) {
            if (r >= (int)nranks) break;
            const Pair v = load_block_pair(at + r * Piece<N>::BYTES);
            const uint64_t words[1][2] = {{v.x, v.y}};
            reduce_in_rank_order<T, 2, 1>(sum, words, r, a, nranks);
        }
        uint64_t words[2];
        sum.store(words, a, nranks);
        store_block_pair(at, {words[0], words[1]});
    }
}

/* Reduces pieces of this rank's own run, own(piece), with what comes of all peers by `s`: to(piece) gets the sums, and if
 * SENDS, all peers by o, whose items these are. */
template <class T, int N, bool SENDS, class Own, class To>
BL_DEVICE bool reduce_pieces(const struct bl_kernel_args &a, const Stream &s, const Outgoing &o, uint64_t flag, Own own,
                             To to) {
    enum { SETS = BL_BULK_SETS, BYTES = Piece<N>::BYTES };
    unsigned char *const stages = stages_of_warp();
    Copies copies = copies_begin(words_of_warp(), SETS);
    Wait wait = wait_begin(flag);
    const unsigned peers = o.peers, most = 32 / peers;
    const auto peer = [&](unsigned i) { return i + (i >= a.rank); };
    unsigned there = 0, room = 0;
    for (uint64_t loaded = 0, reduced = 0, told = 0; reduced < o.items.count;) {
        if (loaded < o.items.count && loaded < reduced + SETS) {
            unsigned seen = 0;
            if (!there) {
                const uint64_t left = o.items.count - loaded;
                seen = words_there((left < most ? (unsigned)left : most) * peers, [&](unsigned i) {
                    return flag_awaited<N>(a, s, peer(i % peers), o.items.at(loaded + i / peers));
                });
                there = seen / peers;
                if (there) copies_follow();
            }
            if (there) {
                const uint64_t piece = o.items.at(loaded);
                const unsigned set = (unsigned)(loaded % SETS);
                unsigned char *const at = stages + set * N * BYTES;
                const Span mine = own(piece);
                const uint32_t bytes = whole_units(mine.bytes);
                copies_await_read<0>(copies);
                load_span_to(copies, set, at + a.rank * BYTES, mine, peers * bytes);
                for (unsigned i = 0; i < peers && bytes; i++)
                    copies_load(copies, set, at + peer(i) * BYTES, place_in_ring<N>(a, s, a.rank, peer(i), piece),
                                bytes);
                loaded++;
                there--;
                wait_over(wait);
                continue;
            }
            if (reduced == loaded) {
                if (SENDS && told < reduced) note_all_sent(copies, told = reduced);
                if (!poll_again(a, wait, peer(seen % peers))) return leave(copies);
                continue;
            }
        }
        const uint64_t piece = o.items.at(reduced);
        const unsigned set = (unsigned)(reduced % SETS);
        unsigned char *const at = stages + set * N * BYTES;
        const uint32_t bytes = own(piece).bytes;
        copies_await(copies, set);
        if (lane_in_warp() < peers) give_credit<N>(a, s, peer(lane_in_warp()), piece);
        reduce_stages<T, N>(a, at, (uint32_t)units_of(bytes));
        copies_follow_block();
        if (SENDS) {
            if (!room && !(room = await_room<N>(a, o, reduced, copies, wait))) return leave(copies);
            send_piece<N>(a, o, copies, piece, at, bytes);
            room--;
        }
        store_span_from(copies, to(piece), at);
        copies_group(copies);
        reduced++;
        if (SENDS) note_sent<N>(copies, reduced);
    }
    note_all_sent(copies, o.items.count);
    return true;
}

/* --- a launch --- */

/* Where the other warps of the block say what they have sent, nothing yet; before any of them does anything. */
BL_DEVICE void bulk_begin() {
    for (unsigned warp = thread_in_block(); warp < carriers_in_block(); warp += threads_in_block())
        store_release_block(sent_by(warp), 0);
    block_sync();
}
/* Behind epoch_end, and so behind all of the block's warps. */
BL_DEVICE void stream_end(const struct bl_kernel_args &a, const Stream &s) {
    uint64_t *const words = &a.epochs[BL_WORD_BULK + s.which * BL_MAX_BLOCKS];
    if (thread_in_block() == 0) store_own(&words[block_in_grid()], s.base + s.pieces);
    for (unsigned b = blocks_in_grid() + thread_in_grid(); b < BL_MAX_BLOCKS; b += threads_in_grid())
        store_own(&words[b], s.base + s.pieces);
}
template <int N> BL_DEVICE uint64_t pieces_of(uint64_t bytes) {
    return (bytes + Piece<N>::BYTES - 1) / Piece<N>::BYTES;
}

#endif
