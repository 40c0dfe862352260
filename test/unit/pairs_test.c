/* pairs_test.c - how the messages of groups become launches: their order, which streams a launch has, and that the launches of all
 * ranks, whatever their grids, take what both ends of a pair exchange alike and end. */
#include <stddef.h>

#include "dispatch_test.h"
#include "base/log.h"
#include "launch/fuse.h"
#include "launch/launch.h"
#include "launch/pairs.h"

enum { RANKS = BL_MAX_RANKS, MOST = 3000, MOST_LAUNCHES = MOST };

static struct bl_comm comms[RANKS];

/* --- in place of what pairs.c and fuse.c call --- */

static int warnings;

bool bl_log_enabled(enum bl_log_level level) {
    return level <= BL_LOG_WARN;
}
void bl_log_at(struct bl_log_site *site, enum bl_log_level level, const char *format, ...) {
    (void)site;
    (void)level;
    (void)format;
    warnings++;
}

/* The launches that fuse.c makes, in order. */
static struct launch {
    const struct bl_call *calls[BL_BATCH_MAX];
    int count;
} launches[MOST_LAUNCHES];
static int launch_count, checked;
static ncclResult_t check_says;

ncclResult_t bl_launch_some(const struct bl_call *const *calls, int count, uint64_t *done) {
    struct launch *launch = &launches[launch_count++];
    CHECK(count >= 1 && count <= BL_BATCH_MAX, "%d calls", count);
    memcpy(launch->calls, calls, (size_t)count * sizeof(*calls));
    launch->count = count;
    *done = calls[0]->request.count;
    return ncclSuccess;
}
ncclResult_t bl_launch_check(const struct bl_call *const *calls, int count) {
    checked += count;
    CHECK(calls[0]->comm && !launch_count, "checked before anything is launched");
    return check_says;
}

/* --- groups --- */

static uint64_t state = 1;

static uint64_t below(uint64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % n;
}

static void make_comms(int nranks, uint64_t staging) {
    static struct bl_table table;
    struct bl_settings settings = settings_of(NULL);
    struct bl_facts facts = facts_of("NVIDIA H200", 90, nranks);
    settings.fuse_max = 1 * M;
    build(&table, &facts, &settings);
    for (int r = 0; r < nranks; r++) {
        comms[r] = (struct bl_comm){.id = 7, .rank = r, .nranks = nranks, .table = table};
        atomic_store(&comms[r].active, true);
        CHECK(bl_staging_plan(&comms[r].args.layout, nranks, staging, false, false) == 0);
    }
}

static struct bl_call message(int rank, int peer, bool receives, uint64_t bytes) {
    static char memory[1];
    return (struct bl_call){.comm = &comms[rank],
                            .sendbuff = receives ? NULL : memory,
                            .recvbuff = receives ? memory : NULL,
                            .receives = receives,
                            .request = {BL_SENDRECV, bytes, BL_UINT8, BL_SUM, peer},
                            .route = {.kernel = BL_KERNEL_SENDRECV_LL128, .blocks = 64, .threads = 256}};
}

static struct bl_collected group[2 * MOST];
static int grouped;

static void add(const struct bl_call *call) {
    group[grouped++] = (struct bl_collected){.call = *call};
}

/* Both ends of messages between ranks that are drawn, each rank's in an order of its own, but for those of a pair. */
static void draw_group(int nranks, int messages, uint64_t scale) {
    static struct bl_call end[2 * MOST];
    int left = 2 * messages;
    grouped = 0;
    for (int m = 0; m < messages; m++) {
        const int from = (int)below((uint64_t)nranks), to = (int)below((uint64_t)nranks);
        const uint64_t bytes = below(4) ? below(UINT64_C(1) << below(scale)) : 0;
        end[m] = message(from, to, false, bytes);
        end[messages + m] = message(to, from, true, bytes);
    }
    while (left > 0) { /* the first of its pair, direction and rank from a place on, round the end */
        const int start = (int)below((uint64_t)left);
        int at = start;
        for (int i = 0; i < start; i++)
            if (end[i].comm == end[start].comm && end[i].receives == end[start].receives &&
                end[i].request.root == end[start].request.root) {
                at = i;
                break;
            }
        add(&end[at]);
        left--;
        memmove(&end[at], &end[at + 1], (size_t)(left - at) * sizeof *end);
    }
}

