/* info.c - version, names and errors. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu_nccl.h"

static const struct {
    const char *name, *text;
} results[] = {
    [ncclSuccess] = {"ncclSuccess", "no error"},
    [ncclUnhandledCudaError] = {"ncclUnhandledCudaError",
                                "unhandled cuda error (run with NCCL_DEBUG=INFO for details)"},
    [ncclSystemError] = {"ncclSystemError", "unhandled system error (run with NCCL_DEBUG=INFO for details)"},
    [ncclInternalError] = {"ncclInternalError", "internal error - please report this issue to the NCCL developers"},
    [ncclInvalidArgument] = {"ncclInvalidArgument", "invalid argument (run with NCCL_DEBUG=WARN for details)"},
    [ncclInvalidUsage] = {"ncclInvalidUsage", "invalid usage (run with NCCL_DEBUG=WARN for details)"},
    [ncclRemoteError] = {"ncclRemoteError", "remote process exited or there was a network error"},
    [ncclInProgress] = {"ncclInProgress", "NCCL operation in progress"},
};

static const struct {
    const char *name;
    size_t size;
} datatypes[ncclNumTypes] = {
    [ncclInt8] = {"int8", 1},
    [ncclUint8] = {"uint8", 1},
    [ncclInt32] = {"int32", 4},
    [ncclUint32] = {"uint32", 4},
    [ncclInt64] = {"int64", 8},
    [ncclUint64] = {"uint64", 8},
    [ncclFloat16] = {"float16", 2},
    [ncclFloat32] = {"float32", 4},
    [ncclFloat64] = {"float64", 8},
    [ncclBfloat16] = {"bfloat16", 2},
    [ncclFloat8e4m3] = {"float8_e4m3", 1},
    [ncclFloat8e5m2] = {"float8_e5m2", 1},
};

static const char *const redops[ncclNumOps] = {"sum", "prod", "max", "min", "avg"};

static pthread_mutex_t last_lock = PTHREAD_MUTEX_INITIALIZER;
static char last_error[1024];

const char *emu_result_name(int result) {
    return result >= 0 && result < ncclNumResults ? results[result].name : "unknown";
}

bool emu_result_parse(const char *name, ncclResult_t *result) {
    for (int i = 0; i < ncclNumResults; i++) {
        if (strcmp(name, results[i].name)) continue;
        *result = (ncclResult_t)i;
        return true;
    }
    return false;
}

const char *emu_datatype_name(int datatype) {
    return datatype >= 0 && datatype < ncclNumTypes ? datatypes[datatype].name : "invalid";
}

size_t emu_datatype_size(int datatype) {
    return datatype >= 0 && datatype < ncclNumTypes ? datatypes[datatype].size : 0;
}

const char *emu_redop_name(int redop) {
    return redop >= 0 && redop < ncclNumOps ? redops[redop] : "custom";
}

ncclResult_t emu_fail(ncclResult_t result, const char *format, ...) {
    const char *debug = getenv("NCCL_DEBUG");
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&last_lock);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    if (debug && strcmp(debug, "VERSION")) fprintf(stderr, "emulated NCCL WARN %s\n", last_error);
    pthread_mutex_unlock(&last_lock);
    va_end(arguments);
    return result;
}

ncclResult_t emu_cuda(CUresult result, const char *what) {
    const char *name = "?";
    if (result == CUDA_SUCCESS) return ncclSuccess;
    cuGetErrorName(result, &name);
    return emu_fail(ncclUnhandledCudaError, "%s: %s", what, name ? name : "?");
}

EMU_API(ncclResult_t, ncclGetVersion, int *version) {
    struct emu_call call = NCCL_CALL(-1);
    ncclResult_t result = emu_call_enter(&call, NULL);
    const char *text = getenv("BEELINE_EMU_NCCL_VERSION");
    if (result == ncclSuccess && !version) result = emu_fail(ncclInvalidArgument, "ncclGetVersion: version is NULL");
    if (result == ncclSuccess) *version = text && *text ? atoi(text) : emu_version_code;
    return emu_call_leave(&call, result);
}

EMU_API(const char *, ncclGetErrorString, ncclResult_t result) {
    return (int)result >= 0 && result < ncclNumResults ? results[result].text : "unknown result code";
}

EMU_API(const char *, ncclGetLastError, ncclComm_t comm) {
    static _Thread_local char copy[sizeof last_error];
    pthread_mutex_lock(&last_lock);
    memcpy(copy, last_error, sizeof copy);
    pthread_mutex_unlock(&last_lock);
    return copy;
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
EMU_API(void, ncclResetDebugInit, void) {}
