/* soak_parent.c - runs the soak in a child, and again, shorter, after a failure. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "soak.h"

static char **arguments; /* ours */
static int argument_count;

/* The child's exit status; *calls: within how many it says it failed. */
static int run_child(uint64_t limit, bool quiet, uint64_t *calls) {
    int ends[2], status = 0;
    bool told = false;
    char line[2048], number[32];
    snprintf(number, sizeof number, "%llu", (unsigned long long)limit);
    CHECK(pipe(ends) == 0);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char **argv = calloc((size_t)argument_count + 5, sizeof *argv);
        CHECK(argv);
        memcpy(argv, arguments, (size_t)argument_count * sizeof *argv);
        argv[argument_count] = "--child";
        if (limit != UINT64_MAX) {
            argv[argument_count + 1] = "--calls";
            argv[argument_count + 2] = number;
        }
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        execv("/proc/self/exe", argv);
        _exit(127);
    }
    close(ends[1]);
    FILE *said = fdopen(ends[0], "r");
    CHECK(said);
    while (fgets(line, sizeof line, said)) {
        unsigned long long within;
        if (sscanf(line, "# failed within %llu calls", &within) == 1)
            *calls = within, told = true;
        else if (sscanf(line, "# reached %llu calls", &within) == 1)
            *calls = told ? *calls : 2 * within + SOAK_CALLS; /* if it says no more, it crashes before that */
        else if (!quiet)
            fputs(line, stdout), fflush(stdout);
    }
    fclose(said);
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A prefix that did not fail in TRIES runs counts as one that does not. */
static void shrink(uint64_t fails, uint64_t seed, long seconds) {
    enum { TRIES = 2 };
    const time_t end = time(NULL) + seconds;
    uint64_t passes = 0, unused;
    while (passes + 1 < fails && time(NULL) < end) {
        const uint64_t middle = passes + (fails - passes) / 2;
        bool failed = false;
        for (int i = 0; i < TRIES && !failed; i++) {
            int status = run_child(middle, true, &unused);
            failed = status != 0 && status != 77;
        }
        if (failed)
            fails = middle;
        else
            passes = middle;
    }
    printf("soak: shortest prefix seen to fail: --seed %llu --calls %llu\n", (unsigned long long)seed,
           (unsigned long long)fails);
}

int soak_parent(int argc, char **argv, uint64_t seed, long seconds) {
    uint64_t within = 0;
    arguments = argv;
    argument_count = argc;
    const int status = run_child(UINT64_MAX, false, &within);
    if (status && status != 77) {
        printf("soak: seed %llu failed with status %d; again: --seed %llu --calls %llu\n", (unsigned long long)seed,
               status, (unsigned long long)seed, (unsigned long long)within);
        if (seconds && within) shrink(within, seed, seconds);
    }
    return status;
}
