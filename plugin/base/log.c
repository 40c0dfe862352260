/* log.c - formats a line and writes it; allocates nothing. */
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "file.h"
#include "log.h"

enum { FIRST_LINES = 10 }; /* of a place, at WARN, before its lines are a minute apart */
static const unsigned long long APART_NS = 60000000000ull;

static const char *const level_names[] = {"NOTE", "WARN", "INFO", "TRACE"};

static void write_line(int fd, const char *line, size_t length) {
    ssize_t written;
    do written = write(fd, line, length);
    while (written < 0 && errno == EINTR);
}

/* Opened and closed by each line: a descriptor that is kept could be closed behind our back (daemons close all) and be
 * another file's by the next line, and the child of a fork has a %p of its own.  Where the file cannot be written the
 * log goes to stderr, which is told why. */
static int open_file(const char *pattern) {
    static atomic_bool logged;
    const char *why;
    int fd = bl_file_open(pattern, &why);
    if (fd >= 0 || atomic_exchange(&logged, true)) return fd;
    char line[512];
    int length = snprintf(line, sizeof(line), "beeline [%d] WARN BEELINE_DEBUG_FILE=%.256s cannot be opened: %s\n",
                          (int)getpid(), pattern, why);
    write_line(STDERR_FILENO, line, (size_t)length);
    return fd;
}

/* Whether a line at WARN is left out; if not, what it has to tell of those that were. */
static bool leave_out(struct bl_log_site *site, char *note, size_t size) {
    const unsigned said = atomic_load(&site->said) < FIRST_LINES ? atomic_fetch_add(&site->said, 1) : FIRST_LINES;
    *note = 0;
    if (said + 1 < FIRST_LINES) return false;
    const unsigned long long ns = bl_clock_ns();
    unsigned long long next = atomic_load(&site->next_ns);
    if ((next && ns < next) || !atomic_compare_exchange_strong(&site->next_ns, &next, ns + APART_NS)) {
        atomic_fetch_add(&site->left_out, 1);
        return true;
    }
    if (next)
        snprintf(note, size, " (%u such lines were left out)", atomic_exchange(&site->left_out, 0));
    else
        snprintf(note, size, " (from now on one such line a minute)");
    return false;
}

static atomic_int highest = BL_LOG_WARN;
static const char *_Atomic file; /* NULL: stderr */

void bl_log_open(enum bl_log_level level, const char *pattern) {
    atomic_store(&file, pattern);
    atomic_store(&highest, (int)level);
}

bool bl_log_enabled(enum bl_log_level level) {
    return (int)level <= atomic_load_explicit(&highest, memory_order_relaxed);
}

void bl_log_at(struct bl_log_site *site, enum bl_log_level level, const char *format, ...) {
    char note[64] = "";
    if (!bl_log_enabled(level)) return;
    int error = errno; /* the caller's */
    if (level == BL_LOG_WARN && site && leave_out(site, note, sizeof(note))) return;
    char line[2048];
    const size_t room = sizeof(line) - 1 - strlen(note); /* the note comes behind what is cut off, too */
    int start = snprintf(line, room, "beeline [%d] %s ", (int)getpid(), level_names[level]);
    va_list list;
    va_start(list, format);
    int length = vsnprintf(line + start, room - (size_t)start, format, list);
    va_end(list);
    size_t end = length < 0 ? (size_t)start : (size_t)start + (size_t)length;
    if (end > room - 1) {
        end = room - 1;
        memcpy(line + end - 3, "...", 3);
    }
    end += (size_t)snprintf(line + end, sizeof(line) - end, "%s\n", note);
    const char *pattern = atomic_load(&file);
    int fd = pattern ? open_file(pattern) : -1;
    write_line(fd < 0 ? STDERR_FILENO : fd, line, end);
    if (fd >= 0) close(fd);
    errno = error;
}
