/* dispatch_test.c - the dispatcher: selection at every boundary, its reasons, its purity, and whose rows it uses. */
#include <time.h>

#include "dispatch_test.h"

static const char *name_of(const struct bl_route *route) {
    return route->algorithm == BL_ROUTE_NCCL ? "nccl" : bl_kernel_name(route->kernel);
}

static void expect(const struct bl_table *table, enum bl_collective collective, uint64_t bytes, const char *name,
                   enum bl_reason reason, int line) {
    struct bl_route route = select_for(table, collective, bytes);
    CHECK(!strcmp(name_of(&route), name), "line %d: %llu bytes: got %s, want %s (%s)", line, (unsigned long long)bytes,
          name_of(&route), name, route.reason);
    CHECK(!strcmp(route.reason, bl_reason_text(reason)), "line %d: %llu bytes: reason '%s', want '%s'", line,
          (unsigned long long)bytes, route.reason, bl_reason_text(reason));
    if (route.algorithm == BL_ROUTE_NCCL) return;
    const struct bl_algorithm *algorithm = &bl_algorithms[route.algorithm];
    CHECK(route.kernel == algorithm->kernel[route.kernel != algorithm->kernel[0]], "line %d", line);
    CHECK(route.blocks >= 1 && route.blocks <= 132 && route.threads >= 32 && route.threads <= 512,
          "line %d: grid %ux%u", line, route.blocks, route.threads);
}
#define EXPECT(table, bytes, name, reason)        expect(table, BL_ALLREDUCE, bytes, name, BL_REASON_##reason, __LINE__)
#define EXPECT_GATHER(table, bytes, name, reason) expect(table, BL_ALLGATHER, bytes, name, BL_REASON_##reason, __LINE__)
#define EXPECT_SCATTER(table, bytes, name, reason)                                                                     \
    expect(table, BL_REDUCESCATTER, bytes, name, BL_REASON_##reason, __LINE__)

/* At most 256 copies a call. */
static uint64_t longest_copy(const struct bl_facts *facts) {
    return 256 / ((unsigned)facts->nranks - 1) * facts->layout.copy_bytes;
}

static void test_algorithms(void) {
    for (int i = 0; i < bl_algorithm_count; i++) {
        const struct bl_algorithm *a = &bl_algorithms[i];
        CHECK(bl_algorithm_find(a->collective, a->name) == i, "%s", a->name);
        CHECK(!strcmp(a->name, bl_kernel_name(a->kernel[0])), "%s and %s", a->name, bl_kernel_name(a->kernel[0]));
        CHECK(a->kernel[BL_BY_WARPS] == BL_KERNEL_NONE || strstr(bl_kernel_name(a->kernel[BL_BY_WARPS]), ":warps"),
              "%s", bl_kernel_name(a->kernel[BL_BY_WARPS]));
        for (int datatype = 0; datatype < BL_DATATYPES; datatype++)
            for (int n = 2; n <= BL_MAX_RANKS; n++)
                for (int spread = 0; spread < BL_SPREADS && a->kernel[spread] != BL_KERNEL_NONE; spread++) {
                    char symbol[128];
                    CHECK(!bl_algorithm_covers(a, 100, datatype, BL_SUM) ||
                              !bl_kernel_symbol(a->kernel[spread], datatype, n, symbol, sizeof symbol),
                          "%s: datatype %d, %d ranks: no kernel", a->name, datatype, n);
                }
    }
    for (int c = 0; c < BL_COLLECTIVES; c++) {
        CHECK(bl_algorithm_find(c, "nccl") == BL_ROUTE_NCCL, "nccl");
        CHECK(bl_algorithm_find(c, "nonsense") == -2, "nonsense");
        CHECK(bl_algorithm_find(c, "") == -2, "empty");
    }
    CHECK(bl_algorithm_find(BL_ALLGATHER, "twoshot_ll128") == -2, "an algorithm of another collective");
    CHECK(bl_algorithm_find(BL_REDUCESCATTER, "allgather_ll128") == -2, "an algorithm of another collective");
}

/* By one of Beeline's algorithms, whichever the built-in files name at present. */
static bool serves(const struct bl_table *table, enum bl_collective collective, uint64_t bytes) {
    const struct bl_route route = select_for(table, collective, bytes);
    return route.algorithm != BL_ROUTE_NCCL && route.why == BL_REASON_TUNED;
}

static void test_builtin(void) {
    static const int measured[] = {2, 3, 4, 6, 8};
    struct bl_table table;

    for (unsigned i = 0; i < sizeof measured / sizeof *measured; i++) {
        struct bl_facts facts = facts_of("NVIDIA H200", 90, measured[i]);
        build(&table, &facts, NULL);
        CHECK(strstr(table.source, "NVIDIA H200") && !strstr(table.source, "extrapolated"), "%s", table.source);
        /* Boundaries come from the table: thresholds are measured anew now and then. */
        for (int c = 0; c < BL_COLLECTIVES; c++)
            for (unsigned r = 0; r + 1 < table.ranges[c]; r++) {
                const struct bl_range *range = &table.range[c][r];
                expect(&table, c, range->max_bytes, bl_kernel_name(bl_range_kernel(range)), BL_REASON_TUNED, __LINE__);
                struct bl_route above = select_for(&table, c, range->max_bytes + 1);
                CHECK(above.algorithm == range[1].algorithm, "just above %llu", (unsigned long long)range->max_bytes);
            }
        EXPECT(&table, 1, "oneshot_ll", TUNED);
        EXPECT(&table, 1ull << 40, "nccl", NCCL_TUNED);
        CHECK(serves(&table, BL_ALLGATHER, 1), "all-gather");
        EXPECT_GATHER(&table, 1ull << 40, "nccl", NCCL_TUNED);
        CHECK(serves(&table, BL_REDUCESCATTER, 1), "reduce-scatter");
        EXPECT_SCATTER(&table, 1ull << 40, "nccl", NCCL_TUNED);
    }
    for (int n = 2; n <= 16; n++) {
        static const char *const gpus[] = {"NVIDIA H200", "Some GPU"};
        static const int archs[] = {90, 90, 100};
        for (int g = 0; g < 3; g++) {
            struct bl_facts facts = facts_of(gpus[g > 0], archs[g], n);
            build(&table, &facts, NULL);
            EXPECT(&table, 8, "oneshot_ll", TUNED);
            EXPECT(&table, 700 * K, n == 2 && g < 2 ? "oneshot_ll128" : "twoshot_ll128", TUNED);
            EXPECT(&table, UINT64_MAX / (uint64_t)n, "nccl", NCCL_TUNED);
            for (int c = BL_ALLGATHER; c <= BL_REDUCESCATTER; c++)
                CHECK(serves(&table, c, 8) && serves(&table, c, 256 * K), "%d ranks: %s", n, bl_collective_name(c));
            EXPECT_GATHER(&table, UINT64_MAX / (uint64_t)n, "nccl", NCCL_TUNED);
            EXPECT_SCATTER(&table, UINT64_MAX / (uint64_t)n + 1, "nccl", TOO_LARGE);
            bool far = n != 2 && n != 4 && n != 8 && ((n != 3 && n != 6) || g == 2);
            CHECK(!!strstr(table.source, "extrapolated") == far, "%d ranks: %s", n, table.source);
            CHECK(!!strstr(table.source, "same architecture") == (g == 1), "%s", table.source);
            CHECK(!!strstr(table.source, "any GPU") == (g == 2), "%s", table.source);
        }
    }
}

static const char file4[] = "# provenance\n"
                            "gpu \"NVIDIA H200\" arch 90 # comment\n"
                            "all_reduce 4 1K oneshot_ll blocks=2 threads=64\r\n"
                            "\tall_reduce 4 2000 oneshot_ll128\n"
                            "all_reduce 4 4K nccl\n"
                            "all_reduce 4 1M twoshot_ll128 blocks=9999\n" /* bad: too many blocks */
                            "all_reduce 4 3M twoshot_ll128 blocks=1024";  /* no newline at the end */

static void test_overrides(void) {
    struct bl_facts facts = facts_of("NVIDIA H200", 90, 4);
    struct bl_settings settings = settings_of(file4);
    struct bl_table table;
    struct messages m = {0};
    char text[256];

    bl_table_build(&table, &facts, &settings, keep, &m);
    CHECK(m.count == 1 && strstr(m.text[0], "my.tune:6: 'blocks=9999'"), "%d: %s", m.count, m.text[0]);
    EXPECT(&table, 1024, "oneshot_ll", TUNED);
    struct bl_route route = select_bytes(&table, 1024);
    CHECK(route.threads == 64 && route.blocks == 2, "grid %ux%u", route.blocks, route.threads);
    EXPECT(&table, 1025, "oneshot_ll128", TUNED);
    EXPECT(&table, 2000, "oneshot_ll128", TUNED);
    EXPECT(&table, 2001, "nccl", NCCL_TUNED);
    EXPECT(&table, 4 * K, "nccl", NCCL_TUNED);
    EXPECT(&table, 4 * K + 1, "twoshot_ll128", TUNED);
    EXPECT(&table, 3 * M, "twoshot_ll128", TUNED);
    EXPECT(&table, 3 * M + 1, "nccl", NCCL_TUNED);
    CHECK(strstr(table.source, "my.tune") && strstr(table.source, "4 ranks"), "%s", table.source);
    bl_table_describe(&table, BL_ALLREDUCE, text, sizeof text);
    CHECK(!strcmp(text, "0..1K oneshot_ll | ..2000 oneshot_ll128 | ..4K nccl | ..3M twoshot_ll128 | .. nccl"), "%s",
          text);

    /* Built-in rows for these ranks come before the user's for others. */
    facts = facts_of("NVIDIA H200", 90, 8);
    bl_table_build(&table, &facts, &settings, NULL, NULL);
    CHECK(strstr(table.source, "built-in"), "%s", table.source);
    /* The user's rows for other ranks come before built-in ones for other ranks, scaled. */
    facts = facts_of("NVIDIA H200", 90, 7);
    bl_table_build(&table, &facts, &settings, NULL, NULL);
    CHECK(strstr(table.source, "my.tune") && strstr(table.source, "extrapolated to 7"), "%s", table.source);
    EXPECT(&table, 512, "oneshot_ll", TUNED);
    EXPECT(&table, 513, "oneshot_ll128", TUNED);
    EXPECT(&table, 1000, "oneshot_ll128", TUNED);
    EXPECT(&table, 1001, "nccl", NCCL_TUNED);
    EXPECT(&table, 3 * M, "twoshot_ll128", TUNED);

    /* Later sections override earlier ones alike; gpu any of the user's comes before every built-in row. */
    facts = facts_of("NVIDIA H200", 90, 4);
    settings = settings_of("gpu any\nall_reduce 4 1K oneshot_ll128\ngpu any\nall_reduce 4 2K oneshot_ll128\n"
                           "gpu \"Other\" arch 80\nall_reduce 4 9K oneshot_ll128\n");
    build(&table, &facts, &settings);
    EXPECT(&table, 2 * K, "oneshot_ll128", TUNED);
    EXPECT(&table, 2 * K + 1, "nccl", NCCL_TUNED);
    CHECK(strstr(table.source, "any GPU"), "%s", table.source);

    /* An exact name comes before the architecture, wherever it stands. */
    settings = settings_of("gpu \"NVIDIA H200\" arch 90\nall_reduce 4 1K oneshot_ll128\n"
                           "gpu \"NVIDIA H100\" arch 90\nall_reduce 4 2K oneshot_ll128\n");
    build(&table, &facts, &settings);
    EXPECT(&table, 1 * K + 1, "nccl", NCCL_TUNED);
}

static void test_forced(void) {
    struct bl_facts facts = facts_of("NVIDIA H200", 90, 4);
    struct bl_settings settings = settings_of(NULL);
    uint64_t packets = bl_kernel_capacity(BL_KERNEL_ALLREDUCE_ONESHOT_LL, 4, &facts.layout);
    struct bl_table table;
    char text[256];

    settings.routes[BL_ALLREDUCE] = "oneshot_ll";
    build(&table, &facts, &settings);
    EXPECT(&table, packets, "oneshot_ll", FORCED);
    EXPECT(&table, packets + 1, "oneshot_ll128", TUNED);
    EXPECT(&table, 1ull << 50, "nccl", STAGING);
    CHECK(strstr(table.source, "forced oneshot_ll"), "%s", table.source);
    bl_table_describe(&table, BL_ALLREDUCE, text, sizeof text);
    CHECK(strstr(text, "0..64K oneshot_ll | ..") == text, "%s", text);

    settings.routes[BL_ALLREDUCE] = "twoshot_ll128";
    build(&table, &facts, &settings);
    EXPECT(&table, 1ull << 40, "twoshot_ll128", FORCED);
    /* It spreads as tuned; or as is said. */
    EXPECT(&table, 1, "twoshot_ll128:warps", SAID);
    EXPECT(&table, 384 * K, "twoshot_ll128:warps", SAID);
    EXPECT(&table, 384 * K + 1, "twoshot_ll128", FORCED);
    bl_table_describe(&table, BL_ALLREDUCE, text, sizeof text);
    CHECK(strstr(text, "0..384K twoshot_ll128:warps | ..1024G twoshot_ll128 | ") == text, "%s", text);
    settings.routes[BL_ALLREDUCE] = "twoshot_ll128:lines";
    build(&table, &facts, &settings);
    EXPECT(&table, 1, "twoshot_ll128", FORCED);
    EXPECT(&table, 1ull << 40, "twoshot_ll128", FORCED);
    settings.routes[BL_ALLREDUCE] = "twoshot_ll128:warps";
    build(&table, &facts, &settings);
    EXPECT(&table, 1, "twoshot_ll128:warps", FORCED);
    EXPECT(&table, 1ull << 40, "twoshot_ll128:warps", FORCED);
    settings.routes[BL_ALLREDUCE] = "..1K oneshot_ll128:warps | ..2K oneshot_ll128:lines | ..4K twoshot_ll128:lines";
    build(&table, &facts, &settings);
    EXPECT(&table, 1 * K, "oneshot_ll128:warps", SAID);
    EXPECT(&table, 2 * K, "oneshot_ll128", SAID);
    EXPECT(&table, 4 * K, "twoshot_ll128", SAID);
    settings.routes[BL_ALLREDUCE] = "..1M twoshot_ll128 | nccl";
    build(&table, &facts, &settings);
    EXPECT(&table, 1 * M, "twoshot_ll128", SAID);
    EXPECT(&table, 1 * M + 1, "nccl", NCCL_FORCED);
    settings.routes[BL_ALLREDUCE] = "0..300 nccl|..1M oneshot_ll|..2M twoshot_ll128";
    build(&table, &facts, &settings);
    EXPECT(&table, 300, "nccl", NCCL_FORCED);
    EXPECT(&table, packets, "oneshot_ll", SAID);
    EXPECT(&table, packets + 1, "twoshot_ll128:warps", SAID); /* where what is named cannot, the next one serves */
    EXPECT(&table, 2 * M, "twoshot_ll128", SAID);
    EXPECT(&table, 2 * M + 1, "twoshot_ll128", TUNED);

    settings.routes[BL_ALLREDUCE] = "nccl";
    build(&table, &facts, &settings);
    EXPECT(&table, 1, "nccl", NCCL_FORCED);
    EXPECT(&table, UINT64_MAX / 4, "nccl", NCCL_FORCED);
    bl_table_describe(&table, BL_ALLREDUCE, text, sizeof text);
    CHECK(!strcmp(text, "0.. nccl"), "%s", text);

    struct messages m = {0};
    settings.routes[BL_ALLREDUCE] = "twoshot";
    bl_table_build(&table, &facts, &settings, keep, &m);
    CHECK(m.count == 1 && strstr(m.text[0], "'twoshot' is not accepted") && strstr(m.text[0], "twoshot_ll128"), "%s",
          m.text[0]);
    EXPECT(&table, 1, "oneshot_ll", TUNED);

    m.count = 0;
    settings.routes[BL_ALLREDUCE] = "twoshot_ll128";
    facts.caps = BL_CAP_P2P;
    bl_table_build(&table, &facts, &settings, keep, &m);
    CHECK(m.count == 1 && strstr(m.text[0], "cannot serve") && strstr(m.text[0], "NVLink"), "%s", m.text[0]);
    EXPECT(&table, 1, "nccl", CAPS);
}

/* What describes the routes of a collective, given as a setting, leads to the same ones, with the same blocks. */
static void same_again(const struct bl_facts *facts, enum bl_collective c, bool short_of_staging) {
    struct bl_settings settings = settings_of(NULL);
    struct bl_table table, again;
    char text[512], texts[512];
    settings.short_of_staging = short_of_staging;
    build(&table, facts, &settings);
    bl_table_describe(&table, c, text, sizeof text);
    settings.routes[c] = text;
    build(&again, facts, &settings);
    bl_table_describe(&again, c, texts, sizeof texts);
    CHECK(!strcmp(text, texts), "%s, then %s", text, texts);
    for (uint64_t bytes = 1; bytes < (uint64_t)1 << 40; bytes = bytes * 3 / 2 + 1) {
        const struct bl_request request = {c, bytes, BL_FLOAT32, BL_SUM, 0}; /* which the switch can reduce, too */
        struct bl_route one, two;
        bl_table_select(&table, &request, &one);
        bl_table_select(&again, &request, &two);
        CHECK(one.algorithm == two.algorithm && (one.algorithm == BL_ROUTE_NCCL || one.kernel == two.kernel) &&
                  one.blocks == two.blocks && one.threads == two.threads,
              "%s: %d ranks, %llu bytes: %u blocks, then %u", text, facts->nranks, (unsigned long long)bytes,
              one.blocks, two.blocks);
    }
}

/* A name alone spreads as the tuned rows for it do, wherever they serve. */
static void spreads_as_tuned(const struct bl_facts *facts, const struct bl_algorithm *algorithm) {
    struct bl_settings settings = settings_of(NULL);
    struct bl_table table, forced;
    build(&table, facts, &settings);
    settings.routes[algorithm->collective] = algorithm->name;
    build(&forced, facts, &settings);
    for (uint64_t bytes = 1; bytes < (uint64_t)1 << 30; bytes = bytes * 9 / 8 + 1) {
        const struct bl_route one = select_for(&table, algorithm->collective, bytes),
                              two = select_for(&forced, algorithm->collective, bytes);
        CHECK(one.algorithm < 0 || &bl_algorithms[one.algorithm] != algorithm || one.kernel == two.kernel,
              "%d ranks, %llu bytes: %s, then %s", facts->nranks, (unsigned long long)bytes, name_of(&one),
              name_of(&two));
    }
}

/* What is accepted, and what is not. */
static void test_routes(void) {
    static const char *const refused[] = {"",
                                          "|",
                                          "nccl|",
                                          "..1K",
                                          "1K oneshot_ll",
                                          "..1X oneshot_ll",
                                          ".. ",
                                          "..1Knccl",
                                          "nccl | nccl",
                                          "oneshot_ll,",
                                          "..2K nccl | ..1K nccl",
                                          "..1K nccl | ..1K nccl",
                                          "0 nccl",
                                          "1..2K nccl",
                                          "allgather_ll128",
                                          "oneshot_ll x",
                                          ".. nccl | ..1K nccl",
                                          "..99999999999G nccl",
                                          "... nccl",
                                          "..-1 nccl",
                                          "..1K nccl | 0..2K nccl",
                                          "..0 nccl",
                                          "oneshot_ll:lines",
                                          "nccl:lines",
                                          "oneshot_ll128:",
                                          "oneshot_ll128:groups",
                                          "oneshot_ll128:warps:lines",
                                          "oneshot_ll128 :warps",
                                          "oneshot_ll128_warps"};
    struct bl_routes routes;
    for (unsigned i = 0; i < sizeof refused / sizeof *refused; i++)
        CHECK(!bl_routes_parse(refused[i], BL_ALLREDUCE, &routes), "'%s'", refused[i]);
    CHECK(bl_routes_parse(" ..16k oneshot_ll|..1m oneshot_ll128 | .. nccl ", BL_ALLREDUCE, &routes) && routes.rows == 3,
          "%d rows", routes.rows);
    CHECK(routes.row[0].max_bytes == 16 * K && routes.row[1].max_bytes == 1 * M &&
              routes.row[2].max_bytes == UINT64_MAX,
          "other sizes");
    for (int n = 2; n <= BL_MAX_RANKS; n++)
        for (int with = 0; with < 8; with++) {
            struct bl_facts facts = facts_of(with & 4 ? "Some GPU" : "NVIDIA H200", 90, n);
            if (with & 1) facts = with_multicast(facts);
            for (int c = 0; c < BL_COLLECTIVES; c++) same_again(&facts, c, with & 2);
            for (int a = 0; a < bl_algorithm_count && !(with & 3); a++)
                if (bl_algorithms[a].kernel[BL_BY_WARPS] != BL_KERNEL_NONE) spreads_as_tuned(&facts, &bl_algorithms[a]);
        }
}

/* The other collectives have settings of their own; all-gather by the copy engines needs slots in the staging. */
static void test_forced_others(void) {
    struct bl_facts facts = facts_of("NVIDIA H200", 90, 4), slots = with_slots(facts);
    struct bl_settings settings = settings_of(NULL);
    struct bl_table table;
    struct messages m = {0};

    settings.routes[BL_ALLGATHER] = "allgather_ll128";
    settings.routes[BL_REDUCESCATTER] = ".. reducescatter_ll128";
    build(&table, &facts, &settings);
    EXPECT_GATHER(&table, 1ull << 40, "allgather_ll128", FORCED);
    EXPECT_SCATTER(&table, 1ull << 40, "reducescatter_ll128", FORCED);
    EXPECT(&table, 1, "oneshot_ll", TUNED);
    CHECK(strstr(table.source, "built-in"), "%s", table.source);

    settings.routes[BL_ALLGATHER] = "nccl";
    settings.routes[BL_REDUCESCATTER] = "nccl";
    build(&table, &slots, &settings);
    EXPECT_GATHER(&table, 1, "nccl", NCCL_FORCED);
    EXPECT_SCATTER(&table, 1, "nccl", NCCL_FORCED);

    settings = settings_of(NULL);
    settings.routes[BL_ALLGATHER] = "allgather_ce";
    build(&table, &slots, &settings);
    EXPECT_GATHER(&table, 1, "allgather_ce", FORCED);
    EXPECT_GATHER(&table, longest_copy(&slots), "allgather_ce", FORCED);
    bl_table_build(&table, &facts, &settings, keep, &m);
    CHECK(m.count == 1 && strstr(m.text[0], "cannot serve") && strstr(m.text[0], "BEELINE_COPY_ENGINES"), "%s",
          m.text[0]);
    CHECK(serves(&table, BL_ALLGATHER, 1), "without what was forced");
    /* It needs NVLink, as all do: no self-test has seen what a copy engine reads over PCIe. */
    m.count = 0;
    slots.caps = BL_CAP_P2P;
    bl_table_build(&table, &slots, &settings, keep, &m);
    CHECK(m.count == 1 && strstr(m.text[0], "cannot serve") && strstr(m.text[0], "NVLink"), "%s", m.text[0]);
    EXPECT_GATHER(&table, 1, "nccl", CAPS);
    EXPECT_SCATTER(&table, 1, "nccl", CAPS);

    m.count = 0;
    settings.routes[BL_ALLGATHER] = "gather";
    bl_table_build(&table, &facts, &settings, keep, &m);
    CHECK(m.count == 1 && strstr(m.text[0], "'gather' is not accepted") &&
              strstr(m.text[0], "allgather_ll128, allgather_ce"),
          "%s", m.text[0]);
}

/* With the setting, kernels serve up to 128K a rank as they are tuned, copy engines all beyond, and nothing else changes. */
static void test_copy_engines(void) {
    for (int n = 2; n <= BL_MAX_RANKS; n++) {
        struct bl_facts facts = facts_of("NVIDIA H200", 90, n), slots = with_slots(facts);
        struct bl_settings settings = settings_of(NULL);
        struct bl_table plain, table;
        build(&plain, &slots, &settings);
        CHECK(serves(&plain, BL_ALLGATHER, 1 * M), "by kernels");
        settings.copy_engines = true;
        build(&table, &slots, &settings);
        CHECK(serves(&table, BL_ALLGATHER, 1) && serves(&table, BL_ALLGATHER, 128 * K), "up to 128K by kernels");
        EXPECT_GATHER(&table, 128 * K + 1, "allgather_ce", COPY_ENGINES);
        EXPECT_GATHER(&table, longest_copy(&slots), "allgather_ce", COPY_ENGINES);
        EXPECT_GATHER(&table, longest_copy(&slots) + 1, "nccl", STAGING);
        struct bl_route route = select_for(&table, BL_ALLGATHER, 8 * K),
                        tuned = select_for(&plain, BL_ALLGATHER, 8 * K);
        CHECK(route.threads == tuned.threads && route.blocks == tuned.blocks, "%d ranks: %ux%u", n, route.blocks,
              route.threads);
        CHECK(!memcmp(table.range[BL_ALLREDUCE], plain.range[BL_ALLREDUCE], sizeof table.range[0]) &&
                  !memcmp(table.range[BL_REDUCESCATTER], plain.range[BL_REDUCESCATTER], sizeof table.range[0]),
              "%d ranks: other collectives", n);
        /* Without slots, as tuned. */
        build(&table, &facts, &settings);
        build(&plain, &facts, NULL);
        CHECK(!memcmp(table.range, plain.range, sizeof table.range), "%d ranks without slots", n);
    }
    struct bl_facts facts = facts_of("NVIDIA H200", 90, 4), slots = with_slots(facts);
    struct bl_table table;
    /* The user's rows up to 128K, whatever they say; what is forced comes before. */
    struct bl_settings settings = settings_of("gpu any\nall_gather 4 1K allgather_ll128\nall_gather 4 64K "
                                              "nccl\nall_gather 4 1M allgather_ll128 threads=64\n");
    settings.copy_engines = true;
    build(&table, &slots, &settings);
    EXPECT_GATHER(&table, 1 * K, "allgather_ll128", TUNED);
    EXPECT_GATHER(&table, 64 * K, "nccl", NCCL_TUNED);
    EXPECT_GATHER(&table, 128 * K, "allgather_ll128", TUNED);
    EXPECT_GATHER(&table, 128 * K + 1, "allgather_ce", COPY_ENGINES);
    settings.tuning_text = "gpu any\nall_gather 4 max nccl\n";
    build(&table, &slots, &settings);
    EXPECT_GATHER(&table, 128 * K, "nccl", NCCL_TUNED);
    EXPECT_GATHER(&table, 128 * K + 1, "allgather_ce", COPY_ENGINES);
    settings.tuning_text = "gpu any\nall_gather 4 max allgather_ce\n"; /* without slots, a row for it cannot be had */
    settings.copy_engines = false;
    build(&table, &slots, &settings);
    EXPECT_GATHER(&table, 1, "allgather_ce", TUNED);
    build(&table, &facts, &settings);
    EXPECT_GATHER(&table, 1, "nccl", NO_SLOTS);
    EXPECT_GATHER(&table, 1 * M, "nccl", NO_SLOTS);
    settings = settings_of(NULL);
    settings.copy_engines = true;
    settings.routes[BL_ALLGATHER] = "allgather_ll128";
    build(&table, &slots, &settings);
    EXPECT_GATHER(&table, 1 * M, "allgather_ll128", FORCED);
    settings.routes[BL_ALLGATHER] = "..16K allgather_ll128";
    build(&table, &slots, &settings);
    EXPECT_GATHER(&table, 16 * K, "allgather_ll128:warps", SAID);
    EXPECT_GATHER(&table, 1 * M, "allgather_ce", COPY_ENGINES);
    settings.routes[BL_ALLGATHER] = "..1M allgather_ce | nccl";
    build(&table, &slots, &settings);
    EXPECT_GATHER(&table, 1 * M, "allgather_ce", SAID);
    EXPECT_GATHER(&table, 1 * M + 1, "nccl", NCCL_FORCED);
}

static void test_limits(void) {
    struct bl_facts facts = facts_of("NVIDIA H200", 90, 4);
    struct bl_settings settings = settings_of(
        "gpu any\nall_reduce 4 16K oneshot_ll\nall_reduce 4 192K oneshot_ll128\nall_reduce 4 16M twoshot_ll128");
    struct bl_table table;

    /* Without NVLink, nothing but NCCL, at every size, with the reason. */
    facts.caps = BL_CAP_P2P;
    build(&table, &facts, &settings);
    EXPECT(&table, 1, "nccl", CAPS);
    EXPECT(&table, 16 * M, "nccl", CAPS);
    EXPECT(&table, 16 * M + 1, "nccl", NCCL_TUNED);
    facts.caps = BL_CAP_P2P | BL_CAP_NVLINK;

    settings = settings_of("gpu any\nall_reduce 4 max oneshot_ll128");
    uint64_t lines = bl_kernel_capacity(BL_KERNEL_ALLREDUCE_ONESHOT_LL128, 4, &facts.layout);
    build(&table, &facts, &settings);
    EXPECT(&table, lines, "oneshot_ll128", TUNED);
    EXPECT(&table, lines + 1, "nccl", STAGING);

    /* What spreads has a warp for each two ranks, whatever the row says; where blocks cannot be that large, the next row serves. */
    settings = settings_of("gpu any\nall_reduce 7 8K oneshot_ll128 threads=32 spread=warps\n"
                           "all_reduce 7 16K oneshot_ll128 threads=32 spread=lines\n");
    struct bl_facts seven = facts_of("NVIDIA H200", 90, 7);
    build(&table, &seven, &settings);
    EXPECT(&table, 8 * K, "oneshot_ll128:warps", TUNED);
    CHECK(select_for(&table, BL_ALLREDUCE, 8 * K).threads == 128, "four warps for 7 ranks");
    CHECK(select_for(&table, BL_ALLREDUCE, 16 * K).threads == 32, "as the row says");
    CHECK(bl_table_valid(&table), "a table of rows by warps");
    table.range[BL_ALLREDUCE][0].threads = 96;
    CHECK(!bl_table_valid(&table), "a row with too few warps was accepted");
    seven.max_threads = 96;
    build(&table, &seven, &settings);
    EXPECT(&table, 8 * K, "oneshot_ll128", TUNED);
    settings = settings_of("gpu any\nall_reduce 7 8K oneshot_ll128 spread=warps\n");
    build(&table, &seven, &settings);
    EXPECT(&table, 8 * K, "nccl", THREADS);
    settings.routes[BL_ALLREDUCE] = "oneshot_ll128";
    build(&table, &seven, &settings);
    EXPECT(&table, 8 * K, "oneshot_ll128", FORCED);

    /* Few multiprocessors, small blocks, or facts that make no sense: still a grid that can be resident. */
    static const unsigned odd[][2] = {{1, 512}, {0, 0}, {7, 100}, {100000, 512}, {1000, 32}, {2, 4096}};
    for (unsigned i = 0; i < sizeof odd / sizeof *odd; i++) {
        facts.sms = odd[i][0];
        facts.max_threads = odd[i][1];
        build(&table, &facts, NULL);
        struct bl_route route = select_bytes(&table, 128 * K);
        CHECK(route.blocks >= 1 && (route.blocks <= facts.sms || !facts.sms) && route.threads % 32 == 0 &&
                  route.blocks <= BL_MAX_BLOCKS,
              "sms %u: grid %ux%u", facts.sms, route.blocks, route.threads);
    }
}

static void test_requests(void) {
    struct bl_facts facts = facts_of("NVIDIA H200", 90, 4);
    struct bl_table table;
    build(&table, &facts, NULL);
    static const struct {
        struct bl_request request;
        enum bl_reason reason;
    } nccl[] = {
        {{BL_ALLREDUCE, 0, BL_FLOAT32, BL_SUM, 0}, BL_REASON_EMPTY},
        {{BL_BROADCAST, 1, BL_FLOAT32, BL_SUM, -1}, BL_REASON_ROOT},
        {{BL_BROADCAST, 1, BL_FLOAT32, BL_SUM, 4}, BL_REASON_ROOT},
        {{BL_REDUCE, 1, BL_FLOAT32, BL_SUM, 1 << 30}, BL_REASON_ROOT},
        {{BL_ALLREDUCE, 1, BL_DATATYPES, BL_SUM, 0}, BL_REASON_DATATYPE},
        {{BL_ALLREDUCE, 1, -1, BL_SUM, 0}, BL_REASON_DATATYPE},
        {{BL_ALLREDUCE, 1, 1 << 30, BL_SUM, 0}, BL_REASON_DATATYPE},
        {{BL_ALLREDUCE, 1, BL_FLOAT32, BL_REDOPS, 0}, BL_REASON_CUSTOM_OP},
        {{BL_ALLREDUCE, 1, BL_FLOAT32, 0x7fffffff, 0}, BL_REASON_CUSTOM_OP},
        {{BL_ALLREDUCE, 1, BL_FLOAT32, -1, 0}, BL_REASON_CUSTOM_OP},
        {{BL_ALLREDUCE, UINT64_MAX / 4 + 1, BL_FLOAT32, BL_SUM, 0}, BL_REASON_TOO_LARGE},
        {{BL_ALLREDUCE, UINT64_MAX / 4 / 4, BL_FLOAT32, BL_SUM, 0}, BL_REASON_NCCL_TUNED},
        /* Counts are a rank's: a buffer of all ranks' must have a size, too. */
        {{BL_ALLGATHER, UINT64_MAX / 4 / 4, BL_FLOAT32, BL_SUM, 0}, BL_REASON_NCCL_TUNED},
        {{BL_ALLGATHER, UINT64_MAX / 4 / 4 + 1, BL_FLOAT32, BL_SUM, 0}, BL_REASON_TOO_LARGE},
        {{BL_REDUCESCATTER, UINT64_MAX / 4 + 1, BL_INT8, BL_SUM, 0}, BL_REASON_TOO_LARGE},
        {{BL_ALLGATHER, 0, BL_FLOAT32, BL_SUM, 0}, BL_REASON_EMPTY},
        {{BL_ALLGATHER, 1, BL_DATATYPES, BL_SUM, 0}, BL_REASON_DATATYPE},
        {{BL_REDUCESCATTER, 0, BL_FLOAT32, BL_SUM, 0}, BL_REASON_EMPTY},
        {{BL_REDUCESCATTER, 1, BL_FLOAT32, BL_REDOPS, 0}, BL_REASON_CUSTOM_OP},
    };
    for (unsigned i = 0; i < sizeof nccl / sizeof *nccl; i++) {
        struct bl_route route;
        bl_table_select(&table, &nccl[i].request, &route);
        CHECK(route.algorithm == BL_ROUTE_NCCL && !strcmp(route.reason, bl_reason_text(nccl[i].reason)),
              "case %u: %s: %s", i, name_of(&route), route.reason);
    }
    for (int kind = 0; kind < BL_COLLECTIVES * BL_DATATYPES; kind++)
        for (int redop = 0; redop < BL_REDOPS; redop++)
            for (int c = kind / BL_DATATYPES, datatype = kind % BL_DATATYPES, r = 0; r + 1 < (int)table.ranges[c];
                 r++) {
                const struct bl_range *range = &table.range[c][r];
                struct bl_request request = {c, range->max_bytes / bl_datatype_size(datatype), datatype, redop, 0};
                struct bl_route route;
                bl_table_select(&table, &request, &route);
                CHECK(route.algorithm == range->algorithm, "%s %s at a boundary", bl_datatype_name(datatype),
                      bl_redop_name(redop));
                request.count++;
                bl_table_select(&table, &request, &route);
                CHECK(route.algorithm == range[1].algorithm, "%s %s above a boundary", bl_datatype_name(datatype),
                      bl_redop_name(redop));
            }
    CHECK(!strcmp(bl_reason_text(BL_REASONS), "?"), "a reason out of range");
    for (int i = 0; i < BL_REASONS; i++) CHECK(bl_reason_text(i) && bl_reason_text(i)[0], "reason %d", i);
}

/* Equal facts make equal bytes, an equal copy picks alike wherever it lies, and selection changes nothing. */
static void test_purity(void) {
    struct bl_facts facts = facts_of("NVIDIA H200", 90, 8);
    struct bl_table a, before;
    struct bl_table *b = malloc(sizeof *b);

    memset(&a, 0x11, sizeof a);
    memset(b, 0xee, sizeof *b);
    build(&a, &facts, NULL);
    build(b, &facts, NULL);
    CHECK(!memcmp(&a, b, sizeof a), "tables from equal facts differ");
    before = a;
    srand(1);
    for (int i = 0; i < 20000; i++) {
        struct bl_request request = {rand() % BL_COLLECTIVES, (uint64_t)rand() << rand() % 33 >> rand() % 31,
                                     rand() % (BL_DATATYPES + 1), rand() % (BL_REDOPS + 1), rand() % 5 - 1};
        struct bl_route one, two;
        memset(&one, 0x11, sizeof one);
        memset(&two, 0xee, sizeof two);
        bl_table_select(&a, &request, &one);
        bl_table_select(b, &request, &two);
        CHECK(one.algorithm == two.algorithm && one.kernel == two.kernel && one.blocks == two.blocks &&
                  one.threads == two.threads && one.reason == two.reason,
              "selection is not pure");
    }
    CHECK(!memcmp(&a, &before, sizeof a), "selection changed the table");
    free(b);
}

static void test_validity(void) {
    struct bl_facts facts = facts_of("NVIDIA H200", 90, 4);
    struct bl_table table, broken;
    build(&table, &facts, NULL);
#define BROKEN(change)                                                                                                 \
    do {                                                                                                               \
        broken = table;                                                                                                \
        broken.change;                                                                                                 \
        CHECK(!bl_table_valid(&broken), "accepted with " #change);                                                     \
    } while (0)
    BROKEN(nranks = 1);
    BROKEN(nranks = 17);
    BROKEN(ranges[0] = 0);
    BROKEN(ranges[1] = BL_MAX_RANGES + 1);
    BROKEN(range[0][0].algorithm = bl_algorithm_count);
    BROKEN(range[0][0].algorithm = -2);
    BROKEN(range[1][0].algorithm = 0); /* an all-reduce algorithm for all-gather */
    BROKEN(range[0][0].threads = 0);
    BROKEN(range[0][0].threads = 1024);
    BROKEN(range[0][0].spread = BL_BY_WARPS); /* packets have one kernel */
    BROKEN(range[0][0].spread = BL_SPREADS);
    BROKEN(range[0][0].max_blocks = 0);
    BROKEN(range[0][0].max_blocks = BL_MAX_BLOCKS + 1);
    BROKEN(range[0][0].reason = BL_REASONS);
    BROKEN(range[0][table.ranges[0] - 1].max_bytes = 5);
    for (unsigned i = 0; i < sizeof table.source; i++) broken.source[i] = 'x';
    CHECK(!bl_table_valid(&broken), "accepted an endless source");
#undef BROKEN
    /* Truncation of the description is at every size in bounds and a prefix of the whole. */
    char whole[256], part[256];
    bl_table_describe(&table, BL_ALLREDUCE, whole, sizeof whole);
    for (size_t size = 1; size < sizeof part; size++) {
        memset(part, '#', sizeof part);
        bl_table_describe(&table, BL_ALLREDUCE, part, size);
        CHECK(strlen(part) < size && !strncmp(part, whole, strlen(part)), "described in %zu bytes: %s", size, part);
    }
}

static void show_speed(void) {
    struct bl_facts facts = facts_of("NVIDIA H200", 90, 8);
    struct bl_table table;
    struct timespec t0, t1;
    enum { CALLS = 1000000 };
    unsigned sum = 0;

    build(&table, &facts, NULL);
    clock_gettime(CLOCK_MONOTONIC, &t0);
    for (int i = 0; i < CALLS; i++) {
        struct bl_request request = {BL_ALLREDUCE, 1 + (uint64_t)i * 64 % (32 << 20), BL_BFLOAT16, BL_SUM, 0};
        struct bl_route route;
        bl_table_select(&table, &request, &route);
        sum += route.algorithm + route.reason[0];
    }
    clock_gettime(CLOCK_MONOTONIC, &t1);
    printf("selection: %.1f ns a call (%u)\n", ((t1.tv_sec - t0.tv_sec) * 1e9 + (t1.tv_nsec - t0.tv_nsec)) / CALLS,
           sum & 1);
}

int main(void) {
    test_algorithms();
    test_builtin();
    test_overrides();
    test_forced();
    test_routes();
    test_forced_others();
    test_copy_engines();
    test_limits();
    test_requests();
    test_purity();
    test_validity();
    show_speed();
    printf("%d checks, %d failures\n", checks, failures);
    return failures ? 1 : 0;
}