static void launch_group(void) {
    launch_count = checked = 0;
    CHECK(bl_fuse_launch(group, grouped, BL_AHEAD) == ncclSuccess);
    CHECK(checked == grouped, "%d of %d calls were checked", checked, grouped);
}

/* --- order --- */

/* What both ends of a message know of it; the order of launches has to follow from that alone. */
static int distance_of(const struct bl_call *call) {
    const int rank = call->comm->rank, n = call->comm->nranks;
    return ((call->receives ? rank - call->request.root : call->request.root - rank) + n) % n;
}

static int sender_of(const struct bl_call *call) {
    return call->receives ? call->request.root : call->comm->rank;
}

static void test_order(void) {
    enum { NRANKS = 5, INDICES = 3, CALLS = NRANKS * 2 * INDICES };
    struct bl_call calls[CALLS];
    int index[CALLS], n;
    make_comms(NRANKS, 100 << 20);
    for (int rank = 0; rank < NRANKS; rank++) {
        n = 0;
        for (int peer = 0; peer < NRANKS; peer++)
            for (int k = 0; k < 2 * INDICES; k++) {
                index[n] = k / 2;
                calls[n++] = message(rank, peer, k % 2, 10);
            }
        for (int a = 0; a < n; a++)
            for (int b = 0; b < n; b++) {
                const bool before = bl_pairs_before(&calls[a], index[a], &calls[b], index[b]);
                const bool itself_a = distance_of(&calls[a]) == 0, itself_b = distance_of(&calls[b]) == 0;
                CHECK(a == b ? !before : before != bl_pairs_before(&calls[b], index[b], &calls[a], index[a]),
                      "rank %d: calls %d and %d", rank, a, b);
                if (itself_a != itself_b)
                    CHECK(before == itself_a, "messages to itself come first");
                else if (index[a] != index[b])
                    CHECK(before == (index[a] < index[b]), "then by their numbers");
                else if (distance_of(&calls[a]) != distance_of(&calls[b]))
                    CHECK(before == (distance_of(&calls[a]) < distance_of(&calls[b])), "then by distance");
                else if (sender_of(&calls[a]) != sender_of(&calls[b]))
                    CHECK(before == (sender_of(&calls[a]) < sender_of(&calls[b])), "then by the sender");
                else
                    CHECK(before == (!calls[a].receives && calls[b].receives), "a send ahead of its receive");
            }
    }
}

static void test_check(void) {
    struct bl_call send = message(0, 0, false, 100), recv = message(0, 0, true, 100), other = message(0, 1, true, 9);
    struct bl_call short_recv = message(0, 0, true, 99), as_words = message(0, 0, true, 25);
    const struct {
        const struct bl_call *calls[4];
        int count;
        bool good;
    } cases[] = {{{&other}, 1, true},
                 {{&send, &recv}, 2, true},
                 {{&send, &recv, &other}, 3, true},
                 {{&send, &recv, &send, &recv}, 4, true},
                 {{&send, &as_words}, 2, true},
                 {{&send}, 1, false},
                 {{&recv}, 1, false},
                 {{&send, &other}, 2, false},
                 {{&send, &send}, 2, false},
                 {{&recv, &send}, 2, false},
                 {{&send, &short_recv}, 2, false},
                 {{&send, &recv, &send, &other}, 4, false}};
    as_words.request.datatype = BL_FLOAT32;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int before = warnings;
        const ncclResult_t result = bl_pairs_check(cases[i].calls, cases[i].count);
        CHECK(result == (cases[i].good ? ncclSuccess : ncclInvalidUsage), "case %zu: %d", i, result);
        CHECK(warnings - before == !cases[i].good, "case %zu: %d warnings", i, warnings - before);
    }
}

/* --- one launch --- */

static bool is_copy(const struct bl_call *call) {
    return call->request.root == call->comm->rank;
}
static uint64_t bytes_of(const struct bl_call *call) {
    return bl_call_bytes(&call->request);
}

