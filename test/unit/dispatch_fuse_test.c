/* dispatch_fuse_test.c - which calls of a group share launches: its limits, its purity, and that every call is
 * launched once. */
#include "dispatch_test.h"

enum { MOST = 2000 };

struct plan {
    int count, launches;
    struct bl_request request[MOST];
    int before[MOST]; /* as bl_fuser_add said */
    int leader[MOST];
    struct bl_route route[MOST]; /* of the launch, as its last call was told */
};

/* Roots go round: what has one shares launches whatever it is. */
static void add_to(struct plan *plan, enum bl_collective collective, uint64_t count, int datatype, int redop) {
    const int root = bl_collective_has(collective, BL_ROOTED) ? plan->count % 2 : 0;
    plan->request[plan->count++] = (struct bl_request){collective, count, datatype, redop, root};
}

static void add(struct plan *plan, uint64_t count, int datatype, int redop) {
    add_to(plan, BL_ALLREDUCE, count, datatype, redop);
}

/* What only moves is of any datatypes; what reduces is of one datatype and operation. */
static bool alike(const struct bl_request *a, const struct bl_request *b) {
    return a->collective == b->collective &&
           (!bl_collective_has(a->collective, BL_REDUCES) || (a->datatype == b->datatype && a->redop == b->redop));
}

static void add_many(struct plan *plan, int calls, uint64_t count, int datatype, int redop) {
    for (int i = 0; i < calls; i++) add(plan, count, datatype, redop);
}

/* Asks, and checks what holds for every answer: a call follows an earlier one of its kind that none follows yet, and what
 * comes together has a kernel. */
static void run(struct plan *plan, const struct bl_table *table) {
    static bool followed[MOST];
    struct bl_fuser fuser;
    plan->launches = 0;
    memset(followed, 0, sizeof followed);
    bl_fuser_begin(&fuser, table);
    for (int i = 0; i < plan->count; i++) {
        const struct bl_request *request = &plan->request[i];
        struct bl_route route;
        int before = plan->before[i] = bl_fuser_add(&fuser, request, i, &route);
        plan->leader[i] = before < 0 ? i : plan->leader[before];
        if (before >= 0) plan->route[plan->leader[i]] = route;
        plan->launches += before < 0;
        CHECK(before < i && before >= BL_FUSE_BEGINS, "call %d follows %d", i, before);
        if (before < 0) continue;
        CHECK(!followed[before], "two calls follow call %d", before);
        followed[before] = true;
        CHECK(alike(request, &plan->request[before]), "calls %d and %d are of different kinds", before, i);
    }
    for (int lead = 0; lead < plan->count; lead++) {
        struct bl_batch batch = {.collective = plan->request[lead].collective,
                                 .datatype = plan->request[lead].datatype,
                                 .redop = plan->request[lead].redop};
        struct bl_route route;
        if (plan->leader[lead] != lead) continue;
        uint64_t of_root[2] = {0};
        for (int i = lead; i < plan->count; i++) {
            const struct bl_request *request = &plan->request[i];
            const uint64_t lines = bl_lines_of(request->count * bl_datatype_size(request->datatype),
                                               bl_collective_line(request->collective));
            if (plan->leader[i] != lead) continue;
            batch.messages++;
            batch.lines += lines;
            of_root[request->root] += lines;
        }
        batch.span = of_root[of_root[1] > of_root[0]];
        if (batch.messages == 1) continue;
        CHECK(batch.messages <= BL_BATCH_MAX, "%u messages", batch.messages);
        CHECK(bl_table_select_batch(table, &batch, &route), "no kernel for %u messages of %llu lines", batch.messages,
              (unsigned long long)batch.lines);
        CHECK(route.kernel == plan->route[lead].kernel && route.blocks == plan->route[lead].blocks &&
                  route.threads == plan->route[lead].threads,
              "the launch of call %d was told another route", lead);
        CHECK((int)route.kernel == bl_algorithms[route.algorithm].batch, "%s", bl_kernel_name(route.kernel));
        CHECK(batch.span * bl_collective_line(batch.collective) <=
                  bl_kernel_capacity(route.kernel, table->nranks, &table->layout),
              "%llu lines are too many for %s", (unsigned long long)batch.span, bl_kernel_name(route.kernel));
        CHECK(route.blocks >= 1 && route.threads >= 32, "grid %ux%u", route.blocks, route.threads);
    }
}

