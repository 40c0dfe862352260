/* watch.h - says at the default level who has waited long, for whom, and in which call.
 *
 * Kernels that wait leave a note in host memory, about once a millisecond (struct bl_control); a thread of the process looks
 * at them once a second.  It is started with the first communicator that Beeline serves, and ends with the last.  It calls no
 * driver, so it may go on while the driver goes away at the process's end.
 */
#ifndef BEELINE_WATCH_H
#define BEELINE_WATCH_H

#include "comm.h"

/* From when Beeline serves it until before its control words are freed.  Neither fails: without memory or a thread nothing is
 * reported. */
void bl_watch_add(struct bl_comm *comm);
void bl_watch_remove(struct bl_comm *comm);

#endif
