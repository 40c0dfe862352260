/* table.c - builds a communicator's table: what the user says, and the tuning rows that fit it best, cut to what each
 * algorithm can do. */
#include "pick.h"

#include <stdio.h>
#include <string.h>

/* Two blocks of 256 threads of any kernel, or 512 of a short one, fit on a multiprocessor: two communicators may then run at once. */
enum { DEFAULT_THREADS = 256 };

/* A kernel that is over in some microseconds takes less from others than a hand-over to copy engines, of Beeline or of NCCL, takes time.  And up
 * to the second size, with 2 GPUs, tuned kernels are over sooner than Beeline's copy engines beside a product, too, and those behind NCCL
 * alone (docs/benchmarks/h200-x2-2026-11-29.md). */
static const uint64_t LEFT_TO_KERNELS = 128 << 10, LEFT_BY_COPIES = 8 << 20;

/* What a block carries no later than one of NCCL's, as measured with 4, 8, 16, 24, 32 and 48 blocks on both sides: between two ranks
 * (docs/benchmarks/h200-x2-2026-11-26.md), and of few, 3 and 4 (h200-x4-2026-11-26.md); of messages to all peers together.  Blocks
 * had 256 threads: of few ranks rows with 128 gain up to here, too, if they take no longer than 256 do for twice the bytes. */
static const struct {
    uint64_t two, few;
} for_a_block[BL_COLLECTIVES] = {
    [BL_ALLREDUCE] = {128 << 10, 4 << 10},     [BL_ALLGATHER] = {128 << 10, 2 << 10},
    [BL_REDUCESCATTER] = {128 << 10, 2 << 10}, [BL_ALLTOALL] = {128 << 10, 2 << 10},
    [BL_BROADCAST] = {128 << 10, 8 << 10},     [BL_REDUCE] = {128 << 10, 8 << 10},
    [BL_SENDRECV] = {64 << 10, 64 << 10},
};

/* Of more ranks it was not: so little that little can be lost, what the fewest senders send to all peers in 3 us. */
static const uint64_t FOR_A_BLOCK_OF_MANY = 8 << 10;

/* Where lines may have few blocks only, pieces begin no sooner: what comes before the first of them is stored takes 16 us, and 26 of an
 * all-reduce, whose sums go on.  By 16 and 24 blocks all-reduces of 16M were 0.97 and 1.05 times as fast as NCCL's by as many, of 64M 1.06 and
 * 1.14, and the others from 32M a rank on 1.01 to 1.43 times (docs/benchmarks/h200-x2-2026-11-29.md); between, nothing was measured. */
static const uint64_t LEAST_IN_PIECES = 8 << 20, LEAST_SUMMED_IN_PIECES = 24 << 20;
/* Much shorter rings than thresholds were measured with do not fill the links: of a stream's from all peers, together, the least. */
static const uint64_t LEAST_TUNED_RING = 2 << 20, LEAST_TUNED_RINGS = 6 << 20;

static const uint64_t LONGEST_MESSAGE = (uint64_t)1 << 40; /* of algorithms that take messages in pieces */

/* Copies between GPUs of one call of allgather_ce: each is three entries of a stream's queue, which is said to have room for 1024.
 * Where it is full the thread waits, and may be the one that has to launch on the other GPUs before it moves. */
static const uint64_t MOST_COPIES = 256;

struct build {
    const struct bl_facts *facts;
    const struct bl_settings *settings;
    void (*warn)(void *arg, const char *message);
    void *arg;
    struct bl_picks picks;
};

/* Whether all sizes of it are to have the bits of sums in rank order. */
static bool is_invariant(const struct build *build, enum bl_collective collective) {
    return build->settings->batch_invariant && bl_collective_has(collective, BL_REDUCES);
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
    const unsigned least = bl_kernel_threads(kernel, facts->nranks, 0);
    return least <= most_threads(facts) && bl_kernel_threads_in(kernel, least, facts->block_memory) > 0;
}