static void expect_launches(struct plan *plan, const struct bl_table *table, int launches, int line) {
    run(plan, table);
    CHECK(plan->launches == launches, "line %d: %d calls: %d launches, expected %d", line, plan->count, plan->launches,
          launches);
    plan->count = 0;
}
#define EXPECT(plan, table, launches) expect_launches(plan, table, launches, __LINE__)

static void make_table(struct bl_table *table, int nranks, struct bl_settings *settings) {
    struct bl_facts facts = facts_of("NVIDIA H200", 90, nranks);
    build(table, &facts, settings);
}

static struct plan plan;

static void test_limits(void) {
    struct bl_settings settings = settings_of(NULL);
    struct bl_table table;
    settings.fuse_max = 1 * M;
    make_table(&table, 4, &settings);
    for (int n = 1; n <= 3 * BL_BATCH_MAX; n++) {
        add_many(&plan, n, 1, BL_FLOAT32, BL_SUM);
        EXPECT(&plan, &table, (n + BL_BATCH_MAX - 1) / BL_BATCH_MAX);
    }
    add_many(&plan, 64, 16 * K, BL_BFLOAT16, BL_AVG);
    EXPECT(&plan, &table, 1);
    /* As many of 1 MB as a launch carries, and one more. */
    const uint64_t capacity = bl_kernel_capacity(BL_KERNEL_ALLREDUCE_TWOSHOT_LL128_BATCH, 4, &table.layout);
    const int fit = (int)(capacity / (bl_lines_of(1 * M, BL_LINE_DATA) * BL_LINE_DATA));
    CHECK(fit > 2 && fit < 24, "Beeline serves 24 MB with 4 ranks");
    add_many(&plan, 2 * fit, 1 * M, BL_UINT8, BL_SUM);
    EXPECT(&plan, &table, 2);
    add_many(&plan, 2 * fit + 1, 1 * M, BL_UINT8, BL_SUM);
    EXPECT(&plan, &table, 3);
    /* A byte above the limit: alone. */
    add_many(&plan, 5, 1 * M + 1, BL_UINT8, BL_SUM);
    EXPECT(&plan, &table, 5);
    add(&plan, 100, BL_UINT8, BL_SUM);
    add(&plan, 2 * M, BL_UINT8, BL_SUM);
    add(&plan, 100, BL_UINT8, BL_SUM);
    EXPECT(&plan, &table, 2);
    settings.fuse_max = 0;
    make_table(&table, 4, &settings);
    add_many(&plan, 5, 1, BL_UINT8, BL_SUM);
    EXPECT(&plan, &table, 5);
    /* Without settings nothing is fused. */
    make_table(&table, 4, NULL);
    add_many(&plan, 5, 1, BL_UINT8, BL_SUM);
    EXPECT(&plan, &table, 5);
}

