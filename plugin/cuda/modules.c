/* modules.c - loads the fatbins that scripts/build/embed-fatbin put into the library. */
#include "modules.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/why.h"

extern const void *const bl_fatbins[];
extern const int bl_fatbin_count;

enum { SPARES = 2 };

struct bl_modules {
    struct bl_modules *next;
    CUcontext context;
    uint64_t context_id;
    int users, count;
    bool loading; /* by the thread that made it */
    struct bl_memory spare[SPARES];
    CUmodule module[];
};

static struct bl_modules *first;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t loaded = PTHREAD_COND_INITIALIZER;

static void unload(struct bl_modules *modules) {
    while (modules->count > 0) bl_driver()->cuModuleUnload(modules->module[--modules->count]);
    free(modules);
}

static int load(struct bl_modules *modules) {
    for (int i = 0; i < bl_fatbin_count; i++) {
        BL_DRIVER_CHECK(bl_driver()->cuModuleLoadData(&modules->module[i], bl_fatbins[i]),
                        "loading the kernels (cuModuleLoadData)");
        modules->count++;
    }
    return 0;
}

/* Under the lock. */
static struct bl_modules *find_of(CUcontext context, uint64_t context_id) {
    struct bl_modules *one = first;
    while (one && (one->context != context || one->context_id != context_id)) one = one->next;
    return one;
}
static void take_out(const struct bl_modules *modules) {
    struct bl_modules **link = &first;
    while (*link != modules) link = &(*link)->next;
    *link = modules->next;
}

/* Those of contexts that have ended, and their modules with them: the handle is another one's now. */
static void forget_ended(CUcontext context, uint64_t context_id) {
    for (struct bl_modules **link = &first, *one; (one = *link);) {
        if (one->context == context && one->context_id != context_id && !one->users && !one->loading) {
            *link = one->next;
            free(one);
        } else {
            link = &one->next;
        }
    }
}

/* Without the lock: to load may wait for the context's work, which may need another thread that sets up on another GPU. */
static int load_apart(struct bl_modules *modules) {
    pthread_mutex_unlock(&lock);
    const int status = load(modules);
    pthread_mutex_lock(&lock);
    modules->loading = false;
    if (status) take_out(modules);
    pthread_cond_broadcast(&loaded);
    return status;
}

int bl_modules_open(struct bl_modules **modules, CUcontext context, uint64_t context_id) {
    struct bl_modules *one, *failed = NULL;
    pthread_mutex_lock(&lock);
    forget_ended(context, context_id);
    while ((one = find_of(context, context_id)) && one->loading) pthread_cond_wait(&loaded, &lock);
    if (!one && (one = calloc(1, sizeof(*one) + sizeof(CUmodule) * (size_t)bl_fatbin_count))) {
        one->context = context;
        one->context_id = context_id;
        one->loading = true;
        one->next = first;
        first = one;
        if (load_apart(one)) {
            failed = one;
            one = NULL;
        }
    } else if (!one) {
        bl_fail("out of host memory");
    }
    if (one) one->users++;
    pthread_mutex_unlock(&lock);
    if (failed) unload(failed);
    *modules = one;
    return one ? 0 : -1;
}

/* For launches that give each block so much memory.  All ask for multiprocessors set to give blocks memory, or a block with memory found no
 * room beside those without, as long as they run; that makes none of them slower (docs/benchmarks/h200-x4-2026-11-29-pieces.md). */
static int find(const struct bl_modules *modules, const char *symbol, int memory, CUfunction *function) {
    const struct bl_driver *cu = bl_driver();
    CUresult status = CUDA_ERROR_NOT_FOUND;
    for (int i = 0; i < modules->count && status == CUDA_ERROR_NOT_FOUND; i++)
        status = cu->cuModuleGetFunction(function, modules->module[i], symbol);
    if (status == CUDA_SUCCESS && cu->cuFuncLoad) status = cu->cuFuncLoad(*function);
    if (status == CUDA_SUCCESS && memory > 0)
        status = cu->cuFuncSetAttribute(*function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, memory);
    if (status == CUDA_SUCCESS)
        status = cu->cuFuncSetAttribute(*function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                        CU_SHAREDMEM_CARVEOUT_MAX_SHARED);
    if (status == CUDA_SUCCESS) return 0;
    return bl_fail("kernel %s failed to load: %s", symbol, bl_driver_strerror(status));
}

/* As much as its largest block here takes. */
static int memory_of(int kernel, uint64_t block_memory) {
    return (int)bl_kernel_memory(kernel, bl_kernel_threads_in(kernel, BL_MAX_THREADS, block_memory));
}

int bl_modules_find(struct bl_modules *modules, CUdevice device, int nranks, bool multicast,
                    CUfunction function[BL_KERNELS][BL_DATATYPES]) {
    const uint64_t block_memory = bl_driver_block_memory(device);
    char symbol[96];
    for (int kernel = 0; kernel < BL_KERNELS; kernel++)
        for (int datatype = 0; datatype < BL_DATATYPES; datatype++)
            if (bl_kernel_multicast(kernel) == multicast &&
                bl_kernel_symbol(kernel, datatype, nranks, symbol, sizeof(symbol)) == 0 &&
                find(modules, symbol, memory_of(kernel, block_memory), &function[kernel][datatype]))
                return -1;
    return 0;
}

int bl_modules_scratch(struct bl_modules *modules, struct bl_memory *memory, CUdevice device, uint64_t bytes) {
    *memory = (struct bl_memory){0};
    pthread_mutex_lock(&lock);
    for (int i = 0; i < SPARES && !memory->nranks; i++) {
        if (modules->spare[i].bytes < bytes) continue;
        *memory = modules->spare[i];
        modules->spare[i] = (struct bl_memory){0};
    }
    pthread_mutex_unlock(&lock);
    return memory->nranks ? 0 : bl_memory_scratch(memory, device, bytes);
}

void bl_modules_keep(struct bl_modules *modules, struct bl_memory *memory) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < SPARES && memory->nranks; i++) {
        if (modules->spare[i].nranks) continue;
        modules->spare[i] = *memory;
        *memory = (struct bl_memory){0};
    }
    pthread_mutex_unlock(&lock);
    bl_memory_release(memory);
}

void bl_modules_close(struct bl_modules *modules) {
    struct bl_memory spare[SPARES] = {{0}};
    if (!modules) return;
    pthread_mutex_lock(&lock);
    const bool unused = --modules->users == 0, ends = unused && !modules->context_id;
    for (int i = 0; i < SPARES && unused; i++) {
        spare[i] = modules->spare[i];
        modules->spare[i] = (struct bl_memory){0};
    }
    if (ends) take_out(modules);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < SPARES; i++) bl_memory_release(&spare[i]); /* which may wait for the work of others */
    if (ends) unload(modules);
}
