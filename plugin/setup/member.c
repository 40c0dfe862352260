/* member.c - see member.h. */
#include "member.h"

#include <stdarg.h>
#include <stdio.h>

void bl_member_fail(struct bl_member *member, enum bl_fate fate, int culprit, const char *format, ...) {
    char why[sizeof(member->verdict.why)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof(why), format, arguments);
    va_end(arguments);
    bl_verdict_say(&member->verdict, member->comm->rank, fate, culprit, "%s", why);
}

void bl_member_fail_multicast(struct bl_member *member, enum bl_fate fate, int culprit, const char *format, ...) {
    char why[sizeof(member->multicast.why)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof(why), format, arguments);
    va_end(arguments);
    bl_verdict_say(&member->multicast, member->comm->rank, fate, culprit, "%s", why);
}
