/* stats.h - calls and bytes per route, on request (BEELINE_STATS): a line a communicator, at its end or the process's.
 */
#ifndef BEELINE_STATS_H
#define BEELINE_STATS_H

#include "comm.h"

/* Arranges for the lines at the process's end, once, if they are asked for. */
void bl_stats_arm(void);

/* The line of one communicator, if it is asked for. */
void bl_stats_log(struct bl_comm *comm);

#endif
