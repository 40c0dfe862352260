/* dispatch_together_test.c - which groups the real NCCL has whole, from what they have in all. */
#include "dispatch_test.h"

static struct bl_table table;

/* What has roots ends at 64 KB, all-gathers above what a group may have, the rest below. */
static void prepare_ranks(const char *rows, int nranks, bool invariant, uint64_t fuse_max) {
    const struct bl_facts facts = facts_of("NVIDIA H200", 90, nranks);
    struct bl_settings settings = settings_of(rows);
    settings.batch_invariant = invariant;
    settings.fuse_max = fuse_max;
    build(&table, &facts, &settings);
}
static void prepare_fusing(const char *rows, bool invariant, uint64_t fuse_max) {
    prepare_ranks(rows, 4, invariant, fuse_max);
}
static void prepare(const char *rows, bool invariant) {
    prepare_fusing(rows, invariant, 1 * M);
}
static const char ROWS[] = "gpu any\n"
                           "all_reduce 4 8M oneshot_ll128\nall_reduce 4 max nccl\n"
                           "all_gather 4 20M allgather_ll128\nall_gather 4 max nccl\n"
                           "reduce_scatter 4 8M reducescatter_ll128\nreduce_scatter 4 max nccl\n"
                           "all_to_all 4 8M alltoall_ll128\nall_to_all 4 max nccl\n"
                           "broadcast 4 64K broadcast_ll128\nbroadcast 4 max nccl\n"
                           "reduce 4 1K nccl\nreduce 4 64K reduce_ll128\nreduce 4 max nccl\n";

struct asked {
    enum bl_collective collective;
    const char *calls; /* each digit one of that root; `+` one above Beeline's end, `-` one of NCCL's below it */
    uint64_t bytes;    /* of each of Beeline's */
    bool nccls;
};

static bool answer(const struct asked *asked) {
    struct bl_together together;
    bl_together_begin(&together, &table, asked->collective);
    for (const char *c = asked->calls; *c; c++) {
        struct bl_request request = {asked->collective, asked->bytes / 2, BL_BFLOAT16, BL_SUM, 0};
        if (*c == '+' || *c == '-') {
            request.count = *c == '+' ? together.end / 2 + 1 : together.end / 2;
            bl_together_add_nccls(&together, &request);
        } else {
            struct bl_route route;
            request.root = *c - '0';
            bl_table_select(&table, &request, &route);
            bl_together_add(&together, &request, route.kernel);
        }
    }
    return bl_together_is_nccls(&together);
}

static void test_all(const struct asked *asked, int count, const char *what) {
    for (int i = 0; i < count; i++)
        CHECK(answer(&asked[i]) == asked[i].nccls, "%s, %s: '%s' of %llu bytes: not so", what,
              bl_collective_name(asked[i].collective), asked[i].calls, (unsigned long long)asked[i].bytes);
}
#define TEST_ALL(asked, what) test_all(asked, (int)(sizeof(asked) / sizeof *(asked)), what)

/* Three times what the busiest has, less what all have, is compared with 4 times 64 KB: of one root it is twice what that has, so that this may be
 * twice what one call has. */
static const struct asked rooted[] = {
    {BL_BROADCAST, "", 0, false},
    {BL_BROADCAST, "+", 0, false},
    {BL_BROADCAST, "++", 0, false},
    {BL_BROADCAST, "0", 64 * K, false},
    {BL_BROADCAST, "0+", 2, true},
    {BL_BROADCAST, "+0", 0, true},
    {BL_BROADCAST, "0123012301230123012301230123012301230123+", 16, true},
    {BL_BROADCAST, "0-", 2, false},
    {BL_BROADCAST, "00", 64 * K, false},
    {BL_BROADCAST, "00", 64 * K + 2, true},
    {BL_BROADCAST, "3333333", 18724, false},
    {BL_BROADCAST, "3333333", 18726, true},
    {BL_BROADCAST, "01", 64 * K, false},
    {BL_BROADCAST, "011", 64 * K, false},
    {BL_BROADCAST, "0111", 64 * K, true},
    {BL_BROADCAST, "01230123", 64 * K, false},
    {BL_BROADCAST, "01230123012301230123012301230123", 64 * K, false},
    {BL_BROADCAST, "01230123", 4 * M, false},
    {BL_BROADCAST, "01230123", 4 * M + 2, true},
    {BL_REDUCE, "0+", 2 * K, true},
    {BL_REDUCE, "0-", 2 * K, false},
    {BL_REDUCE, "00", 64 * K, false},
    {BL_REDUCE, "00", 64 * K + 2, true},
    {BL_REDUCE, "01230123", 2 * M, false},
    {BL_REDUCE, "01230123", 2 * M + 2, true},
};

static const struct asked others[] = {
    {BL_ALLGATHER, "+", 0, false},
    {BL_ALLGATHER, "0", 1 * M, false},
    {BL_ALLGATHER, "0+", 2, true},
    {BL_ALLGATHER, "0-", 2, false},
    {BL_ALLGATHER, "0000+000", 2, true},
    {BL_ALLGATHER, "00000000+", 2, true},
    {BL_ALLGATHER, "000000000+", 2, false},
    {BL_ALLGATHER, "0000", 5 * M, false},
    {BL_ALLGATHER, "0000", 5 * M + 2, true},
    {BL_ALLGATHER, "0000000000", 1 * M, false},
    {BL_ALLGATHER, "00000000", 1 * M + 2, false},
    {BL_ALLGATHER, "000000000", 1 * M + 2, true},
    {BL_REDUCESCATTER, "0+", 2, false},
    {BL_REDUCESCATTER, "00", 8 * M, false},
    {BL_REDUCESCATTER, "00", 8 * M + 2, true},
    {BL_REDUCESCATTER, "0000000000000000+", 1 * M, false},
    {BL_ALLREDUCE, "0+", 2, false},
    {BL_ALLREDUCE, "0", 1ull << 40, false},
    {BL_ALLREDUCE, "000", 8 * M, false},
    {BL_ALLREDUCE, "000", 8 * M + 2, true},
    {BL_ALLREDUCE, "000000000", 2 * M, true},
    {BL_ALLREDUCE, "00000000000000000000000000000000", 1 * M, false},
    {BL_ALLREDUCE, "000000000000000000000000000000000", 1 * M, true},
    {BL_ALLTOALL, "000000000000", 1ull << 40, false},
    {BL_ALLTOALL, "0+", 2, false},
};

