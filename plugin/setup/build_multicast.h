/* build_multicast.h - the last part of bl_build: the ranks come to share a multicast object, or none does. */
#ifndef BEELINE_BUILD_MULTICAST_H
#define BEELINE_BUILD_MULTICAST_H

#include "member.h"

/* The last part of bl_build, if all ranks are well and want multicast: for all of them, or for none. */
void bl_build_multicast(struct bl_member **members, int count);

/* Behind the last vote: a rank whose memory others may reach by multicast keeps its sockets (leave.h). */
void bl_build_leave(struct bl_member *member);

#endif
