/* why.c - see why.h. */
#include "why.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char why[240];

int bl_fail(const char *format, ...) {
    char text[sizeof(why)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    memcpy(why, text, sizeof(why));
    return -1;
}

const char *bl_why(void) {
    return why;
}
