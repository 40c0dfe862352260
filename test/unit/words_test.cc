/* words_test.cc - words.cuh and lines.cuh of the kernels, compiled for the host: every alignment, and every length up to some lines.
 *
 * Each access is checked to the byte against what its caller may touch, which no guard byte shows of a load; and so is
 * what was loaded or stored in the end.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <carriers/lines.cuh>

enum { LANES = 8, LONGEST = 3 * 128 + 9, AROUND = 64, EXCHANGES = 16 };

static unsigned char memory[AROUND + LONGEST + AROUND] __attribute__((aligned(64)));
static unsigned char loader[sizeof memory]; /* the lane that has loaded a byte last */

/* The case under test. */
static unsigned offset;
static uint64_t bytes;
static const char *doing;
static const unsigned char *from, *to; /* what may be touched */
static long checks;

static void expect(bool condition, const char *what) {
    checks++;
    if (condition) return;
    printf("%s: %s, offset %u, %llu bytes\n", doing, what, offset, (unsigned long long)bytes);
    exit(1);
}

static void check_access(const void *p, unsigned size) {
    const unsigned char *at = (const unsigned char *)p;
    expect((uintptr_t)p % size == 0, "misaligned access");
    expect(at >= from && at + size <= to, "access out of bounds");
}

/* --- the seam: one lane at a time, so that lanes do all again for each exchange, of which they know one more each time --- */
static struct bl_emu_seam seam;
static unsigned exchanges, known;
static bool stores; /* all are known */
static uint64_t passed[EXCHANGES][LANES];

static void seam_load(void *value, const void *p, unsigned size, enum bl_emu_order) {
    check_access(p, size);
    expect(exchanges == 0, "load that waits for others");
    memcpy(value, p, size);
    memset(loader + ((const unsigned char *)p - memory), (int)seam.thread.x, size);
}
static void seam_store(void *p, const void *value, unsigned size, enum bl_emu_order) {
    check_access(p, size);
    for (unsigned i = 0; i < size; i++)
        expect(loader[(unsigned char *)p - memory + i] == seam.thread.x, "stored by another lane than loads it");
    if (stores) memcpy(p, value, size);
}
static uint64_t seam_exchange(uint64_t value, unsigned source, enum bl_emu_exchange) {
    const unsigned turn = exchanges++, lane = seam.thread.x;
    expect(turn < EXCHANGES && source < LANES, "exchanges");
    if (turn >= known) passed[turn][lane] = value;
    expect(passed[turn][lane] == value, "passes something else the second time");
    return turn < known ? passed[turn][source] : 0;
}

/* Calls it for the lanes of a line. */
template <class Lane> static void together(Lane lane) {
    const auto each = [&] {
        for (seam.thread.x = 0; seam.thread.x < LANES; seam.thread.x++) {
            exchanges = 0;
            lane(seam.thread.x);
        }
    };
    known = 0, stores = false;
    each();
    for (const unsigned all = exchanges; known <= all; known++) {
        stores = known == all;
        each();
        expect(exchanges == all, "exchanges more or less than before");
    }
}

/* --- expectations --- */
static unsigned char pattern(uint64_t i) {
    return (unsigned char)(i * 37 + i / 256 + 1);
}

static uint64_t word_of_pattern(uint64_t k) {
    uint64_t v = 0;
    for (uint64_t i = 8 * k; i < 8 * k + 8 && i < bytes; i++) v |= (uint64_t)pattern(i) << (8 * (i - 8 * k));
    return v;
}

static unsigned char *base() {
    return memory + AROUND + offset;
}

static void allow(uint64_t begin, uint64_t end) {
    from = base() + (begin < bytes ? begin : bytes);
    to = base() + (end < bytes ? end : bytes);
}

/* Memory holds the pattern in bytes [begin, end) of the message and nothing else. */
static void check_stored(uint64_t begin, uint64_t end) {
    for (unsigned i = 0; i < sizeof memory; i++) {
        const long at = (long)i - AROUND - (long)offset;
        const bool inside = at >= (long)begin && at < (long)end && at < (long)bytes;
        expect(memory[i] == (inside ? pattern((uint64_t)at) : 0), inside ? "not stored" : "stored beyond");
    }
}

