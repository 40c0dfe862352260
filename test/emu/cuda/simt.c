/* simt.c - the engine that runs kernels: which thread of the resident blocks runs next, and for how long.  Every CUDA thread is a
 * fiber of the engine's thread. */
#include "simt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct fiber *fiber_now;
uint64_t simt_random, simt_activity;
static enum fiber_reason reason;

static struct block **resident;
static int nresident, resident_room;
static uint64_t live; /* fibers of resident blocks that are not done */

static uint64_t draw(uint64_t below) {
    return emu_random(&simt_random) % below;
}

void simt_switch(enum fiber_reason why) {
    reason = why;
    fiber_give_way(fiber_now);
}

/* --- what a kernel's thread calls --- */
static void fiber_main(void) {
    struct emu_launch *launch = &fiber_now->block->kernel->launch;
    launch->function->entry(launch->args);
    simt_switch(FIBER_ENDS);
}

void simt_fault(CUresult result, const char *what, uintptr_t address, unsigned size) {
    struct kernel *kernel = fiber_now->block->kernel;
    emu_say("kernel %s, block %u, thread %u: %s, %u bytes at %p", kernel->launch.function->name,
            fiber_now->block->index, fiber_now->thread, what, size, (void *)address);
    kernel->result = result;
    simt_switch(FIBER_FAULTS);
    __builtin_unreachable();
}

/* Each lane takes what the other passed in the same exchange, counted from the start. A lane that has ended, because it
 * was told to stop, will pass nothing any more: whoever waits for it gets anything. */
uint64_t simt_exchange(uint64_t value, unsigned from, enum bl_emu_exchange kind) {
    struct fiber *other = &fiber_now->block->fibers[from];
    struct passing *mine = &fiber_now->passed[kind], *theirs = &other->passed[kind];
    unsigned turn = mine->count++;
    mine->value[turn % EMU_PASSED] = value;
    simt_activity++;
    while (theirs->count <= turn && other->state != FIBER_DONE) {
        emu_seam.missing = NULL;
        simt_switch(FIBER_PAUSES);
    }
    if (theirs->count > turn + EMU_PASSED)
        simt_fault(CUDA_ERROR_LAUNCH_FAILED, "lanes too far apart in their exchanges", from, sizeof value);
    return theirs->value[turn % EMU_PASSED];
}

/* --- blocks --- */
enum { EMU_MEMORY_ALIGNMENT = 128 };

/* The z and y of a thread or block of a grid, from its number. */
static struct bl_emu_dim place_of(unsigned index, const unsigned dim[3]) {
    return (struct bl_emu_dim){index % dim[0], index / dim[0] % dim[1], index / dim[0] / dim[1]};
}

static struct block *block_new(struct kernel *kernel, unsigned sm) {
    unsigned threads = kernel->threads;
    const size_t words = BL_EMU_BLOCK_WORDS * sizeof(uint64_t);
    const size_t fibers = threads * (sizeof(struct fiber) + sizeof(struct runnable)), memory = kernel->launch.memory;
    struct block *block = calloc(1, sizeof *block + fibers + words + memory + EMU_MEMORY_ALIGNMENT);
    if (!block) return NULL;
    if (!kernel->started) kernel->laziness = (unsigned)draw(16);
    block->kernel = kernel;
    block->sm = sm;
    block->index = (unsigned)kernel->started++;
    block->place = place_of(block->index, kernel->launch.grid);
    block->fibers = (struct fiber *)(block + 1);
    block->runnable = (struct runnable *)(block->fibers + threads);
    block->words = (uint64_t *)(block->runnable + threads);
    block->memory = (unsigned char *)(((uintptr_t)(block->words + BL_EMU_BLOCK_WORDS) + EMU_MEMORY_ALIGNMENT - 1) /
                                      EMU_MEMORY_ALIGNMENT * EMU_MEMORY_ALIGNMENT);
    memset(block->words, 0xa5, words);
    memset(block->memory, 0xa5, memory);
    block->none_false = true;
    block->nrunnable = block->alive = (int)threads;
    for (unsigned i = 0; i < threads; i++) {
        block->fibers[i].block = block;
        block->fibers[i].thread = i;
        block->fibers[i].place = place_of(i, kernel->launch.block);
        block->fibers[i].horizon = delivery_time();
        block->fibers[i].waited = !kernel->launch.early;
        block->runnable[i].fiber = &block->fibers[i];
        block->warp_alive[i / EMU_WARP]++;
    }
    /* Some blocks come late. */
    if (draw(8) == 0) block->stalled = (unsigned)draw(256);
    kernel->running++;
    live += threads;
    kernel->live += threads;
    return block;
}

