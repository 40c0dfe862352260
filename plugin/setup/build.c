/* build.c - the steps by which the ranks of one communicator come to share staging: each done by every member that this
 * thread carries, then voted on by all ranks.  A step sends before it receives, so that one thread never waits for
 * itself. */
#include "build.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/budget.h"
#include "launch/copy.h"
#include "base/log.h"
#include "build_multicast.h"
#include "trial.h"
#include "vote.h"
#include "launch/order.h"
#include "base/params.h"
#include "comm/switch.h"
#include "base/clock.h"
#include "base/why.h"

enum { MOST_TUNING_BYTES = 1 << 20 };

/* --- step: meet; all that follows has been heard by all --- */
static bool all_well(struct bl_member **members, int count) {
    for (int i = 0; i < count; i++)
        if (members[i]->verdict.fate != BL_WELL) return false;
    return true;
}

/* Who has met the others already waits for our word, so that half the time goes by before we give up. */
static bool meet(struct bl_member **members, int count) {
    const uint64_t deadline = bl_clock_ns() + bl_params()->setup_timeout * 500000000u;
    bool greeted_well[BL_MAX_RANKS];
    for (int i = 0; i < count; i++) {
        struct bl_member *m = members[i];
        bl_meeting_greet(m->meeting, &m->mesh, &m->greetings, &m->verdict, deadline);
        greeted_well[i] = m->verdict.fate == BL_WELL;
    }
    for (int i = 0; i < count; i++) {
        struct bl_member *m = members[i];
        for (int j = 0; j < count && m->verdict.fate == BL_WELL; j++) /* none goes on alone */
            if (members[j]->verdict.fate != BL_WELL) m->verdict = members[j]->verdict;
        bl_meeting_hear(m->meeting, &m->mesh, &m->greetings, &m->verdict, deadline);
        bl_meeting_close(m->meeting);
        const int culprit = m->verdict.culprit;
        m->bereft = m->verdict.fate == BL_FAILED && culprit >= 0 && culprit != m->comm->rank && m->mesh.fd[culprit] < 0;
    }
    if (all_well(members, count)) return true;
    /* Who was told that all is well here, and goes on, hears that it is not. */
    for (int i = 0; i < count; i++)
        if (greeted_well[i]) bl_step_vote_send(members[i]);
    return false;
}

/* --- step: who are we? --- */
static bool wants_copy_engines(void) {
    const char *said = bl_params()->allgather;
    struct bl_routes routes;
    bool wants = bl_params()->copy_engines;
    if (said && bl_routes_parse(said, BL_ALLGATHER, &routes))
        for (int i = 0; i < routes.rows; i++)
            wants = wants || routes.row[i].algorithm == bl_algorithm_find(BL_ALLGATHER, "allgather_ce");
    return wants;
}

static void know_oneself(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    struct bl_identity *identity = &member->identity;
    CUresult status = bl_context_find(comm);
    member->all = calloc((size_t)comm->nranks, sizeof(*member->all));
    if (status != CUDA_SUCCESS)
        bl_member_fail(member, BL_FAILED, comm->rank, "no context: %s",
                       bl_driver() ? bl_driver_strerror(status) : bl_driver_error());
    else if (!member->all || !bl_context_push(comm))
        bl_member_fail(member, BL_FAILED, comm->rank,
                       member->all ? "its context cannot be made current" : "out of host memory");
    if (member->verdict.fate != BL_WELL) return;
    bl_identity_fill(identity, comm->device);
    if (bl_random(identity->nonce, sizeof(identity->nonce)))
        bl_member_fail(member, BL_FAILED, comm->rank, "%s", bl_why());
    member->upkeep->reserved = identity->offered = bl_budget_reserve(comm->device, identity->staging);
    identity->max_blocks = (uint32_t)member->upkeep->wishes.max_blocks;
    identity->nonblocking = member->upkeep->nonblocking;
    identity->copy_engines = member->upkeep->wishes.copy_engines || wants_copy_engines();
    identity->copy_possible = bl_copy_possible();
    if (!identity->copy_possible) snprintf(identity->copy_reason, sizeof(identity->copy_reason), "%s", bl_why());
    bl_context_pop();
}

/* One that does not know itself sends what nobody will look at, and its verdict next. */
static void identity_send(struct bl_member *member) {
    bl_step_send(member, BL_STEP_IDENTITY, &member->identity, sizeof(member->identity), -1);
}

