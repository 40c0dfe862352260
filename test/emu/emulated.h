/* emulated.h - what only the emulated driver has: a program that names it does not even start with another one.
 *
 * For all that calls the driver for multicast and must never do so on a real machine, however it is started: without
 * scripts/emu-box the loader finds a real libcuda.so.1 where there is one.
 */
#ifndef BEELINE_EMULATED_H
#define BEELINE_EMULATED_H

#include <cuda.h>

extern const char beeline_emulated_driver[];

/* A kernel that runs on the host, `function`, and meanwhile holds so many multiprocessors of the stream's device, each alone.  It
 * waits for them, and keeps others out, as any kernel does. */
CUresult beelineEmulatedKernel(CUstream stream, CUhostFn function, void *argument, unsigned multiprocessors);

/* The stream's work takes as much longer, by the clock of events, as the line of BEELINE_EMU_SPEEDS for this name says. */
CUresult beelineEmulatedTime(CUstream stream, const char *name, unsigned long long bytes);

/* With this status a process ends that names something destroyed in a driver call. */
enum { EMULATED_GONE = 86 };

/* Kept by the compiler and the linker, and bound by the loader before anything runs. */
#define NEEDS_EMULATED_DRIVER __attribute__((used)) static const char *const needed_driver = beeline_emulated_driver;

#endif
