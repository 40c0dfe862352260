#include "pairs.h"

#include <string.h>

#include "base/log.h"

enum { WARP = 32 };

/* More than that not every GPU takes. */
_Static_assert(sizeof(struct bl_pairs_args) <= 4096, "a launch's messages fit into the arguments of a kernel");
_Static_assert(BL_PAIR_MESSAGES % 2 == 0, "both ends of a message to itself are in one launch");

/* From the sender on to the receiver. */
static int distance(const struct bl_call *call) {
    const int peer = call->request.root, rank = call->comm->rank, nranks = call->comm->nranks;
    return ((call->receives ? rank - peer : peer - rank) + nranks) % nranks;
}

static int sender(const struct bl_call *call) {
    return call->receives ? call->request.root : call->comm->rank;
}

bool bl_pairs_before(const struct bl_call *a, int a_index, const struct bl_call *b, int b_index) {
    if (bl_call_to_itself(a) != bl_call_to_itself(b)) return bl_call_to_itself(a);
    if (a_index != b_index) return a_index < b_index;
    if (distance(a) != distance(b)) return distance(a) < distance(b);
    if (sender(a) != sender(b)) return sender(a) < sender(b); /* else a ring of ranks could all be at their sends */
    return !a->receives && b->receives;
}

ncclResult_t bl_pairs_check(const struct bl_call *const *calls, int count) {
    for (int i = 0; i < count && bl_call_to_itself(calls[i]); i += 2) {
        const struct bl_call *const other = i + 1 < count ? calls[i + 1] : NULL;
        const bool paired = other && bl_call_to_itself(other) && !calls[i]->receives && other->receives;
        if (paired && bl_call_bytes(&calls[i]->request) == bl_call_bytes(&other->request)) continue;
        bl_warn("communicator %016llx rank %d: a message to itself needs ncclSend and ncclRecv of the same size in one "
                "group",
                (unsigned long long)calls[i]->comm->id, calls[i]->comm->rank);
        return ncclInvalidUsage;
    }
    return ncclSuccess;
}

static unsigned divide_up(unsigned a, unsigned b) {
    return (a + b - 1) / b;
}

static uint64_t quads_of(const struct bl_call *call) {
    return bl_pair_quads(bl_call_bytes(&call->request));
}

/* What a call's messages to, or from, a peer have in common. */
static int word_of(const struct bl_call *call) {
    return (call->receives ? BL_MAX_RANKS : 0) + call->request.root;
}

void bl_pairs_grid(const struct bl_call *const *calls, int count, struct bl_route *grid) {
    const struct bl_staging_layout *layout = &calls[0]->comm->args.layout;
    uint64_t quads[2 * BL_MAX_RANKS] = {0};
    unsigned warps = 0;
    for (int i = 0; i < count; i++) {
        const struct bl_route *route = &calls[i]->route;
        if (!bl_call_to_itself(calls[i]))
            quads[word_of(calls[i])] += quads_of(calls[i]);
        else if (!calls[i]->receives)
            warps += bl_pair_warps(layout, quads_of(calls[i]));
        if (route->threads > grid->threads) grid->threads = route->threads;
        if (route->blocks > grid->blocks) grid->blocks = route->blocks;
    }
    for (int word = 0; word < 2 * BL_MAX_RANKS; word++)
        if (quads[word]) warps += bl_pair_warps(layout, quads[word]);
    const unsigned blocks = divide_up(warps, grid->threads / WARP);
    if (blocks < grid->blocks) grid->blocks = blocks;
}

/* --- the arguments of one launch --- */

struct filling {
    struct bl_pairs_args *args;
    int messages;
};

static void add_message(struct filling *filling, const struct bl_call *call, uint64_t before) {
    filling->args->message[filling->messages++] =
        (struct bl_pairs_message){.buffer = call->receives ? call->recvbuff : (void *)(uintptr_t)call->sendbuff,
                                  .bytes = bl_call_bytes(&call->request),
                                  .quads_before = before};
}

static struct bl_pairs_stream *add_stream(struct filling *filling, enum bl_pair_kind kind, int peer) {
    struct bl_pairs_stream *stream = &filling->args->stream[filling->args->streams++];
    *stream =
        (struct bl_pairs_stream){.first = (uint8_t)filling->messages, .kind = (uint8_t)kind, .peer = (uint8_t)peer};
    return stream;
}

static void end_stream(struct filling *filling, struct bl_pairs_stream *stream, uint64_t quads) {
    stream->messages = (uint8_t)(filling->messages - stream->first);
    stream->quads = quads;
    stream->warps = (uint16_t)bl_pair_warps(&filling->args->common.layout, quads);
}

/* What this rank sends to the peer, or receives of it, in these calls. */
static void add_pair(struct filling *filling, const struct bl_call *const *calls, int count, int word) {
    const enum bl_pair_kind kind = word < BL_MAX_RANKS ? BL_PAIR_SEND : BL_PAIR_RECV;
    const struct bl_kernel_args *common = &filling->args->common;
    struct bl_pairs_stream *stream = add_stream(filling, kind, word % BL_MAX_RANKS);
    const unsigned sender = kind == BL_PAIR_SEND ? common->rank : stream->peer,
                   receiver = kind == BL_PAIR_SEND ? stream->peer : common->rank;
    uint64_t quads = 0;
    stream->ring = common->staging[receiver] + bl_pair_ring(&common->layout, sender, receiver);
    stream->credit = (uint64_t *)(void *)(common->staging[sender] + bl_pair_credit(&common->layout, receiver));
    for (int i = 0; i < count; i++) {
        if (word_of(calls[i]) != word) continue;
        add_message(filling, calls[i], quads);
        quads += quads_of(calls[i]);
    }
    end_stream(filling, stream, quads);
}

