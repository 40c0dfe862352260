/* address.c - one arena of device addresses, in granules of 2 MiB, and what lies where.
 *
 * Every granule has at most one range, so that a kernel's access is checked by one table look-up.  Host memory that was
 * registered lies outside the arena, in a short list.
 */
#define _GNU_SOURCE
#include "emu.h"

#include <sys/mman.h>

_Atomic(struct emu_range *) *emu_granules;
uintptr_t emu_arena;
size_t emu_arena_size;

static unsigned char *taken; /* a byte a granule */
static size_t granules, cursor;
enum { MAX_REGISTERED = 256 };
static _Atomic(struct emu_range *) registered[MAX_REGISTERED];

static void *reserve(size_t bytes, int protection) {
    void *p = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

CUresult emu_arena_open(void) {
    if (emu_arena) return CUDA_SUCCESS;
    /* Addresses are free, but a limit on them may be set: take what there is. */
    for (size_t bytes = (size_t)1 << 40; bytes >= (size_t)1 << 32; bytes /= 4) {
        void *p = reserve(bytes, PROT_NONE);
        if (!p) continue;
        madvise(p, bytes, MADV_DONTDUMP); /* a core file must not hold all of it */
        granules = bytes / EMU_GRANULE - 1;
        taken = reserve(granules, PROT_READ | PROT_WRITE);
        emu_granules = reserve(granules * sizeof *emu_granules, PROT_READ | PROT_WRITE);
        if (!taken || !emu_granules) return CUDA_ERROR_OUT_OF_MEMORY;
        emu_arena = ((uintptr_t)p + EMU_GRANULE - 1) & ~(EMU_GRANULE - 1);
        emu_arena_size = granules * EMU_GRANULE;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static bool is_free(size_t first, size_t count) {
    for (size_t i = first; i < first + count; i++)
        if (taken[i]) return false;
    return true;
}

/* Next fit: an address comes back as late as possible, so that a stale one is found out. */
uintptr_t emu_arena_take(size_t bytes, size_t alignment) {
    size_t count = (bytes + EMU_GRANULE - 1) / EMU_GRANULE,
           step = alignment <= EMU_GRANULE ? 1 : alignment / EMU_GRANULE;
    for (int round = 0; round < 2; round++) {
        size_t skew = (emu_arena / EMU_GRANULE) % step;
        for (size_t i = (cursor + skew + step - 1) / step * step - skew; i + count <= granules; i += step) {
            if (!is_free(i, count)) continue;
            for (size_t j = i; j < i + count; j++) taken[j] = 1;
            cursor = i + count;
            return emu_arena + i * EMU_GRANULE;
        }
        cursor = 0;
    }
    return 0;
}

void emu_arena_give(uintptr_t base, size_t bytes) {
    emu_arena_set(base, bytes, NULL);
    mmap((void *)base, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    size_t first = (base - emu_arena) / EMU_GRANULE;
    for (size_t i = 0; i < (bytes + EMU_GRANULE - 1) / EMU_GRANULE; i++) taken[first + i] = 0;
}

void emu_arena_set(uintptr_t base, size_t bytes, struct emu_range *range) {
    size_t first = (base - emu_arena) / EMU_GRANULE;
    for (size_t i = 0; i < (bytes + EMU_GRANULE - 1) / EMU_GRANULE; i++) emu_granules[first + i] = range;
}

bool emu_range_holds(const struct emu_range *range, uintptr_t address, size_t bytes) {
    return range && address >= range->base && bytes <= range->size && address - range->base <= range->size - bytes;
}

struct emu_range *emu_range_of(uintptr_t address) {
    if (address - emu_arena < emu_arena_size) {
        struct emu_range *range = emu_granules[(address - emu_arena) >> EMU_GRANULE_SHIFT];
        return emu_range_holds(range, address, 1) ? range : NULL;
    }
    for (int i = 0; i < MAX_REGISTERED; i++) {
        struct emu_range *range = registered[i];
        if (emu_range_holds(range, address, 1)) return range;
    }
    return NULL;
}

CUresult emu_register(struct emu_range *range) {
    for (int i = 0; i < MAX_REGISTERED; i++) {
        if (registered[i]) continue;
        registered[i] = range;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

void emu_unregister(struct emu_range *range) {
    for (int i = 0; i < MAX_REGISTERED; i++)
        if (registered[i] == range) registered[i] = NULL;
}
