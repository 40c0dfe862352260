/* driver.h - the CUDA driver, looked up at first use; no link-time need of libcuda.so.1.
 *
 * bl_driver()->cuMemCreate(...): one member a row of driver.def.  Every driver symbol of the plugin is named there and
 * nowhere else, but those of multicast, which multicast.c keeps behind its door.  Threads: any.
 */
#ifndef BEELINE_DRIVER_H
#define BEELINE_DRIVER_H

#include <cuda.h>
#include <stdbool.h>

struct bl_driver {
#define BL_DRIVER(function, version) __typeof__(function) *function;
#include "driver.def"
#undef BL_DRIVER
};

/* NULL if there is no driver, or it lacks a function; bl_driver_error() says which. */
const struct bl_driver *bl_driver(void);
const char *bl_driver_error(void);

/* For multicast.c alone: a function that is in no row, or NULL. */
void *bl_driver_symbol(const char *name, int version);

/* 0 where it cannot be asked. */
int bl_driver_attribute(CUdevice device, CUdevice_attribute attribute);

/* Bytes of memory that a launch may give a block. */
uint64_t bl_driver_block_memory(CUdevice device);

/* A kernel of one argument; `memory`: bl_kernel_memory.  An early launch (programmatic dependent launch) may start before the work ahead of it on the stream is over, which
 * spares the time between two kernels; the kernel must wait for that work before it touches memory.  Only in captures, or on a stream
 * that is never destroyed with work under way: the next stream that is made inherits such a one's queue, and with driver 580 what
 * was launched early on the old one waits for the first kernel on the new one, which came behind it (`early --only gone`, test/gpu). */
CUresult bl_driver_launch(CUfunction function, unsigned blocks, unsigned threads, unsigned memory, bool early,
                          CUstream stream, void *args);

/* A stream, which waits for no other by itself, of the highest priority. */
CUresult bl_driver_urgent_stream(CUstream *stream);

/* Calls that a capture on another stream of the process would forbid are fine for this thread until it says otherwise: for
 * calls that touch no captured stream.  Without a driver, nothing. */
CUstreamCaptureMode bl_driver_relax(void);
void bl_driver_unrelax(CUstreamCaptureMode before);

/* "CUDA_ERROR_OUT_OF_MEMORY (2)", in a buffer of the calling thread. */
const char *bl_driver_strerror(CUresult result);

/* Tells, at INFO, of a call that was to give something back and failed.  A driver that is already gone at the process's end has
 * released everything itself. */
void bl_driver_undo(CUresult result, const char *call);

/* bl_fail, with what a call was for and the driver's reason: "mapping it (cuMemMap) failed: CUDA_ERROR_OUT_OF_MEMORY (2)". */
int bl_driver_fail(CUresult result, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Returns so from the function that it stands in, if the call fails. */
#define BL_DRIVER_CHECK(expression, ...)                                                                               \
    do {                                                                                                               \
        const CUresult status_ = (expression);                                                                         \
        if (status_ != CUDA_SUCCESS) return bl_driver_fail(status_, __VA_ARGS__);                                      \
    } while (0)

#endif
