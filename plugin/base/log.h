/* log.h - one line a fact, to stderr or to BEELINE_DEBUG_FILE.
 *
 * Levels: NONE, WARN (default: something is wrong and the line says what to do), INFO (what was chosen and why), TRACE.
 * What is logged at NONE is written whatever the level, as NOTE: what another parameter asks for.
 * Each line: "beeline [pid] LEVEL text".  Threads: any; a line is written with one write().  Never fails, never aborts;
 * waits for who reads the log only where stderr is a pipe that is full.
 *
 * WARN lines are limited: a place in the source that logs says its first ten, then one a minute, which tells how many were
 * left out.  That is what the macros' static variable is for; a place whose lines are few by themselves passes NULL.
 */
#ifndef BEELINE_LOG_H
#define BEELINE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

enum bl_log_level { BL_LOG_NONE, BL_LOG_WARN, BL_LOG_INFO, BL_LOG_TRACE };

/* What one place in the source has said at WARN; all zero at first. */
struct bl_log_site {
    atomic_uint said, left_out;
    atomic_ullong next_ns; /* when it may speak again */
};

/* What is logged from now on, and where to: the pattern of a file (%p the process id, %h the host), which is not copied, or
 * NULL for stderr.  Before, WARN, to stderr. */
void bl_log_open(enum bl_log_level level, const char *pattern);

bool bl_log_enabled(enum bl_log_level level);
void bl_log_at(struct bl_log_site *site, enum bl_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define bl_log(level, ...)                                                                                             \
    do {                                                                                                               \
        static struct bl_log_site bl_log_site_;                                                                        \
        bl_log_at(&bl_log_site_, level, __VA_ARGS__);                                                                  \
    } while (0)
#define bl_warn(...) bl_log(BL_LOG_WARN, __VA_ARGS__)
#define bl_info(...)                                                                                                   \
    do {                                                                                                               \
        if (bl_log_enabled(BL_LOG_INFO)) bl_log_at(NULL, BL_LOG_INFO, __VA_ARGS__);                                    \
    } while (0)
#define bl_trace(...)                                                                                                  \
    do {                                                                                                               \
        if (bl_log_enabled(BL_LOG_TRACE)) bl_log_at(NULL, BL_LOG_TRACE, __VA_ARGS__);                                  \
    } while (0)

#endif
