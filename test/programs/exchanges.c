/* exchanges.c - messages in the patterns that programs have: who sends what to whom. */
#include "messages.h"

#include <unistd.h>

/* --- messages_patterns: all of a pattern as one group, then one by one --- */
static void pairs(struct messages *list, int n, const struct settings *s) {
    for (int r = 0; r + 1 < n; r += 2) messages_add(list, r, r + 1, s->large + 3);
}
static void ring(struct messages *list, int n, const struct settings *s) {
    for (int r = 0; r < n; r++) messages_add(list, r, (r + 1) % n, s->middle);
}
static void large_ring(struct messages *list, int n, const struct settings *s) {
    for (int r = 0; r < n; r++) messages_add(list, r, (r + 1) % n, s->large);
}
static void both_ways(struct messages *list, int n, const struct settings *s) {
    for (int r = 0; r + 1 < n; r++) {
        messages_add(list, r, r + 1, s->large);
        messages_add(list, r + 1, r, s->small);
    }
}
/* As of experts: what each has for each is of any size, and often nothing. */
static void uneven(struct messages *list, int n, const struct settings *s) {
    for (int from = 0; from < n; from++)
        for (int to = 0; to < n; to++)
            messages_add(list, from, to, message_size(s, (uint64_t)(11 + from * 7 + to * 3)));
}
static void all_sizes(struct messages *list, int n, const struct settings *s) {
    for (int k = 0; k < 60; k++) messages_add(list, k % n, (k + k / n) % n, message_size(s, (uint64_t)k));
}
static void to_self(struct messages *list, int n, const struct settings *s) {
    for (int r = 0; r < n; r++)
        for (int k = 0; k < 30; k++) messages_add(list, r, r, message_size(s, (uint64_t)(r + k)));
}
static void gather(struct messages *list, int n, const struct settings *s) {
    for (int r = 0; r < n; r++) messages_add(list, r, n - 1, s->middle + (size_t)r);
}
static void scatter(struct messages *list, int n, const struct settings *s) {
    for (int r = 0; r < n; r++) messages_add(list, 0, r, s->middle + (size_t)(n - r));
}
/* Several of a pair match in order: a large one is not overtaken. */
static void in_order(struct messages *list, int n, const struct settings *s) {
    const size_t sizes[] = {s->small, s->large, s->small, 0, 5, s->middle, 5, 0, s->small};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int r = 0; r < n; r++) messages_add(list, r, (r + 1) % n, sizes[k]);
}
static void many(struct messages *list, int n, const struct settings *s) {
    for (int k = 0; k < 150; k++)
        for (int r = 0; r < n; r++) messages_add(list, r, (r + 1 + k % 2) % n, 1 + (size_t)(k * 37) % s->small);
}
static void nothing(struct messages *list, int n, const struct settings *s) {
    for (int from = 0; from < n; from++)
        for (int to = 0; to < n; to++) messages_add(list, from, to, 0);
}

static const struct {
    const char *name;
    void (*build)(struct messages *list, int nranks, const struct settings *settings);
} patterns[] = {{"pairs", pairs},         {"ring", ring},     {"a large ring", large_ring},
                {"both ways", both_ways}, {"uneven", uneven}, {"all sizes", all_sizes},
                {"to itself", to_self},   {"gather", gather}, {"scatter", scatter},
                {"in order", in_order},   {"many", many},     {"nothing", nothing}};
enum { PATTERNS = sizeof patterns / sizeof *patterns };

static void messages_patterns(struct part *part, const struct settings *s) {
    const ncclComm_t comm = comm_open(part);
    const CUstream stream = stream_open();
    for (int p = 0; p < PATTERNS; p++) {
        struct messages list = {0};
        patterns[p].build(&list, part->box->nranks, s);
        messages_open(part, &list);
        for (long k = 0; k < 2 * s->repeat; k++) {
            messages_fill(part, &list, s->seed + (uint64_t)k);
            part_barrier(part);
            doing(part, "%s, %s", patterns[p].name, k % 2 ? "one by one" : "as a group");
            if (k % 2)
                messages_post(part, &list, BOTH_ENDS, 0, list.count, comm, stream);
            else
                messages_group(part, &list, BOTH_ENDS, 0, list.count, comm, stream);
            stream_sync(stream);
            messages_check(part, &list);
        }
        messages_close(&list);
    }
    comm_close(part, comm);
    stream_close(stream);
}

