/* thread.h - threads of the library's own, which the job's signals are not for, and errands: what may never end, and whoever has
 * sent for it need not wait for.  A process that ends waits for them, for a second at most.
 */
#ifndef BEELINE_THREAD_H
#define BEELINE_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* As pthread_create does; false if there is no thread. */
bool bl_thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg);

struct bl_errand {
    int (*run)(void *of); /* says what came of it, not 0 */
    void *of;
    _Atomic int result; /* 0: it runs */
    _Atomic int users;
};

/* NULL if there is no thread or no memory for it.  To be left by bl_errand_leave, whether it has ended or not. */
struct bl_errand *bl_errand_begin(int (*run)(void *of), void *of);
void bl_errand_leave(struct bl_errand *errand);

#endif
