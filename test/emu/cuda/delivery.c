/* delivery.c - memory as kernels see it: checks of every access, and stores that arrive late and out of order.
 *
 * A store to memory that other GPUs may see, and every packet, cell and line, waits in its kernel's buffer.  It is delivered
 * at a random later time, and at the latest when its kernel ends or has nothing left to do, except:
 * - stores to one place in memory, whatever the mapping, are delivered in the order of issue;
 * - a packet, or a cell of a line, is delivered whole; so is a line with a flag, once its 8 lanes have stored their parts; the flag comes last.  Lanes that reach a line
 *   are to have met since they last did what may make them part: else the kernel fails;
 * - a fence, release or atomic of a thread delivers all that the thread has stored, and all that its block or warp had
 *   stored before their last barrier (cumulativity);
 * - so does a fence of another thread of the block with what the thread has stored by bulk copies and waited for;
 * - a thread sees its own stores, and those of its block and warp from before their last barrier.
 *
 * On the reader's side, a plain or relaxed load of a word may for a while return what the word held before its newest
 * delivery, unless the thread has acquired since.  Within one process only: who needs the order must test there.
 */
#include "simt.h"

#include <stdlib.h>
#include <string.h>

static uint64_t clock_of_deliveries = 1; /* ticks at deliveries and at polls in vain */
uint64_t delivery_time(void) {
    return clock_of_deliveries;
}

/* --- what was there before: a small table by place in memory, overwritten at will --- */
struct former {
    struct spot spot; /* of 16 bytes */
    unsigned char bytes[16];
    uint64_t time;
    const struct kernel *writer;
};
enum { FORMERS = 4096, LONGEST = 1024 /* ticks for which an old value may be seen */ };
static struct former formers[FORMERS];

static struct spot spot_of(const struct emu_range *range, uintptr_t address) {
    bool mapped = range->kind == EMU_MAPPED;
    return (struct spot){mapped ? range->handle->identity : (uintptr_t)range, address - range->base + range->offset};
}

static struct spot former_spot(const struct emu_range *range, uintptr_t address) {
    return spot_of(range, address & ~(uintptr_t)15);
}

static struct former *former_of(struct spot spot) {
    return &formers[(spot.identity * 31 + spot.offset / 16) % FORMERS];
}

static void remember(const struct emu_range *range, uintptr_t address, const struct kernel *writer) {
    struct spot spot = former_spot(range, address);
    struct former *f = former_of(spot);
    f->spot = spot;
    memcpy(f->bytes, (void *)(address & ~(uintptr_t)15), 16);
    f->time = clock_of_deliveries;
    f->writer = writer;
}

/* Old for a while, then new for good: a thread never sees a word go back. */
static bool stale(const struct former *f, const struct fiber *fiber) {
    if (f->writer == fiber->block->kernel || f->time <= fiber->horizon) return false;
    uint64_t choice = f->time * 0x9e3779b97f4a7c15ull + fiber->thread * 0x85ebca6bull + f->spot.offset;
    return clock_of_deliveries - f->time < emu_random(&choice) % LONGEST;
}

