/* log.c - formats a line and writes it; allocates nothing. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "params.h"

static const char *const level_names[] = {"NOTE", "WARN", "INFO", "TRACE"};

/* BEELINE_DEBUG_FILE with %p and %h replaced; false if it does not fit. */
static bool expand(const char *pattern, char *path, size_t size) {
    size_t used = 0;
    for (const char *at = pattern; *at; at++) {
        char piece[HOST_NAME_MAX + 1] = {*at, 0};
        if (at[0] == '%' && at[1] == 'p')
            snprintf(piece, sizeof(piece), "%d", (int)getpid()), at++;
        else if (at[0] == '%' && at[1] == 'h') {
            if (gethostname(piece, sizeof(piece)) != 0) snprintf(piece, sizeof(piece), "unknown");
            piece[sizeof(piece) - 1] = 0;
            at++;
        }
        size_t length = strlen(piece);
        if (used + length >= size) return false;
        memcpy(path + used, piece, length + 1);
        used += length;
    }
    return true;
}

static void write_line(int fd, const char *line, size_t length) {
    ssize_t written;
    do written = write(fd, line, length);
    while (written < 0 && errno == EINTR);
}

/* A relative path means the directory where the process was when it logged first. */
static char directory[PATH_MAX];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void keep_directory(void) {
    if (!getcwd(directory, sizeof(directory))) strcpy(directory, ".");
}

/* Opened and closed by each line: a descriptor that is kept could be closed behind our back (daemons close all) and be
 * another file's by the next line, and the child of a fork has a %p of its own.  Where the file cannot be written the
 * log goes to stderr, which is told why. */
static int open_file(const char *pattern) {
    static atomic_bool told;
    char pattern_path[PATH_MAX], path[PATH_MAX];
    int fd = -1;
    pthread_once(&once, keep_directory);
    int length = snprintf(pattern_path, sizeof(pattern_path), "%s%s%s", *pattern == '/' ? "" : directory,
                          *pattern == '/' ? "" : "/", pattern);
    errno = ENAMETOOLONG;
    if (length < (int)sizeof(pattern_path) && expand(pattern_path, path, sizeof(path)))
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd >= 0 || atomic_exchange(&told, true)) return fd;
    char line[512];
    length = snprintf(line, sizeof(line), "beeline [%d] WARN BEELINE_DEBUG_FILE=%.256s cannot be opened: %s\n",
                      (int)getpid(), pattern, strerror(errno));
    write_line(STDERR_FILENO, line, (size_t)length);
    return fd;
}

bool bl_log_enabled(enum bl_log_level level) {
    return (int)level <= bl_params()->debug;
}

void bl_log(enum bl_log_level level, const char *format, ...) {
    if (!bl_log_enabled(level)) return;
    int error = errno; /* the caller's */
    char line[2048];
    int start = snprintf(line, sizeof(line), "beeline [%d] %s ", (int)getpid(), level_names[level]);
    va_list list;
    va_start(list, format);
    int length = vsnprintf(line + start, sizeof(line) - (size_t)start, format, list);
    va_end(list);
    size_t end = length < 0 ? (size_t)start : (size_t)start + (size_t)length;
    if (end > sizeof(line) - 1) {
        end = sizeof(line) - 1;
        memcpy(line + end - 3, "...", 3);
    }
    line[end] = '\n';
    const char *pattern = bl_params()->debug_file;
    int fd = pattern ? open_file(pattern) : -1;
    write_line(fd < 0 ? STDERR_FILENO : fd, line, end + 1);
    if (fd >= 0) close(fd);
    errno = error;
}
