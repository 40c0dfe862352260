/* seam.h - what kernels compiled for the host call in the emulated driver, and the other way round.
 *
 * A kernel library defines `bl_emu`, a pointer that the driver sets when it loads the library.  Every function is
 * called on a CUDA thread's fiber, on the driver's one engine thread, while the engine runs that fiber; so none takes a
 * lock, and a plain access to this struct is fine.  Any of them may switch to another fiber.
 */
#ifndef BEELINE_EMU_SEAM_H
#define BEELINE_EMU_SEAM_H

#include <stdbool.h>
#include <stdint.h>

struct bl_emu_dim {
    unsigned x, y, z;
};

enum { BL_EMU_BLOCK_WORDS = 2048 };

/* Which exchange among lanes: each kind is counted on its own. */
enum bl_emu_exchange { BL_EMU_LINE, BL_EMU_HALVES, BL_EMU_WARP, BL_EMU_EXCHANGES };

enum bl_emu_order { BL_EMU_OWN, BL_EMU_RELAXED, BL_EMU_ACQUIRE, BL_EMU_RELEASE };

struct bl_emu_seam {
    struct bl_emu_dim thread, block, block_dim, grid_dim; /* of the running fiber */
    int64_t budget;              /* switch points that the running fiber may still pass before it must yield */
    uint64_t *block_words;       /* of its block, BL_EMU_BLOCK_WORDS of them */
    unsigned char *block_memory; /* of its block, what the launch gives it, aligned to 128 bytes */
    const void *missing; /* the last 64-bit word that the fiber found not to be what it waits for, and what it was: */
    uint64_t saw;        /* a fiber that pauses is left alone until the word changes, or for a while */
    void (*yield)(void);
    void (*pause)(void); /* a failed poll */
    void (*load)(void *value, const void *address, unsigned size, enum bl_emu_order order);
    void (*store)(void *address, const void *value, unsigned size, enum bl_emu_order order);
    void (*load_packet)(uint64_t value[2], const void *packet);
    void (*store_packet)(void *packet, uint64_t data, uint64_t flag);
    void (*load_line)(uint64_t value[3], const void *line, unsigned part); /* two words of the part, and the flag */
    void (*store_line)(void *line, unsigned part, uint64_t x, uint64_t y);
    uint64_t (*atomic_add)(void *address, uint64_t value,
                           unsigned size); /* acquire and release; returns the old value */
    uint64_t (*atomic_cas)(uint64_t *address, uint64_t expected, uint64_t value); /* relaxed; returns the old value */
    void (*fence)(void);
    void (*stream_wait)(void);
    bool (*block_sync)(bool mine); /* whether all said true */
    void (*warp_sync)(void);
    /* What the thread `from` of this block, in the same warp, passes. */
    uint64_t (*exchange)(uint64_t value, unsigned from, enum bl_emu_exchange kind);
    /* All that this thread has stored has arrived, as far as the block goes: whoever fences in it delivers that. */
    void (*stored)(void);
    bool (*chance)(void);                                 /* as it happens */
    void (*fault)(const char *what, const void *address); /* does not return */
    uint64_t (*clock)(void);
    /* At an address of a multicast mapping: */
    void (*multicast_store)(void *address, const uint64_t value[2], bool packet);
    void (*multicast_add)(uint64_t *address, uint64_t value); /* release */
    /* What each device has there, in any order, and how many there are; by an instruction of that compute capability. */
    unsigned (*multicast_load)(uint64_t (*values)[2], const void *address, unsigned size, int arch);
};

#endif
