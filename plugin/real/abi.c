/* abi.c - see abi.h. */
#include "abi.h"

#include <string.h>

const struct bl_abi_row *bl_abi_find(const char *name) {
    int low = 0, high = bl_abi_count - 1;
    while (low <= high) {
        int middle = (low + high) / 2, order = strcmp(name, bl_abi_rows[middle].name);
        if (order == 0) return &bl_abi_rows[middle];
        if (order < 0)
            high = middle - 1;
        else
            low = middle + 1;
    }
    return NULL;
}
