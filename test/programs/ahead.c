/* ahead.c - sends ahead of their receives. */
#include "messages.h"

#include <stdio.h>

/* --- messages_ahead: small ones are through for their sender before anybody receives --- */
enum { AHEAD = 4 };

static void ahead(struct part *part, const struct settings *s, bool grouped) {
    const ncclComm_t comm = comm_open(part);
    const CUstream stream = stream_open();
    const int n = part->box->nranks;
    struct messages list = {0};
    messages_connect(part, s, n, comm, stream);
    for (int k = 0; k < AHEAD; k++)
        for (int to = 1; to < n; to++) messages_add(&list, 0, to, k == 2 ? 0 : s->small - (size_t)k);
    messages_open(part, &list);
    for (long k = 0; k < 3 * s->repeat; k++) {
        messages_fill(part, &list, s->seed + (uint64_t)k);
        part_barrier(part);
        doing(part, "round %ld: sends that nobody receives yet", k);
        if (grouped)
            messages_group(part, &list, SENT, 0, list.count, comm, stream);
        else
            messages_post(part, &list, SENT, 0, list.count, comm, stream);
        stream_sync(stream);
        part_barrier(part);
        doing(part, "round %ld: receives", k);
        if (grouped) /* the other way round at this end */
            messages_post(part, &list, RECEIVED, 0, list.count, comm, stream);
        else
            messages_group(part, &list, RECEIVED, 0, list.count, comm, stream);
        stream_sync(stream);
        messages_check(part, &list);
    }
    comm_close(part, comm);
    stream_close(stream);
    messages_close(&list);
}

static void messages_ahead(struct part *part, const struct settings *s) {
    ahead(part, s, false);
}
static void messages_ahead_grouped(struct part *part, const struct settings *s) {
    ahead(part, s, true);
}

/* --- messages_unreceived: eight sends of any size, one by one, end while nobody receives: so many slots has a channel of NCCL's --- */
enum { SLOTS = 8, MOST_UNRECEIVED = 2 * SLOTS + 4 };

/* Of messages of both sizes in turn; returns how many there were. */
static int unreceived(struct part *part, const struct settings *s, size_t bytes, size_t others, ncclComm_t comm,
                      CUstream stream) {
    struct messages list = {0};
    const int rank = self(part)->rank;
    int taken = 0;
    for (int k = 0; k < MOST_UNRECEIVED; k++) messages_add(&list, 0, 1, k % 2 ? others : bytes);
    messages_open(part, &list);
    messages_fill(part, &list, s->seed + bytes);
    part_barrier(part);
    doing(part, "%zu and %zu bytes: sends that nobody receives yet", bytes, others);
    for (; rank == 0 && taken < MOST_UNRECEIVED; taken++) {
        messages_post(part, &list, SENT, taken, taken + 1, comm, stream);
        if (!is_through(stream, 600)) break;
    }
    part_barrier(part);
    doing(part, "%zu and %zu bytes: receives", bytes, others);
    messages_post(part, &list, BOTH_ENDS, rank ? 0 : taken + 1, MOST_UNRECEIVED, comm, stream);
    stream_sync(stream);
    messages_check(part, &list);
    messages_close(&list);
    CHECK(rank || taken >= SLOTS, "%d sends of %zu and %zu bytes end without a receiver", taken, bytes, others);
    return taken;
}

static void messages_unreceived(struct part *part, const struct settings *s) {
    const ncclComm_t comm = comm_open(part);
    const CUstream stream = stream_open();
    messages_connect(part, s, 2, comm, stream);
    for (size_t bytes = s->small; bytes <= s->middle; bytes *= 4) {
        const int alike = unreceived(part, s, bytes, bytes, comm, stream);
        const int mixed = unreceived(part, s, bytes, s->small, comm, stream);
        if (self(part)->rank == 0) printf("%8zu K: %d, and %d with %zu in turn\n", bytes >> 10, alike, mixed, s->small);
    }
    comm_close(part, comm);
    stream_close(stream);
}

/* The same of the first messages that a communicator has, of one size. */
static void messages_unreceived_first(struct part *part, const struct settings *s) {
    const ncclComm_t comm = comm_open(part);
    const CUstream stream = stream_open();
    unreceived(part, s, s->small, s->small, comm, stream);
    comm_close(part, comm);
    stream_close(stream);
}

const struct program ahead_programs[] = {
    {"messages_ahead", messages_ahead},
    {"messages_ahead_grouped", messages_ahead_grouped},
    {"messages_unreceived", messages_unreceived},
    {0},
};
const struct program unlisted_ahead_programs[] = {{"messages_unreceived_first", messages_unreceived_first}, {0}};
