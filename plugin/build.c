/* build.c - the steps by which the ranks of one communicator come to share staging: each done by every member that this
 * thread carries, then voted on by all ranks.  A step sends before it receives, so that one thread never waits for
 * itself. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "copy.h"
#include "log.h"
#include "member.h"
#include "params.h"

enum step { STEP_VOTE = 100, STEP_MEMORY = 1, STEP_TABLE };

enum { MOST_TUNING_BYTES = 1 << 20 };

void bl_member_fail(struct bl_member *member, enum bl_fate fate, int culprit, const char *format, ...) {
    struct bl_verdict *verdict = &member->verdict;
    if (verdict->fate != BL_WELL) return;
    verdict->fate = fate;
    verdict->culprit = culprit;
    int used = culprit == member->comm->rank ? snprintf(verdict->why, sizeof(verdict->why), "rank %d: ", culprit) : 0;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(verdict->why + used, sizeof(verdict->why) - (size_t)used, format, arguments);
    va_end(arguments);
}

struct bl_verdict bl_verdict_choose(const struct bl_verdict *verdicts, int nranks) {
    for (int fate = BL_FAILED; fate > BL_WELL; fate--) {
        for (int rank = 0; rank < nranks; rank++)
            if (verdicts[rank].fate == fate && verdicts[rank].culprit == rank && verdicts[rank].magic)
                return verdicts[rank];
        for (int rank = 0; rank < nranks; rank++)
            if (verdicts[rank].fate == fate && verdicts[rank].culprit >= 0) return verdicts[rank];
        for (int rank = 0; rank < nranks; rank++)
            if (verdicts[rank].fate == fate) return verdicts[rank];
    }
    return verdicts[0];
}

static void fail_for_peer(struct bl_member *member, int peer, const char *why) {
    member->bereft = true;
    bl_member_fail(member, BL_FAILED, peer, "%s", why);
}

static uint64_t deadline_from_now(void) {
    return bl_clock_ns() + bl_params()->setup_timeout * 1000000000u;
}

/* Runs `act` for each member, with its context current. */
static void each(struct bl_member **members, int count, void (*act)(struct bl_member *)) {
    for (int i = 0; i < count; i++) {
        if (!bl_context_push(members[i]->comm)) {
            bl_member_fail(members[i], BL_FAILED, members[i]->comm->rank, "its context cannot be made current");
            continue;
        }
        act(members[i]);
        bl_context_pop();
    }
}

static void send_to_all(struct bl_member *member, uint32_t step, const void *data, size_t bytes, int fd) {
    char why[200];
    for (int peer = 0; peer < member->comm->nranks; peer++) {
        /* A connection that was never made has been reported; one that broke will be, by the receiving half. */
        if (peer == member->comm->rank || member->mesh.fd[peer] < 0) continue;
        if (bl_mesh_send(&member->mesh, peer, step, data, bytes, fd, deadline_from_now(), why, sizeof(why)))
            bl_member_fail(member, BL_FAILED, member->comm->rank, "%s", why);
    }
}

/* The message of `step` from a peer.  A peer that has to leave sends its verdict, whatever is expected of it: then that is
 * ours, too. */
static bool receive(struct bl_member *member, int peer, uint32_t step, void *data, size_t bytes, int *fd,
                    uint64_t deadline) {
    union {
        struct bl_verdict verdict;
        char bytes[BL_MESH_MESSAGE];
    } message;
    char why[200];
    uint32_t came;
    size_t length;
    int came_fd;
    if (bl_mesh_receive(&member->mesh, peer, &came, &message, sizeof(message), &length, &came_fd, deadline, why,
                        sizeof(why))) {
        fail_for_peer(member, peer, why);
        return false;
    }
    if (came == step && length == bytes && (came_fd >= 0) == (fd != NULL)) {
        memcpy(data, &message, bytes);
        if (fd) *fd = came_fd;
        return true;
    }
    if (came_fd >= 0) close(came_fd);
    member->bereft = true;
    if (came == STEP_VOTE && length == sizeof(message.verdict) && message.verdict.fate != BL_WELL) {
        message.verdict.why[sizeof(message.verdict.why) - 1] = 0;
        message.verdict.link = member->verdict.link;
        if (member->verdict.fate == BL_WELL) member->verdict = message.verdict;
    } else {
        bl_member_fail(member, BL_FAILED, peer, "rank %d is at another step (%u, expected %u)", peer, came, step);
    }
    return false;
}

