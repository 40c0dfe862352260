#include "group.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "launch/streams.h"

static _Thread_local struct bl_group group;

static pthread_key_t of_thread;
static bool has_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* At the end of a thread that had groups. */
static void free_arrays(void *unused) {
    bl_setup_forget(group.inits, group.init_count); /* of a group that the thread never ended */
    free(group.calls);
    free(group.forwarded);
    free(group.inits);
    free(group.finalized);
    memset(&group, 0, sizeof(group));
}

static void make_key(void) {
    has_key = pthread_key_create(&of_thread, free_arrays) == 0;
}

struct bl_group *bl_group(void) {
    return &group;
}

bool bl_group_open(void) {
    return group.depth > 0;
}

/* Room for one more; kept for the next group, so a steady job allocates once. */
static bool grow(void **array, int count, int *capacity, size_t size) {
    if (count < *capacity) return true;
    int larger = *capacity ? 2 * *capacity : 64;
    void *moved = realloc(*array, (size_t)larger * size);
    if (!moved) return false;
    *array = moved;
    *capacity = larger;
    pthread_once(&once, make_key);
    if (has_key) pthread_setspecific(of_thread, &group); /* anything but NULL */
    return true;
}

static ncclResult_t no_memory(void) {
    bl_warn("out of memory for call %d of a group", group.count + group.forwarded_count + 1);
    return ncclSystemError;
}

ncclResult_t bl_group_add_call(const struct bl_call *call) {
    if (!grow((void **)&group.calls, group.count, &group.capacity, sizeof *group.calls)) return no_memory();
    const bool message = bl_call_is_message(&call->request);
    group.calls[group.count++] = (struct bl_collected){.call = *call, .when = message ? BL_BEHIND : BL_AHEAD};
    atomic_fetch_add(&call->comm->pins, 1);
    return ncclSuccess;
}

ncclResult_t bl_group_add_forwarded(const struct bl_turn *turn) {
    if (!grow((void **)&group.forwarded, group.forwarded_count, &group.forwarded_capacity, sizeof *group.forwarded))
        return no_memory();
    group.forwarded[group.forwarded_count++] = *turn;
    if (!turn->follows) turn->comm->group_turn = group.forwarded_count;
    if (bl_turn_by_messages(turn)) turn->comm->group_messages = true;
    atomic_fetch_add(&turn->comm->pins, 1);
    return ncclSuccess;
}

const struct bl_turn *bl_group_turn(const struct bl_comm *comm, CUstream stream) {
    const int number = comm->group_turn; /* of this group, or of one that another thread left open */
    if (!bl_group_open() || number < 1 || number > group.forwarded_count) return NULL;
    const struct bl_turn *turn = &group.forwarded[number - 1];
    return turn->comm == comm && turn->stream == stream ? turn : NULL;
}

void bl_group_add_init(const struct bl_setup_request *request) {
    if (!bl_group_open()) {
        bl_setup_run(request, 1);
    } else if (grow((void **)&group.inits, group.init_count, &group.init_capacity, sizeof *request)) {
        group.inits[group.init_count++] = *request;
    } else {
        bl_warn("out of memory for communicator %d of a group: it is left to NCCL", group.init_count + 1);
        bl_setup_leave(request);
    }
}

bool bl_group_add_finalized(struct bl_comm *comm) {
    if (!grow((void **)&group.finalized, group.finalized_count, &group.finalized_capacity, sizeof *group.finalized))
        return false;
    group.finalized[group.finalized_count++] = comm;
    atomic_fetch_add(&comm->pins, 1);
    return true;
}

bool bl_group_list_streams(const struct bl_group *all) {
    bool listed = bl_streams_list(all->calls, all->count);
    for (int i = 0; i < all->forwarded_count && listed; i++)
        listed = bl_streams_add(all->forwarded[i].comm, all->forwarded[i].stream);
    return listed;
}

void bl_group_fail(ncclResult_t error) {
    if (group.error == ncclSuccess) group.error = error;
}

void bl_group_prepares(void) {
    if (bl_real_depth == 0 && bl_group_open()) group.prepares = true;
}

ncclResult_t bl_group_heard(ncclResult_t result) {
    if (!bl_call_made(result)) bl_group_prepares();
    return result;
}
