#include "watch.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/params.h"
#include "switch.h"
#include "base/thread.h"

enum { LOOK_SECONDS = 1 };

/* Of the process that `owner` names: a forked child has neither the thread nor the communicators. */
static struct {
    pthread_mutex_t lock;
    pid_t owner;
    bool runs;
    struct bl_comm *first;
} watched = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A wait as a kernel left it; false if none has since the last look. */
static bool read_wait(struct bl_comm *comm, struct bl_control *wait) {
    const struct bl_control *control = comm->control;
    const uint64_t beat = control ? __atomic_load_n(&control->beat, __ATOMIC_ACQUIRE) : 0;
    if (!control || beat == comm->watch.beat) return false;
    comm->watch.beat = beat;
    *wait = *control;
    return true;
}

static void describe_call(const struct bl_control *wait, char *text, size_t size) {
    const int kernel = (int)(wait->waiting_call & 0xff), datatype = (int)(wait->waiting_call >> 8 & 0xff),
              redop = (int)(wait->waiting_call >> 16 & 0xff);
    const bool reduces = bl_kernel_reduces(kernel) && redop < BL_REDOPS; /* of several collectives none may */
    const bool messages = bl_kernel_batch(kernel) || bl_kernel_pairs(kernel);
    snprintf(text, size, "%s of %" PRIu64 " %s%s%s%s", bl_kernel_name(kernel), wait->waiting_count,
             messages ? "message" : bl_datatype_name(datatype), messages && wait->waiting_count != 1 ? "s" : "",
             reduces ? " " : "", reduces ? bl_redop_name(redop) : "");
}

/* Once a wait: of a launch and a peer. */
static bool is_news(struct bl_comm *comm, const struct bl_control *wait) {
    if (wait->waited_ns < bl_params()->wait_report * UINT64_C(1000000000)) return false;
    if (comm->watch.launch == wait->waiting_launch) return false;
    comm->watch.launch = wait->waiting_launch;
    return true;
}

static void look_at(struct bl_comm *comm, bool on) {
    struct bl_control wait;
    char call[160];
    bl_switch_decide(comm, on);
    if (!read_wait(comm, &wait)) return;
    if (bl_params()->wait_report && is_news(comm, &wait)) {
        describe_call(&wait, call, sizeof(call));
        bl_warn("communicator %016llx: rank %d of %d has waited %.0f s for rank %u in its launch %" PRIu64
                ", %s; it waits on",
                (unsigned long long)comm->id, comm->rank, comm->nranks, (double)wait.waited_ns / 1e9, wait.waiting_peer,
                wait.waiting_launch, call);
    }
    bl_comm_check(comm);
}

static void *watch_main(void *arg) {
    for (;;) {
        nanosleep(&(struct timespec){.tv_sec = LOOK_SECONDS}, NULL);
        const bool on = bl_switch_on(); /* without the lock: a file system may be slow */
        pthread_mutex_lock(&watched.lock);
        for (struct bl_comm *comm = watched.first; comm; comm = comm->watch.next) look_at(comm, on);
        watched.runs = watched.first != NULL;
        const bool runs = watched.runs;
        pthread_mutex_unlock(&watched.lock);
        if (!runs) return NULL;
    }
}

/* Under the lock. */
static void start(void) {
    pthread_t thread;
    watched.runs = bl_thread_start(&thread, watch_main, NULL);
    if (watched.runs) pthread_detach(thread);
}

void bl_watch_add(struct bl_comm *comm) {
    pthread_mutex_lock(&watched.lock);
    if (watched.owner != getpid()) {
        watched.owner = getpid();
        watched.runs = false;
        watched.first = NULL;
    }
    comm->watch.next = watched.first;
    comm->watch.added = true;
    watched.first = comm;
    if (!watched.runs) start();
    pthread_mutex_unlock(&watched.lock);
}

void bl_watch_remove(struct bl_comm *comm) {
    if (!comm->watch.added) return;
    pthread_mutex_lock(&watched.lock);
    for (struct bl_comm **at = &watched.first; *at; at = &(*at)->watch.next) {
        if (*at != comm) continue;
        *at = comm->watch.next;
        break;
    }
    comm->watch.added = false;
    pthread_mutex_unlock(&watched.lock);
}