/* What the stream of a kind and peer has: the calls of the launch that are its, in order, each behind the quads of those before. */
static int check_stream(const struct bl_pairs_args *args, unsigned s, const struct bl_call *const *calls, int count) {
    const struct bl_pairs_stream *stream = &args->stream[s];
    uint64_t quads = 0;
    unsigned m = stream->first;
    for (int i = 0; i < count; i++) {
        if (is_copy(calls[i]) || calls[i]->request.root != stream->peer ||
            calls[i]->receives != (stream->kind == BL_PAIR_RECV))
            continue;
        const void *buffer = calls[i]->receives ? calls[i]->recvbuff : calls[i]->sendbuff;
        CHECK(args->message[m].buffer == buffer && args->message[m].bytes == bytes_of(calls[i]) &&
                  args->message[m].quads_before == quads,
              "message %u of stream %u", m - stream->first, s);
        quads += bl_pair_quads(bytes_of(calls[i]));
        m++;
    }
    CHECK(m - stream->first == stream->messages && stream->messages > 0, "stream %u: %u messages, not %u", s,
          stream->messages, m - stream->first);
    CHECK(stream->quads == quads);
    return (int)(m - stream->first);
}

static int check_copy(const struct bl_pairs_args *args, unsigned s, const struct bl_call *const *ends) {
    const struct bl_pairs_stream *stream = &args->stream[s];
    const struct bl_pairs_message *m = &args->message[stream->first];
    CHECK(stream->messages == 2 && stream->quads == bl_pair_quads(bytes_of(ends[0])));
    CHECK(m[0].buffer == ends[0]->sendbuff && m[1].buffer == ends[1]->recvbuff && m[0].bytes == bytes_of(ends[0]) &&
          m[1].bytes == bytes_of(ends[1]));
    return 2;
}

/* Warps lie one stream behind the other, and each finds its own. */
static void check_warps(const struct bl_pairs_args *args, const struct bl_route *grid, const struct bl_route *most) {
    const unsigned channels = bl_pair_channels(&args->common.layout);
    bool apart = true; /* no two quads are of one channel */
    for (unsigned s = 0; s < args->streams; s++) apart = apart && args->stream[s].quads <= channels;
    unsigned warp = 0;
    for (unsigned s = 0; s < args->streams; s++) {
        const struct bl_pairs_stream *stream = &args->stream[s];
        const unsigned warps = stream->warps;
        CHECK(warps == stream->quads || (apart && warps == (stream->quads + 1) / 2) ||
                  (warps >= 1 && warps < stream->quads && (warps & (warps - 1)) == 0),
              "stream %u of %llu quads: %u warps", s, (unsigned long long)stream->quads, warps);
        CHECK(warps <= channels, "stream %u of %llu quads: %u warps", s, (unsigned long long)stream->quads, warps);
        CHECK(stream->first_warp == warp);
        for (unsigned k = 0; k < warps; k++) CHECK(args->warp_stream[warp + k] == s);
        warp += warps;
    }
    const unsigned all = grid->blocks * grid->threads / 32;
    const bool wide = grid->threads > most->threads;
    const unsigned threads = wide ? BL_PAIR_THREADS : most->threads;
    CHECK(grid->blocks >= 1 && grid->blocks <= most->blocks && grid->threads <= threads &&
              (grid->threads == threads || grid->blocks == 1),
          "grid %ux%u of at most %ux%u", grid->blocks, grid->threads, most->blocks, most->threads);
    CHECK(!wide || (2 * most->threads == BL_PAIR_THREADS && warp > most->blocks * (most->threads / 32) &&
                    bl_kernel_short(bl_pairs_kernel(args, true))),
          "grid %ux%u of at most %ux%u", grid->blocks, grid->threads, most->blocks, most->threads);
    CHECK(warp <= all && all - warp < threads / 32 && all <= BL_PAIR_WARPS, "%u warps of %u", warp, all);
    for (; warp < all; warp++) CHECK(args->warp_stream[warp] >= args->streams, "warp %u has nothing to do", warp);
}

