/* param_rows.h - params.def as a table, and what each kind of row accepts and prints.
 *
 * Threads: any; nothing here keeps state.  Errors: a text that is not accepted leaves the member alone.
 */
#ifndef BEELINE_PARAM_ROWS_H
#define BEELINE_PARAM_ROWS_H

#include "params.h"

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
    uint64_t value, low, high; /* default and range; of a choice, its index; of an algorithm, low is the collective */
    const char *names;         /* of a choice: "NONE|WARN" */
    const char *category, *help;
};

/* `other` sets what `variable` sets, where that is unset; for a flag, `words` ("2|ZERO") are those that set it. */
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
