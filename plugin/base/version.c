/* version.c - which build this is; compiled anew with every change of the sources. */
#include "version.h"

#include "build_id.h"

const char bl_build_name[48] = BEELINE_VERSION "-" BL_BUILD_ID;
