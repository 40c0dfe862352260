/* dispatch_mix_test.c - launches of several collectives: what goes into one, and that no two of its lines have the same place. */
#include "dispatch_test.h"

static uint64_t state = 11;

static uint64_t below(uint64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % n;
}

/* --- places --- */

enum { CALLS = 12, MOST_SPAN = 4096 };

struct draw {
    int nranks, calls;
    int collective[CALLS];
    unsigned root[CALLS];
    uint64_t bytes[CALLS];
};

static void draw_calls(struct draw *draw, int nranks) {
    static const int kinds[] = {BL_ALLREDUCE, BL_ALLGATHER, BL_REDUCESCATTER, BL_BROADCAST, BL_REDUCE, BL_ALLTOALL};
    draw->nranks = nranks;
    draw->calls = 0;
    for (int messages = 0; draw->calls < CALLS; draw->calls++) {
        const int kind = kinds[below(6)], k = draw->calls;
        messages += bl_collective_has(kind, BL_GATHERS | BL_SCATTERS) ? nranks : 1;
        if (messages > BL_BATCH_MAX) break;
        draw->collective[k] = kind;
        draw->root[k] = bl_collective_has(kind, BL_ROOTED) ? (unsigned)below((uint64_t)nranks) : 0;
        draw->bytes[k] = 1 + below((uint64_t)1 << below(14));
    }
}

static void fill(const struct draw *draw, unsigned rank, struct bl_batch_args *args, struct bl_mixed *all) {
    struct bl_mixed_fill f;
    static unsigned char in[1 << 20], out[1 << 20];
    memset(args, 0xa5, sizeof *args);
    args->common.rank = rank;
    bl_mixed_begin(all, draw->nranks);
    for (int k = 0; k < draw->calls; k++) bl_mixed_count(all, draw->collective[k], draw->root[k], draw->bytes[k]);
    bl_mixed_fill_begin(&f, args, all);
    for (int k = 0; k < draw->calls; k++)
        bl_mixed_fill_add(&f, draw->collective[k], draw->root[k], in, out, draw->bytes[k]);
}

static bool used[BL_MAX_RANKS][BL_MAX_RANKS][MOST_SPAN]; /* [receiver][sender] */

static void use(unsigned receiver, unsigned sender, uint64_t place, uint64_t span) {
    CHECK(place < span, "place %llu of %llu", (unsigned long long)place, (unsigned long long)span);
    if (place >= MOST_SPAN) return;
    CHECK(!used[receiver][sender][place], "place %llu from %u to %u", (unsigned long long)place, sender, receiver);
    used[receiver][sender][place] = true;
}

/* Whether a line of the kind may go from s to r. */
static bool goes(enum bl_mixed_kind kind, unsigned root, unsigned nranks, unsigned s, unsigned r) {
    if (kind == BL_MIXED_BROADCAST) return s == root;
    if (kind == BL_MIXED_REDUCE) return r == root;
    return kind != BL_MIXED_EXCHANGE || r == (s + root) % nranks;
}

/* A line of the kind, at its place in all rings that it may be in. */
static void use_line(enum bl_mixed_kind kind, unsigned root, unsigned nranks, uint64_t place, uint64_t span) {
    for (unsigned r = 0; r < nranks; r++)
        for (unsigned s = 0; s < nranks; s++)
            if (r != s && goes(kind, root, nranks, s, r)) use(r, s, place, span);
}

/* Whom this rank sends to by it, at the start or later. */
static uint32_t sends_to(enum bl_mixed_kind kind, unsigned root, unsigned rank) {
    if (kind == BL_MIXED_BROADCAST) return root == rank ? UINT32_MAX : 0;
    return kind == BL_MIXED_REDUCE ? 1u << root : UINT32_MAX;
}

