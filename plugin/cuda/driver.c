/* driver.c - finds libcuda.so.1 and fills the table of driver.def, once, at first use. */
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include "base/log.h"
#include "base/why.h"

static const char library[] = "libcuda.so.1";

static const struct {
    const char *name;
    int version;
    int optional;
    size_t offset;
} rows[] = {
#define BL_DRIVER(function, since)          {#function, since, 0, offsetof(struct bl_driver, function)},
#define BL_DRIVER_OPTIONAL(function, since) {#function, since, 1, offsetof(struct bl_driver, function)},
#include "driver.def"
#undef BL_DRIVER
};

static struct bl_driver driver;
static const struct bl_driver *found;
static char error[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The type of cuGetProcAddress_v2, which cuda.h gives the plain name. */
static __typeof__(cuGetProcAddress) *get;

static void *look_up(const char *name, int version) {
    void *address = NULL;
    CUdriverProcAddressQueryResult status;
    return get(name, &address, version, CU_GET_PROC_ADDRESS_DEFAULT, &status) == CUDA_SUCCESS ? address : NULL;
}

static void load(void) {
    /* The copy that the process already uses, where there is one: a second copy has no context of ours. */
    void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle) handle = dlopen(library, RTLD_LAZY);
    if (!handle) {
        const char *why = dlerror();
        snprintf(error, sizeof(error), "%s cannot be loaded: %s", library, why ? why : "no reason given");
        return;
    }
    get = (__typeof__(get))dlsym(handle, "cuGetProcAddress_v2");
    if (!get) {
        snprintf(error, sizeof(error), "%s has no cuGetProcAddress_v2: it is older than CUDA 12", library);
        return;
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        void *address = look_up(rows[i].name, rows[i].version);
        if (!address && !rows[i].optional) {
            snprintf(error, sizeof(error), "%s has no %s of CUDA %d.%d", library, rows[i].name, rows[i].version / 1000,
                     rows[i].version % 1000 / 10);
            return;
        }
        *(void **)((char *)&driver + rows[i].offset) = address;
    }
    found = &driver;
}

const struct bl_driver *bl_driver(void) {
    pthread_once(&once, load);
    return found;
}

void *bl_driver_symbol(const char *name, int version) {
    return bl_driver() ? look_up(name, version) : NULL;
}

const char *bl_driver_error(void) {
    pthread_once(&once, load);
    return error;
}

int bl_driver_attribute(CUdevice device, CUdevice_attribute attribute) {
    int value = 0;
    return bl_driver()->cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS ? value : 0;
}

uint64_t bl_driver_block_memory(CUdevice device) {
    return (uint64_t)bl_driver_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
}

CUresult bl_driver_launch(CUfunction function, unsigned blocks, unsigned threads, unsigned memory, bool early,
                          CUstream stream, void *args) {
    void *parameters[] = {args};
    if (!early)
        return bl_driver()->cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, memory, stream, parameters, NULL);
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                   .value.programmaticStreamSerializationAllowed = 1};
    const CUlaunchConfig config = {.gridDimX = blocks,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = threads,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .sharedMemBytes = memory,
                                   .hStream = stream,
                                   .attrs = &attribute,
                                   .numAttrs = 1};
    return bl_driver()->cuLaunchKernelEx(&config, function, parameters, NULL);
}

CUresult bl_driver_urgent_stream(CUstream *stream) {
    int lowest, highest;
    const CUresult status = bl_driver()->cuCtxGetStreamPriorityRange(&lowest, &highest);
    return status == CUDA_SUCCESS ? bl_driver()->cuStreamCreateWithPriority(stream, CU_STREAM_NON_BLOCKING, highest)
                                  : status;
}

CUstreamCaptureMode bl_driver_relax(void) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (bl_driver()) bl_driver()->cuThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

void bl_driver_unrelax(CUstreamCaptureMode before) {
    if (bl_driver()) bl_driver()->cuThreadExchangeStreamCaptureMode(&before);
}

const char *bl_driver_strerror(CUresult result) {
    static _Thread_local char text[96];
    const char *name = NULL;
    if (bl_driver()) bl_driver()->cuGetErrorName(result, &name);
    snprintf(text, sizeof(text), "%s (%d)", name ? name : "unknown CUDA error", (int)result);
    return text;
}

int bl_driver_fail(CUresult result, const char *format, ...) {
    char what[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    return bl_fail("%s failed: %s", what, bl_driver_strerror(result));
}

void bl_driver_undo(CUresult result, const char *call) {
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_DEINITIALIZED && result != CUDA_ERROR_CONTEXT_IS_DESTROYED)
        bl_info("giving back: %s failed: %s", call, bl_driver_strerror(result));
}
