/* version.c - the version of this library; the variants/ of it link another one. */
#include "emu_nccl.h"

__attribute__((weak)) const int emu_version_code = EMU_VERSION;
