/* multicast.c - multicast objects: a team of devices, and what memory of each is bound where.
 *
 * An object is a memfd that all processes with a handle to it map; of what they bind, the others find the descriptor
 * through /proc.  Here an object takes one of the switches' slots when memory is first bound to it, as on hardware, where
 * running out shows as CUDA_ERROR_OUT_OF_MEMORY of cuMulticastBindMem (nccl#2077), and gives it back when its last
 * handle and mapping are gone.  A slot is a byte of a file that the box shares, locked by every process that uses it: so
 * a process that is killed gives its slots back, too.
 *
 * Error codes are those that cuda.h names for the call.  Which of them is returned for what, it mostly leaves open: where
 * a line says "a guess", nothing public tells.
 */
#define _GNU_SOURCE
#include "emu.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_BINDINGS = 16 * EMU_MAX_DEVICES, RECOMMENDED_SHIFT = 29 /* 512 MiB, as on an H100 */ };

struct binding {
    uint64_t serial; /* 0: free */
    uint64_t owner;
    uint64_t offset, size; /* in the object */
    uint64_t identity, memory_offset;
    int device; /* index on the box */
    int pid, fd;
};

struct shared { /* the memfd */
    pthread_mutex_t lock;
    uint64_t size;
    unsigned types, devices;
    _Atomic uint32_t added;   /* indices on the box */
    _Atomic uint64_t version; /* of the bindings */
    int slot;                 /* -1: none yet */
    struct binding bindings[MAX_BINDINGS];
};

/* Memory of a binding, whoever made it, as mapped here; no allocation of this process, so no object of object.c. */
struct piece {
    struct piece *next;
    uint64_t serial, offset;
    struct emu_range range;
    struct emu_handle memory;
};

struct emu_multicast {
    struct shared *shared;
    int slot_fd;    /* locks its byte; -1: it has none */
    uint64_t owner; /* of the bindings made through this handle */
    uint64_t seen;  /* version of `pieces` */
    struct piece *pieces;
    struct emu_handle *bound[MAX_BINDINGS]; /* memory of our own bindings */
};

/* --- shared state --- */
static void lock_shared(struct shared *shared) {
    if (pthread_mutex_lock(&shared->lock) == EOWNERDEAD) pthread_mutex_consistent(&shared->lock);
}
static void unlock_shared(struct shared *shared) {
    pthread_mutex_unlock(&shared->lock);
}

static struct shared *map_shared(int fd) {
    void *p = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void init_shared(struct shared *shared, const CUmulticastObjectProp *prop) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&shared->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    shared->size = prop->size;
    shared->types = (unsigned)prop->handleTypes;
    shared->devices = prop->numDevices;
    shared->slot = -1;
}

static unsigned count_added(const struct shared *shared) {
    return (unsigned)__builtin_popcount(shared->added);
}

bool emu_multicast_has(const struct emu_multicast *multicast, int device) {
    return multicast->shared->added >> device & 1;
}

/* --- slots --- */
static int open_slots(void) {
    static int alone = -1; /* of a process that runs by itself */
    char path[256];
    if (emu_config.run) {
        snprintf(path, sizeof path, "/dev/shm/beeline-multicast-%s-slots", emu_config.run);
        return open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    }
    if (alone < 0) alone = memfd_create("beeline-emu-slots", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", alone);
    return open(path, O_RDWR | O_CLOEXEC); /* locks belong to what one open() made */
}

static bool lock_slot(int fd, int slot, short type) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};
    return !fcntl(fd, F_OFD_SETLK, &lock);
}

/* With the shared lock held.  False if there is none left. */
static bool take_slot(struct emu_multicast *m) {
    if (m->slot_fd >= 0) return true;
    int fd = open_slots(), slot = m->shared->slot;
    bool taken = fd >= 0 && slot >= 0 && lock_slot(fd, slot, F_RDLCK);
    for (slot = 0; fd >= 0 && !taken && slot < emu_config.multicast_slots; slot++) {
        taken = lock_slot(fd, slot, F_WRLCK) && lock_slot(fd, slot, F_RDLCK);
        if (taken) m->shared->slot = slot;
    }
    if (taken)
        m->slot_fd = fd;
    else if (fd >= 0)
        close(fd);
    return taken;
}

