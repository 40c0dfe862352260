/* real.h - the real NCCL, found once and called through one table.
 *
 * Threads: any.  Errors: a function that the real NCCL lacks, or every function if no real NCCL was found, is a
 * stand-in that returns ncclInvalidUsage (ncclSystemError if none was found) and logs once what was searched.  Nothing
 * aborts.
 */
#ifndef BEELINE_REAL_H
#define BEELINE_REAL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "nccl.h"

/* Generated from nccl.h and nccl_later.h by plugin/real/abi.py: one member a function, named as it is: __typeof__(ncclAllReduce)
 * *ncclAllReduce; */
#include "abi_table.h"

/* The table; never NULL, loads on first use. */
const struct bl_real *bl_real(void);

/* The version that the real NCCL reports (22809), 0 if there is none; its path, "" if there is none. */
int bl_real_version(void);
const char *bl_real_path(void);

/* Told by the dlsym interposer: the caller's handle leads to `address` for the function of `row`.  Makes the NCCL that
 * `address` lies in the real one if there is none yet.  True if calls through Beeline's entry point reach that very
 * function; false for a second NCCL in the process, whose callers are left alone. */
struct bl_abi_row;
bool bl_real_adopt(const struct bl_abi_row *row, void *address);

/* Whether the real NCCL has the function of `row`; without by_name, an NCCL that the process has loaded by now. */
bool bl_real_offers(const struct bl_abi_row *row, bool by_name);

/* What the stand-ins return: ncclInvalidUsage if the real NCCL lacks `function`, ncclSystemError if there is no real
 * NCCL. Logs what is wrong, once a function (`logged` is that function's own) or once for all. */
ncclResult_t bl_real_lacks(const char *function, atomic_bool *logged);

/* Whether a handle of dlopen is Beeline's. */
bool bl_real_is_beeline(void *handle);

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
