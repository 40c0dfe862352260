/* object.c - objects and what programs hold of them.  Objects lie one behind the other in a region that is never given back, so
 * that any pointer can be told from a handle without following it, and code that looked one up may keep the pointer.
 *
 * The handle of a stream or an event is not the object but a place, which the next one of its kind gets as soon as this one
 * is destroyed: real drivers give handles out again at once.  Other handles are the objects themselves.  Whoever uses one
 * after its end crashes on a real machine, now or one day; here the process ends at once, and says why. */
#include "emu.h"
#include "emulated.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAGIC 0x42454c494e453031ull
enum { ALIGNMENT = 64 };
static const size_t region_size = (size_t)8 << 30; /* of addresses: pages are touched as objects come */
static char *region;
static size_t used;
static struct emu_object *first[EMU_KINDS], **last[EMU_KINDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct place {
    struct emu_object object;
    struct emu_object *holder; /* alive, or the last one that was */
    struct place *next;        /* of those that are free */
};
static struct place *free_places[EMU_KINDS];

static const char *const names[EMU_KINDS] = {
    [EMU_CONTEXT] = "context",      [EMU_STREAM] = "stream",      [EMU_EVENT] = "event",     [EMU_MODULE] = "module",
    [EMU_FUNCTION] = "function",    [EMU_GRAPH] = "graph",        [EMU_NODE] = "graph node", [EMU_EXEC] = "graph exec",
    [EMU_HANDLE] = "memory handle", [EMU_GREEN] = "green context"};

static void *make(enum emu_kind kind, size_t size) {
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (!region) {
        void *p = mmap(NULL, region_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        region = p == MAP_FAILED ? NULL : p;
    }
    if (!region || used + size > region_size) return NULL;
    static uint64_t counts[EMU_KINDS];
    struct emu_object *object = (struct emu_object *)(region + used);
    *object = (struct emu_object){
        .magic = MAGIC, .kind = kind, .size = (uint32_t)size, .alive = true, .number = ++counts[kind]};
    __atomic_store_n(&used, used + size, __ATOMIC_RELEASE);
    __atomic_store_n(last[kind] ? last[kind] : &first[kind], object, __ATOMIC_RELEASE);
    last[kind] = &object->later;
    return object;
}

void *emu_object_new(enum emu_kind kind, size_t size) {
    pthread_mutex_lock(&lock);
    void *object = make(kind, size);
    pthread_mutex_unlock(&lock);
    return object;
}

void *emu_object_handle(void *object) {
    struct emu_object *o = object;
    pthread_mutex_lock(&lock);
    struct place *place = free_places[o->kind];
    if (place)
        free_places[o->kind] = place->next;
    else
        place = make(EMU_PLACE, sizeof *place);
    if (place) __atomic_store_n(&place->holder, o, __ATOMIC_RELEASE);
    o->place = place;
    pthread_mutex_unlock(&lock);
    return place;
}

void emu_object_end(void *object) {
    struct emu_object *o = object;
    pthread_mutex_lock(&lock);
    o->alive = false;
    if (o->place) {
        o->place->next = free_places[o->kind];
        free_places[o->kind] = o->place;
        o->place = NULL;
    }
    pthread_mutex_unlock(&lock);
}

void *emu_object_find(const void *handle, enum emu_kind kind) {
    size_t offset = (size_t)((const char *)handle - region);
    if (!region || offset >= __atomic_load_n(&used, __ATOMIC_ACQUIRE) || offset % ALIGNMENT) return NULL;
    struct emu_object *object = (struct emu_object *)(region + offset);
    if (object->magic != MAGIC) return NULL;
    if (object->kind == EMU_PLACE) object = __atomic_load_n(&((struct place *)object)->holder, __ATOMIC_ACQUIRE);
    return object->kind == kind ? object : NULL;
}

void *emu_object_get(const void *handle, enum emu_kind kind) {
    struct emu_object *object = emu_object_find(handle, kind);
    if (object && !object->alive) emu_object_gone(object, handle);
    return object;
}

void emu_object_gone(const void *object, const void *handle) {
    const struct emu_object *o = object;
    emu_say("%s: %s %llu (%p) has been destroyed: a real driver crashes, or takes another one for it", emu_call_name(),
            names[o->kind], (unsigned long long)o->number, handle);
    _exit(EMULATED_GONE);
}

void *emu_object_next(const void *object) {
    size_t offset = object ? (size_t)((const char *)object - region) + ((const struct emu_object *)object)->size : 0;
    return offset < __atomic_load_n(&used, __ATOMIC_ACQUIRE) ? region + offset : NULL;
}

void *emu_object_of(enum emu_kind kind, const void *object) {
    return __atomic_load_n(object ? &((const struct emu_object *)object)->later : &first[kind], __ATOMIC_ACQUIRE);
}