static void test_kinds(void) {
    struct bl_settings settings = settings_of(NULL);
    struct bl_table table;
    settings.fuse_max = 1 * M;
    make_table(&table, 8, &settings);
    for (int round = 0; round < 3; round++)
        for (int datatype = 0; datatype < BL_DATATYPES; datatype++)
            for (int redop = 0; redop < BL_REDOPS; redop++) add(&plan, 1 + (uint64_t)(redop * round), datatype, redop);
    EXPECT(&plan, &table, BL_DATATYPES * BL_REDOPS);
    /* What is no all-reduce of Beeline's, or unknown, stands by itself. */
    add(&plan, 4, BL_DATATYPES, BL_SUM);
    add(&plan, 4, BL_DATATYPES, BL_SUM);
    add(&plan, 4, -1, BL_SUM);
    add(&plan, 4, BL_FLOAT32, BL_REDOPS);
    add(&plan, 4, BL_FLOAT32, -1);
    add(&plan, UINT64_MAX / 2, BL_FLOAT64, BL_SUM);
    add(&plan, 0, BL_FLOAT32, BL_SUM);
    add(&plan, 0, BL_FLOAT32, BL_SUM);
    EXPECT(&plan, &table, 8);
}

/* What only moves shares a launch with any datatypes. */
static void expect_any_kinds(const struct bl_table *table, enum bl_collective collective) {
    for (int round = 0; round < 3; round++)
        for (int datatype = 0; datatype < BL_DATATYPES; datatype++) add_to(&plan, collective, 5, datatype, BL_SUM);
    EXPECT(&plan, table, 1);
}

/* What reduces, with its datatype and operation. */
static void expect_each_kind(const struct bl_table *table, enum bl_collective collective) {
    for (int round = 0; round < 3; round++)
        for (int datatype = 0; datatype < BL_DATATYPES; datatype++)
            for (int redop = 0; redop < BL_REDOPS; redop++) add_to(&plan, collective, 7, datatype, redop);
    EXPECT(&plan, table, BL_DATATYPES * BL_REDOPS);
}

