/* late.c - writes of copies, fills and stream memory operations that others see late and out of order.
 *
 * What such an operation writes to memory that other GPUs may see is for the most part there when it is done, but some
 * pieces of it wait here, like a kernel's stores in delivery.c.  Each arrives at a random later time, and before that
 * only where CUDA promises it, to whom it promises it:
 * - a write value without NO_MEMORY_BARRIER, and a barrier of system scope, first deliver all that came before on their
 *   stream, or, in a graph, all that an edge leads from;
 * - so do kernels, host functions and records of events when they begin, and whoever waits for a stream when it is done;
 * - what comes later on the stream or along the graph's edges finds each place as it was left.
 * A copy that is followed by a fill, a copy or a write value without a barrier promises nobody else any order.
 */
#include "emu.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct late {
    struct late *next;
    struct emu_issuer by;
    const struct emu_range *range;
    uintptr_t address;
    uint64_t identity, place; /* whatever the mapping */
    size_t bytes;
    uint64_t due;
    unsigned char data[];
};

enum { MOST = 512, PIECE = 4096, GRAIN = 16, WORD = 8 };
static const uint64_t data_late_ns = 4000000, word_late_ns = 400000;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t some = PTHREAD_COND_INITIALIZER;
static struct late *first, **tail = &first; /* in the order of issue */
static int count;
static bool courier_runs;
static uint64_t random_state;

static uint64_t draw(uint64_t below) {
    if (!random_state)
        random_state = emu_config.seed * 0x9e3779b9u + (uint64_t)(emu_config.local_rank + 1) * 0xc2b2ae35u + 1;
    return emu_random(&random_state) % below;
}

enum { PAGE = 4096 };
static bool makes_holes;

/* qemu says so, and does nothing. */
static void try_hole(void) {
    char *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return;
    *p = 1;
    makes_holes = madvise(p, PAGE, MADV_REMOVE) == 0 && *p == 0;
    munmap(p, PAGE);
}

/* Staging is zeroed whole and hardly used: zeros that nobody looks at take no pages.  False if they would anyhow, as of memory
 * that is no file's. */
static bool put_hole(uintptr_t to, const unsigned char *from, size_t bytes) {
    enum { WORTH_IT = 64 << 10 };
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (bytes < WORTH_IT || from[0] || memcmp(from, from + 1, bytes - 1) != 0) return false;
    pthread_once(&once, try_hole);
    if (!makes_holes) return false;
    const uintptr_t low = (to + PAGE - 1) / PAGE * PAGE, high = (to + bytes) / PAGE * PAGE;
    if (madvise((void *)low, high - low, MADV_REMOVE)) return false;
    memset((void *)to, 0, low - to);
    memset((void *)high, 0, to + bytes - high);
    return true;
}

/* A flag is seen whole. */
static void put(uintptr_t to, const void *from, size_t bytes) {
    uint32_t word;
    uint64_t wide;
    if (bytes == sizeof word && to % sizeof word == 0) {
        memcpy(&word, from, sizeof word);
        __atomic_store_n((uint32_t *)to, word, __ATOMIC_RELEASE);
    } else if (bytes == sizeof wide && to % sizeof wide == 0) {
        memcpy(&wide, from, sizeof wide);
        __atomic_store_n((uint64_t *)to, wide, __ATOMIC_RELEASE);
    } else if (!put_hole(to, from, bytes)) {
        memmove((void *)to, from, bytes);
    }
}

static void unlink_late(struct late **at) {
    struct late *late = *at;
    *at = late->next;
    if (tail == &late->next) tail = at;
    count--;
    free(late);
}

static void deliver(struct late **at) {
    put((*at)->address, (*at)->data, (*at)->bytes);
    unlink_late(at);
}

/* Of all that is late, in its order; with the lock held. */
#define DELIVER_IF(condition)                                                                                          \
    for (struct late **at = &first, *late; (late = *at);) {                                                            \
        if (condition)                                                                                                 \
            deliver(at);                                                                                               \
        else                                                                                                           \
            at = &late->next;                                                                                          \
    }