bool simt_block_start(struct kernel *kernel, unsigned sm) {
    if (nresident == resident_room) {
        int room = resident_room ? resident_room * 2 : 64;
        struct block **more = realloc(resident, (size_t)room * sizeof(struct block *));
        if (!more) return false;
        resident = more;
        resident_room = room;
    }
    struct block *block = block_new(kernel, sm);
    if (block) resident[nresident++] = block;
    return block;
}

static void kernel_finish(struct kernel *kernel) {
    delivery_close(kernel, kernel->result != CUDA_SUCCESS);
    struct emu_launch launch = kernel->launch;
    CUresult result = kernel->result;
    free(kernel);
    launch.done(launch.argument, result);
}

static void block_end(int place) {
    struct block *block = resident[place];
    struct kernel *kernel = block->kernel;
    resident[place] = resident[--nresident];
    for (unsigned i = 0; i < kernel->threads; i++) {
        if (block->fibers[i].state != FIBER_DONE) {
            live--;
            kernel->live--;
        }
        fiber_stop(&block->fibers[i]);
    }
    kernel->running--;
    dispatch_leave(kernel, block->sm);
    free(block);
    simt_activity++;
}

static void kernel_kill(struct kernel *kernel) {
    dispatch_drop(kernel);
    for (int i = nresident - 1; i >= 0; i--)
        if (resident[i]->kernel == kernel) block_end(i);
    kernel_finish(kernel);
}

/* --- the scheduler --- */
static void release_barrier(struct block *block) {
    delivery_barrier(block, 0, block->kernel->threads);
    block->generation++;
    block->at_barrier = 0;
    for (unsigned i = 0; i < block->kernel->threads; i++) {
        if (block->fibers[i].state != FIBER_AT_BARRIER) continue;
        block->fibers[i].state = FIBER_READY;
        block->fibers[i].all = block->none_false;
        block->runnable[block->nrunnable++] = (struct runnable){.fiber = &block->fibers[i]};
    }
    block->none_false = true;
    simt_activity++;
}

/* The lanes of a warp that have not ended have all come, so they go on. */
static void release_warp(struct block *block, unsigned warp) {
    if (!block->warp_waits[warp] || block->warp_waits[warp] < block->warp_alive[warp]) return;
    unsigned first = warp * EMU_WARP, end = first + EMU_WARP;
    if (end > block->kernel->threads) end = block->kernel->threads;
    block->warp_waits[warp] = 0;
    block->warp_generation[warp]++;
    delivery_barrier(block, first, end - first);
    for (unsigned i = first; i < end; i++) {
        if (block->fibers[i].state != FIBER_AT_WARP) continue;
        block->fibers[i].state = FIBER_READY;
        block->runnable[block->nrunnable++] = (struct runnable){.fiber = &block->fibers[i]};
    }
}

/* How many switch points a fiber passes: mostly few, sometimes as many as it likes. */
static int64_t quantum(void) {
    uint64_t r = emu_random(&simt_random);
    switch (r & 7) {
    case 0: return (int64_t)(r >> 8 & 1);
    case 1:
    case 2:
    case 3: return (int64_t)(r >> 8 & 15);
    case 7: return 4096;
    default: return (int64_t)(r >> 8 & 255);
    }
}

static bool start_fiber(struct fiber *fiber) {
    if (fiber->state != FIBER_NEW) return true;
    fiber->state = FIBER_READY;
    return fiber_start(fiber, fiber_main);
}

