/* old.c - makes the library pass for NCCL 2.20.5, with old.map that hides what came later. */
#include "../emu_nccl.h"

const int emu_version_code = NCCL_VERSION(2, 20, 5);