static void identity_receive(struct bl_member *member) {
    const uint64_t deadline = bl_step_deadline();
    struct bl_identity one;
    for (int peer = 0; peer < member->comm->nranks; peer++) {
        if (peer == member->comm->rank)
            one = member->identity;
        else if (!bl_step_receive(member, peer, BL_STEP_IDENTITY, &one, sizeof(one), NULL, deadline))
            continue;
        if (member->all) member->all[peer] = one;
    }
}

static bool introduce(struct bl_member **members, int count) {
    for (int i = 0; i < count; i++) know_oneself(members[i]);
    for (int i = 0; i < count; i++) identity_send(members[i]);
    for (int i = 0; i < count; i++) identity_receive(members[i]);
    if (!bl_step_vote(members, count)) return false;
    for (int i = 0; i < count; i++)
        for (int rank = 0; rank < members[i]->comm->nranks; rank++)
            if (members[i]->all[rank].nonblocking) members[i]->upkeep->waits_for_nothing = true;
    /* For the sake of children: another communicator may have been made of the same id. */
    for (int i = 0; i < count; i++)
        bl_meeting_rekey(members[i]->meeting, members[i]->all[0].nonce, sizeof(members[i]->all[0].nonce));
    return true;
}

static void compare_settings(const struct bl_member *member) {
    static atomic_bool told;
    const char *own = member->identity.settings, *shared = member->all[0].settings;
    if (!strcmp(own, shared) || atomic_exchange(&told, true)) return;
    bl_warn("rank %d has other settings than rank 0, whose hold for all: rank 0 has \"%s\", this rank \"%s\"",
            member->comm->rank, shared, own);
}

/* --- step: can it be done, and do the GPUs reach each other? --- */
static void judge(struct bl_member *member) {
    const enum bl_fate fate = bl_identity_judge(member->all, member->comm->nranks);
    /* The verdict is everybody's already, so it is no single rank's: -1. */
    if (fate != BL_WELL)
        bl_member_fail(member, fate, -1, "%s", bl_why());
    else
        compare_settings(member);
}

static void look_at_links(struct bl_member *member) {
    member->verdict.link = BL_LINK_NVLINK;
    for (int peer = 0; peer < member->comm->nranks; peer++) {
        if (peer == member->comm->rank) continue;
        enum bl_link link = bl_link_of(member->comm->device, member->all[peer].uuid);
        if ((int)link < member->verdict.link) member->verdict.link = (int32_t)link;
        if (link == BL_LINK_NONE)
            bl_member_fail(member, BL_DECLINED, member->comm->rank, "its GPU %s has no P2P access to GPU %s of rank %d",
                           member->identity.pci, member->all[peer].pci, peer);
    }
}

/* --- step: the table, from rank 0 --- */
static char *read_tuning_file(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text = fd >= 0 ? malloc(MOST_TUNING_BYTES + 1) : NULL;
    size_t used = 0;
    ssize_t got = 0;
    while (text && used < MOST_TUNING_BYTES && (got = read(fd, text + used, MOST_TUNING_BYTES - used)) > 0)
        used += (size_t)got;
    if (fd >= 0) close(fd);
    if (!text || got < 0) {
        bl_warn("BEELINE_TUNING_FILE=%s cannot be read: %m; the built-in thresholds hold", path);
        free(text);
        return NULL;
    }
    text[used] = 0;
    return text;
}

static void warn_table(void *arg, const char *message) {
    bl_warn("%s", message);
}

/* Copy engines are asked for, and the staging has no slots for them: at INFO, why. */
static void tell_no_slots(const struct bl_member *member) {
    const struct bl_comm *comm = member->comm;
    int rank = 0;
    while (rank < comm->nranks && member->all[rank].copy_possible) rank++;
    if (rank < comm->nranks)
        bl_info("communicator %016llx: no copy engines for its all-gathers: rank %d: %.*s",
                (unsigned long long)comm->id, rank, (int)sizeof(member->all[rank].copy_reason) - 1,
                member->all[rank].copy_reason);
    else
        bl_info(
            "communicator %016llx: no copy engines for its all-gathers: BEELINE_STAGING is too small for their slots",
            (unsigned long long)comm->id);
}

static bool plans_multicast(const struct bl_member *member) {
    return member->multicast.fate == BL_WELL;
}

