/* main.c - runs the tests of the emulated driver, each in a process of its own with its own environment; some under
 * many seeds.  Prints a line for each that fails, and `N passed, N failed`.
 *
 *   cudatest [NAME...]    KERNELS is the library of kernels.cu, beside the program if unset
 */
#define _GNU_SOURCE
#include "cudatest.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int test_failures;

/* The linker puts them between these, in no order. */
extern const struct test *const __start_tests[], *const __stop_tests[];

bool test_expect(CUresult result, CUresult expected, const char *call, const char *file, int line) {
    const char *name = "?", *wanted = "?";
    if (result == expected) return true;
    cuGetErrorName(result, &name);
    cuGetErrorName(expected, &wanted);
    fprintf(stderr, "%s:%d: %s returned %s, not %s\n", file, line, call, name, wanted);
    test_failures++;
    return false;
}

static void in_child(const struct test *test, int seed, bool loud) {
    char text[16], self[PATH_MAX], kernels[PATH_MAX + 32];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    snprintf(kernels, sizeof kernels, "%.*s/libcudatest-kernels.so", (int)(strrchr(self, '/') - self), self);
    snprintf(text, sizeof text, "%d", seed);
    setenv("BEELINE_EMU_SEED", text, 1);
    setenv("BEELINE_EMU_GPUS", test->gpus, 1);
    setenv("BEELINE_EMU_KERNELS", kernels, 0);
    unsetenv("BEELINE_EMU_TRACE");
    if (test->setting) {
        char *save = NULL, *settings = strdup(test->setting);
        for (char *one = strtok_r(settings, " ", &save); one; one = strtok_r(NULL, " ", &save)) putenv(one);
    }
    if (!loud && !freopen("/dev/null", "w", stderr)) _exit(2);
    alarm(60);
    execl(self, self, "--one", test->name, (char *)NULL);
    _exit(2);
}

static bool passes(const struct test *test, int seed, bool loud) {
    int status;
    pid_t child = fork();
    if (child == 0) in_child(test, seed, loud);
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool run(const struct test *test) {
    int failed = 0;
    const char *base = getenv("SEED");
    for (int i = 0; i < test->seeds; i++) {
        int seed = (base ? atoi(base) : 1) * 100 + i;
        if (passes(test, seed, test->verdict == ALWAYS)) continue;
        failed++;
        if (test->verdict == NOT_ALWAYS) break;
        printf("%s: failed with seed %d\n", test->name, seed);
    }
    if (test->verdict == NOT_ALWAYS && !failed) printf("%s: what is missing was not noticed\n", test->name);
    return (test->verdict == ALWAYS) == !failed;
}

static int run_one(const char *name) {
    for (const struct test *const *test = __start_tests; test != __stop_tests; test++) {
        if (strcmp((*test)->name, name)) continue;
        (*test)->run();
        return test_failures != 0;
    }
    return 2;
}

int main(int argc, char **argv) {
    int passed = 0, failed = 0;
    if (argc == 3 && !strcmp(argv[1], "--one")) return run_one(argv[2]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (const struct test *const *test = __start_tests; test != __stop_tests; test++) {
        bool wanted = argc == 1;
        for (int j = 1; j < argc; j++) wanted |= !strcmp(argv[j], (*test)->name);
        if (!wanted) continue;
        if (run(*test))
            passed++;
        else
            failed++;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