/* Collectives never share a launch with one another. */
static void test_collectives(void) {
    struct bl_settings settings = settings_of(NULL);
    struct bl_table table;
    settings.fuse_max = 1 * M;
    make_table(&table, 4, &settings);
    for (int round = 0; round < 3; round++)
        for (int c = 0; c < BL_BROADCAST; c++) add_to(&plan, c, 100, BL_FLOAT32, BL_SUM);
    EXPECT(&plan, &table, 4);
    expect_any_kinds(&table, BL_ALLGATHER);
    expect_any_kinds(&table, BL_ALLTOALL);
    expect_any_kinds(&table, BL_BROADCAST);
    expect_each_kind(&table, BL_REDUCESCATTER);
    expect_each_kind(&table, BL_REDUCE);
    /* Limits: of messages, of the largest, of what a launch carries. */
    static const int kernels[] = {[BL_ALLGATHER] = BL_KERNEL_ALLGATHER_LL128_BATCH,
                                  [BL_REDUCESCATTER] = BL_KERNEL_REDUCESCATTER_LL128_BATCH,
                                  [BL_ALLTOALL] = BL_KERNEL_ALLTOALL_LL128_BATCH};
    for (int c = BL_ALLGATHER; c <= BL_ALLTOALL; c++) {
        for (int n = 1; n <= 3 * BL_BATCH_MAX; n++) {
            for (int i = 0; i < n; i++) add_to(&plan, c, 1, BL_BFLOAT16, BL_SUM);
            EXPECT(&plan, &table, (n + BL_BATCH_MAX - 1) / BL_BATCH_MAX);
        }
        for (int i = 0; i < 5; i++) add_to(&plan, c, 1 * M + 1, BL_UINT8, BL_SUM);
        EXPECT(&plan, &table, 5);
        const uint64_t capacity = bl_kernel_capacity(kernels[c], 4, &table.layout);
        const int fit = (int)(capacity / (bl_lines_of(1 * M, BL_LINE_DATA) * BL_LINE_DATA));
        CHECK(fit >= 2 && fit < BL_BATCH_MAX, "%d of 1 MB fit", fit);
        for (int i = 0; i < 2 * fit; i++) add_to(&plan, c, 1 * M, BL_UINT8, BL_SUM);
        EXPECT(&plan, &table, 2);
        for (int i = 0; i < 2 * fit + 1; i++) add_to(&plan, c, 1 * M, BL_UINT8, BL_SUM);
        EXPECT(&plan, &table, 3);
        /* Empty, unknown, endless: alone. */
        add_to(&plan, c, 0, BL_UINT8, BL_SUM);
        add_to(&plan, c, 0, BL_UINT8, BL_SUM);
        add_to(&plan, c, 4, -1, BL_SUM);
        add_to(&plan, c, 4, BL_DATATYPES, BL_SUM);
        add_to(&plan, c, UINT64_MAX / 2, BL_FLOAT64, BL_SUM);
        EXPECT(&plan, &table, 5);
    }
    /* Of broadcasts and reduces as much of each root as of one. */
    for (int c = BL_BROADCAST; c <= BL_REDUCE; c++) {
        for (int i = 0; i < 2; i++) add_to(&plan, c, M, BL_UINT8, BL_SUM);
        EXPECT(&plan, &table, 1);
        for (int i = 0; i < 3; i++) add_to(&plan, c, M, BL_UINT8, BL_SUM);
        EXPECT(&plan, &table, 2);
        for (int i = 0; i < 8; i++) add_to(&plan, c, M / 4, BL_UINT8, BL_SUM); /* a line of each is not whole */
        EXPECT(&plan, &table, 2);
        for (int i = 0; i < 6; i++) add_to(&plan, c, M / 4, BL_UINT8, BL_SUM);
        EXPECT(&plan, &table, 1);
    }
    make_table(&table, 2, &settings);
    for (int c = BL_BROADCAST; c <= BL_REDUCE; c++) {
        for (int i = 0; i < 3; i++) add_to(&plan, c, M, BL_UINT8, BL_SUM);
        EXPECT(&plan, &table, 1);
        for (int i = 0; i < 3; i++) add_to(&plan, c, M + 1, BL_UINT8, BL_SUM);
        EXPECT(&plan, &table, 3);
    }
    /* The copy engines have no batch: with them forced, every all-gather is alone; only above 8M where they are asked for. */
    struct bl_facts slots = with_slots(facts_of("NVIDIA H200", 90, 4));
    settings.routes[BL_ALLGATHER] = "allgather_ce";
    build(&table, &slots, &settings);
    for (int i = 0; i < 6; i++) add_to(&plan, i % 2 ? BL_ALLGATHER : BL_REDUCESCATTER, 9, BL_INT32, BL_SUM);
    EXPECT(&plan, &table, 4);
    settings.routes[BL_ALLGATHER] = NULL;
    settings.copy_engines = true;
    build(&table, &slots, &settings);
    for (int i = 0; i < 12; i++) add_to(&plan, BL_ALLGATHER, 1000, i % BL_DATATYPES, BL_SUM);
    EXPECT(&plan, &table, 1);
    for (int i = 0; i < 6; i++) add_to(&plan, BL_ALLGATHER, 100 * K, BL_INT8, BL_SUM);
    EXPECT(&plan, &table, 1);
    for (int i = 0; i < 6; i++) add_to(&plan, BL_ALLGATHER, 3 * M, BL_INT8, BL_SUM);
    EXPECT(&plan, &table, 6); /* more than one are more than a launch holds beside the slots */
}

static void expect_batch(const struct bl_table *table, uint64_t lines, const char *kernel, int line) {
    struct bl_batch batch = {.datatype = BL_FLOAT16, .redop = BL_MAX, .messages = 2, .lines = lines, .span = lines};
    struct bl_route route;
    bool fits = bl_table_select_batch(table, &batch, &route);
    CHECK(fits == (kernel != NULL), "line %d: %llu lines", line, (unsigned long long)lines);
    if (fits && kernel)
        CHECK(!strcmp(bl_kernel_name(route.kernel), kernel), "line %d: %s, expected %s", line,
              bl_kernel_name(route.kernel), kernel);
}
#define EXPECT_BATCH(table, lines, kernel) expect_batch(table, lines, kernel, __LINE__)

