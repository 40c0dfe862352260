/* routes.c - reads what somebody says of a collective's routes. */
#include <string.h>

#include "dispatch.h"

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

static void skip_blanks(const char **at) {
    while (is_blank(**at)) (*at)++;
}

/* "16K": digits, and one of K, M and G.  False if there are none, or too many. */
static bool read_bytes(const char **at, uint64_t *bytes) {
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
    return value && value <= (UINT64_MAX - 1) >> shift;
}

/* "0..16K", "..16K", ".." or nothing, which means all that is left. */
static bool read_sizes(const char **at, bool first, uint64_t *max_bytes) {
    *max_bytes = UINT64_MAX;
    if (first && !strncmp(*at, "0..", 3)) (*at)++;
    if (strncmp(*at, "..", 2)) return true;
    *at += 2;
    return (is_blank(**at) || read_bytes(at, max_bytes)) && is_blank(**at);
}

static int read_name(const char **at, enum bl_collective collective) {
    char name[32];
    const size_t length = strcspn(*at, " \t|");
    if (length >= sizeof name) return BL_NO_ALGORITHM;
    memcpy(name, *at, length);
    name[length] = 0;
    *at += length;
    return bl_algorithm_find(collective, name);
}

bool bl_routes_parse(const char *text, enum bl_collective collective, struct bl_routes *routes) {
    *routes = (struct bl_routes){0};
    for (const char *at = text;; at++) {
        struct bl_routes_row *row = &routes->row[routes->rows];
        if (routes->rows == BL_ROUTES_ROWS) return false;
        skip_blanks(&at);
        if (!read_sizes(&at, !routes->rows, &row->max_bytes)) return false;
        skip_blanks(&at);
        row->algorithm = read_name(&at, collective);
        if (row->algorithm == BL_NO_ALGORITHM) return false;
        if (routes->rows && row->max_bytes <= row[-1].max_bytes) return false;
        routes->rows++;
        skip_blanks(&at);
        if (!*at) return true;
        if (*at != '|') return false;
    }
}
