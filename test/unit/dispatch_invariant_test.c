/* dispatch_invariant_test.c - BEELINE_BATCH_INVARIANT: no size of what reduces is left to NCCL, whoever's rows say so, and
 * nothing is added by the switch. */
#include "dispatch_expect.h"

static const enum bl_collective reducing[] = {BL_ALLREDUCE, BL_REDUCESCATTER, BL_REDUCE};
static const uint64_t LONGEST = 1ull << 40;

static struct bl_settings invariant(const char *tuning) {
    struct bl_settings settings = settings_of(tuning);
    settings.batch_invariant = true;
    return settings;
}

static bool reduces(enum bl_collective collective) {
    return bl_collective_has(collective, BL_REDUCES);
}

/* At each threshold and beside it. */
static void expect_no_nccl(const struct bl_table *table, enum bl_collective collective, const char *what) {
    for (uint64_t bytes = 1; bytes <= LONGEST; bytes = bytes * 3 / 2 + 1) {
        const struct bl_route route = select_for(table, collective, bytes);
        CHECK(route.algorithm != BL_ROUTE_NCCL, "%s, %d ranks: %s of %llu bytes: %s", what, table->nranks,
              bl_collective_name(collective), (unsigned long long)bytes, route.reason);
    }
}

/* The rest, and smaller sizes, are as without. */
static void expect_others_alike(const struct bl_table *a, const struct bl_table *b) {
    for (int c = 0; c < BL_COLLECTIVES; c++) {
        if (!reduces(c))
            CHECK(a->ranges[c] == b->ranges[c] && !memcmp(a->range[c], b->range[c], sizeof a->range[c]) &&
                      !strcmp(a->source[c], b->source[c]),
                  "%s", bl_collective_name(c));
        for (uint64_t bytes = 1; bytes <= LONGEST; bytes = bytes * 3 / 2 + 1) {
            const struct bl_route with = select_for(a, c, bytes), without = select_for(b, c, bytes);
            if (without.algorithm == BL_ROUTE_NCCL && reduces(c)) {
                CHECK(with.why == BL_REASON_BATCH_INVARIANT, "%s: %s", bl_collective_name(c), with.reason);
            } else {
                CHECK(with.algorithm == without.algorithm && with.kernel == without.kernel &&
                          with.blocks == without.blocks && with.threads == without.threads && with.why == without.why,
                      "%s of %llu bytes: %s", bl_collective_name(c), (unsigned long long)bytes, name_of(&with));
            }
        }
    }
}

static void built_in(void) {
    static const char *const boxes[] = {"NVIDIA H200", "some GPU"};
    for (int b = 0; b < 2; b++)
        for (int n = 2; n <= BL_MAX_RANKS; n++) {
            const struct bl_facts facts = facts_of(boxes[b], 90, n);
            const struct bl_settings settings = invariant(NULL);
            struct bl_table table, without;
            build(&table, &facts, &settings);
            build(&without, &facts, NULL);
            for (int i = 0; i < 3; i++) {
                expect_no_nccl(&table, reducing[i], boxes[b]);
                CHECK(strstr(table.source[reducing[i]], "; BEELINE_BATCH_INVARIANT=1"), "%s",
                      table.source[reducing[i]]);
            }
            expect_others_alike(&table, &without);
            CHECK(table.invariant == (1u << BL_ALLREDUCE | 1u << BL_REDUCESCATTER | 1u << BL_REDUCE) &&
                      !without.invariant && table.unmeasured == without.unmeasured,
                  "%x", table.invariant);
        }
}

/* Rows of a user's that say NCCL: below, between and above others; the kernel works as its row for that size says, or a
 * larger one, or the largest. */