static unsigned kernels_seen[BL_KERNELS];

/* A short one where each warp has a quad or two at most; with all arguments where messages are too many, or short and some are copied. */
static enum bl_kernel check_kernel(const struct bl_pairs_args *args, int taken) {
    static const enum bl_kernel kernel[3][2] = {
        {BL_KERNEL_SENDRECV_LL128_SHORT_BATCH, BL_KERNEL_SENDRECV_LL128_SHORT},
        {BL_KERNEL_SENDRECV_LL128_TWO_BATCH, BL_KERNEL_SENDRECV_LL128_TWO},
        {BL_KERNEL_SENDRECV_LL128_BATCH, BL_KERNEL_SENDRECV_LL128},
    };
    unsigned more = 0; /* than one quad of a warp */
    for (unsigned s = 0; s < args->streams; s++)
        while (more < 2 && args->stream[s].quads > (more + 1) * (uint64_t)args->stream[s].warps) more++;
    const bool is_short = more < 2;
    const bool few = taken <= BL_PAIR_FEW && !(is_short && args->pairs < args->streams);
    const enum bl_kernel given = bl_pairs_kernel(args, true), all = bl_pairs_kernel(args, false);
    CHECK(given == kernel[more][few], "%d messages: %s", taken, bl_kernel_name(given));
    CHECK(all == kernel[more][false], "all arguments: %s", bl_kernel_name(all));
    CHECK(bl_kernel_short(given) == is_short && bl_kernel_pairs(given) && bl_kernel_batch(given) == !few);
    kernels_seen[given]++;
    return given;
}

static void check_few(const struct bl_pairs_args *args, int taken) {
    struct bl_pairs_few_args few;
    if (bl_kernel_batch(check_kernel(args, taken))) return;
    bl_pairs_few(&few, args);
    CHECK(few.streams == args->streams && few.pairs == args->pairs && few.pairs_log2 == args->pairs_log2);
    CHECK(few.channels == args->channels && few.lap_log2 == args->lap_log2);
    CHECK(!memcmp(few.stream, args->stream, few.streams * sizeof *few.stream));
    CHECK(!memcmp(few.message, args->message, (size_t)taken * sizeof *few.message));
    CHECK(!memcmp(&few.common.layout, &args->common.layout, sizeof few.common.layout));
}

/* Fills one launch of these calls, and checks all of it. */
static int fill(const struct bl_call *const *calls, int count, const struct bl_route *most) {
    static struct bl_pairs_args args;
    struct bl_route grid = *most;
    memset(&args, 0x5a, sizeof args);
    args.common = calls[0]->comm->args;
    const int taken = bl_pairs_fill(&args, &grid, calls, count);
    int messages = 0, copies = 0;
    uint32_t seen = 0;
    CHECK(taken >= 1 && taken <= count && taken <= BL_PAIR_MESSAGES, "%d of %d calls", taken, count);
    CHECK(args.common.count == (uint64_t)taken, "what is told of it");
    CHECK(args.streams <= most->blocks * most->threads / 32 && args.pairs <= args.streams);
    CHECK((args.pairs <= 1u << args.pairs_log2) && (!args.pairs_log2 || args.pairs > 1u << (args.pairs_log2 - 1)));
    for (unsigned s = 0; s < args.streams; s++) {
        const struct bl_pairs_stream *stream = &args.stream[s];
        CHECK(stream->first == messages, "its messages are behind those of the stream before");
        CHECK((stream->kind == BL_PAIR_COPY) == (s >= args.pairs), "copies come last");
        if (stream->kind == BL_PAIR_COPY) {
            CHECK(is_copy(calls[copies]));
            messages += check_copy(&args, s, calls + copies);
            copies += 2;
            continue;
        }
        const uint32_t bit = 1u << ((stream->kind == BL_PAIR_SEND ? 0 : BL_MAX_RANKS) + stream->peer);
        CHECK(!(seen & bit), "one stream to a peer, and one from it");
        seen |= bit;
        messages += check_stream(&args, s, calls, taken);
    }
    CHECK(messages == taken, "%d messages in streams, of %d", messages, taken);
    check_warps(&args, &grid, most);
    check_few(&args, taken);
    return taken;
}

