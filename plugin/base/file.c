#define _GNU_SOURCE
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The pattern with %p and %h replaced; false if it does not fit. */
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

static char directory[PATH_MAX];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void keep_directory(void) {
    if (!getcwd(directory, sizeof(directory))) strcpy(directory, ".");
}

static int open_regular(const char *path, const char **why) {
    struct stat status;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0644);
    *why = errno == ELOOP   ? "a symbolic link, or too many on the way"
           : errno == ENXIO ? "a FIFO, a socket, or a device that is not there"
                            : strerror(errno);
    if (fd < 0) return -1;
    if (fstat(fd, &status) == 0 && (S_ISREG(status.st_mode) || S_ISCHR(status.st_mode))) return fd;
    *why = "neither a regular file nor a character device";
    close(fd);
    return -1;
}

int bl_file_open(const char *pattern, const char **why) {
    char pattern_path[PATH_MAX], path[PATH_MAX];
    pthread_once(&once, keep_directory);
    int length = snprintf(pattern_path, sizeof(pattern_path), "%s%s%s", *pattern == '/' ? "" : directory,
                          *pattern == '/' ? "" : "/", pattern);
    *why = strerror(ENAMETOOLONG);
    return length < (int)sizeof(pattern_path) && expand(pattern_path, path, sizeof(path)) ? open_regular(path, why)
                                                                                          : -1;
}

enum { MOST_TEXT = 1 << 20 };

static char *read_text(int fd, const char **why) {
    struct stat status;
    size_t used = 0;
    ssize_t got = 0;
    char *text = NULL;
    *why = "not a file";
    if (fstat(fd, &status) || !(S_ISREG(status.st_mode) || S_ISCHR(status.st_mode))) return NULL;
    *why = "out of host memory";
    text = malloc(MOST_TEXT + 1);
    while (text && used < MOST_TEXT && (got = read(fd, text + used, MOST_TEXT - used)) > 0) used += (size_t)got;
    if (!text) return NULL;
    text[used] = 0;
    *why = got < 0               ? strerror(errno)
           : used == MOST_TEXT   ? "it has 1 MiB or more"
           : strlen(text) < used ? "it is no text"
                                 : NULL;
    if (!*why) return text;
    free(text);
    return NULL;
}

char *bl_file_text(const char *path, bool *absent, const char **why) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    *absent = fd < 0 && (errno == ENOENT || errno == ENOTDIR);
    *why = fd < 0 ? strerror(errno) : NULL;
    char *text = fd >= 0 ? read_text(fd, why) : NULL;
    if (fd >= 0) close(fd);
    return text;
}
