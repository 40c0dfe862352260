/* remember_test.c - the lock beside the cache, and what is kept in it. */
#include "tune/remember.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "check.h"

static char path[512];

static bool holds(const char *part) {
    const char *why;
    bool absent;
    char *text = bl_file_text(path, &absent, &why);
    const bool found = text && strstr(text, part);
    free(text);
    return found;
}

int main(void) {
    int lock, other;
    snprintf(path, sizeof(path), "%s/a/b/beeline.tune", getenv("TEST_TMP"));
    CHECK(bl_remember_begin(path, &lock) == 0, "the lock is not to be had");
    CHECK(bl_remember_begin(path, &other) && other == -1, "the lock was taken twice");

    /* A child that is forked meanwhile, and lives on, has the descriptor, too. */
    const pid_t child = fork();
    if (!child)
        for (;;) pause();
    bl_remember_end(&lock);
    CHECK(lock == -1);
    CHECK(bl_remember_begin(path, &lock) == 0, "a child keeps the lock");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);

    CHECK(bl_remember(path, "gpu any\nall_reduce 2 max nccl\n") == 0);
    CHECK(bl_remember(path, "gpu any\nall_reduce 3 max nccl\n") == 0);
    CHECK(holds("all_reduce 2 ") && holds("all_reduce 3 "), "what the file had is gone");

    /* What nobody can use does not stay in the way. */
    FILE *file = fopen(path, "w");
    fwrite("gpu any\n\0\n", 10, 1, file);
    fclose(file);
    CHECK(bl_remember(path, "gpu any\nall_reduce 4 max nccl\n") == 0);
    CHECK(holds("all_reduce 4 "), "it is no text still");
    bl_remember_end(&lock);
    return say_checks();
}
