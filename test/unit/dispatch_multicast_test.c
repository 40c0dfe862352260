/* dispatch_multicast_test.c - rows for multicast: whether they are there, what they lie over, what they leave to the others. */
#include "dispatch_test.h"

static const char *serves(const struct bl_table *table, enum bl_collective collective, uint64_t count, int datatype,
                          int redop, enum bl_reason *why) {
    const struct bl_request request = {collective, count, datatype, redop, 0};
    struct bl_route route;
    bl_table_select(table, &request, &route);
    if (why) *why = route.why;
    return route.algorithm == BL_ROUTE_NCCL ? "nccl" : bl_algorithms[route.algorithm].name;
}

#define EXPECT(table, bytes, datatype, redop, name)                                                                    \
    do {                                                                                                               \
        const char *got_ = serves(table, BL_ALLREDUCE, (bytes) / bl_datatype_size(datatype), datatype, redop, NULL);   \
        CHECK(!strcmp(got_, name), "%llu bytes of %s %s: %s, expected %s", (unsigned long long)(bytes),                \
              bl_datatype_name(datatype), bl_redop_name(redop), got_, name);                                           \
    } while (0)

static const char file[] = "gpu \"NVIDIA H200\" arch 90\n"
                           "all_reduce 4 1K oneshot_ll\n"
                           "all_reduce 4 100K oneshot_ll128\n"
                           "all_reduce 4 2M nccl\n"
                           "all_reduce 4 16M twoshot_ll128\n"
                           "all_reduce 4 max nccl\n"
                           "gpu \"NVIDIA H200\" arch 90 multicast\n"
                           "all_reduce 4 8K oneshot_nvls\n"
                           "all_reduce 4 1M plain\n"
                           "all_reduce 4 64M twoshot_nvls threads=128 blocks=24\n"
                           "all_gather 4 8K plain\n"
                           "all_gather 4 1M allgather_nvls\n"
                           "all_gather 4 2M nccl\n"
                           "reduce_scatter 4 max reducescatter_nvls\n";

/* Where the file says nothing without multicast: one of the algorithms that go without. */
static bool as_built_in(const char *name) {
    return strcmp(name, "nccl") && !strstr(name, "nvls");
}

static void laid_over(void) {
    const struct bl_facts plain = facts_of("NVIDIA H200", 90, 4), facts = with_multicast(plain);
    struct bl_settings settings = settings_of(file);
    struct bl_table table;
    build(&table, &facts, &settings);
    CHECK(strstr(table.source[BL_ALLREDUCE], "; multicast file my.tune: NVIDIA H200, 4 ranks"), "%s",
          table.source[BL_ALLREDUCE]);
    EXPECT(&table, 8, BL_BFLOAT16, BL_PROD, "oneshot_nvls");
    EXPECT(&table, 8 * K, BL_INT8, BL_AVG, "oneshot_nvls");
    EXPECT(&table, 8 * K + 8, BL_BFLOAT16, BL_SUM, "oneshot_ll128");
    EXPECT(&table, 100 * K, BL_BFLOAT16, BL_SUM, "oneshot_ll128");
    EXPECT(&table, 100 * K + 8, BL_BFLOAT16, BL_SUM, "nccl");
    EXPECT(&table, 1 * M, BL_BFLOAT16, BL_SUM, "nccl");
    EXPECT(&table, 1 * M + 8, BL_BFLOAT16, BL_SUM, "twoshot_nvls");
    EXPECT(&table, 64 * M, BL_BFLOAT16, BL_MAX, "twoshot_nvls");
    EXPECT(&table, 64 * M + 8, BL_BFLOAT16, BL_SUM, "nccl");
    /* What the switch does not do is as without it, size for size. */
    static const int lacking[][2] = {
        {BL_BFLOAT16, BL_AVG}, {BL_FLOAT32, BL_MIN}, {BL_INT8, BL_SUM}, {BL_FLOAT8E4M3, BL_SUM}};
    for (int i = 0; i < 4; i++) {
        EXPECT(&table, 1 * M + 8, lacking[i][0], lacking[i][1], "nccl");
        EXPECT(&table, 2 * M, lacking[i][0], lacking[i][1], "nccl");
        EXPECT(&table, 2 * M + 8, lacking[i][0], lacking[i][1], "twoshot_ll128");
        EXPECT(&table, 16 * M, lacking[i][0], lacking[i][1], "twoshot_ll128");
        EXPECT(&table, 16 * M + 8, lacking[i][0], lacking[i][1], "nccl");
    }
    CHECK(as_built_in(serves(&table, BL_ALLGATHER, 8 * K, BL_INT8, BL_SUM, NULL)), "plain rows are built-in ones");
    CHECK(!strcmp(serves(&table, BL_ALLGATHER, 8 * K + 1, BL_INT8, BL_SUM, NULL), "allgather_nvls"), "all_gather");
    CHECK(!strcmp(serves(&table, BL_ALLGATHER, 2 * M, BL_INT8, BL_SUM, NULL), "nccl"), "nccl in a row for multicast");
    CHECK(as_built_in(serves(&table, BL_ALLGATHER, 2 * M + 1, BL_INT8, BL_SUM, NULL)), "above the last row");
    CHECK(!strcmp(serves(&table, BL_REDUCESCATTER, 1u << 30, BL_FLOAT32, BL_SUM, NULL), "reducescatter_nvls"),
          "to the end");
    CHECK(as_built_in(serves(&table, BL_REDUCESCATTER, 1000, BL_FLOAT32, BL_AVG, NULL)), "avg");
    char text[300];
    bl_table_describe(&table, BL_ALLREDUCE, text, sizeof text);
    CHECK(!strcmp(text, "0..8K oneshot_nvls | ..100K oneshot_ll128 | ..1M nccl | ..64M twoshot_nvls | .. nccl"), "%s",
          text);

    /* Without the object the same file says what it says without these rows. */
    build(&table, &plain, &settings);
    CHECK(!strstr(table.source[BL_ALLREDUCE], "multicast"), "%s", table.source[BL_ALLREDUCE]);
    EXPECT(&table, 8 * K, BL_BFLOAT16, BL_SUM, "oneshot_ll128");
    EXPECT(&table, 4 * M, BL_BFLOAT16, BL_SUM, "twoshot_ll128");
    CHECK(as_built_in(serves(&table, BL_REDUCESCATTER, 1000, BL_FLOAT32, BL_SUM, NULL)), "no multicast");
}

