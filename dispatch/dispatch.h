/* dispatch.h - which algorithm serves a call: a table of rows, a pure function that picks, and the reason for its pick.
 *
 * No CUDA call, no environment, no log, no lock: everything is a function of its arguments.  A struct bl_table is plain
 * data without pointers; rank 0 of a communicator builds it and every rank gets those bytes, so every rank picks alike.
 */
#ifndef BEELINE_DISPATCH_H
#define BEELINE_DISPATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels.h"

/* How GPUs are joined, the worst first. */
enum bl_link {
#define BL_LINK(link, name, words, why) BL_LINK_##link,
#include "links.def"
#undef BL_LINK
    BL_LINKS
};

/* The facts that a table is built from; equal on all ranks (agreed at set-up). */
struct bl_facts {
    int nranks;
    int arch;                 /* 90 for sm_90; the lowest of the ranks */
    enum bl_link link;        /* bl_link_class of all pairs */
    unsigned nvlinks;         /* of a GPU; the fewest of the ranks; 0: not known */
    bool nccl_nvls;           /* NCCL may use NVLink multicast */
    bool zero_ctas;           /* what NCCL can do without multiprocessors is NCCL's (the zero-CTA policy) */
    bool multicast;           /* the communicator has a multicast object */
    unsigned multiprocessors; /* of the rank that has fewest */
    unsigned most_blocks;     /* of a launch: as many, or maxCTAs if less */
    unsigned max_threads;     /* per block; the fewest of the ranks, at most BL_MAX_THREADS */
    unsigned block_memory;    /* bytes that a launch may give a block; likewise */
    char gpu[64];             /* "NVIDIA H200"; rank 0's */
    struct bl_staging_layout layout;
};

/* What the user set (from the environment of rank 0); zero or "" is unset. */
struct bl_settings {
    const char *routes[BL_COLLECTIVES]; /* as bl_routes_parse reads them; NULL: nothing */
    uint64_t fuse_max;                  /* largest call that shares a launch with others of its group; 0: none does */
    bool copy_engines;                  /* all-gathers are to leave the multiprocessors alone */
    bool deterministic;                 /* what the switch adds, in an order of its own, is left out */
    bool batch_invariant;               /* the same, and no size of what reduces is left to NCCL */
    bool short_of_staging;              /* it is less than asked for: what it cannot carry at once is NCCL's */
    const struct bl_tuning_file *files; /* in order of preference, before the built-in ones */
    int file_count;
};

/* A tuning file that is not built in. */
struct bl_tuning_file {
    const char *name, *text; /* its path, for messages; its content */
    bool asked;              /* it was named for this job: it is worth a message that it says nothing of this box */
};

/* How a kernel shares its work out: the lanes that carry a line carry it for all peers, or a warp has a peer or two. */
enum bl_spread { BL_BY_LINES, BL_BY_WARPS, BL_SPREADS };

/* One algorithm: what it covers (bl_algorithm_covers) and what it needs.  The rows are those of algorithms.def, in order of preference. */
struct bl_algorithm {
    const char *name; /* "oneshot_ll"; what BEELINE_ALLREDUCE and tuning files say */
    enum bl_collective collective;
    enum bl_kernel kernel[BL_SPREADS]; /* by warps BL_KERNEL_NONE, if there is none */
    enum bl_kernel batch;              /* does the same for several messages, or BL_KERNEL_NONE */
    enum bl_kernel few;                /* stands for it where these are at most BL_BATCH_FEW, or BL_KERNEL_NONE */
    unsigned traits;                   /* enum bl_trait */
};

/* Lines of a tuning file that are not accepted, as far as they are counted one by one. */
int bl_tuning_mistakes(const char *text);

/* Why a route was picked; the texts are in reason.def. */
enum bl_reason {
#define BL_REASON(name, text) BL_REASON_##name,
#include "reason.def"
#undef BL_REASON
    BL_REASONS
};

