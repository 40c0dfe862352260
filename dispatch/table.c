/* table.c - builds a communicator's table: of all tuning rows those that fit it best, cut to what each algorithm can
 * do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tuning.h"
#include "thresholds.h" /* generated: bl_builtin_tunings */

/* How well a section's GPU fits. */
enum gpu_match { GPU_OTHER, GPU_ANY, GPU_ARCH, GPU_NAME, GPU_MATCHES };

/* Two blocks of 256 threads of any kernel fit on a multiprocessor: two communicators may then run at once. */
enum { DEFAULT_THREADS = 256 };

/* A kernel that is over in some microseconds takes less from others than its hand-over to the copy engines takes time. */
static const uint64_t LEFT_TO_KERNELS = 128 << 10;

static const uint64_t LONGEST_MESSAGE = (uint64_t)1 << 40; /* of algorithms that take messages in pieces */

/* Copies between GPUs of one call of allgather_ce: each is three entries of a stream's queue, which is said to have room for 1024.
 * Where it is full the thread waits, and may be the one that has to launch on the other GPUs before it moves. */
static const uint64_t MOST_COPIES = 256;

/* How a row's file, number of ranks and GPU rank together: higher is better, 0 is no candidate.  Rows for this number
 * of ranks come before rows for another; of those, the user's before built-in ones; `gpu any` of the built-in ones is
 * last.  What is built in for another GPU of the architecture says nothing of this one. */
enum { MEASURED = 4 }; /* here, with so many ranks, or it is the user's word; from so much on */
static const int preference[2][2][GPU_MATCHES] = {
    /* built-in */ {/* other ranks */ {0, 1, 0, 2}, /* these ranks */ {0, 1, 0, MEASURED}},
    /* user's   */ {/* other ranks */ {0, 3, 3, 3}, /* these ranks */ {0, 5, 5, 5}},
};

struct fit {
    int preference, file, distance, ranks, gpu, serial;
};

/* The rows that fit best so far, of one collective. */
struct pick {
    struct fit fit;
    int rows;
    struct bl_tuning_row row[BL_TUNING_ROWS];
    const char *file;
    bool user;
};

/* Which rows: the plain ones that fit best, those for multicast, and of the plain ones that are built in those that fit best, which hold
 * above a user's. */
enum { PLAIN, MULTICAST, BUILT_IN, PICKS };

struct build {
    const struct bl_facts *facts;
    const struct bl_settings *settings;
    void (*warn)(void *arg, const char *message);
    void *arg;
    const char *file;
    int place;  /* the file's among the user's; -1: it is built in */
    int serial; /* of the file's first section: built-in sections count on from file to file */
    bool fits;  /* the file has a section for this box */
    struct pick pick[PICKS][BL_COLLECTIVES];
};

/* Negative, 0 or positive as a is worse than, like or better than b.  Between 4 and 8 ranks for 6, the 8: its
 * thresholds are the more careful.  Of equals the later wins. */
static int compare(const struct fit *a, const struct fit *b) {
    if (a->preference != b->preference) return a->preference - b->preference;
    if (a->file != b->file) return b->file - a->file;
    if (a->distance != b->distance) return b->distance - a->distance;
    if (a->ranks != b->ranks) return a->ranks - b->ranks;
    if (a->gpu != b->gpu) return a->gpu - b->gpu;
    return a->serial - b->serial;
}

/* A row for its collective's pick: of a better section than that has, of the same, or of a worse one. */
static void offer(const struct build *build, struct pick *pick, const struct fit *fit,
                  const struct bl_tuning_row *row) {
    const int better = pick->rows ? compare(fit, &pick->fit) : 1;
    if (!fit->preference || better < 0) return;
    if (better > 0) {
        pick->fit = *fit;
        pick->rows = 0;
        pick->file = build->file;
        pick->user = build->place >= 0;
    }
    pick->row[pick->rows++] = *row;
}