static void check_places(const struct draw *draw, const struct bl_batch_args *args, const struct bl_mixed *all,
                         unsigned rank) {
    const unsigned nranks = (unsigned)draw->nranks;
    uint32_t roots = 0;
    uint64_t lines = 0;
    memset(used, 0, sizeof used);
    for (unsigned m = 0; m < all->messages; m++) {
        const enum bl_mixed_kind kind = args->root[m] / BL_MAX_RANKS;
        const unsigned root = args->root[m] % BL_MAX_RANKS;
        const uint64_t of_message = bl_lines_of(args->message[m].count, BL_FLAGGED_DATA);
        CHECK(args->first_line[m] == lines, "message %u begins at line %u", m, args->first_line[m]);
        for (uint64_t k = 0; k < of_message; k++) use_line(kind, root, nranks, args->message[m].place + k, args->span);
        lines += of_message;
        roots |= sends_to(kind, root, rank);
    }
    for (unsigned m = all->messages; m < BL_BATCH_MAX; m++) CHECK(args->first_line[m] == UINT32_MAX);
    CHECK(args->lines == lines && all->lines == lines && args->span == bl_mixed_span(all) && args->span <= lines,
          "%u lines, span %u", args->lines, args->span);
    CHECK(args->roots == roots, "rank %u of %u sends to %x, not %x", rank, nranks, args->roots, roots);
}

static void test_places(void) {
    static struct bl_batch_args args, of_first;
    for (int round = 0; round < 300; round++) {
        struct draw draw;
        struct bl_mixed all;
        draw_calls(&draw, 2 + round % (BL_MAX_RANKS - 1));
        fill(&draw, 0, &of_first, &all);
        for (unsigned rank = 0; rank < (unsigned)draw.nranks; rank += 1 + (unsigned)below(4)) {
            fill(&draw, rank, &args, &all);
            check_places(&draw, &args, &all, rank);
            args.common.rank = 0;
            args.roots = of_first.roots; /* all else but the blocks is the same on every rank */
            for (unsigned m = 0; m < all.messages; m++) {
                args.message[m].sendbuff = of_first.message[m].sendbuff;
                args.message[m].recvbuff = of_first.message[m].recvbuff;
            }
            CHECK(!memcmp(&args, &of_first, sizeof args), "rank %u has other places", rank);
        }
    }
}

/* Different roots' broadcasts have the same places, and reduces; a long all-reduce of more than two ranks goes in two shots. */
static void test_spans(void) {
    static struct bl_batch_args args;
    struct draw draw = {.nranks = 4, .calls = 4};
    struct bl_mixed all;
    for (int k = 0; k < 4; k++) {
        draw.collective[k] = k < 2 ? BL_BROADCAST : BL_REDUCE;
        draw.root[k] = (unsigned)k;
        draw.bytes[k] = 10 * BL_FLAGGED_DATA;
    }
    fill(&draw, 0, &args, &all);
    CHECK(args.span == 20 && args.lines == 40, "span %u of %u", args.span, args.lines);
    draw.root[1] = 0;
    fill(&draw, 0, &args, &all);
    CHECK(args.span == 30, "span %u", args.span);
    draw.collective[0] = BL_ALLREDUCE;
    for (int nranks = 2; nranks <= BL_MAX_RANKS; nranks++) {
        draw.nranks = nranks;
        draw.bytes[0] = BL_FLAGGED_DATA;
        draw.root[0] = draw.root[1] = draw.root[2] = draw.root[3] = 0;
        fill(&draw, 0, &args, &all);
        CHECK(args.root[0] / BL_MAX_RANKS == BL_MIXED_ONESHOT, "%d ranks: kind %d", nranks, args.root[0]);
        draw.bytes[0] = 1 << 20;
        fill(&draw, 0, &args, &all);
        CHECK(args.root[0] / BL_MAX_RANKS == (nranks == 2 ? BL_MIXED_ONESHOT : BL_MIXED_TWOSHOT), "%d ranks", nranks);
    }
}

