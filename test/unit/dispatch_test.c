/* dispatch_test.c - the dispatcher: selection at every boundary, its reasons, its purity, and whose rows it uses. */
#include <time.h>

#include "dispatch_expect.h"

static void test_algorithms(void) {
    for (int i = 0; i < bl_algorithm_count; i++) {
        const struct bl_algorithm *a = &bl_algorithms[i];
        CHECK(bl_algorithm_find(a->collective, a->name) == i, "%s", a->name);
        CHECK(!strcmp(a->name, bl_kernel_name(a->kernel[0])), "%s and %s", a->name, bl_kernel_name(a->kernel[0]));
        CHECK(a->kernel[BL_BY_WARPS] == BL_KERNEL_NONE || strstr(bl_kernel_name(a->kernel[BL_BY_WARPS]), ":warps"),
              "%s", bl_kernel_name(a->kernel[BL_BY_WARPS]));
        CHECK(a->batch == BL_KERNEL_NONE || strstr(bl_kernel_name(a->batch), "_batch"), "%s", bl_kernel_name(a->batch));
        CHECK(a->few == BL_KERNEL_NONE || (a->batch != BL_KERNEL_NONE && strstr(bl_kernel_name(a->few), "_few")), "%s",
              bl_kernel_name(a->few));
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

static void test_builtin(void) {
    static const int measured[] = {2, 3, 4, 6, 8};
    struct bl_table table;

    for (unsigned i = 0; i < sizeof measured / sizeof *measured; i++) {
        struct bl_facts facts = facts_of("NVIDIA H200", 90, measured[i]);
        build(&table, &facts, NULL);
        CHECK(strstr(table.source[BL_ALLREDUCE], "NVIDIA H200") && !strstr(table.source[BL_ALLREDUCE], "extrapolated"),
              "%s", table.source[BL_ALLREDUCE]);
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
            CHECK(serves(&table, BL_ALLREDUCE, 500 * K), "up to 512 K");
            const bool known = !g && n <= 8; /* what was measured with fewer ranks says nothing */
            CHECK(serves(&table, BL_ALLREDUCE, 513 * K) == known, "what is not measured, only up to 512 K");
            EXPECT(&table, UINT64_MAX / (uint64_t)n, "nccl", NCCL_TUNED);
            for (int c = BL_ALLGATHER; c <= BL_REDUCESCATTER; c++)
                CHECK(serves(&table, c, 8) && serves(&table, c, 256 * K), "%d ranks: %s", n, bl_collective_name(c));
            EXPECT_GATHER(&table, UINT64_MAX / (uint64_t)n, "nccl", NCCL_TUNED);
            EXPECT_SCATTER(&table, UINT64_MAX / (uint64_t)n + 1, "nccl", TOO_LARGE);
            bool far = n != 2 && n != 4 && n != 8 && ((n != 3 && n != 6) || g);
            CHECK(!!strstr(table.source[BL_ALLREDUCE], "extrapolated") == far, "%d ranks: %s", n,
                  table.source[BL_ALLREDUCE]);
            CHECK(!!strstr(table.source[BL_ALLREDUCE], "any GPU") == !known, "%s", table.source[BL_ALLREDUCE]);
        }
    }
    for (int n = 2; n <= 6; n++) { /* up to 4 have been measured */
        struct bl_facts facts = facts_of("NVIDIA H100 80GB HBM3", 90, n);
        build(&table, &facts, NULL);
        CHECK(serves(&table, BL_ALLREDUCE, 513 * K) == (n <= 4));
        CHECK(!!strstr(table.source[BL_ALLREDUCE], "NVIDIA H100") == (n <= 4), "%s", table.source[BL_ALLREDUCE]);
    }
}

static const char file4[] = "# provenance\n"
                            "gpu \"NVIDIA H200\" arch 90 # comment\n"
                            "all_reduce 4 1K oneshot_ll blocks=2 threads=64\r\n"
                            "\tall_reduce 4 2000 oneshot_ll128\n"
                            "all_reduce 4 4K nccl\n"
                            "all_reduce 4 3M twoshot_ll128 blocks=1024"; /* no newline at the end */

static void test_overrides(void) {
    struct bl_facts facts = facts_of("NVIDIA H200", 90, 4);
    struct bl_settings settings = settings_of(file4);
    struct bl_table table;
    struct messages m = {0};
    char text[256];

    bl_table_build(&table, &facts, &settings, keep, &m);
    CHECK(m.count == 0, "%d: %s", m.count, m.text[0]);
    EXPECT(&table, 1024, "oneshot_ll", TUNED);
    struct bl_route route = select_bytes(&table, 1024);
    CHECK(route.threads == 64 && route.blocks == 2, "grid %ux%u", route.blocks, route.threads);
    EXPECT(&table, 1025, "oneshot_ll128", TUNED);
    EXPECT(&table, 2000, "oneshot_ll128", TUNED);
    EXPECT(&table, 2001, "nccl", NCCL_TUNED);
    EXPECT(&table, 4 * K, "nccl", NCCL_TUNED);
    EXPECT(&table, 4 * K + 1, "twoshot_ll128", TUNED);
    EXPECT(&table, 3 * M, "twoshot_ll128", TUNED);
    /* Above its last row those that are built in hold; where they go on as the file does, that is one range. */
    CHECK(serves(&table, BL_ALLREDUCE, 3 * M + 1), "above the last row");
    EXPECT(&table, 1ull << 40, "nccl", NCCL_TUNED);
    CHECK(!strcmp(table.source[BL_ALLREDUCE],
                  "file my.tune: NVIDIA H200, 4 ranks; above 3M built-in: NVIDIA H200, 4 ranks"),
          "%s", table.source[BL_ALLREDUCE]);
    CHECK(!strcmp(table.source[BL_ALLGATHER], "built-in: NVIDIA H200, 4 ranks"), "%s", table.source[BL_ALLGATHER]);
    bl_table_describe(&table, BL_ALLREDUCE, text, sizeof text);
    CHECK(strstr(text, "0..1K oneshot_ll | ..2000 oneshot_ll128 | ..4K nccl | ..") == text, "%s", text);
    CHECK(strstr(text, "twoshot_ll128") && !strstr(strstr(text, "twoshot_ll128") + 1, "twoshot_ll128"), "%s", text);

    /* Built-in rows for these ranks come before the user's for others. */
    facts = facts_of("NVIDIA H200", 90, 8);
    bl_table_build(&table, &facts, &settings, NULL, NULL);
    CHECK(strstr(table.source[BL_ALLREDUCE], "built-in"), "%s", table.source[BL_ALLREDUCE]);
    /* The user's rows for other ranks come before built-in ones for other ranks, scaled. */
    facts = facts_of("NVIDIA H200", 90, 7);
    bl_table_build(&table, &facts, &settings, NULL, NULL);
    CHECK(strstr(table.source[BL_ALLREDUCE], "my.tune") && strstr(table.source[BL_ALLREDUCE], "extrapolated to 7"),
          "%s", table.source[BL_ALLREDUCE]);
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
    EXPECT(&table, 2 * K + 1, "oneshot_ll", TUNED); /* built in */
    CHECK(strstr(table.source[BL_ALLREDUCE], "any GPU"), "%s", table.source[BL_ALLREDUCE]);

    /* An exact name comes before the architecture, wherever it stands. */
    settings = settings_of("gpu \"NVIDIA H200\" arch 90\nall_reduce 4 1K oneshot_ll128\n"
                           "gpu \"NVIDIA H100\" arch 90\nall_reduce 4 2K oneshot_ll128\n");
    build(&table, &facts, &settings);
    EXPECT(&table, 1 * K, "oneshot_ll128", TUNED);
    EXPECT(&table, 1 * K + 1, "oneshot_ll", TUNED);

    /* A file that says all says NCCL, too. */
    settings = settings_of("gpu any\nall_reduce 4 1K oneshot_ll128\nall_reduce 4 max nccl\n");
    build(&table, &facts, &settings);
    EXPECT(&table, 1 * K + 1, "nccl", NCCL_TUNED);
    CHECK(!strstr(table.source[BL_ALLREDUCE], "above"), "%s", table.source[BL_ALLREDUCE]);
}

/* What a section is for: measured rows hold nowhere else. */
static void test_sections(void) {
    static const struct {
        enum bl_link link;
        unsigned nvlinks;
        bool nccl_nvls, measured;
    } boxes[] = {{BL_LINK_NVSWITCH, 18, false, true},
                 {BL_LINK_NVSWITCH, 18, true, false},
                 {BL_LINK_NVSWITCH, 12, false, false},
                 {BL_LINK_NVSWITCH, 0, false, false},
                 {BL_LINK_NVLINK, 18, false, false}};
    struct bl_table table;
    char text[256], section[BL_SECTION];
    for (size_t i = 0; i < sizeof boxes / sizeof *boxes; i++) {
        struct bl_facts facts = facts_of("NVIDIA H200", 90, 4);
        facts.link = boxes[i].link;
        facts.nvlinks = boxes[i].nvlinks;
        facts.nccl_nvls = boxes[i].nccl_nvls;
        build(&table, &facts, NULL);
        CHECK(!!strstr(table.source[BL_ALLREDUCE], "NVIDIA H200") == boxes[i].measured, "box %zu: %s", i,
              table.source[BL_ALLREDUCE]);
        CHECK(serves(&table, BL_ALLREDUCE, 4 * M) == boxes[i].measured, "box %zu", i);

        /* Its own line is for it, and for no other of these. */
        bl_facts_section(&facts, section);
        snprintf(text, sizeof text, "%s\nall_reduce 4 8M twoshot_ll128\n", section);
        for (size_t k = 0; k < sizeof boxes / sizeof *boxes; k++) {
            struct bl_settings settings = settings_of(text);
            struct messages m = {0};
            facts.link = boxes[k].link;
            facts.nvlinks = boxes[k].nvlinks;
            facts.nccl_nvls = boxes[k].nccl_nvls;
            const bool fits =
                i == k || (boxes[i].nvlinks == 0 && boxes[k].link == boxes[i].link && !boxes[k].nccl_nvls);
            bl_table_build(&table, &facts, &settings, keep, &m);
            CHECK(!!strstr(table.source[BL_ALLREDUCE], "my.tune") == fits, "%s on box %zu: %s", section, k,
                  table.source[BL_ALLREDUCE]);
            CHECK(fits ? m.count == 0
                       : m.count == 1 &&
                             strstr(m.text[0], "no section for this box, which is: gpu \"NVIDIA H200\" arch 90 link"),
                  "%d: %s", m.count, m.text[0]);
        }
    }
}

/* The first file that has no mistakes and knows the box serves, whatever stands in a later one. */
static void test_files(void) {
    struct bl_facts facts = facts_of("NVIDIA H200", 90, 4);
    struct bl_tuning_file files[] = {
        {"first", "gpu any\nall_reduce 4 1K oneshot_ll128\nall_reduce 4 2K nonsense\n", true},
        {"second", "gpu \"Other\" arch 80\nall_reduce 4 2K oneshot_ll128\n", false},
        {"third", "gpu any\nall_reduce 4 3K oneshot_ll128\nall_reduce 4 max nccl\n", false},
        {"fourth",
         "gpu \"NVIDIA H200\" arch 90\nall_reduce 4 4K oneshot_ll128\nall_gather 4 4K allgather_ll128\nall_gather 4 "
         "max nccl\n",
         false}};
    struct bl_settings settings = {.files = files, .file_count = 4};
    struct messages m = {0};
    struct bl_table table;
    bl_table_build(&table, &facts, &settings, keep, &m);
    CHECK(m.count == 2 && strstr(m.text[0], "first:3: 'nonsense'") &&
              !strcmp(m.text[1], "first is not used, because of its mistakes"),
          "%d: %s, %s", m.count, m.text[0], m.text[1]);
    CHECK(strstr(table.source[BL_ALLREDUCE], "third"), "%s", table.source[BL_ALLREDUCE]);
    EXPECT(&table, 3 * K, "oneshot_ll128", TUNED);
    EXPECT(&table, 3 * K + 1, "nccl", NCCL_TUNED);
    EXPECT_GATHER(&table, 4 * K, "allgather_ll128", TUNED);
    EXPECT_GATHER(&table, 4 * K + 1, "nccl", NCCL_TUNED);
}

static void test_links(void) {
    static const struct {
        enum bl_link worst, best, class;
    } rows[] = {{BL_LINK_NVSWITCH, BL_LINK_NVSWITCH, BL_LINK_NVSWITCH},
                {BL_LINK_NVLINK, BL_LINK_NVSWITCH, BL_LINK_NVLINK},
                {BL_LINK_PCIE_SWITCH, BL_LINK_NVLINK, BL_LINK_PARTIAL},
                {BL_LINK_PCIE_SOCKET, BL_LINK_PCIE_SWITCH, BL_LINK_PCIE_SOCKET},
                {BL_LINK_NONE, BL_LINK_NVLINK, BL_LINK_NONE},
                {BL_LINK_UNKNOWN, BL_LINK_NVLINK, BL_LINK_UNKNOWN}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK(bl_link_class(rows[i].worst, rows[i].best) == rows[i].class, "row %zu", i);
    for (int link = 0; link < BL_LINKS; link++) {
        CHECK((int)bl_link_find(bl_link_name((enum bl_link)link)) == link, "%s", bl_link_name((enum bl_link)link));
        CHECK(bl_link_serves((enum bl_link)link) == (link >= BL_LINK_NVLINK), "%s", bl_link_name((enum bl_link)link));
    }
    CHECK(bl_link_find("bus") == BL_LINKS && bl_link_find("") == BL_LINKS, "no such links");
}

static void test_limits(void) {
    struct bl_facts facts = facts_of("NVIDIA H200", 90, 4);
    struct bl_settings settings = settings_of(
        "gpu any\nall_reduce 4 16K oneshot_ll\nall_reduce 4 192K oneshot_ll128\nall_reduce 4 16M twoshot_ll128\n"
        "all_reduce 4 max nccl");
    struct bl_table table;

    /* Without NVLink, nothing but NCCL, at every size, with the reason. */
    facts.link = BL_LINK_PCIE;
    build(&table, &facts, &settings);
    EXPECT(&table, 1, "nccl", PCIE);
    EXPECT(&table, 16 * M, "nccl", PCIE);
    EXPECT(&table, 16 * M + 1, "nccl", NCCL_TUNED);
    facts.link = BL_LINK_NVSWITCH;

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
    settings = settings_of("gpu any\nall_reduce 7 8K oneshot_ll128 spread=warps\nall_reduce 7 max nccl\n");
    build(&table, &seven, &settings);
    EXPECT(&table, 8 * K, "nccl", THREADS);
    settings.routes[BL_ALLREDUCE] = "oneshot_ll128";
    build(&table, &seven, &settings);
    EXPECT(&table, 8 * K, "oneshot_ll128", FORCED);

    /* Few multiprocessors, small blocks, or facts that make no sense: still a grid that can be resident. */
    static const unsigned odd[][2] = {{1, 512}, {0, 0}, {7, 100}, {100000, 512}, {1000, 32}, {2, 4096}};
    for (unsigned i = 0; i < sizeof odd / sizeof *odd; i++) {
        facts.multiprocessors = facts.most_blocks = odd[i][0];
        facts.max_threads = odd[i][1];
        build(&table, &facts, NULL);
        struct bl_route route = select_bytes(&table, 128 * K);
        CHECK(route.blocks >= 1 && (route.blocks <= facts.most_blocks || !facts.most_blocks) &&
                  route.threads % 32 == 0 && route.blocks <= BL_MAX_BLOCKS,
              "most %u: grid %ux%u", facts.most_blocks, route.blocks, route.threads);
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
    for (unsigned i = 0; i < sizeof table.source[0]; i++) broken.source[0][i] = 'x';
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
    test_sections();
    test_files();
    test_links();
    test_overrides();
    test_limits();
    test_requests();
    test_purity();
    test_validity();
    show_speed();
    return say_checks();
}
