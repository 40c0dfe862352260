/* tuning.c - a strict reader of tuning files: line by line, words by blanks, no allocation. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tuning.h"

enum { MAX_WORDS = 12, MAX_MESSAGES = 16, MAX_BLOCKS = 1024 };

struct word {
    const char *start;
    size_t length;
    bool quoted;
};

struct parser {
    const char *name;
    int line;
    int messages;
    void (*warn)(void *arg, const char *message);
    void *warn_arg;
    void (*visit)(void *arg, const struct bl_tuning_row *row);
    void *visit_arg;
    enum { OUTSIDE, INSIDE, SKIPPING } section; /* SKIPPING: the section's own line was bad, and that has been said */
    struct bl_tuning_row row;                   /* carries the section's fields from row to row */
    uint64_t last[BL_COLLECTIVES][BL_MAX_RANKS + 1];
    int rows[BL_COLLECTIVES][BL_MAX_RANKS + 1];
};

static void say(struct parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct parser *p, const char *format, ...) {
    char message[512];
    va_list args;

    if (p->messages++ >= MAX_MESSAGES || !p->warn) return;
    int n = snprintf(message, sizeof message, "%.200s:%d: ", p->name, p->line);
    va_start(args, format);
    vsnprintf(message + n, sizeof message - n, format, args);
    va_end(args);
    p->warn(p->warn_arg, message);
}

/* What was found in place of what is accepted; `word` is NULL where the line ended. */
static bool refuse(struct parser *p, const struct word *word, const char *accepted) {
    char shown[48];
    size_t n = 0;

    if (!word) {
        say(p, "the line ends where %s should stand", accepted);
        return false;
    }
    for (; n < word->length && n < sizeof shown - 1; n++) {
        unsigned char c = word->start[n];
        shown[n] = c >= 0x20 && c < 0x7f ? c : '?';
    }
    shown[n] = 0;
    say(p, "'%s%s' is not accepted here: %s", shown, n < word->length ? "..." : "", accepted);
    return false;
}

static bool is(const struct word *word, const char *text) {
    return !word->quoted && strlen(text) == word->length && !memcmp(word->start, text, word->length);
}

/* Digits only; false if there is another character or the value is outside low..high. */
static bool number(const char *start, size_t length, uint64_t low, uint64_t high, uint64_t *value) {
    uint64_t v = 0;

    if (!length) return false;
    for (size_t i = 0; i < length; i++) {
        unsigned digit = (unsigned char)start[i] - '0';
        if (digit > 9 || v > (UINT64_MAX - digit) / 10) return false;
        v = v * 10 + digit;
    }
    if (v < low || v > high) return false;
    *value = v;
    return true;
}

static bool bytes(const struct word *word, uint64_t *value) {
    static const char units[] = "KMG";
    uint64_t v;
    size_t digits = word->length;
    int shift = 0;

    if (is(word, "max")) {
        *value = UINT64_MAX;
        return true;
    }
    const char *unit = digits ? memchr(units, word->start[digits - 1], sizeof units - 1) : NULL;
    if (unit) {
        shift = 10 * (int)(unit - units + 1);
        digits--;
    }
    if (word->quoted || !number(word->start, digits, 1, (UINT64_MAX - 1) >> shift, &v)) return false;
    *value = v << shift;
    return true;
}

/* Splits [line, end) at blanks; a word in quotes may hold blanks; # starts a comment.  Returns the number of words, or
 * -1 if the line was refused. */
static int split(struct parser *p, const char *line, const char *end, struct word *words) {
    int n = 0;

    for (const char *s = line; s < end;) {
        if (*s == ' ' || *s == '\t' || *s == '\r') {
            s++;
            continue;
        }
        if (*s == '#') break;
        struct word word = {s, 0, *s == '"'};
        if (word.quoted) {
            const char *close = memchr(s + 1, '"', end - s - 1);
            if (!close) {
                word.length = end - s;
                refuse(p, &word, "a name in quotes ends with a quote on the same line");
                return -1;
            }
            word.start = s + 1;
            word.length = close - word.start;
            s = close + 1;
        } else {
            while (s < end && !memchr(" \t\r#\"", *s, 5)) s++;
            word.length = s - word.start;
        }
        if (n == MAX_WORDS) {
            refuse(p, &word, "the line has too many words");
            return -1;
        }
        words[n++] = word;
    }
    return n;
}

static bool architecture(struct parser *p, const struct word *word) {
    uint64_t arch;
    if (!word || word->quoted || !number(word->start, word->length, 10, 999, &arch))
        return refuse(p, word, "the architecture as a number, 90 for sm_90,");
    p->row.arch = (int)arch;
    return true;
}