/* From facts that are the same on all ranks. */
static void plan_multicast(struct bl_member *member) {
    if (bl_identity_multicast(member->all, member->comm->nranks) ||
        (!member->comm->args.layout.multicast_bytes && bl_fail("BEELINE_STAGING is too small")))
        bl_member_fail_multicast(member, BL_DECLINED, -1, "%s", bl_why());
}

static void make_tables(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    const struct bl_params *params = bl_params();
    struct bl_identity_least least = bl_identity_least(member->all, comm->nranks);
    struct bl_facts facts = {
        .nranks = comm->nranks,
        .arch = least.arch,
        .caps = BL_CAP_P2P | (member->link == BL_LINK_NVLINK ? BL_CAP_NVLINK : 0),
        .sms = least.sms < least.max_blocks ? least.sms : least.max_blocks,
        .max_threads = least.max_threads,
        .layout = comm->args.layout,
    };
    snprintf(facts.gpu, sizeof(facts.gpu), "%s", member->all[0].gpu);
    if (member->all[0].copy_engines && !facts.layout.copy_bytes) tell_no_slots(member);
    char *tuning = params->tuning_file ? read_tuning_file(params->tuning_file) : NULL;
    struct bl_settings settings = {
        .routes = {[BL_ALLREDUCE] = params->allreduce,
                   [BL_ALLGATHER] = params->allgather,
                   [BL_REDUCESCATTER] = params->reducescatter,
                   [BL_ALLTOALL] = params->alltoall,
                   [BL_BROADCAST] = params->broadcast,
                   [BL_REDUCE] = params->reduce},
        .fuse_max = params->fuse_max,
        .copy_engines = member->all[0].copy_engines,
        .deterministic = params->deterministic,
        .short_of_staging = bl_identity_short(member->all, comm->nranks),
        .tuning_text = tuning,
        .tuning_name = params->tuning_file,
    };
    /* What is wrong with the settings is said once, of the table that will serve if all goes well. */
    bl_table_build(&comm->table, &facts, &settings, plans_multicast(member) ? NULL : warn_table, NULL);
    facts.caps |= BL_CAP_MULTICAST;
    if (plans_multicast(member)) bl_table_build(&member->multicast_table, &facts, &settings, warn_table, NULL);
    free(tuning);
}

_Static_assert(sizeof(struct bl_table) + 64 <= BL_MESH_MESSAGE, "a table is one message");

/* Those that rank 0 makes and sends. */
static int tables_of(struct bl_member *member, struct bl_table *tables[2]) {
    tables[0] = &member->comm->table;
    tables[1] = &member->multicast_table;
    return plans_multicast(member) ? 2 : 1;
}

static void table_send(struct bl_member *member) {
    /* Cannot fail: bl_identity_judge has tried it. */
    struct bl_table *tables[2];
    if (bl_identity_layout(member->all, member->comm->nranks, &member->comm->args.layout)) return;
    plan_multicast(member);
    if (member->comm->rank) return;
    make_tables(member);
    for (int i = 0, count = tables_of(member, tables); i < count; i++)
        bl_step_send(member, BL_STEP_TABLE, tables[i], sizeof(*tables[i]), -1);
}

/* Whether any call goes to an algorithm that needs all of these capabilities. */
static bool serves(const struct bl_table *table, unsigned needs) {
    for (int collective = 0; collective < BL_COLLECTIVES; collective++)
        for (uint32_t i = 0; i < table->ranges[collective] && i < BL_MAX_RANGES; i++) {
            int32_t algorithm = table->range[collective][i].algorithm;
            if (algorithm != BL_ROUTE_NCCL && (bl_algorithms[algorithm].needs & needs) == needs) return true;
        }
    return false;
}

/* What no route uses need not be there; as all ranks come to it from the same tables. */
static void trim(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    struct bl_table *tables[2];
    uint64_t bytes[BL_KERNELS] = {0};
    const int count = tables_of(member, tables);
    for (int i = 0; i < count; i++) bl_table_uses(tables[i], bytes);
    bl_staging_trim(&comm->args.layout, comm->nranks, bytes);
    for (int i = 0; i < count; i++) tables[i]->layout = comm->args.layout;
}

