/* tunings.c - beeline-perf --tunings FILE,...: one run, with one tuning file of Beeline after another.
 *
 * Beeline learns the path once a process, from BEELINE_TUNING_FILE, and reads what is there whenever a communicator is made.
 * So each file is copied there before the communicators are made anew.  Rank 0's process does it: the table of rank 0
 * holds for all ranks.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "perf.h"

static const char variable[] = "BEELINE_TUNING_FILE";

static int refuse(const char *what, const char *why) {
    fprintf(stderr, "beeline-perf: --tunings: %s: %s\n", what, why);
    return -1;
}

static int refuse_path(const char *path, const char *why) {
    fprintf(stderr, "beeline-perf: --tunings: %s=%s: %s\n", variable, path, why);
    return -1;
}

/* What stands there already is somebody's. */
static int check_place(const struct options *options, const char *path, const struct stat *place) {
    struct stat status;

    for (int i = 0; i < options->tunings; i++) {
        int fd = open(options->tuning[i], O_RDONLY | O_CLOEXEC);
        if (fd < 0) return refuse(options->tuning[i], strerror(errno));
        fstat(fd, &status);
        close(fd);
        if (!S_ISREG(status.st_mode)) return refuse(options->tuning[i], "not a file");
        if (status.st_dev == place->st_dev && status.st_ino == place->st_ino)
            return refuse_path(path, "it is one of the files, and must name a place that they are copied to");
    }
    if (!S_ISREG(place->st_mode) || place->st_size)
        return refuse_path(path, "it is not empty, and would be overwritten: name another place");
    return 0;
}

int tunings_check(const struct options *options) {
    const char *path = getenv(variable);
    struct stat place;

    if (!options->tunings) return 0;
    if (!api_have_beeline()) return refuse("Beeline", "it is not loaded, and nothing else reads the files");
    if (!path || !*path) return refuse(variable, "it must name a place that each file is copied to in its turn");
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return refuse_path(path, strerror(errno));
    int error = fstat(fd, &place) ? refuse_path(path, strerror(errno)) : check_place(options, path, &place);
    close(fd);
    return error;
}

static int copy(int from, int to) {
    char bytes[4096];
    ssize_t got;

    while ((got = read(from, bytes, sizeof bytes)) > 0)
        if (write(to, bytes, got) != got) return -1;
    return got < 0 ? -1 : 0;
}

int tunings_take(struct part *part, int index) {
    const struct options *options = part->bench->options;

    if (!options->tunings || part->index) return 0;
    int from = open(options->tuning[index], O_RDONLY | O_CLOEXEC);
    int to = from < 0 ? -1 : open(getenv(variable), O_WRONLY | O_TRUNC | O_CLOEXEC);
    int error = to < 0 || copy(from, to), number = errno;
    if (from >= 0) close(from);
    if (to >= 0) close(to);
    return error ? part_fail(part, "--tunings: %s cannot be copied to %s: %s", options->tuning[index], getenv(variable),
                             strerror(number))
                 : 0;
}

void tunings_clear(const struct options *options) {
    if (options->tunings && truncate(getenv(variable), 0)) perror(getenv(variable));
}