/* --- the vote --- */
static void vote_send(struct bl_member *member) {
    struct bl_verdict mine = member->verdict;
    send_to_all(member, STEP_VOTE, &mine, sizeof(mine), -1);
}

static void vote_receive(struct bl_member *member) {
    const int nranks = member->comm->nranks;
    struct bl_verdict verdicts[BL_MAX_RANKS] = {0};
    uint64_t deadline = deadline_from_now();
    const bool voted_well = member->verdict.fate == BL_WELL;
    for (int peer = 0; peer < nranks; peer++) {
        if (peer == member->comm->rank || member->mesh.fd[peer] < 0) continue;
        struct bl_verdict *one = &verdicts[peer];
        if (receive(member, peer, STEP_VOTE, one, sizeof(*one), NULL, deadline)) one->why[sizeof(one->why) - 1] = 0;
    }
    verdicts[member->comm->rank] = member->verdict; /* what was found out just now is in it */
    enum bl_link own = (enum bl_link)member->verdict.link;
    member->link = own;
    for (int peer = 0; peer < nranks; peer++)
        if (peer != member->comm->rank && verdicts[peer].link < (int)member->link)
            member->link = (enum bl_link)verdicts[peer].link;
    member->verdict = bl_verdict_choose(verdicts, nranks);
    member->verdict.link = (int32_t)own;
    /* Peers that heard from the one we miss go on to the next step: they must know why we do not. */
    if (voted_well && member->bereft) vote_send(member);
}

/* True if every rank is well.  Equal on all ranks unless one of them died just now, which the next vote shows. */
static bool vote(struct bl_member **members, int count) {
    bool well = true;
    for (int i = 0; i < count; i++) vote_send(members[i]);
    for (int i = 0; i < count; i++) vote_receive(members[i]);
    for (int i = 0; i < count; i++) well = well && members[i]->verdict.fate == BL_WELL;
    /* Members of one process may differ where a peer died in between: none goes on alone. */
    for (int i = 0; i < count && !well; i++)
        for (int j = 0; j < count; j++)
            if (members[i]->verdict.fate == BL_WELL && members[j]->verdict.fate != BL_WELL)
                members[i]->verdict = members[j]->verdict;
    return well;
}

/* --- step: connect, and see whether the GPUs reach each other --- */
static void connect_send(struct bl_member *member) {
    char why[200];
    int culprit;
    for (int peer = 0; peer < member->comm->rank; peer++)
        if (bl_mesh_connect(&member->mesh, peer, member->all[peer].socket, member->identity.cookie, deadline_from_now(),
                            &culprit, why, sizeof(why))) {
            member->bereft = member->bereft || culprit == peer;
            bl_member_fail(member, BL_FAILED, culprit, "%s", why);
        }
}

static void connect_receive(struct bl_member *member) {
    char why[200];
    int missing = 0;
    /* Half the time that those who are connected already wait for our vote, so that it says who is missing. */
    uint64_t deadline = bl_clock_ns() + bl_params()->setup_timeout * 500000000u;
    if (bl_mesh_accept(&member->mesh, member->all[0].cookie, sizeof(*member->all), deadline, &missing, why,
                       sizeof(why)))
        fail_for_peer(member, missing, why);
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
        bl_info("communicator %016llx: no copy engines for its all-gathers: the driver of rank %d has no stream memory "
                "operations",
                (unsigned long long)comm->id, rank);
    else
        bl_info(
            "communicator %016llx: no copy engines for its all-gathers: BEELINE_STAGING is too small for their slots",
            (unsigned long long)comm->id);
}

