#include "promise.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "real/real.h"

enum { POLL_NS = 100000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct bl_promise *promises; /* begun, not kept */

static void give(struct bl_promise *promise) {
    ncclComm_t made = __atomic_load_n(&promise->made, __ATOMIC_ACQUIRE);
    if (promise->wanted && made) __atomic_store_n(promise->wanted, made, __ATOMIC_RELEASE);
    promise->wanted = NULL;
}

static void end(struct bl_promise *promise) {
    give(promise);
    promise->over = true;
}

static ncclResult_t state_of(const struct bl_comm *parent) {
    ncclResult_t state = ncclSuccess, result = BL_REAL(ncclCommGetAsyncError, parent->handle, &state);
    return result == ncclSuccess ? state : result;
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
    const ncclResult_t state = state_of(promise->parent);
    if (state == ncclInProgress) {
        pthread_mutex_lock(&lock);
        promise->next = promises;
        __atomic_store_n(&promises, promise, __ATOMIC_RELEASE);
        pthread_mutex_unlock(&lock);
        return true;
    }
    if (state != ncclSuccess) { /* NCCL has stored what it had */
        give(promise);
        promise->made = NULL;
    }
    return false;
}

/* Under the lock. */
static bool has_come(struct bl_promise *promise) {
    if (promise->over || promise->parting) return false;
    const ncclResult_t state = state_of(promise->parent);
    if (state != ncclSuccess && state != ncclInProgress) end(promise);
    return state == ncclSuccess && __atomic_load_n(&promise->made, __ATOMIC_ACQUIRE);
}

bool bl_promise_wait(struct bl_promise *promise, void (*enter)(struct bl_promise *promise)) {
    for (;; bl_nap(POLL_NS)) {
        pthread_mutex_lock(&lock);
        const bool come = has_come(promise), over = promise->over;
        if (come) enter(promise);
        pthread_mutex_unlock(&lock);
        if (come || over) return come;
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

bool bl_promise_open(const struct bl_comm *parent, ncclResult_t state) {
    bool open = false;
    if (!__atomic_load_n(&promises, __ATOMIC_ACQUIRE)) return false;
    pthread_mutex_lock(&lock);
    for (struct bl_promise *promise = promises; promise; promise = promise->next) {
        if (promise->parent != parent) continue;
        if (state != ncclSuccess) end(promise);
        open |= !promise->over;
    }
    pthread_mutex_unlock(&lock);
    return open;
}

void bl_promise_part(const struct bl_comm *parent) {
    pthread_mutex_lock(&lock);
    for (struct bl_promise *promise = promises; promise; promise = promise->next)
        if (promise->parent == parent) promise->parting = true;
    pthread_mutex_unlock(&lock);
}

void bl_promise_end(const struct bl_comm *parent) {
    pthread_mutex_lock(&lock);
    for (struct bl_promise *promise = promises; promise; promise = promise->next)
        if (promise->parent == parent) {
            end(promise);
            promise->parent = NULL;
        }
    pthread_mutex_unlock(&lock);
}