/* Runs the fiber at `place` of the block for a while; false when the block is gone. */
static bool run_fiber(int block_place, int place) {
    struct block *block = resident[block_place];
    struct kernel *kernel = block->kernel;
    struct fiber *fiber = block->runnable[place].fiber;
    const struct emu_launch *launch = &kernel->launch;
    fiber_now = fiber;
    emu_seam.budget = quantum();
    emu_seam.block_words = block->words;
    emu_seam.block_memory = block->memory;
    emu_seam.thread = fiber->place;
    emu_seam.block = block->place;
    emu_seam.block_dim = (struct bl_emu_dim){launch->block[0], launch->block[1], launch->block[2]};
    emu_seam.grid_dim = (struct bl_emu_dim){launch->grid[0], launch->grid[1], launch->grid[2]};
    reason = FIBER_FAULTS;
    if (start_fiber(fiber))
        fiber_resume(fiber);
    else
        kernel->result = CUDA_ERROR_OUT_OF_MEMORY;
    switch (reason) {
    case FIBER_PAUSES:
    case FIBER_YIELDS: return true;
    case FIBER_FAULTS: kernel_kill(kernel); return false;
    case FIBER_WAITS:
    case FIBER_WAITS_WARP:
    case FIBER_ENDS: break;
    }
    simt_activity++;
    block->runnable[place] = block->runnable[--block->nrunnable];
    if (reason == FIBER_WAITS) {
        fiber->state = FIBER_AT_BARRIER;
        block->at_barrier++;
    } else if (reason == FIBER_WAITS_WARP) {
        fiber->state = FIBER_AT_WARP;
        block->warp_waits[fiber->thread / EMU_WARP]++;
    } else {
        fiber->state = FIBER_DONE;
        block->warp_alive[fiber->thread / EMU_WARP]--;
        fiber_stop(fiber);
        block->alive--;
        kernel->live--;
        live--;
    }
    release_warp(block, fiber->thread / EMU_WARP);
    if (block->alive && block->at_barrier == block->alive) release_barrier(block);
    if (block->alive && !block->nrunnable) { /* hardware would hang */
        emu_say("kernel %s, block %u: its threads wait for each other at different barriers", launch->function->name,
                block->index);
        kernel->result = CUDA_ERROR_LAUNCH_FAILED;
        kernel_kill(kernel);
        return false;
    }
    if (block->alive) return true;
    block_end(block_place);
    if (!kernel->running && kernel->started == kernel->blocks) kernel_finish(kernel);
    return false;
}

/* Lets a few neighbouring threads of a random block run; returns how many of them only polled in vain. */
static unsigned run_some(void) {
    int place = (int)draw((uint64_t)nresident);
    struct block *block = resident[place];
    struct kernel *kernel = block->kernel;
    if (block->stalled || !block->nrunnable) {
        block->stalled -= block->stalled > 0;
        return 0;
    }
    uint64_t r = emu_random(&simt_random);
    if ((r & 0xfff) == 0) block->stalled = (unsigned)(r >> 12 & 1023);
    static const int bursts[] = {1, 1, 4, 8, 8, 32, 32, 64};
    int burst = bursts[r >> 24 & 7], first = (int)((r >> 32) % (uint64_t)block->nrunnable);
    unsigned vain = 0;
    for (int i = 0; i < burst && i < block->nrunnable; i++) {
        int which = first + i;
        if (which >= block->nrunnable) which %= block->nrunnable;
        struct runnable *const next = &block->runnable[which];
        struct fiber *const fiber = next->fiber;
        uint64_t before = simt_activity;
        /* What it waits for has not come.  But it may go on for other reasons (time, the host): look at times. */
        if (next->watch && __atomic_load_n(next->watch, __ATOMIC_RELAXED) == next->saw &&
            emu_random(&simt_random) & 7) {
            vain++;
            continue;
        }
        emu_seam.missing = NULL;
        if (!run_fiber(place, which)) return 0;
        if (reason == FIBER_PAUSES || reason == FIBER_YIELDS) { /* else it is another's place, if any's */
            next->watch = reason == FIBER_PAUSES ? emu_seam.missing : NULL;
            next->saw = emu_seam.saw;
        }
        fiber->polls = simt_activity == before && (fiber->polls || reason == FIBER_PAUSES);
        if (fiber->polls) {
            vain++;
        } else {
            kernel->vain = 0;
            simt_activity++; /* a fiber that only reads gets further, too */
        }
    }
    kernel->vain += vain;
    if (kernel->npending && kernel->vain > kernel->live) {
        kernel->vain = 0;
        delivery_some(kernel, 1 + kernel->npending / 2); /* it waits for others, who may wait for these */
    }
    if (kernel->npending && (emu_random(&simt_random) & 15) >= kernel->laziness)
        delivery_some(kernel, 1 + (int)draw(8));
    return vain;
}

/* Nothing but polls for a while.  First the late stores arrive; then it is another process's turn. */
static void idle(unsigned *naps) {
    bool any = false;
    for (int i = 0; i < nresident; i++) {
        struct kernel *kernel = resident[i]->kernel;
        if (!kernel->npending) continue;
        delivery_some(kernel, 1 + kernel->npending / 2);
        any = true;
    }
    if (any) return;
    if (++*naps < 4) {
        sched_yield();
        return;
    }
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += *naps < 16 ? 20000 : 100000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    dispatch_wait(&until);
}

void *simt_engine(void *argument) {
    uint64_t vain = 0, before = 0;
    unsigned naps = 0;
    for (;;) {
        dispatch_start();
        if (!nresident) {
            dispatch_wait(NULL);
            continue;
        }
        vain += run_some();
        if (simt_activity != before) {
            before = simt_activity;
            vain = naps = 0;
        } else if (vain > 2 * live + 8) {
            idle(&naps);
            vain = 0;
        }
    }
    return argument;
}
