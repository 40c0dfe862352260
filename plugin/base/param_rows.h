/* param_rows.h - params.def as a table, and what each kind of row accepts and prints.
 *
 * Threads: any; nothing here keeps state.  Errors: a text that is not accepted leaves the member alone.
 */
#ifndef BEELINE_PARAM_ROWS_H
#define BEELINE_PARAM_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Kinds of a row: FLAG (0/1/on/off/true/false/yes/no), BYTES (with K/M/G),
 * COUNT (times, too), CHOICE (of names), ROUTES (of a collective, or nccl; NULL if unset), TEXT (a path; NULL if unset), SELECTION
 * (of communicators; NULL if unset).  A variable that is set to nothing counts as unset. */
struct bl_params {
#define BL_PARAM_FLAG(member, variable, value, category, help)             bool member;
#define BL_PARAM_BYTES(member, variable, value, low, high, category, help) uint64_t member;
#define BL_PARAM_COUNT(member, variable, value, low, high, category, help) uint64_t member;
#define BL_PARAM_CHOICE(member, variable, value, names, category, help)    int member;
#define BL_PARAM_ROUTES(member, variable, collective, category, help)      const char *member;
#define BL_PARAM_TEXT(member, variable, category, help)                    const char *member;
#define BL_PARAM_SELECTION(member, variable, category, help)               const char *member;
#include "params.def"
};

struct bl_param_row;

struct bl_param_kind {
    bool (*parse)(const struct bl_param_row *row, const char *text, void *member); /* false: not accepted */
    void (*set_default)(const struct bl_param_row *row, void *member);
    void (*format)(const struct bl_param_row *row, const void *member, char *text, size_t size); /* "" if unset */
    void (*accepted)(const struct bl_param_row *row, char *text, size_t size);
};

struct bl_param_row {
    const char *variable;
    const struct bl_param_kind *kind;
    size_t offset;             /* of the member in struct bl_params */
    uint64_t value, low, high; /* default and range; of a choice, its index; of routes, low is the collective */
    const char *names;         /* of a choice: "NONE|WARN" */
    const char *category, *help;
};

/* One of the `words` ("2|ZERO") in `other` sets the flag that is `variable`, where that is unset. */
struct bl_param_also {
    const char *variable, *other, *words;
};

extern const struct bl_param_row bl_param_rows[];
extern const struct bl_param_also bl_param_alsos[];
extern const int bl_param_row_count, bl_param_also_count;

/* Whether it is one of "2|ZERO", in any case. */
bool bl_param_is_one_of(const char *text, const char *words);

/* A switch. */
bool bl_param_parse_flag(const char *text, bool *value);

#endif
