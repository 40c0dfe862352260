/* module.c - modules: whatever image is given, the kernels are those of the library compiled for the host. */
#define _GNU_SOURCE
#include "emu.h"
#include "simt.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static void *open_kernels(void) {
    char path[PATH_MAX];
    Dl_info self;
    const char *name = emu_config.kernels;
    if (!name) {
        if (!dladdr((void *)open_kernels, &self)) return NULL;
        const char *slash = strrchr(self.dli_fname, '/');
        snprintf(path, sizeof path, "%.*s/libbeeline-kernels.so", slash ? (int)(slash - self.dli_fname) : 1,
                 slash ? self.dli_fname : ".");
        name = path;
    }
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) emu_say("no kernels: %s", dlerror());
    struct bl_emu_seam **seam = library ? dlsym(library, "bl_emu") : NULL;
    if (library && !seam) emu_say("no kernels: %s was not compiled with the seam's primitives.cuh", name);
    if (seam) __atomic_store_n(seam, &emu_seam, __ATOMIC_RELAXED); /* as other threads do */
    return seam ? library : NULL;
}

static CUresult load(struct emu_module **out, const void *image, bool library) {
    struct emu_context *context = NULL;
    if (!out || !image) return CUDA_ERROR_INVALID_VALUE;
    emu_lock();
    CUresult result = library ? CUDA_SUCCESS : emu_context_need(&context);
    if (result == CUDA_SUCCESS) result = emu_capture_unsafe();
    if (result == CUDA_SUCCESS) emu_context_may_wait(emu_current());
    emu_unlock(); /* libraries may not be opened with it */
    if (result != CUDA_SUCCESS) return result;
    void *handle = open_kernels();
    if (!handle) return CUDA_ERROR_INVALID_IMAGE;
    struct emu_module *module = emu_object_new(EMU_MODULE, sizeof *module);
    if (!module) return CUDA_ERROR_OUT_OF_MEMORY;
    module->context = context;
    module->image = image;
    module->library = handle;
    *out = module;
    return CUDA_SUCCESS;
}

/* The library stays open: a kernel of it may still be running. */
void emu_module_end(struct emu_module *module) {
    for (struct emu_function *function = module->functions; function; function = function->next)
        emu_object_end(function);
    emu_object_end(module);
}

static CUresult unload(const void *handle) {
    struct emu_module *module = emu_object_get(handle, EMU_MODULE);
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    EMU_TRY(emu_capture_unsafe());
    emu_context_may_wait(module->context);
    if (module->object.alive) emu_module_end(module);
    return CUDA_SUCCESS;
}

static struct emu_function *find(struct emu_module *module, const char *name) {
    struct emu_function *function = module->functions;
    while (function && strcmp(function->name, name)) function = function->next;
    return function;
}

static CUresult get(struct emu_function **out, const void *handle, const char *name) {
    char size_name[256], threads_name[256];
    Dl_info info;
    if (!out || !name) return CUDA_ERROR_INVALID_VALUE;
    struct emu_module *module = emu_object_get(handle, EMU_MODULE);
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    struct emu_function *function = find(module, name);
    if (function) {
        *out = function;
        return CUDA_SUCCESS;
    }
    snprintf(size_name, sizeof size_name, "%s_argument_size", name);
    snprintf(threads_name, sizeof threads_name, "%s_most_threads", name);
    void *entry = dlsym(module->library, name);
    unsigned *size = dlsym(module->library, size_name), *threads = dlsym(module->library, threads_name);
    if (!entry || !size) return CUDA_ERROR_NOT_FOUND;
    function = emu_object_new(EMU_FUNCTION, sizeof *function);
    if (!function) return CUDA_ERROR_OUT_OF_MEMORY;
    function->module = module;
    function->name = dladdr(entry, &info) && info.dli_sname ? info.dli_sname : "kernel";
    *(void **)&function->entry = entry;
    function->argument_size = *size;
    function->most_threads = threads && (int)*threads < emu_config.max_threads ? (int)*threads : emu_config.max_threads;
    function->most_memory = EMU_BLOCK_MEMORY;
    function->carveout = -1;
    function->next = module->functions;
    *out = module->functions = function;
    return CUDA_SUCCESS;
}

EMU_CALL(cuModuleLoadData, 2000, (CUmodule * out, const void *image), (out, image)) {
    return load((struct emu_module **)out, image, false);
}

