/* nvls.c - see steps.h. */
#include "steps.h"

#include <stdlib.h>
#include <unistd.h>

#include "vote.h"
#include "base/why.h"
#include "cuda/modules.h"

bool bl_nvls_wanted(const struct bl_member *member) {
    return member->all[0].multicast_wanted;
}

bool bl_nvls_well(const struct bl_member *member) {
    return member->multicast.outcome == BL_WELL;
}

/* --- the object, from rank 0 --- */
int bl_nvls_create(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    struct bl_nvls *nvls = member->resources->nvls = calloc(1, sizeof(*nvls));
    if (!nvls) return bl_fail("out of host memory");
    bl_mesh_init(&nvls->mesh, comm->rank, comm->nranks, NULL);
    if (bl_modules_find(member->resources->modules, comm->device, comm->nranks, true, comm->function)) return -1;
    if (comm->rank) return 0;
    return bl_multicast_create(&nvls->multicast, comm->device, comm->rank, comm->nranks,
                               comm->args.layout.multicast_bytes, &member->handle, &member->exported);
}

int bl_nvls_send(struct bl_member *member) {
    if (member->comm->rank) return 0;
    bl_step_send(member, BL_STEP_MULTICAST, &member->handle, sizeof(member->handle), -1);
    if (member->exported >= 0) bl_step_send_exported(member, BL_STEP_MULTICAST_FD);
    return 0;
}

int bl_nvls_receive(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    const uint64_t deadline = bl_step_deadline();
    int fd = -1;
    if (comm->rank == 0 ||
        !bl_step_receive(member, 0, BL_STEP_MULTICAST, &member->handle, sizeof(member->handle), NULL, deadline))
        return 0;
    if (member->handle.type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
        !bl_step_receive(member, 0, BL_STEP_MULTICAST_FD, &(char){0}, 0, &fd, deadline))
        return 0;
    const int status = bl_multicast_import(&member->resources->nvls->multicast, comm->device, comm->rank, comm->nranks,
                                           comm->args.layout.multicast_bytes, &member->handle, fd);
    if (fd >= 0) close(fd);
    return status;
}

/* --- each rank's memory --- */
int bl_nvls_join(struct bl_member *member) {
    return bl_multicast_join(&member->resources->nvls->multicast, member->stream);
}

int bl_nvls_bind(struct bl_member *member) {
    return bl_multicast_bind(&member->resources->nvls->multicast);
}

int bl_nvls_map(struct bl_member *member) {
    return bl_multicast_map(&member->resources->nvls->multicast);
}

static void fill_args(const struct bl_member *member, struct bl_kernel_args *args) {
    const struct bl_multicast *multicast = &member->resources->nvls->multicast;
    args->replica = (unsigned char *)(uintptr_t)multicast->replica;
    args->multicast = (unsigned char *)(uintptr_t)multicast->address;
    args->multicast_words = (uint64_t *)(uintptr_t)multicast->words;
}

int bl_nvls_prepare_trial(struct bl_member *member) {
    struct bl_kernel_args args = member->comm->args;
    fill_args(member, &args);
    return bl_trial_prepare(member, BL_SELFTEST_MULTICAST, &args, &member->multicast_table);
}

/* --- the end --- */

/* From here on peers' kernels may reach this rank's memory until they say otherwise (nvls_release.h). */
static void meet(struct bl_member *member) {
    struct bl_nvls *nvls = member->resources->nvls;
    nvls->id = member->comm->id;
    const struct bl_identity *own = &member->identity;
    for (int rank = 0; rank < member->comm->nranks; rank++)
        nvls->ranks_here += member->all[rank].pid == own->pid && member->all[rank].pids == own->pids;
    nvls->met = true;
}

void bl_nvls_undo(struct bl_comm *comm) {
    if (comm->resources->nvls) bl_nvls_release(comm->resources->nvls);
    comm->resources->nvls = NULL;
}

int bl_nvls_settle(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    struct bl_nvls *nvls = member->resources->nvls;
    if (nvls && member->multicast_ran) meet(member);
    if (bl_nvls_well(member)) {
        fill_args(member, &comm->args);
        comm->table = member->multicast_table;
    } else if (nvls && !nvls->met) {
        bl_nvls_undo(comm);
    }
    return 0;
}

void bl_nvls_keep_sockets(struct bl_member *member) {
    struct bl_nvls *nvls = member->resources->nvls;
    if (!nvls || !nvls->met) return;
    nvls->mesh = member->mesh;
    bl_mesh_init(&member->mesh, member->comm->rank, member->comm->nranks, member->mesh.cancel);
    if (bl_nvls_well(member) || member->resources->stuck || !bl_context_push(member->comm)) return;
    bl_nvls_undo(member->comm);
    bl_context_pop();
}
