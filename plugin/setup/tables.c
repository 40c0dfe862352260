/* tables.c - see steps.h. */
#include "steps.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vote.h"
#include "base/file.h"
#include "base/log.h"
#include "base/params.h"
#include "base/why.h"

/* NULL: there is none that can be read.  One that was asked for is missed; others may be somebody else's. */
static char *read_tuning_file(const char *path, bool asked) {
    const char *why;
    bool absent;
    char *text = bl_file_text(path, &absent, &why);
    if (!text && asked)
        bl_warn("BEELINE_TUNING_FILE=%s cannot be read: %s; other thresholds hold", path, why);
    else if (!text && !absent)
        bl_info("tuning file %s is left out: %s", path, why);
    return text;
}

/* Those that are there; their texts are to be freed. */
static int read_tuning_files(char paths[BL_TUNING_PLACES][PATH_MAX], struct bl_tuning_file *files) {
    int count = 0;
    for (int place = 0; place < BL_TUNING_PLACES && !bl_params_tuning_built_in(); place++) {
        const bool asked = place == BL_TUNING_ASKED;
        bl_params_tuning_path((enum bl_tuning_place)place, paths[place], PATH_MAX);
        const char *text = paths[place][0] ? read_tuning_file(paths[place], asked) : NULL;
        if (text) files[count++] = (struct bl_tuning_file){paths[place], text, asked};
    }
    return count;
}

bool bl_tables_mention(const char *word) {
    char path[PATH_MAX];
    bool any = false;
    for (int place = 0; place < BL_TUNING_PLACES && !bl_params_tuning_built_in(); place++) {
        const char *why;
        bool absent;
        bl_params_tuning_path((enum bl_tuning_place)place, path, sizeof(path));
        char *text = path[0] ? bl_file_text(path, &absent, &why) : NULL;
        any = any || (text && strstr(text, word));
        free(text);
    }
    return any;
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
    return member->multicast.outcome == BL_WELL;
}

/* From facts that are the same on all ranks. */
static void plan_multicast(struct bl_member *member) {
    if (bl_identity_multicast(member->all, member->comm->nranks) ||
        (!member->comm->args.layout.multicast_bytes && bl_fail("BEELINE_STAGING is too small")))
        bl_member_fail_multicast(member, BL_DECLINED, -1, "%s", bl_why());
}

struct bl_facts bl_tables_facts(const struct bl_identity *all, int nranks, enum bl_link link,
                                const struct bl_staging_layout *layout) {
    const struct bl_identity_least least = bl_identity_least(all, nranks);
    struct bl_facts facts = {
        .nranks = nranks,
        .arch = least.arch,
        .link = link,
        .nvlinks = least.nvlinks,
        .nccl_nvls = least.nccl_nvls,
        .zero_ctas = least.zero_ctas,
        .multiprocessors = least.sms,
        .most_blocks = least.sms < least.max_blocks ? least.sms : least.max_blocks,
        .max_threads = least.max_threads,
        .block_memory = least.block_memory,
        .layout = *layout,
    };
    snprintf(facts.gpu, sizeof(facts.gpu), "%s", all[0].gpu);
    return facts;
}

void bl_tables_make(const struct bl_identity *all, struct bl_facts facts, bool tell, struct bl_table *plain,
                    struct bl_table *multicast) {
    const struct bl_params *params = bl_params();
    char paths[BL_TUNING_PLACES][PATH_MAX];
    struct bl_tuning_file files[BL_TUNING_PLACES];
    const int file_count = read_tuning_files(paths, files);
    struct bl_settings settings = {
        .fuse_max = params->fuse_max,
        .copy_engines = all[0].copy_engines,
        .deterministic = params->deterministic,
        .batch_invariant = params->batch_invariant,
        .short_of_staging = bl_identity_short(all, facts.nranks),
        .files = files,
        .file_count = file_count,
    };
    memcpy(settings.routes, params->routes, sizeof(settings.routes));
    /* Once, of the table that will serve if all goes well. */
    bl_table_build(plain, &facts, &settings, tell && !multicast ? warn_table : NULL, NULL);
    facts.multicast = true;
    if (multicast) bl_table_build(multicast, &facts, &settings, tell ? warn_table : NULL, NULL);
    for (int i = 0; i < file_count; i++) free((char *)files[i].text);
}