/* Where the staging has none, or short ones. */
static enum bl_reason why_no_rings(const struct build *build) {
    return build->settings->short_of_staging ? BL_REASON_BUDGET : BL_REASON_NO_RINGS;
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
    const bool in_order = build->settings->deterministic || build->settings->batch_invariant;
    if (algorithm->traits & BL_BY_SWITCH && in_order) return 0;
    *reason = BL_REASON_RANKS;
    if (facts->nranks < 2 || facts->nranks > BL_MAX_RANKS) return 0;
    *reason = BL_REASON_THREADS;
    if (!has_threads(facts, kernel)) return 0;
    uint64_t capacity = bl_kernel_capacity(kernel, facts->nranks, &facts->layout);
    *reason = bl_kernel_bulk(kernel) ? why_no_rings(build) : BL_REASON_NO_SLOTS;
    if (!capacity) return 0;
    const bool whole = build->settings->short_of_staging && !is_invariant(build, algorithm->collective);
    if (whole)
        ; /* no pieces */
    else if (kernel == BL_KERNEL_ALLGATHER_CE)
        capacity *= MOST_COPIES / (uint64_t)(facts->nranks - 1);
    else if (bl_kernel_in_pieces(kernel, facts->nranks))
        capacity = LONGEST_MESSAGE;
    *reason = whole ? BL_REASON_BUDGET : BL_REASON_STAGING;
    return capacity;
}

/* Blocks that messages gain by: of theirs, where they are longer than a quad a warp, the warps of a stream are a power of two. */
static uint64_t power_of_two_in(uint64_t n) {
    uint64_t power = 1;
    while (2 * power <= n) power *= 2;
    return power;
}

/* Most bytes that so few blocks carry: of a rank, where there is a block of each. */
static uint64_t carried(enum bl_collective collective, unsigned nranks, uint64_t blocks) {
    const uint64_t peers = nranks - 1;
    if (nranks > 4) return FOR_A_BLOCK_OF_MANY * blocks / peers;
    const uint64_t each = nranks == 2 ? for_a_block[collective].two : for_a_block[collective].few;
    return bl_collective_has(collective, BL_PAIRED) ? each * power_of_two_in(blocks) / peers : each * blocks;
}

/* In pieces, by few blocks: which pays where that was measured. */
static bool is_bulk(int algorithm) {
    return bl_kernel_bulk(bl_algorithms[algorithm].kernel[BL_BY_LINES]);
}

/* Most bytes for a row that was measured with more blocks than a launch may have: half of them take 3 to 16 % longer, less is out of
 * proportion; of pieces, which have few anyhow, two thirds are no slower than as many of NCCL's. */
static uint64_t narrow_limit(const struct build *build, const struct bl_tuning_row *row) {
    const struct bl_facts *facts = build->facts;
    const unsigned measured = row->blocks ? row->blocks : facts->multiprocessors;
    const struct bl_algorithm *algorithm = &bl_algorithms[row->algorithm];
    const bool engines = algorithm->kernel[row->spread] == BL_KERNEL_ALLGATHER_CE;
    const bool enough =
        is_bulk(row->algorithm) ? 3 * facts->most_blocks >= 2 * measured : 2 * facts->most_blocks >= measured;
    if (engines || enough) return UINT64_MAX;
    return carried(algorithm->collective, (unsigned)facts->nranks, facts->most_blocks);
}