/* Delivers, by itself, what is due. */
static void *courier(void *argument) {
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!first) pthread_cond_wait(&some, &lock);
        uint64_t time = emu_nanoseconds();
        DELIVER_IF(late->due <= time);
        pthread_mutex_unlock(&lock);
        usleep(50);
        pthread_mutex_lock(&lock);
    }
    return argument;
}

static uint64_t identity_of(const struct emu_range *range) {
    return range->kind == EMU_MAPPED ? range->handle->identity : (uintptr_t)range;
}

static bool overlaps(const struct late *late, uintptr_t address, size_t bytes) {
    for (uintptr_t end = address + bytes; address < end;) {
        const struct emu_range *range = emu_range_of(address);
        if (!range) return false;
        size_t left = range->base + range->size - address, here = end - address < left ? end - address : left;
        uint64_t place = address - range->base + range->offset;
        if (identity_of(range) == late->identity && place < late->place + late->bytes && late->place < place + here)
            return true;
        address += here;
    }
    return false;
}

/* Is there a way along the edges? */
static bool leads(const struct emu_plan *plan, int from, int to) {
    bool *seen = calloc((size_t)plan->count, 1), found = false;
    int *open = malloc((size_t)plan->count * sizeof *open), nopen = 0;
    if (!seen || !open) found = true; /* less to notice, nothing wrong */
    if (!found) open[nopen++] = from;
    while (nopen && !found) {
        int node = open[--nopen];
        for (int i = 0; i < plan->nnext[node] && !found; i++) {
            int next = plan->next[node][i];
            found = next == to;
            if (!seen[next]) open[nopen++] = next;
            seen[next] = true;
        }
    }
    free(seen);
    free(open);
    return found;
}

/* Did it come before what `by` does now? */
static bool before(const struct late *late, const struct emu_issuer *by) {
    if (late->by.stream != by->stream) return false;
    if (!late->by.plan || late->by.node == by->node) return true;
    return by->plan && leads(by->plan, late->by.node, by->node);
}

void emu_late_flush(const struct emu_issuer *by) {
    pthread_mutex_lock(&lock);
    DELIVER_IF(before(late, by));
    pthread_mutex_unlock(&lock);
}

static void flush_place(const struct emu_issuer *by, uintptr_t address, size_t bytes) {
    DELIVER_IF(overlaps(late, address, bytes) && before(late, by));
}

void emu_late_flush_place(const struct emu_issuer *by, const void *place, size_t bytes) {
    pthread_mutex_lock(&lock);
    if (first) flush_place(by, (uintptr_t)place, bytes);
    pthread_mutex_unlock(&lock);
}

void emu_late_flush_stream(const struct emu_stream *stream) {
    pthread_mutex_lock(&lock);
    DELIVER_IF(late->by.stream == stream);
    pthread_mutex_unlock(&lock);
}

void emu_late_leave_graph(const struct emu_stream *stream) {
    pthread_mutex_lock(&lock);
    for (struct late *late = first; late; late = late->next)
        if (late->by.stream == stream) late->by.plan = NULL;
    pthread_mutex_unlock(&lock);
}

void emu_late_forget(const struct emu_range *range) {
    pthread_mutex_lock(&lock);
    for (struct late **at = &first; *at;) {
        if ((*at)->range != range) {
            at = &(*at)->next;
            continue;
        }
        emu_say("memory at %p was unmapped under a copy, a fill or a write value", (void *)(*at)->address);
        unlink_late(at);
    }
    pthread_mutex_unlock(&lock);
}

