/* new.c - makes the library pass for a later NCCL, with a function that nobody knows yet. */
#include "../emu_nccl.h"

const int emu_version_code = NCCL_VERSION(2, 99, 0);

ncclResult_t ncclFutureFunction(int value);
ncclResult_t pncclFutureFunction(int value);

EMU_API(ncclResult_t, ncclFutureFunction, int value) {
    struct emu_call call = NCCL_CALL(-1);
    call.count = value;
    return emu_call_leave(&call, emu_call_enter(&call, NULL));
}
