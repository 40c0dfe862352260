/* build_multicast.c - the steps by which the ranks of a communicator that is otherwise ready come to share a multicast object:
 * as build.c's, with a verdict of their own.  What fails here ends multicast on all ranks, and the communicator is served
 * without; only a peer that is gone ends both. */
#include "build_multicast.h"

#include <stdlib.h>
#include <unistd.h>

#include "trial.h"
#include "vote.h"
#include "base/why.h"
#include "cuda/modules.h"

static bool well(const struct bl_member *member) {
    return member->multicast.fate == BL_WELL;
}

static void fail(struct bl_member *member, const char *why) {
    bl_member_fail_multicast(member, BL_FAILED, member->comm->rank, "%s", why);
}

/* --- the object, from rank 0 --- */
static void create(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    struct bl_leaver *leaver = member->upkeep->leaver = calloc(1, sizeof(*leaver));
    if (!leaver) {
        fail(member, "out of host memory");
        return;
    }
    bl_mesh_init(&leaver->mesh, comm->rank, comm->nranks, NULL);
    if (bl_modules_find(member->upkeep->modules, comm->nranks, true, comm->function) ||
        (comm->rank == 0 && bl_multicast_create(&leaver->multicast, comm->device, comm->rank, comm->nranks,
                                                comm->args.layout.multicast_bytes, &member->handle, &member->exported)))
        fail(member, bl_why());
}

static void handle_send(struct bl_member *member) {
    if (member->comm->rank) return;
    bl_step_send(member, BL_STEP_MULTICAST, &member->handle, sizeof(member->handle), -1);
    if (member->exported < 0) return;
    bl_step_send(member, BL_STEP_MULTICAST_FD, "", 0, member->exported);
    close(member->exported);
    member->exported = -1;
}

static void handle_receive(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    const uint64_t deadline = bl_step_deadline();
    int fd = -1;
    if (comm->rank == 0 ||
        !bl_step_receive(member, 0, BL_STEP_MULTICAST, &member->handle, sizeof(member->handle), NULL, deadline))
        return;
    if (member->handle.type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
        !bl_step_receive(member, 0, BL_STEP_MULTICAST_FD, &(char){0}, 0, &fd, deadline))
        return;
    if (bl_multicast_import(&member->upkeep->leaver->multicast, comm->device, comm->rank, comm->nranks,
                            comm->args.layout.multicast_bytes, &member->handle, fd))
        fail(member, bl_why());
    if (fd >= 0) close(fd);
}

/* --- each rank's memory --- */
static void join(struct bl_member *member) {
    if (bl_multicast_join(&member->upkeep->leaver->multicast, member->stream)) fail(member, bl_why());
}

static void bind(struct bl_member *member) {
    if (bl_multicast_bind(&member->upkeep->leaver->multicast)) fail(member, bl_why());
}

static void map(struct bl_member *member) {
    if (bl_multicast_map(&member->upkeep->leaver->multicast)) fail(member, bl_why());
}

/* --- self-test --- */
static void test_prepare(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    const struct bl_multicast *multicast = &member->upkeep->leaver->multicast;
    struct bl_kernel_args args = comm->args;
    args.replica = (unsigned char *)(uintptr_t)multicast->replica;
    args.multicast = (unsigned char *)(uintptr_t)multicast->address;
    args.multicast_words = (uint64_t *)(uintptr_t)multicast->words;
    if (bl_trial_prepare(member, BL_SELFTEST_MULTICAST, &args, &member->multicast_table)) fail(member, bl_why());
}

static void test_launch(struct bl_member *member) {
    if (bl_trial_launch(member)) fail(member, bl_why());
}

static void test_check(struct bl_member *member) {
    int culprit;
    if (bl_trial_check(member, &culprit)) bl_member_fail_multicast(member, BL_FAILED, culprit, "%s", bl_why());
}

/* --- the end --- */

/* From here on peers' kernels may reach this rank's memory until they say otherwise (leave.h). */
static void meet(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    struct bl_leaver *leaver = member->upkeep->leaver;
    leaver->id = comm->id;
    const struct bl_identity *own = &member->identity;
    for (int rank = 0; rank < comm->nranks; rank++)
        leaver->ranks_here += member->all[rank].pid == own->pid && member->all[rank].pids == own->pids;
    leaver->met = true;
}

/* What the communicator's launches need. */
static void take_up(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    const struct bl_multicast *multicast = &member->upkeep->leaver->multicast;
    comm->args.replica = (unsigned char *)(uintptr_t)multicast->replica;
    comm->args.multicast = (unsigned char *)(uintptr_t)multicast->address;
    comm->args.multicast_words = (uint64_t *)(uintptr_t)multicast->words;
    comm->table = member->multicast_table;
}

static void give_up(struct bl_member *member) {
    if (member->exported >= 0) close(member->exported);
    member->exported = -1;
    if (member->upkeep->stuck) return; /* a kernel is still at it */
    if (member->upkeep->leaver) bl_leave(member->upkeep->leaver);
    member->upkeep->leaver = NULL;
}

/* Rows of what goes on without a vote. */
enum { MOST_ACTS = 2 };
static void (*const steps[][MOST_ACTS])(struct bl_member *) = {
    {create},                      /* the object is created, and its handle exported */
    {handle_send, handle_receive}, /* all have it */
    {join},                        /* all devices are added: before that no rank may bind */
    {bind},                        /* all memory is behind the object */
    {map},
    {test_prepare},
    {test_launch, test_check},
};
enum { STEPS = sizeof(steps) / sizeof(*steps) };

void bl_build_multicast(struct bl_member **members, int count) {
    if (!well(members[0])) return;
    for (int step = 0; step < STEPS; step++) {
        for (int act = 0; act < MOST_ACTS && steps[step][act]; act++) bl_step_each(members, count, steps[step][act]);
        if (!bl_step_vote(members, count)) return; /* whatever there is goes with the rest of the communicator */
        /* After the last step kernels have run, and one that is stuck may run yet. */
        if (step == STEPS - 1) bl_step_each(members, count, meet);
        if (well(members[0])) continue;
        if (step < STEPS - 1) bl_step_each(members, count, give_up);
        return;
    }
    bl_step_each(members, count, take_up);
}

void bl_build_leave(struct bl_member *member) {
    struct bl_leaver *leaver = member->upkeep->leaver;
    if (!leaver || !leaver->met) return;
    leaver->mesh = member->mesh;
    bl_mesh_init(&member->mesh, member->comm->rank, member->comm->nranks, member->mesh.cancel);
    if (well(member) || !bl_context_push(member->comm)) return;
    give_up(member);
    bl_context_pop();
}
