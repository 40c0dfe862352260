/* rendezvous.h - how the processes of one run share an ncclUniqueId and wait for one another, without NCCL.
 *
 * The convention, for any program: BEELINE_ID_FILE names a path that is new for each run (scripts/emu-box -n sets it);
 * rank 0 writes there what it has to tell, under another name that it then renames, so that the file is whole once it
 * exists; the others wait for it.  The second thing told is in PATH.1, the next in PATH.2, and so on.
 *
 * Threads: one a process.  Errors: 0, or -1 after a line on stderr: a variable that is missing, or a rank that did not
 * come within a minute.
 */
#ifndef BEELINE_TEST_RENDEZVOUS_H
#define BEELINE_TEST_RENDEZVOUS_H

#include <nccl.h>
#include <stddef.h>

/* Rank 0 brings *id from ncclGetUniqueId, the others get it. */
int bl_rendezvous_id(ncclUniqueId *id, int rank, int nranks);

/* Joins the run that RANK, WORLD_SIZE and BEELINE_ID_FILE describe; what is below needs it. */
int rendezvous_open(void);
/* Rank 0's `size` bytes to all. */
int rendezvous_broadcast(void *data, size_t size);
int rendezvous_barrier(void);
void rendezvous_close(void);

#endif