static bool has_rings(const struct bl_facts *facts) {
    const uint64_t ring = facts->layout.bulk_bytes;
    return ring >= LEAST_TUNED_RING || ring * (uint64_t)(facts->nranks - 1) >= LEAST_TUNED_RINGS;
}
/* From where on pieces may be worth while. */
static uint64_t least_in_pieces(enum bl_collective collective) {
    return collective == BL_ALLREDUCE ? LEAST_SUMMED_IN_PIECES : LEAST_IN_PIECES;
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

static void add_most(struct ranges *r, uint64_t max_bytes, bool pieces);

/* Before pieces that a row has up to max_bytes: what lines do not have for want of blocks, and pieces are not worth while for.  False: they are not to be. */
static bool begin_pieces(struct ranges *r, uint64_t limit, uint64_t max_bytes) {
    const uint64_t least = least_in_pieces(r->collective);
    const bool hindered = r->wanted > r->reached && r->hindrance == BL_REASON_NARROW;
    if (limit < max_bytes && limit < LONGEST_MESSAGE) return false;
    if (!hindered || r->reached >= least) return true;
    if (max_bytes <= least) return false;
    if (is_invariant(r->build, r->collective))
        add_most(r, least, false);
    else
        add_nccl_range(r, least, BL_REASON_NARROW);
    return true;
}

/* Adds the algorithm up to max_bytes or its own limit, if there is anything that it can carry. */
static void add_algorithm(struct ranges *r, const struct bl_tuning_row *row, uint64_t max_bytes,
                          enum bl_reason reason) {
    const struct bl_facts *facts = r->build->facts;
    const struct bl_algorithm *algorithm = &bl_algorithms[row->algorithm];
    enum bl_reason hindrance;
    uint64_t limit = algorithm_limit(r->build, algorithm, row->spread, &hindrance);
    /* Who sends longer ones may wait for a receiver where NCCL would not: only if the user says so. */
    const uint64_t most = bl_kernel_unreceived(algorithm->kernel[row->spread], facts->nranks, &facts->layout);
    if (reason == BL_REASON_TUNED && limit > most) {
        limit = most;
        hindrance = BL_REASON_UNRECEIVED;
    }
    const bool pieces = reason == BL_REASON_TUNED && is_bulk(row->algorithm);
    if (pieces && limit && !has_rings(facts)) {
        limit = 0;
        hindrance = why_no_rings(r->build);
    }
    const uint64_t narrow = narrow_limit(r->build, row);
    if (reason == BL_REASON_TUNED && limit > narrow) {
        limit = narrow;
        hindrance = BL_REASON_NARROW;
    }
    unsigned threads = lesser(row->threads ? row->threads : DEFAULT_THREADS, most_threads(facts));
    threads = bl_kernel_threads(algorithm->kernel[row->spread], facts->nranks, threads);
    threads = bl_kernel_threads_in(algorithm->kernel[row->spread], threads, facts->block_memory);
    /* Every block must be resident at once, and needs its epoch word. */
    unsigned blocks = lesser(row->blocks ? row->blocks : facts->most_blocks, at_least_one(facts->most_blocks));
    blocks = lesser(at_least_one(blocks), BL_MAX_BLOCKS);

    /* Where pieces cannot be at all, what is said is why those before them cannot. */
    const bool told = pieces && !limit && r->wanted > r->reached;
    if (limit < max_bytes && max_bytes > r->wanted && !told) {
        r->wanted = max_bytes;
        r->hindrance = hindrance;
    }
    if (pieces && !begin_pieces(r, limit, max_bytes)) return;
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

/* The row for this algorithm and this size, or a larger one, or the largest; NULL: there is none. */
static const struct bl_tuning_row *as_measured(const struct build *build, int algorithm, uint64_t bytes) {
    const struct bl_tuning_row *found = NULL;
    uint64_t farthest = 0;
    for (int p = 0; p < BL_PICKS; p++) {
        const struct bl_pick *pick = &build->picks.pick[p][bl_algorithms[algorithm].collective];
        for (int i = 0; i < pick->rows; i++) {
            const uint64_t reach = bl_pick_reach(&pick->row[i], build->facts);
            if (pick->row[i].algorithm != algorithm || reach <= farthest) continue;
            found = &pick->row[i];
            farthest = reach;
            if (reach >= bytes) return found;
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
        const uint64_t end = measured ? bl_pick_reach(measured, build->facts) : 0;
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

/* Up to which size, in [kept, LEFT_BY_COPIES], the rows have kernels. */
static uint64_t kept_by_rows(const struct ranges *r, enum bl_pick_kind of, uint64_t kept) {
    const struct bl_pick *pick = &r->build->picks.pick[of][r->collective];
    for (int i = 0; i < pick->rows; i++) {
        const uint64_t reach = lesser(bl_pick_reach(&pick->row[i], r->build->facts), LEFT_BY_COPIES);
        if (pick->row[i].algorithm != BL_ROUTE_NCCL && reach > kept) kept = reach;
    }
    return kept;
}

/* All-gathers above are the copy engines', where these are asked for; and none that kernels may not have. */
static uint64_t kept_from_copies(const struct ranges *r) {
    const struct bl_pick *plain = &r->build->picks.pick[BL_PICK_PLAIN][r->collective];
    const bool built_in = plain->user && bl_pick_end(plain, r->build->facts) < LEFT_BY_COPIES;
    if (r->build->facts->zero_ctas) return LEFT_TO_KERNELS;
    const uint64_t kept = kept_by_rows(r, BL_PICK_PLAIN, LEFT_TO_KERNELS);
    return built_in ? kept_by_rows(r, BL_PICK_BUILT_IN, kept) : kept;
}

/* Whether all-gathers above `kept` go to the copy engines, because they are asked for and can have them. */
static bool takes_copies(const struct ranges *r, uint64_t kept) {
    const int copy = bl_algorithm_find(r->collective, "allgather_ce");
    enum bl_reason why;
    return r->build->settings->copy_engines && copy >= 0 &&
           algorithm_limit(r->build, &bl_algorithms[copy], BL_BY_LINES, &why) > kept;
}

/* Whether those above LEFT_TO_KERNELS are NCCL's, whose copy engines move them between symmetric windows. */
static bool takes_no_blocks(const struct ranges *r) {
    return r->build->facts->zero_ctas && bl_collective_has(r->collective, BL_GATHERS);
}

/* What carries most, and of what carries as much the last, which sends fewest bytes; of pieces, if they are not to be left out. */
static void add_most(struct ranges *r, uint64_t max_bytes, bool pieces) {
    struct bl_routes_row said = {.algorithm = BL_ROUTE_NCCL, .spread = BL_NO_SPREAD};
    uint64_t most = 0;
    for (int a = 0; a < bl_algorithm_count; a++) {
        enum bl_reason ignored;
        if (bl_algorithms[a].collective != r->collective || (is_bulk(a) && !pieces)) continue;
        const uint64_t limit = algorithm_limit(r->build, &bl_algorithms[a], BL_BY_LINES, &ignored);
        if (said.algorithm != BL_ROUTE_NCCL && (!limit || limit < most)) continue;
        said.algorithm = a;
        most = limit;
    }
    const struct bl_tuning_row row = said_row(r->build, &said, as_measured(r->build, said.algorithm, max_bytes), false);
    add_algorithm(r, &row, max_bytes, BL_REASON_BATCH_INVARIANT);
}

/* In NCCL's place. */
static void add_in_rank_order(struct ranges *r, uint64_t max_bytes) {
    const struct bl_facts *facts = r->build->facts;
    const uint64_t least = least_in_pieces(r->collective);
    const bool pieces = bl_suits_pieces(facts->nranks, facts->arch) && has_rings(facts) && max_bytes > least;
    if (pieces && r->reached < least) add_most(r, least, false);
    add_most(r, max_bytes, pieces);
}

/* What the rows leave to NCCL. */
static void add_left(struct ranges *r, uint64_t max_bytes, enum bl_reason reason) {
    if (is_invariant(r->build, r->collective)) add_in_rank_order(r, max_bytes);
    add_nccl(r, max_bytes, reason);
}

/* One row, up to `limit` at most. */
static void add_row(struct ranges *r, const struct bl_tuning_row *row, uint64_t limit) {
    const uint64_t reached = bl_pick_reach(row, r->build->facts), max_bytes = reached < limit ? reached : limit;
    if (row->algorithm == BL_ROUTE_NCCL)
        add_left(r, max_bytes, BL_REASON_NCCL_TUNED);
    else
        add_algorithm(r, row, max_bytes, BL_REASON_TUNED);
}

/* The rows for sizes above `from`, up to `limit`. */
static void add_rows(struct ranges *r, const struct bl_pick *pick, uint64_t from, uint64_t limit) {
    for (int i = 0; i < pick->rows; i++) {
        const struct bl_tuning_row *row = &pick->row[i];
        const uint64_t max_bytes = bl_pick_reach(row, r->build->facts);
        if (max_bytes > from) add_row(r, row, limit);
        if (max_bytes >= limit) break;
    }
}

/* The plain rows for sizes above `from`, up to `limit`. */
static void add_plain_rows(struct ranges *r, uint64_t from, uint64_t limit) {
    const struct bl_pick *plain = &r->build->picks.pick[BL_PICK_PLAIN][r->collective];
    const uint64_t end = bl_pick_end(plain, r->build->facts);
    add_rows(r, plain, from, limit);
    if (plain->user && end < limit)
        add_rows(r, &r->build->picks.pick[BL_PICK_BUILT_IN][r->collective], from > end ? from : end, limit);
}

/* Rows for multicast lie over the plain ones.  What the switch cannot reduce, and what is above them all, is the plain rows'
 * again. */
static void add_all_rows(struct ranges *r, uint64_t limit) {
    const struct bl_pick *multicast = &r->build->picks.pick[BL_PICK_MULTICAST][r->collective];
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

/* Where the routes come from. */
static void describe_source(const struct ranges *r, bool said) {
    char *text = r->table->source[r->collective];
    const size_t size = sizeof r->table->source[r->collective];
    if (said)
        snprintf(text, size, "forced %.150s", r->build->settings->routes[r->collective]);
    else
        bl_picks_describe(&r->build->picks, r->collective, r->build->facts, text, size);
    const size_t used = strlen(text);
    if (is_invariant(r->build, r->collective)) snprintf(text + used, size - used, "; BEELINE_BATCH_INVARIANT=1");
}

static void build_collective(struct bl_table *table, enum bl_collective collective, const struct build *build) {
    const struct bl_pick *plain = &build->picks.pick[BL_PICK_PLAIN][collective];
    struct ranges r = {.build = build, .table = table, .collective = collective};

    const uint64_t said = add_said(&r), kept = kept_from_copies(&r);
    const bool copies = said != UINT64_MAX && takes_copies(&r, kept), no_blocks = takes_no_blocks(&r);
    add_all_rows(&r, copies ? kept : no_blocks ? LEFT_TO_KERNELS : UINT64_MAX);
    if (copies) {
        const struct bl_tuning_row row = {.algorithm = bl_algorithm_find(collective, "allgather_ce")};
        add_algorithm(&r, &row, UINT64_MAX, BL_REASON_COPY_ENGINES);
    }
    const enum bl_reason left = plain->rows ? BL_REASON_NCCL_TUNED : BL_REASON_UNTUNED;
    add_left(&r, UINT64_MAX, no_blocks ? BL_REASON_ZERO_CTAS : left);
    describe_source(&r, said != 0);
    if (said != UINT64_MAX && !bl_pick_measured(plain)) table->unmeasured |= 1u << collective;
    if (is_invariant(build, collective)) table->invariant |= 1u << collective;
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
    table->moved_by_kernels = facts->zero_ctas ? LEFT_TO_KERNELS : UINT64_MAX;
    table->most_blocks = at_least_one(lesser(facts->most_blocks, BL_MAX_BLOCKS));
    table->most_threads = most_threads(facts);
    bl_facts_section(facts, table->section);
    bl_picks_make(&build.picks, facts, settings, warn, arg);
    for (int c = 0; c < BL_COLLECTIVES; c++) build_collective(table, c, &build);
}
