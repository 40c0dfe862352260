/* nvls_release.c - ranks that leave a communicator with multicast, until all have. */
#include "nvls_release.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/clock.h"

enum { POLL_NS = 200000 };

static struct bl_nvls *leaving;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void end(struct bl_nvls *nvls) {
    bl_multicast_release(&nvls->multicast);
    bl_mesh_close(&nvls->mesh);
    free(nvls);
}

/* How many of the communicator's ranks wait here. */
static int count_leaving(uint64_t id) {
    int count = 0;
    pthread_mutex_lock(&lock);
    for (const struct bl_nvls *one = leaving; one; one = one->next) count += one->id == id;
    pthread_mutex_unlock(&lock);
    return count;
}

void bl_nvls_release_look(void) {
    struct bl_nvls *done = NULL;
    pthread_mutex_lock(&lock);
    for (struct bl_nvls **link = &leaving, *one; (one = *link);) {
        if (one->pid != getpid() || !bl_mesh_all_shut(&one->mesh)) {
            link = &one->next;
            continue;
        }
        *link = one->next;
        one->next = done;
        done = one;
    }
    pthread_mutex_unlock(&lock);
    for (struct bl_nvls *next; done; done = next) {
        next = done->next;
        end(done);
    }
}

void bl_nvls_release(struct bl_nvls *nvls) {
    const uint64_t id = nvls->id, patience = bl_clock_ns() + BL_NVLS_RELEASE_NS;
    const int ranks_here = nvls->ranks_here;
    if (!nvls->met) {
        end(nvls);
        return;
    }
    bl_multicast_withdraw(&nvls->multicast);
    bl_mesh_shut(&nvls->mesh);
    nvls->pid = getpid();
    pthread_mutex_lock(&lock);
    nvls->next = leaving;
    leaving = nvls;
    pthread_mutex_unlock(&lock);

    const bool last = count_leaving(id) == ranks_here; /* until then, none of them has heard of all */
    bl_nvls_release_look();
    while (last && count_leaving(id) && bl_clock_ns() < patience) {
        bl_nap(POLL_NS);
        bl_nvls_release_look();
    }
    if (last && count_leaving(id))
        bl_info("communicator %016llx: a peer is not at rest; the memory behind its multicast object is kept",
                (unsigned long long)id);
}