/* Rows hold for as many ranks and more. */
static void ranks(void) {
    struct bl_settings settings = settings_of(file);
    struct bl_table table;
    for (int n = 2; n <= BL_MAX_RANKS; n++) {
        const struct bl_facts facts = with_multicast(facts_of("NVIDIA H200", 90, n));
        build(&table, &facts, &settings);
        const char *got = serves(&table, BL_ALLREDUCE, 2 * M, BL_BFLOAT16, BL_SUM, NULL);
        CHECK(!strcmp(got, "twoshot_nvls") == (n >= 4), "%d ranks: %s", n, got);
        if (n < 4 || n == 6 || n == 8)
            continue; /* these have built-in rows, which come before a user's for other ranks */
        /* One store for all, but each rank gets a message of each peer: up to less with more ranks. */
        const uint64_t most = 8 * K * 3 / ((uint64_t)n - 1);
        got = serves(&table, BL_ALLREDUCE, most, BL_INT8, BL_PROD, NULL);
        CHECK(!strcmp(got, "oneshot_nvls"), "%d ranks: %s", n, got);
        got = serves(&table, BL_ALLREDUCE, most + 1, BL_INT8, BL_PROD, NULL);
        CHECK(strcmp(got, "oneshot_nvls"), "%d ranks: %s", n, got);
    }
}

/* Of what is built in, too, though other rows are not stretched to more ranks than they were measured with, which are 4. */
static void built_in_ranks(void) {
    struct bl_table table;
    for (int n = 4; n <= BL_MAX_RANKS; n++) {
        const struct bl_facts facts = with_multicast(facts_of("NVIDIA H100 80GB HBM3", 90, n));
        build(&table, &facts, NULL);
        CHECK(strstr(table.source[BL_ALLREDUCE], "multicast built-in: NVIDIA H100") &&
                  !strstr(table.source[BL_ALLREDUCE], "any GPU") == (n == 4),
              "%d ranks: %s", n, table.source[BL_ALLREDUCE]);
    }
}

static void reasons(void) {
    const struct bl_facts two = facts_of("NVIDIA H200", 90, 2), facts = with_multicast(facts_of("NVIDIA H200", 90, 4));
    struct bl_settings settings = settings_of("gpu any\nall_reduce 2 max twoshot_nvls\n");
    struct bl_table table;
    enum bl_reason why;
    build(&table, &two, &settings); /* a row of the plain section, which cannot be */
    const char *got = serves(&table, BL_ALLREDUCE, 1000, BL_BFLOAT16, BL_SUM, &why);
    CHECK(!strcmp(got, "nccl") && why == BL_REASON_NO_MULTICAST, "%s: %s", got, bl_reason_text(why));
    settings = settings_of(file);
    settings.deterministic = true;
    build(&table, &facts, &settings);
    EXPECT(&table, 8, BL_BFLOAT16, BL_SUM, "oneshot_nvls");
    EXPECT(&table, 4 * M, BL_BFLOAT16, BL_SUM, "twoshot_ll128");
    CHECK(as_built_in(serves(&table, BL_REDUCESCATTER, 1000, BL_FLOAT32, BL_SUM, NULL)), "deterministic");

    settings = settings_of(file);
    settings.routes[BL_ALLREDUCE] = "..4M twoshot_nvls | twoshot_ll128";
    build(&table, &facts, &settings);
    EXPECT(&table, 4 * M, BL_BFLOAT16, BL_SUM, "twoshot_nvls");
    EXPECT(&table, 4 * M + 8, BL_BFLOAT16, BL_SUM, "twoshot_ll128");
}