const char *bl_link_name(enum bl_link link);  /* "nvlink", as tuning files say */
const char *bl_link_words(enum bl_link link); /* "NVLink, all to all" */
enum bl_link bl_link_find(const char *name);  /* BL_LINKS: none is called so */

/* Of a communicator, from the worst and the best of its pairs. */
enum bl_link bl_link_class(enum bl_link worst, enum bl_link best);

/* Why NCCL serves GPUs that are joined so; BL_REASON_TUNED: Beeline may. */
enum bl_reason bl_link_why(enum bl_link link);

static inline bool bl_link_serves(enum bl_link link) {
    return bl_link_why(link) == BL_REASON_TUNED;
}

/* The line of tuning files that is for these facts and no others, but for `multicast`: the fingerprint of the box. */
enum { BL_SECTION = 128 };
void bl_facts_section(const struct bl_facts *facts, char text[BL_SECTION]);

enum { BL_ROUTE_NCCL = -1, BL_MAX_RANGES = 168 };

/* Up to and including max_bytes, `algorithm` (an index of bl_algorithms, or BL_ROUTE_NCCL).  What the algorithm cannot
 * do at all on this communicator (ranks, capabilities, staging) is already cut off from max_bytes. */
struct bl_range {
    uint64_t max_bytes;
    int32_t algorithm;
    uint32_t max_blocks;
    uint16_t threads, spread; /* enum bl_spread */
    uint32_t reason;          /* enum bl_reason */
};

struct bl_table {
    int32_t nranks, arch;
    struct bl_staging_layout layout;
    uint64_t fuse_max;         /* as in bl_settings */
    uint64_t moved_by_kernels; /* bytes of a block of a gather or scatter: more has NCCL copy engines for (zero_ctas) */
    uint32_t most_blocks, most_threads; /* of a launch, and of a block */
    uint32_t
        unmeasured; /* collectives, 1 << enum bl_collective each, whose thresholds are of other boxes or numbers of ranks */
    uint32_t invariant; /* likewise, of which every size is to have the same bits */
    uint32_t ranges[BL_COLLECTIVES];
    /* The first that holds the bytes and covers datatype and operation serves; the last is NCCL up to UINT64_MAX. */
    struct bl_range range[BL_COLLECTIVES][BL_MAX_RANGES];
    /* Where the thresholds come from: "built-in: NVIDIA H200, 4 ranks", "file PATH", ... */
    char source[BL_COLLECTIVES][192];
    char section[BL_SECTION]; /* bl_facts_section */
};

/* A call, in facts that are equal on all ranks.  count is as in the NCCL call: of all-reduce, the elements of a buffer;
 * of all-gather, reduce-scatter and all-to-all, those of a rank's block.  Ranges are in bytes of count elements. */
struct bl_request {
    enum bl_collective collective;
    uint64_t count;
    int datatype; /* ncclDataType_t as given: may be unknown */
    int redop;    /* ncclRedOp_t as given: may be a custom operator; BL_SUM for collectives without one */
    int root;     /* as given: may be no rank at all; 0 for collectives without one */
};

struct bl_route {
    int algorithm; /* index of bl_algorithms, or BL_ROUTE_NCCL */
    enum bl_kernel kernel;
    unsigned blocks, threads;
    enum bl_reason why;
    const char *reason; /* its text: static, never NULL */
};

extern const struct bl_algorithm bl_algorithms[];
extern const int bl_algorithm_count;

/* The index, BL_ROUTE_NCCL for "nccl", BL_NO_ALGORITHM if there is no such algorithm. */
enum { BL_NO_ALGORITHM = -2 };
int bl_algorithm_find(enum bl_collective collective, const char *name);
void bl_algorithm_list(enum bl_collective collective, char *text, size_t size); /* "oneshot_ll, oneshot_ll128, ..." */

/* Of "lines" and "warps". */
enum { BL_NO_SPREAD = -1 };
int bl_spread_find(const char *name);