/* --- access checks --- */
struct emu_range *delivery_range(uintptr_t address, unsigned size, bool write) {
    struct emu_range *range = emu_range_of(address);
    struct emu_context *context = fiber_now->block->kernel->launch.context;
    uint32_t allowed = !range ? 0 : write ? range->writable : range->readable;
    if (range && range->kind == EMU_PLAIN && context->peers >> range->context->device & 1) allowed = ~0u;
    if (!range || !emu_range_holds(range, address, size) || !(allowed >> context->device & 1))
        simt_fault(CUDA_ERROR_ILLEGAL_ADDRESS, write ? "store outside memory" : "load outside memory", address, size);
    if (range->kind == EMU_MULTICAST) /* undefined, says PTX */
        simt_fault(CUDA_ERROR_ILLEGAL_ADDRESS, "plain access to a multicast mapping", address, size);
    if (address & ((size < 8 ? size : 8) - 1))
        simt_fault(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned access", address, size);
    if (!fiber_now->waited)
        simt_fault(CUDA_ERROR_LAUNCH_FAILED, "access before the stream's earlier work was waited for", address, size);
    return range;
}

/* --- the buffer --- */
bool delivery_open(struct kernel *kernel) {
    kernel->pending = malloc(MAX_PENDING * sizeof *kernel->pending);
    for (int i = 0; i < MAX_PENDING; i++) kernel->order[i] = i;
    for (int i = 0; i < BUCKETS; i++) kernel->head[i] = kernel->tail[i] = -1;
    return kernel->pending;
}

static unsigned bucket(struct spot spot) {
    uint64_t line = spot.offset >> 7;
    return (unsigned)(line ^ line >> 8 ^ line >> 16 ^ spot.identity * 31) % BUCKETS;
}

static unsigned thread_in_grid(void) {
    return fiber_now->block->index * fiber_now->block->kernel->threads + fiber_now->thread;
}

static bool whole(const struct pending *p) {
    return !p->line || p->parts == 0xff;
}

static bool overlap(const struct pending *p, struct spot spot, unsigned size) {
    unsigned length = p->line ? 128 : p->size;
    return p->spot.identity == spot.identity && spot.offset < p->spot.offset + length &&
           p->spot.offset < spot.offset + size;
}

static void unlink_pending(struct kernel *kernel, int index) {
    struct pending *p = &kernel->pending[index];
    unsigned b = bucket(p->spot);
    int *at = &kernel->head[b], before = -1;
    while (*at != index) {
        before = *at;
        at = &kernel->pending[*at].next;
    }
    *at = p->next;
    if (kernel->tail[b] == index) kernel->tail[b] = before;
    kernel->npending_to[p->device + 1]--;
    int last = kernel->order[--kernel->npending];
    kernel->order[kernel->npending] = index;
    kernel->order[p->place] = last;
    kernel->pending[last].place = p->place;
}

/* 16 bytes at once, for other processes, too: x86-64 with AVX promises that of aligned vectors. */
#ifdef __x86_64__
typedef uint64_t two_words __attribute__((vector_size(16)));
static void whole_store(uintptr_t to, const void *from) {
    two_words v;
    memcpy(&v, from, sizeof v);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    *(volatile two_words *)to = v;
}
static void whole_load(void *to, uintptr_t from) {
    const two_words v = *(volatile two_words *)from;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    memcpy(to, &v, sizeof v);
}
#else
static void whole_store(uintptr_t to, const void *from) {
    __int128 v, was = *(__int128 *)to;
    memcpy(&v, from, sizeof v);
    for (__int128 is; (is = __sync_val_compare_and_swap((__int128 *)to, was, v)) != was; was = is) {
    }
}
static void whole_load(void *to, uintptr_t from) {
    const __int128 v = __sync_val_compare_and_swap((__int128 *)from, (__int128)0, (__int128)0);
    memcpy(to, &v, sizeof v);
}
#endif

static void copy_words(uintptr_t to, const void *from, unsigned size, int memorder) {
    switch (size) {
    case 1: __atomic_store_n((uint8_t *)to, *(const uint8_t *)from, memorder); break;
    case 2: __atomic_store_n((uint16_t *)to, *(const uint16_t *)from, memorder); break;
    case 4: __atomic_store_n((uint32_t *)to, *(const uint32_t *)from, memorder); break;
    case 8: __atomic_store_n((uint64_t *)to, *(const uint64_t *)from, memorder); break;
    default: whole_store(to, from);
    }
}

/* Puts it into memory.  The places were checked when it was stored; memory unmapped since is gone. */
static void write_out(struct kernel *kernel, struct pending *p) {
    struct emu_range *range = emu_range_of(p->address);
    if (!range || range->kind == EMU_RESERVED) {
        emu_say("kernel %s: memory at %p was unmapped under a store", kernel->launch.function->name,
                (void *)p->address);
        return;
    }
    bool broken = emu_config.topology == EMU_BROKEN && range->device >= 0 &&
                  range->device != emu_config.visible[kernel->launch.context->device];
    if (broken && p->vouched) p->data[0] ^= 0x10; /* the flag comes through */
    clock_of_deliveries++;
    simt_activity++;
    if (!p->line) {
        if (!p->vouched && range->kind == EMU_MAPPED) remember(range, p->address, kernel);
        if (p->add)
            __atomic_fetch_add((uint64_t *)p->address, *(const uint64_t *)p->data, __ATOMIC_RELEASE);
        else
            copy_words(p->address, p->data, p->size, __ATOMIC_RELEASE);
        return;
    }
    for (unsigned part = 0; part < 8; part++)
        if (p->parts >> part & 1) copy_words(p->address + part * 16, p->data + part * 16, 16, __ATOMIC_RELAXED);
}

/* Delivers one, and before it all that was stored to the same place earlier. */
static void deliver(struct kernel *kernel, int index) {
    struct pending *p = &kernel->pending[index];
    unsigned length = p->line ? 128 : p->size;
    for (int i = kernel->head[bucket(p->spot)]; i != index;) {
        int next = kernel->pending[i].next;
        if (overlap(&kernel->pending[i], p->spot, length)) {
            write_out(kernel, &kernel->pending[i]);
            unlink_pending(kernel, i);
        }
        i = next;
    }
    write_out(kernel, p);
    unlink_pending(kernel, index);
}

void delivery_some(struct kernel *kernel, int count) {
    for (int i = 0; i < count && kernel->npending; i++) {
        int index = kernel->order[emu_random(&simt_random) % (uint64_t)kernel->npending];
        if (whole(&kernel->pending[index])) deliver(kernel, index);
    }
}

void delivery_close(struct kernel *kernel, bool drop) {
    while (kernel->npending && !drop) {
        int index = kernel->order[emu_random(&simt_random) % (uint64_t)kernel->npending];
        if (!whole(&kernel->pending[index]))
            emu_say("kernel %s: only parts 0x%x of the line at %p were stored", kernel->launch.function->name,
                    kernel->pending[index].parts, (void *)kernel->pending[index].address);
        deliver(kernel, index);
    }
    free(kernel->pending);
}

/* A line that some of its lanes have yet to store to: on hardware they did it with us, so they get the time to. */
static bool wait_for_lanes(const struct pending *p, int *tries) {
    if (whole(p) || ++*tries > 10000) return false;
    simt_switch(FIBER_PAUSES);
    return true;
}

/* Other threads may run meanwhile. */
static void make_room(struct kernel *kernel) {
    if (kernel->npending >= ENOUGH_PENDING) delivery_some(kernel, 64);
    for (int tries = 0; kernel->npending == MAX_PENDING;) {
        /* Nothing but parts of lines, it seems. */
        if (!wait_for_lanes(&kernel->pending[kernel->order[0]], &tries)) deliver(kernel, kernel->order[0]);
    }
}

static struct pending *pending_new(struct kernel *kernel, uintptr_t address, const struct emu_range *range) {
    make_room(kernel);
    int index = kernel->order[kernel->npending];
    struct pending *p = &kernel->pending[index];
    p->spot = spot_of(range, address);
    unsigned b = bucket(p->spot);
    p->place = kernel->npending++;
    p->address = address;
    p->line = p->add = p->block_knows = false;
    p->device = range->device;
    kernel->npending_to[range->device + 1]++;
    p->next = -1;
    p->parts = 0;
    p->block = fiber_now->block;
    p->generation = fiber_now->block->generation;
    p->warp_generation = fiber_now->block->warp_generation[fiber_now->thread / EMU_WARP];
    if (kernel->tail[b] >= 0)
        kernel->pending[kernel->tail[b]].next = index;
    else
        kernel->head[b] = index;
    kernel->tail[b] = index;
    return p;
}

void delivery_buffer(const struct emu_range *range, uintptr_t address, const void *data, unsigned size,
                     enum delivery_kind kind) {
    struct pending *p = pending_new(fiber_now->block->kernel, address, range);
    p->vouched = kind == STORED_PACKET;
    p->add = kind == ADDED_WORD;
    p->size = size;
    p->thread[0] = thread_in_grid();
    memcpy(p->data, data, size);
}

/* True if the running thread must see it, or has it before its fence. */
static bool known_here(const struct pending *p) {
    const struct block *block = fiber_now->block;
    unsigned me = thread_in_grid(), warp = fiber_now->thread / EMU_WARP;
    if (p->block == block) {
        unsigned by = p->thread[p->line ? __builtin_ctz(p->parts) : 0] % block->kernel->threads;
        if (p->block_knows || p->generation < block->generation) return true;
        if (by / EMU_WARP == warp && p->warp_generation < block->warp_generation[warp]) return true;
    }
    if (!p->line) return p->thread[0] == me;
    for (unsigned part = 0; part < 8; part++)
        if (p->parts >> part & 1 && p->thread[part] == me) return true;
    return false;
}

static void see_own(const struct emu_range *range, uintptr_t address, unsigned size) {
    struct kernel *kernel = fiber_now->block->kernel;
    if (!kernel->npending_to[range->device + 1]) return;
    struct spot spot = spot_of(range, address);
    for (int i = kernel->head[bucket(spot)], tries = 0; i >= 0;) {
        struct pending *p = &kernel->pending[i];
        int next = p->next;
        if (overlap(p, spot, size) && known_here(p)) {
            if (!wait_for_lanes(p, &tries)) deliver(kernel, i);
            next = kernel->head[bucket(spot)]; /* the list has changed */
        }
        i = next;
    }
}

/* --- the seam --- */
static void seam_yield(void) {
    simt_switch(FIBER_YIELDS);
}
static void seam_pause(void) {
    clock_of_deliveries++; /* a poll that sees the old value will see the new one */
    simt_switch(FIBER_PAUSES);
}

void delivery_drain(void) {
    struct kernel *kernel = fiber_now->block->kernel;
    for (int tries = 0;;) {
        const struct pending *part = NULL;
        uint64_t mine = 0;
        int pick = -1;
        for (int i = 0; i < kernel->npending; i++) {
            struct pending *p = &kernel->pending[kernel->order[i]];
            if (!known_here(p)) continue;
            if (emu_random(&simt_random) % ++mine == 0) pick = kernel->order[i];
            if (!whole(p)) part = p;
        }
        if (!mine) return;
        if (part && wait_for_lanes(part, &tries)) continue;
        deliver(kernel, pick);
    }
}

static void seam_fence(void) {
    delivery_drain();
    fiber_now->horizon = clock_of_deliveries;
}

static void read_words(void *value, uintptr_t address, unsigned size, int memorder) {
    switch (size) {
    case 1: *(uint8_t *)value = __atomic_load_n((uint8_t *)address, memorder); break;
    case 2: *(uint16_t *)value = __atomic_load_n((uint16_t *)address, memorder); break;
    case 4: *(uint32_t *)value = __atomic_load_n((uint32_t *)address, memorder); break;
    case 8: *(uint64_t *)value = __atomic_load_n((uint64_t *)address, memorder); break;
    default: memcpy(value, (void *)address, size);
    }
}

/* If the thread pauses next, it is this word that it waits for. */
static void note_poll(uintptr_t address, unsigned size, const void *value) {
    if (size != sizeof(uint64_t)) return;
    emu_seam.missing = (const void *)address;
    memcpy(&emu_seam.saw, value, sizeof emu_seam.saw);
}

/* As a relaxed load finds it: perhaps what was there before.  False if it is that. */
bool delivery_read(void *value, const struct emu_range *range, uintptr_t address, unsigned size) {
    see_own(range, address, size);
    if (range->kind == EMU_MAPPED) {
        struct spot spot = former_spot(range, address);
        const struct former *f = former_of(spot);
        if (f->time && f->spot.identity == spot.identity && f->spot.offset == spot.offset && stale(f, fiber_now)) {
            memcpy(value, f->bytes + (address & 15), size);
            return false;
        }
    }
    read_words(value, address, size, __ATOMIC_RELAXED);
    return true;
}

/* What kernels do with buffers may differ from lane to lane. */
static void note_parting(enum bl_emu_order order) {
    if (order == BL_EMU_OWN) fiber_now->parted = true;
}

static void seam_load(void *value, const void *pointer, unsigned size, enum bl_emu_order order) {
    uintptr_t address = (uintptr_t)pointer;
    note_parting(order);
    if (size > 8) { /* two accesses: only packets and lines count on more being whole */
        seam_load(value, pointer, 8, order);
        seam_load((uint64_t *)value + 1, (const uint64_t *)pointer + 1, size - 8, order);
        return;
    }
    struct emu_range *range = delivery_range(address, size, false);
    if (order == BL_EMU_ACQUIRE) {
        see_own(range, address, size);
        read_words(value, address, size, __ATOMIC_ACQUIRE);
        fiber_now->horizon = clock_of_deliveries;
        note_poll(address, size, value);
        return;
    }
    if (delivery_read(value, range, address, size) && order == BL_EMU_RELAXED) note_poll(address, size, value);
}

static void seam_store(void *pointer, const void *value, unsigned size, enum bl_emu_order order) {
    uintptr_t address = (uintptr_t)pointer;
    note_parting(order);
    if (size > 8) {
        seam_store(pointer, value, 8, order);
        seam_store((uint64_t *)pointer + 1, (const uint64_t *)value + 1, size - 8, order);
        return;
    }
    struct emu_range *range = delivery_range(address, size, true);
    if (order == BL_EMU_RELEASE) delivery_drain();
    if (range->kind != EMU_MAPPED) {
        see_own(range, address, size);
        copy_words(address, value, size, __ATOMIC_RELEASE);
        simt_activity++;
        return;
    }
    delivery_buffer(range, address, value, size, STORED_WORD);
}

static void seam_load_packet(uint64_t value[2], const void *packet) {
    uintptr_t address = (uintptr_t)packet;
    see_own(delivery_range(address, 16, false), address, 16);
    whole_load(value, address);
}

static void seam_store_packet(void *packet, uint64_t data, uint64_t flag) {
    uint64_t words[2] = {data, flag};
    struct emu_range *range = delivery_range((uintptr_t)packet, 16, true);
    delivery_buffer(range, (uintptr_t)packet, words, sizeof words, STORED_PACKET);
}

/* A line is one access of its eight lanes: hardware makes several of it where they have parted. */
static void line_by_lanes_together(uintptr_t address, unsigned generation) {
    const struct block *block = fiber_now->block;
    if (fiber_now->parted || generation != block->warp_generation[fiber_now->thread / EMU_WARP])
        simt_fault(CUDA_ERROR_LAUNCH_FAILED, "a line by lanes that may have parted", address, 128);
}

static void seam_load_line(uint64_t value[3], const void *line, unsigned part) {
    uintptr_t address = (uintptr_t)line;
    line_by_lanes_together(address, fiber_now->block->warp_generation[fiber_now->thread / EMU_WARP]);
    see_own(delivery_range(address, 128, false), address + part * 16, 16);
    value[2] = __atomic_load_n((uint64_t *)(address + 120), __ATOMIC_ACQUIRE);
    value[0] = __atomic_load_n((uint64_t *)(address + part * 16), __ATOMIC_RELAXED);
    value[1] = __atomic_load_n((uint64_t *)(address + part * 16) + 1, __ATOMIC_RELAXED);
}

/* The line that this lane's neighbours have begun; lanes come in any order, each to its lines in turn. */
static struct pending *line_begun(const struct kernel *kernel, struct spot spot, unsigned part) {
    unsigned me = thread_in_grid();
    for (int i = kernel->head[bucket(spot)]; i >= 0; i = kernel->pending[i].next) {
        struct pending *p = &kernel->pending[i];
        if (!p->line || !overlap(p, spot, 1) || p->spot.offset != spot.offset || p->parts >> part & 1 || whole(p))
            continue;
        unsigned other = (unsigned)__builtin_ctz(p->parts);
        if (p->thread[other] - other == me - part) return p;
    }
    return NULL;
}

static void seam_store_line(void *line, unsigned part, uint64_t x, uint64_t y) {
    uintptr_t address = (uintptr_t)line;
    uint64_t words[2] = {x, y};
    struct emu_range *range = delivery_range(address, 128, true);
    struct spot spot = spot_of(range, address);
    struct kernel *kernel = fiber_now->block->kernel;
    struct pending *p = line_begun(kernel, spot, part);
    if (!p) {
        make_room(kernel); /* while it waits, another lane may begin the line */
        p = line_begun(kernel, spot, part);
    }
    if (!p) {
        p = pending_new(kernel, address, range);
        p->line = p->vouched = true;
    }
    line_by_lanes_together(address, p->warp_generation);
    p->parts |= 1u << part;
    p->thread[part] = thread_in_grid();
    memcpy(p->data + part * 16, words, sizeof words);
    simt_activity++;
}

static uint64_t seam_atomic_add(void *pointer, uint64_t value, unsigned size) {
    struct emu_range *range = delivery_range((uintptr_t)pointer, size, true);
    delivery_drain();
    see_own(range, (uintptr_t)pointer, size);
    uint64_t old = size == 8 ? __atomic_fetch_add((uint64_t *)pointer, value, __ATOMIC_ACQ_REL)
                             : __atomic_fetch_add((uint32_t *)pointer, (uint32_t)value, __ATOMIC_ACQ_REL);
    fiber_now->horizon = clock_of_deliveries;
    simt_activity++;
    return old;
}

static uint64_t seam_atomic_cas(uint64_t *pointer, uint64_t expected, uint64_t value) {
    see_own(delivery_range((uintptr_t)pointer, sizeof *pointer, true), (uintptr_t)pointer, sizeof *pointer);
    __atomic_compare_exchange_n(pointer, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

/* Here a launch never starts early; one that might must wait all the same. */
static void seam_stream_wait(void) {
    fiber_now->waited = true;
}

static bool seam_block_sync(bool mine) {
    struct block *block = fiber_now->block;
    block->none_false = block->none_false && mine;
    simt_switch(FIBER_WAITS);
    return fiber_now->all;
}

static void seam_stored(void) {
    struct kernel *kernel = fiber_now->block->kernel;
    for (int i = 0; i < kernel->npending; i++) {
        struct pending *p = &kernel->pending[kernel->order[i]];
        if (!p->line && p->thread[0] == thread_in_grid()) p->block_knows = true;
    }
}

static bool seam_chance(void) {
    return emu_random(&simt_random) & 1;
}

static void seam_fault(const char *what, const void *address) {
    simt_fault(CUDA_ERROR_LAUNCH_FAILED, what, (uintptr_t)address, 0);
}

static void seam_warp_sync(void) {
    simt_switch(FIBER_WAITS_WARP);
    fiber_now->parted = false;
}

void delivery_barrier(struct block *block, unsigned first, unsigned count) {
    uint64_t horizon = 0;
    for (unsigned i = first; i < first + count; i++)
        if (block->fibers[i].horizon > horizon) horizon = block->fibers[i].horizon;
    for (unsigned i = first; i < first + count; i++) block->fibers[i].horizon = horizon;
}

struct bl_emu_seam emu_seam;
__attribute__((constructor)) static void fill_seam(void) {
    emu_seam = (struct bl_emu_seam){
        .yield = seam_yield,
        .pause = seam_pause,
        .load = seam_load,
        .store = seam_store,
        .load_packet = seam_load_packet,
        .store_packet = seam_store_packet,
        .load_line = seam_load_line,
        .store_line = seam_store_line,
        .atomic_add = seam_atomic_add,
        .atomic_cas = seam_atomic_cas,
        .fence = seam_fence,
        .stream_wait = seam_stream_wait,
        .block_sync = seam_block_sync,
        .warp_sync = seam_warp_sync,
        .exchange = simt_exchange,
        .stored = seam_stored,
        .chance = seam_chance,
        .fault = seam_fault,
        .clock = emu_nanoseconds,
        .multicast_store = multimem_store,
        .multicast_add = multimem_add,
        .multicast_load = multimem_load,
    };
}
