/* dispatch_said_test.c - what a user says of routes: variables, forced algorithms, copy engines; all of it comes before rows. */
#include "dispatch_expect.h"

/* At most 256 copies a call. */
static uint64_t longest_copy(const struct bl_facts *facts) {
    return 256 / ((unsigned)facts->nranks - 1) * facts->layout.copy_bytes;
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
    CHECK(strstr(table.source[BL_ALLREDUCE], "forced oneshot_ll"), "%s", table.source[BL_ALLREDUCE]);
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
    facts.link = BL_LINK_PCIE;
    bl_table_build(&table, &facts, &settings, keep, &m);
    CHECK(m.count == 1 &&
              !strcmp(m.text[0], "all_reduce: 'twoshot_ll128' cannot serve this communicator (no NVLink: over "
                                 "PCIe packets and lines need not arrive whole); what can: nccl"),
          "%s", m.text[0]);
    EXPECT(&table, 1, "nccl", PCIE);
}

/* What describes the routes of a collective, given as a setting, leads to the same ones, with the same blocks. */
static void same_again(const struct bl_facts *facts, enum bl_collective c, bool short_of_staging, const char *tuning) {
    struct bl_settings settings = settings_of(tuning);
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
    static const char file[] = "gpu any\nall_reduce 4 1K oneshot_ll128 threads=64\nall_reduce 4 2K nccl\n"
                               "all_reduce 4 64K oneshot_ll128 blocks=7\nall_reduce 4 1M twoshot_ll128 threads=128\n";
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
            for (int c = 0; c < BL_COLLECTIVES; c++) {
                same_again(&facts, c, with & 2, NULL);
                same_again(&facts, c, with & 2, file);
            }
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
    CHECK(strstr(table.source[BL_ALLREDUCE], "built-in"), "%s", table.source[BL_ALLREDUCE]);

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
    CHECK(m.count == 1 && strstr(m.text[0], "cannot serve") && strstr(m.text[0], "BEELINE_COPY_ENGINES") &&
              strstr(m.text[0], "; what can: nccl, allgather_ll128") && !strstr(strstr(m.text[0], "what can"), "_ce"),
          "%s", m.text[0]);
    CHECK(serves(&table, BL_ALLGATHER, 1), "without what was forced");
    /* It needs NVLink, as all do: no self-test has seen what a copy engine reads over PCIe. */
    m.count = 0;
    slots.link = BL_LINK_PCIE;
    bl_table_build(&table, &slots, &settings, keep, &m);
    CHECK(m.count == 1 && strstr(m.text[0], "cannot serve") && strstr(m.text[0], "NVLink"), "%s", m.text[0]);
    EXPECT_GATHER(&table, 1, "nccl", PCIE);
    EXPECT_SCATTER(&table, 1, "nccl", PCIE);

    m.count = 0;
    settings.routes[BL_ALLGATHER] = "gather";
    bl_table_build(&table, &facts, &settings, keep, &m);
    CHECK(m.count == 1 && strstr(m.text[0], "'gather' is not accepted") &&
              strstr(m.text[0], "allgather_ll128, allgather_bulk, allgather_ce"),
          "%s", m.text[0]);
}

