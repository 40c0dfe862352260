#include "group.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

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
    atomic_fetch_add(&turn->comm->pins, 1);
    return ncclSuccess;
}

const struct bl_turn *bl_group_turn(const struct bl_comm *comm, CUstream stream) {
    const int number = comm->group_turn; /* of this group, or of one that another thread left open */
    if (!bl_group_open() || number < 1 || number > group.forwarded_count) return NULL;
    const struct bl_turn *turn = &group.forwarded[number - 1];
    return turn->comm == comm && turn->stream == stream ? turn : NULL;
}

/* A group that ended early may have left marks of its own. */
static bool has_turn(const struct bl_comm *comm) {
    const int number = comm->group_turn;
    return number >= 1 && number <= group.forwarded_count && group.forwarded[number - 1].comm == comm;
}

bool bl_group_left(const struct bl_comm *comm, enum bl_collective collective) {
    return bl_group_open() && has_turn(comm) && (comm->group_left >> collective & 1) != 0;
}

/* What the user's setting gives Beeline stays. */
static bool is_left(const struct bl_call *call, const struct bl_comm *comm, enum bl_collective collective) {
    return call->comm == comm && call->request.collective == collective && call->route.why == BL_REASON_TUNED;
}

ncclResult_t bl_group_leave(struct bl_comm *comm, enum bl_collective collective,
                            ncclResult_t (*take)(struct bl_call *call)) {
    ncclResult_t result = ncclSuccess;
    int left = 0;
    comm->group_left = (has_turn(comm) ? comm->group_left : 0) | 1u << collective;
    for (int i = 0; i < group.count; i++) {
        struct bl_collected *collected = &group.calls[i];
        if (result == ncclSuccess && is_left(&collected->call, comm, collective)) {
            result = take(&collected->call);
            atomic_fetch_sub(&comm->pins, 1);
        } else {
            group.calls[left++] = *collected;
        }
    }
    group.count = left;
    return result;
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

void bl_group_fail(ncclResult_t error) {
    if (group.error == ncclSuccess) group.error = error;
}