static enum gpu_match match(const struct bl_tuning_row *row, const struct bl_facts *facts) {
    if ((row->link >= 0 && row->link != (int)facts->link) || (row->nvlinks && row->nvlinks != facts->nvlinks) ||
        (row->nccl_nvls >= 0 && row->nccl_nvls != facts->nccl_nvls))
        return GPU_OTHER;
    if (!row->gpu[0]) return GPU_ANY;
    if (!strcmp(row->gpu, facts->gpu)) return GPU_NAME;
    return row->arch == facts->arch ? GPU_ARCH : GPU_OTHER;
}

static void visit(void *arg, const struct bl_tuning_row *row) {
    struct build *build = arg;
    const struct bl_facts *facts = build->facts;
    const bool user = build->place >= 0;
    const enum gpu_match gpu = match(row, facts);
    if (gpu != GPU_OTHER) build->fits = true;
    /* The more ranks, the more a multicast object helps: what fewer ranks gain is a careful guess for more, not the reverse. */
    if (row->multicast && (!facts->multicast || row->ranks > facts->nranks)) return;
    struct fit fit = {
        .preference = preference[user][row->ranks == facts->nranks][gpu],
        .file = build->place,
        .distance = abs(row->ranks - facts->nranks),
        .ranks = row->ranks,
        .gpu = (int)gpu,
        .serial = build->serial + row->section,
    };
    offer(build, &build->pick[row->multicast ? MULTICAST : PLAIN][row->collective], &fit, row);
    if (!row->multicast && !user) offer(build, &build->pick[BUILT_IN][row->collective], &fit, row);
}

static unsigned at_least_one(unsigned n) {
    return n ? n : 1;
}
static unsigned lesser(unsigned a, unsigned b) {
    return a < b ? a : b;
}
/* Of a block: whole warps. */
static unsigned most_threads(const struct bl_facts *facts) {
    return at_least_one(lesser(facts->max_threads, BL_MAX_THREADS) / 32) * 32;
}

/* Whether blocks can be as large as a kernel needs them. */
static bool has_threads(const struct bl_facts *facts, enum bl_kernel kernel) {
    return bl_kernel_threads(kernel, facts->nranks, 0) <= most_threads(facts);
}

/* Most bytes that the algorithm can carry on this communicator, and what keeps it from more. */
static uint64_t algorithm_limit(const struct build *build, const struct bl_algorithm *algorithm, enum bl_spread spread,
                                enum bl_reason *reason) {
    const struct bl_facts *facts = build->facts;
    const enum bl_kernel kernel = algorithm->kernel[spread];
    *reason = bl_link_why(facts->link);
    if (!bl_link_serves(facts->link)) return 0;
    *reason = BL_REASON_NO_MULTICAST;
    if (algorithm->traits & BL_NVLS && !facts->multicast) return 0;
    *reason = BL_REASON_DETERMINISTIC;
    if (algorithm->traits & BL_BY_SWITCH && build->settings->deterministic) return 0;
    *reason = BL_REASON_RANKS;
    if (facts->nranks < 2 || facts->nranks > BL_MAX_RANKS) return 0;
    *reason = BL_REASON_THREADS;
    if (!has_threads(facts, kernel)) return 0;
    uint64_t capacity = bl_kernel_capacity(kernel, facts->nranks, &facts->layout);
    *reason = BL_REASON_NO_SLOTS;
    if (!capacity) return 0;
    const bool whole = build->settings->short_of_staging;
    if (whole)
        ; /* no pieces */
    else if (kernel == BL_KERNEL_ALLGATHER_CE)
        capacity *= MOST_COPIES / (uint64_t)(facts->nranks - 1);
    else if (bl_kernel_in_pieces(kernel, facts->nranks))
        capacity = LONGEST_MESSAGE;
    *reason = whole ? BL_REASON_BUDGET : BL_REASON_STAGING;
    return capacity;
}

/* A threshold measured with `from` ranks, for `to` ranks: what goes to each peer, or comes from each, grows with their number. */
static uint64_t scale(uint64_t max_bytes, int algorithm, int from, int to) {
    if (max_bytes == UINT64_MAX || algorithm < 0 || !(bl_algorithms[algorithm].traits & BL_EACH_PEER)) return max_bytes;
    uint64_t peers = to - 1, whole = max_bytes / peers, rest = max_bytes % peers, scaled;
    if (__builtin_mul_overflow(whole, (uint64_t)(from - 1), &scaled)) return max_bytes;
    return scaled + rest * (uint64_t)(from - 1) / peers;
}

