/* nvls.h - steps of set-up (build.c): the ranks of a communicator that is otherwise ready come to share a multicast object.  What
 * fails here ends multicast on all ranks, and the communicator is served without; only a peer that is gone ends both. */
#ifndef BEELINE_NVLS_H
#define BEELINE_NVLS_H

#include "member.h"

/* Equal on all ranks: whether rank 0 asks for it; whether nothing is in its way so far. */
bool bl_nvls_wanted(const struct bl_member *member);
bool bl_nvls_well(const struct bl_member *member);

int bl_nvls_create(struct bl_member *member);
int bl_nvls_send(struct bl_member *member);
int bl_nvls_receive(struct bl_member *member);
int bl_nvls_join(struct bl_member *member);
int bl_nvls_bind(struct bl_member *member);
int bl_nvls_map(struct bl_member *member);
int bl_nvls_prepare_trial(struct bl_member *member);

/* Has launches use it, or undoes it; not yet where its kernels have run, since a peer's may run still. */
int bl_nvls_settle(struct bl_member *member);
void bl_nvls_undo(struct bl_comm *comm);

/* Behind the last vote: a rank whose memory others may reach by multicast keeps its sockets (nvls_release.h). */
void bl_nvls_keep_sockets(struct bl_member *member);

#endif
