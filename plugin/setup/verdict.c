/* verdict.c - what one rank says, and what all report. */
#include "verdict.h"

#include <stdarg.h>
#include <stdio.h>

void bl_verdict_say(struct bl_verdict *verdict, int rank, enum bl_outcome outcome, int culprit, const char *format,
                    ...) {
    if (verdict->outcome != BL_WELL) return;
    verdict->outcome = outcome;
    verdict->culprit = culprit;
    int used = culprit == rank ? snprintf(verdict->why, sizeof(verdict->why), "rank %d: ", culprit) : 0;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(verdict->why + used, sizeof(verdict->why) - (size_t)used, format, arguments);
    va_end(arguments);
}

struct bl_verdict bl_verdict_choose(const struct bl_verdict *verdicts, int nranks) {
    for (int outcome = BL_FAILED; outcome > BL_WELL; outcome--) {
        for (int rank = 0; rank < nranks; rank++)
            if (verdicts[rank].outcome == outcome && verdicts[rank].culprit == rank && verdicts[rank].magic)
                return verdicts[rank];
        for (int rank = 0; rank < nranks; rank++)
            if (verdicts[rank].outcome == outcome && verdicts[rank].culprit >= 0) return verdicts[rank];
        for (int rank = 0; rank < nranks; rank++)
            if (verdicts[rank].outcome == outcome) return verdicts[rank];
    }
    return verdicts[0];
}