/* --- all launches of all ranks --- */

/* Of a rank: what each of its launches takes, and how far it is. */
static struct progress {
    const struct bl_call *call[2 * MOST];
    int end_of[2 * MOST]; /* of launch k, in calls */
    int calls, launches, at;
    int sent[RANKS], received[RANKS]; /* to and from each peer, of launches that have begun */
} of_rank[RANKS];

/* Grids differ from rank to rank, and from launch to launch. */
static struct bl_route draw_grid(const struct launch *launch) {
    struct bl_route grid = launch->calls[0]->route;
    bl_pairs_grid(launch->calls, launch->count, &grid);
    CHECK(grid.blocks >= 1 && grid.blocks <= 64 && grid.threads == 256);
    if (below(2)) return grid;
    grid.blocks = 1 + (unsigned)below(below(2) ? 1 : grid.blocks);
    grid.threads = 32u << below(4);
    return grid;
}

static void split(const struct launch *launch) {
    struct progress *p = &of_rank[launch->calls[0]->comm->rank];
    const struct bl_route grid = draw_grid(launch);
    for (int done = 0; done < launch->count;) {
        const int taken = fill(launch->calls + done, launch->count - done, &grid);
        for (int i = 0; i < taken; i++) p->call[p->calls++] = launch->calls[done + i];
        p->end_of[p->launches++] = p->calls;
        done += taken;
    }
}

static void begin(struct progress *p) {
    if (p->at == p->launches) return;
    for (int i = p->at ? p->end_of[p->at - 1] : 0; i < p->end_of[p->at]; i++)
        (p->call[i]->receives ? p->received : p->sent)[p->call[i]->request.root]++;
}

/* With rings that hold nothing: a launch ends when all of its messages are under way at their other ends, too. */
static bool ends(const struct progress *p, int rank) {
    for (int i = p->at ? p->end_of[p->at - 1] : 0, n = p->end_of[p->at]; i < n; i++) {
        const int peer = p->call[i]->request.root;
        if (p->call[i]->receives ? of_rank[peer].sent[rank] < p->received[peer]
                                 : of_rank[peer].received[rank] < p->sent[peer])
            return false;
    }
    return true;
}

/* Whatever ends first, all do. */
static void check_progress(int nranks) {
    for (int r = 0; r < nranks; r++) begin(&of_rank[r]);
    for (bool moved = true; moved;) {
        moved = false;
        for (int k = 0, first = (int)below((uint64_t)nranks); k < nranks; k++) {
            const int r = (first + k) % nranks;
            struct progress *p = &of_rank[r];
            if (p->at == p->launches || !ends(p, r)) continue;
            p->at++;
            begin(p);
            moved = true;
        }
    }
    for (int r = 0; r < nranks; r++)
        CHECK(of_rank[r].at == of_rank[r].launches, "%d ranks: rank %d hangs in launch %d of %d", nranks, r,
              of_rank[r].at + 1, of_rank[r].launches);
}

/* The quads that both ends count for a pair come to the same, message by message, whatever the launches. */
static void check_ends_alike(int nranks) {
    for (int from = 0; from < nranks; from++)
        for (int to = 0; to < nranks; to++) {
            int r = 0;
            for (int s = 0; s < of_rank[from].calls; s++) {
                const struct bl_call *send = of_rank[from].call[s];
                if (send->receives || send->request.root != to) continue;
                while (r < of_rank[to].calls &&
                       !(of_rank[to].call[r]->receives && of_rank[to].call[r]->request.root == from))
                    r++;
                CHECK(r < of_rank[to].calls && bytes_of(of_rank[to].call[r]) == bytes_of(send), "from %d to %d", from,
                      to);
                r++;
            }
        }
}

static void run(int nranks) {
    int calls = 0;
    memset(of_rank, 0, sizeof of_rank);
    for (int k = 0; k < launch_count; k++) {
        calls += launches[k].count;
        split(&launches[k]);
    }
    CHECK(calls == grouped, "%d of %d calls are launched", calls, grouped);
    check_ends_alike(nranks);
    check_progress(nranks);
}