static void table_receive(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    struct bl_table *tables[2];
    bool anything = false;
    for (int i = 0, count = tables_of(member, tables); i < count; i++) {
        struct bl_table *table = tables[i];
        if (comm->rank != 0 &&
            !bl_step_receive(member, 0, BL_STEP_TABLE, table, sizeof(*table), NULL, bl_step_deadline()))
            return;
        if (!bl_table_valid(table) || memcmp(&table->layout, &comm->args.layout, sizeof(comm->args.layout))) {
            bl_member_fail(member, BL_FAILED, comm->rank,
                           "the table of rank 0 is not one that this build of Beeline makes");
            return;
        }
        anything = anything || serves(table, 0);
    }
    trim(member);
    if (plans_multicast(member) && !serves(&member->multicast_table, BL_CAP_MULTICAST))
        bl_member_fail_multicast(member, BL_DECLINED, -1, "no call would use it");
    if (!anything) {
        /* Then it need not take memory either. */
        struct bl_route route;
        bl_table_select(&comm->table, &(struct bl_request){BL_ALLREDUCE, 1, BL_FLOAT32, BL_SUM, 0}, &route);
        bl_member_fail(member, BL_DECLINED, -1, "no call would be Beeline's: %s", route.reason);
    }
}

/* --- step: memory, kernels --- */
static void create(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    struct bl_upkeep *upkeep = member->upkeep;
    comm->memory = &upkeep->memory;
    CUresult status = bl_driver()->cuStreamCreate(&member->stream, CU_STREAM_NON_BLOCKING);
    if (status != CUDA_SUCCESS) {
        bl_member_fail(member, BL_FAILED, comm->rank, "making a stream failed: %s", bl_driver_strerror(status));
        return;
    }
    if (bl_modules_open(&upkeep->modules, comm->context, comm->context_id) ||
        bl_modules_find(upkeep->modules, comm->nranks, false, comm->function) ||
        bl_pinned_take(&upkeep->control, comm->context, comm->context_id) ||
        bl_memory_create(&upkeep->memory, comm->device, comm->rank, comm->nranks, comm->args.layout.bytes,
                         member->stream))
        bl_member_fail(member, BL_FAILED, comm->rank, "%s", bl_why());
    else
        bl_budget_settle(comm->device, &upkeep->reserved, upkeep->memory.bytes);
}

static void export_memory(struct bl_member *member) {
    if (member->verdict.fate != BL_WELL) return;
    if (bl_memory_export(&member->upkeep->memory, &member->exported))
        bl_member_fail(member, BL_FAILED, member->comm->rank, "%s", bl_why());
}

static void memory_send(struct bl_member *member) {
    bl_step_send(member, BL_STEP_MEMORY, "", 0, member->exported);
    close(member->exported);
    member->exported = -1;
}

/* Every descriptor is taken from its socket even if one cannot be mapped, so that the vote comes next on all of them.
 */
static void memory_receive(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    uint64_t deadline = bl_step_deadline();
    for (int peer = 0; peer < comm->nranks; peer++) {
        int fd;
        if (peer == comm->rank) continue;
        if (!bl_step_receive(member, peer, BL_STEP_MEMORY, &(char){0}, 0, &fd, deadline)) continue;
        if (member->verdict.fate == BL_WELL && bl_memory_import(&member->upkeep->memory, peer, fd))
            bl_member_fail(member, BL_FAILED, comm->rank, "%s", bl_why());
        close(fd);
    }
}

static void restore(struct bl_member *member) {
    if (bl_memory_resume(&member->upkeep->memory))
        bl_member_fail(member, BL_FAILED, member->comm->rank, "%s", bl_why());
}

/* --- step: the switch, if rank 0 has one --- */
static void switch_send(struct bl_member *member) {
    int fd = -1;
    if (member->comm->rank) return;
    if (bl_switch_create(member->comm, &fd)) bl_member_fail(member, BL_FAILED, member->comm->rank, "%s", bl_why());
    /* Without it, too: who waits may be this very thread's next member. */
    bl_step_send(member, BL_STEP_SWITCH, "", 0, member->verdict.fate == BL_WELL ? fd : -1);
    if (fd >= 0) close(fd);
}

static void switch_receive(struct bl_member *member) {
    int fd;
    if (!member->comm->rank || !bl_step_receive(member, 0, BL_STEP_SWITCH, &(char){0}, 0, &fd, bl_step_deadline()))
        return;
    if (bl_switch_join(member->comm, fd)) bl_member_fail(member, BL_FAILED, member->comm->rank, "%s", bl_why());
    close(fd);
}

