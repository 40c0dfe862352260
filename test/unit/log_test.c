/* log_test.c - that a place which warns over and over is heard now and then, and others always; with a clock of the test's own. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static time_t seconds = 1000;

/* In place of libc's, for log.c. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    *now = (struct timespec){.tv_sec = seconds};
    return 0;
}

static char path[256], said[1 << 20];

static void begin(void) {
    CHECK(unlink(path) == 0 || errno == ENOENT);
}

/* How many lines there are; they are in `said`. */
static int lines(void) {
    FILE *file = fopen(path, "r");
    size_t length = file ? fread(said, 1, sizeof(said) - 1, file) : 0;
    int count = 0;
    if (file) fclose(file);
    said[length] = 0;
    for (const char *at = said; (at = strchr(at, '\n')); at++) count++;
    return count;
}

static bool ends_with(const char *text) {
    size_t length = strlen(said), wanted = strlen(text);
    return length >= wanted && strcmp(said + length - wanted, text) == 0;
}

static void warn_often(int times) {
    for (int i = 0; i < times; i++) bl_warn("line %d", i);
}

static void test_limit(void) {
    char head[64];
    begin();
    warn_often(9);
    CHECK(lines() == 9 && ends_with("WARN line 8\n"));
    warn_often(16);
    CHECK(lines() == 10 && ends_with("line 0 (from now on one such line a minute)\n"));
    snprintf(head, sizeof(head), "beeline [%d] WARN line 0\n", (int)getpid());
    CHECK(strncmp(said, head, strlen(head)) == 0);
    seconds += 59;
    warn_often(1);
    CHECK(lines() == 10);
    seconds += 1;
    warn_often(3);
    CHECK(lines() == 11 && ends_with("line 0 (16 such lines were left out)\n"));
    seconds += 61;
    warn_often(1);
    CHECK(lines() == 12 && ends_with("line 0 (2 such lines were left out)\n"));
}

static void test_others(void) {
    begin();
    for (int i = 0; i < 30; i++) bl_log_at(NULL, BL_LOG_WARN, "unlimited");
    CHECK(lines() == 30);
    bl_log_open(BL_LOG_INFO, path);
    for (int i = 0; i < 30; i++) bl_info("at INFO");
    for (int i = 0; i < 30; i++) bl_log(BL_LOG_INFO, "at INFO");
    CHECK(lines() == 90);
    /* What is not said does not count. */
    for (int i = 0; i < 30; i++) {
        bl_log_open(i < 25 ? BL_LOG_NONE : BL_LOG_WARN, path);
        bl_warn("%d", i);
    }
    CHECK(lines() == 95 && ends_with("WARN 29\n"));
}

static void *warn_thousand(void *arg) {
    warn_often(1000);
    return NULL;
}

/* A fresh place: exactly ten lines, whoever says them. */
static void *warn_here(void *arg) {
    for (int i = 0; i < 1000; i++) bl_warn("of a thread");
    return NULL;
}

static void test_threads(void) {
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    void *(*const bodies[])(void *) = {warn_here, warn_thousand};
    for (int b = 0; b < 2; b++) {
        begin();
        seconds += 61;
        for (int t = 0; t < THREADS; t++) CHECK(pthread_create(&threads[t], NULL, bodies[b], NULL) == 0);
        for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
        CHECK(lines() == (b ? 1 : 10));
    }
    seconds += 61;
    warn_often(1);
    CHECK(lines() == 2 && ends_with("(7999 such lines were left out)\n"));
}

static void test_long(void) {
    static char text[5000];
    memset(text, 'x', sizeof(text) - 1);
    begin();
    for (int i = 0; i < 10; i++) {
        errno = EDOM;
        bl_warn("%s", text);
        CHECK(errno == EDOM);
    }
    CHECK(lines() == 10 && ends_with("xxx... (from now on one such line a minute)\n"));
    for (char *line = strtok(said, "\n"); line; line = strtok(NULL, "\n"))
        CHECK(strlen(line) > 2000 && strlen(line) < 2048 &&
              (strstr(line, "xxx... (") || strcmp(line + strlen(line) - 4, "x...") == 0));
}

int main(void) {
    const char *folder = getenv("TEST_TMP");
    snprintf(path, sizeof(path), "%s/log-test.%d", folder ? folder : "/tmp", (int)getpid());
    bl_log_open(BL_LOG_WARN, path);
    test_limit();
    test_others();
    test_threads();
    test_long();
    unlink(path);
    return 0;
}