/* Of what gathers, or scatters, each rank's block is a message. */
static void test_blocks(void) {
    static unsigned char in[4096], out[4096];
    static struct bl_batch_args args;
    struct bl_mixed all;
    struct bl_mixed_fill f;
    bl_mixed_begin(&all, 3);
    bl_mixed_count(&all, BL_ALLGATHER, 0, 130);
    bl_mixed_count(&all, BL_REDUCESCATTER, 0, 50);
    bl_mixed_count(&all, BL_ALLTOALL, 0, 20);
    args.common.rank = 1;
    bl_mixed_fill_begin(&f, &args, &all);
    bl_mixed_fill_add(&f, BL_ALLGATHER, 0, in, out, 130);
    bl_mixed_fill_add(&f, BL_REDUCESCATTER, 0, in, out, 50);
    bl_mixed_fill_add(&f, BL_ALLTOALL, 0, in, out, 20);
    CHECK(all.messages == 9 && all.lines == 12 && bl_mixed_span(&all) == 4);
    for (unsigned r = 0; r < 3; r++) {
        const struct bl_batch_message *gathered = &args.message[r], *scattered = &args.message[3 + r];
        CHECK(args.root[r] == BL_MIXED_BROADCAST * BL_MAX_RANKS + r &&
              args.root[3 + r] == BL_MIXED_REDUCE * BL_MAX_RANKS + r);
        CHECK(gathered->sendbuff == in && (unsigned char *)gathered->recvbuff == out + 130 * r &&
              gathered->count == 130);
        CHECK((const unsigned char *)scattered->sendbuff == in + 50 * r && scattered->recvbuff == out &&
              scattered->count == 50);
        const struct bl_batch_message *exchanged =
            &args.message[6 + r]; /* of rank 1: with 1, to 2 and from 0, to 0 and from 2 */
        CHECK(args.root[6 + r] == BL_MIXED_EXCHANGE * BL_MAX_RANKS + r);
        CHECK((const unsigned char *)exchanged->sendbuff == in + 20 * ((1 + r) % 3) &&
              (unsigned char *)exchanged->recvbuff == out + 20 * ((4 - r) % 3));
    }
}

/* --- what goes into a launch --- */

/* Whether these calls can be in one, with the routes that the table gives them. */
static bool mixes(const struct bl_table *table, const struct bl_request *requests, int count, struct bl_route *route) {
    struct bl_mix mix;
    bl_mix_begin(&mix, table);
    for (int i = 0; i < count; i++) {
        bl_table_select(table, &requests[i], route);
        CHECK(route->algorithm != BL_ROUTE_NCCL, "call %d is NCCL's: %s", i, route->reason);
        if (!bl_mix_add(&mix, &requests[i], route)) return false;
    }
    if (!bl_mix_fits(&mix)) return false;
    bl_mix_route(&mix, route);
    return true;
}

static void make_table(struct bl_table *table, int nranks, struct bl_settings *settings) {
    struct bl_facts facts = facts_of("NVIDIA H200", 90, nranks);
    build(table, &facts, settings);
}