struct ranges {
    const struct build *build;
    struct bl_table *table;
    enum bl_collective collective;
    uint64_t reached;         /* every size up to this one is served */
    bool closed;              /* NCCL serves what is left: nothing follows */
    uint64_t wanted;          /* a row wished an algorithm up to here, which it cannot */
    enum bl_reason hindrance; /* why */
};

static void add_range(struct ranges *r, struct bl_range range) {
    struct bl_table *table = r->table;
    if (r->closed || table->ranges[r->collective] >= BL_MAX_RANGES) return;
    table->range[r->collective][table->ranges[r->collective]++] = range;
    if (range.max_bytes > r->reached) r->reached = range.max_bytes;
}

static void add_nccl_range(struct ranges *r, uint64_t max_bytes, enum bl_reason reason) {
    add_range(r, (struct bl_range){.max_bytes = max_bytes, .algorithm = BL_ROUTE_NCCL, .reason = reason});
}

static void add_nccl(struct ranges *r, uint64_t max_bytes, enum bl_reason reason) {
    /* Sizes that come here only because an algorithm could not have them are told so. */
    uint64_t hindered = r->wanted < max_bytes ? r->wanted : max_bytes;
    if (hindered > r->reached) add_nccl_range(r, hindered, r->hindrance);
    if (max_bytes > r->reached || max_bytes == UINT64_MAX) add_nccl_range(r, max_bytes, reason);
    r->closed = max_bytes == UINT64_MAX;
}

/* Adds the algorithm up to max_bytes or its own limit, if there is anything that it can carry. */
static void add_algorithm(struct ranges *r, const struct bl_tuning_row *row, uint64_t max_bytes,
                          enum bl_reason reason) {
    const struct bl_facts *facts = r->build->facts;
    const struct bl_algorithm *algorithm = &bl_algorithms[row->algorithm];
    enum bl_reason hindrance;
    uint64_t limit = algorithm_limit(r->build, algorithm, row->spread, &hindrance);
    unsigned threads = lesser(row->threads ? row->threads : DEFAULT_THREADS, most_threads(facts));
    threads = bl_kernel_threads(algorithm->kernel[row->spread], facts->nranks, threads);
    /* Every block must be resident at once, and needs its epoch word. */
    unsigned blocks = lesser(row->blocks ? row->blocks : facts->most_blocks, at_least_one(facts->most_blocks));
    blocks = lesser(at_least_one(blocks), BL_MAX_BLOCKS);

    if (limit < max_bytes && max_bytes > r->wanted) {
        r->wanted = max_bytes;
        r->hindrance = hindrance;
    }
    if (limit)
        add_range(r, (struct bl_range){.max_bytes = limit < max_bytes ? limit : max_bytes,
                                       .algorithm = row->algorithm,
                                       .max_blocks = blocks,
                                       .threads = (uint16_t)threads,
                                       .spread = (uint16_t)row->spread,
                                       .reason = reason});
}

static void warn_said(const struct ranges *r, const char *what, const char *text, const char *names) {
    char message[400];

    if (!r->build->warn) return;
    snprintf(message, sizeof message, "%s: '%.80s' %s: nccl%s%s", bl_collective_name(r->collective), what, text,
             *names ? ", " : "", names);
    r->build->warn(r->build->arg, message);
}

static void warn_not_accepted(const struct ranges *r, const char *said) {
    char names[160];
    bl_algorithm_list(r->collective, names, sizeof names);
    warn_said(r, said, "is not accepted; there are", names);
}

