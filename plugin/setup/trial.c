/* trial.c - see steps.h. */
#include "steps.h"

#include "base/params.h"
#include "base/why.h"

/* The kernels' limit; looking at them takes up to three times that, and the peers' vote waits BEELINE_SETUP_TIMEOUT. */
static uint64_t selftest_timeout_ns(void) {
    uint64_t quarter = bl_params()->setup_timeout * 250000000u;
    return quarter < 30000000000u ? quarter : 30000000000u;
}

static int tell(int status) {
    return status ? bl_fail("self-test: %s", bl_why()) : 0;
}

int bl_trial_prepare(struct bl_member *member, enum bl_selftest_kind kind, const struct bl_kernel_args *args,
                     const struct bl_table *table) {
    const struct bl_identity_least least = bl_identity_least(member->all, member->comm->nranks);
    /* Few blocks: the communicators of a group are tested at once, in any order on each GPU, and must fit beside each
     * other, or each would keep the place on one GPU that the other waits for. */
    const unsigned blocks = least.sms / 8 ? least.sms / 8 : 1;
    member->selftest = &member->tests[kind];
    return tell(bl_selftest_prepare(member->selftest, kind, member->comm, args, table, member->stream, blocks,
                                    least.max_threads));
}

int bl_trial_launch(struct bl_member *member) {
    member->multicast_ran = member->selftest->kind == BL_SELFTEST_MULTICAST;
    return tell(bl_selftest_launch(member->selftest, member->comm, selftest_timeout_ns()));
}

int bl_trial_check(struct bl_member *member) {
    return tell(
        bl_selftest_check(member->selftest, selftest_timeout_ns(), &member->culprit, &member->resources->stuck));
}
