/* params.h - Beeline's parameters: one row of params.def makes the member, the parser, the dump and
 * docs/environment.md.
 *
 * Read once, at first use, from the environment (bl_params_multicast_forbidden looks again); the only file that calls getenv is params.c.  A value that does not
 * parse is reported by name with what is accepted, and the default is used.  Threads: any.
 */
#ifndef BEELINE_PARAMS_H
#define BEELINE_PARAMS_H

#include <stddef.h>

#include "param_rows.h"

const struct bl_params *bl_params(void);

/* With NCCL's own variables as they are at the first call, which comes behind a real init: NCCL reads its files of settings into the
 * environment there, and each variable when it first needs it. */
const struct bl_params *bl_params_of_nccl(void);

/* The settings that ranks must share (categories routes and memory), as text "VARIABLE=value ..." for the comparison
 * with rank 0's (truncates). */
void bl_params_shared(char *text, size_t size);

/* One INFO line per parameter that is not at its default, with its source. */
void bl_params_log(void);

/* The variable by which multicast is forbidden here, when the environment was read or now: "NCCL_NVLS_ENABLE=0" and so on,
 * or Beeline's own switch.  NULL: none; else a text of the calling thread. */
const char *bl_params_multicast_forbidden(void);

/* What keeps GPUs from each other's memory in NCCL, said now: "NCCL_P2P_DISABLE=1" and so on; NULL: nothing. */
const char *bl_params_p2p_forbidden(void);

/* Whether NCCL_NVLS_ENABLE lets NCCL use NVLink multicast. */
bool bl_params_nccl_nvls(void);

/* Where tuning files may be, before the built-in ones: BEELINE_TUNING_FILE, then the user's and the system's configuration, then the
 * user's cache.  Writes the path of one place, "" if there is none. */
enum bl_tuning_place { BL_TUNING_ASKED, BL_TUNING_USER, BL_TUNING_SYSTEM, BL_TUNING_CACHE, BL_TUNING_PLACES };
void bl_params_tuning_path(enum bl_tuning_place place, char *path, size_t size);

/* BEELINE_TUNING_FILE=built-in: no file is looked for. */
bool bl_params_tuning_built_in(void);

/* A variable under which NCCL, or a launch, takes another time than in other jobs of this box, as "NCCL_PROTO=LL"; NULL: none.  A text of the
 * calling thread. */
const char *bl_params_nccl_bent(void);

/* What CUDA_DEVICE_MAX_CONNECTIONS says now: queues of a GPU that its streams share, 1 to 32.  0 if it says nothing. */
int bl_params_connections(void);

#endif
