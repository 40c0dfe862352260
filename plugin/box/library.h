/* library.h - libraries that are found at run time, and may lack. */
#ifndef BEELINE_LIBRARY_H
#define BEELINE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

/* A function, and where its pointer goes in the caller's table; NULL there if it lacks and is not needed. */
struct bl_library_row {
    const char *name;
    size_t at;
    bool needed;
};

/* Opens `file` for good and fills the table; false and, in `why`, the reason, if it is not there or lacks a function that is needed. */
bool bl_library_open(const char *file, const struct bl_library_row *rows, size_t count, void *table, char *why,
                     size_t size);

#endif
