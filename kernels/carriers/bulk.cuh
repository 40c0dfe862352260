/* bulk.cuh - pieces of long messages by bulk copies (copies.cuh), with a flag behind each: so that few blocks fill the links.
 *
 * A rank has a *ring* in its staging for each peer and each of two streams: BL_BULK_TAKEN for what this rank is to reduce, BL_BULK_RESULTS for what
 * is as it stays.  Piece p of a launch goes to the place (base + p) of the ring, where `base` counts the pieces of the stream in all launches
 * before, which is the same on all ranks.  Beside each place lies a flag: base + p + 1 says that the piece is there; and in the sender's
 * staging a word of credit: base + p + 1 says that it was taken, so the place is free for the piece that comes a lap later.
 * A message of any length is one launch, whatever a ring holds.
 *
 * Who does what, and when, says bulk_roles.cuh.  Senders wait for credit of collectors and reducers, reducers for credit of collectors, collectors for nothing but
 * pieces; each in the order of pieces, and what comes first is claimed first: there is no circle.  Grids may differ between ranks.
 */
#ifndef BEELINE_BULK_CUH
#define BEELINE_BULK_CUH

#include <core/copies.cuh>
#include "carriers/bulk_roles.cuh"
#include "carriers/bulk_spans.cuh"
#include "core/staging.cuh"
#include "core/types.cuh"

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
    unsigned peers;
    bool to_all;
};
BL_DEVICE unsigned receivers_of(const Outgoing &o) {
    return o.to_all ? o.peers : 1;
}
BL_DEVICE uint64_t piece_of(const Outgoing &o, uint64_t item) {
    return o.to_all ? item : item / o.peers;
}
BL_DEVICE uint64_t items_of(const Outgoing &o) {
    return o.to_all ? o.stream.pieces : o.stream.pieces * o.peers;
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
/* Items whose numbers are still needed are those from this one on. */
BL_DEVICE uint64_t told() {
    return of_first_lane(load_acquire_block(told_of(warp_in_block())));
}

/* Until there is room for the warp's next items from the k-th on, as many as are returned; 0: leave the kernel. */
template <int N>
BL_DEVICE unsigned await_room(const struct bl_kernel_args &a, const Outgoing &o, const Work &work, uint64_t k,
                              Copies &copies, Wait &wait) {
    const unsigned receivers = receivers_of(o), most = 32 / receivers;
    const unsigned looked = work.known - k < most ? (unsigned)(work.known - k) : most;
    for (bool noted = false;; noted = true) {
        const unsigned there = words_there(looked * receivers, [&](unsigned i) {
            const uint64_t item = item_at(k + i / receivers);
            return credit_awaited<N>(a, o.stream, receiver_of(a, o, item, i % receivers), piece_of(o, item));
        });
        if (there >= receivers) {
            wait_over(wait);
            return there / receivers;
        }
        if (!noted) note_all_sent(copies, k);
        if (!poll_again(a, wait, receiver_of(a, o, item_at(k), there))) return 0;
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
BL_DEVICE bool send_pieces(const struct bl_kernel_args &a, const Launch &launch, const Outgoing &o, uint64_t flag,
                           From from) {
    enum { STAGES = Piece<N>::STAGES, LOADS = Piece<N>::LOADS, BYTES = Piece<N>::STAGE_BYTES };
    unsigned char *const stages = stages_of_warp();
    Copies copies = copies_begin(arrivals_of_warp(), STAGES);
    Work work = work_begin(launch, SENDS, items_of(o), 4);
    Wait wait = wait_begin(flag);
    unsigned room = 0;
    for (uint64_t loaded = 0, sent = 0;;) {
        work_on(work, loaded, told());
        for (; loaded < work.known && loaded < sent + LOADS; loaded++) {
            const unsigned stage = (unsigned)(loaded % STAGES);
            copies_await_read<Piece<N>::LAG>(copies);
            load_span_to(copies, stage, stages + stage * BYTES, from(item_at(loaded)), 0);
        }
        if (sent == loaded) {
            if (work.over) {
                note_all_sent(copies, sent | NO_MORE);
                return true;
            }
            if (!poll_again(a, wait, a.rank)) return leave(copies);
            continue;
        }
        if (!room && !(room = await_room<N>(a, o, work, sent, copies, wait))) return leave(copies);
        const uint64_t item = item_at(sent);
        const unsigned stage = (unsigned)(sent % STAGES);
        copies_await(copies, stage);
        settle(stages + stage * BYTES, from(item));
        send_piece<N>(a, o, copies, item, stages + stage * BYTES, from(item).bytes);
        copies_group(copies);
        room--;
        note_sent<N>(copies, ++sent);
    }
}

/* The last warp of a block: a lane for each other one tells the peers what that has sent; outgoing(warp) says what.  False: leave the kernel. */
template <int N, class OutgoingOf> BL_DEVICE bool tell_pieces(const struct bl_kernel_args &a, OutgoingOf outgoing) {
    const unsigned lane = lane_in_warp();
    const bool tells = lane < carriers_in_block();
    const Outgoing o = outgoing(tells ? lane : 0);
    uint64_t told = 0;
    bool over = !tells, left = false;
    while (warp_or(!over)) {
        const uint64_t word = over ? told | NO_MORE : load_acquire_block(sent_by(lane)), sent = word & ~NO_MORE;
        left = left || (!over && word == WARP_HAS_LEFT);
        over = over || word & NO_MORE;
        const bool news = !left && sent > told; /* whoever has said all before it waited says less of the next */
        if (!warp_or(news)) {
            spin_pause();
            continue;
        }
        fence_acq_rel_sys();
        if (!news) continue;
        for (; told < sent; told++) {
            const uint64_t item = load_block(item_of(lane, told)), piece = piece_of(o, item);
            for (unsigned i = 0; i < receivers_of(o); i++)
                store_relaxed_sys(flag_of_piece<N>(a, o.stream, receiver_of(a, o, item, i), a.rank, piece),
                                  o.stream.base + piece + 1);
        }
        store_release_block(told_of(lane), told);
    }
    return !warp_or(left);
}

/* --- collectors --- */

/* Of each piece what each of `sources` ranks sends: items are pieces of the sources in turn.  source(i), i below sources, is a
 * rank; own(piece) a span of the user's, where that is this one; to(source, piece) too. */
template <int N, class Source, class Own, class To>
BL_DEVICE bool collect_pieces(const struct bl_kernel_args &a, const Launch &launch, const Stream &s, unsigned sources,
                              uint64_t flag, Source source, Own own, To to) {
    enum { STAGES = Piece<N>::STAGES, LOADS = Piece<N>::LOADS, BYTES = Piece<N>::STAGE_BYTES };
    unsigned char *const stages = stages_of_warp();
    Copies copies = copies_begin(arrivals_of_warp(), STAGES);
    Work work = work_begin(launch, COLLECTS, s.pieces * sources, 4);
    Wait wait = wait_begin(flag);
    const auto source_of = [&](uint64_t item) { return source((unsigned)(item % sources)); };
    unsigned there = 0;
    for (uint64_t loaded = 0, stored = 0;;) {
        work_on(work, loaded, stored);
        if (loaded < work.known && loaded < stored + LOADS) {
            if (!there) {
                const uint64_t left = work.known - loaded;
                there = words_there(left < 32 ? (unsigned)left : 32, [&](unsigned i) {
                    const uint64_t item = item_at(loaded + i);
                    const unsigned from = source_of(item);
                    return from == a.rank ? Awaited{nullptr, 0} : flag_awaited<N>(a, s, from, item / sources);
                });
                if (there) copies_follow();
            }
            const uint64_t item = item_at(loaded), piece = item / sources;
            const unsigned from = source_of(item);
            if (there) {
                const unsigned stage = (unsigned)(loaded % STAGES);
                Span span = to(from, piece);
                if (from == a.rank) {
                    span = own(piece);
                } else {
                    span.at = place_in_ring<N>(a, s, a.rank, from, piece);
                    span.bytes = whole_units(span.bytes);
                }
                copies_await_read<Piece<N>::LAG>(copies);
                load_span_to(copies, stage, stages + stage * BYTES, span, 0);
                loaded++;
                there--;
                wait_over(wait);
                continue;
            }
            if (stored == loaded) {
                if (!poll_again(a, wait, from)) return leave(copies);
                continue;
            }
        }
        if (stored == loaded) break; /* none was claimed */
        const uint64_t item = item_at(stored), piece = item / sources;
        const unsigned from = source_of(item), stage = (unsigned)(stored % STAGES);
        copies_await(copies, stage);
        if (from == a.rank)
            settle(stages + stage * BYTES, own(piece));
        else if (lane_in_warp() == 0)
            give_credit<N>(a, s, from, piece);
        store_span_from(copies, to(from, piece), stages + stage * BYTES);
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
            const Pair v = load_block_pair(at + r * Piece<N>::STAGE_BYTES);
            const uint64_t words[1][2] = {{v.x, v.y}};
            reduce_in_rank_order<T, 2, 1>(sum, words, r, a, nranks);
        }
        uint64_t words[2];
        sum.store(words, a, nranks);
        store_block_pair(at, {words[0], words[1]});
    }
}

/* Reduces pieces of this rank's own run, own(piece), with what comes of all peers by `s`: to(piece) gets the sums, and if
 * SENDS_SUMS, all peers by o. */
template <class T, int N, bool SENDS_SUMS, class Own, class To>
BL_DEVICE bool reduce_pieces(const struct bl_kernel_args &a, const Launch &launch, const Stream &s, const Outgoing &o,
                             uint64_t flag, Own own, To to) {
    enum { SETS = Piece<N>::SETS, BYTES = Piece<N>::STAGE_BYTES };
    unsigned char *const stages = stages_of_warp();
    Copies copies = copies_begin(arrivals_of_warp(), SETS);
    Work work = work_begin(launch, REDUCES, s.pieces, N == 2 ? 4 : 2);
    Wait wait = wait_begin(flag);
    const unsigned peers = o.peers, most = 32 / peers;
    const auto peer = [&](unsigned i) { return i + (i >= a.rank); };
    unsigned there = 0, room = 0;
    uint64_t noted = 0;
    for (uint64_t loaded = 0, reduced = 0;;) {
        work_on(work, loaded, SENDS_SUMS ? told() : reduced);
        unsigned seen = 0;
        if (loaded < work.known && loaded < reduced + SETS) {
            if (!there) {
                const uint64_t left = work.known - loaded;
                seen = words_there((left < most ? (unsigned)left : most) * peers, [&](unsigned i) {
                    return flag_awaited<N>(a, s, peer(i % peers), item_at(loaded + i / peers));
                });
                there = seen / peers;
                if (there) copies_follow();
            }
            if (there) {
                const uint64_t piece = item_at(loaded);
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
        }
        if (reduced == loaded) { /* nothing has come, or none was claimed */
            if (loaded == work.known && work.over) break;
            if (SENDS_SUMS && noted < reduced) note_all_sent(copies, noted = reduced);
            if (!poll_again(a, wait, loaded < work.known ? peer(seen % peers) : a.rank)) return leave(copies);
            continue;
        }
        const uint64_t piece = item_at(reduced);
        const unsigned set = (unsigned)(reduced % SETS);
        unsigned char *const at = stages + set * N * BYTES;
        const Span mine = own(piece);
        copies_await(copies, set);
        settle(at + a.rank * BYTES, mine);
        if (lane_in_warp() < peers) give_credit<N>(a, s, peer(lane_in_warp()), piece);
        reduce_stages<T, N>(a, at, (uint32_t)units_of(mine.bytes));
        copies_follow_block();
        if (SENDS_SUMS) {
            if (!room && !(room = await_room<N>(a, o, work, reduced, copies, wait))) return leave(copies);
            send_piece<N>(a, o, copies, piece, at, mine.bytes);
            room--;
        }
        store_span_from(copies, to(piece), at);
        copies_group(copies);
        reduced++;
        if (SENDS_SUMS) note_sent<N>(copies, reduced);
    }
    note_all_sent(copies, (SENDS_SUMS ? work.known : 0) | NO_MORE);
    return true;
}

/* --- the end of a launch --- */

/* Behind epoch_end, and so behind all of the block's warps. */
BL_DEVICE void count_on(const struct bl_kernel_args &a, unsigned words, uint64_t now) {
    if (thread_in_block() == 0) store_own(&a.epochs[words + block_in_grid()], now);
    for (unsigned b = blocks_in_grid() + thread_in_grid(); b < BL_MAX_BLOCKS; b += threads_in_grid())
        store_own(&a.epochs[words + b], now);
}
BL_DEVICE void stream_end(const struct bl_kernel_args &a, const Stream &s) {
    count_on(a, BL_WORD_BULK + s.which * BL_MAX_BLOCKS, s.base + s.pieces);
}
BL_DEVICE void bulk_end(const struct bl_kernel_args &a, const Launch &l) {
    count_on(a, BL_WORD_BULK_LAUNCHES, l.number + 1);
}
template <int N> BL_DEVICE uint64_t pieces_of(uint64_t bytes) {
    return (bytes + Piece<N>::BYTES - 1) / Piece<N>::BYTES;
}

/* --- buffers that hold a block of each rank, and whose turn it is --- */

/* Of the rank's block of `bytes` its piece p. */
template <int N>
BL_DEVICE Span span_of_block(const struct bl_kernel_args &a, const void *buffer, unsigned rank, uint64_t bytes,
                             uint64_t p) {
    return span_of((const unsigned char *)buffer + rank * a.stride, bytes, p, Piece<N>::BYTES);
}
/* The i-th that a rank collects from: who sends to it first comes first, and itself last. */
BL_DEVICE unsigned source_in_turn(const struct bl_kernel_args &a, unsigned nranks, unsigned i) {
    return i + 1 < nranks ? peer_at(a.rank, nranks - 1 - i, nranks) : a.rank;
}

#endif
