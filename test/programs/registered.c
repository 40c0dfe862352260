/* registered.c - collectives on buffers of NCCL's own allocator, and on such as NCCL has been told of, as those train whose framework does that; and on
 * memory of the host's that the GPU reaches. */
#include "programs.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "real/nccl_later.h"

#ifndef NCCL_WIN_COLL_SYMMETRIC
#define NCCL_WIN_COLL_SYMMETRIC 0x01
#endif

/* Older libraries lack some. */
struct calls {
    __typeof__(ncclMemAlloc) *alloc;
    __typeof__(ncclMemFree) *free;
    __typeof__(ncclCommRegister) *tell;
    __typeof__(ncclCommDeregister) *untell;
    __typeof__(ncclCommWindowRegister) *tell_window;
    __typeof__(ncclCommWindowDeregister) *untell_window;
};

static void *function_of(const char *name) {
    void *const found = dlsym(RTLD_DEFAULT, name);
    if (!found) box_skip("NCCL has no %s", name);
    return found;
}

static struct calls look_up(void) {
    struct calls c;
    *(void **)&c.alloc = function_of("ncclMemAlloc");
    *(void **)&c.free = function_of("ncclMemFree");
    *(void **)&c.tell = function_of("ncclCommRegister");
    *(void **)&c.untell = function_of("ncclCommDeregister");
    *(void **)&c.tell_window = function_of("ncclCommWindowRegister");
    *(void **)&c.untell_window = function_of("ncclCommWindowDeregister");
    return c;
}

/* Whose memory, and as what NCCL knows it. */
struct way {
    const char *name;
    enum { DEVICES, NCCLS, LOCKED, PAGES, MANAGED } memory;
    enum { UNKNOWN, BUFFER, WINDOW } known;
};
static const struct way told[] = {{"the driver's memory, registered", DEVICES, BUFFER},
                                  {"NCCL's memory", NCCLS, UNKNOWN},
                                  {"NCCL's memory, registered", NCCLS, BUFFER},
                                  {"windows", NCCLS, WINDOW}};
static const struct way hosts[] = {{"page-locked memory", LOCKED, UNKNOWN},
                                   {"pages that were locked later", PAGES, UNKNOWN},
                                   {"managed memory", MANAGED, UNKNOWN}};
enum { TOLD = sizeof told / sizeof *told, HOSTS = sizeof hosts / sizeof *hosts, PAGE = 4096 };

/* What is sent from, and what is received to, each with room for a block of each rank. */
struct buffers {
    const struct way *way;
    size_t bytes;
    void *memory[2], *known[2];
    ncclWindow_t window[2];
    unsigned char *expected;
};

static void buffers_open(struct part *part, const struct calls *c, const struct way *way, size_t bytes,
                         struct buffers *b) {
    enum { GUARDS = 4096 }; /* more than a call has round its data */
    *b = (struct buffers){.way = way, .bytes = bytes + GUARDS, .expected = malloc(bytes)};
    CHECK(b->expected);
    doing(part, "allocating: %s", way->name);
    for (int k = 0; k < 2; k++) {
        void **const memory = &b->memory[k];
        switch (way->memory) {
        case DEVICES: CU_OK(cuMemAlloc((CUdeviceptr *)memory, b->bytes)); break;
        case NCCLS: NCCL_OK(c->alloc(memory, b->bytes)); break;
        case LOCKED: CU_OK(cuMemHostAlloc(memory, b->bytes, CU_MEMHOSTALLOC_PORTABLE)); break;
        case PAGES:
            CHECK(!posix_memalign(memory, PAGE, (b->bytes + PAGE - 1) / PAGE * PAGE));
            CU_OK(cuMemHostRegister(*memory, b->bytes, CU_MEMHOSTREGISTER_PORTABLE));
            break;
        case MANAGED: CU_OK(cuMemAllocManaged((CUdeviceptr *)memory, b->bytes, CU_MEM_ATTACH_GLOBAL)); break;
        }
    }
}

static void buffers_close(const struct calls *c, struct buffers *b) {
    for (int k = 0; k < 2; k++) {
        void *const memory = b->memory[k];
        switch (b->way->memory) {
        case DEVICES:
        case MANAGED: CU_OK(cuMemFree((CUdeviceptr)memory)); break;
        case NCCLS: NCCL_OK(c->free(memory)); break;
        case LOCKED: CU_OK(cuMemFreeHost(memory)); break;
        case PAGES:
            CU_OK(cuMemHostUnregister(memory));
            free(memory);
            break;
        }
    }
    free(b->expected);
}