static void test_kernels(void) {
    static const char one[] = "oneshot_ll128_batch", two[] = "twoshot_ll128_batch";
    struct bl_settings settings =
        settings_of("gpu any\nall_reduce 4 1280 oneshot_ll\nall_reduce 4 12800 oneshot_ll128\n"
                    "all_reduce 4 1280000 twoshot_ll128\nall_reduce 4 max nccl\n");
    struct bl_table table;
    settings.fuse_max = 1 * M;
    make_table(&table, 4, &settings);
    EXPECT_BATCH(&table, 2, one); /* packets have no kernel for several */
    EXPECT_BATCH(&table, 100, one);
    EXPECT_BATCH(&table, 101, two);
    EXPECT_BATCH(&table, 10000, two);
    EXPECT_BATCH(&table, 10001, two); /* though one call of so much is NCCL's */
    EXPECT_BATCH(&table, 4 * M / BL_LINE_DATA + 1, NULL);
    /* What the user says holds for batches. */
    settings.routes[BL_ALLREDUCE] = "..1280 twoshot_ll128 | nccl";
    make_table(&table, 4, &settings);
    EXPECT_BATCH(&table, 10, two);
    EXPECT_BATCH(&table, 11, NULL);
}

/* Blocks of a launch of several roots are as for all that a rank exchanges. */
static void test_roots(void) {
    static const struct {
        uint64_t lines, span;
        unsigned threads;
    } rows[] = {{100, 100, 64},  {101, 101, 128},  {150, 50, 64},    {153, 51, 128},
                {303, 101, 128}, {1500, 500, 128}, {1503, 501, 256}, {30000, 10000, 256}};
    struct bl_settings settings =
        settings_of("gpu any\nreduce 3 12000 reduce_ll128 threads=64\nreduce 3 120000 reduce_ll128 threads=128\n"
                    "reduce 3 1200000 reduce_ll128 threads=256\nreduce 3 max nccl\n");
    struct bl_table table;
    settings.fuse_max = 1 * M;
    make_table(&table, 3, &settings);
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct bl_batch batch = {BL_REDUCE, BL_UINT8, BL_SUM, 3, rows[i].lines, rows[i].span};
        struct bl_route route = {0};
        CHECK(bl_table_select_batch(&table, &batch, &route) && route.threads == rows[i].threads,
              "%llu lines, of a root %llu: %u threads", (unsigned long long)batch.lines, (unsigned long long)batch.span,
              route.threads);
    }
    const struct bl_batch more = {BL_REDUCE, BL_UINT8, BL_SUM, 3, 30003, 10001};
    CHECK(!bl_table_select_batch(&table, &more, &(struct bl_route){0}), "more of a root is NCCL's");
}

static void force(struct bl_table *table, const char *name) {
    struct bl_settings settings = settings_of(NULL);
    settings.fuse_max = 1 * M;
    settings.routes[BL_ALLREDUCE] = name;
    make_table(table, 4, &settings);
}

static void test_forced(void) {
    struct bl_table table;
    force(&table, "oneshot_ll"); /* has no kernel for several: nothing is fused */
    add_many(&plan, 6, 10, BL_FLOAT32, BL_SUM);
    EXPECT(&plan, &table, 6);
    force(&table, "nccl");
    EXPECT_BATCH(&table, 2, NULL);
    force(&table, "twoshot_ll128"); /* takes messages of any size, in pieces, but no batch */
    uint64_t lines = table.layout.peer_lines / 2 * 4;
    EXPECT_BATCH(&table, 2, "twoshot_ll128_batch");
    EXPECT_BATCH(&table, lines, "twoshot_ll128_batch");
    EXPECT_BATCH(&table, lines + 1, NULL);
    force(&table, "oneshot_ll128");
    lines = table.layout.rank_lines;
    EXPECT_BATCH(&table, 2, "oneshot_ll128_batch");
    EXPECT_BATCH(&table, lines, "oneshot_ll128_batch");
    EXPECT_BATCH(&table, lines + 1, NULL); /* rather two launches than another algorithm */
    force(&table, "..16K oneshot_ll | .. oneshot_ll128");
    EXPECT_BATCH(&table, 2, "oneshot_ll128_batch");
    EXPECT_BATCH(&table, lines + 1, NULL);
    force(&table, "oneshot_ll128");
    add_many(&plan, 60, lines / 10 * BL_LINE_DATA, BL_UINT8, BL_SUM);
    EXPECT(&plan, &table, 6);
}

