/* leave.c - ranks that leave a communicator with multicast, until all have. */
#include "leave.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/clock.h"

enum { POLL_NS = 200000 };

static struct bl_leaver *leaving;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void end(struct bl_leaver *leaver) {
    bl_multicast_release(&leaver->multicast);
    bl_mesh_close(&leaver->mesh);
    free(leaver);
}

/* How many of the communicator's leavers wait. */
static int count_leaving(uint64_t id) {
    int count = 0;
    pthread_mutex_lock(&lock);
    for (const struct bl_leaver *one = leaving; one; one = one->next) count += one->id == id;
    pthread_mutex_unlock(&lock);
    return count;
}

void bl_leave_look(void) {
    struct bl_leaver *done = NULL;
    pthread_mutex_lock(&lock);
    for (struct bl_leaver **link = &leaving, *one; (one = *link);) {
        if (one->pid != getpid() || !bl_mesh_all_shut(&one->mesh)) {
            link = &one->next;
            continue;
        }
        *link = one->next;
        one->next = done;
        done = one;
    }
    pthread_mutex_unlock(&lock);
    for (struct bl_leaver *next; done; done = next) {
        next = done->next;
        end(done);
    }
}

void bl_leave(struct bl_leaver *leaver) {
    const uint64_t id = leaver->id, patience = bl_clock_ns() + BL_LEAVE_NS;
    const int ranks_here = leaver->ranks_here;
    if (!leaver->met) {
        end(leaver);
        return;
    }
    bl_multicast_withdraw(&leaver->multicast);
    bl_mesh_shut(&leaver->mesh);
    leaver->pid = getpid();
    pthread_mutex_lock(&lock);
    leaver->next = leaving;
    leaving = leaver;
    pthread_mutex_unlock(&lock);

    const bool last = count_leaving(id) == ranks_here; /* until then, none of them has heard of all */
    bl_leave_look();
    while (last && count_leaving(id) && bl_clock_ns() < patience) {
        bl_nap(POLL_NS);
        bl_leave_look();
    }
    if (last && count_leaving(id))
        bl_info("communicator %016llx: a peer is not at rest; the memory behind its multicast object is kept",
                (unsigned long long)id);
}
