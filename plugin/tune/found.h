/* found.h - what calls of one communicator took, and the section of a tuning file that comes of it. */
#ifndef BEELINE_FOUND_H
#define BEELINE_FOUND_H

#include "crossings.h"

struct bl_found {
    struct bl_times times[BL_COLLECTIVES];                       /* without sizes: nothing is known of it */
    const struct bl_range *range[BL_COLLECTIVES][BL_TIMES_WAYS]; /* what each way is; NULL: NCCL */
};

/* With the times as comments; to be freed.  NULL, and bl_why(): there is no memory.  gpu_line: bl_table.section. */
char *bl_found_section(const struct bl_found *found, const char *gpu_line, int nranks, double seconds);

#endif