static void make_table(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    const struct bl_params *params = bl_params();
    struct bl_identity_least least = bl_identity_least(member->all, comm->nranks);
    struct bl_facts facts = {
        .nranks = comm->nranks,
        .arch = least.arch,
        .caps = BL_CAP_P2P | (member->link == BL_LINK_NVLINK ? BL_CAP_NVLINK : 0),
        .sms = least.sms,
        .max_threads = least.max_threads,
        .layout = comm->args.layout,
    };
    snprintf(facts.gpu, sizeof(facts.gpu), "%s", member->all[0].gpu);
    if (member->all[0].copy_engines && !facts.layout.copy_bytes) tell_no_slots(member);
    char *tuning = params->tuning_file ? read_tuning_file(params->tuning_file) : NULL;
    struct bl_settings settings = {
        .max_bytes = {[BL_KERNEL_ALLREDUCE_ONESHOT_PACKET] = params->oneshot_packet_max,
                      [BL_KERNEL_ALLREDUCE_ONESHOT_LINE] = params->oneshot_line_max,
                      [BL_KERNEL_ALLREDUCE_TWOSHOT_LINE] = params->twoshot_line_max,
                      [BL_KERNEL_ALLGATHER_LINE] = params->gather_line_max,
                      [BL_KERNEL_ALLGATHER_COPY] = params->gather_copy_max,
                      [BL_KERNEL_REDUCESCATTER_LINE] = params->scatter_line_max,
                      [BL_KERNEL_ALLTOALL_LINE] = params->exchange_line_max,
                      [BL_KERNEL_BROADCAST_LINE] = params->broadcast_line_max,
                      [BL_KERNEL_REDUCE_LINE] = params->reduce_line_max},
        .fuse_max = params->fuse_max,
        .copy_engines = member->all[0].copy_engines,
        .tuning_text = tuning,
        .tuning_name = params->tuning_file,
    };
    const char *const forced[BL_COLLECTIVES] = {
        [BL_ALLREDUCE] = params->allreduce_algo,         [BL_ALLGATHER] = params->allgather_algo,
        [BL_REDUCESCATTER] = params->reducescatter_algo, [BL_ALLTOALL] = params->alltoall_algo,
        [BL_BROADCAST] = params->broadcast_algo,         [BL_REDUCE] = params->reduce_algo};
    for (int c = 0; c < BL_COLLECTIVES; c++)
        if (forced[c]) snprintf(settings.force[c], sizeof(settings.force[c]), "%s", forced[c]);
    bl_table_build(&comm->table, &facts, &settings, warn_table, NULL);
    free(tuning);
}

static void table_send(struct bl_member *member) {
    /* Cannot fail: bl_identity_judge has tried it. */
    if (bl_identity_layout(member->all, member->comm->nranks, &member->comm->args.layout) || member->comm->rank) return;
    make_table(member);
    send_to_all(member, STEP_TABLE, &member->comm->table, sizeof(member->comm->table), -1);
}

static bool serves_anything(const struct bl_table *table) {
    for (int collective = 0; collective < BL_COLLECTIVES; collective++)
        for (uint32_t i = 0; i < table->ranges[collective] && i < BL_MAX_RANGES; i++)
            if (table->range[collective][i].algorithm != BL_ROUTE_NCCL) return true;
    return false;
}