/* With the setting, kernels serve up to 8M a rank as they are tuned, copy engines all else above 128K, and nothing else changes. */
static void test_copy_engines(void) {
    for (int n = 2; n <= BL_MAX_RANKS; n++) {
        struct bl_facts facts = facts_of("NVIDIA H200", 90, n), slots = with_slots(facts);
        struct bl_settings settings = settings_of(NULL);
        struct bl_table plain, table;
        build(&plain, &slots, &settings);
        CHECK(serves(&plain, BL_ALLGATHER, n <= 8 ? 1 * M : 256 * K), "by kernels");
        settings.copy_engines = true;
        build(&table, &slots, &settings);
        const int copy = bl_algorithm_find(BL_ALLGATHER, "allgather_ce");
        for (uint64_t bytes = 1; bytes <= 8 * M; bytes *= 2) { /* where the rows end before 8M, from there on */
            const struct bl_route route = select_for(&table, BL_ALLGATHER, bytes),
                                  tuned = select_for(&plain, BL_ALLGATHER, bytes);
            CHECK(route.algorithm == (bytes > 128 * K && tuned.algorithm == BL_ROUTE_NCCL ? copy : tuned.algorithm),
                  "%d ranks, %llu bytes", n, (unsigned long long)bytes);
        }
        EXPECT_GATHER(&table, 8 * M + 1, "allgather_ce", COPY_ENGINES);
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
    /* The user's rows up to 8M, whatever they say; what is forced comes before. */
    struct bl_settings settings = settings_of("gpu any\nall_gather 4 1K allgather_ll128\nall_gather 4 64K "
                                              "nccl\nall_gather 4 16M allgather_ll128 threads=64\n");
    settings.copy_engines = true;
    build(&table, &slots, &settings);
    EXPECT_GATHER(&table, 1 * K, "allgather_ll128", TUNED);
    EXPECT_GATHER(&table, 64 * K, "nccl", NCCL_TUNED);
    EXPECT_GATHER(&table, 8 * M, "allgather_ll128", TUNED);
    EXPECT_GATHER(&table, 8 * M + 1, "allgather_ce", COPY_ENGINES);
    settings = settings_of("gpu any\nall_gather 4 max nccl\n");
    settings.copy_engines = true;
    build(&table, &slots, &settings);
    EXPECT_GATHER(&table, 128 * K, "nccl", NCCL_TUNED);
    EXPECT_GATHER(&table, 128 * K + 1, "allgather_ce", COPY_ENGINES);
    settings = settings_of("gpu any\nall_gather 4 max allgather_ce\n"); /* without slots, a row for it cannot be had */
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
    EXPECT_GATHER(&table, 1 * M, "allgather_ll128", TUNED);
    EXPECT_GATHER(&table, 9 * M, "allgather_ce", COPY_ENGINES);
    settings.routes[BL_ALLGATHER] = "..1M allgather_ce | nccl";
    build(&table, &slots, &settings);
    EXPECT_GATHER(&table, 1 * M, "allgather_ce", SAID);
    EXPECT_GATHER(&table, 1 * M + 1, "nccl", NCCL_FORCED);
}

/* With the policy, kernels serve up to 128K of what NCCL has copy engines for as they are tuned, NCCL all beyond, and nothing else changes. */
static void test_zero_ctas(void) {
    for (int n = 2; n <= BL_MAX_RANKS; n++) {
        struct bl_facts facts = with_slots(facts_of("NVIDIA H200", 90, n)), zero = facts;
        struct bl_table plain, table;
        zero.zero_ctas = true;
        build(&plain, &facts, NULL);
        build(&table, &zero, NULL);
        for (int c = 0; c < BL_COLLECTIVES; c++) {
            if (c != BL_ALLGATHER && c != BL_ALLTOALL) {
                CHECK(!memcmp(table.range[c], plain.range[c], sizeof table.range[c]), "%d ranks: other collectives", n);
                continue;
            }
            CHECK(serves(&table, (enum bl_collective)c, 128 * K) == serves(&plain, (enum bl_collective)c, 128 * K),
                  "%d ranks: up to 128K as tuned", n);
            struct bl_route route = select_for(&table, (enum bl_collective)c, 128 * K + 1);
            CHECK(route.algorithm == BL_ROUTE_NCCL && route.why == BL_REASON_ZERO_CTAS, "%d ranks: above", n);
        }
    }
    struct bl_facts zero = with_slots(facts_of("NVIDIA H200", 90, 4));
    struct bl_settings settings = settings_of(NULL);
    struct bl_table table;
    zero.zero_ctas = true;
    settings.copy_engines = true; /* Beeline's own are asked for */
    build(&table, &zero, &settings);
    EXPECT_GATHER(&table, 1 * M, "allgather_ce", COPY_ENGINES);
    settings.copy_engines = false;
    settings.routes[BL_ALLGATHER] = "..1M allgather_ll128";
    build(&table, &zero, &settings);
    EXPECT_GATHER(&table, 1 * M, "allgather_ll128", SAID);
    EXPECT_GATHER(&table, 1 * M + 1, "nccl", ZERO_CTAS);
}

/* Of few blocks a launch carries what few carry; what is said to be carried, or measured with as few, is. */
static void test_narrow(void) {
    struct bl_facts facts = facts_of("NVIDIA H200", 90, 2), narrow = facts;
    struct bl_settings settings = settings_of(NULL);
    struct bl_table plain, table;
    build(&plain, &facts, &settings);
    narrow.most_blocks = 66; /* half of them */
    build(&table, &narrow, &settings);
    CHECK(select_for(&table, BL_ALLGATHER, 16 * M).algorithm == select_for(&plain, BL_ALLGATHER, 16 * M).algorithm,
          "half");
    narrow.most_blocks = 8;
    build(&table, &narrow, &settings);
    for (int c = 0; c < BL_COLLECTIVES; c++) {
        const uint64_t most = c == BL_SENDRECV ? 512 * K : 1 * M;
        CHECK(serves(&table, (enum bl_collective)c, most), "%s", bl_collective_name((enum bl_collective)c));
        struct bl_route route = select_for(&table, (enum bl_collective)c, most + 1);
        CHECK(route.algorithm == BL_ROUTE_NCCL && route.why == BL_REASON_NARROW, "%s",
              bl_collective_name((enum bl_collective)c));
    }
    EXPECT_GATHER(&table, 1024 * M, "nccl", NCCL_TUNED);
    /* What needs few anyhow goes on, but for sizes at which it is not worth while; and only where a block can have its memory. */
    settings =
        settings_of("gpu any\nall_reduce 2 4M oneshot_ll128\nall_reduce 2 32M twoshot_ll128\nall_reduce 2 1G "
                    "twoshot_bulk blocks=24\n"
                    "all_gather 2 64M allgather_ll128\nall_gather 2 512M allgather_bulk blocks=24\n"
                    "reduce_scatter 2 64M reducescatter_ll128\nreduce_scatter 2 512M reducescatter_bulk blocks=24\n");
    CHECK(bl_staging_plan(&facts.layout, 2, 100ull << 20, BL_WITH_PIECES, false) == 0 && facts.layout.bulk_bytes);
    narrow.layout = facts.layout;
    narrow.most_blocks = 16;
    build(&plain, &facts, &settings);
    build(&table, &narrow, &settings);
    EXPECT(&table, 2 * M, "oneshot_ll128", TUNED);
    EXPECT(&table, 2 * M + 1, "nccl", NARROW);
    EXPECT(&table, 24 * M, "nccl", NARROW);
    EXPECT(&table, 24 * M + 1, "twoshot_bulk", TUNED);
    EXPECT_GATHER(&table, 8 * M, "nccl", NARROW);
    EXPECT(&plain, 32 * M, "twoshot_ll128", TUNED);
    EXPECT(&plain, 32 * M + 1, "twoshot_bulk", TUNED);
    EXPECT_GATHER(&table, 8 * M + 1, "allgather_bulk", TUNED);
    EXPECT_SCATTER(&table, 8 * M + 1, "reducescatter_bulk", TUNED);
    CHECK(select_bytes(&table, 64 * M).blocks == 16 && select_bytes(&plain, 64 * M).blocks == 24, "its blocks");
    CHECK(select_bytes(&plain, 64 * M).threads == BL_BULK_MOST_THREADS, "its threads");
    narrow.block_memory = 100 << 10;
    build(&table, &narrow, &settings);
    CHECK(select_bytes(&table, 64 * M).threads == 128, "of 3 warps and one that tells");
    narrow.block_memory = 96 << 10;
    build(&table, &narrow, &settings);
    CHECK(select_bytes(&table, 64 * M).algorithm == BL_ROUTE_NCCL, "too little memory");
    /* A row of theirs for less is what it says. */
    settings = settings_of("gpu any\nall_reduce 2 4M twoshot_bulk\nall_reduce 2 8M twoshot_ll128\n");
    build(&table, &facts, &settings);
    EXPECT(&table, 1, "twoshot_bulk", TUNED);
    EXPECT(&table, 4 * M, "twoshot_bulk", TUNED);
    EXPECT(&table, 4 * M + 1, "twoshot_ll128", TUNED);
    settings = settings_of("gpu any\nall_to_all 2 4M alltoall_ll128\nall_to_all 2 max alltoall_bulk blocks=24\n");
    build(&table, &facts, &settings);
    CHECK(serves(&table, BL_ALLTOALL, 64 * M) && select_for(&table, BL_ALLTOALL, 64 * M).blocks == 24, "to the end");
    settings = settings_of("gpu any\nall_reduce 2 4M twoshot_bulk\nall_reduce 2 8M twoshot_ll128\n");
    facts.layout.bulk_bytes = 0;
    build(&table, &facts, &settings);
    EXPECT(&table, 4 * M, "twoshot_ll128", TUNED);
    /* Rings of every number of ranks are long enough by default, and not of a twentieth of that. */
    for (int n = 2; n <= BL_MAX_RANKS; n++) {
        char rows[160];
        snprintf(rows, sizeof rows,
                 "gpu any\nall_reduce %d 8M twoshot_ll128\nall_reduce %d max twoshot_bulk blocks=24\n", n, n);
        settings = settings_of(rows);
        struct bl_facts of_n = facts_of("NVIDIA H200", 90, n);
        build(&table, &of_n, &settings);
        EXPECT(&table, 64 * M, "twoshot_bulk", TUNED);
        CHECK(bl_staging_plan(&of_n.layout, n, 5ull << 20, BL_WITH_PIECES, false) == 0, "%d ranks", n);
        build(&table, &of_n, &settings);
        CHECK(select_bytes(&table, 64 * M).algorithm == BL_ROUTE_NCCL, "%d ranks: %llu", n,
              (unsigned long long)of_n.layout.bulk_bytes);
    }
    settings = settings_of(NULL);
    narrow.block_memory = facts.block_memory;
    narrow.most_blocks = 15; /* messages take a power of two */
    build(&table, &narrow, &settings);
    CHECK(serves(&table, BL_SENDRECV, 512 * K) && !serves(&table, BL_SENDRECV, 512 * K + 1), "15 blocks");
    CHECK(serves(&table, BL_REDUCE, 15 * 128 * K) && !serves(&table, BL_REDUCE, 15 * 128 * K + 1), "15 blocks");
    narrow.most_blocks = 8;
    settings.batch_invariant = true;
    build(&table, &narrow, &settings);
    CHECK(select_for(&table, BL_ALLREDUCE, 64 * M).why == BL_REASON_BATCH_INVARIANT, "every size");
    for (narrow.most_blocks = 8; narrow.most_blocks <= 24; narrow.most_blocks += 8) {
        settings.file_count = 0; /* as built in */
        build(&table, &narrow, &settings);
        for (uint64_t bytes = K; bytes <= 1024 * M; bytes *= 2)
            CHECK(select_bytes(&table, bytes).algorithm != BL_ROUTE_NCCL &&
                      select_for(&table, BL_REDUCESCATTER, bytes).algorithm != BL_ROUTE_NCCL,
                  "%u blocks, %llu bytes", narrow.most_blocks, (unsigned long long)bytes);
    }
    narrow.most_blocks = 16;
    settings = settings_of("gpu any\nall_gather 2 2M allgather_ll128 blocks=16\nall_gather 2 4M allgather_ll128\n");
    build(&table, &narrow, &settings);
    EXPECT_GATHER(&table, 2 * M, "allgather_ll128", TUNED);
    EXPECT_GATHER(&table, 2 * M + 1, "nccl", NARROW);
    settings.routes[BL_ALLGATHER] = "allgather_ll128";
    build(&table, &narrow, &settings);
    EXPECT_GATHER(&table, 16 * M, "allgather_ll128", FORCED);
}

/* One byte more than so few blocks carry is NCCL's. */
static void expect_most(const struct bl_table *table, enum bl_collective collective, uint64_t most, int nranks) {
    CHECK(serves(table, collective, most), "%d ranks: %s", nranks, bl_collective_name(collective));
    CHECK(select_for(table, collective, most + 1).why == BL_REASON_NARROW, "%d ranks: %s", nranks,
          bl_collective_name(collective));
}

/* Of more than two ranks: what was measured of 3 and 4, and a careful guess of more. */
static void test_narrow_of_more(void) {
    static const uint64_t of_a_block[BL_COLLECTIVES] = {
        [BL_ALLREDUCE] = 4 * K, [BL_ALLGATHER] = 2 * K, [BL_REDUCESCATTER] = 2 * K,
        [BL_ALLTOALL] = 2 * K,  [BL_BROADCAST] = 8 * K, [BL_REDUCE] = 8 * K};
    const struct bl_settings settings = settings_of(NULL);
    struct bl_table table;
    for (int n = 3; n <= 4; n++) {
        struct bl_facts narrow = facts_of("NVIDIA H200", 90, n);
        narrow.most_blocks = 24;
        build(&table, &narrow, &settings);
        for (int c = 0; c < BL_COLLECTIVES; c++)
            if (of_a_block[c]) expect_most(&table, (enum bl_collective)c, 24 * of_a_block[c], n);
        narrow.most_blocks = 7; /* messages take a power of two */
        build(&table, &narrow, &settings);
        const uint64_t message = 4 * 64 * K / (uint64_t)(n - 1);
        expect_most(&table, BL_SENDRECV, message, n);
    }
    struct bl_facts narrow = facts_of("NVIDIA H200", 90, 8);
    narrow.most_blocks = 24;
    build(&table, &narrow, &settings);
    for (int c = 0; c < BL_COLLECTIVES; c++) expect_most(&table, (enum bl_collective)c, 24 * 8 * K / 7, 8);
}

/* By rows who sends has two broadcasts ahead; what is said is done. */
static void test_one_way(void) {
    struct bl_facts facts = facts_of("NVIDIA H200", 90, 2);
    struct bl_settings settings = settings_of("gpu any\nbroadcast 2 1G broadcast_ll128\n");
    const uint64_t most = bl_kernel_unreceived(BL_KERNEL_BROADCAST_LL128, 2, &facts.layout);
    struct bl_table table;

    CHECK(most > 4 * M && most < 6 * M, "%llu bytes", (unsigned long long)most);
    build(&table, &facts, &settings);
    expect(&table, BL_BROADCAST, most, "broadcast_ll128", BL_REASON_TUNED, __LINE__);
    expect(&table, BL_BROADCAST, most + 1, "nccl", BL_REASON_UNRECEIVED, __LINE__);
    settings.routes[BL_BROADCAST] = "..32M broadcast_ll128 | nccl";
    build(&table, &facts, &settings);
    expect(&table, BL_BROADCAST, 32 * M, "broadcast_ll128", BL_REASON_SAID, __LINE__);
}

/* By rows as many messages end at their sender as with NCCL; what is said is done. */
static void test_messages(void) {
    struct bl_facts facts = facts_of("NVIDIA H200", 90, 2);
    struct bl_settings settings = settings_of("gpu any\nsendrecv 2 1G sendrecv_ll128\n");
    const uint64_t ring = facts.layout.pair_quads * BL_QUAD * BL_FLAGGED_DATA,
                   most = bl_kernel_unreceived(BL_KERNEL_SENDRECV_LL128, 2, &facts.layout);
    struct bl_table table;

    CHECK(BL_PAIR_AHEAD * most <= ring / 4 * 3 && most > 1 * M, "%llu bytes of %llu", (unsigned long long)most,
          (unsigned long long)ring);
    build(&table, &facts, &settings);
    expect(&table, BL_SENDRECV, most, "sendrecv_ll128", BL_REASON_TUNED, __LINE__);
    expect(&table, BL_SENDRECV, most + 1, "nccl", BL_REASON_UNRECEIVED, __LINE__);
    settings.short_of_staging = true;
    build(&table, &facts, &settings);
    expect(&table, BL_SENDRECV, most + 1, "nccl", BL_REASON_UNRECEIVED, __LINE__);
    settings.routes[BL_SENDRECV] = "..32M sendrecv_ll128 | nccl";
    build(&table, &facts, &settings);
    expect(&table, BL_SENDRECV, 32 * M, "sendrecv_ll128", BL_REASON_SAID, __LINE__);
    expect(&table, BL_SENDRECV, 32 * M + 1, "nccl", BL_REASON_NCCL_FORCED, __LINE__);
}

int main(void) {
    test_one_way();
    test_messages();
    test_forced();
    test_routes();
    test_forced_others();
    test_copy_engines();
    test_zero_ctas();
    test_narrow();
    test_narrow_of_more();
    return say_checks();
}