static void tell(struct part *part, const struct calls *c, ncclComm_t comm, struct buffers *b) {
    doing(part, "registering: %s", b->way->name);
    for (int k = 0; k < 2; k++) {
        if (b->way->known == BUFFER) NCCL_OK(c->tell(comm, b->memory[k], b->bytes, &b->known[k]));
        if (b->way->known == WINDOW)
            NCCL_OK(c->tell_window(comm, b->memory[k], b->bytes, &b->window[k], NCCL_WIN_COLL_SYMMETRIC));
    }
}

static void untell(struct part *part, const struct calls *c, ncclComm_t comm, struct buffers *b) {
    doing(part, "deregistering: %s", b->way->name);
    for (int k = 0; k < 2; k++) {
        if (b->way->known == BUFFER) NCCL_OK(c->untell(comm, b->known[k]));
        if (b->way->known == WINDOW) NCCL_OK(c->untell_window(comm, b->window[k]));
    }
}

/* Eager, then as a graph that is gone before this returns. */
static void one_call(struct part *part, struct call *call, ncclComm_t comm, CUstream stream) {
    enum { REPLAYS = 2 };
    struct graph graph;
    NCCL_OK(call_issue_rank(part, call, 0, comm, stream));
    stream_sync(stream);
    call_check(part, call);
    capture_begin(stream);
    NCCL_OK(call_issue_rank(part, call, 0, comm, stream));
    capture_end(stream, &graph);
    for (int k = 0; k < REPLAYS; k++) {
        call_refill(part, call);
        CU_OK(cuGraphLaunch(graph.exec, stream));
        stream_sync(stream);
        call_check(part, call);
    }
    graph_close(&graph);
}

/* Each collective, of each size, in place and not; of the large ones, which take long to check, one of both, as `turn` is even or not. */
static void all_calls(struct part *part, const struct settings *s, const struct buffers *b, ncclComm_t comm,
                      CUstream stream, int turn) {
    const size_t sizes[] = {s->small, s->middle + 4, s->large};
    for (int c = 0; c < BL_COLLECTIVES; c++)
        for (int k = 0; k < 6; k++) {
            const size_t bytes = sizes[k / 2];
            const bool either = k >= 4;
            if (either && k % 2 != (turn + c) % 2) continue;
            const size_t blocks = collective_has_blocks(c) ? (size_t)part->box->nranks : 1;
            struct call call = {.collective = (enum bl_collective)c,
                                .datatype = ncclInt32,
                                .redop = ncclSum,
                                .count = bytes / 4,
                                .in_place = k % 2,
                                .seed = s->seed + (uint64_t)(100 * turn + 6 * c + k),
                                .room = blocks * bytes,
                                .send = {(CUdeviceptr)b->memory[0]},
                                .recv = {(CUdeviceptr)b->memory[1]},
                                .expected = b->expected};
            call_prepare(part, &call);
            if (k % 2 && !call.in_place && !either) continue;
            doing(part, "%s: %s of %zu bytes%s", b->way->name, collective_name(c), bytes,
                  call.in_place ? " in place" : "");
            one_call(part, &call, comm, stream);
        }
}

static size_t room_of(const struct part *part, const struct settings *s) {
    return (s->large > s->middle ? s->large : s->middle + 4) * (size_t)part->box->nranks;
}

/* --- registered: the last ones' memory is freed after the communicator's end, that of others before, but while none is used any more: NCCL
 * 2.28.9 takes memory for what it had been told of, or had found in a graph, if an address comes again (illegal address, or wrong data) --- */
static void registered(struct part *part, const struct settings *s) {
    const struct calls c = look_up();
    const size_t bytes = room_of(part, s);
    const ncclComm_t comm = comm_open(part);
    const CUstream stream = stream_open();
    struct buffers b[TOLD];
    for (int w = 0; w < TOLD; w++) {
        buffers_open(part, &c, &told[w], bytes, &b[w]);
        tell(part, &c, comm, &b[w]);
        all_calls(part, s, &b[w], comm, stream, 3 * w);
        part_barrier(part); /* a window is what others read, too */
        untell(part, &c, comm, &b[w]);
        if (told[w].known) all_calls(part, s, &b[w], comm, stream, 3 * w + 1);
    }
    for (int w = 0; w + 1 < TOLD; w++) buffers_close(&c, &b[w]);
    comm_close(part, comm);
    stream_close(stream);
    buffers_close(&c, &b[TOLD - 1]);
}

/* --- host_memory --- */
static void host_memory(struct part *part, const struct settings *s) {
    const ncclComm_t comm = comm_open(part);
    const CUstream stream = stream_open();
    for (int w = 0; w < HOSTS; w++) {
        struct buffers b;
        buffers_open(part, NULL, &hosts[w], room_of(part, s), &b);
        all_calls(part, s, &b, comm, stream, w);
        buffers_close(NULL, &b);
    }
    comm_close(part, comm);
    stream_close(stream);
}

const struct program registered_programs[] = {{"registered", registered}, {"host_memory", host_memory}, {0}};