static void test_mixes(void) {
    const struct bl_request sum = {BL_ALLREDUCE, 1000, BL_FLOAT32, BL_SUM, 0},
                            gathered = {BL_ALLGATHER, 1000, BL_INT8, BL_SUM, 0},
                            scattered = {BL_REDUCESCATTER, 1000, BL_FLOAT32, BL_SUM, 0},
                            sent = {BL_BROADCAST, 1000, BL_INT64, BL_SUM, 1},
                            reduced = {BL_REDUCE, 1000, BL_FLOAT32, BL_SUM, 1},
                            exchanged = {BL_ALLTOALL, 100, BL_FLOAT32, BL_SUM, 0},
                            largest = {BL_REDUCE, 1000, BL_FLOAT32, BL_MAX, 1},
                            halves = {BL_REDUCE, 1000, BL_FLOAT16, BL_SUM, 1};
    struct bl_settings settings = settings_of(NULL);
    struct bl_table table;
    struct bl_route route;
    settings.fuse_max = 1 * M;
    make_table(&table, 4, &settings);
#define MIXES(...)                                                                                                     \
    mixes(&table, (const struct bl_request[]){__VA_ARGS__},                                                            \
          (int)(sizeof((const struct bl_request[]){__VA_ARGS__}) / sizeof(struct bl_request)), &route)
    CHECK(MIXES(sum, gathered, scattered, sent, reduced, exchanged));
    CHECK(route.kernel == BL_KERNEL_MIXED_LL128_BATCH && route.threads == BL_MAX_THREADS && route.blocks > 1 &&
              route.blocks < 132,
          "%s %ux%u", bl_kernel_name(route.kernel), route.blocks, route.threads);
    CHECK(MIXES(sent, gathered) && MIXES(sent, reduced) && MIXES(gathered, largest, sent));
    CHECK(MIXES(exchanged, sent) && MIXES(sum, exchanged));
    CHECK(!MIXES(sum, largest) && !MIXES(sum, sent, halves), "sums of one kind");
    /* What is chosen stays, what shares no launch does not, and what is more than a share of the grid. */
    settings.routes[BL_ALLREDUCE] = "oneshot_ll128";
    make_table(&table, 4, &settings);
    CHECK(!MIXES(sum, sent) && MIXES(gathered, sent));
    settings.routes[BL_ALLREDUCE] = "..64K oneshot_ll128";
    make_table(&table, 4, &settings);
    CHECK(!MIXES(sum, sent) && MIXES(gathered, sent), "sizes that are said");
    settings.routes[BL_ALLREDUCE] = NULL;
    settings.fuse_max = 4000;
    make_table(&table, 4, &settings);
    CHECK(MIXES(sum, reduced) && !MIXES(sum, sent), "8000 bytes share no launch");
    settings.fuse_max = 4 * M;
    make_table(&table, 2, &settings);
    const struct bl_request long_sum = {BL_ALLREDUCE, 500000, BL_FLOAT32, BL_SUM, 0},
                            long_one = {BL_BROADCAST, 1200000, BL_INT8, BL_SUM, 0};
    CHECK(MIXES(sent, long_sum) && !MIXES(sum, long_one), "broadcasts of more than 1 MB share no launch");
    settings.fuse_max = 1 * M;
    make_table(&table, 2, &settings);
    const struct bl_request large = {BL_ALLREDUCE, 1 << 18, BL_FLOAT32, BL_SUM, 0};
    CHECK(MIXES(sent, large, large, large, large) && !MIXES(sent, large, large, large, large, large));
    /* No more messages than a launch has, of blocks, too. */
    struct bl_request many[BL_BATCH_MAX + 1];
    for (int i = 0; i <= BL_BATCH_MAX; i++) many[i] = i % 2 ? sent : sum;
    CHECK(mixes(&table, many, BL_BATCH_MAX, &route) && !mixes(&table, many, BL_BATCH_MAX + 1, &route));
    for (int i = 0; i <= BL_BATCH_MAX; i++) many[i] = i % 2 ? scattered : gathered;
    CHECK(mixes(&table, many, BL_BATCH_MAX / 2, &route) && !mixes(&table, many, BL_BATCH_MAX / 2 + 1, &route));
    for (int nranks = 2; nranks <= BL_MAX_RANKS; nranks++) {
        make_table(&table, nranks, &settings);
        const int most = BL_BATCH_MAX / nranks;
        CHECK(mixes(&table, many, most, &route) && !mixes(&table, many, most + 1, &route), "%d ranks", nranks);
    }
}

