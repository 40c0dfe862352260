/* json.h - a string as JSON has it. */
#ifndef BEELINE_JSON_H
#define BEELINE_JSON_H

#include <stdio.h>

static inline void bl_json_string(FILE *out, const char *text) {
    fputc('"', out);
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        fprintf(out, c == '"' || c == '\\' ? "\\%c" : c < 0x20 ? "\\u%04x" : "%c", c);
    }
    fputc('"', out);
}

#endif
