/* log.h - one line a fact, to stderr or to BEELINE_DEBUG_FILE.
 *
 * Levels: NONE, WARN (default: something is wrong and the line says what to do), INFO (what was chosen and why), TRACE.
 * What is logged at NONE is written whatever the level, as NOTE: what another parameter asks for.
 * Each line: "beeline [pid] LEVEL text".  Threads: any; a line is written with one write().  Never fails, never aborts.
 */
#ifndef BEELINE_LOG_H
#define BEELINE_LOG_H

#include <stdbool.h>

enum bl_log_level { BL_LOG_NONE, BL_LOG_WARN, BL_LOG_INFO, BL_LOG_TRACE };

bool bl_log_enabled(enum bl_log_level level);
void bl_log(enum bl_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define bl_warn(...) bl_log(BL_LOG_WARN, __VA_ARGS__)
#define bl_info(...)                                                                                                   \
    do {                                                                                                               \
        if (bl_log_enabled(BL_LOG_INFO)) bl_log(BL_LOG_INFO, __VA_ARGS__);                                             \
    } while (0)
#define bl_trace(...)                                                                                                  \
    do {                                                                                                               \
        if (bl_log_enabled(BL_LOG_TRACE)) bl_log(BL_LOG_TRACE, __VA_ARGS__);                                           \
    } while (0)

#endif
