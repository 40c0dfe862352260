/* pick.c - see pick.h. */
#include "pick.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "thresholds.h" /* generated: bl_builtin_tunings */

/* How well a section's GPU fits. */
enum gpu_match { GPU_OTHER, GPU_ANY, GPU_ARCH, GPU_NAME, GPU_MATCHES };

/* How a row's file, number of ranks and GPU rank together: higher is better, 0 is no candidate.  Rows for this number
 * of ranks come before rows for another; of those, the user's before built-in ones; `gpu any` of the built-in ones is
 * last.  What is built in for another GPU of the architecture says nothing of this one. */
enum { MEASURED = 4 }; /* here, with so many ranks, or it is the user's word; from so much on */
static const int preference[2][2][GPU_MATCHES] = {
    /* built-in */ {/* other ranks */ {0, 1, 0, 2}, /* these ranks */ {0, 1, 0, MEASURED}},
    /* user's   */ {/* other ranks */ {0, 3, 3, 3}, /* these ranks */ {0, 5, 5, 5}},
};

/* The file that is read. */
struct reading {
    const struct bl_facts *facts;
    void (*warn)(void *arg, const char *message);
    void *arg;
    struct bl_picks *picks;
    const char *file;
    int place;  /* the file's among the user's; -1: it is built in */
    int serial; /* of the file's first section: built-in sections count on from file to file */
    bool fits;  /* the file has a section for this box */
};

/* Negative, 0 or positive as a is worse than, like or better than b.  Between 4 and 8 ranks for 6, the 8: its
 * thresholds are the more careful.  Of equals the later wins. */
static int compare(const struct bl_fit *a, const struct bl_fit *b) {
    if (a->preference != b->preference) return a->preference - b->preference;
    if (a->file != b->file) return b->file - a->file;
    if (a->distance != b->distance) return b->distance - a->distance;
    if (a->ranks != b->ranks) return a->ranks - b->ranks;
    if (a->gpu != b->gpu) return a->gpu - b->gpu;
    return a->serial - b->serial;
}

