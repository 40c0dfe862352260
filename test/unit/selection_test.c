/* selection_test.c - lists of communicators, good and bad. */
#include "base/selection.h"

#include <stdio.h>

static const struct {
    const char *list, *name;
    int nranks;
    bool has;
} cases[] = {
    {NULL, "", 4, true},
    {"tp*", "tp0", 4, true},
    {"tp*", "pp0", 4, false},
    {"tp*", "", 4, false},
    {"*", "", 4, true},
    {"!tp*", "tp0", 4, false},
    {"!tp*", "pp0", 4, true},
    {"!tp*", "", 4, true},
    {"tp*,ranks=2-4", "pp", 2, true},
    {"tp*,ranks=2-4", "pp", 4, true},
    {"tp*,ranks=2-4", "pp", 5, false},
    {"tp*,ranks=2-4", "tp", 5, true},
    {"!ranks=8,!ep?", "tp", 8, false},
    {"!ranks=8,!ep?", "ep1", 4, false},
    {"!ranks=8,!ep?", "ep12", 4, true},
    {"!tp9,tp*", "tp9", 4, false},
    {"!tp9,tp*", "tp8", 4, true},
    {"!tp9,tp*", "pp", 4, false},
    {"[tp]p*", "pp1", 4, true},
};

static const char *const bad[] = {"",        ",",         "tp,",      "tp,,pp",    "ranks=",      "ranks=x",
                                  "ranks=0", "ranks=4-2", "ranks=2-", "!ranks=2x", "ranks=2-4-8", ",tp"};

int main(void) {
    int failed = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (cases[i].list && !bl_selection_valid(cases[i].list))
            printf("FAIL %s is not valid\n", cases[i].list), failed++;
        if (bl_selection_has(cases[i].list, cases[i].name, cases[i].nranks) != cases[i].has)
            printf("FAIL %s: \"%s\" of %d ranks\n", cases[i].list, cases[i].name, cases[i].nranks), failed++;
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (bl_selection_valid(bad[i])) printf("FAIL \"%s\" is valid\n", bad[i]), failed++;
    return failed != 0;
}
