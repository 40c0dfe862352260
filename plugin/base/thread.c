#include "thread.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "clock.h"

/* So long a process that ends waits for errands: what they are about is the driver's, which goes then. */
enum { EXIT_MS = 1000 };

static atomic_int running;
static pid_t owner; /* a forked child has none of its threads */

bool bl_thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !failed;
}

static void await_errands(void) {
    for (int i = 0; i < EXIT_MS && atomic_load(&running) && getpid() == owner; i++) bl_nap(1000000);
}

/* Behind the driver's own, and so called before it. */
static void prepare(void) {
    owner = getpid();
    atexit(await_errands);
}

/* The last of the two gives it back. */
void bl_errand_leave(struct bl_errand *errand) {
    if (atomic_fetch_sub(&errand->users, 1) == 1) free(errand);
}

static void *errand_main(void *arg) {
    struct bl_errand *errand = arg;
    atomic_store(&errand->result, errand->run(errand->of));
    bl_errand_leave(errand);
    atomic_fetch_sub(&running, 1);
    return NULL;
}

struct bl_errand *bl_errand_begin(int (*run)(void *of), void *of) {
    struct bl_errand *errand = malloc(sizeof(*errand));
    static pthread_once_t prepared = PTHREAD_ONCE_INIT;
    pthread_t thread;
    if (!errand) return NULL;
    pthread_once(&prepared, prepare);
    *errand = (struct bl_errand){.run = run, .of = of, .users = 2};
    atomic_fetch_add(&running, 1);
    if (!bl_thread_start(&thread, errand_main, errand)) {
        atomic_fetch_sub(&running, 1);
        free(errand);
        return NULL;
    }
    pthread_detach(thread);
    return errand;
}
