/* leaks.c - what was not given back, when the process ends. */
#define _GNU_SOURCE
#include "emu.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct sum {
    const char *what;
    unsigned count;
    uint64_t bytes;
};

enum {
    PLAIN,
    PINNED,
    REGISTERED,
    MANAGED,
    RESERVED,
    MAPPED,
    HANDLES,
    MULTICASTS,
    STREAMS,
    EVENTS,
    MODULES,
    GRAPHS,
    EXECS,
    CONTEXTS,
    SUMS
};

static const int of_range[] = {
    [EMU_PLAIN] = PLAIN,       [EMU_HOST] = PINNED,   [EMU_REGISTERED] = REGISTERED, [EMU_MANAGED] = MANAGED,
    [EMU_RESERVED] = RESERVED, [EMU_MAPPED] = MAPPED, [EMU_MULTICAST] = MAPPED};
static const int of_kind[EMU_KINDS] = {[EMU_STREAM] = STREAMS, [EMU_EVENT] = EVENTS, [EMU_MODULE] = MODULES,
                                       [EMU_GRAPH] = GRAPHS,   [EMU_EXEC] = EXECS,   [EMU_HANDLE] = HANDLES};

/* Kernels may stay loaded while their context lives, as NCCL's do: each image once. */
static bool is_kept(const struct emu_module *module) {
    if (!module->context || !module->context->retained) return false;
    for (const struct emu_module *other = NULL; (other = emu_object_of(EMU_MODULE, other));) {
        if (other->object.alive && other != module && other->context == module->context &&
            other->image == module->image)
            return false;
    }
    return true;
}

static void add(struct sum *sums, const struct emu_object *o) {
    const struct emu_range *range = (const struct emu_range *)o;
    const struct emu_context *context = (const struct emu_context *)o;
    int index = of_kind[o->kind];
    uint64_t bytes = 0;
    switch (o->kind) {
    case EMU_RANGE:
        index = of_range[range->kind];
        bytes = range->size;
        break;
    case EMU_HANDLE:
        bytes = ((const struct emu_handle *)o)->size;
        if (((const struct emu_handle *)o)->multicast) index = MULTICASTS;
        break;
    case EMU_STREAM:
        if (((const struct emu_stream *)o)->legacy || (o->alive && o->orphan)) return;
        break;
    case EMU_CONTEXT:
        if (!context->retained) return;
        index = CONTEXTS;
        break;
    case EMU_MODULE:
        if (is_kept((const struct emu_module *)o)) return;
        break;
    case EMU_EVENT:
    case EMU_GRAPH:
    case EMU_EXEC: break;
    default: return;
    }
    sums[index].count++;
    sums[index].bytes += bytes;
}

/* One line a kind, "LEAK ..." or, for what only its context's end gave back, "ORPHAN ...".  BEELINE_EMU_LEAKS=1 writes
 * to stderr, anything else is the path of a file to append to. */
void emu_leaks_report(void) {
    if (!strcmp(emu_config.leaks, "0")) return;
    int fd =
        strcmp(emu_config.leaks, "1") ? open(emu_config.leaks, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : 2;
    for (int orphans = 0; orphans < 2 && fd >= 0; orphans++) {
        struct sum sums[SUMS] = {[PLAIN] = {"cuMemAlloc"},
                                 [PINNED] = {"cuMemHostAlloc"},
                                 [REGISTERED] = {"cuMemHostRegister"},
                                 [MANAGED] = {"cuMemAllocManaged"},
                                 [RESERVED] = {"cuMemAddressReserve"},
                                 [MAPPED] = {"cuMemMap"},
                                 [HANDLES] = {"cuMemCreate or import"},
                                 [MULTICASTS] = {"cuMulticastCreate or import"},
                                 [STREAMS] = {"cuStreamCreate"},
                                 [EVENTS] = {"cuEventCreate"},
                                 [MODULES] = {"cuModuleLoad"},
                                 [GRAPHS] = {"cuGraph"},
                                 [EXECS] = {"cuGraphInstantiate"},
                                 [CONTEXTS] = {"context"}};
        for (struct emu_object *o = NULL; (o = emu_object_next(o));)
            if (orphans ? !o->alive && o->orphan : o->alive) add(sums, o);
        for (int i = 0; i < SUMS; i++)
            if (sums[i].count)
                dprintf(fd, "beeline-emu [%d] %s %s: %u, %llu bytes\n", (int)getpid(), orphans ? "ORPHAN" : "LEAK",
                        sums[i].what, sums[i].count, (unsigned long long)sums[i].bytes);
    }
    if (fd > 2) close(fd);
}
