/* bootstrap.h - sockets between the ranks of one communicator on one box, for as long as it is being set up; with
 * multicast, as long as it lives (nvls_release.h).
 *
 * A full mesh of Unix sockets (meeting.h makes it).  Every step has a sending and a receiving half, so that one thread can
 * carry several ranks through it.  A rank that dies closes its sockets, so all others see it at once.
 *
 * Every function that returns int returns 0, or -1 and bl_why().  Nothing waits past its
 * deadline (bl_clock_ns) or, beyond a tenth of a second, past the moment when *cancel turns true. Threads: one at a
 * time for one struct bl_mesh.
 */
#ifndef BEELINE_BOOTSTRAP_H
#define BEELINE_BOOTSTRAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels.h"

enum { BL_MESH_MESSAGE = 31744 };

struct bl_mesh {
    int rank, nranks;
    int fd[BL_MAX_RANKS]; /* -1: not connected; [rank] never is */
    const atomic_bool *cancel;
};

/* Fills `bytes` with what nobody can guess. */
int bl_random(void *bytes, size_t count);

/* A mesh without sockets, which bl_mesh_close accepts. */
void bl_mesh_init(struct bl_mesh *mesh, int rank, int nranks, const atomic_bool *cancel);

/* One message of `bytes` (at most BL_MESH_MESSAGE) and, if fd is not -1, a copy of that file descriptor; `step` says what
 * it is.  To send to a peer that is gone is no error: to receive from it is.  What a received message is, and how long,
 * is for the caller to look at; a received *fd is the caller's to close, and -1 if none came. */
int bl_mesh_send(struct bl_mesh *mesh, int peer, uint32_t step, const void *data, size_t bytes, int fd,
                 uint64_t deadline);
int bl_mesh_receive(struct bl_mesh *mesh, int peer, uint32_t *step, void *data, size_t room, size_t *bytes, int *fd,
                    uint64_t deadline);

/* Shuts our side, which every peer hears.  Then true once all peers have done so or are gone; does not wait. */
void bl_mesh_shut(struct bl_mesh *mesh);
bool bl_mesh_all_shut(struct bl_mesh *mesh);

void bl_mesh_close(struct bl_mesh *mesh);

/* Closes a socket, if it is not -1, in a forked child, too, which has it as well. */
void bl_hang_up(int *fd);

#endif
