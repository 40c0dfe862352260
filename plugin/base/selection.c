/* selection.c - see selection.h. */
#include "selection.h"

#include <fnmatch.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { LONGEST = 127 };

struct item {
    bool leaves_out;
    int from, to;              /* numbers of ranks; from 0: it is a pattern */
    char pattern[LONGEST + 1]; /* of names */
};

static bool read_ranks(const char *text, struct item *item) {
    int end = 0;
    if (sscanf(text, "%4d%n", &item->from, &end) != 1 || item->from < 1) return false;
    item->to = item->from;
    if (text[end] == '-') {
        text += end + 1;
        if (sscanf(text, "%4d%n", &item->to, &end) != 1) return false;
    }
    return !text[end] && item->to >= item->from;
}

/* The next item of *list, and moves on; false if it is none.  Not to be called at the end. */
static bool next_item(const char **list, struct item *item) {
    const size_t length = strcspn(*list, ",");
    const bool leaves_out = **list == '!', more = (*list)[length] == ',';
    *item = (struct item){.leaves_out = leaves_out};
    if (length == 0 || length > LONGEST || (more && !(*list)[length + 1])) return false;
    memcpy(item->pattern, *list + leaves_out, length - leaves_out);
    *list += length + more;
    return strncmp(item->pattern, "ranks=", 6) != 0 || read_ranks(item->pattern + 6, item);
}

bool bl_selection_valid(const char *list) {
    struct item item;
    if (!*list) return false;
    while (*list)
        if (!next_item(&list, &item)) return false;
    return true;
}

bool bl_selection_has(const char *list, const char *name, int nranks) {
    struct item item;
    bool only_out = true;
    while (list && *list) {
        if (!next_item(&list, &item)) return true;
        const bool matches = item.from ? nranks >= item.from && nranks <= item.to : fnmatch(item.pattern, name, 0) == 0;
        if (matches) return !item.leaves_out;
        only_out = only_out && item.leaves_out;
    }
    return only_out;
}