/* --- step: self-test --- */
/* Kernels made for older architectures have no instruction to wait with, wherever the driver makes them run. */
static bool waits_for_stream(const struct bl_comm *comm) {
    int version = 0;
    CUfunction any = comm->function[BL_KERNEL_ALLREDUCE_ONESHOT_LL][BL_FLOAT32];
    return bl_driver()->cuFuncGetAttribute(&version, CU_FUNC_ATTRIBUTE_PTX_VERSION, any) == CUDA_SUCCESS &&
           version >= 90;
}

static void fill_args(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    const struct bl_memory *memory = &member->upkeep->memory;
    comm->args.rank = (uint32_t)comm->rank;
    comm->args.nranks = (uint32_t)comm->nranks;
    comm->args.timeout_ns = member->all[0].timeout_s * 1000000000u;
    for (int kernel = 0; kernel < BL_KERNELS; kernel++)
        comm->most_bytes[kernel] = bl_kernel_capacity(kernel, comm->nranks, &comm->args.layout);
    comm->early_launch = bl_params()->early_launch && bl_driver()->cuLaunchKernelEx && waits_for_stream(comm);
    comm->args.epochs = (uint64_t *)(uintptr_t)memory->epochs;
    comm->args.control = (struct bl_control *)(uintptr_t)member->upkeep->control.device;
    for (int peer = 0; peer < comm->nranks; peer++)
        comm->args.staging[peer] = (unsigned char *)(uintptr_t)memory->address[peer];
    comm->control = member->upkeep->control.host;
}

static void test_prepare(struct bl_member *member) {
    fill_args(member);
    if (bl_order_open(member->comm) || bl_copy_open(member->comm)) {
        bl_member_fail(member, BL_FAILED, member->comm->rank, "%s", bl_why());
        return;
    }
    if (bl_trial_prepare(member, BL_SELFTEST_STAGING, &member->comm->args, &member->comm->table))
        bl_member_fail(member, BL_FAILED, member->comm->rank, "%s", bl_why());
}

static void test_launch(struct bl_member *member) {
    if (bl_trial_launch(member)) bl_member_fail(member, BL_FAILED, member->comm->rank, "%s", bl_why());
}

static void test_check(struct bl_member *member) {
    int culprit;
    if (bl_trial_check(member, &culprit)) bl_member_fail(member, BL_FAILED, culprit, "%s", bl_why());
}

static bool share(struct bl_member **members, int count) {
    bl_step_each(members, count, export_memory);
    if (!bl_step_vote(members, count)) return false;
    bl_step_each(members, count, memory_send);
    bl_step_each(members, count, memory_receive);
    return bl_step_vote(members, count);
}

static void build(struct bl_member **members, int count) {
    bl_step_each(members, count, judge);
    if (!all_well(members, count)) return; /* on all ranks alike */
    bl_step_each(members, count, look_at_links);
    if (!bl_step_vote(members, count)) return;
    bl_step_each(members, count, table_send);
    bl_step_each(members, count, table_receive);
    if (!bl_step_vote(members, count)) return;
    bl_step_each(members, count, create);
    if (!share(members, count)) return;
    if (members[0]->all[0].has_switch) {
        bl_step_each(members, count, switch_send);
        bl_step_each(members, count, switch_receive);
        if (!bl_step_vote(members, count)) return;
    }
    bl_step_each(members, count, test_prepare);
    if (!bl_step_vote(members, count)) return;
    bl_step_each(members, count, test_launch);
    bl_step_each(members, count, test_check);
    if (bl_step_vote(members, count)) bl_build_multicast(members, count);
}

/* All have heard that all are well; who does not hear it now cannot know what the others do. */
static void last_vote(struct bl_member **members, int count) {
    if (!all_well(members, count)) return;
    for (int i = 0; i < count; i++) members[i]->built = true;
    bl_step_vote(members, count);
}

void bl_rebuild(struct bl_member **members, int count) {
    if (!meet(members, count)) return;
    bl_step_each(members, count, restore);
    if (share(members, count)) last_vote(members, count);
}

void bl_build(struct bl_member **members, int count) {
    bool met = meet(members, count);
    for (int i = 0; i < count; i++) members[i]->met = met;
    for (int i = 0; i < count; i++) members[i]->met_at = bl_clock_ns();
    if (!met || !introduce(members, count)) return;
    build(members, count);
    for (int i = 0; i < count; i++) members[i]->built_at = bl_clock_ns();
    last_vote(members, count);
    for (int i = 0; i < count; i++) bl_build_leave(members[i]);
}