static bool link_class(struct parser *p, const struct word *word) {
    char name[16] = "";
    if (word && !word->quoted && word->length < sizeof name) memcpy(name, word->start, word->length);
    p->row.link = (int)bl_link_find(name);
    return (p->row.link < BL_LINKS && bl_link_serves((enum bl_link)p->row.link)) ||
           refuse(p, word, "nvswitch or nvlink");
}

static bool nvlinks(struct parser *p, const struct word *word) {
    uint64_t links;
    if (!word || word->quoted || !number(word->start, word->length, 1, 999, &links))
        return refuse(p, word, "the NVLinks of a GPU, a number above 0,");
    p->row.nvlinks = (unsigned)links;
    return true;
}

static bool of_nccl(struct parser *p, const struct word *word) {
    p->row.nccl_nvls = word && is(word, "nvls");
    return p->row.nccl_nvls || (word && is(word, "plain")) || refuse(p, word, "nvls or plain");
}

/* gpu any | gpu "NAME" arch N; what else the section is for may follow: link CLASS, nvlinks N, nccl nvls or plain, multicast */
static bool section_line(struct parser *p, const struct word *words, int n) {
    static const struct {
        const char *word;
        bool (*take)(struct parser *p, const struct word *value);
    } keys[] = {{"link", link_class}, {"nvlinks", nvlinks}, {"nccl", of_nccl}};
    enum { KEYS = sizeof keys / sizeof *keys };
    struct bl_tuning_row *row = &p->row;

    *row = (struct bl_tuning_row){.section = row->section + 1, .link = -1, .nccl_nvls = -1};
    memset(p->last, 0, sizeof p->last);
    memset(p->rows, 0, sizeof p->rows);
    if (n < 2) return refuse(p, NULL, "any, or the GPU's name in quotes,");
    int at = 2;
    if (!is(&words[1], "any")) {
        if (!words[1].quoted || !words[1].length || words[1].length >= sizeof row->gpu)
            return refuse(p, &words[1], "any, or the GPU's name in quotes, 1 to 63 characters");
        if (n < 3 || !is(&words[2], "arch")) return refuse(p, n < 3 ? NULL : &words[2], "arch");
        if (!architecture(p, n < 4 ? NULL : &words[3])) return false;
        memcpy(row->gpu, words[1].start, words[1].length);
        at = 4;
    }
    for (; at < n; at++) {
        int key = 0;
        while (key < KEYS && !is(&words[at], keys[key].word)) key++;
        if (key == KEYS && at == n - 1 && is(&words[at], "multicast")) {
            row->multicast = true;
            return true;
        }
        if (key == KEYS) return refuse(p, &words[at], "link, nvlinks, nccl, and at the end multicast");
        at++;
        if (!keys[key].take(p, at < n ? &words[at] : NULL)) return false;
    }
    return true;
}

static bool spread(struct parser *p, const struct word *word, const char *value, size_t length) {
    char name[8] = "";
    if (length < sizeof name) memcpy(name, value, length);
    const int found = bl_spread_find(name), algorithm = p->row.algorithm;
    if (found == BL_NO_SPREAD) return refuse(p, word, "spread is lines or warps");
    if (found == BL_BY_WARPS && (algorithm < 0 || bl_algorithms[algorithm].kernel[BL_BY_WARPS] == BL_KERNEL_NONE))
        return refuse(p, word, "this algorithm does not spread over warps");
    p->row.spread = (enum bl_spread)found;
    return true;
}

/* blocks=N, threads=N, spread=lines or spread=warps */
static bool option(struct parser *p, const struct word *word) {
    const char *equals = memchr(word->start, '=', word->length);
    uint64_t value;

    if (equals && !word->quoted) {
        struct word key = {word->start, equals - word->start, false};
        size_t left = word->length - key.length - 1;
        if (is(&key, "blocks")) {
            if (!number(equals + 1, left, 1, MAX_BLOCKS, &value)) return refuse(p, word, "blocks is 1 to 1024");
            p->row.blocks = value;
            return true;
        }
        if (is(&key, "threads")) {
            if (!number(equals + 1, left, 32, BL_MAX_THREADS, &value) || value % 32)
                return refuse(p, word, "threads is 32 to 256 and a multiple of 32");
            p->row.threads = value;
            return true;
        }
        if (is(&key, "spread")) return spread(p, word, equals + 1, left);
    }
    return refuse(p, word, "blocks=N, threads=N, spread=lines or spread=warps");
}

