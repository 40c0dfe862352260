#include "thread.h"

#include <signal.h>
#include <stdlib.h>

bool bl_thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !failed;
}

/* The last of the two gives it back. */
void bl_errand_leave(struct bl_errand *errand) {
    if (atomic_fetch_sub(&errand->users, 1) == 1) free(errand);
}

static void *errand_main(void *arg) {
    struct bl_errand *errand = arg;
    atomic_store(&errand->result, errand->run(errand->of));
    bl_errand_leave(errand);
    return NULL;
}

struct bl_errand *bl_errand_begin(int (*run)(void *of), void *of) {
    struct bl_errand *errand = malloc(sizeof(*errand));
    pthread_t thread;
    if (!errand) return NULL;
    *errand = (struct bl_errand){.run = run, .of = of, .users = 2};
    if (!bl_thread_start(&thread, errand_main, errand)) {
        free(errand);
        return NULL;
    }
    pthread_detach(thread);
    return errand;
}