static void make_tables(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    const struct bl_facts facts = bl_tables_facts(member->all, comm->nranks, member->link, &comm->args.layout);
    if (member->all[0].copy_engines && !facts.layout.copy_bytes) tell_no_slots(member);
    bl_tables_make(member->all, facts, bl_link_serves(facts.link) && !member->tuning, &comm->table,
                   plans_multicast(member) ? &member->multicast_table : NULL);
    if (!comm->table.unmeasured) return;
    if (member->tuning || !bl_link_serves(facts.link) || !bl_tune_permitted(member->all, comm->nranks))
        comm->table.unmeasured = 0;
}

_Static_assert(sizeof(struct bl_table) + 64 <= BL_MESH_MESSAGE, "a table is one message");

/* Those that rank 0 makes and sends. */
static int tables_of(struct bl_member *member, struct bl_table *tables[2]) {
    tables[0] = &member->comm->table;
    tables[1] = &member->multicast_table;
    return plans_multicast(member) ? 2 : 1;
}

int bl_tables_send(struct bl_member *member) {
    /* Cannot fail: bl_identity_judge has tried it. */
    struct bl_table *tables[2];
    if (bl_identity_layout(member->all, member->comm->nranks, &member->comm->args.layout)) return 0;
    plan_multicast(member);
    if (member->comm->rank) return 0;
    make_tables(member);
    for (int i = 0, count = tables_of(member, tables); i < count; i++)
        bl_step_send(member, BL_STEP_TABLE, tables[i], sizeof(*tables[i]), -1);
    return 0;
}

/* Whether any call goes to an algorithm that has all of these traits. */
static bool serves(const struct bl_table *table, unsigned traits) {
    for (int collective = 0; collective < BL_COLLECTIVES; collective++)
        for (uint32_t i = 0; i < table->ranges[collective] && i < BL_MAX_RANGES; i++) {
            int32_t algorithm = table->range[collective][i].algorithm;
            if (algorithm != BL_ROUTE_NCCL && (bl_algorithms[algorithm].traits & traits) == traits) return true;
        }
    return false;
}

/* What no route uses need not be there; as all ranks come to it from the same tables.  What is measured may find use for all. */
int bl_tables_trim(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    struct bl_table *tables[2];
    uint64_t bytes[BL_KERNELS] = {0};
    const int count = tables_of(member, tables);
    if (bl_tune_well(member)) return 0;
    for (int i = 0; i < count; i++) bl_table_uses(tables[i], bytes);
    bl_staging_trim(&comm->args.layout, comm->nranks, bytes);
    for (int i = 0; i < count; i++) tables[i]->layout = comm->args.layout;
    return 0;
}

int bl_tables_receive(struct bl_member *member) {
    struct bl_comm *comm = member->comm;
    struct bl_table *tables[2];
    bool anything = false;
    for (int i = 0, count = tables_of(member, tables); i < count; i++) {
        struct bl_table *table = tables[i];
        if (comm->rank != 0 &&
            !bl_step_receive(member, 0, BL_STEP_TABLE, table, sizeof(*table), NULL, bl_step_deadline()))
            return 0;
        if (!bl_table_valid(table) || memcmp(&table->layout, &comm->args.layout, sizeof(comm->args.layout)))
            return bl_fail("the table of rank 0 is not one that this build of Beeline makes");
        anything = anything || serves(table, 0);
    }
    if (plans_multicast(member) && !serves(&member->multicast_table, BL_NVLS))
        bl_member_fail_multicast(member, BL_DECLINED, -1, "no call would use it");
    if (!anything) {
        /* Then it need not take memory either. */
        struct bl_route route;
        bl_table_select(&comm->table, &(struct bl_request){BL_ALLREDUCE, 1, BL_FLOAT32, BL_SUM, 0}, &route);
        bl_member_fail(member, BL_DECLINED, -1, "no call would be Beeline's: %s", route.reason);
    }
    return 0;
}