bool emu_late_load(const void *word, bool wide, uint64_t *value) {
    pthread_mutex_lock(&lock); /* what is unmapped is forgotten first */
    const struct emu_range *range = emu_range_of((uintptr_t)word);
    bool there = range && range->kind != EMU_RESERVED;
    if (there)
        *value = wide ? __atomic_load_n((const uint64_t *)word, __ATOMIC_ACQUIRE)
                      : __atomic_load_n((const uint32_t *)word, __ATOMIC_ACQUIRE);
    pthread_mutex_unlock(&lock);
    return there;
}

/* Memory that other GPUs may see.  What arrives changed on a broken box arrives at once. */
bool emu_late_is(const struct emu_context *context, const void *place) {
    const struct emu_range *range = emu_config.topology == EMU_BROKEN ? NULL : emu_range_of((uintptr_t)place);
    if (!range) return false;
    return range->kind == EMU_MAPPED ||
           (range->kind == EMU_PLAIN && range->device != emu_config.visible[context->device]);
}

struct piece {
    size_t at, bytes;
};

static int by_place(const void *a, const void *b) {
    size_t x = ((const struct piece *)a)->at, y = ((const struct piece *)b)->at;
    return (x > y) - (x < y);
}

/* What is kept back: a flag whole or not at all, of anything else up to three pieces.  In order and apart. */
static int choose(size_t bytes, struct piece piece[3]) {
    int n = 0, apart = 0;
    if (bytes <= WORD) {
        piece[0] = (struct piece){0, bytes};
        return draw(4) != 0;
    }
    for (int want = 1 + (int)draw(3); n < want; n++) {
        size_t at = draw(4) ? draw((bytes + GRAIN - 1) / GRAIN) * GRAIN : 0;
        size_t most = bytes - at < PIECE ? bytes - at : PIECE;
        piece[n] = (struct piece){at, draw(4) ? most : 1 + draw(most)};
    }
    qsort(piece, (size_t)n, sizeof *piece, by_place);
    for (int i = 0; i < n; i++)
        if (!apart || piece[apart - 1].at + piece[apart - 1].bytes <= piece[i].at) piece[apart++] = piece[i];
    return apart;
}

/* False if it cannot be: then it is not late. */
static bool keep(const struct emu_issuer *by, uintptr_t dst, const unsigned char *src, size_t bytes) {
    const struct emu_range *range = emu_range_of(dst);
    if (!emu_range_holds(range, dst, bytes)) return false;
    struct late *late = malloc(sizeof *late + bytes);
    if (!late) return false;
    *late = (struct late){.by = *by,
                          .range = range,
                          .address = dst,
                          .identity = identity_of(range),
                          .place = dst - range->base + range->offset,
                          .bytes = bytes,
                          .due = emu_nanoseconds() + draw(bytes <= WORD ? word_late_ns : data_late_ns)};
    memcpy(late->data, src, bytes);
    *tail = late;
    tail = &late->next;
    count++;
    return true;
}

void emu_late_store(const struct emu_issuer *by, const struct emu_context *context, void *to, const void *from,
                    size_t bytes) {
    uintptr_t dst = (uintptr_t)to;
    const unsigned char *src = from;
    struct piece piece[3];
    int kept = 0;
    pthread_mutex_lock(&lock);
    if (first) {
        flush_place(by, dst, bytes);
        flush_place(by, (uintptr_t)src, bytes);
    }
    if (emu_late_is(context, to)) {
        int n = choose(bytes, piece);
        for (int i = 0; i < n; i++)
            if (keep(by, dst + piece[i].at, src + piece[i].at, piece[i].bytes)) piece[kept++] = piece[i];
        while (count > MOST) deliver(&first);
        if (kept && !courier_runs) courier_runs = emu_thread(courier, NULL);
        if (kept) pthread_cond_signal(&some);
    }
    pthread_mutex_unlock(&lock);
    size_t done = 0;
    for (int i = 0; i < kept; i++) {
        put(dst + done, src + done, piece[i].at - done);
        done = piece[i].at + piece[i].bytes;
    }
    put(dst + done, src + done, bytes - done);
}
