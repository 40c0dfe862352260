/* trial.h - the self-test of a member, with the blocks and the time that set-up has for it. */
#ifndef BEELINE_TRIAL_H
#define BEELINE_TRIAL_H

#include "member.h"

/* The self-test of member->selftest, once prepared; 0, or -1 with what went wrong, and whose fault it is. */
int bl_trial_launch(struct bl_member *member, char *why, size_t size);
int bl_trial_check(struct bl_member *member, int *culprit, char *why, size_t size);

#endif