/* With what can serve in its place. */
static void warn_cannot(const struct ranges *r, int algorithm, enum bl_spread spread, enum bl_reason why) {
    char text[160], names[160] = "";
    size_t used = 0;
    for (int a = 0; a < bl_algorithm_count && used < sizeof names; a++) {
        enum bl_reason ignored;
        if (bl_algorithms[a].collective == r->collective &&
            algorithm_limit(r->build, &bl_algorithms[a], BL_BY_LINES, &ignored))
            used +=
                (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", bl_algorithms[a].name);
    }
    snprintf(text, sizeof text, "cannot serve this communicator (%s); what can", bl_reason_text(why));
    warn_said(r, bl_kernel_name(bl_algorithms[algorithm].kernel[spread]), text, names);
}

/* How far a row reaches on this communicator. */
static uint64_t reach(const struct bl_tuning_row *row, const struct bl_facts *facts) {
    return scale(row->max_bytes, row->algorithm, row->ranks, facts->nranks);
}

/* The row for this algorithm and this size, or a larger one, or any; NULL: there is none. */
static const struct bl_tuning_row *as_measured(const struct build *build, int algorithm, uint64_t bytes) {
    const struct bl_tuning_row *found = NULL;
    for (int p = 0; p < PICKS; p++) {
        const struct pick *pick = &build->pick[p][bl_algorithms[algorithm].collective];
        for (int i = 0; i < pick->rows; i++) {
            if (pick->row[i].algorithm != algorithm) continue;
            found = &pick->row[i];
            if (reach(found, build->facts) >= bytes) return found;
        }
    }
    return found;
}

/* How the kernel of what is said works: as the row says that was measured, if there is one.  Alone it has all the blocks that there
 * are, however it spreads. */
static struct bl_tuning_row said_row(const struct build *build, const struct bl_routes_row *said,
                                     const struct bl_tuning_row *measured, bool alone) {
    const enum bl_kernel *kernel = bl_algorithms[said->algorithm].kernel;
    struct bl_tuning_row row = {.algorithm = said->algorithm};
    if (said->spread != BL_NO_SPREAD)
        row.spread = (enum bl_spread)said->spread;
    else if (measured && has_threads(build->facts, kernel[measured->spread]))
        row.spread = measured->spread;
    if (measured && !alone) {
        row.blocks = measured->blocks;
        row.threads = measured->threads;
    }
    return row;
}

static bool works_alike(const struct bl_tuning_row *a, const struct bl_tuning_row *b) {
    return a->spread == b->spread && a->blocks == b->blocks && a->threads == b->threads;
}

/* The row of what is said above `from`.  Returns up to which size. */
static uint64_t said_above(const struct build *build, const struct bl_routes_row *said, bool alone, uint64_t from,
                           struct bl_tuning_row *row) {
    uint64_t to = from;
    while (to < said->max_bytes) {
        const struct bl_tuning_row *measured = as_measured(build, said->algorithm, to + 1);
        const struct bl_tuning_row next = said_row(build, said, measured, alone);
        const uint64_t end = measured ? reach(measured, build->facts) : 0;
        if (to > from && !works_alike(row, &next)) break;
        *row = next;
        to = end > to && end < said->max_bytes ? end : said->max_bytes;
    }
    return to;
}

static void add_said_algorithm(struct ranges *r, const struct bl_routes_row *said, bool alone) {
    struct bl_tuning_row row;
    for (uint64_t to = r->reached; to < said->max_bytes;) {
        to = said_above(r->build, said, alone, to, &row);
        add_algorithm(r, &row, to, to == UINT64_MAX ? BL_REASON_FORCED : BL_REASON_SAID);
    }
}

/* How far the user's own rows reach: 0 if there are none. */
static uint64_t add_said(struct ranges *r) {
    const char *said = r->build->settings->routes[r->collective];
    struct bl_routes routes;
    uint64_t reached = 0;

    if (!said) return 0;
    if (!bl_routes_parse(said, r->collective, &routes)) {
        warn_not_accepted(r, said);
        return 0;
    }
    for (int i = 0; i < routes.rows; i++) {
        const struct bl_routes_row *row = &routes.row[i];
        const enum bl_spread spread = row->spread == BL_BY_WARPS ? BL_BY_WARPS : BL_BY_LINES;
        enum bl_reason why;
        if (row->algorithm == BL_ROUTE_NCCL) {
            add_nccl(r, row->max_bytes, BL_REASON_NCCL_FORCED);
        } else if (algorithm_limit(r->build, &bl_algorithms[row->algorithm], spread, &why)) {
            add_said_algorithm(r, row, routes.rows == 1);
        } else {
            warn_cannot(r, row->algorithm, spread, why);
            continue;
        }
        reached = row->max_bytes;
    }
    return reached;
}

/* Whether all-gathers above LEFT_TO_KERNELS go to the copy engines, because they are asked for and can have them. */
static bool takes_copies(const struct ranges *r) {
    const int copy = bl_algorithm_find(r->collective, "allgather_ce");
    enum bl_reason why;
    return r->build->settings->copy_engines && copy >= 0 &&
           algorithm_limit(r->build, &bl_algorithms[copy], BL_BY_LINES, &why) > LEFT_TO_KERNELS;
}

/* One row, up to `limit` at most. */
static void add_row(struct ranges *r, const struct bl_tuning_row *row, uint64_t limit) {
    const uint64_t reached = reach(row, r->build->facts), max_bytes = reached < limit ? reached : limit;
    if (row->algorithm == BL_ROUTE_NCCL)
        add_nccl(r, max_bytes, BL_REASON_NCCL_TUNED);
    else
        add_algorithm(r, row, max_bytes, BL_REASON_TUNED);
}

/* The rows for sizes above `from`, up to `limit`. */
static void add_rows(struct ranges *r, const struct pick *pick, uint64_t from, uint64_t limit) {
    for (int i = 0; i < pick->rows; i++) {
        const struct bl_tuning_row *row = &pick->row[i];
        const uint64_t max_bytes = reach(row, r->build->facts);
        if (max_bytes > from) add_row(r, row, limit);
        if (max_bytes >= limit) break;
    }
}

/* How far the rows say something; above that the built-in ones hold. */
static uint64_t end_of(const struct pick *pick, const struct bl_facts *facts) {
    return pick->rows ? reach(&pick->row[pick->rows - 1], facts) : 0;
}

/* The plain rows for sizes above `from`, up to `limit`. */
static void add_plain_rows(struct ranges *r, uint64_t from, uint64_t limit) {
    const struct pick *plain = &r->build->pick[PLAIN][r->collective];
    const uint64_t end = end_of(plain, r->build->facts);
    add_rows(r, plain, from, limit);
    if (plain->user && end < limit)
        add_rows(r, &r->build->pick[BUILT_IN][r->collective], from > end ? from : end, limit);
}

/* Rows for multicast lie over the plain ones.  What the switch cannot reduce, and what is above them all, is the plain rows'
 * again. */
static void add_all_rows(struct ranges *r, uint64_t limit) {
    const struct pick *multicast = &r->build->pick[MULTICAST][r->collective];
    uint64_t from = 0;
    for (int i = 0; i < multicast->rows && from < limit; i++) {
        const struct bl_tuning_row *row = &multicast->row[i];
        const uint64_t to = row->max_bytes < limit ? row->max_bytes : limit, reached = r->reached;
        if (row->algorithm != BL_TUNING_PLAIN) add_row(r, row, to);
        if (row->algorithm != BL_ROUTE_NCCL) {
            r->reached = reached; /* for calls that the row does not cover */
            add_plain_rows(r, from, to);
        }
        r->reached = from = to;
    }
    if (from < limit) add_plain_rows(r, from, limit);
}

static void describe_pick(char *text, size_t size, const struct pick *pick, const struct bl_facts *facts) {
    static const char *const gpu_note[GPU_MATCHES] = {[GPU_ARCH] = " (same architecture)", [GPU_NAME] = ""};
    const struct bl_tuning_row *row = &pick->row[0];
    char before[48], after[48] = "";
    snprintf(before, sizeof before, pick->user ? "file %.40s" : "built-in", pick->file);
    if (row->ranks != facts->nranks) snprintf(after, sizeof after, ", extrapolated to %d", facts->nranks);
    snprintf(text, size, "%s: %.40s%s, %d ranks%s", before, row->gpu[0] ? row->gpu : "any GPU",
             row->gpu[0] ? gpu_note[pick->fit.gpu] : "", row->ranks, after);
}

/* Adds where these rows come from; `which`: the words before it. */
static void describe_also(char *text, size_t size, const char *which, const struct pick *pick,
                          const struct bl_facts *facts) {
    const size_t used = strlen(text);
    const int n = pick->rows ? snprintf(text + used, size - used, "%s%s", used ? "; " : "", which) : -1;
    if (n >= 0 && used + (size_t)n < size) describe_pick(text + used + n, size - used - (size_t)n, pick, facts);
}

/* Where the thresholds come from. */
static void describe_source(struct bl_table *table, enum bl_collective collective, const struct build *build) {
    const struct pick *plain = &build->pick[PLAIN][collective];
    const uint64_t end = end_of(plain, build->facts);
    char *text = table->source[collective], above[48], bytes[32];
    const size_t size = sizeof table->source[collective];
    describe_also(text, size, "", plain, build->facts);
    if (plain->user && end < UINT64_MAX) {
        bl_size_format(end, bytes, sizeof bytes);
        snprintf(above, sizeof above, "above %s ", bytes);
        describe_also(text, size, above, &build->pick[BUILT_IN][collective], build->facts);
    }
    describe_also(text, size, "multicast ", &build->pick[MULTICAST][collective], build->facts);
}

static void build_collective(struct bl_table *table, enum bl_collective collective, const struct build *build) {
    struct ranges r = {.build = build, .table = table, .collective = collective};

    const uint64_t said = add_said(&r);
    const bool copies = said != UINT64_MAX && takes_copies(&r);
    add_all_rows(&r, copies ? LEFT_TO_KERNELS : UINT64_MAX);
    if (copies) {
        const struct bl_tuning_row row = {.algorithm = bl_algorithm_find(collective, "allgather_ce")};
        add_algorithm(&r, &row, UINT64_MAX, BL_REASON_COPY_ENGINES);
    }
    add_nccl(&r, UINT64_MAX, build->pick[PLAIN][collective].rows ? BL_REASON_NCCL_TUNED : BL_REASON_UNTUNED);
    if (said)
        snprintf(table->source[collective], sizeof table->source[collective], "forced %.150s",
                 build->settings->routes[collective]);
    else
        describe_source(table, collective, build);
    if (said != UINT64_MAX && build->pick[PLAIN][collective].fit.preference < MEASURED)
        table->unmeasured |= 1u << collective;
}

/* All of a user's file, or nothing: half a file may leave a size to what it was written to prevent. */
static void read_file(struct build *build) {
    const struct bl_tuning_file *file = &build->settings->files[build->place];
    char message[512];
    build->file = file->name;
    build->serial = 0;
    build->fits = false;
    if (!bl_tuning_mistakes(file->text)) {
        bl_tuning_parse(file->name, file->text, visit, build, NULL, NULL);
        if (build->fits || !file->asked || !build->warn) return;
        char section[BL_SECTION];
        bl_facts_section(build->facts, section);
        snprintf(message, sizeof message, "%.200s has no section for this box, which is: %s", file->name, section);
    } else {
        bl_tuning_parse(file->name, file->text, NULL, NULL, build->warn, build->arg);
        snprintf(message, sizeof message, "%.200s is not used, because of its mistakes", file->name);
    }
    if (build->warn) build->warn(build->arg, message);
}

void bl_table_build(struct bl_table *table, const struct bl_facts *facts, const struct bl_settings *settings,
                    void (*warn)(void *arg, const char *message), void *arg) {
    static const struct bl_settings none;
    if (!settings) settings = &none;
    struct build build = {.facts = facts, .settings = settings, .warn = warn, .arg = arg};

    memset(table, 0, sizeof *table); /* padding too: the table travels as bytes */
    table->nranks = facts->nranks;
    table->arch = facts->arch;
    table->layout = facts->layout;
    table->fuse_max = settings->fuse_max;
    bl_facts_section(facts, table->section);
    build.place = -1;
    for (size_t i = 0; i < sizeof bl_builtin_tunings / sizeof *bl_builtin_tunings; i++) {
        build.file = bl_builtin_tunings[i].name;
        bl_tuning_parse(build.file, bl_builtin_tunings[i].text, visit, &build, warn, arg);
        build.serial += 1 << 16;
    }
    for (build.place = 0; build.place < settings->file_count; build.place++) read_file(&build);
    for (int c = 0; c < BL_COLLECTIVES; c++) build_collective(table, c, &build);
}