EMU_CALL(cuModuleLoadDataEx, 2010,
         (CUmodule * out, const void *image, unsigned count, CUjit_option *options, void **values),
         (out, image, count, options, values)) {
    return load((struct emu_module **)out, image, false);
}

EMU_CALL(cuModuleLoadFatBinary, 2000, (CUmodule * out, const void *image), (out, image)) {
    return load((struct emu_module **)out, image, false);
}

EMU_LOCKED(cuModuleUnload, 2000, (CUmodule module), (module)) {
    return unload(module);
}

EMU_LOCKED(cuModuleGetFunction, 2000, (CUfunction * out, CUmodule module, const char *name), (out, module, name)) {
    return get((struct emu_function **)out, module, name);
}

EMU_CALL(cuLibraryLoadData, 12000,
         (CUlibrary * out, const void *code, CUjit_option *jit, void **jit_values, unsigned jit_count,
          CUlibraryOption *options, void **values, unsigned count),
         (out, code, jit, jit_values, jit_count, options, values, count)) {
    return load((struct emu_module **)out, code, true);
}

EMU_LOCKED(cuLibraryUnload, 12000, (CUlibrary library), (library)) {
    return unload(library);
}

EMU_LOCKED(cuLibraryGetKernel, 12000, (CUkernel * out, CUlibrary library, const char *name), (out, library, name)) {
    return get((struct emu_function **)out, library, name);
}

EMU_CALL(cuLibraryGetModule, 12000, (CUmodule * out, CUlibrary library), (out, library)) {
    if (!out || !emu_object_get(library, EMU_MODULE)) return CUDA_ERROR_INVALID_HANDLE;
    *out = (CUmodule)library;
    return CUDA_SUCCESS;
}

EMU_CALL(cuKernelGetFunction, 12000, (CUfunction * out, CUkernel kernel), (out, kernel)) {
    if (!out || !emu_object_get(kernel, EMU_FUNCTION)) return CUDA_ERROR_INVALID_HANDLE;
    *out = (CUfunction)kernel;
    return CUDA_SUCCESS;
}

EMU_CALL(cuFuncGetModule, 11000, (CUmodule * out, CUfunction handle), (out, handle)) {
    struct emu_function *function = emu_object_get(handle, EMU_FUNCTION);
    if (!out || !function) return CUDA_ERROR_INVALID_HANDLE;
    *out = (CUmodule)function->module;
    return CUDA_SUCCESS;
}

EMU_CALL(cuFuncLoad, 12040, (CUfunction function), (function)) {
    return emu_object_get(function, EMU_FUNCTION) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EMU_CALL(cuFuncGetAttribute, 2020, (int *value, CUfunction_attribute attribute, CUfunction function),
         (value, attribute, function)) {
    static const int values[] = {
        [CU_FUNC_ATTRIBUTE_NUM_REGS] = 64,
        [CU_FUNC_ATTRIBUTE_PTX_VERSION] = 90,
        [CU_FUNC_ATTRIBUTE_BINARY_VERSION] = 90,
        [CU_FUNC_ATTRIBUTE_MAX] = 0,
    };
    const struct emu_function *of = emu_object_get(function, EMU_FUNCTION);
    if (!of) return CUDA_ERROR_INVALID_HANDLE;
    if (!value || attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
    *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? of->most_threads : values[attribute];
    return CUDA_SUCCESS;
}

EMU_CALL(cuFuncSetAttribute, 9000, (CUfunction function, CUfunction_attribute attribute, int value),
         (function, attribute, value)) {
    struct emu_function *of = emu_object_get(function, EMU_FUNCTION);
    if (!of) return CUDA_ERROR_INVALID_HANDLE;
    if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) {
        if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
        of->carveout = value;
    }
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_SUCCESS;
    if (value < 0 || value > EMU_MOST_BLOCK_MEMORY) return CUDA_ERROR_INVALID_VALUE;
    of->most_memory = (unsigned)value;
    return CUDA_SUCCESS;
}

EMU_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050,
         (int *blocks, CUfunction function, int threads, size_t shared), (blocks, function, threads, shared)) {
    const struct emu_function *of = emu_object_get(function, EMU_FUNCTION);
    if (!blocks || !of) return CUDA_ERROR_INVALID_VALUE;
    const size_t fit = EMU_SM_MEMORY / (shared + EMU_OWN_MEMORY);
    *blocks = threads > of->most_threads || shared > of->most_memory ? 0
              : fit < EMU_SM_BLOCKS                                  ? (int)fit
                                                                     : EMU_SM_BLOCKS;
    return CUDA_SUCCESS;
}