/* The calls of one communicator come in their own order, under whatever numbers: the answers are the same. */
static void test_pure(void) {
    static int shifted[MOST];
    struct bl_settings settings = settings_of(NULL);
    struct bl_table table;
    struct bl_fuser fuser;
    struct bl_route route;
    uint64_t state = 7;
    settings.fuse_max = 64 * K;
    for (int nranks = 2; nranks <= BL_MAX_RANKS; nranks++) {
        make_table(&table, nranks, &settings);
        for (int i = 0; i < MOST; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            add_to(&plan, (enum bl_collective)((state >> 55) % BL_BROADCAST),
                   (state >> 33) % ((uint64_t)1 << (state >> 20) % 18), (int)((state >> 40) % 3),
                   (int)((state >> 50) % 2));
        }
        run(&plan, &table);
        CHECK(plan.launches < MOST / 4, "%d launches for %d calls", plan.launches, MOST);
        memset(&fuser, 0xee, sizeof fuser);
        bl_fuser_begin(&fuser, &table);
        for (int i = 0; i < MOST; i++) {
            shifted[i] = bl_fuser_add(&fuser, &plan.request[i], 3 * i + 11, &route);
            CHECK(shifted[i] == (plan.before[i] < 0 ? plan.before[i] : 3 * plan.before[i] + 11), "call %d", i);
        }
        plan.count = 0;
    }
}

/* --- thresholds that end low --- */

/* The most bytes of single calls that bring 64 KB each, in a launch. */
static uint64_t batch_most(const struct bl_table *table, enum bl_collective collective) {
    struct bl_batch batch = {.collective = collective, .datatype = BL_UINT8, .redop = BL_SUM};
    struct bl_route route;
    const uint64_t lines = bl_lines_of(64 * K, bl_collective_line(collective));
    for (batch.lines = batch.span = lines, batch.messages = 1; bl_table_select_batch(table, &batch, &route);
         batch.messages++)
        batch.span = batch.lines += lines;
    return (batch.messages - 1) * 64 * K;
}

