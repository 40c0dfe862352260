/* object.c - handles.  Objects lie one behind the other in a region that is never given back, so that any pointer can
 * be told from a handle without following it, and a handle to something destroyed is known for what it is. */
#include "emu.h"

#include <sys/mman.h>

#define MAGIC 0x42454c494e453031ull
enum { ALIGNMENT = 64 };
static const size_t region_size = (size_t)8 << 30; /* of addresses: pages are touched as objects come */
static char *region;
static size_t used;
static struct emu_object *first[EMU_KINDS], **last[EMU_KINDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void *emu_object_new(enum emu_kind kind, size_t size) {
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    pthread_mutex_lock(&lock);
    if (!region) {
        void *p = mmap(NULL, region_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        region = p == MAP_FAILED ? NULL : p;
    }
    struct emu_object *object = NULL;
    if (region && used + size <= region_size) {
        object = (struct emu_object *)(region + used);
        *object = (struct emu_object){.magic = MAGIC, .kind = kind, .size = (uint32_t)size, .alive = true};
        __atomic_store_n(&used, used + size, __ATOMIC_RELEASE);
        __atomic_store_n(last[kind] ? last[kind] : &first[kind], object, __ATOMIC_RELEASE);
        last[kind] = &object->later;
    }
    pthread_mutex_unlock(&lock);
    return object;
}

static struct emu_object *known(const void *handle, enum emu_kind kind) {
    size_t offset = (size_t)((const char *)handle - region);
    if (!region || offset >= __atomic_load_n(&used, __ATOMIC_ACQUIRE) || offset % ALIGNMENT) return NULL;
    struct emu_object *object = (struct emu_object *)(region + offset);
    return object->magic == MAGIC && object->kind == kind ? object : NULL;
}

void *emu_object_get(const void *handle, enum emu_kind kind) {
    struct emu_object *object = known(handle, kind);
    return object && object->alive ? object : NULL;
}

bool emu_object_was(const void *handle, enum emu_kind kind) {
    return known(handle, kind) != NULL;
}

void emu_object_end(void *object) {
    ((struct emu_object *)object)->alive = false;
}

void *emu_object_next(const void *object) {
    size_t offset = object ? (size_t)((const char *)object - region) + ((const struct emu_object *)object)->size : 0;
    return offset < __atomic_load_n(&used, __ATOMIC_ACQUIRE) ? region + offset : NULL;
}

void *emu_object_of(enum emu_kind kind, const void *object) {
    return __atomic_load_n(object ? &((const struct emu_object *)object)->later : &first[kind], __ATOMIC_ACQUIRE);
}
