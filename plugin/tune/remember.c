#define _GNU_SOURCE
#include "remember.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/why.h"
#include "dispatch.h"

static const char head[] = "# What Beeline found out on this machine by itself (BEELINE_TUNE).  It may be deleted: "
                           "then it is measured again.\n";

/* Of all folders above the file; a failure shows when the file is opened. */
static void make_folders(const char *path) {
    char folder[PATH_MAX];
    if (snprintf(folder, sizeof(folder), "%s", path) >= (int)sizeof(folder)) return;
    for (char *slash = folder + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        mkdir(folder, 0755);
        *slash = '/';
    }
}

int bl_remember_begin(const char *path, int *lock) {
    char name[PATH_MAX];
    *lock = -1;
    if (snprintf(name, sizeof(name), "%s.lock", path) >= (int)sizeof(name)) return bl_fail("%s is too long", path);
    make_folders(path);
    const int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0644);
    if (fd < 0) return bl_fail("%s cannot be opened: %s", name, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB)) {
        const int error = errno;
        close(fd);
        return error == EWOULDBLOCK ? bl_fail("somebody else measures now")
                                    : bl_fail("locking %s: %s", name, strerror(error));
    }
    *lock = fd;
    return 0;
}

void bl_remember_end(int *lock) {
    if (*lock < 0) return;
    flock(*lock, LOCK_UN); /* a child that was forked meanwhile has it, too, for as long as it lives */
    close(*lock);
    *lock = -1;
}

int bl_remember(const char *path, const char *section) {
    char name[PATH_MAX];
    const char *why;
    bool absent;
    if (snprintf(name, sizeof(name), "%s.%d", path, (int)getpid()) >= (int)sizeof(name))
        return bl_fail("%s is too long", path);
    char *text = bl_file_text(path, &absent, &why);
    unlink(name); /* of a process that is gone */
    const int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    bool written = file && fprintf(file, "%s\n%s", text && !bl_tuning_mistakes(text) ? text : head, section) > 0;
    if (file) written = !fclose(file) && written;
    const int status = written && !rename(name, path) ? 0 : bl_fail("%s cannot be written: %s", path, strerror(errno));
    if (status) unlink(name);
    free(text);
    return status;
}
