/* introduce.c - see steps.h. */
#include "steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vote.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/params.h"
#include "box/link.h"
#include "base/why.h"
#include "cuda/budget.h"
#include "launch/copy.h"

/* --- who is there? --- */
/* Who has met the others already waits for our word, so that half the time goes by before we give up. */
bool bl_introduce_meet(struct bl_member **members, int count) {
    const uint64_t deadline = bl_clock_ns() + bl_params()->setup_timeout * 500000000u;
    bool greeted_well[BL_MAX_RANKS];
    for (int i = 0; i < count; i++) {
        struct bl_member *m = members[i];
        bl_meeting_greet(m->meeting, &m->mesh, &m->greetings, &m->verdict, deadline);
        greeted_well[i] = m->verdict.outcome == BL_WELL;
    }
    for (int i = 0; i < count; i++) {
        struct bl_member *m = members[i];
        for (int j = 0; j < count && m->verdict.outcome == BL_WELL; j++) /* none goes on alone */
            if (members[j]->verdict.outcome != BL_WELL) m->verdict = members[j]->verdict;
        bl_meeting_hear(m->meeting, &m->mesh, &m->greetings, &m->verdict, deadline);
        bl_meeting_close(m->meeting);
        const int culprit = m->verdict.culprit;
        m->peer_lost =
            m->verdict.outcome == BL_FAILED && culprit >= 0 && culprit != m->comm->rank && m->mesh.fd[culprit] < 0;
    }
    const bool met = bl_step_all_well(members, count);
    for (int i = 0; i < count; i++) {
        members[i]->met = met;
        members[i]->met_at = bl_clock_ns();
    }
    if (met) return true;
    /* Who was told that all is well here, and goes on, hears that it is not. */
    for (int i = 0; i < count; i++)
        if (greeted_well[i]) bl_step_vote_send(members[i]);
    return false;
}

/* --- who are we? --- */
static bool wants_copy_engines(void) {
    const char *said = bl_params()->routes[BL_ALLGATHER];
    struct bl_routes routes;
    bool wants = bl_params()->copy_engines;
    if (said && bl_routes_parse(said, BL_ALLGATHER, &routes))
        for (int i = 0; i < routes.rows; i++)
            wants = wants || routes.row[i].algorithm == bl_algorithm_find(BL_ALLGATHER, "allgather_ce");
    return wants;
}

/* Whether there may be routes of pieces, so staging for them: where built-in thresholds or rules may have them, or where a variable or a tuning file has.  What
 * rank 0 says counts. */
static bool wants_pieces(const struct bl_comm *comm, int arch) {
    if (bl_suits_pieces(comm->nranks, arch)) return true;
    for (int collective = 0; collective < BL_COLLECTIVES; collective++) {
        const char *said = bl_params()->routes[collective];
        if (said && strstr(said, "_bulk")) return true;
    }
    return bl_tables_mention("_bulk");
}

int bl_introduce_know_oneself(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    struct bl_identity *identity = &member->identity;
    const CUresult status = bl_context_find(comm);
    member->all = calloc((size_t)comm->nranks, sizeof(*member->all));
    if (status != CUDA_SUCCESS)
        return bl_fail("no context: %s", bl_driver() ? bl_driver_strerror(status) : bl_driver_error());
    if (!member->all) return bl_fail("out of host memory");
    if (!bl_context_push(comm)) return bl_fail("its context cannot be made current");
    bl_identity_fill(identity, comm->device);
    member->resources->reserved = identity->offered = bl_budget_reserve(comm->device, identity->staging);
    identity->max_blocks = (uint32_t)member->resources->wishes.max_blocks;
    identity->nonblocking = member->resources->nonblocking;
    identity->zero_ctas = member->resources->wishes.zero_ctas;
    identity->copy_engines = wants_copy_engines();
    identity->pieces = comm->rank == 0 && wants_pieces(comm, identity->arch);
    identity->copy_possible = bl_copy_possible();
    if (!identity->copy_possible) snprintf(identity->copy_reason, sizeof(identity->copy_reason), "%s", bl_why());
    bl_context_pop();
    return bl_random(identity->nonce, sizeof(identity->nonce));
}

/* One that does not know itself sends what nobody will look at, and its verdict next. */
int bl_introduce_send(struct bl_member *member) {
    bl_step_send(member, BL_STEP_IDENTITY, &member->identity, sizeof(member->identity), -1);
    return 0;
}

int bl_introduce_receive(struct bl_member *member) {
    const uint64_t deadline = bl_step_deadline();
    struct bl_identity one;
    for (int peer = 0; peer < member->comm->nranks; peer++) {
        if (peer == member->comm->rank)
            one = member->identity;
        else if (!bl_step_receive(member, peer, BL_STEP_IDENTITY, &one, sizeof(one), NULL, deadline))
            continue;
        if (member->all) member->all[peer] = one;
    }
    return 0;
}

/* --- can it be done, and do the GPUs reach each other? --- */
static void compare_settings(const struct bl_member *member) {
    static atomic_bool logged;
    const char *own = member->identity.settings, *shared = member->all[0].settings;
    if (!strcmp(own, shared) || atomic_exchange(&logged, true)) return;
    bl_warn("rank %d has other settings than rank 0, whose hold for all: rank 0 has \"%s\", this rank \"%s\"",
            member->comm->rank, shared, own);
}

int bl_introduce_judge(struct bl_member *member) {
    const int nranks = member->comm->nranks;
    for (int rank = 0; rank < nranks; rank++)
        if (member->all[rank].nonblocking) member->resources->waits_for_nothing = true;
    /* For the sake of children: another communicator may have been made of the same id. */
    bl_meeting_rekey(member->meeting, member->all[0].nonce, sizeof(member->all[0].nonce));
    const enum bl_outcome outcome = bl_identity_judge(member->all, nranks);
    /* The verdict is everybody's already, so it is no single rank's: -1. */
    if (outcome != BL_WELL)
        bl_member_fail(member, outcome, -1, "%s", bl_why());
    else
        compare_settings(member);
    return 0;
}

int bl_introduce_links(struct bl_member *member) {
    const struct bl_identity *own = &member->identity;
    struct bl_links *links = &member->links;
    *links = (struct bl_links){.worst = BL_LINK_NVSWITCH, .best = BL_LINK_NONE};
    for (int peer = 0; peer < member->comm->nranks; peer++) {
        if (peer == member->comm->rank) continue;
        const struct bl_identity *other = &member->all[peer];
        enum bl_link link = bl_link_of(member->comm->device, own->uuid, other->uuid);
        if (link == BL_LINK_NVLINK && own->nvswitch && other->nvswitch) link = BL_LINK_NVSWITCH;
        bl_links_add(links, (struct bl_links){(int32_t)link, (int32_t)link});
        if (link == BL_LINK_NONE)
            bl_member_fail(member, BL_DECLINED, member->comm->rank, "its GPU %s has no P2P access to GPU %s of rank %d",
                           member->identity.pci, member->all[peer].pci, peer);
    }
    return 0;
}

void bl_introduce_undo(struct bl_comm *comm) {
    if (!comm->resources->stuck) bl_budget_settle(comm->device, &comm->resources->reserved, 0);
}
