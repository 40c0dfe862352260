/* dispatch_together_test.c - which groups the real NCCL has whole, from what they have in all. */
#include "dispatch_test.h"

static struct bl_table table;

/* Thresholds of 64 KB for what has roots; the others' are above all totals asked for. */
static void prepare(bool invariant) {
    static const char rows[] = "gpu any\n"
                               "all_reduce 4 max oneshot_ll128\nall_gather 4 max allgather_ll128\n"
                               "reduce_scatter 4 max reducescatter_ll128\nall_to_all 4 max alltoall_ll128\n"
                               "broadcast 4 64K broadcast_ll128\nbroadcast 4 max nccl\n"
                               "reduce 4 1K nccl\nreduce 4 64K reduce_ll128\nreduce 4 max nccl\n";
    const struct bl_facts facts = facts_of("NVIDIA H200", 90, 4);
    struct bl_settings settings = settings_of(rows);
    settings.batch_invariant = invariant;
    build(&table, &facts, &settings);
}

struct asked {
    enum bl_collective collective;
    const char *calls; /* each digit one of that root, `+` a larger one */
    uint64_t bytes;    /* of each */
    bool nccls;
};

static bool answer(const struct asked *asked) {
    struct bl_together together = {.collective = asked->collective};
    for (const char *c = asked->calls; *c; c++) {
        const struct bl_request request = {asked->collective, asked->bytes / 2, BL_BFLOAT16, BL_SUM,
                                           *c == '+' ? 0 : *c - '0'};
        bl_together_add(&together, &request, *c == '+');
    }
    return bl_together_is_nccls(&table, &together);
}

static void test_all(const struct asked *asked, int count, const char *what) {
    for (int i = 0; i < count; i++)
        CHECK(answer(&asked[i]) == asked[i].nccls, "%s, %s: '%s' of %llu bytes: not so", what,
              bl_collective_name(asked[i].collective), asked[i].calls, (unsigned long long)asked[i].bytes);
}
#define TEST_ALL(asked, what) test_all(asked, (int)(sizeof(asked) / sizeof *(asked)), what)

/* Compared with 64 KB: of one root 7/8 of what it has, of four alike half of what each has. */
static const struct asked rooted[] = {
    {BL_BROADCAST, "", 0, false},
    {BL_BROADCAST, "+", 1 * M, false},
    {BL_BROADCAST, "++", 1 * M, false},
    {BL_BROADCAST, "0", 64 * K, false},
    {BL_BROADCAST, "0+", 2, true},
    {BL_BROADCAST, "+0", 0, true},
    {BL_BROADCAST, "00", 37448, false},
    {BL_BROADCAST, "00", 37450, true},
    {BL_BROADCAST, "3333333", 10698, false},
    {BL_BROADCAST, "3333333", 10700, true},
    {BL_BROADCAST, "0123", 64 * K, false},
    {BL_BROADCAST, "01230123", 64 * K, false},
    {BL_BROADCAST, "012301230", 64 * K, true},
    {BL_BROADCAST, "012301230123", 64 * K, true},
    {BL_BROADCAST, "01", 64 * K, false},
    {BL_BROADCAST, "011", 64 * K, true},
    {BL_BROADCAST, "00", UINT64_MAX, true},
    {BL_REDUCE, "0+", 2 * K, true},
    {BL_REDUCE, "00", 37448, false},
    {BL_REDUCE, "00", 37450, true},
    {BL_REDUCE, "01230123", 64 * K, false},
    {BL_REDUCE, "012301230", 64 * K, true},
};

static const struct asked others[] = {
    {BL_ALLGATHER, "+", 1 * M, false},
    {BL_ALLGATHER, "0", 1 * M, false},
    {BL_ALLGATHER, "0+", 2, true},
    {BL_ALLGATHER, "0000+000", 2, true},
    {BL_ALLGATHER, "00000000+", 2, true},
    {BL_ALLGATHER, "000000000+", 2, false},
    {BL_ALLGATHER, "0", 1ull << 40, false},
    {BL_ALLGATHER, "00000000", 1 * M, false},
    {BL_ALLGATHER, "00000000", 1 * M + 2, true},
    {BL_ALLGATHER, "000000000+", 1 * M, true},
    {BL_ALLGATHER, "00", UINT64_MAX, true},
    {BL_REDUCESCATTER, "0+", 2, false},
    {BL_REDUCESCATTER, "000000", 1 * M, false},
    {BL_REDUCESCATTER, "000000", 1 * M + 2, true},
    {BL_REDUCESCATTER, "000000+", 1 * M + 2, true},
    {BL_ALLREDUCE, "0+", 2, false},
    {BL_ALLREDUCE, "0", 1ull << 40, false},
    {BL_ALLREDUCE, "000000", 4 * M, false},
    {BL_ALLREDUCE, "000000", 4 * M + 2, true},
    {BL_ALLTOALL, "00000000", 1ull << 40, false},
    {BL_ALLTOALL, "0+", 2, false},
};

/* Sums stay; what only moves goes as ever. */
static const struct asked invariant[] = {
    {BL_BROADCAST, "0+", 2, true},         {BL_BROADCAST, "00", 1 * M, true},
    {BL_REDUCE, "0+", 2 * K, false},       {BL_REDUCE, "00", 1 * M, false},
    {BL_ALLREDUCE, "0000", 64 * M, false}, {BL_REDUCESCATTER, "0000", 64 * M, false},
    {BL_ALLGATHER, "0000", 64 * M, true},
};

/* More than counts can hold. */
static void test_overflow(void) {
    const struct asked asked = {BL_ALLREDUCE, "0", 0, true};
    struct bl_together together = {.collective = asked.collective};
    const struct bl_request request = {asked.collective, UINT64_MAX / 2, BL_FLOAT64, BL_SUM, 0};
    for (int i = 0; i < 3; i++) bl_together_add(&together, &request, false);
    CHECK(together.calls == 3 && together.bytes == UINT64_MAX && together.of_root[0] == UINT64_MAX);
    CHECK(bl_together_is_nccls(&table, &together));
}

/* Where the rings end, not the rows: a call of 1 MB has its place, a group of one root does not. */
static void test_without_end(void) {
    const struct asked asked[] = {
        {BL_BROADCAST, "0", 1 * M, false}, {BL_BROADCAST, "0123", 1 * M, false}, {BL_BROADCAST, "0000", 1 * M, true}};
    const struct bl_facts facts = facts_of("NVIDIA H200", 90, 4);
    const struct bl_settings settings = settings_of("gpu any\nbroadcast 4 max broadcast_ll128\n");
    build(&table, &facts, &settings);
    TEST_ALL(asked, "with rows that never end");
}

int main(void) {
    prepare(false);
    TEST_ALL(rooted, "by default");
    TEST_ALL(others, "by default");
    test_overflow();
    prepare(true);
    TEST_ALL(invariant, "with the same bits at every size");
    test_without_end();
    return say_checks();
}
