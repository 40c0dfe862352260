/* build.c - the steps of set-up, in their order, and their undoing. */
#include "build.h"

#include <unistd.h>

#include "steps.h"
#include "vote.h"
#include "base/clock.h"
#include "base/why.h"
#include "comm/switch.h"
#include "comm/watch.h"
#include "launch/copy.h"

enum { MOST_ACTS = 3 };

/* What else holds of a step. */
enum {
    BARE = 1,  /* it is done, and undone, without the communicator's context */
    AGAIN = 2, /* a suspended communicator that resumes does it, too */
    NVLS = 4,  /* what fails ends multicast alone, on all ranks, and such steps are left out from then on */
    TUNE = 8   /* the same of measuring thresholds */
};

static int be_built(struct bl_member *member) {
    member->built = true;
    member->built_at = bl_clock_ns();
    return 0;
}

/* The steps, from first to last.
 *
 * acts: each is done for all members that this thread carries before the next is: all have sent before one waits.  Returns 0, or -1
 * and bl_why(): its rank has failed.  What it finds out about others it says itself.
 * agree: how ranks agree behind it that all are well: NULL: by a vote.  One failure ends set-up on all of them.
 * undo: of what it leaves for as long as the communicator lives; from last to first, when set-up fails or at the end. */
static const struct step {
    const char *name;
    bl_act *acts[MOST_ACTS];
    bool (*agree)(struct bl_member **, int);
    bl_undo *undo;
    bl_condition *only; /* it is left out elsewhere, on all ranks alike */
    int how;
} steps[] = {
    /* Who is there, and who are we? */
    {"meet", .agree = bl_introduce_meet, .how = BARE | AGAIN},
    {"introduce", .acts = {bl_introduce_know_oneself, bl_introduce_send, bl_introduce_receive},
     .undo = bl_introduce_undo, .how = BARE},

    /* Can all of us?  From here on every rank knows what all know. */
    {"judge", .acts = {bl_introduce_judge}, .agree = bl_step_all_well},
    {"links", .acts = {bl_introduce_links}},
    {"tables", .acts = {bl_tables_send, bl_tables_receive}},
    {"tuning: plan", .acts = {bl_tune_plan}, .how = TUNE},
    {"trim", .acts = {bl_tables_trim}, .agree = bl_step_all_well},

    /* Kernels, staging, and everybody's mapped. */
    {"staging", .acts = {bl_share_create, bl_share_export}, .undo = bl_share_undo, .how = AGAIN},
    {"share", .acts = {bl_share_send, bl_share_receive}, .how = AGAIN},
    {"switch", .acts = {bl_share_switch_send, bl_share_switch_receive}, .undo = bl_switch_close,
     .only = bl_share_has_switch, .how = BARE},

    /* What launches need (the events of order.h outlast the steps), and the kernels on known data. */
    {"prepare", .acts = {bl_share_fill, bl_share_prepare_trial}, .undo = bl_copy_close},
    {"self-test", .acts = {bl_trial_launch, bl_trial_check}},

    /* Thresholds, where there are none of this box. */
    {"tuning: id", .acts = {bl_tune_send_id, bl_tune_receive_id}, .how = TUNE},
    {"tuning: NCCL", .agree = bl_tune_open, .how = TUNE},
    {"tuning: measure", .agree = bl_tune_measure, .how = TUNE},
    {"tuning: close", .agree = bl_tune_close, .only = bl_tune_wanted},
    {"tuned tables", .acts = {bl_tables_send, bl_tables_receive}, .only = bl_tune_well}, /* whoever fails has none */

    /* Multicast, of a communicator that is otherwise ready. */
    {"NVLS: object", .acts = {bl_nvls_create}, .undo = bl_nvls_undo, .how = NVLS},
    {"NVLS: handle", .acts = {bl_nvls_send, bl_nvls_receive}, .how = NVLS},
    {"NVLS: join", .acts = {bl_nvls_join}, .how = NVLS}, /* before all devices are added no rank may bind */
    {"NVLS: bind", .acts = {bl_nvls_bind}, .how = NVLS},
    {"NVLS: map", .acts = {bl_nvls_map}, .how = NVLS},
    {"NVLS: prepare", .acts = {bl_nvls_prepare_trial}, .how = NVLS},
    {"NVLS: self-test", .acts = {bl_trial_launch, bl_trial_check}, .how = NVLS},
    {"NVLS: settle", .acts = {bl_nvls_settle}, .agree = bl_step_all_well, .only = bl_nvls_wanted},

    /* All have heard that all are well; who does not hear it now cannot know what the others do. */
    {"last vote", .acts = {be_built}, .how = BARE | AGAIN},
};
enum { STEPS = sizeof(steps) / sizeof(*steps) };

static void act_for(struct bl_member *member, const struct step *step, bl_act *act) {
    const bool bare = step->how & BARE;
    member->culprit = member->comm->rank;
    if (!bare && !bl_context_push(member->comm)) {
        bl_member_fail(member, BL_FAILED, member->comm->rank, "its context cannot be made current");
        return;
    }
    if (act(member)) {
        struct bl_verdict *verdict = step->how & NVLS   ? &member->multicast
                                     : step->how & TUNE ? &member->tuning_verdict
                                                        : &member->verdict;
        bl_verdict_say(verdict, member->comm->rank, BL_FAILED, member->culprit, "%s", bl_why());
    }
    if (!bare) bl_context_pop();
}

static bool is_due(const struct step *step, const struct bl_member *member, bool again) {
    if (again && !(step->how & AGAIN)) return false;
    if (step->how & NVLS && !bl_nvls_well(member)) return false;
    if (step->how & TUNE && !bl_tune_well(member)) return false;
    return !step->only || step->only(member);
}

static bool pass(const struct step *step, struct bl_member **members, int count) {
    for (int i = 0; i < count; i++) members[i]->step = step->name;
    for (int act = 0; act < MOST_ACTS && step->acts[act]; act++)
        for (int i = 0; i < count; i++) act_for(members[i], step, step->acts[act]);
    return step->agree ? step->agree(members, count) : bl_step_vote(members, count);
}

void bl_build(struct bl_member **members, int count, bool again) {
    bool well = true;
    for (const struct step *step = steps; step < steps + STEPS && well; step++)
        if (is_due(step, members[0], again)) well = pass(step, members, count);
    for (int i = 0; i < count; i++) {
        bl_nvls_keep_sockets(members[i]);
        if (members[i]->exported >= 0) close(members[i]->exported); /* a step that failed had no use for it */
        members[i]->exported = -1;
    }
}

/* In reverse: first what needs no context, then the rest. */
static void undo(struct bl_comm *comm, bool bare) {
    for (const struct step *step = steps + STEPS; step-- > steps;)
        if (step->undo && !(step->how & BARE) == !bare) step->undo(comm);
}

void bl_build_undo(struct bl_comm *comm) {
    struct bl_resources *resources = comm->resources;
    bl_watch_remove(comm);
    __atomic_store_n(&comm->control, NULL, __ATOMIC_SEQ_CST); /* before anyone is counted */
    while (atomic_load(&comm->users)) bl_nap(200000);
    if (comm->copy.broken) resources->stuck = true; /* what it left on its streams may never end */
    undo(comm, true);
    if (resources->stuck || !bl_context_push(comm)) return;
    undo(comm, false);
    bl_context_pop();
}
