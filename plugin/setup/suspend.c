/* suspend.c - see suspend.h. */
#include "suspend.h"

#include <stdio.h>

#include "cuda/budget.h"
#include "base/log.h"
#include "base/clock.h"
#include "member.h"
#include "build.h"

/* Memory that a multicast object holds stays; and what a nonblocking communicator's owner would wait for is left out.  On all
 * ranks alike. */
static const char *why_kept(const struct bl_comm *comm) {
    if (comm->resources->nvls) return "it has multicast";
    return comm->resources->waits_for_nothing ? "it is nonblocking on some rank" : NULL;
}

uint64_t bl_suspend_bytes(const struct bl_comm *comm, bool *suspends) {
    if (!bl_resources_are_ours(comm) || bl_resources_busy(comm)) return 0;
    const struct bl_memory *memory = &comm->resources->memory;
    *suspends = !why_kept(comm);
    return comm->resources->suspended || memory->have_handle[memory->rank] ? memory->bytes : 0;
}

/* Teardown waits for us; unless it has begun: false. */
static bool hold(struct bl_comm *comm) {
    atomic_fetch_add(&comm->users, 1);
    if (!atomic_load(&comm->resources->cancel)) return true;
    atomic_fetch_sub(&comm->users, 1);
    return false;
}

static void let_go(struct bl_comm *comm) {
    atomic_fetch_sub(&comm->users, 1);
}

void bl_suspend(struct bl_comm *comm) {
    struct bl_resources *resources = comm->resources;
    if (!bl_resources_are_ours(comm) || bl_resources_busy(comm) || !atomic_load(&comm->active)) return;
    if (why_kept(comm)) {
        bl_info("communicator %016llx rank %d: its staging stays while it is suspended: %s",
                (unsigned long long)comm->id, comm->rank, why_kept(comm));
        return;
    }
    atomic_store(&comm->active, false);
    while (atomic_load(&comm->users)) bl_nap(100000); /* who still looks */
    if (!hold(comm)) return;
    if (bl_context_push(comm)) { /* else it is broken, and nothing runs in it any more */
        bl_memory_suspend(&resources->memory);
        bl_context_pop();
        resources->suspended = true;
    }
    let_go(comm);
    if (!resources->suspended) return;
    bl_info("communicator %016llx rank %d: suspended, %.1f MiB of staging given back", (unsigned long long)comm->id,
            comm->rank, (double)resources->memory.bytes / (1 << 20));
}

bool bl_suspended(const struct bl_comm *comm) {
    return bl_resources_are_ours(comm) && comm->resources->suspended;
}

void bl_resume_announce(struct bl_comm *comm, struct bl_meeting *meeting) {
    struct bl_resources *resources = comm->resources;
    const uint32_t count = ++resources->resumes;
    bl_meeting_of_parent(meeting, &resources->meeting, comm->rank, comm->nranks, "resume", &count, sizeof(count));
    meeting->by_rank = true;
}

static ncclResult_t give_up(struct bl_comm *comm, const struct bl_member *member) {
    if (bl_context_push(comm)) {
        bl_memory_suspend(&comm->resources->memory); /* what there is of it */
        bl_context_pop();
    }
    bl_budget_settle(comm->device, &comm->resources->reserved, 0);
    if (!bl_member_in_doubt(member) && !comm->order.captured_ever) {
        atomic_store(&comm->shares_room, true);
        snprintf(comm->resources->left_why, sizeof(comm->resources->left_why), "resuming it: %.220s",
                 member->verdict.why);
        bl_log(comm->rank ? BL_LOG_INFO : BL_LOG_WARN,
               "communicator %016llx of %d ranks is left to NCCL: resuming it: %s", (unsigned long long)comm->id,
               comm->nranks, member->verdict.why);
        return ncclSuccess;
    }
    bl_comm_break(comm, ncclUnhandledCudaError, "Beeline: rank %d could not be resumed: %.180s", comm->rank,
                  member->verdict.why);
    return ncclUnhandledCudaError;
}

ncclResult_t bl_resume(struct bl_comm *comm, struct bl_meeting *meeting, bool succeeded) {
    struct bl_resources *resources = comm->resources;
    struct bl_member member = bl_member_of(comm, meeting);
    struct bl_member *members[] = {&member};
    ncclResult_t result = ncclSuccess;
    if (succeeded && hold(comm)) {
        const CUstreamCaptureMode mode = bl_driver_relax();
        bl_mesh_init(&member.mesh, comm->rank, comm->nranks, &resources->cancel);
        bl_build(members, 1, true);
        bl_mesh_close(&member.mesh);
        resources->suspended = false;
        if (member.verdict.outcome != BL_WELL)
            result = give_up(comm, &member);
        else
            atomic_store(&comm->active, true);
        if (atomic_load(&resources->revoked)) atomic_store(&comm->active, false); /* meanwhile, or before */
        bl_driver_unrelax(mode);
        let_go(comm);
    }
    bl_meeting_close(meeting);
    return result;
}
