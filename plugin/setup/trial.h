/* trial.h - the self-test of a member, with the blocks and the time that set-up has for it. */
#ifndef BEELINE_TRIAL_H
#define BEELINE_TRIAL_H

#include "member.h"

/* As bl_selftest_prepare.  The others are steps of set-up (build.c). */
int bl_trial_prepare(struct bl_member *member, enum bl_selftest_kind kind, const struct bl_kernel_args *args,
                     const struct bl_table *table);
int bl_trial_launch(struct bl_member *member);
int bl_trial_check(struct bl_member *member);

#endif