/* --- messages_awaited: a receive waits for its send, of nothing, too --- */
static void messages_awaited(struct part *part, const struct settings *s) {
    const ncclComm_t comm = comm_open(part);
    const CUstream stream = stream_open();
    const int n = part->box->nranks;
    const size_t sizes[] = {0, 1, s->small, s->middle};
    messages_connect(part, s, n, comm, stream);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        struct messages list = {0};
        for (int to = 1; to < n; to++) messages_add(&list, 0, to, sizes[k]);
        messages_open(part, &list);
        messages_fill(part, &list, s->seed + k);
        part_barrier(part);
        doing(part, "%zu bytes: receives that nobody has sent", sizes[k]);
        const int posted = messages_post(part, &list, RECEIVED, 0, list.count, comm, stream);
        usleep(30000);
        CHECK(!posted || cu.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY, "rank %d has %zu bytes that nobody sent",
              self(part)->rank, sizes[k]);
        messages_check_untouched(part, &list);
        part_barrier(part);
        doing(part, "%zu bytes: sends", sizes[k]);
        messages_post(part, &list, SENT, 0, list.count, comm, stream);
        stream_sync(stream);
        messages_check(part, &list);
        messages_close(&list);
    }
    comm_close(part, comm);
    stream_close(stream);
}

/* --- messages_abandoned: what nobody sends or receives ends with its communicator --- */
static void messages_abandoned(struct part *part, const struct settings *s) {
    static const struct {
        const char *what;
        bool receives, aborts; /* else it finalizes and destroys, which small sends let it */
        int size;
    } kinds[] = {{"a receive of nothing", true, true, 0},   {"a small receive", true, true, 1},
                 {"a large receive", true, true, 2},        {"a large send", false, true, 2},
                 {"a small send, aborted", false, true, 1}, {"small sends, finalized", false, false, 1}};
    const size_t sizes[] = {0, s->small, s->large};
    const int last = last_rank(part);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const ncclComm_t comm = comm_open(part);
        const CUstream stream = stream_open();
        struct messages list = {0};
        messages_connect(part, s, part->box->nranks, comm, stream);
        messages_add(&list, kinds[k].receives ? last : 0, kinds[k].receives ? 0 : last, sizes[kinds[k].size]);
        messages_open(part, &list);
        messages_fill(part, &list, s->seed + k);
        part_barrier(part);
        doing(part, "%s", kinds[k].what);
        messages_post(part, &list, kinds[k].receives ? RECEIVED : SENT, 0, 1, comm, stream);
        usleep(20000);
        doing(part, "%s: the end of the communicator", kinds[k].what);
        const double start = box_seconds();
        if (self(part)->rank == 0) {
            if (!kinds[k].aborts) NCCL_OK(ncclCommFinalize(comm));
            NCCL_OK(kinds[k].aborts ? ncclCommAbort(comm) : ncclCommDestroy(comm));
        }
        part_barrier(part);
        if (self(part)->rank) NCCL_OK(ncclCommAbort(comm));
        stream_sync(stream);
        took(box_seconds() - start);
        messages_check_untouched(part, &list);
        messages_close(&list);
        stream_close(stream);
        part_barrier(part);
    }
}

/* --- messages_chain: a large and a small one in one group; the large one is taken only when the small one has gone round --- */
enum { WAYS = 8 };

static void messages_chain(struct part *part, const struct settings *s) {
    const int n = part->box->nranks;
    if (n < 3) box_skip("messages_chain needs three ranks");
    const ncclComm_t comm = comm_open(part);
    const CUstream stream[2] = {stream_open(), stream_open()};
    messages_connect(part, s, n, comm, stream[0]);
    for (int k = 0; k < WAYS * s->repeat; k++) {
        const bool waits = k & 1, large_first = k & 2, streams = k & 4; /* the host waits; order in the group */
        const int first = k % n, second = (k + 1) % n, third = (k + 2) % n;
        const int large = !large_first, small = large_first;
        struct messages list = {0};
        messages_add(&list, first, large_first ? second : third, large_first ? s->large : s->small);
        messages_add(&list, first, large_first ? third : second, large_first ? s->small : s->large);
        messages_add(&list, third, second, s->small);
        messages_open(part, &list);
        messages_fill(part, &list, s->seed + (uint64_t)k);
        part_barrier(part);
        doing(part, "way %d: rank %d sends a large one to %d, which first awaits what %d passes on", k, first, second,
              third);
        const struct { int rank, message[2]; } steps[] = {{second, {2, large}}, {third, {small, 2}}};
        if (self(part)->rank == first) messages_group(part, &list, BOTH_ENDS, 0, 2, comm, stream[0]);
        for (int i = 0; i < 4; i++) {
            const int m = steps[i / 2].message[i % 2];
            if (self(part)->rank != steps[i / 2].rank) continue;
            messages_post(part, &list, BOTH_ENDS, m, m + 1, comm, stream[streams && i % 2]);
            if (waits) stream_sync(stream[streams && i % 2]);
        }
        stream_sync(stream[0]);
        stream_sync(stream[1]);
        messages_check(part, &list);
        messages_close(&list);
    }
    comm_close(part, comm);
    stream_close(stream[0]);
    stream_close(stream[1]);
}

const struct program exchange_programs[] = {
    {"messages_patterns", messages_patterns},
    {"messages_awaited", messages_awaited},
    {"messages_abandoned", messages_abandoned},
    {"messages_chain", messages_chain},
    {0},
};
