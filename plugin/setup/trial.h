/* trial.h - the self-test of a member, with the blocks and the time that set-up has for it. */
#ifndef BEELINE_TRIAL_H
#define BEELINE_TRIAL_H

#include "member.h"

/* In this order; each returns 0, or -1 and bl_why().  As bl_selftest_prepare; *culprit: whose fault it is. */
int bl_trial_prepare(struct bl_member *member, enum bl_selftest_kind kind, const struct bl_kernel_args *args,
                     const struct bl_table *table);
int bl_trial_launch(struct bl_member *member);
int bl_trial_check(struct bl_member *member, int *culprit);

#endif