/* --- handles --- */
CUresult emu_multicast_import(int fd, struct emu_handle **out) {
    static uint32_t owners;
    struct emu_multicast *m = calloc(1, sizeof *m);
    struct shared *shared = map_shared(fd);
    struct emu_handle *handle = m && shared ? emu_handle_new(fd, shared->size, -1) : NULL;
    if (!handle) {
        if (shared) munmap(shared, sizeof *shared);
        free(m);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    m->shared = shared;
    m->slot_fd = -1;
    m->owner = (uint64_t)getpid() << 32 | ++owners;
    handle->multicast = m;
    *out = handle;
    return CUDA_SUCCESS;
}

static void piece_end(struct piece *piece) {
    emu_arena_give(piece->range.base, piece->range.size);
    free(piece);
}

static void unbind(struct emu_multicast *m, int i) {
    m->shared->bindings[i].serial = 0;
    m->shared->version++;
    m->bound[i]->mappings--;
    emu_handle_drop(m->bound[i]);
    m->bound[i] = NULL;
}

void emu_multicast_end(struct emu_multicast *m) {
    lock_shared(m->shared);
    for (int i = 0; i < MAX_BINDINGS; i++)
        if (m->bound[i]) unbind(m, i);
    unlock_shared(m->shared);
    while (m->pieces) {
        struct piece *piece = m->pieces;
        m->pieces = piece->next;
        piece_end(piece);
    }
    if (m->slot_fd >= 0) close(m->slot_fd);
    munmap(m->shared, sizeof *m->shared);
    free(m);
}

static CUresult check_prop(const CUmulticastObjectProp *prop) {
    if (!prop) return CUDA_ERROR_INVALID_VALUE;
    if (!emu_config.multicast) return CUDA_ERROR_NOT_SUPPORTED;
    if (prop->flags || !prop->numDevices || prop->numDevices > (unsigned)emu_config.gpus || !prop->size)
        return CUDA_ERROR_INVALID_VALUE; /* for more devices than there are: a guess */
    return CUDA_SUCCESS;
}

/* The size is part of the question: a granularity is of an object. */
EMU_CALL(cuMulticastGetGranularity, 12010,
         (size_t * granularity, const CUmulticastObjectProp *prop, CUmulticastGranularity_flags option),
         (granularity, prop, option)) {
    EMU_TRY(check_prop(prop));
    if (!granularity) return CUDA_ERROR_INVALID_VALUE;
    if (option != CU_MULTICAST_GRANULARITY_MINIMUM && option != CU_MULTICAST_GRANULARITY_RECOMMENDED)
        return CUDA_ERROR_INVALID_VALUE;
    *granularity = option == CU_MULTICAST_GRANULARITY_MINIMUM ? EMU_GRANULE : (size_t)1 << RECOMMENDED_SHIFT;
    return CUDA_SUCCESS;
}

EMU_LOCKED(cuMulticastCreate, 12010, (CUmemGenericAllocationHandle * out, const CUmulticastObjectProp *prop),
           (out, prop)) {
    EMU_TRY(check_prop(prop));
    if (!out || prop->size % EMU_GRANULE) return CUDA_ERROR_INVALID_VALUE;
    EMU_TRY(emu_handle_types((unsigned)prop->handleTypes));
    int fd = memfd_create(EMU_NAME_MULTICAST, MFD_CLOEXEC);
    struct shared *shared = fd >= 0 && !ftruncate(fd, sizeof *shared) ? map_shared(fd) : NULL;
    struct emu_handle *handle = NULL;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (shared) {
        init_shared(shared, prop);
        munmap(shared, sizeof *shared);
        result = emu_multicast_import(fd, &handle);
    }
    if (result != CUDA_SUCCESS) {
        if (fd >= 0) close(fd);
        return result;
    }
    handle->types = (unsigned)prop->handleTypes;
    *out = (CUmemGenericAllocationHandle)(uintptr_t)handle;
    return CUDA_SUCCESS;
}

static struct emu_handle *multicast_get(CUmemGenericAllocationHandle handle) {
    struct emu_handle *h = emu_handle_get(handle);
    return h && h->multicast ? h : NULL;
}

/* What a call for one device of an object works on. */
static CUresult object_and_device(CUmemGenericAllocationHandle handle, CUdevice device, struct emu_multicast **m) {
    struct emu_handle *h = multicast_get(handle);
    if (!h) return CUDA_ERROR_INVALID_VALUE;
    *m = h->multicast;
    return emu_device_valid(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EMU_LOCKED(cuMulticastAddDevice, 12010, (CUmemGenericAllocationHandle handle, CUdevice device), (handle, device)) {
    struct emu_multicast *m;
    EMU_TRY(object_and_device(handle, device, &m));
    uint32_t bit = 1u << emu_config.visible[device];
    lock_shared(m->shared);
    bool good = !(m->shared->added & bit) && count_added(m->shared) < m->shared->devices; /* else the code is a guess */
    if (good) m->shared->added |= bit;
    unlock_shared(m->shared);
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* As cuda.h says, bind and map block until all devices have been added: a rank that failed before it added its own leaves
 * the others waiting.  The driver gives up after seconds, with the error of a fabric manager that does not answer
 * (torchcomms#3130); so do we, and say so, for it is a mistake of the caller. */
CUresult emu_multicast_complete(struct emu_handle *handle) {
    const struct shared *shared = handle->multicast->shared;
    handle->references++; /* it must not end meanwhile */
    for (long waited = 0; count_added(shared) < shared->devices && waited / 1000 < emu_config.multicast_wait;
         waited += 200) {
        emu_unlock();
        usleep(200);
        emu_lock();
    }
    CUresult result = count_added(shared) < shared->devices ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        emu_say("a multicast object is bound or mapped and waits in vain: of its %u devices %u were added",
                shared->devices, count_added(shared));
    handle->references--;
    if (!handle->references) { /* released under our feet */
        emu_handle_drop(handle);
        return CUDA_ERROR_INVALID_VALUE;
    }
    return result;
}

/* --- bindings --- */
/* offset and size are good in both, and all devices are there. */
static CUresult bind(struct emu_multicast *m, size_t offset, struct emu_handle *memory, size_t memory_offset,
                     size_t size) {
    int place = -1;
    for (int i = 0; i < MAX_BINDINGS; i++) {
        const struct binding *b = &m->shared->bindings[i];
        if (!b->serial && place < 0) place = i;
        if (b->serial && b->device == memory->device && offset < b->offset + b->size && b->offset < offset + size)
            return CUDA_ERROR_INVALID_VALUE; /* a guess */
    }
    if (place < 0 || !take_slot(m)) return CUDA_ERROR_OUT_OF_MEMORY;
    m->shared->bindings[place] = (struct binding){.serial = ++m->shared->version,
                                                  .owner = m->owner,
                                                  .offset = offset,
                                                  .size = size,
                                                  .identity = memory->identity,
                                                  .memory_offset = memory_offset,
                                                  .device = memory->device,
                                                  .pid = (int)getpid(),
                                                  .fd = memory->fd};
    m->bound[place] = memory;
    memory->mappings++;
    return CUDA_SUCCESS;
}

static bool inside(size_t offset, size_t size, size_t whole) {
    return offset % EMU_GRANULE == 0 && size % EMU_GRANULE == 0 && size && offset <= whole && size <= whole - offset;
}

/* With the lock held. */
static CUresult check_and_bind(struct emu_handle *h, size_t offset, struct emu_handle *memory, size_t memory_offset,
                               size_t size) {
    if (!inside(offset, size, h->size) || !inside(memory_offset, size, memory->size)) return CUDA_ERROR_INVALID_VALUE;
    struct emu_multicast *m = h->multicast;
    bool shareable = m->shared->types != CU_MEM_HANDLE_TYPE_NONE || h->imported;
    if (shareable && memory->types == CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_INVALID_VALUE;
    memory->references++;
    CUresult result = emu_multicast_complete(h);
    if (result == CUDA_SUCCESS && !emu_multicast_has(m, memory->device)) result = CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS) {
        lock_shared(m->shared);
        result = bind(m, offset, memory, memory_offset, size);
        unlock_shared(m->shared);
    }
    memory->references--;
    emu_handle_drop(memory);
    return result;
}

EMU_LOCKED(cuMulticastBindMem, 12010,
           (CUmemGenericAllocationHandle handle, size_t offset, CUmemGenericAllocationHandle memory,
            size_t memory_offset, size_t size, unsigned long long flags),
           (handle, offset, memory, memory_offset, size, flags)) {
    struct emu_handle *h = multicast_get(handle), *mem = emu_handle_get(memory);
    if (!h || !mem || mem->multicast || flags) return CUDA_ERROR_INVALID_VALUE;
    return check_and_bind(h, offset, mem, memory_offset, size);
}

EMU_LOCKED(cuMulticastBindAddr, 12010,
           (CUmemGenericAllocationHandle handle, size_t offset, CUdeviceptr address, size_t size,
            unsigned long long flags),
           (handle, offset, address, size, flags)) {
    struct emu_handle *h = multicast_get(handle);
    const struct emu_range *range = emu_range_of((uintptr_t)address);
    if (!h || flags || !emu_range_holds(range, (uintptr_t)address, size) || range->kind != EMU_MAPPED)
        return CUDA_ERROR_INVALID_VALUE;
    return check_and_bind(h, offset, range->handle, (uintptr_t)address - range->base + range->offset, size);
}

/* cuda.h: offset and size must be those of the bind call, else the behaviour is undefined.  Here it is an error. */
EMU_LOCKED(cuMulticastUnbind, 12010, (CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, size_t size),
           (handle, device, offset, size)) {
    struct emu_multicast *m;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    EMU_TRY(object_and_device(handle, device, &m));
    lock_shared(m->shared);
    for (int i = 0; i < MAX_BINDINGS && result != CUDA_SUCCESS; i++) {
        const struct binding *b = &m->shared->bindings[i];
        if (!m->bound[i] || b->device != emu_config.visible[device] || b->offset != offset || b->size != size) continue;
        unbind(m, i);
        result = CUDA_SUCCESS;
    }
    unlock_shared(m->shared);
    return result;
}

/* --- what kernels reach --- */
static struct piece *piece_new(const struct binding *b) {
    int fd = emu_open_of(b->pid, b->fd, b->identity); /* a process that is gone has taken its memory along */
    struct piece *piece = fd >= 0 ? calloc(1, sizeof *piece) : NULL;
    uintptr_t base = piece ? emu_arena_take(b->size, EMU_GRANULE) : 0;
    void *p =
        base ? mmap((void *)base, b->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)b->memory_offset)
             : MAP_FAILED;
    if (fd >= 0) close(fd);
    if (p == MAP_FAILED) {
        if (base) emu_arena_give(base, b->size);
        free(piece);
        return NULL;
    }
    piece->serial = b->serial;
    piece->offset = b->offset;
    piece->memory.identity = b->identity;
    piece->range = (struct emu_range){.kind = EMU_MAPPED,
                                      .base = base,
                                      .size = b->size,
                                      .device = b->device,
                                      .handle = &piece->memory,
                                      .offset = b->memory_offset};
    emu_arena_set(base, b->size, &piece->range);
    return piece;
}

static bool still_bound(const struct shared *shared, uint64_t serial) {
    for (int i = 0; i < MAX_BINDINGS; i++)
        if (shared->bindings[i].serial == serial) return true;
    return false;
}

static bool has_piece(const struct emu_multicast *m, uint64_t serial) {
    for (const struct piece *piece = m->pieces; piece; piece = piece->next)
        if (piece->serial == serial) return true;
    return false;
}

static void refresh(struct emu_multicast *m) {
    emu_lock();
    lock_shared(m->shared);
    for (struct piece **at = &m->pieces; *at;) {
        struct piece *piece = *at;
        if (still_bound(m->shared, piece->serial)) {
            at = &piece->next;
        } else {
            *at = piece->next;
            piece_end(piece);
        }
    }
    for (int i = 0; i < MAX_BINDINGS; i++) {
        const struct binding *b = &m->shared->bindings[i];
        struct piece *piece = b->serial && !has_piece(m, b->serial) ? piece_new(b) : NULL;
        if (!piece) continue;
        piece->next = m->pieces;
        m->pieces = piece;
    }
    m->seen = m->shared->version;
    unlock_shared(m->shared);
    emu_unlock();
}

int emu_multicast_places(const struct emu_range *range, uintptr_t address, unsigned bytes,
                         uintptr_t places[EMU_MAX_DEVICES]) {
    struct emu_multicast *m = range->handle->multicast;
    uint64_t offset = address - range->base + range->offset;
    uint32_t missing = m->shared->added;
    int count = 0;
    if (m->seen != m->shared->version) refresh(m);
    for (const struct piece *piece = m->pieces; piece; piece = piece->next) {
        if (offset < piece->offset || offset + bytes > piece->offset + piece->range.size) continue;
        places[count++] = piece->range.base + (offset - piece->offset);
        missing &= ~(1u << piece->range.device);
    }
    return missing ? -1 : count;
}
