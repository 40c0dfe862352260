/* entry.c - what every driver call passes: set-up, fork, injected faults, the trace; and cuInit. */
#include "emu.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct emu_state emu = {.lock = PTHREAD_MUTEX_INITIALIZER, .progress = PTHREAD_COND_INITIALIZER};

/* BEELINE_EMU_FAULT: function[@rank-or-device][#nth]=CUDA_ERROR_NAME, comma-separated. */
struct fault {
    char function[64];
    int who;  /* -1: everyone */
    long nth; /* 0: every call */
    _Atomic long calls;
    CUresult result;
};
enum { MAX_FAULTS = 32 };
static struct fault faults[MAX_FAULTS];
static int fault_count;
static int trace_fd = -1;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local const char *call_now = "?";

uint64_t emu_nanoseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

bool emu_thread(void *(*body)(void *), void *argument) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 1 << 20);
    const bool runs = !pthread_create(&thread, &attributes, body, argument);
    pthread_attr_destroy(&attributes);
    return runs;
}

void emu_say(const char *format, ...) {
    char line[512];
    int n = snprintf(line, sizeof line, "beeline-emu [%d] ", (int)getpid());
    va_list args;
    va_start(args, format);
    n += vsnprintf(line + n, sizeof line - (size_t)n, format, args);
    va_end(args);
    if (n > (int)sizeof line - 2) n = (int)sizeof line - 2;
    line[n++] = '\n';
    if (write(STDERR_FILENO, line, (size_t)n) < 0) return;
}

static void read_fault(char *text) {
    struct fault *f = &faults[fault_count];
    char *equals = strchr(text, '=');
    if (!equals || fault_count == MAX_FAULTS) {
        emu_say("BEELINE_EMU_FAULT: '%s' is not function[@rank][#nth]=CUDA_ERROR_NAME, or one too many", text);
        return;
    }
    *equals = 0;
    f->result = emu_error_value(equals + 1);
    if (f->result == CUDA_ERROR_UNKNOWN && strcmp(equals + 1, "CUDA_ERROR_UNKNOWN"))
        emu_say("BEELINE_EMU_FAULT: '%s' is no error of cuda.h; CUDA_ERROR_UNKNOWN is used", equals + 1);
    char *nth = strchr(text, '#');
    if (nth) *nth++ = 0;
    char *who = strchr(text, '@');
    if (who) *who++ = 0;
    f->nth = nth ? strtol(nth, NULL, 10) : 0;
    f->who = who ? (int)strtol(who, NULL, 10) : -1;
    snprintf(f->function, sizeof f->function, "%s", text);
    fault_count++;
}

static void in_child(void) {
    emu.forked = (bool)emu.initialized;
}

static void set_up(void) {
    emu_config_read();
    pthread_atfork(NULL, NULL, in_child);
    if (emu_config.trace) trace_fd = open(emu_config.trace, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (!emu_config.faults) return;
    char *text = strdup(emu_config.faults), *save = NULL;
    for (char *item = text ? strtok_r(text, ",", &save) : NULL; item; item = strtok_r(NULL, ",", &save))
        read_fault(item);
    free(text);
}

size_t emu_base_length(const char *function) {
    size_t n = strlen(function);
    if (n > 3 && function[n - 3] == '_' && function[n - 2] == 'v') return n - 3;
    return n;
}

const char *emu_call_name(void) {
    static _Thread_local char name[64];
    snprintf(name, sizeof name, "%.*s", (int)emu_base_length(call_now), call_now);
    return name;
}

static CUresult injected(const char *function) {
    size_t n = emu_base_length(function);
    for (int i = 0; i < fault_count; i++) {
        struct fault *f = &faults[i];
        if (strlen(f->function) != n || strncmp(f->function, function, n)) continue;
        int who = emu_config.local_rank >= 0 ? emu_config.local_rank : emu_device_now();
        if (f->who >= 0 && f->who != who) continue;
        long call = ++f->calls;
        if (!f->nth || call == f->nth) return f->result;
    }
    return CUDA_SUCCESS;
}

/* Calls that the real driver answers before cuInit. */
static bool before_init(const char *function) {
    static const char *const names[] = {"cuInit",           "cuDriverGetVersion", "cuGetErrorName",
                                        "cuGetErrorString", "cuGetProcAddress",   "cuGetProcAddress_v2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(function, names[i])) return true;
    return false;
}

CUresult emu_enter(const char *function) {
    pthread_once(&once, set_up);
    call_now = function;
    if ((emu.forked || !emu.initialized) && (!before_init(function) || (emu.forked && !strcmp(function, "cuInit"))))
        return CUDA_ERROR_NOT_INITIALIZED;
    return fault_count ? injected(function) : CUDA_SUCCESS;
}

CUresult emu_leave(const char *function, CUresult result) {
    if (trace_fd >= 0) {
        char line[160];
        int n = snprintf(line, sizeof line, "%d %.*s %s\n", (int)getpid(), (int)emu_base_length(function), function,
                         emu_error_name(result));
        if (write(trace_fd, line, (size_t)n) < 0) trace_fd = -1;
    }
    return result;
}

__attribute__((destructor)) static void at_exit(void) {
    if (emu.initialized && !emu.forked && emu_config.leaks) emu_leaks_report();
}

EMU_CALL(cuInit, 2000, (unsigned flags), (flags)) {
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    if (!emu_config.devices) return CUDA_ERROR_NO_DEVICE;
    emu_lock();
    CUresult result = emu_arena_open();
    if (result == CUDA_SUCCESS) emu.initialized = true;
    emu_unlock();
    return result;
}

EMU_CALL(cuDriverGetVersion, 2020, (int *version), (version)) {
    if (!version) return CUDA_ERROR_INVALID_VALUE;
    *version = emu_config.driver;
    return CUDA_SUCCESS;
}

EMU_CALL(cuGetErrorName, 6000, (CUresult error, const char **text), (error, text)) {
    const char *name = emu_error_name(error);
    if (text) *text = name;
    return text && name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
