/* param_rows.h - params.def as a table, and what each kind of row accepts and prints.
 *
 * Threads: any; nothing here keeps state.  Errors: a text that is not accepted leaves the member alone.
 */
#ifndef BEELINE_PARAM_ROWS_H
#define BEELINE_PARAM_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels.h"

/* Kinds of a row, and what a member of each is.  A variable that is set to nothing counts as unset. */
typedef bool bl_param_flag;             /* 0/1/on/off/true/false/yes/no */
typedef uint64_t bl_param_bytes;        /* with K/M/G */
typedef uint64_t bl_param_count;        /* times, too */
typedef int bl_param_choice;            /* index of a name */
typedef const char *bl_param_routes;    /* of a collective, or nccl; NULL if unset */
typedef const char *bl_param_text;      /* NULL if unset */
typedef const char *bl_param_selection; /* of communicators; NULL if unset */

enum { BL_STAGING_USUAL = 100 << 20 }; /* bytes: the default of BEELINE_STAGING */

struct bl_params {
#define BL_PARAM(kind, member, ...) bl_param_##kind member;
#define BL_PARAM_ROUTES(...)
#include "params.def"
    bl_param_routes routes[BL_COLLECTIVES];
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
    size_t offset; /* of the member in struct bl_params */
    const char *category, *help;
    uint64_t value, low, high;     /* default and range; of a choice, its index */
    const char *names;             /* of a choice: "NONE|WARN"; of a text: what it may be, NULL for a path */
    enum bl_collective collective; /* of routes */
};

/* A whole number but 0 in `other` sets the flag that is `variable`, where that is unset. */
struct bl_param_also {
    const char *variable, *other;
};

extern const struct bl_param_row bl_param_rows[];
extern const struct bl_param_also bl_param_alsos[];
extern const int bl_param_row_count, bl_param_also_count;

/* Whether it is one of "2|ZERO", in any case. */
bool bl_param_is_one_of(const char *text, const char *words);

/* A switch. */
bool bl_param_parse_flag(const char *text, bool *value);

#endif
