/* vote.c - see vote.h. */
#include <string.h>
#include <unistd.h>

#include "vote.h"
#include "base/params.h"
#include "base/clock.h"
#include "base/why.h"

/* All verdicts of a rank go together. */
struct ballot {
    struct bl_verdict verdict, multicast, tuning;
    struct bl_links links;
};

uint64_t bl_step_deadline(void) {
    return bl_clock_ns() + bl_params()->setup_timeout * 1000000000u;
}

bool bl_step_all_well(struct bl_member **members, int count) {
    for (int i = 0; i < count; i++)
        if (members[i]->verdict.outcome != BL_WELL) return false;
    return true;
}

void bl_step_send(struct bl_member *member, uint32_t step, const void *data, size_t bytes, int fd) {
    for (int peer = 0; peer < member->comm->nranks; peer++) {
        /* A connection that was never made has been reported; one that broke will be, by the receiving half. */
        if (peer == member->comm->rank || member->mesh.fd[peer] < 0) continue;
        if (bl_mesh_send(&member->mesh, peer, step, data, bytes, fd, bl_step_deadline()))
            bl_member_fail(member, BL_FAILED, member->comm->rank, "%s", bl_why());
    }
}

void bl_step_send_exported(struct bl_member *member, uint32_t step) {
    bl_step_send(member, step, "", 0, member->exported);
    close(member->exported);
    member->exported = -1;
}

bool bl_step_receive(struct bl_member *member, int peer, uint32_t step, void *data, size_t bytes, int *fd,
                     uint64_t deadline) {
    union {
        struct ballot ballot;
        char bytes[BL_MESH_MESSAGE];
    } message;
    uint32_t came;
    size_t length;
    int came_fd;
    if (bl_mesh_receive(&member->mesh, peer, &came, &message, sizeof(message), &length, &came_fd, deadline)) {
        member->peer_lost = true;
        bl_member_fail(member, BL_FAILED, peer, "%s", bl_why());
        return false;
    }
    if (came == step && length == bytes && (came_fd >= 0) == (fd != NULL)) {
        memcpy(data, &message, bytes);
        if (fd) *fd = came_fd;
        return true;
    }
    if (came_fd >= 0) close(came_fd);
    member->peer_lost = true;
    struct bl_verdict *verdict = &message.ballot.verdict;
    if (came == BL_STEP_VOTE && length == sizeof(message.ballot) && verdict->outcome != BL_WELL) {
        verdict->why[sizeof(verdict->why) - 1] = 0;
        if (member->verdict.outcome == BL_WELL) member->verdict = *verdict;
    } else {
        bl_member_fail(member, BL_FAILED, peer, "rank %d is at another step (%u, expected %u)", peer, came, step);
    }
    return false;
}

/* --- the vote --- */
void bl_step_vote_send(struct bl_member *member) {
    const struct ballot mine = {member->verdict, member->multicast, member->tuning_verdict, member->links};
    member->said_well = member->verdict.outcome == BL_WELL;
    bl_step_send(member, BL_STEP_VOTE, &mine, sizeof(mine), -1);
}

static void vote_receive(struct bl_member *member) {
    const int nranks = member->comm->nranks, rank = member->comm->rank;
    struct bl_verdict verdicts[BL_MAX_RANKS] = {0}, multicast[BL_MAX_RANKS] = {0}, tuning[BL_MAX_RANKS] = {0};
    uint64_t deadline = bl_step_deadline();
    struct bl_links links = member->links;
    bool heard_unwell = false;
    for (int peer = 0; peer < nranks; peer++) {
        struct ballot one;
        if (peer == rank || member->mesh.fd[peer] < 0) continue;
        if (!bl_step_receive(member, peer, BL_STEP_VOTE, &one, sizeof(one), NULL, deadline)) continue;
        verdicts[peer] = one.verdict;
        heard_unwell = heard_unwell || one.verdict.outcome != BL_WELL;
        multicast[peer] = one.multicast;
        tuning[peer] = one.tuning;
        if (one.links.worst >= 0 && one.links.best >= 0 && one.links.worst < BL_LINKS && one.links.best < BL_LINKS)
            bl_links_add(&links, one.links);
        verdicts[peer].why[sizeof(one.verdict.why) - 1] = multicast[peer].why[sizeof(one.multicast.why) - 1] =
            tuning[peer].why[sizeof(one.tuning.why) - 1] = 0;
    }
    verdicts[rank] = member->verdict; /* what was found out just now is in it */
    multicast[rank] = member->multicast;
    tuning[rank] = member->tuning_verdict;
    member->link = bl_link_class((enum bl_link)links.worst, (enum bl_link)links.best);
    member->verdict = bl_verdict_choose(verdicts, nranks);
    member->multicast = bl_verdict_choose(multicast, nranks);
    member->tuning_verdict = bl_verdict_choose(tuning, nranks);
    const bool well_here = verdicts[rank].outcome == BL_WELL;
    /* A verdict that is not well was never well to anybody, since nobody changes it in the last vote. */
    member->agreed = heard_unwell || well_here;
    /* Peers to whom all is well go on to the next step: they must know why we do not. */
    if (member->said_well && !well_here && !member->built) bl_step_vote_send(member);
}

bool bl_step_vote(struct bl_member **members, int count) {
    for (int i = 0; i < count; i++) bl_step_vote_send(members[i]);
    for (int i = 0; i < count; i++) vote_receive(members[i]);
    const bool well = bl_step_all_well(members, count);
    /* Members of one process may differ where a peer died in between: none goes on alone. */
    for (int i = 0; i < count && !well; i++)
        for (int j = 0; j < count; j++)
            if (members[i]->verdict.outcome == BL_WELL && members[j]->verdict.outcome != BL_WELL) {
                members[i]->verdict = members[j]->verdict;
                members[i]->agreed = members[j]->agreed;
            }
    return well;
}
