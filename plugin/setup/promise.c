#include "promise.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "real/real.h"

enum { POLL_NS = 100000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct bl_promise *promises; /* begun, not kept */

static ncclComm_t made(const struct bl_promise *promise) {
    return __atomic_load_n(&promise->made, __ATOMIC_ACQUIRE);
}

static void give(struct bl_promise *promise) {
    if (promise->wanted && made(promise)) __atomic_store_n(promise->wanted, made(promise), __ATOMIC_RELEASE);
    promise->wanted = NULL;
}

struct bl_promise *bl_promise_new(const struct bl_comm *parent, ncclComm_t *wanted) {
    struct bl_promise *promise = calloc(1, sizeof(*promise));
    if (!promise) return NULL;
    promise->parent = parent;
    promise->wanted = wanted;
    *wanted = NULL;
    return promise;
}

bool bl_promise_begin(struct bl_promise *promise) {
    ncclResult_t state = ncclSuccess;
    BL_REAL(ncclCommGetAsyncError, promise->parent->handle, &state);
    if (state != ncclInProgress) return false;
    pthread_mutex_lock(&lock);
    promise->next = promises;
    __atomic_store_n(&promises, promise, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    return true;
}

bool bl_promise_wait(struct bl_promise *promise, void (*enter)(struct bl_promise *promise)) {
    for (;; bl_nap(POLL_NS)) {
        pthread_mutex_lock(&lock);
        const bool over = promise->over;
        if (!over && made(promise)) {
            enter(promise);
            promise->entered = true;
        }
        const bool entered = promise->entered;
        pthread_mutex_unlock(&lock);
        if (over || entered) return entered;
    }
}

void bl_promise_keep(struct bl_promise *promise) {
    pthread_mutex_lock(&lock);
    give(promise);
    struct bl_promise **at = &promises;
    while (*at && *at != promise) at = &(*at)->next;
    if (*at) __atomic_store_n(at, promise->next, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    free(promise);
}

bool bl_promise_open(const struct bl_comm *parent) {
    bool open = false;
    if (!__atomic_load_n(&promises, __ATOMIC_ACQUIRE)) return false;
    pthread_mutex_lock(&lock);
    for (struct bl_promise *promise = promises; promise; promise = promise->next) {
        if (promise->parent != parent) continue;
        if (!made(promise)) promise->over = true;
        open |= !promise->over;
    }
    pthread_mutex_unlock(&lock);
    return open;
}

void bl_promise_end(const struct bl_comm *parent) {
    pthread_mutex_lock(&lock);
    for (struct bl_promise *promise = promises; promise; promise = promise->next) {
        if (promise->parent != parent) continue;
        give(promise);
        promise->over = true;
        promise->parent = NULL;
    }
    pthread_mutex_unlock(&lock);
}
