#include "promise.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"

enum { POLL_NS = 100000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct bl_promise *promises; /* that are not kept */

static ncclComm_t made(const struct bl_promise *promise) {
    return __atomic_load_n(&promise->made, __ATOMIC_ACQUIRE);
}

/* --- under the lock --- */

static void give(struct bl_promise *promise) {
    if (promise->wanted && made(promise)) __atomic_store_n(promise->wanted, made(promise), __ATOMIC_RELEASE);
    promise->wanted = NULL;
}

static void end(struct bl_promise *promise) {
    give(promise);
    promise->over = true;
}

static void drop(struct bl_promise *promise) {
    struct bl_promise **at = &promises;
    while (*at != promise) at = &(*at)->next;
    __atomic_store_n(at, promise->next, __ATOMIC_RELEASE);
    free(promise);
}

/* --- without --- */

struct bl_promise *bl_promise_new(const struct bl_comm *parent, ncclComm_t *wanted) {
    struct bl_promise *promise = calloc(1, sizeof(*promise));
    if (!promise) return NULL;
    promise->parent = parent;
    promise->wanted = wanted;
    pthread_mutex_lock(&lock);
    promise->next = promises;
    __atomic_store_n(&promises, promise, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    return promise;
}

void bl_promise_called(struct bl_promise *promise) {
    pthread_mutex_lock(&lock);
    if (promise->wanted) *promise->wanted = NULL;
    pthread_mutex_unlock(&lock);
}

bool bl_promise_begin(struct bl_promise *promise) {
    pthread_mutex_lock(&lock);
    const bool waits = promise->over || !made(promise);
    promise->begun = true;
    pthread_mutex_unlock(&lock);
    return waits;
}

bool bl_promise_wait(struct bl_promise *promise, void (*enter)(struct bl_promise *promise)) {
    for (;; bl_nap(POLL_NS)) {
        pthread_mutex_lock(&lock);
        const bool over = promise->over, come = !over && made(promise);
        if (come) enter(promise);
        pthread_mutex_unlock(&lock);
        if (come || over) return come;
    }
}

void bl_promise_keep(struct bl_promise *promise) {
    pthread_mutex_lock(&lock);
    give(promise);
    drop(promise);
    pthread_mutex_unlock(&lock);
}

void bl_promise_leave(struct bl_promise *promise) {
    pthread_mutex_lock(&lock);
    promise->begun = promise->unattended = true;
    pthread_mutex_unlock(&lock);
}

/* NCCL has stored what it ever will. */
bool bl_promise_open(const struct bl_comm *parent, ncclResult_t state) {
    bool open = false;
    if (!__atomic_load_n(&promises, __ATOMIC_ACQUIRE)) return false;
    pthread_mutex_lock(&lock);
    for (struct bl_promise *promise = promises, *next; promise; promise = next) {
        next = promise->next;
        if (promise->parent != parent || !promise->begun) continue;
        if (state != ncclSuccess || promise->unattended || !made(promise)) end(promise);
        open |= !promise->over;
        if (promise->unattended) drop(promise);
    }
    pthread_mutex_unlock(&lock);
    return open;
}

void bl_promise_end(const struct bl_comm *parent) {
    pthread_mutex_lock(&lock);
    for (struct bl_promise *promise = promises, *next; promise; promise = next) {
        next = promise->next;
        if (promise->parent != parent) continue;
        end(promise);
        promise->parent = NULL;
        if (promise->unattended) drop(promise);
    }
    pthread_mutex_unlock(&lock);
}