static void users(void) {
    static const char file[] = "gpu any\n"
                               "all_reduce 4 1K nccl\n"
                               "all_reduce 4 64K oneshot_ll128\n"
                               "all_reduce 4 256K nccl\n"
                               "all_reduce 4 1M twoshot_ll128 blocks=16 threads=64 spread=warps\n"
                               "all_reduce 4 2M nccl\n"
                               "all_reduce 4 4M twoshot_ll128 blocks=24 threads=128\n"
                               "all_reduce 4 max nccl\n"
                               "reduce_scatter 4 max nccl\n"
                               "all_gather 4 max nccl\n";
    struct bl_facts facts = facts_of("NVIDIA H200", 90, 4);
    struct bl_settings settings = invariant(file);
    struct bl_table table;
    char text[256];
    build(&table, &facts, &settings);
    EXPECT(&table, 1, "twoshot_ll128:warps", BATCH_INVARIANT);
    EXPECT(&table, 1 * K, "twoshot_ll128:warps", BATCH_INVARIANT);
    EXPECT(&table, 1 * K + 1, "oneshot_ll128", TUNED);
    EXPECT(&table, 64 * K + 1, "twoshot_ll128:warps", BATCH_INVARIANT);
    EXPECT(&table, 256 * K + 1, "twoshot_ll128:warps", TUNED);
    EXPECT(&table, 1 * M + 1, "twoshot_ll128", BATCH_INVARIANT);
    EXPECT(&table, 4 * M, "twoshot_ll128", TUNED);
    EXPECT(&table, 4 * M + 1, "twoshot_ll128", BATCH_INVARIANT);
    EXPECT(&table, 24 * M, "twoshot_ll128", BATCH_INVARIANT);
    EXPECT(&table, 24 * M + 1, "twoshot_bulk", BATCH_INVARIANT);
    EXPECT(&table, LONGEST, "twoshot_bulk", BATCH_INVARIANT);
    EXPECT(&table, LONGEST + 1, "nccl", STAGING);
    const struct bl_route middle = select_bytes(&table, 1 * M + 1), large = select_bytes(&table, 24 * M);
    CHECK(middle.threads == 128 && middle.blocks == 24, "%u x %u", middle.blocks, middle.threads);
    CHECK(large.threads == 256 && large.blocks == 132, "%u x %u", large.blocks, large.threads); /* the built-in one */
    /* Without a row of the algorithm's own, the built-in one's. */
    EXPECT_SCATTER(&table, 1, "reducescatter_ll128", BATCH_INVARIANT);
    EXPECT_SCATTER(&table, 8 * M, "reducescatter_ll128", BATCH_INVARIANT);
    CHECK(select_for(&table, BL_REDUCESCATTER, 8 * M).threads == 256, "as built in");
    EXPECT_SCATTER(&table, 1u << 30, "reducescatter_bulk", BATCH_INVARIANT);
    CHECK(select_for(&table, BL_REDUCESCATTER, 1u << 30).blocks == 32, "as built in");
    EXPECT_GATHER(&table, 1, "nccl", NCCL_TUNED);
    bl_table_describe(&table, BL_ALLREDUCE, text, sizeof text);
    CHECK(!strcmp(text,
                  "0..1K twoshot_ll128:warps | ..64K oneshot_ll128 | ..1M twoshot_ll128:warps | ..24M twoshot_ll128 | "
                  "..1024G twoshot_bulk | .. nccl"),
          "%s", text);
    /* Rings that do not fill the links are not in the place of lines, which several launches carry. */
    facts.layout.bulk_bytes = 1 * M;
    build(&table, &facts, &settings);
    EXPECT(&table, 24 * M + 1, "twoshot_ll128", BATCH_INVARIANT);
    EXPECT_SCATTER(&table, 1u << 30, "reducescatter_ll128", BATCH_INVARIANT);
    /* What the user measured reaches further than what is built in, or does not; where there is no staging for pieces. */
    facts.layout.bulk_bytes = 0;
    settings = invariant("gpu any\nall_reduce 4 64M twoshot_ll128 threads=64 blocks=8\nall_reduce 4 max nccl\n");
    build(&table, &facts, &settings);
    CHECK(select_bytes(&table, 1u << 30).threads == 64 && select_bytes(&table, 1u << 30).blocks == 8,
          "the largest row");
    settings = invariant("gpu any\nall_reduce 4 1M twoshot_ll128 threads=64 blocks=8\nall_reduce 4 max nccl\n");
    build(&table, &facts, &settings);
    CHECK(select_bytes(&table, 1u << 30).threads == 256, "the largest row");
}

/* The user's word comes first: what a variable gives to NCCL is NCCL's, what it does not name is not. */
static void said(void) {
    struct bl_facts facts = facts_of("NVIDIA H200", 90, 4);
    struct bl_settings settings = invariant(NULL);
    struct bl_table table;
    settings.routes[BL_ALLREDUCE] = "nccl";
    settings.routes[BL_REDUCE] = "..4K nccl";
    settings.routes[BL_REDUCESCATTER] = "reducescatter_ll128";
    build(&table, &facts, &settings);
    EXPECT(&table, 1, "nccl", NCCL_FORCED);
    EXPECT(&table, 1u << 30, "nccl", NCCL_FORCED);
    expect(&table, BL_REDUCE, 4 * K, "nccl", BL_REASON_NCCL_FORCED, __LINE__);
    expect(&table, BL_REDUCE, 4 * K + 1, "reduce_ll128", BL_REASON_TUNED, __LINE__);
    expect(&table, BL_REDUCE, 1u << 30, "reduce_ll128", BL_REASON_BATCH_INVARIANT, __LINE__);
    EXPECT_SCATTER(&table, 1u << 30, "reducescatter_ll128", FORCED);
    CHECK(table.invariant >> BL_ALLREDUCE & 1, "it is wanted all the same");
    /* What a name cannot carry goes on to what is not NCCL. */
    settings.routes[BL_ALLREDUCE] = "oneshot_ll";
    build(&table, &facts, &settings);
    EXPECT(&table, 1, "oneshot_ll", FORCED);
    EXPECT(&table, 24 * M, "twoshot_ll128", TUNED);
    EXPECT(&table, 1u << 30, "twoshot_bulk", BATCH_INVARIANT);
}