static void add_copy(struct filling *filling, const struct bl_call *const *ends) {
    struct bl_pairs_stream *stream = add_stream(filling, BL_PAIR_COPY, ends[0]->request.root);
    add_message(filling, ends[0], 0);
    add_message(filling, ends[1], 0);
    end_stream(filling, stream, quads_of(ends[0]));
}

static unsigned count_warps(const struct bl_pairs_args *args) {
    unsigned warps = 0;
    for (uint32_t i = 0; i < args->streams; i++) warps += args->stream[i].warps;
    return warps;
}

/* Those that have the most have a power of two, and give half of them away, until all fit. */
static void share_warps(struct bl_pairs_args *args, unsigned most) {
    unsigned all = count_warps(args);
    for (unsigned widest = args->channels / 2; all > most; widest /= 2)
        for (uint32_t i = 0; i < args->streams; i++) {
            struct bl_pairs_stream *stream = &args->stream[i];
            if (stream->warps <= widest) continue;
            all -= stream->warps - widest;
            stream->warps = (uint16_t)widest;
        }
}

/* Half as many, each with two quads, or the one that is left.  Any number will do where no two quads are of one channel. */
static bool halve_warps(struct bl_pairs_args *args, unsigned most) {
    uint64_t all = 0;
    for (uint32_t i = 0; i < args->streams; i++) {
        if (args->stream[i].quads > args->channels) return false;
        all += (args->stream[i].quads + 1) / 2;
    }
    if (all > most) return false;
    for (uint32_t i = 0; i < args->streams; i++) args->stream[i].warps = (uint16_t)((args->stream[i].quads + 1) / 2);
    return true;
}

/* Each quad has a warp, or every two have one, if blocks of twice the threads, which only those of short kernels can have, are enough for that. */
static void deal_warps(struct bl_pairs_args *args, struct bl_route *grid, bool wide_blocks) {
    const unsigned most = grid->blocks * (grid->threads / WARP);
    const unsigned widest = wide_blocks && 2 * grid->threads == BL_PAIR_THREADS ? 2 * most : most;
    const bool brief = bl_pairs_per_warp(args) == 1 && count_warps(args) <= widest;
    if (!brief && !halve_warps(args, widest))
        share_warps(args, most);
    else if (count_warps(args) > most)
        grid->threads = BL_PAIR_THREADS;
}

/* How many calls a launch of so many warps has, and which streams they make. */
static int take_calls(const struct bl_call *const *calls, int count, unsigned most, uint64_t *words) {
    unsigned streams = 0;
    int taken = 0;
    *words = 0;
    while (taken < count && taken < BL_PAIR_MESSAGES) {
        const bool copied = bl_call_to_itself(calls[taken]);
        const uint64_t bit = UINT64_C(1) << word_of(calls[taken]);
        const bool more = copied || !(*words & bit);
        if (more && (streams == most || streams == BL_PAIR_STREAMS)) break;
        streams += more;
        if (!copied) *words |= bit;
        taken += copied ? 2 : 1;
    }
    return taken;
}

int bl_pairs_fill(struct bl_pairs_args *args, struct bl_route *grid, const struct bl_call *const *calls, int count) {
    struct filling filling = {.args = args};
    uint64_t words;
    const int taken = take_calls(calls, count, grid->blocks * (grid->threads / WARP), &words);
    unsigned warp = 0;
    args->streams = args->pairs_log2 = 0;
    args->channels = (uint16_t)bl_pair_channels(&args->common.layout);
    args->lap_log2 = (uint16_t)bl_pair_lap_log2(&args->common.layout);
    for (int word = 0; word < 2 * BL_MAX_RANKS; word++)
        if (words >> word & 1) add_pair(&filling, calls, taken, word);
    args->pairs = args->streams;
    while (1u << args->pairs_log2 < args->pairs) args->pairs_log2++;
    for (int i = 0; i < taken && bl_call_to_itself(calls[i]); i += 2) add_copy(&filling, calls + i);
    deal_warps(args, grid, calls[0]->comm->wide_blocks);
    const unsigned per_block = grid->threads / WARP, warps = count_warps(args);
    for (uint32_t i = 0; i < args->streams; i++) {
        args->stream[i].first_warp = (uint16_t)warp;
        memset(&args->warp_stream[warp], (int)i, args->stream[i].warps);
        warp += args->stream[i].warps;
    }
    grid->blocks = divide_up(warps, per_block);
    if (grid->blocks == 1) grid->threads = warps * WARP;
    memset(&args->warp_stream[warp], BL_PAIR_STREAMS, grid->blocks * (grid->threads / WARP) - warp);
    args->common.count = (uint64_t)taken; /* to be told */
    return taken;
}
