/* routes.c - reads what somebody says of a collective's routes, and the sizes in it. */
#include <stdio.h>
#include <string.h>

#include "dispatch.h"

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

static void skip_blanks(const char **at) {
    while (is_blank(**at)) (*at)++;
}

bool bl_size_read(const char **at, uint64_t *bytes) {
    static const char units[] = "KMGkmg";
    uint64_t value = 0;
    const char *from = *at;
    for (; **at >= '0' && **at <= '9'; (*at)++)
        if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(**at - '0'), &value))
            return false;
    if (*at == from) return false;
    const char *unit = **at ? strchr(units, **at) : NULL;
    const int shift = unit ? 10 * (int)((unit - units) % 3 + 1) : 0;
    *at += unit != NULL;
    *bytes = value << shift;
    return value <= (UINT64_MAX - 1) >> shift;
}

void bl_size_format(uint64_t bytes, char *text, size_t size) {
    static const char units[] = "\0KMG";
    int unit = 0;
    for (; unit < 3 && bytes && bytes % 1024 == 0; unit++) bytes /= 1024;
    snprintf(text, size, "%llu%.1s", (unsigned long long)bytes, &units[unit]);
}

/* "0..16K", "..16K", ".." or nothing, which means all that is left. */
static bool read_sizes(const char **at, bool first, uint64_t *max_bytes) {
    *max_bytes = UINT64_MAX;
    if (first && !strncmp(*at, "0..", 3)) (*at)++;
    if (strncmp(*at, "..", 2)) return true;
    *at += 2;
    return (is_blank(**at) || (bl_size_read(at, max_bytes) && *max_bytes)) && is_blank(**at);
}

static bool read_word(const char **at, const char *ends, char *word, size_t size) {
    const size_t length = strcspn(*at, ends);
    if (length >= size) return false;
    memcpy(word, *at, length);
    word[length] = 0;
    *at += length;
    return true;
}

/* "oneshot_ll128", "oneshot_ll128:warps". */
static bool read_name(const char **at, enum bl_collective collective, struct bl_routes_row *row) {
    char word[32];
    if (!read_word(at, " \t|:", word, sizeof word)) return false;
    row->algorithm = bl_algorithm_find(collective, word);
    row->spread = BL_NO_SPREAD;
    if (row->algorithm == BL_NO_ALGORITHM || **at != ':') return row->algorithm != BL_NO_ALGORITHM;
    ++*at;
    if (!read_word(at, " \t|", word, sizeof word) || row->algorithm == BL_ROUTE_NCCL) return false;
    row->spread = bl_spread_find(word);
    return row->spread != BL_NO_SPREAD && bl_algorithms[row->algorithm].kernel[BL_BY_WARPS] != BL_KERNEL_NONE;
}

bool bl_routes_parse(const char *text, enum bl_collective collective, struct bl_routes *routes) {
    *routes = (struct bl_routes){0};
    for (const char *at = text;; at++) {
        struct bl_routes_row *row = &routes->row[routes->rows];
        if (routes->rows == BL_ROUTES_ROWS) return false;
        skip_blanks(&at);
        if (!read_sizes(&at, !routes->rows, &row->max_bytes)) return false;
        skip_blanks(&at);
        if (!read_name(&at, collective, row)) return false;
        if (routes->rows && row->max_bytes <= row[-1].max_bytes) return false;
        routes->rows++;
        skip_blanks(&at);
        if (!*at) return true;
        if (*at != '|') return false;
    }
}
