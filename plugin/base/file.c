#define _GNU_SOURCE
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
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