static void table_receive(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    if (comm->rank != 0 &&
        !receive(member, 0, STEP_TABLE, &comm->table, sizeof(comm->table), NULL, deadline_from_now()))
        return;
    if (!bl_table_valid(&comm->table) || memcmp(&comm->table.layout, &comm->args.layout, sizeof(comm->args.layout))) {
        bl_member_fail(member, BL_FAILED, comm->rank,
                       "the table of rank 0 is not one that this build of Beeline makes");
        return;
    }
    if (!serves_anything(&comm->table)) {
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
    char why[200];
    comm->memory = &upkeep->memory;
    if (bl_modules_open(&upkeep->modules, comm->context, why, sizeof(why)) ||
        bl_modules_find(upkeep->modules, comm->nranks, comm->function, why, sizeof(why)) ||
        bl_memory_create(&upkeep->memory, comm->device, comm->rank, comm->nranks, comm->args.layout.bytes,
                         member->gather.stream, why, sizeof(why)))
        bl_member_fail(member, BL_FAILED, comm->rank, "%s", why);
}

static void export_memory(struct bl_member *member) {
    char why[200];
    if (member->verdict.fate != BL_WELL) return;
    if (bl_memory_export(&member->upkeep->memory, &member->exported, why, sizeof(why)))
        bl_member_fail(member, BL_FAILED, member->comm->rank, "%s", why);
}

static void memory_send(struct bl_member *member) {
    send_to_all(member, STEP_MEMORY, "", 0, member->exported);
    close(member->exported);
    member->exported = -1;
}

/* Every descriptor is taken from its socket even if one cannot be mapped, so that the vote comes next on all of them.
 */
static void memory_receive(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    uint64_t deadline = deadline_from_now();
    char why[200];
    for (int peer = 0; peer < comm->nranks; peer++) {
        int fd;
        if (peer == comm->rank) continue;
        if (!receive(member, peer, STEP_MEMORY, &(char){0}, 0, &fd, deadline)) continue;
        if (member->verdict.fate == BL_WELL && bl_memory_import(&member->upkeep->memory, peer, fd, why, sizeof(why)))
            bl_member_fail(member, BL_FAILED, comm->rank, "%s", why);
        close(fd);
    }
}

/* --- step: self-test --- */
/* Kernels made for older architectures have no instruction to wait with, wherever the driver makes them run. */
static bool waits_for_stream(const struct bl_comm *comm) {
    int version = 0;
    CUfunction any = comm->function[BL_KERNEL_ALLREDUCE_ONESHOT_PACKET][BL_FLOAT32];
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
    comm->args.control = (struct bl_control *)(uintptr_t)memory->control_device;
    for (int peer = 0; peer < comm->nranks; peer++)
        comm->args.staging[peer] = (unsigned char *)(uintptr_t)memory->address[peer];
    comm->control = memory->control;
}

static void test_prepare(struct bl_member *member) {
    char why[200];
    fill_args(member);
    if (bl_copy_open(member->comm, why, sizeof(why))) {
        bl_member_fail(member, BL_FAILED, member->comm->rank, "%s", why);
        return;
    }
    if (bl_selftest_prepare(&member->selftest, member->comm, member->gather.stream, why, sizeof(why)))
        bl_member_fail(member, BL_FAILED, member->comm->rank, "%s", why);
}

/* The kernels' limit; looking at them takes up to three times that, and the peers' vote waits BEELINE_SETUP_TIMEOUT. */
static uint64_t selftest_timeout_ns(void) {
    uint64_t quarter = bl_params()->setup_timeout * 250000000u;
    return quarter < 10000000000u ? quarter : 10000000000u;
}

static void test_launch(struct bl_member *member) {
    struct bl_identity_least least = bl_identity_least(member->all, member->comm->nranks);
    /* Few blocks: the communicators of a group are tested at once, in any order on each GPU, and must fit beside each
     * other, or each would keep the place on one GPU that the other waits for. */
    unsigned blocks = least.sms / 8 ? least.sms / 8 : 1;
    char why[200];
    if (bl_selftest_launch(&member->selftest, member->comm, member->gather.stream, blocks, least.max_threads,
                           selftest_timeout_ns(), why, sizeof(why)))
        bl_member_fail(member, BL_FAILED, member->comm->rank, "%s", why);
}

static void test_check(struct bl_member *member) {
    int culprit = member->comm->rank;
    char why[200];
    if (bl_selftest_check(&member->selftest, member->comm, member->gather.stream, selftest_timeout_ns(), &culprit,
                          &member->upkeep->stuck, why, sizeof(why)))
        bl_member_fail(member, BL_FAILED, culprit, "%s", why);
    if (!member->upkeep->stuck) bl_selftest_release(&member->selftest);
}

void bl_build(struct bl_member **members, int count) {
    each(members, count, connect_send);
    each(members, count, connect_receive);
    each(members, count, look_at_links);
    if (!vote(members, count)) return;
    each(members, count, table_send);
    each(members, count, table_receive);
    if (!vote(members, count)) return;
    each(members, count, create);
    each(members, count, export_memory);
    if (!vote(members, count)) return;
    each(members, count, memory_send);
    each(members, count, memory_receive);
    if (!vote(members, count)) return;
    each(members, count, test_prepare);
    if (!vote(members, count)) return;
    each(members, count, test_launch);
    each(members, count, test_check);
    vote(members, count);
}
