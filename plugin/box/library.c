/* library.c - see library.h. */
#include "library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

bool bl_library_open(const char *file, const struct bl_library_row *rows, size_t count, void *table, char *why,
                     size_t size) {
    void *library = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
    if (!library) snprintf(why, size, "%s", dlerror());
    for (size_t i = 0; library && i < count; i++) {
        void *symbol = dlsym(library, rows[i].name);
        if (!symbol && rows[i].needed) {
            snprintf(why, size, "%s has no %s", file, rows[i].name);
            return false;
        }
        memcpy((char *)table + rows[i].at, &symbol, sizeof(symbol));
    }
    return library;
}