/* Of a range that is not NCCL's; its name says the spread, too. */
static inline enum bl_kernel bl_range_kernel(const struct bl_range *range) {
    return bl_algorithms[range->algorithm].kernel[range->spread];
}

/* Whether so many ranks carry long messages in pieces about as fast as NCCL does, or faster: measured on 2 to 4 H200, taken for any GPU with bulk copies. */
static inline bool bl_suits_pieces(int nranks, int arch) {
    return nranks <= 4 && arch >= 90;
}

/* Whether it can do these on GPUs of this architecture. */
static inline bool bl_algorithm_covers(const struct bl_algorithm *algorithm, int arch, int datatype, int redop) {
    return !(algorithm->traits & BL_BY_SWITCH) || (bl_multimem_redops(datatype, arch) >> redop & 1) != 0;
}

/* A size as users say it, "16K": digits, and maybe one of K, M and G.  Moves *at on; false if there are no digits, or too many. */
bool bl_size_read(const char **at, uint64_t *bytes);
void bl_size_format(uint64_t bytes, char *text, size_t size); /* in the largest unit that divides it */

/* What a user says of one collective: "..16K oneshot_ll | ..24M twoshot_ll128 | nccl", as bl_table_describe says it, too (0 before
 * the first .. and .. before the last name may be there or not); or one name, for all sizes.  Above the last size the thresholds hold.
 * Where an algorithm has kernels of both spreads, :lines or :warps behind the name chooses, else the thresholds do. */
enum { BL_ROUTES_ROWS = 16 };
struct bl_routes {
    int rows;
    struct bl_routes_row {
        uint64_t max_bytes; /* above that of the row before; UINT64_MAX: all that is left */
        int algorithm;      /* or BL_ROUTE_NCCL */
        int spread;         /* or BL_NO_SPREAD: as tuned */
    } row[BL_ROUTES_ROWS];
};
bool bl_routes_parse(const char *text, enum bl_collective collective, struct bl_routes *routes);

/* Builds the table.  Settings that do not make sense are skipped, and files that have mistakes, with messages that are handed to
 * `warn` (which may be NULL); the table is still valid. */
void bl_table_build(struct bl_table *table, const struct bl_facts *facts, const struct bl_settings *settings,
                    void (*warn)(void *arg, const char *message), void *arg);

/* True for every table that bl_table_build makes: to be asked of one that came over a wire, before it is used. */
bool bl_table_valid(const struct bl_table *table);

/* Raises bytes[kernel] to the most that calls bring to it in a launch, or several of a group together. */
void bl_table_uses(const struct bl_table *table, uint64_t bytes[BL_KERNELS]);

/* Picks.  Pure; a few dozen nanoseconds. */
void bl_table_select(const struct bl_table *table, const struct bl_request *request, struct bl_route *route);
const char *bl_reason_text(enum bl_reason reason); /* static text, never NULL */

/* The route that `range` gives to `bytes` on `kernel`, one of its algorithm's. */
void bl_range_route(const struct bl_table *table, const struct bl_range *range, enum bl_kernel kernel, uint64_t bytes,
                    struct bl_route *route);

/* --- calls of one group --- */

/* What a group has of one collective on one communicator. */
struct bl_together {
    const struct bl_table *table;
    enum bl_collective collective;
    uint64_t end;                   /* bytes of the largest call that is Beeline's by lines */
    unsigned calls;                 /* of Beeline's */
    unsigned in_pieces;             /* of them; what follows is of those by lines */
    unsigned alone;                 /* those too large to share a launch */
    uint64_t bytes, bytes_alone;    /* of all, of those; each counted as in its call */
    uint64_t of_root[BL_MAX_RANKS]; /* of broadcasts and reduces: those of each root */
    bool beside_larger;             /* there are others, which are too large for Beeline */
};

void bl_together_begin(struct bl_together *together, const struct bl_table *table, enum bl_collective collective);

/* One more of Beeline's, of no more bytes than can be counted, by this kernel alone; or of those that are NCCL's for their size.  Its root is a rank,
 * or 0. */
