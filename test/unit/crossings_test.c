/* crossings_test.c - thresholds from times: where lines meet, what noise does, what NCCL keeps. */
#include "crossings.h"

#include "check.h"

enum { K = 1 << 10, M = 1 << 20 };

/* Times that rise in a straight line: microseconds at 0 and for each MiB. */
struct line {
    double start, per_mib;
};

static struct bl_times times_of(const struct line *lines, int ways, uint64_t first, int sizes) {
    struct bl_times times = {.sizes = sizes, .ways = ways};
    for (int size = 0; size < sizes; size++) {
        times.bytes[size] = first << 2 * size;
        for (int way = 0; way < ways; way++)
            times.us[size][way] = lines[way].start + lines[way].per_mib * (double)times.bytes[size] / M;
    }
    return times;
}

static void expect(const char *what, const struct bl_times *times, enum bl_collective collective, int count,
                   const struct bl_crossing *wanted) {
    struct bl_crossing rows[BL_TIMES_SIZES];
    const int found = bl_crossings(times, collective, rows);
    CHECK(found == count, "%s: %d rows, expected %d", what, found, count);
    for (int i = 0; i < found && i < count; i++)
        CHECK(rows[i].max_bytes == wanted[i].max_bytes && rows[i].way == wanted[i].way,
              "%s: row %d is ..%llu way %d, expected ..%llu way %d", what, i, (unsigned long long)rows[i].max_bytes,
              rows[i].way, (unsigned long long)wanted[i].max_bytes, wanted[i].way);
}
#define EXPECT(what, times, collective, ...)                                                                           \
    expect(what, times, collective, sizeof((struct bl_crossing[]){__VA_ARGS__}) / sizeof(struct bl_crossing),          \
           (struct bl_crossing[]){__VA_ARGS__})

int main(void) {
    /* 2 + 100 x = 3 + 10 x at 11.4 K, 3 + 10 x = 6 + 4 x at 512 K, 6 + 4 x = 0.95 (12 + x) at 1.77 M */
    static const struct line three[] = {{12, 1}, {2, 100}, {3, 10}, {6, 4}};
    struct bl_times times = times_of(three, 4, K, 9);
    EXPECT("three algorithms", &times, BL_ALLREDUCE, {8 * K, 1}, {512 * K, 2}, {3 * M / 2, 3}, {64 * M, 0});

    /* A way that stops at some size is not drawn on beyond it. */
    for (int size = 3; size < times.sizes; size++) times.us[size][1] = 0;
    EXPECT("one stops", &times, BL_ALLREDUCE, {8 * K, 1}, {512 * K, 2}, {3 * M / 2, 3}, {64 * M, 0});
    times.us[1][1] = 0;
    EXPECT("one stops before it is slower", &times, BL_ALLREDUCE, {K, 1}, {512 * K, 2}, {3 * M / 2, 3}, {64 * M, 0});

    /* Less than the noise changes nothing. */
    static const struct line near[] = {{10, 10}, {5, 5}, {5.05, 4.95}};
    times = times_of(near, 3, K, 6);
    times.us[3][2] = times.us[3][1] * 0.98;
    EXPECT("noise", &times, BL_ALLREDUCE, {M, 1});

    /* NCCL keeps what is not faster by more than the noise. */
    static const struct line even[] = {{10, 10}, {9.7, 9.7}};
    times = times_of(even, 2, K, 4);
    EXPECT("not enough", &times, BL_ALLREDUCE, {64 * K, 0});

    /* Long all-gathers must gain more. */
    static const struct line gather[] = {{10, 10}, {9, 9}};
    times = times_of(gather, 2, 64 * K, 6);
    EXPECT("long all-gathers", &times, BL_ALLGATHER, {4 * M, 1}, {64 * M, 0});
    EXPECT("long broadcasts", &times, BL_BROADCAST, {64 * M, 1});

    /* But not over NCCL by few blocks, and over those. */
    static const struct line pieces[] = {{10, 10}, {9, 9}, {12, 8.8}};
    times = times_of(pieces, 3, 64 * K, 6);
    EXPECT("long all-gathers by all blocks alike", &times, BL_ALLGATHER, {4 * M, 1}, {64 * M, 0});
    times.few[2] = true;
    EXPECT("long all-gathers by few blocks", &times, BL_ALLGATHER, {4 * M, 1}, {64 * M, 2});
    EXPECT("long broadcasts by either", &times, BL_BROADCAST, {64 * M, 1});

    times.sizes = 0;
    struct bl_crossing rows[BL_TIMES_SIZES];
    CHECK(bl_crossings(&times, BL_ALLREDUCE, rows) == 0);
    return say_checks();
}