static void test_groups(void) {
    static const uint64_t staging[] = {2 << 20, 8 << 20, 100 << 20};
    for (int round = 0; round < 150; round++) {
        const int nranks = 2 + (int)below(round % 10 ? 5 : RANKS - 1);
        make_comms(nranks, staging[round % 3]);
        draw_group(nranks, 1 + (int)below(UINT64_C(1) << below(10)), 1 + below(22));
        launch_group();
        run(nranks);
    }
}

/* Launches follow the order, and none has more than its arguments hold. */
static void test_split(void) {
    make_comms(2, 100 << 20);
    for (int messages = 1; messages <= 3 * BL_PAIR_MESSAGES; messages++) {
        grouped = 0;
        for (int i = 0; i < messages; i++) {
            const struct bl_call call = message(0, i % 3 == 0, i % 2 && i % 3 == 0, 50);
            add(&call);
        }
        launch_group();
        CHECK(launch_count == (messages + BL_PAIR_MESSAGES - 1) / BL_PAIR_MESSAGES, "%d messages: %d launches",
              messages, launch_count);
        const struct bl_call *last = NULL;
        int last_index = 0;
        for (int k = 0; k < launch_count; k++)
            for (int i = 0; i < launches[k].count; i++) {
                const struct bl_call *call = launches[k].calls[i];
                const struct bl_collected *collected =
                    (const struct bl_collected *)((const char *)call - offsetof(struct bl_collected, call));
                CHECK(!last || bl_pairs_before(last, last_index, call, collected->index) ||
                          (distance_of(last) == 0 && distance_of(call) == 0),
                      "%d messages: call %d of launch %d", messages, i, k);
                last = call;
                last_index = collected->index;
            }
    }
    /* One warp has one stream, so each peer's messages are a launch. */
    const struct bl_route one = {.blocks = 1, .threads = 32};
    struct bl_call calls[] = {message(0, 1, false, 5), message(0, 1, false, 5000), message(0, 1, true, 7)};
    const struct bl_call *const list[] = {&calls[0], &calls[1], &calls[2]};
    CHECK(fill(list, 3, &one) == 2 && fill(list + 2, 1, &one) == 1);
}

/* Blocks have twice the threads where that, and nothing less, gives each quad a warp, or each two. */
static void test_wide(void) {
    static const struct {
        uint64_t bytes;
        unsigned blocks, threads, narrow_blocks; /* where blocks may not, these have 256 */
    } rows[] = {{60 << 10, 32, 256, 32},  {65 << 10, 35, 256, 35},  {66 << 10, 18, 512, 18}, {130 << 10, 35, 512, 35},
                {132 << 10, 18, 512, 32}, {240 << 10, 32, 512, 32}, {241 << 10, 32, 256, 32}};
    static struct bl_pairs_args args;
    make_comms(2, 100 << 20);
    for (int wide = 1; wide >= 0; wide--) {
        comms[0].wide_blocks = wide;
        for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
            struct bl_call calls[] = {message(0, 1, false, rows[i].bytes), message(0, 1, true, rows[i].bytes)};
            const struct bl_call *const list[] = {&calls[0], &calls[1]};
            const struct bl_route most = {.blocks = 35, .threads = 256};
            struct bl_route grid = most;
            args.common = comms[0].args;
            CHECK(bl_pairs_fill(&args, &grid, list, 2) == 2 && fill(list, 2, &most) == 2);
            const unsigned blocks = wide ? rows[i].blocks : rows[i].narrow_blocks;
            CHECK(grid.blocks == blocks && grid.threads == (wide ? rows[i].threads : 256), "%llu bytes: %ux%u",
                  (unsigned long long)rows[i].bytes, grid.blocks, grid.threads);
        }
    }
    const struct bl_route narrow = {.blocks = 2, .threads = 128};
    struct bl_call calls[] = {message(0, 1, false, 5000), message(0, 1, true, 1)};
    const struct bl_call *const list[] = {&calls[0], &calls[1]};
    comms[0].wide_blocks = true;
    CHECK(fill(list, 2, &narrow) == 2);
}

