/* simt.h - the kernel executor's own structures.
 *
 * Threads: all of this belongs to the engine's one thread; only the lists of kernels that come and go have a lock
 * (dispatch.c).  One thread for all kernels of the process makes an interleaving a function of the seed and of the order of
 * submission.
 */
#ifndef BEELINE_EMU_SIMT_H
#define BEELINE_EMU_SIMT_H

#include "emu.h"
#include "seam/seam.h"

#pragma GCC visibility push(hidden)

enum fiber_state { FIBER_NEW, FIBER_READY, FIBER_AT_BARRIER, FIBER_AT_WARP, FIBER_DONE };

/* Why a fiber gave way. */
enum fiber_reason { FIBER_YIELDS, FIBER_PAUSES, FIBER_WAITS, FIBER_WAITS_WARP, FIBER_ENDS, FIBER_FAULTS };

enum { EMU_WARP = 32, EMU_MAX_WARPS = 32 }; /* lanes of a warp; warps of a block */
enum { EMU_PASSED = 32 };                   /* values that a lane may have passed and others not taken */

struct block;
struct fiber {
    void *context, *stack; /* fiber.c */
    struct block *block;
    enum fiber_state state;
    unsigned thread;         /* in its block */
    struct bl_emu_dim place; /* the same */
    bool waited;             /* for what came before on its stream */
    bool parted;      /* perhaps, from other lanes of its warp: it has reached memory of its own since they last met */
    bool polls;       /* it has done nothing else since it last paused */
    uint64_t horizon; /* it has acquired all that was delivered at this time or before (delivery.c) */
    struct passing {
        uint64_t value[EMU_PASSED]; /* to other lanes, */
        unsigned count;             /* so many so far */
    } passed[BL_EMU_EXCHANGES];
    bool all; /* whether all said so at the last barrier */
};

/* One that is neither done nor at a barrier.  Most polls are in vain, so what they look at lies side by side. */
struct runnable {
    struct fiber *fiber;
    const uint64_t *watch; /* a word that its last poll found wanting, and what it saw; NULL if none */
    uint64_t saw;
};

struct block {
    struct kernel *kernel;
    unsigned index;          /* in its grid */
    struct bl_emu_dim place; /* the same */
    unsigned sm;             /* where it is resident */
    struct fiber *fibers;
    struct runnable *runnable;
    uint64_t *words;       /* that its threads share */
    unsigned char *memory; /* what the launch gives it of that */
    int nrunnable, alive, at_barrier;
    bool none_false;                                                    /* so far, of those at the barrier */
    unsigned generation;                                                /* barriers passed */
    unsigned char warp_alive[EMU_MAX_WARPS], warp_waits[EMU_MAX_WARPS]; /* lanes, of each warp */
    unsigned warp_generation[EMU_MAX_WARPS];                            /* warp_syncs passed */
    unsigned stalled;                                                   /* picks for which it is passed over */
};

/* Where something lies, whatever the mapping: memory, and an offset in it. */
struct spot {
    uint64_t identity, offset;
};

/* A store that has not been delivered: up to 16 bytes, or a line that its 8 lanes put together. */
struct pending {
    uintptr_t address;
    struct spot spot;
    unsigned char data[128];
    unsigned size;
    bool line, vouched; /* vouched: a packet or line, which carries its own flag */
    bool add;           /* not a store: a word to be added */
    bool block_knows;   /* its thread has waited for it: whoever fences in the block delivers it */
    unsigned parts;     /* of a line: a bit each */
    unsigned thread[8]; /* in the grid; of a line's parts, else [0] */
    struct block *block;
    unsigned generation, warp_generation; /* of the block and the warp, when it was issued */
    int device;                           /* owner of the memory */
    int next;                             /* in its bucket, in the order of issue; -1 is none */
    int place;                            /* in kernel.order */
};

/* Lines whose lanes are far apart may be many; of what could be delivered, ENOUGH_PENDING is late enough. */
enum { MAX_PENDING = 4096, ENOUGH_PENDING = 512, BUCKETS = 256 };

struct kernel {
    struct emu_launch launch;
    struct kernel *next;
    uint64_t blocks, started, running;
    unsigned holds;   /* so many multiprocessors to itself, and runs elsewhere; 0: its blocks run here */
    unsigned threads; /* of a block */
    CUresult result;
    uint64_t live, vain; /* threads resident; polls in vain since one of them got further */
    unsigned laziness;   /* how long stores stay undelivered: drawn for each kernel */
    struct pending *pending;
    int order[MAX_PENDING]; /* indices of what is pending, then of what is free */
    int npending;
    int npending_to[EMU_MAX_DEVICES + 1]; /* by the owner of the memory + 1, to see fast that there is none */
    int head[BUCKETS], tail[BUCKETS];
};

/* --- fiber.c --- */
bool fiber_start(struct fiber *fiber, void (*entry)(void)); /* false if there is no memory for its stack */
void fiber_resume(struct fiber *fiber);                     /* from the engine; returns when it gives way */
void fiber_give_way(struct fiber *fiber);
void fiber_stop(struct fiber *fiber); /* gives its stack back */

/* --- dispatch.c; called by the engine --- */
void dispatch_start(void);                                     /* blocks, as there is room */
void dispatch_drop(const struct kernel *kernel);               /* no more of its blocks start */
void dispatch_leave(const struct kernel *kernel, unsigned sm); /* a block of its has ended there */
void dispatch_wait(const struct timespec *until); /* for kernels that come or go; NULL: as long as it takes */

/* --- simt.c --- */
void *simt_engine(void *);                                 /* the engine's thread */
bool simt_block_start(struct kernel *kernel, unsigned sm); /* its next one; false if there is no memory */
extern struct fiber *fiber_now;
extern uint64_t simt_random, simt_activity;
void simt_switch(enum fiber_reason reason);
uint64_t simt_exchange(uint64_t value, unsigned from, enum bl_emu_exchange kind); /* whatever the lanes do in between */
/* The running kernel did what hardware would not survive: ends it with `result`; does not return. */
__attribute__((noreturn)) void simt_fault(CUresult result, const char *what, uintptr_t address, unsigned size);

/* --- delivery.c --- */
bool delivery_open(struct kernel *kernel);
void delivery_close(struct kernel *kernel, bool drop);
void delivery_some(struct kernel *kernel, int count); /* that many, picked at random, if they are whole */
/* These threads have all come to a barrier: each sees what any of them has acquired. */
void delivery_barrier(struct block *block, unsigned first, unsigned count);
uint64_t delivery_time(void);
/* For multimem.c.  The range of an access that is allowed; else it does not return. */
struct emu_range *delivery_range(uintptr_t address, unsigned size, bool write);
enum delivery_kind { STORED_WORD, STORED_PACKET, ADDED_WORD };
void delivery_buffer(const struct emu_range *range, uintptr_t address, const void *data, unsigned size,
                     enum delivery_kind kind);
bool delivery_read(void *value, const struct emu_range *range, uintptr_t address, unsigned size);
void delivery_drain(void);          /* all that the thread knows of */
extern struct bl_emu_seam emu_seam; /* what kernel libraries are given */

/* --- multimem.c --- */
void multimem_store(void *address, const uint64_t value[2], bool packet);
void multimem_add(uint64_t *address, uint64_t value);
unsigned multimem_load(uint64_t (*values)[2], const void *address, unsigned size, int arch);

#pragma GCC visibility pop

#endif
