/* share.c - see steps.h. */
#include "steps.h"

#include <unistd.h>

#include "vote.h"
#include "base/params.h"
#include "base/why.h"
#include "comm/switch.h"
#include "cuda/budget.h"
#include "launch/copy.h"
#include "launch/order.h"

/* --- memory, kernels --- */
int bl_share_create(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    struct bl_resources *resources = member->resources;
    if (resources->suspended) return bl_memory_resume(&resources->memory);
    if (bl_random(comm->args.blank, sizeof(comm->args.blank))) return -1;
    comm->memory = &resources->memory;
    BL_DRIVER_CHECK(bl_driver()->cuStreamCreate(&member->stream, CU_STREAM_NON_BLOCKING), "making a stream");
    if (bl_modules_open(&resources->modules, comm->context, comm->context_id) ||
        bl_modules_find(resources->modules, comm->device, comm->nranks, false, comm->function) ||
        bl_pinned_take(&resources->control, comm->context, comm->context_id) ||
        bl_memory_create(&resources->memory, comm->device, comm->rank, comm->nranks, &comm->args.layout,
                         comm->args.blank, member->stream))
        return -1;
    bl_budget_settle(comm->device, &resources->reserved, resources->memory.bytes);
    return 0;
}

int bl_share_export(struct bl_member *member) {
    if (member->verdict.outcome != BL_WELL) return 0;
    return bl_memory_export(&member->resources->memory, &member->exported);
}

int bl_share_send(struct bl_member *member) {
    bl_step_send_exported(member, BL_STEP_MEMORY);
    return 0;
}

/* Every descriptor is taken from its socket even if one cannot be mapped, so that the vote comes next on all of them.
 */
int bl_share_receive(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    uint64_t deadline = bl_step_deadline();
    for (int peer = 0; peer < comm->nranks; peer++) {
        int fd;
        if (peer == comm->rank) continue;
        if (!bl_step_receive(member, peer, BL_STEP_MEMORY, &(char){0}, 0, &fd, deadline)) continue;
        if (member->verdict.outcome == BL_WELL && bl_memory_import(&member->resources->memory, peer, fd))
            bl_member_fail(member, BL_FAILED, comm->rank, "%s", bl_why());
        close(fd);
    }
    return 0;
}

void bl_share_undo(struct bl_comm *comm) {
    struct bl_resources *resources = comm->resources;
    bl_memory_release(&resources->memory);
    bl_pinned_give(&resources->control);
    bl_modules_close(resources->modules);
    resources->modules = NULL;
}

/* --- the switch, if rank 0 has one --- */
bool bl_share_has_switch(const struct bl_member *member) {
    return member->all[0].has_switch;
}

int bl_share_switch_send(struct bl_member *member) {
    int fd = -1;
    if (member->comm->rank) return 0;
    if (bl_switch_create(member->comm, &fd)) bl_member_fail(member, BL_FAILED, member->comm->rank, "%s", bl_why());
    /* Without it, too: who waits may be this very thread's next member. */
    bl_step_send(member, BL_STEP_SWITCH, "", 0, member->verdict.outcome == BL_WELL ? fd : -1);
    if (fd >= 0) close(fd);
    return 0;
}

int bl_share_switch_receive(struct bl_member *member) {
    int fd;
    if (!member->comm->rank || !bl_step_receive(member, 0, BL_STEP_SWITCH, &(char){0}, 0, &fd, bl_step_deadline()))
        return 0;
    const int status = bl_switch_join(member->comm, fd);
    close(fd);
    return status;
}

/* --- what launches need --- */
/* 0 if the driver does not say. */
static int attribute_of(const struct bl_comm *comm, enum bl_kernel kernel, CUfunction_attribute attribute) {
    int value = 0;
    const CUresult status = bl_driver()->cuFuncGetAttribute(&value, attribute, comm->function[kernel][BL_FLOAT32]);
    return status == CUDA_SUCCESS ? value : 0;
}

static bool takes_wide_blocks(const struct bl_comm *comm, int kernel) {
    return attribute_of(comm, kernel, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) >= BL_PAIR_THREADS;
}

/* Kernels made for older architectures have no instruction to wait with, wherever the driver makes them run. */
static bool waits_for_stream(const struct bl_comm *comm) {
    return attribute_of(comm, BL_KERNEL_ALLREDUCE_ONESHOT_LL, CU_FUNC_ATTRIBUTE_PTX_VERSION) >= 90;
}

int bl_share_fill(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    const struct bl_memory *memory = &member->resources->memory;
    comm->args.rank = (uint32_t)comm->rank;
    comm->args.nranks = (uint32_t)comm->nranks;
    comm->args.timeout_ns = member->all[0].timeout_s * 1000000000u;
    for (int kernel = 0; kernel < BL_KERNELS; kernel++)
        comm->most_bytes[kernel] = bl_kernel_capacity(kernel, comm->nranks, &comm->args.layout);
    comm->wide_blocks = true;
    for (int kernel = 0; kernel < BL_KERNELS; kernel++)
        if (bl_kernel_short(kernel)) comm->wide_blocks = comm->wide_blocks && takes_wide_blocks(comm, kernel);
    comm->early_launch = bl_params()->early_launch && bl_driver()->cuLaunchKernelEx && waits_for_stream(comm);
    comm->args.epochs = (uint64_t *)(uintptr_t)memory->epochs;
    comm->args.control = (struct bl_control *)(uintptr_t)member->resources->control.device;
    for (int peer = 0; peer < comm->nranks; peer++)
        comm->args.staging[peer] = (unsigned char *)(uintptr_t)memory->address[peer];
    comm->control = member->resources->control.host;
    return bl_order_open(comm) || bl_copy_open(comm) ? -1 : 0;
}

int bl_share_prepare_trial(struct bl_member *member) {
    if (member->verdict.outcome != BL_WELL) return 0;
    const struct bl_table *all = bl_tune_candidates(member);
    return bl_trial_prepare(member, BL_SELFTEST_STAGING, &member->comm->args, all ? all : &member->comm->table);
}