/* The longest streams have most of the warps, and a short grid is all theirs. */
static void test_sharing(void) {
    static struct bl_pairs_args args;
    make_comms(2, 100 << 20);
    struct bl_call calls[] = {message(0, 1, false, 8 << 20), message(0, 1, true, 1)};
    const struct bl_call *const list[] = {&calls[0], &calls[1]};
    struct bl_route grid = calls[0].route;
    bl_pairs_grid(list, 2, &grid);
    CHECK(grid.blocks == BL_PAIR_BLOCKS, "512 warps, and one: %u blocks", grid.blocks);
    args.common = comms[0].args;
    CHECK(bl_pairs_fill(&args, &grid, list, 2) == 2);
    CHECK(args.stream[0].warps == BL_PAIR_CHANNELS / 2 && args.stream[1].warps == 1);
    grid = (struct bl_route){.blocks = 4, .threads = 128};
    CHECK(bl_pairs_fill(&args, &grid, list, 2) == 2);
    CHECK(args.stream[0].warps == 8 && args.stream[1].warps == 1 && grid.blocks == 3, "%u warps in %u blocks",
          args.stream[0].warps, grid.blocks);
    /* Messages of nothing are messages: a quad each. */
    calls[0] = message(0, 1, false, 0);
    grid = calls[0].route;
    CHECK(bl_pairs_fill(&args, &grid, list, 1) == 1 && args.stream[0].quads == 1 && args.stream[0].warps == 1);
    CHECK(grid.blocks == 1 && grid.threads == 32, "grid %ux%u", grid.blocks, grid.threads);
    CHECK(bl_pair_quads(0) == 1 && bl_pair_quads(480) == 1 && bl_pair_quads(481) == 2 && bl_pair_quads(960) == 2);
}

/* Collectives come first; only those that are asked for; none of a communicator that has ended, or of a group with a fault. */
static void test_beside_collectives(void) {
    make_comms(2, 100 << 20);
    grouped = 0;
    for (int i = 0; i < 6; i++) {
        struct bl_call call = message(0, 1, i / 2 % 2, 10);
        if (i % 2) call.request.collective = BL_ALLREDUCE;
        add(&call);
    }
    launch_group();
    CHECK(launch_count == 2 && launches[0].count == 3 && launches[1].count == 3, "%d launches", launch_count);
    CHECK(launches[0].calls[0]->request.collective == BL_ALLREDUCE &&
          launches[1].calls[0]->request.collective == BL_SENDRECV);
    for (int i = 0; i < 3; i++) { /* another communicator's */
        struct bl_call call = message(1, 0, true, 10);
        add(&call);
        group[6 + i].when = BL_BESIDE;
    }
    launch_count = checked = 0;
    CHECK(bl_fuse_launch(group, grouped, BL_BESIDE) == ncclSuccess && checked == 3 && launch_count == 1);
    launch_count = checked = 0;
    CHECK(bl_fuse_launch(group, grouped, BL_AHEAD) == ncclSuccess && checked == 6 && launch_count == 2);
    check_says = ncclInvalidUsage;
    launch_count = checked = 0;
    CHECK(bl_fuse_launch(group, grouped, BL_AHEAD) == ncclInvalidUsage && launch_count == 0);
    CHECK(bl_fuse_check(group, grouped, BL_BESIDE) == ncclInvalidUsage && launch_count == 0);
    CHECK(bl_fuse_check(group, grouped, BL_BEHIND) == ncclSuccess && launch_count == 0, "there are none");
    check_says = ncclSuccess;
    atomic_store(&comms[0].active, false);
    launch_count = checked = 0;
    CHECK(bl_fuse_launch(group, grouped, BL_AHEAD) == ncclSuccess && launch_count == 0 && checked == 0);
}

int main(void) {
    test_order();
    test_check();
    test_groups();
    test_split();
    test_wide();
    test_sharing();
    test_beside_collectives();
    for (int k = 0; k < BL_KERNELS; k++)
        CHECK(!bl_kernel_pairs(k) || kernels_seen[k], "no launch of %s", bl_kernel_name(k));
    return say_checks();
}