/* A process with many communicators has little staging: in pieces nevertheless; but what only moves is as ever. */
static void short_of_staging(void) {
    struct bl_facts facts = facts_of("NVIDIA H200", 90, 4);
    struct bl_settings settings = invariant(NULL);
    struct bl_table table;
    settings.short_of_staging = true;
    if (bl_staging_plan(&facts.layout, 4, 1 << 20, false, false)) abort();
    build(&table, &facts, &settings);
    for (int i = 0; i < 3; i++) expect_no_nccl(&table, reducing[i], "short of staging");
    EXPECT_GATHER(&table, 4 * M, "nccl", BUDGET);
}

/* With a multicast object: rows in which the switch adds are left out, others stay, and nothing is left to NCCL, of any
 * datatype. */
static void multicast(void) {
    static const char file[] = "gpu \"NVIDIA H200\" arch 90 multicast\n"
                               "all_reduce 4 8K oneshot_nvls\n"
                               "all_reduce 4 64K nccl\n"
                               "all_reduce 4 1M plain\n"
                               "all_reduce 4 64M twoshot_nvls\n"
                               "reduce_scatter 4 max reducescatter_nvls\n";
    const struct bl_facts facts = with_multicast(facts_of("NVIDIA H200", 90, 4));
    const struct bl_settings settings = invariant(file);
    struct bl_table table;
    build(&table, &facts, &settings);
    EXPECT(&table, 8 * K, "oneshot_nvls", TUNED);
    EXPECT(&table, 64 * K, "twoshot_ll128:warps", BATCH_INVARIANT);
    EXPECT(&table, 24 * M, "twoshot_ll128", TUNED);
    EXPECT(&table, 1u << 30, "twoshot_ll128", BATCH_INVARIANT);
    for (int c = 0; c < BL_COLLECTIVES; c++)
        for (unsigned i = 0; i < table.ranges[c]; i++) {
            const struct bl_range *range = &table.range[c][i];
            if (range->algorithm == BL_ROUTE_NCCL) continue;
            CHECK(!(bl_algorithms[range->algorithm].traits & BL_BY_SWITCH), "%s", bl_algorithms[range->algorithm].name);
        }
    for (int datatype = 0; datatype < BL_DATATYPES; datatype++)
        for (int redop = 0; redop < BL_REDOPS; redop++) {
            struct bl_request request = {BL_ALLREDUCE, 3 * M, datatype, redop, 0};
            struct bl_route route;
            bl_table_select(&table, &request, &route);
            CHECK(route.algorithm != BL_ROUTE_NCCL, "%s %s: %s", bl_datatype_name(datatype), bl_redop_name(redop),
                  route.reason);
        }
}

/* Where nothing of Beeline's can serve, all is NCCL's, for the reason that it always is. */
static void hindered(void) {
    struct bl_facts facts = facts_of("NVIDIA H200", 90, 4);
    const struct bl_settings settings = invariant(NULL);
    struct bl_table table;
    facts.link = BL_LINK_PCIE;
    build(&table, &facts, &settings);
    EXPECT(&table, 1, "nccl", PCIE);
    EXPECT(&table, 1u << 30, "nccl", PCIE);
    CHECK(table.ranges[BL_ALLREDUCE] && table.invariant, "and it is known that this is not as wished");
}

/* As many rows of all kinds as there may be. */
static void most_rows(void) {
    char text[8192], routes[1024];
    size_t used = 0, at = 0;
    for (int section = 0; section < 2; section++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "gpu \"NVIDIA H200\" arch 90%s\n",
                                 section ? " multicast" : "");
        for (int i = 1; i <= 12; i++)
            used +=
                (size_t)snprintf(text + used, sizeof text - used, "all_reduce 4 %dK %s\n", (section ? 7 : 5) * i + 200,
                                 i % 2     ? "nccl"
                                 : section ? "plain"
                                           : "twoshot_ll128");
    }
    for (int i = 1; i <= BL_ROUTES_ROWS; i++)
        at += (size_t)snprintf(routes + at, sizeof routes - at, "%s..%d oneshot_ll", i > 1 ? " | " : "", 8 * i);
    struct bl_facts facts = with_multicast(facts_of("NVIDIA H200", 90, 4));
    struct bl_settings settings = invariant(text);
    settings.routes[BL_ALLREDUCE] = routes;
    struct bl_table table;
    build(&table, &facts, &settings);
    CHECK(table.ranges[BL_ALLREDUCE] < BL_MAX_RANGES, "%u ranges", table.ranges[BL_ALLREDUCE]);
    expect_no_nccl(&table, BL_ALLREDUCE, "all rows");
}

int main(void) {
    built_in();
    users();
    said();
    short_of_staging();
    multicast();
    hindered();
    most_rows();
    return say_checks();
}
