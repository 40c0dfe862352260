/* launch.c - kernel launches: the real driver's checks, and a copy of the argument. */
#include "emu.h"

#include <stdlib.h>
#include <string.h>

static bool dimensions_good(const unsigned grid[3], const unsigned block[3]) {
    if (!grid[0] || !grid[1] || !grid[2] || !block[0] || !block[1] || !block[2]) return false;
    if (grid[0] > 0x7fffffff || grid[1] > 65535 || grid[2] > 65535) return false;
    uint64_t threads = (uint64_t)block[0] * block[1];
    return threads <= 1024 && threads * block[2] <= (uint64_t)emu_config.max_threads;
}

static CUresult launch(CUfunction handle, const unsigned grid[3], const unsigned block[3], unsigned memory, bool early,
                       CUstream stream_handle, void **parameters, void **extra) {
    struct emu_context *context;
    struct emu_stream *stream;
    if (!dimensions_good(grid, block)) return CUDA_ERROR_INVALID_VALUE;
    emu_lock();
    struct emu_function *function = emu_object_get(handle, EMU_FUNCTION);
    CUresult result = emu_context_need(&context);
    if (result == CUDA_SUCCESS && !function) result = CUDA_ERROR_INVALID_HANDLE;
    /* More than its launch bounds allow. */
    if (result == CUDA_SUCCESS && (uint64_t)block[0] * block[1] * block[2] > (uint64_t)function->most_threads)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && memory > function->most_memory) result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && (!parameters || !parameters[0] || extra)) result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) result = emu_stream_of(stream_handle, &stream);
    /* A stream, and a module's function, belong to one context, and that must be current. */
    if (result == CUDA_SUCCESS && stream->context != context) result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS && function->module->context && function->module->context != context)
        result = CUDA_ERROR_INVALID_HANDLE;
    emu_unlock();
    if (result != CUDA_SUCCESS) return result;
    struct emu_op op = {
        .kind = EMU_OP_KERNEL,
        .kernel = {.function = function, .early = early, .memory = memory, .args = malloc(function->argument_size)}};
    if (!op.kernel.args) return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(op.kernel.args, parameters[0], function->argument_size);
    op.takes = emu_speed_of_kernel(function, op.kernel.args);
    memcpy(op.kernel.grid, grid, sizeof op.kernel.grid);
    memcpy(op.kernel.block, block, sizeof op.kernel.block);
    return emu_enqueue(stream_handle, &op);
}

EMU_CALL(cuLaunchKernel, 4000,
         (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
          unsigned shared, CUstream stream, void **parameters, void **extra),
         (function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra)) {
    return launch(function, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared, false, stream, parameters,
                  extra);
}

EMU_CALL(cuLaunchKernelEx, 11060, (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra),
         (config, function, parameters, extra)) {
    if (!config || (config->numAttrs && !config->attrs)) return CUDA_ERROR_INVALID_VALUE;
    bool early = false;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        if (config->attrs[i].id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            return CUDA_ERROR_NOT_SUPPORTED;
        early = config->attrs[i].value.programmaticStreamSerializationAllowed;
    }
    return launch(function, (unsigned[]){config->gridDimX, config->gridDimY, config->gridDimZ},
                  (unsigned[]){config->blockDimX, config->blockDimY, config->blockDimZ}, config->sharedMemBytes, early,
                  config->hStream, parameters, extra);
}

EMU_CALL(cuLaunchCooperativeKernel, 9000,
         (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
          unsigned shared, CUstream stream, void **parameters),
         (function, gx, gy, gz, bx, by, bz, shared, stream, parameters)) {
    if ((uint64_t)gx * gy * gz > EMU_SM_BLOCKS * (uint64_t)emu_config.sms)
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    return launch(function, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared, false, stream, parameters,
                  NULL);
}