static void forced(void) {
    static const struct {
        enum bl_collective collective;
        const char *name;
    } algorithms[] = {{BL_ALLREDUCE, "oneshot_nvls"},
                      {BL_ALLREDUCE, "twoshot_nvls"},
                      {BL_ALLGATHER, "allgather_nvls"},
                      {BL_REDUCESCATTER, "reducescatter_nvls"}};
    for (unsigned i = 0; i < 4; i++)
        for (int n = 2; n <= BL_MAX_RANKS; n++) {
            const struct bl_facts plain = facts_of("Some GPU", 90, n), facts = with_multicast(plain);
            struct bl_settings settings = settings_of(NULL);
            struct bl_table table;
            struct messages m = {0};
            settings.routes[algorithms[i].collective] = algorithms[i].name;
            build(&table, &facts, &settings);
            const char *got = serves(&table, algorithms[i].collective, 100, BL_BFLOAT16, BL_SUM, NULL);
            CHECK(!strcmp(got, algorithms[i].name), "%d ranks: %s", n, got);
            bl_table_build(&table, &plain, &settings, keep, &m);
            CHECK(m.count == 1 && strstr(m.text[0], "has no multicast object"), "%s", m.text[0]);
            settings.deterministic = true;
            m.count = 0;
            bl_table_build(&table, &facts, &settings, keep, &m);
            const bool left_out =
                strstr(algorithms[i].name, "twoshot_nvls") || strstr(algorithms[i].name, "reducescatter_nvls");
            CHECK(m.count == left_out && (!left_out || strstr(m.text[0], "BEELINE_DETERMINISTIC")), "%s", m.text[0]);
        }
}

static void words(void) {
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"gpu any\nall_reduce 4 1K plain\n", "my.tune:2: 'plain' is not accepted here: nccl, oneshot_ll"},
        {"gpu any multicast x\n", "my.tune:1: 'multicast' is not accepted here: link, nvlinks, nccl, and at the end"},
        {"gpu any multicas\n", "my.tune:1: 'multicas' is not accepted here: link, nvlinks, nccl, and at the end"},
        {"gpu \"a\" arch 90 multi\n", "my.tune:1: 'multi' is not accepted here: link, nvlinks, nccl, and at the end"},
        {"gpu multicast\n", "my.tune:1: 'multicast' is not accepted here: any"},
        {"gpu any multicast\nall_reduce 4 1K plain\nall_reduce 4 1K nccl\n", "my.tune:3: '1K' is not accepted here"},
        {"gpu any multicast\nall_reduce 4 1K simple\n",
         "my.tune:2: 'simple' is not accepted here: nccl, plain, oneshot"},
    };
    const struct bl_facts facts = with_multicast(facts_of("NVIDIA H200", 90, 4));
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct bl_settings settings = settings_of(bad[i].text);
        struct bl_table table;
        struct messages m = {0};
        bl_table_build(&table, &facts, &settings, keep, &m);
        CHECK(m.count == 2 && !strncmp(m.text[0], bad[i].message, strlen(bad[i].message)), "%s: %d: %s", bad[i].text,
              m.count, m.text[0]);
        CHECK(bl_table_valid(&table), "%s", bad[i].text);
    }
}

/* Most rows that a file may have, interleaved in the worst way: the table is whole. */
static void many_rows(void) {
    static char text[1 << 14];
    size_t used = 0;
    for (int multicast = 0; multicast < 2; multicast++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "gpu any%s\n", multicast ? " multicast" : "");
        for (int i = 1; i <= 12; i++)
            used += (size_t)snprintf(text + used, sizeof text - used, "all_reduce 4 %dK %s\n",
                                     20 * i + (multicast ? 10 : 0),
                                     i % 2       ? "nccl"
                                     : multicast ? "twoshot_nvls"
                                                 : "twoshot_ll128");
    }
    const struct bl_facts facts = with_multicast(facts_of("NVIDIA H200", 90, 4));
    struct bl_settings settings = settings_of(text);
    struct bl_table table;
    build(&table, &facts, &settings);
    settings.routes[BL_ALLREDUCE] =
        "..1 oneshot_ll | ..2 nccl | ..3 oneshot_ll | ..4 nccl | ..5 twoshot_nvls | ..6 nccl | ..7 oneshot_nvls | "
        "..8 nccl";
    build(&table, &facts, &settings);
    CHECK(table.ranges[BL_ALLREDUCE] < BL_MAX_RANGES, "%u ranges", table.ranges[BL_ALLREDUCE]);
    EXPECT(&table, 1u << 30, BL_BFLOAT16, BL_SUM, "nccl");
}

int main(void) {
    laid_over();
    ranks();
    built_in_ranks();
    reasons();
    forced();
    words();
    many_rows();
    return say_checks();
}
