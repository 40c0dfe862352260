/* real.h - the real NCCL, found once and called through one table.
 *
 * Threads: any.  Errors: a function that the real NCCL lacks, or every function if no real NCCL was found, is a stand-in
 * that returns ncclInvalidUsage (ncclSystemError if none was found) and logs once what was searched.  Nothing aborts.
 */
#ifndef BEELINE_REAL_H
#define BEELINE_REAL_H

#include "nccl.h"

/* Generated from nccl.h by plugin/abi.py: one member a function, named as it is: __typeof__(ncclAllReduce) *ncclAllReduce; */
#include "abi_table.h"

/* The table; never NULL, loads on first use. */
const struct bl_real *bl_real(void);

/* The version that the real NCCL reports (22809), 0 if there is none; its path, "" if there is none. */
int bl_real_version(void);
const char *bl_real_path(void);

/* Told by the dlsym interposer of a handle through which the caller reached a real NCCL, so that calls go to that very one. */
void bl_real_adopt(void *symbol_address);

/* Depth of calls into the real NCCL on this thread.  The real NCCL calls some of its own exports through the PLT and so
 * comes back to ours: an entry point with bl_real_depth > 0 only forwards. */
extern _Thread_local int bl_real_depth;

/* result = BL_REAL(ncclAllReduce, sendbuff, ...): calls the real function with the guard held. */
#define BL_REAL(function, ...)                                                                                         \
    __extension__({                                                                                                    \
        bl_real_depth++;                                                                                               \
        __typeof__(bl_real()->function(__VA_ARGS__)) bl_result_ = bl_real()->function(__VA_ARGS__);                    \
        bl_real_depth--;                                                                                               \
        bl_result_;                                                                                                    \
    })

#endif