/* A row for its collective's pick: of a better section than that has, of the same, or of a worse one. */
static void offer(const struct reading *reading, struct bl_pick *pick, const struct bl_fit *fit,
                  const struct bl_tuning_row *row) {
    const int better = pick->rows ? compare(fit, &pick->fit) : 1;
    if (!fit->preference || better < 0) return;
    if (better > 0) {
        pick->fit = *fit;
        pick->rows = 0;
        pick->file = reading->file;
        pick->user = reading->place >= 0;
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
    struct reading *reading = arg;
    const struct bl_facts *facts = reading->facts;
    struct bl_pick(*pick)[BL_COLLECTIVES] = reading->picks->pick;
    const bool user = reading->place >= 0;
    const enum gpu_match gpu = match(row, facts);
    if (gpu != GPU_OTHER) reading->fits = true;
    if (row->multicast && !facts->multicast) return;
    /* What more ranks gain is a careful guess for fewer, and not the reverse; but the more ranks, the more a multicast object helps. */
    const bool bold = row->multicast ? row->ranks > facts->nranks : row->ranks < facts->nranks;
    if (bold && (row->multicast || (!user && gpu == GPU_NAME))) return;
    struct bl_fit fit = {
        .preference = preference[user][row->ranks == facts->nranks][gpu],
        .file = reading->place,
        .distance = abs(row->ranks - facts->nranks),
        .ranks = row->ranks,
        .gpu = (int)gpu,
        .serial = reading->serial + row->section,
    };
    offer(reading, &pick[row->multicast ? BL_PICK_MULTICAST : BL_PICK_PLAIN][row->collective], &fit, row);
    if (!row->multicast && !user) offer(reading, &pick[BL_PICK_BUILT_IN][row->collective], &fit, row);
}

/* A threshold measured with `from` ranks, for `to` ranks: what goes to each peer, or comes from each, grows with their number. */
static uint64_t scale(uint64_t max_bytes, int algorithm, int from, int to) {
    if (max_bytes == UINT64_MAX || algorithm < 0 || !(bl_algorithms[algorithm].traits & BL_EACH_PEER)) return max_bytes;
    uint64_t peers = to - 1, whole = max_bytes / peers, rest = max_bytes % peers, scaled;
    if (__builtin_mul_overflow(whole, (uint64_t)(from - 1), &scaled)) return max_bytes;
    return scaled + rest * (uint64_t)(from - 1) / peers;
}

uint64_t bl_pick_reach(const struct bl_tuning_row *row, const struct bl_facts *facts) {
    return scale(row->max_bytes, row->algorithm, row->ranks, facts->nranks);
}

uint64_t bl_pick_end(const struct bl_pick *pick, const struct bl_facts *facts) {
    return pick->rows ? bl_pick_reach(&pick->row[pick->rows - 1], facts) : 0;
}

bool bl_pick_measured(const struct bl_pick *pick) {
    return pick->fit.preference >= MEASURED;
}

static void describe_pick(char *text, size_t size, const struct bl_pick *pick, const struct bl_facts *facts) {
    static const char *const gpu_note[GPU_MATCHES] = {[GPU_ARCH] = " (same architecture)", [GPU_NAME] = ""};
    const struct bl_tuning_row *row = &pick->row[0];
    char before[48], after[48] = "";
    snprintf(before, sizeof before, pick->user ? "file %.40s" : "built-in", pick->file);
    if (row->ranks != facts->nranks) snprintf(after, sizeof after, ", extrapolated to %d", facts->nranks);
    snprintf(text, size, "%s: %.40s%s, %d ranks%s", before, row->gpu[0] ? row->gpu : "any GPU",
             row->gpu[0] ? gpu_note[pick->fit.gpu] : "", row->ranks, after);
}

/* Adds where these rows come from; `which`: the words before it. */
static void describe_also(char *text, size_t size, const char *which, const struct bl_pick *pick,
                          const struct bl_facts *facts) {
    const size_t used = strlen(text);
    const int n = pick->rows ? snprintf(text + used, size - used, "%s%s", used ? "; " : "", which) : -1;
    if (n >= 0 && used + (size_t)n < size) describe_pick(text + used + n, size - used - (size_t)n, pick, facts);
}

void bl_picks_describe(const struct bl_picks *picks, enum bl_collective collective, const struct bl_facts *facts,
                       char *text, size_t size) {
    const struct bl_pick *plain = &picks->pick[BL_PICK_PLAIN][collective];
    const uint64_t end = bl_pick_end(plain, facts);
    char above[48], bytes[32];
    if (size) *text = 0;
    describe_also(text, size, "", plain, facts);
    if (plain->user && end < UINT64_MAX) {
        bl_size_format(end, bytes, sizeof bytes);
        snprintf(above, sizeof above, "above %s ", bytes);
        describe_also(text, size, above, &picks->pick[BL_PICK_BUILT_IN][collective], facts);
    }
    describe_also(text, size, "multicast ", &picks->pick[BL_PICK_MULTICAST][collective], facts);
}

/* All of a user's file, or nothing: half a file may leave a size to what it was written to prevent. */
static void read_file(struct reading *reading, const struct bl_tuning_file *file) {
    char message[512];
    reading->file = file->name;
    reading->serial = 0;
    reading->fits = false;
    if (!bl_tuning_mistakes(file->text)) {
        bl_tuning_parse(file->name, file->text, visit, reading, NULL, NULL);
        if (reading->fits || !file->asked || !reading->warn) return;
        char section[BL_SECTION];
        bl_facts_section(reading->facts, section);
        snprintf(message, sizeof message, "%.200s has no section for this box, which is: %s", file->name, section);
    } else {
        bl_tuning_parse(file->name, file->text, NULL, NULL, reading->warn, reading->arg);
        snprintf(message, sizeof message, "%.200s is not used, because of its mistakes", file->name);
    }
    if (reading->warn) reading->warn(reading->arg, message);
}

void bl_picks_make(struct bl_picks *picks, const struct bl_facts *facts, const struct bl_settings *settings,
                   void (*warn)(void *arg, const char *message), void *arg) {
    struct reading reading = {.facts = facts, .warn = warn, .arg = arg, .picks = picks, .place = -1};
    memset(picks, 0, sizeof *picks);
    for (size_t i = 0; i < sizeof bl_builtin_tunings / sizeof *bl_builtin_tunings; i++) {
        reading.file = bl_builtin_tunings[i].name;
        bl_tuning_parse(reading.file, bl_builtin_tunings[i].text, visit, &reading, warn, arg);
        reading.serial += 1 << 16;
    }
    for (reading.place = 0; reading.place < settings->file_count; reading.place++)
        read_file(&reading, &settings->files[reading.place]);
}
