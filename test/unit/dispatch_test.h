/* dispatch_test.h - what the dispatcher's tests share: checks, made-up facts, kept messages. */
#ifndef BEELINE_DISPATCH_TEST_H
#define BEELINE_DISPATCH_TEST_H

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "dispatch.h"

enum { K = 1 << 10, M = 1 << 20 };

struct messages {
    int count;
    char text[64][512];
};

static inline void keep(void *arg, const char *message) {
    struct messages *m = arg;
    if (m->count < 64) snprintf(m->text[m->count], sizeof m->text[0], "%s", message);
    m->count++;
}

static inline struct bl_facts facts_of(const char *gpu, int arch, int nranks) {
    struct bl_facts facts = {.nranks = nranks,
                             .arch = arch,
                             .link = BL_LINK_NVSWITCH,
                             .nvlinks = 18,
                             .multiprocessors = 132,
                             .most_blocks = 132,
                             .max_threads = BL_MAX_THREADS,
                             .block_memory = 232448};
    snprintf(facts.gpu, sizeof facts.gpu, "%s", gpu);
    if (bl_staging_plan(&facts.layout, nranks, 100ull << 20, BL_WITH_PIECES, false)) abort();
    return facts;
}

/* With one file, or none; the last that was asked for. */
static inline struct bl_settings settings_of(const char *tuning) {
    static struct bl_tuning_file file;
    file = (struct bl_tuning_file){.name = "my.tune", .text = tuning, .asked = true};
    struct bl_settings settings = {.files = &file, .file_count = tuning != NULL};
    return settings;
}

static inline void build(struct bl_table *table, const struct bl_facts *facts, const struct bl_settings *settings) {
    struct messages m = {0};
    bl_table_build(table, facts, settings, keep, &m);
    for (int i = 0; i < m.count && i < 64; i++) CHECK(0, "unexpected message: %s", m.text[i]);
    CHECK(bl_table_valid(table), "a built table is valid");
}

/* Bytes of a rank, where there are several blocks. */
static inline struct bl_route select_for(const struct bl_table *table, enum bl_collective collective, uint64_t bytes) {
    struct bl_request request = {collective, bytes, BL_UINT8, BL_SUM, 0};
    struct bl_route route;
    memset(&route, 0xa5, sizeof route);
    bl_table_select(table, &request, &route);
    return route;
}
static inline struct bl_route select_bytes(const struct bl_table *table, uint64_t bytes) {
    return select_for(table, BL_ALLREDUCE, bytes);
}

/* The same facts with a multicast object. */
static inline struct bl_facts with_multicast(struct bl_facts facts) {
    facts.multicast = true;
    if (bl_staging_plan(&facts.layout, facts.nranks, 100ull << 20, false, true) || !facts.layout.multicast_bytes)
        abort();
    return facts;
}

/* The same facts with slots for the copy engines. */
static inline struct bl_facts with_slots(struct bl_facts facts) {
    if (bl_staging_plan(&facts.layout, facts.nranks, 100ull << 20, true, false)) abort();
    return facts;
}

#endif
