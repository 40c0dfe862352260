/* modules.c - loads the fatbins that scripts/embed-fatbin put into the library. */
#include "modules.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

extern const void *const bl_fatbins[];
extern const int bl_fatbin_count;

struct bl_modules {
    struct bl_modules *next;
    CUcontext context;
    uint64_t context_id;
    int users, count;
    CUmodule module[];
};

static struct bl_modules *first;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void unload(struct bl_modules *modules) {
    while (modules->count > 0) bl_driver()->cuModuleUnload(modules->module[--modules->count]);
    free(modules);
}

static struct bl_modules *load(CUcontext context, uint64_t context_id, char *why, size_t size) {
    struct bl_modules *modules = calloc(1, sizeof(*modules) + sizeof(CUmodule) * (size_t)bl_fatbin_count);
    if (!modules) {
        snprintf(why, size, "out of host memory");
        return NULL;
    }
    modules->context = context;
    modules->context_id = context_id;
    for (int i = 0; i < bl_fatbin_count; i++) {
        CUresult status = bl_driver()->cuModuleLoadData(&modules->module[i], bl_fatbins[i]);
        if (status != CUDA_SUCCESS) {
            snprintf(why, size, "loading the kernels (cuModuleLoadData) failed: %s", bl_driver_strerror(status));
            unload(modules);
            return NULL;
        }
        modules->count++;
    }
    return modules;
}

int bl_modules_open(struct bl_modules **modules, CUcontext context, uint64_t context_id, char *why, size_t size) {
    pthread_mutex_lock(&lock);
    struct bl_modules *one = first;
    while (one && (one->context != context || one->context_id != context_id)) one = one->next;
    if (!one && (one = load(context, context_id, why, size))) {
        one->next = first;
        first = one;
    }
    if (one) one->users++;
    pthread_mutex_unlock(&lock);
    *modules = one;
    return one ? 0 : -1;
}

static int find(const struct bl_modules *modules, const char *symbol, CUfunction *function, char *why, size_t size) {
    const struct bl_driver *cu = bl_driver();
    CUresult status = CUDA_ERROR_NOT_FOUND;
    for (int i = 0; i < modules->count && status == CUDA_ERROR_NOT_FOUND; i++)
        status = cu->cuModuleGetFunction(function, modules->module[i], symbol);
    if (status == CUDA_SUCCESS && cu->cuFuncLoad) status = cu->cuFuncLoad(*function);
    if (status == CUDA_SUCCESS) return 0;
    snprintf(why, size, "kernel %s failed to load: %s", symbol, bl_driver_strerror(status));
    return -1;
}

int bl_modules_find(struct bl_modules *modules, int nranks, bool multicast,
                    CUfunction function[BL_KERNELS][BL_DATATYPES], char *why, size_t size) {
    char symbol[96];
    for (int kernel = 0; kernel < BL_KERNELS; kernel++)
        for (int datatype = 0; datatype < BL_DATATYPES; datatype++)
            if (bl_kernel_multicast(kernel) == multicast &&
                bl_kernel_symbol(kernel, datatype, nranks, symbol, sizeof(symbol)) == 0 &&
                find(modules, symbol, &function[kernel][datatype], why, size))
                return -1;
    return 0;
}

void bl_modules_close(struct bl_modules *modules) {
    if (!modules) return;
    pthread_mutex_lock(&lock);
    const bool unused = --modules->users == 0;
    if (unused) {
        struct bl_modules **link = &first;
        while (*link != modules) link = &(*link)->next;
        *link = modules->next;
    }
    pthread_mutex_unlock(&lock);
    if (unused) unload(modules); /* which may wait for the work of others */
}
