/* check.h - checks of a unit test: counted, and said where they fail. */
#ifndef BEELINE_UNIT_CHECK_H
#define BEELINE_UNIT_CHECK_H

#include <stdio.h>

static int failures;
static long checks;

#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        checks++;                                                                                                      \
        if (!(condition)) {                                                                                            \
            failures++;                                                                                                \
            printf("%s:%d: %s: ", __FILE__, __LINE__, #condition);                                                     \
            printf(" " __VA_ARGS__);                                                                                   \
            putchar('\n');                                                                                             \
        }                                                                                                              \
    } while (0)

/* The exit status. */
static inline int say_checks(void) {
    printf("%ld checks, %d failures\n", checks, failures);
    return failures != 0;
}

#endif
