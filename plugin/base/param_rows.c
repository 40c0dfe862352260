/* param_rows.c - the kinds of parameters, and the rows of params.def. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "dispatch.h"
#include "param_rows.h"
#include "selection.h"

bool bl_param_parse_flag(const char *text, bool *value) {
    static const char *const words[][2] = {{"0", "1"}, {"off", "on"}, {"false", "true"}, {"no", "yes"}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        for (int truth = 0; truth < 2; truth++)
            if (strcasecmp(text, words[i][truth]) == 0) {
                *value = truth;
                return true;
            }
    return false;
}

/* --- FLAG --- */
static bool flag_parse(const struct bl_param_row *row, const char *text, void *member) {
    return bl_param_parse_flag(text, member);
}
static void flag_default(const struct bl_param_row *row, void *member) {
    *(bool *)member = row->value != 0;
}
static void flag_format(const struct bl_param_row *row, const void *member, char *text, size_t size) {
    snprintf(text, size, "%d", *(const bool *)member);
}
static void flag_accepted(const struct bl_param_row *row, char *text, size_t size) {
    snprintf(text, size, "0, off, false, no or 1, on, true, yes");
}

/* --- COUNT and BYTES, which have suffixes --- */
static const struct bl_param_kind bytes;

static bool number_parse(const struct bl_param_row *row, const char *text, void *member) {
    uint64_t value;
    if (!bl_size_read(&text, &value) || *text || (row->kind != &bytes && !isdigit((unsigned char)text[-1])))
        return false;
    if (value < row->low || value > row->high) return false;
    *(uint64_t *)member = value;
    return true;
}
static void number_default(const struct bl_param_row *row, void *member) {
    *(uint64_t *)member = row->value;
}
static void number_format(const struct bl_param_row *row, const void *member, char *text, size_t size) {
    const uint64_t value = *(const uint64_t *)member;
    if (row->kind == &bytes)
        bl_size_format(value, text, size);
    else
        snprintf(text, size, "%llu", (unsigned long long)value);
}
static void number_accepted(const struct bl_param_row *row, char *text, size_t size) {
    char low[24], high[24];
    number_format(row, &row->low, low, sizeof(low));
    number_format(row, &row->high, high, sizeof(high));
    snprintf(text, size, "%s, %s to %s", row->kind == &bytes ? "bytes" : "a whole number", low, high);
}

/* --- CHOICE --- */
/* The names one after the other; false at the end. */
static bool next_name(const char **at, const char **name, size_t *length) {
    if (!**at) return false;
    *name = *at;
    *length = strcspn(*at, "|");
    *at += *length + ((*at)[*length] == '|');
    return true;
}
/* Where `text` stands in "NONE|WARN", -1 if nowhere. */
static int index_of(const char *text, const char *names) {
    const char *name;
    size_t length;
    for (int i = 0; next_name(&names, &name, &length); i++)
        if (strlen(text) == length && strncasecmp(text, name, length) == 0) return i;
    return -1;
}
bool bl_param_is_one_of(const char *text, const char *words) {
    return index_of(text, words) >= 0;
}
static bool choice_parse(const struct bl_param_row *row, const char *text, void *member) {
    const int index = index_of(text, row->names);
    if (index >= 0) *(int *)member = index;
    return index >= 0;
}
static void choice_default(const struct bl_param_row *row, void *member) {
    *(int *)member = (int)row->value;
}
static void choice_format(const struct bl_param_row *row, const void *member, char *text, size_t size) {
    const char *names = row->names, *name = "";
    size_t length = 0;
    for (int i = *(const int *)member; i >= 0 && next_name(&names, &name, &length); i--) continue;
    snprintf(text, size, "%.*s", (int)length, name);
}
static void choice_accepted(const struct bl_param_row *row, char *text, size_t size) {
    const char *names = row->names, *name;
    size_t length, used = 0;
    if (size) *text = 0;
    while (used < size && next_name(&names, &name, &length))
        used += (size_t)snprintf(text + used, size - used, "%s%.*s", used ? ", " : "", (int)length, name);
}

/* --- TEXT and ROUTES --- */
static bool text_parse(const struct bl_param_row *row, const char *text, void *member) {
    char *copy = strdup(text); /* the process may change its environment later */
    if (copy) *(const char **)member = copy;
    return copy != NULL;
}
static void text_default(const struct bl_param_row *row, void *member) {
    *(const char **)member = NULL;
}
static void text_format(const struct bl_param_row *row, const void *member, char *text, size_t size) {
    const char *value = *(const char *const *)member;
    snprintf(text, size, "%s", value ? value : "");
}
static void text_accepted(const struct bl_param_row *row, char *text, size_t size) {
    snprintf(text, size, "%s", row->names ? row->names : "a path");
}
static bool routes_parse(const struct bl_param_row *row, const char *text, void *member) {
    struct bl_routes routes;
    return bl_routes_parse(text, row->collective, &routes) && text_parse(row, text, member);
}
static void routes_accepted(const struct bl_param_row *row, char *text, size_t size) {
    char names[160];
    bl_algorithm_list(row->collective, names, sizeof(names));
    snprintf(text, size, "nccl, %s; or sizes and names: ..16K NAME | ..1M NAME | nccl", names);
}

/* --- SELECTION --- */
static bool selection_parse(const struct bl_param_row *row, const char *text, void *member) {
    return bl_selection_valid(text) && text_parse(row, text, member);
}
static void selection_accepted(const struct bl_param_row *row, char *text, size_t size) {
    snprintf(text, size,
             "patterns of names and ranks=N or ranks=N-M, with commas between them, each with or without !");
}

static const struct bl_param_kind flag = {flag_parse, flag_default, flag_format, flag_accepted};
static const struct bl_param_kind count = {number_parse, number_default, number_format, number_accepted};
static const struct bl_param_kind bytes = {number_parse, number_default, number_format, number_accepted};
static const struct bl_param_kind choice = {choice_parse, choice_default, choice_format, choice_accepted};
static const struct bl_param_kind text = {text_parse, text_default, text_format, text_accepted};
static const struct bl_param_kind selection = {selection_parse, text_default, text_format, selection_accepted};
static const struct bl_param_kind routes = {routes_parse, text_default, text_format, routes_accepted};

const struct bl_param_row bl_param_rows[] = {
#define BL_PARAM(kind_, member, variable_, category_, help_, ...)                                                      \
    {.variable = variable_,                                                                                            \
     .kind = &kind_,                                                                                                   \
     .offset = offsetof(struct bl_params, member),                                                                     \
     .category = category_,                                                                                            \
     .help = help_,                                                                                                    \
     __VA_ARGS__},
#include "params.def"
};
const int bl_param_row_count = sizeof(bl_param_rows) / sizeof(bl_param_rows[0]);

const struct bl_param_also bl_param_alsos[] = {
#define BL_PARAM_ALSO(variable, other) {variable, other},
#include "params.def"
};
const int bl_param_also_count = sizeof(bl_param_alsos) / sizeof(bl_param_alsos[0]);
