/* racing.c LIBRARY - many threads make their first NCCL call at the same moment. */
#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 16 };

static void *handle;
static pthread_barrier_t start;

static void *call(void *version) {
    __typeof__(ncclGetVersion) *get_version;
    pthread_barrier_wait(&start);
    *(void **)&get_version = dlsym(handle, "ncclGetVersion");
    return get_version && get_version(version) == ncclSuccess ? version : NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    int versions[THREADS] = {0}, failures = 0;
    handle = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!handle) {
        fprintf(stderr, "racing: %s\n", argc > 1 ? dlerror() : "want the library to open");
        return 1;
    }
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, call, &versions[i]) != 0) return 1;
    for (int i = 0; i < THREADS; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        failures += !result || versions[i] == 0 || versions[i] != versions[0];
    }
    printf("%d failures\n", failures);
    return failures != 0;
}