static void test_reach(void) {
    static const char low[] =
        "gpu any\nall_reduce 4 64K twoshot_ll128\nall_reduce 4 max nccl\nall_gather 4 64K allgather_ll128\n"
        "all_gather 4 max nccl\nreduce_scatter 4 64K reducescatter_ll128\nreduce_scatter 4 8M nccl\n"
        "reduce_scatter 4 16M reducescatter_ll128\nreduce_scatter 4 max nccl\nall_to_all 4 64K alltoall_ll128\n"
        "all_to_all 4 max nccl\nbroadcast 4 64K broadcast_ll128\nbroadcast 4 max nccl\n";
    struct bl_settings settings = settings_of(low);
    struct bl_facts facts = facts_of("NVIDIA H200", 90, 4);
    struct bl_table table;
    uint64_t uses[BL_KERNELS] = {0};
    settings.fuse_max = 1 * M;
    build(&table, &facts, &settings);
    const uint64_t each = bl_lines_of(64 * K, BL_LINE_DATA) * BL_LINE_DATA, all = 4 * M / each * 64 * K,
                   block = 4 * M / 3 / each * 64 * K;
    CHECK(batch_most(&table, BL_ALLREDUCE) == all, "%llu", (unsigned long long)batch_most(&table, BL_ALLREDUCE));
    CHECK(batch_most(&table, BL_ALLGATHER) == block && batch_most(&table, BL_ALLTOALL) == block);
    CHECK(batch_most(&table, BL_REDUCESCATTER) == 64 * K, "there are rows above NCCL's");
    CHECK(batch_most(&table, BL_BROADCAST) == 64 * K, "rings are for what the thresholds say");
    /* The staging is for as much, of the kernels for several calls. */
    bl_table_uses(&table, uses);
    CHECK(uses[BL_KERNEL_ALLREDUCE_TWOSHOT_LL128] == 64 * K && uses[BL_KERNEL_ALLREDUCE_TWOSHOT_LL128_BATCH] == 4 * M);
    CHECK(uses[BL_KERNEL_ALLGATHER_LL128] == 64 * K && uses[BL_KERNEL_ALLGATHER_LL128_BATCH] == 4 * M / 3);
    CHECK(uses[BL_KERNEL_BROADCAST_LL128] == 64 * K &&
          uses[BL_KERNEL_BROADCAST_LL128_BATCH] == bl_lines_of(64 * K, BL_FLAGGED_DATA) * BL_FLAGGED_DATA);
    bl_staging_trim(&facts.layout, 4, uses);
    build(&table, &facts, &settings);
    CHECK(batch_most(&table, BL_ALLREDUCE) == all && batch_most(&table, BL_ALLGATHER) == block);
    /* What the user says of NCCL holds for launches, too. */
    facts = facts_of("NVIDIA H200", 90, 4);
    settings.routes[BL_ALLREDUCE] = "..128K oneshot_ll128 | nccl";
    build(&table, &facts, &settings);
    CHECK(batch_most(&table, BL_ALLREDUCE) == 128 * K, "two");
    /* Where few blocks, or little staging, are what limits, no more are to be had. */
    settings = settings_of(NULL);
    settings.fuse_max = 1 * M;
    facts.most_blocks = 8;
    build(&table, &facts, &settings);
    CHECK(batch_most(&table, BL_ALLGATHER) == 0, "8 blocks have 16 KB");
    settings = settings_of(low);
    settings.fuse_max = 1 * M;
    build(&table, &facts, &settings);
    CHECK(batch_most(&table, BL_ALLREDUCE) == 0, "nor do they have more together");
    settings.fuse_max = 0;
    facts = facts_of("NVIDIA H200", 90, 4);
    memset(uses, 0, sizeof uses);
    build(&table, &facts, &settings);
    bl_table_uses(&table, uses);
    CHECK(uses[BL_KERNEL_ALLREDUCE_TWOSHOT_LL128] == 64 * K && !uses[BL_KERNEL_ALLREDUCE_TWOSHOT_LL128_BATCH]);
    /* Under a zero-CTA policy what NCCL has by that stays its own. */
    facts.zero_ctas = true;
    settings.fuse_max = 1 * M;
    build(&table, &facts, &settings);
    CHECK(batch_most(&table, BL_ALLGATHER) == 64 * K && batch_most(&table, BL_ALLREDUCE) == all);
    /* Thresholds that go farther, as far as they go. */
    settings = settings_of(NULL);
    settings.fuse_max = 1 * M;
    facts = facts_of("NVIDIA H200", 90, 4);
    build(&table, &facts, &settings);
    CHECK(batch_most(&table, BL_ALLGATHER) > 4 * M && batch_most(&table, BL_ALLREDUCE) >= 16 * M, "%llu K, %llu K",
          (unsigned long long)batch_most(&table, BL_ALLGATHER) / K,
          (unsigned long long)batch_most(&table, BL_ALLREDUCE) / K);
}

int main(void) {
    test_limits();
    test_reach();
    test_kinds();
    test_collectives();
    test_kernels();
    test_roots();
    test_forced();
    test_pure();
    return say_checks();
}
