/* words_test.cc - words.cuh and lines.cuh of the kernels, compiled for the host: every alignment, and every length up to some lines.
 *
 * Each access is checked to the byte against what its caller may touch, which no guard byte shows of a load; and so is
 * what was loaded or stored in the end.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <carriers/lines.cuh>

enum { LANES = 8, LONGEST = 3 * 120 + 9, AROUND = 64, EXCHANGES = 8 };

static unsigned char memory[AROUND + LONGEST + AROUND] __attribute__((aligned(64)));

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

/* --- the seam: one lane at a time, so that an exchange needs two rounds: one to note, one to hand over --- */
static unsigned lane, exchanges;
static bool noting;
static uint64_t passed[EXCHANGES][LANES];

static void seam_load(void *value, const void *p, unsigned size, enum bl_emu_order) {
    check_access(p, size);
    memcpy(value, p, size);
}
static void seam_store(void *p, const void *value, unsigned size, enum bl_emu_order) {
    if (noting) return;
    check_access(p, size);
    memcpy(p, value, size);
}
static uint64_t seam_exchange(uint64_t value, unsigned source, enum bl_emu_exchange) {
    const unsigned turn = exchanges++;
    expect(turn < EXCHANGES && source < LANES, "exchanges");
    if (noting) passed[turn][lane] = value;
    expect(passed[turn][lane] == value, "passes something else the second time");
    return noting ? 0 : passed[turn][source];
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
        expect(load_word(m, k) == word_of_pattern(k), "wrong value");
        doing = "store_word";
        memset(memory, 0, sizeof memory);
        noting = false;
        store_word(m, k, word_of_pattern(k));
        check_stored(8 * k, 8 * k + 8);
    }
}

static void line(uint64_t first, bool stored_to) {
    const Message m = message_of(base(), bytes, stored_to);
    doing = stored_to ? "load_part in place" : "load_part";
    fill();
    allow(stored_to ? 8 * first : 0, stored_to ? 8 * (first + LINE_WORDS) : bytes);
    Pair v[LANES];
    for (lane = 0; lane < LANES; lane++) {
        v[lane] = load_part(m, first, lane);
        expect(v[lane].x == word_of_pattern(first + lane), "wrong first word");
        expect(lane == 7 || v[lane].y == word_of_pattern(first + 8 + lane), "wrong second word");
    }
    if (m.aligned && 8 * (first + LINE_WORDS) <= bytes) {
        doing = "load_whole_part";
        allow(8 * first, 8 * (first + LINE_WORDS));
        for (lane = 0; lane < LANES; lane++) {
            const Pair w = load_whole_part(m, first, lane);
            expect(w.x == v[lane].x && (lane == 7 || w.y == v[lane].y), "wrong word");
        }
        doing = "store_whole_part";
        memset(memory, 0, sizeof memory);
        for (lane = 0; lane < LANES; lane++) store_whole_part(m, first, lane, v[lane]);
        check_stored(8 * first, 8 * (first + LINE_WORDS));
    }
    doing = "store_part";
    memset(memory, 0, sizeof memory);
    allow(8 * first, 8 * (first + LINE_WORDS));
    for (int round = 0; round < 2; round++) {
        noting = round == 0;
        for (lane = 0; lane < LANES; lane++) {
            exchanges = 0;
            store_part(m, first, lane, v[lane]);
        }
    }
    check_stored(8 * first, 8 * (first + LINE_WORDS));
}

int main() {
    static struct bl_emu_seam seam;
    seam.budget = INT64_MAX;
    seam.load = seam_load;
    seam.store = seam_store;
    seam.exchange = seam_exchange;
    bl_emu = &seam;
    for (offset = 0; offset < 16; offset++)
        for (bytes = 0; bytes <= LONGEST; bytes++) {
            if (bytes < 40) single_words();
            for (uint64_t first = 0; 8 * first <= bytes + 120; first += LINE_WORDS) {
                line(first, false);
                line(first, true);
            }
        }
    printf("%ld checks\n", checks);
    return 0;
}