static void fill() {
    memset(memory, 0, sizeof memory);
    for (uint64_t i = 0; i < bytes; i++) base()[i] = pattern(i);
}

/* --- the cases --- */
static void single_words() {
    const Message m = message_of(base(), bytes);
    for (uint64_t k = 0; k < m.words + 2; k++) {
        allow(8 * k, 8 * k + 8);
        doing = "load_word";
        fill();
        exchanges = 0;
        expect(load_word(m, k) == word_of_pattern(k), "wrong value");
        doing = "store_word";
        memset(memory, 0, sizeof memory);
        stores = true;
        store_word(m, k, word_of_pattern(k));
        check_stored(8 * k, 8 * k + 8);
    }
}

/* In one of the ways: by what may be the message's end, by what mostly is, as one of whole lines. */
enum way { ANY, END, WHOLE, WAYS };

template <int W> static Pair loaded(const Run<W> &m, uint64_t line, enum way way) {
    Pair v[1];
    if (way == WHOLE)
        load_whole_lines(m, line, 0, v);
    else
        v[0] = way == END ? load_end_line(m, line) : load_line(m, line);
    return v[0];
}

template <int W> static void line(uint64_t number, enum way way) {
    static const char *const LOADS[WAYS] = {"load_line", "load_end_line", "load_whole_lines"};
    static const char *const STORES[WAYS] = {"store_line", "store_end_line", "store_line of whole lines"};
    const Run<W> m = run_of<W>(base(), bytes);
    const uint64_t first = number * W, begin = 8 * first, end = 8 * (first + W);
    Pair v[LANES];
    doing = LOADS[way];
    fill();
    allow(begin, end);
    together([&](unsigned lane) { v[lane] = loaded(m, number, way); });
    for (unsigned lane = 0; lane < LANES; lane++) {
        expect(v[lane].x == word_of_pattern(first + lane), "wrong first word");
        expect(!has_second<W>(lane) || v[lane].y == word_of_pattern(first + 8 + lane), "wrong second word");
    }
    doing = STORES[way];
    memset(memory, 0, sizeof memory);
    together([&](unsigned lane) {
        const Pair given = {v[lane].x, has_second<W>(lane) ? v[lane].y : ~v[lane].x}; /* else it is anything */
        if (way == END)
            store_end_line(m, number, given);
        else
            store_line(m, number, given, way == WHOLE);
    });
    check_stored(begin, end);
}

/* Some lines of a run: each lane loads its parts of all before it waits for another. */
template <int W> static void run() {
    const Run<W> m = run_of<W>(base(), bytes);
    Pair v[LANES][2];
    doing = "load_whole_lines of two";
    fill();
    allow(0, 3 * 8 * W);
    together([&](unsigned lane) { load_whole_lines(m, 0, 2, v[lane]); });
    for (unsigned lane = 0; lane < LANES; lane++)
        for (uint64_t k = 0; k < 2; k++) {
            const uint64_t word = 2 * k * W + lane;
            expect(v[lane][k].x == word_of_pattern(word), "wrong first word");
            expect(!has_second<W>(lane) || v[lane][k].y == word_of_pattern(word + 8), "wrong second word");
        }
}

template <int W> static void lines() {
    for (uint64_t number = 0; number * 8 * W <= bytes + 8 * W; number++) {
        line<W>(number, ANY);
        line<W>(number, END);
        if ((number + 1) * 8 * W <= bytes) line<W>(number, WHOLE);
    }
    if (bytes >= 3 * 8 * W) run<W>();
}

int main() {
    seam.budget = INT64_MAX;
    seam.load = seam_load;
    seam.store = seam_store;
    seam.exchange = seam_exchange;
    bl_emu = &seam;
    for (offset = 0; offset < 16; offset++)
        for (bytes = 0; bytes <= LONGEST; bytes++) {
            if (bytes < 40) single_words();
            lines<LINE_WORDS>();
            lines<FLAGGED_WORDS>();
        }
    printf("%ld checks\n", checks);
    return 0;
}