/* Whether so many calls, of these kinds in turn, a launch of each kind, are better off as one.  Roots go round. */
static bool pays(const struct bl_table *table, const struct bl_request *requests, int kinds, int calls) {
    struct bl_mix mix;
    struct bl_route route;
    bl_mix_begin(&mix, table);
    for (int i = 0; i < calls; i++) {
        struct bl_request request = requests[i % kinds];
        if (bl_collective_has(request.collective, BL_ROOTED)) request.root = i / kinds % table->nranks;
        bl_table_select(table, &request, &route);
        CHECK(bl_mix_add(&mix, &request, &route), "call %d", i);
    }
    CHECK(bl_mix_fits(&mix), "%d calls", calls);
    return bl_mix_pays(&mix);
}

/* One launch of all-gathers and reduce-scatters does not pay where there is much for each of several peers; of others it does. */
static void test_pays(void) {
    const struct bl_request two[] = {{BL_ALLGATHER, 64 * K, BL_INT8, BL_SUM, 0},
                                     {BL_REDUCESCATTER, 64 * K, BL_INT8, BL_SUM, 0}},
                            three[] = {{BL_BROADCAST, 64 * K, BL_INT8, BL_SUM, 0},
                                       {BL_REDUCE, 64 * K, BL_INT8, BL_SUM, 0},
                                       {BL_ALLREDUCE, 64 * K, BL_INT8, BL_SUM, 0}};
    struct bl_settings settings = settings_of(NULL);
    struct bl_table table;
    settings.fuse_max = 4 * M;
    make_table(&table, 4, &settings);
    CHECK(!pays(&table, two, 2, 16) && !pays(&table, two, 2, 8) && pays(&table, two, 2, 6) &&
          pays(&table, three, 3, 32));
    CHECK(!pays(&table, two, 1, 8) && !pays(&table, three, 1, 1), "nothing is saved");
    make_table(&table, 3, &settings);
    CHECK(!pays(&table, two, 2, 16) && pays(&table, two, 2, 12));
    make_table(&table, 2, &settings);
    CHECK(pays(&table, two, 2, 32));
}

/* Little staging holds few; of few blocks each has as many. */
static void test_room(void) {
    struct bl_settings settings = settings_of(NULL);
    struct bl_facts facts = facts_of("NVIDIA H200", 90, 4);
    struct bl_table table;
    struct bl_route route;
    struct bl_request many[BL_BATCH_MAX];
    settings.fuse_max = 1 * M;
    CHECK(bl_staging_plan(&facts.layout, 4, bl_staging_minimum(4), false, false) == 0);
    build(&table, &facts, &settings);
    const uint64_t lines = bl_kernel_capacity(BL_KERNEL_MIXED_LL128_BATCH, 4, &facts.layout) / BL_FLAGGED_DATA;
    for (int i = 0; i < BL_BATCH_MAX; i++)
        many[i] = (struct bl_request){i % 2 ? BL_ALLREDUCE : BL_REDUCE, BL_FLAGGED_DATA, BL_INT8, BL_SUM, 0};
    CHECK(lines > 2 && lines < BL_BATCH_MAX, "%llu lines", (unsigned long long)lines);
    CHECK(mixes(&table, many, (int)lines, &route) && !mixes(&table, many, (int)lines + 1, &route));
    facts = facts_of("NVIDIA H200", 90, 4);
    facts.most_blocks = 2;
    build(&table, &facts, &settings);
    for (int i = 0; i < BL_BATCH_MAX; i++) many[i].count = 8 * BL_FLAGGED_DATA;
    const int most = 2 * BL_MAX_THREADS / 8 * 9 / 8;
    CHECK(mixes(&table, many, most < BL_BATCH_MAX ? most : BL_BATCH_MAX, &route) && route.blocks <= 2);
    for (int i = 0; i < BL_BATCH_MAX; i++) many[i].count = 10 * BL_FLAGGED_DATA;
    CHECK(mixes(&table, many, 57, &route) && !mixes(&table, many, 58, &route), "64 groups have 576 lines");
}

int main(void) {
    test_places();
    test_spans();
    test_blocks();
    test_mixes();
    test_pays();
    test_room();
    return say_checks();
}
