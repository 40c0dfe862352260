/* tables.h - a step of set-up (build.c): rank 0 makes the tables of routes, without multicast and with it, and all take them over.
 * The staging has what they use, and no more. */
#ifndef BEELINE_TABLES_H
#define BEELINE_TABLES_H

#include "member.h"

int bl_tables_send(struct bl_member *member);
int bl_tables_receive(struct bl_member *member);

#endif