/* A spread was an algorithm of its own once. */
static bool refuse_old_name(struct parser *p, const struct word *word, char *name) {
    char accepted[80], *end = strstr(name, "_warps");
    if (!end || end[strlen("_warps")]) return false;
    *end = 0;
    if (bl_algorithm_find(p->row.collective, name) < 0) return false;
    snprintf(accepted, sizeof accepted, "it is %s spread=warps now", name);
    refuse(p, word, accepted);
    return true;
}

static bool algorithm(struct parser *p, const struct word *word) {
    char name[32], names[160], accepted[256];

    if (!word->quoted && word->length < sizeof name) {
        memcpy(name, word->start, word->length);
        name[word->length] = 0;
        p->row.algorithm = BL_TUNING_PLAIN;
        if (p->row.multicast && !strcmp(name, "plain")) return true;
        p->row.algorithm = bl_algorithm_find(p->row.collective, name);
        if (p->row.algorithm >= BL_ROUTE_NCCL) return true;
        if (refuse_old_name(p, word, name)) return false;
    }
    bl_algorithm_list(p->row.collective, names, sizeof names);
    snprintf(accepted, sizeof accepted, "nccl, %s%s", p->row.multicast ? "plain, " : "", names);
    return refuse(p, word, accepted);
}

/* COLLECTIVE RANKS MAX_BYTES ALGORITHM [OPTION...] */
static bool row_line(struct parser *p, const struct word *words, int n) {
    static const char *const fields[] = {"the number of ranks", "the most bytes", "the algorithm"};
    struct bl_tuning_row *row = &p->row;
    uint64_t ranks;

    if (n < 4) return refuse(p, NULL, fields[n - 1]);
    if (words[1].quoted || !number(words[1].start, words[1].length, 2, BL_MAX_RANKS, &ranks))
        return refuse(p, &words[1], "the number of ranks is 2 to 16");
    row->ranks = ranks;
    if (!bytes(&words[2], &row->max_bytes))
        return refuse(p, &words[2], "the most bytes is a number above 0, K, M or G may follow, or max");
    if (!algorithm(p, &words[3])) return false;
    row->blocks = row->threads = 0;
    row->spread = BL_BY_LINES;
    for (int i = 4; i < n; i++)
        if (!option(p, &words[i])) return false;

    uint64_t *last = &p->last[row->collective][row->ranks];
    int *rows = &p->rows[row->collective][row->ranks];
    if (row->max_bytes <= *last)
        return refuse(p, &words[2], "the most bytes must rise from row to row of a collective and number of ranks");
    if (*rows == BL_TUNING_ROWS) return refuse(p, &words[0], "at most 12 rows for a collective and number of ranks");
    *last = row->max_bytes;
    ++*rows;
    return true;
}

static void line(struct parser *p, const struct word *words, int n) {
    if (is(&words[0], "gpu")) {
        p->section = section_line(p, words, n) ? INSIDE : SKIPPING;
        return;
    }
    for (int c = 0; c < BL_COLLECTIVES; c++) {
        if (!is(&words[0], bl_collective_name(c))) continue;
        p->row.collective = c;
        if (p->section == OUTSIDE) refuse(p, &words[0], "a gpu line must come first");
        if (p->section == INSIDE && row_line(p, words, n) && p->visit) p->visit(p->visit_arg, &p->row);
        return;
    }
    refuse(p, &words[0], "a line starts with gpu, the name of a collective, as all_reduce, or #");
}

void bl_tuning_parse(const char *name, const char *text, void (*visit)(void *arg, const struct bl_tuning_row *row),
                     void *visit_arg, void (*warn)(void *arg, const char *message), void *warn_arg) {
    struct parser p = {.name = name, .warn = warn, .warn_arg = warn_arg, .visit = visit, .visit_arg = visit_arg};
    struct word words[MAX_WORDS];

    p.row.section = -1;
    while (*text) {
        const char *end = text + strcspn(text, "\n");
        p.line++;
        int n = split(&p, text, end, words);
        if (n > 0) line(&p, words, n);
        text = *end ? end + 1 : end;
    }
    if (p.messages > MAX_MESSAGES && warn) {
        char message[300];
        snprintf(message, sizeof message, "%.200s: and %d lines more that are not accepted", name,
                 p.messages - MAX_MESSAGES);
        warn(warn_arg, message);
    }
}

static void count_mistake(void *arg, const char *message) {
    ++*(int *)arg;
}

int bl_tuning_mistakes(const char *text) {
    int mistakes = 0;
    bl_tuning_parse("", text, NULL, NULL, count_mistake, &mistakes);
    return mistakes;
}