void bl_together_add(struct bl_together *together, const struct bl_request *request, enum bl_kernel kernel);
void bl_together_add_nccls(struct bl_together *together, const struct bl_request *request);

/* Whether Beeline's calls, too, are to go to NCCL, which has all at once and is faster, or as fast.  A pure function of the table and of what was
 * added, in whatever order. */
bool bl_together_is_nccls(const struct bl_together *together);

/* Messages for one launch; of one datatype and operation if it reduces. */
struct bl_batch {
    enum bl_collective collective;
    int datatype, redop;
    uint32_t messages;
    uint64_t lines; /* lines of each, in all */
    uint64_t span; /* of broadcasts and reduces those of the root that has most, else all: what the staging must hold */
};

/* Up to how many bytes, of broadcasts and reduces of each root, a launch of several calls has the range's algorithm: max_bytes, or more where NCCL is
 * tuned for single calls of more. */
uint64_t bl_range_batch_reach(const struct bl_table *table, enum bl_collective collective,
                              const struct bl_range *range);

/* False if no algorithm that has a kernel for it serves that much, or if another algorithm is forced. */
bool bl_table_select_batch(const struct bl_table *table, const struct bl_batch *batch, struct bl_route *route);

/* The bytes of a call that may share a launch, else 0. */
uint64_t bl_fusable_bytes(const struct bl_table *table, const struct bl_request *request);

/* Is told of the calls that one communicator gets in one group, one after another, and says which of them follow which
 * in a launch.  Pure: the answers follow from the table and the requests. */
struct bl_fuser {
    const struct bl_table *table;
    struct bl_fuser_open {
        int last;
        uint32_t messages;
        uint64_t lines, span;
    } open[BL_COLLECTIVES][BL_DATATYPES][BL_REDOPS]; /* the launch that the next call of its kind would join */
    /* Lines of each root in it: of broadcasts, of reduces; where there is one. */
    uint32_t of_root[2][BL_DATATYPES][BL_REDOPS][BL_MAX_RANKS];
};

enum { BL_FUSE_BEGINS = -1 };

void bl_fuser_begin(struct bl_fuser *fuser, const struct bl_table *table);

/* The next call, one that Beeline serves, with a number of the caller's from 0 on.  Returns the number of the call that it
 * follows, in the same launch, whose route *route is then, or BL_FUSE_BEGINS: it begins one.  A call alone in its launch keeps its
 * own route. */
int bl_fuser_add(struct bl_fuser *fuser, const struct bl_request *request, int number, struct bl_route *route);

/* Launches of one communicator in one group that go out as one, of several collectives.  Its calls are of one datatype and operation, as far as they reduce. */
struct bl_mix {
    const struct bl_table *table;
    struct bl_mixed has;
    uint64_t block_lines; /* of what has a block of each rank */
    uint32_t collectives; /* of which it has a launch, 1 << enum bl_collective each: no second one joins */
    bool reduces;
    int datatype, redop;
};

void bl_mix_begin(struct bl_mix *mix, const struct bl_table *table);

/* One more call, with the route that its launch has without the others; false: it cannot be in this launch, and nothing is to be asked of *mix any
 * more. */
bool bl_mix_add(struct bl_mix *mix, const struct bl_request *request, const struct bl_route *route);

/* Whether a launch has room for all that was added. */
bool bl_mix_fits(const struct bl_mix *mix);

/* Whether it is as fast as the launches that it saves: with all-gathers and reduce-scatters of much for each of several peers it is not. */
bool bl_mix_pays(const struct bl_mix *mix);

/* The route of all of them. */
void bl_mix_route(const struct bl_mix *mix, struct bl_route *route);

/* Human-readable listing of one collective's ranges, those together that differ in blocks or threads alone:
 * "0..16K oneshot_ll | ..256K oneshot_ll128 | .. nccl".  Truncates. */
void bl_table_describe(const struct bl_table *table, enum bl_collective collective, char *text, size_t size);

#endif