/* Sums stay; what only moves goes as ever. */
static const struct asked invariant[] = {
    {BL_BROADCAST, "0+", 2, true},         {BL_BROADCAST, "00", 1 * M, true},
    {BL_REDUCE, "0+", 2 * K, false},       {BL_REDUCE, "00", 1 * M, false},
    {BL_ALLREDUCE, "0000", 64 * M, false}, {BL_REDUCESCATTER, "000000000", 64 * M, false},
    {BL_ALLGATHER, "0000", 64 * M, true},
};

/* What shares launches is not alone, if a launch has room for two; what the user keeps apart is not many for that. */
static const struct asked shared[] = {{BL_ALLREDUCE, "000000000", 3 * M / 2, false},
                                      {BL_ALLREDUCE, "000000000", 3 * M + 2, true},
                                      {BL_ALLREDUCE, "000000000000000000", 2 * M, true},
                                      {BL_ALLREDUCE, "000", 8 * M + 2, true},
                                      {BL_BROADCAST, "0123012301", 1 * M + 2, true}};
static const struct asked apart[] = {{BL_ALLREDUCE, "000000000", 1 * M, false},
                                     {BL_ALLREDUCE, "000000000", 2 * M, true}};

/* Where the rings end, not the rows. */
static const struct asked without_end[] = {
    {BL_BROADCAST, "00", 1 * M, false}, {BL_BROADCAST, "0123", 1 * M, false}, {BL_BROADCAST, "0000", 1 * M, true}};

/* Rows of pieces behind lines: where lines end counts, and of calls in pieces how many there are. */
static const char IN_PIECES[] =
    "gpu any\n"
    "all_reduce 4 8M twoshot_ll128\nall_reduce 4 1G twoshot_bulk\nall_reduce 4 max nccl\n"
    "all_gather 4 8M allgather_ll128\nall_gather 4 256M allgather_bulk\nall_gather 4 max nccl\n";
static const struct asked in_pieces[] = {
    {BL_ALLREDUCE, "000", 8 * M, false},        {BL_ALLREDUCE, "0000", 8 * M, true},
    {BL_ALLREDUCE, "00", 64 * M, false},        {BL_ALLREDUCE, "00000000", 64 * M, false},
    {BL_ALLREDUCE, "000000000", 64 * M, true},  {BL_ALLGATHER, "00", 8 * M, false},
    {BL_ALLGATHER, "000", 8 * M, true},         {BL_ALLGATHER, "00000000", 128 * M, false},
    {BL_ALLGATHER, "000000000", 128 * M, true}, {BL_ALLGATHER, "0+", 128 * M, true}};

/* Between two ranks groups are worth more. */
static const char BETWEEN_TWO[] = "gpu any\n"
                                  "all_reduce 2 8M twoshot_ll128\nall_reduce 2 max nccl\n"
                                  "all_gather 2 8M allgather_ll128\nall_gather 2 max nccl\n"
                                  "reduce_scatter 2 8M reducescatter_ll128\nreduce_scatter 2 max nccl\n"
                                  "broadcast 2 8M broadcast_ll128\nbroadcast 2 max nccl\n";
static const struct asked between_two[] = {{BL_ALLREDUCE, "00000000", 8 * M, false},
                                           {BL_ALLREDUCE, "000000000", 8 * M, true},
                                           {BL_ALLREDUCE, "0000000000000000", 4 * M, false},
                                           {BL_ALLREDUCE, "0000000000000000", 4 * M + 2, true},
                                           {BL_ALLREDUCE, "00000000000000000", 2 * M, true},
                                           {BL_ALLGATHER, "0000000000000000", 4 * M, false},
                                           {BL_ALLGATHER, "0000000000000000", 4 * M + 2, true},
                                           {BL_REDUCESCATTER, "0000000000000000", 8 * M, false},
                                           {BL_REDUCESCATTER, "00000000000000000", 8 * M, true},
                                           {BL_BROADCAST, "01010101", 4 * M, false},
                                           {BL_BROADCAST, "01010101", 4 * M + 2, true}};

int main(void) {
    prepare(ROWS, false);
    TEST_ALL(rooted, "by default");
    TEST_ALL(others, "by default");
    prepare(ROWS, true);
    TEST_ALL(invariant, "with the same bits at every size");
    prepare_fusing(ROWS, false, 4 * M);
    TEST_ALL(shared, "with BEELINE_FUSE_MAX=4M");
    prepare_fusing(ROWS, false, 0);
    TEST_ALL(apart, "with BEELINE_FUSE_MAX=0");
    prepare_ranks(BETWEEN_TWO, 2, false, 1 * M);
    TEST_ALL(between_two, "between two ranks");
    prepare(IN_PIECES, false);
    TEST_ALL(in_pieces, "with rows of pieces");
    prepare("gpu any\nbroadcast 4 max broadcast_ll128\n", false);
    TEST_ALL(without_end, "with rows that never end");
    return say_checks();
}
