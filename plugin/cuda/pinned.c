/* pinned.c - see pinned.h. */
#include "pinned.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/why.h"

enum { SLOTS = 64, BLOCK = SLOTS * BL_PINNED_BYTES };

struct bl_pinned_block {
    struct bl_pinned_block *next;
    CUcontext context;
    uint64_t context_id, used; /* used: a bit a slot */
    unsigned char *host;
    CUdeviceptr device;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct bl_pinned_block *first;

static int open_block(struct bl_pinned_block *block) {
    const struct bl_driver *cu = bl_driver();
    void *host = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (host == MAP_FAILED) return bl_fail("host memory for the control words (mmap): %m");
    block->host = host;
    BL_DRIVER_CHECK(cu->cuMemHostRegister(host, BLOCK, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
                    "locking the control words (cuMemHostRegister)");
    const CUresult status = cu->cuMemHostGetDevicePointer(&block->device, host, 0);
    if (status != CUDA_SUCCESS) cu->cuMemHostUnregister(host);
    BL_DRIVER_CHECK(status, "the device address of the control words (cuMemHostGetDevicePointer)");
    return 0;
}

static void close_block(struct bl_pinned_block *block) {
    if (block->host) munmap(block->host, BLOCK);
    free(block);
}

/* Under the lock. */
static bool take_slot(struct bl_pinned_block *block, struct bl_pinned *pinned) {
    if (!~block->used) return false;
    const int slot = __builtin_ctzll(~block->used);
    block->used |= UINT64_C(1) << slot;
    *pinned = (struct bl_pinned){block->host + slot * BL_PINNED_BYTES,
                                 block->device + (CUdeviceptr)slot * BL_PINNED_BYTES, block};
    return true;
}

static bool take_of(struct bl_pinned *pinned, CUcontext context, uint64_t context_id) {
    bool taken = false;
    pthread_mutex_lock(&lock);
    for (struct bl_pinned_block *block = first; block && !taken; block = block->next)
        if (block->context == context && block->context_id == context_id) taken = take_slot(block, pinned);
    pthread_mutex_unlock(&lock);
    return taken;
}

int bl_pinned_take(struct bl_pinned *pinned, CUcontext context, uint64_t context_id) {
    if (!take_of(pinned, context, context_id)) {
        struct bl_pinned_block *block = calloc(1, sizeof(*block));
        if (!block) bl_fail("out of host memory");
        if (!block || open_block(block)) { /* without the lock: it may wait */
            if (block) close_block(block);
            return -1;
        }
        block->context = context;
        block->context_id = context_id;
        pthread_mutex_lock(&lock);
        take_slot(block, pinned);
        block->next = first;
        first = block;
        pthread_mutex_unlock(&lock);
    }
    memset(pinned->host, 0, BL_PINNED_BYTES);
    return 0;
}

void bl_pinned_give(struct bl_pinned *pinned) {
    struct bl_pinned_block *block = pinned->block, **link = &first;
    if (!block) return;
    const int slot = (int)(((unsigned char *)pinned->host - block->host) / BL_PINNED_BYTES);
    pthread_mutex_lock(&lock);
    block->used &= ~(UINT64_C(1) << slot);
    const bool unused = !block->used;
    while (unused && *link != block) link = &(*link)->next;
    if (unused) *link = block->next;
    pthread_mutex_unlock(&lock);
    *pinned = (struct bl_pinned){0};
    if (!unused) return;
    bl_driver_undo(bl_driver()->cuMemHostUnregister(block->host), "cuMemHostUnregister");
    close_block(block);
}
