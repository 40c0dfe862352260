/* kernels.h - the C launch interface of Beeline's kernels.
 *
 * Everything here is plain data shared by host C, CUDA C and the emulated box.  A kernel takes one argument by value,
 * struct bl_kernel_args, or one of those below for kernels that carry several messages, or struct bl_copy_args.  It is looked
 * up by the name that bl_kernel_symbol() writes, in the fatbin that the plugin embeds.  The values of enum bl_datatype and
 * enum bl_redop are those of nccl.h.
 */
#ifndef BEELINE_KERNELS_H
#define BEELINE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { BL_MAX_RANKS = 16, BL_MAX_BLOCKS = 256, BL_MAX_THREADS = 256 };
/* Of launches for messages between two ranks: pairs.cuh. */
enum {
    BL_PAIR_BLOCKS = 64,
    BL_PAIR_MESSAGES = 64, /* of a launch */
    BL_PAIR_STREAMS = 32,  /* of a launch: to and from each peer, and what is copied */
    BL_PAIR_FEW = 4,       /* of one that has fewer arguments */
    BL_PAIR_THREADS = 512, /* of a block, at most: of a kernel for short messages, else BL_MAX_THREADS */
    BL_PAIR_WARPS = BL_PAIR_THREADS / 32 * BL_PAIR_BLOCKS, /* of a launch */
    BL_PAIR_DEPTH = 24,                                    /* places of a channel, at least */
    BL_PAIR_CHANNELS = 512,                                /* of a ring, at most */
    BL_PAIR_CREDIT = 1 + BL_PAIR_CHANNELS, /* what a receiver tells: when it begins, and for each channel */
    BL_PAIR_AHEAD = 8,                     /* messages of a pair that wait for no receiver: so many does NCCL take */
    BL_PAIR_LAUNCHES = 2 * BL_MAX_RANKS,   /* behind the quads sent to each rank, and those received of each */
    BL_PAIR_WORDS = BL_PAIR_LAUNCHES + 1
};
/* Of launches by bulk copies: bulk.cuh. */
enum {
    BL_BULK_TAKEN,
    BL_BULK_RESULTS,
    BL_BULK_STREAMS,
    BL_BULK_WARP_PIECES = 32 << 10,                 /* bytes of pieces that a warp has stages for */
    BL_BULK_WARP_BYTES = BL_BULK_WARP_PIECES + 512, /* its stages, each somewhat longer */
    BL_BULK_WARP_WORDS = 50,                        /* what else it has of its block's memory: bulk_roles.cuh */
    BL_BULK_LEAST_THREADS = 4 * 32,                 /* a warp for each role, and one that tells */
    BL_BULK_MOST_THREADS = 7 * 32,                  /* whose memory leaves a multiprocessor some for blocks beside */
    BL_BULK_CLAIMS = 4,                             /* what is claimed in a launch */
    BL_BULK_CLAIM_WORDS = 16                        /* from one of them to the next: they are counted up at once */
};
/* Words of a device alone, behind bl_kernel_args.epochs, zero at first. */
enum {
    BL_WORD_EPOCHS = 0,                    /* BL_MAX_BLOCKS pairs: epoch, equal between launches; stop: staging.cuh */
    BL_WORD_CURSORS = 2 * BL_MAX_BLOCKS,   /* BL_MAX_BLOCKS of them, also equal: oneway.cuh */
    BL_WORD_ONEWAYS = 3 * BL_MAX_BLOCKS,   /* one-way launches, likewise */
    BL_WORD_NEXT_LOOK = 4 * BL_MAX_BLOCKS, /* the time of the next look at bl_control */
    BL_WORD_STOP,                          /* not zero: leave */
    BL_WORD_ENDED,                         /* blocks of the running launch that have ended: oneway_end_told */
    BL_WORD_PAIRS,                         /* BL_PAIR_BLOCKS times BL_PAIR_WORDS, also equal: pairs.cuh */
    BL_WORD_BULK = BL_WORD_PAIRS + BL_PAIR_BLOCKS * BL_PAIR_WORDS, /* BL_MAX_BLOCKS for each stream, equal: bulk.cuh */
    BL_WORD_BULK_LAUNCHES = BL_WORD_BULK + BL_BULK_STREAMS * BL_MAX_BLOCKS, /* likewise */
    BL_WORD_BULK_CLAIMS = BL_WORD_BULK_LAUNCHES + BL_MAX_BLOCKS, /* two times BL_BULK_CLAIMS: bulk_roles.cuh */
    BL_LOCAL_WORDS = BL_WORD_BULK_CLAIMS + 2 * BL_BULK_CLAIMS * BL_BULK_CLAIM_WORDS
};
enum {
    BL_LINE_DATA = 128,    /* user data of a line */
    BL_FLAGGED_DATA = 120, /* of one with a flag: of those that go by rings */
    BL_BATCH_MAX = 64,     /* messages of a batch */
    BL_BATCH_FEW = 8,      /* of one that has fewer arguments */
    BL_QUAD = 4,           /* lines that a warp of a bundle carries at a time */
    BL_WARP_RANKS = 2,     /* ranks that it has, at most */
    BL_MULTICAST_WORDS = 2 * BL_MAX_BLOCKS
};

enum bl_datatype {
    BL_INT8,
    BL_UINT8,
    BL_INT32,
    BL_UINT32,
    BL_INT64,
    BL_UINT64,
    BL_FLOAT16,
    BL_FLOAT32,
    BL_FLOAT64,
    BL_BFLOAT16,
    BL_FLOAT8E4M3,
    BL_FLOAT8E5M2,
    BL_DATATYPES
};

enum bl_redop { BL_SUM, BL_PROD, BL_MAX, BL_MIN, BL_AVG, BL_REDOPS };

enum bl_collective {
#define BL_COLLECTIVE(COLLECTIVE, name, words, traits) BL_##COLLECTIVE,
#include "collectives.def"
    BL_COLLECTIVES
};

enum bl_collective_trait {
    BL_REDUCES = 1,  /* else it moves bytes, whatever the datatype is */
    BL_GATHERS = 2,  /* the buffer that is received to has a block for each rank */
    BL_SCATTERS = 4, /* that which is sent from has */
    BL_ROOTED = 8,   /* only the root has something to send, or if it reduces, gets a result */
    BL_PAIRED = 16   /* a call is one end of a message between two ranks; its root is the other */
};

/* BL_IF_##column(otherwise, what) of the columns of algorithms.def that say whether there is one more kernel. */
#define BL_IF_NONE(otherwise, ...)  otherwise
#define BL_IF_WARPS(otherwise, ...) __VA_ARGS__
#define BL_IF_BATCH(otherwise, ...) __VA_ARGS__
#define BL_IF_FEW(otherwise, ...)   __VA_ARGS__
#define BL_IF_SHORT(otherwise, ...) __VA_ARGS__
/* Of its column `batch`: whether there is one for few messages, too; whether there are four for short ones. */
#define BL_FEW_NONE(otherwise, ...)    otherwise
#define BL_FEW_BATCH(otherwise, ...)   otherwise
#define BL_FEW_FEW(otherwise, ...)     __VA_ARGS__
#define BL_FEW_SHORT(otherwise, ...)   otherwise
#define BL_SHORT_NONE(otherwise, ...)  otherwise
#define BL_SHORT_BATCH(otherwise, ...) otherwise
#define BL_SHORT_FEW(otherwise, ...)   otherwise
#define BL_SHORT_SHORT(otherwise, ...) __VA_ARGS__

/* One to six for each row of algorithms.def. */
enum bl_kernel {
    BL_KERNEL_NONE = -1,
#define BL_ALGORITHM(KERNEL, symbol, name, collective, share, instances, warps, batch, traits)                         \
    BL_KERNEL_##KERNEL, BL_IF_##warps(, BL_KERNEL_##KERNEL##_WARPS, ) BL_IF_##batch(, BL_KERNEL_##KERNEL##_BATCH, )    \
                            BL_FEW_##batch(, BL_KERNEL_##KERNEL##_FEW, )                                               \
                                BL_SHORT_##batch(, BL_KERNEL_##KERNEL##_SHORT, BL_KERNEL_##KERNEL##_SHORT_BATCH,       \
                                                 BL_KERNEL_##KERNEL##_TWO, BL_KERNEL_##KERNEL##_TWO_BATCH, )
#include "algorithms.def"
    /* Several collectives of a group: no algorithm's, for they stand for several. */
    BL_KERNEL_MIXED_LL128_BATCH,
    BL_KERNEL_MIXED_LL128_FEW,
    BL_KERNELS
};

enum bl_trait {
    BL_EACH_PEER = 1, /* a rank sends, or gets, a whole message for each peer: with more ranks it pays up to less */
    BL_ONE_WARP = 2,  /* blocks are single warps, to fit beside others */
    BL_NVLS = 4,      /* it needs a multicast object */
    BL_BY_SWITCH = 8  /* the switch reduces: what bl_multimem_redops() has, in an order of its own */
};

/* Words in host memory that kernels and host share, one set per rank of a communicator.
 *
 * Kernels leave a wait for `abort` alone.  One that waits for a peer for more than 100 ms says so, at most once a millisecond on
 * a GPU: it writes what it waits for, then `beat`; and `error`, where it waits for longer than its limit, and goes on
 * waiting: if the data comes after all, the result is right.  So `beat` changes as long as somebody waits, and once `error`
 * is set, there is something in the words below.  Where several wait, the words may be of two of them. */
struct bl_control {
    uint32_t abort;         /* host -> kernels: leave every wait, and every launch before it does anything */
    uint32_t error;         /* kernels -> host: enum bl_kernel_error; stays */
    uint32_t waiting_peer;  /* the rank whose data has not come */
    uint32_t waiting_call;  /* bl_kernel_call() of the launch that waits */
    uint64_t waiting_count; /* its bl_kernel_args.count: elements; of a batch, what the host put there */
    uint64_t
        waiting_launch; /* the how-many-th launch of this communicator it is, from 1, replays and self-tests included */
    uint64_t waited_ns;
    uint64_t beat; /* the GPU's clock at that look */
};

enum bl_kernel_error { BL_KERNEL_OK, BL_KERNEL_TIMEOUT };

/* Where things lie in every rank's staging (same on all ranks of a communicator; byte offsets; see staging.cuh).  A launch
 * divides a half of the lines among those that send to this rank: its peers; in a one-shot all-reduce the rank itself, too. */
struct bl_staging_layout {
    uint64_t bytes;         /* in all */
    uint64_t packet_offset; /* packets [2 halves][nranks - 1 sources][packets] of 16 B */
    uint64_t packets;
    uint64_t line_offset; /* lines [2 halves][half_lines] of 128 B, blank (bl_kernel_args) between launches */
    uint64_t half_lines;
    uint64_t peer_lines; /* [nranks - 1 sources][peer_lines] */
    uint64_t rank_lines; /* [nranks sources][rank_lines] */
    /* Of one-way launches: BL_MAX_RANKS words, then rings [nranks - 1 sources][oneway_lines] of 128 B; see oneway.cuh. */
    uint64_t oneway_offset;
    uint64_t oneway_lines; /* a power of two */
    /* Of messages between two ranks: rings [nranks - 1 sources][pair_quads] of four lines, and BL_PAIR_CREDIT words for each rank; see pairs.cuh. */
    uint64_t pair_offset;
    uint64_t credit_offset;
    uint64_t pair_quads; /* three times a power of two, at least BL_PAIR_DEPTH; 0: no route needs them */
    /* Of pieces: rings [BL_BULK_STREAMS][nranks - 1 sources][bulk_bytes], then a word for each place of those, and for each place that this rank
     * sends to; see bulk.cuh. */
    uint64_t bulk_offset;
    uint64_t bulk_bytes; /* a power of two; 0: no route needs them */
    /* For copy engines: slots [bl_copy_slots()][nranks - 1 sources][copy_bytes], then struct bl_copy_words. */
    uint64_t copy_offset;
    uint64_t copy_bytes; /* 0 unless asked for */
    /* Memory apart from the staging, which every rank has behind one multicast object: a barrier word for each block, packets
     * [2 halves][nranks sources][multicast_packets] of 16 B, then [2 halves][multicast_half bytes]; see nvls.cuh. */
    uint64_t multicast_bytes; /* in all; 0 unless asked for */
    uint64_t multicast_packets;
    uint64_t multicast_half;
};

struct bl_kernel_args {
    const void *sendbuff; /* any alignment of the datatype's size or better, or worse */
    void *recvbuff;       /* as NCCL's in-place layouts have it, or not overlapping sendbuff */
    uint64_t count;       /* elements, as in the call: of a rank where the buffers hold blocks of all ranks */
    uint64_t stride;      /* bytes from block to block in a buffer that holds one of each rank */
    uint32_t size;        /* bytes of an element */
    uint32_t redop;       /* enum bl_redop: by bl_set_redop() */
    float scale;          /* bl_scale() */
    uint32_t rank, nranks;
    uint32_t root;              /* of broadcast and reduce */
    uint32_t call;              /* bl_kernel_call(); for bl_control.waiting_call alone */
    uint64_t timeout_ns;        /* of one wait, after which the host is told; 0: never */
    uint64_t *epochs;           /* BL_LOCAL_WORDS words */
    struct bl_control *control; /* device address of the host words */
    /* What each 16 bytes of this rank's lines (not of rings) hold until something comes, drawn at random.  Here, because arguments come in pieces of 64 bytes,
     * and this one is asked for anyhow. */
    uint64_t blank[2];
    struct bl_staging_layout layout;
    unsigned char *staging[BL_MAX_RANKS]; /* each rank's staging as mapped here; [rank] is our own */
    /* Behind the multicast object: this rank's memory, that of all ranks at once, and BL_MULTICAST_WORDS words of this
     * device alone, zero at first: BL_MAX_BLOCKS epochs, equal between launches, then each block's arrivals at its barrier. */
    unsigned char *replica, *multicast;
    uint64_t *multicast_words;
};

/* What values are multiplied with before they are added, where sums of their type could overflow: the largest power of two <=
 * 1 / nranks for an average (types.cuh), else 1. */
static inline float bl_scale(int redop, uint32_t nranks) {
    float scale = 1;
    while (redop == BL_AVG && scale * (float)nranks > 1) scale /= 2;
    return scale;
}

/* nranks must be there. */
static inline void bl_set_redop(struct bl_kernel_args *args, int redop) {
    args->redop = (uint32_t)redop;
    args->scale = bl_scale(redop, args->nranks);
}

/* A message of a batch: what a line of it asks for lies side by side, for arguments come in pieces of 64 bytes, of which each takes its time. */
struct bl_batch_message {
    const void *sendbuff;
    void *recvbuff;
    uint64_t count; /* elements, at least 1; bytes if the kernel does not reduce */
    uint64_t place; /* of what goes by rings: in a broadcast or reduce, lines of the same root ahead of it */
};

/* Messages that one launch carries; of one datatype and operation if it reduces.  Each begins at a new line: message i has
 * the lines first_line[i] to first_line[i + 1].  Blocks lie one behind the other.  Under 4 KB, as kernel arguments must be.
 */
struct bl_batch_args {
    struct bl_kernel_args
        common; /* its sendbuff, recvbuff, stride and size are not read, nor is its count, but to be told */
    uint32_t first_line[BL_BATCH_MAX]; /* UINT32_MAX behind the last message */
    uint8_t root[BL_BATCH_MAX];        /* of broadcasts and reduces: each has its own */
    uint32_t roots;                    /* 1 << root of each */
    uint32_t lines;                    /* of all messages */
    uint32_t span;                     /* of broadcasts and reduces: lines of the root that has most */
    uint32_t in_place;                 /* whether any message is; for all-reduce */
    uint32_t shared;                   /* of several collectives: whether any message is BL_MIXED_TWOSHOT */
    struct bl_batch_message message[BL_BATCH_MAX];
};

/* What a launch of several collectives does with a message, in bl_batch_args.root: kind * BL_MAX_RANKS + root.  Its count is in bytes,
 * its place as kernels/mixed.c has them, the span bl_mixed_span; in `roots` are the peers that this rank sends to. */
enum bl_mixed_kind {
    BL_MIXED_BROADCAST, /* the root sends it to all */
    BL_MIXED_REDUCE,    /* the root reduces it */
    BL_MIXED_ONESHOT,   /* all reduce it; it has no root */
    BL_MIXED_TWOSHOT,   /* likewise, but each reduces some lines, and sends them to all */
    BL_MIXED_EXCHANGE /* each rank sends to the one `root` further, and receives of the one as far behind; 0: it copies */
};

/* What such a launch has, counted call by call.  On it alone depend places and kinds. */
enum { BL_MIXED_SECTIONS = 4 }; /* of a ring: what has places of its own */
struct bl_mixed {
    uint32_t nranks, messages;
    uint64_t lines; /* of all messages */
    uint64_t lines_of[BL_MIXED_SECTIONS][BL_MAX_RANKS];
};

/* Its messages, as they are filled in. */
struct bl_mixed_fill {
    struct bl_batch_args *args;
    struct bl_mixed all, filled;
    uint64_t begin[BL_MIXED_SECTIONS];
    uint8_t kind[BL_MIXED_SECTIONS];
};

/* The same for few: the more arguments there are, the longer it takes to come by them. */
struct bl_batch_few_args {
    struct bl_kernel_args common;
    uint32_t first_line[BL_BATCH_FEW];
    uint8_t root[BL_BATCH_FEW];
    uint32_t roots, lines, span, in_place, shared;
    struct bl_batch_message message[BL_BATCH_FEW];
};

struct bl_pairs_message {
    void *buffer; /* sent from, or received to */
    uint64_t bytes;
    uint64_t quads_before; /* of the stream's messages ahead of it */
};

/* What one launch sends to a peer, or receives of it, message after message; or what the rank sends to itself: two messages, the
 * second is where the first is copied to. */
enum bl_pair_kind { BL_PAIR_SEND, BL_PAIR_RECV, BL_PAIR_COPY };

struct bl_pairs_stream {
    uint16_t first_warp, warps;
    uint8_t first, messages; /* of those of the launch */
    uint8_t kind, peer;
    uint64_t quads;      /* of all its messages */
    unsigned char *ring; /* the pair's, in the receiver's staging */
    uint64_t *credit;    /* bl_pair_credit, in the sender's */
};

/* Under 4 KB, as kernel arguments must be.  Streams to and from peers come before those that are copied. */
struct bl_pairs_args {
    struct bl_kernel_args
        common; /* its buffers, stride, size and operation are not read, nor is its count, but to be told */
    uint32_t streams, pairs, pairs_log2; /* pairs: those to and from peers; rounded up */
    uint16_t channels, lap_log2;         /* of a ring; the numbers of a lap's positions: pairs.cuh */
    struct bl_pairs_stream stream[BL_PAIR_STREAMS];
    struct bl_pairs_message message[BL_PAIR_MESSAGES];
    uint8_t warp_stream[BL_PAIR_WARPS]; /* what each warp of the grid has; BL_PAIR_STREAMS: nothing */
};

/* The same for few. */
struct bl_pairs_few_args {
    struct bl_kernel_args common;
    uint32_t streams, pairs, pairs_log2;
    uint16_t channels, lap_log2;
    struct bl_pairs_stream stream[BL_PAIR_FEW];
    struct bl_pairs_message message[BL_PAIR_FEW];
};

/* Quads of a message: at least one, for one that is empty is a message, too. */
static inline uint64_t bl_pair_quads(uint64_t bytes) {
    const uint64_t quad = BL_QUAD * BL_FLAGGED_DATA;
    return bytes > quad ? bytes / quad + (bytes % quad != 0) : 1;
}

/* How slots are handed over between copy engines and kernels: plugin/launch/copy.h.  Zero at first. */
struct bl_copy_words {
    uint32_t ready[2][BL_MAX_RANKS]; /* [slot][sender]: ours holds a piece of the sender's */
    uint32_t busy[2][BL_MAX_RANKS];  /* [slot][receiver]: the receiver's still holds our last piece */
    uint32_t end, pad;               /* written last in a call, read by nobody */
    uint64_t emptied;                /* blocks of the running launch that have emptied their share; ours alone */
};

/* What a launch copies within a GPU: a slot, and maybe as much of this rank's own block. */
struct bl_copy_args {
    const void *slot, *own;
    void *slot_to, *own_to; /* own_to is `own` where nothing is to be done */
    uint64_t bytes;         /* of each, at most 4 GB */
    uint64_t *emptied;
    uint32_t *busy; /* at the sender, to be zeroed when the slot is empty */
};

/* What a launch is, for whoever is told that it waits. */
static inline uint32_t bl_kernel_call(int kernel, int datatype, int redop) {
    return (uint32_t)kernel | (uint32_t)datatype << 8 | (uint32_t)redop << 16;
}

/* Lines of a message, of so many bytes each: BL_LINE_DATA or BL_FLAGGED_DATA. */
static inline uint64_t bl_lines_of(uint64_t bytes, uint64_t line) {
    return bytes / line + (bytes % line != 0);
}

/* Bytes of user data in a line, by kernel; by collective, unless a launch has several. */
uint64_t bl_kernel_line(int kernel);
uint64_t bl_collective_line(int collective);

/* Size of one element, 0 for an unknown datatype. */
size_t bl_datatype_size(int datatype);
const char *bl_datatype_name(int datatype); /* "bfloat16", as in nccl-tests; "?" if unknown */
const char *bl_redop_name(int redop);       /* "sum" */
const char *bl_kernel_name(int kernel);     /* "oneshot_ll", "oneshot_ll128:warps", "oneshot_ll128_batch" */

const char *bl_collective_name(int collective);                         /* "all_reduce" */
bool bl_collective_has(int collective, enum bl_collective_trait trait); /* of several, any */
enum bl_collective bl_kernel_collective(int kernel);                    /* BL_COLLECTIVES if unknown */

/* Whether it reduces: of what does not any messages share a batch. */
bool bl_kernel_reduces(int kernel);

/* Whether a launch carries several messages: struct bl_batch_args, or struct bl_batch_few_args if it is for few. */
bool bl_kernel_batch(int kernel);
bool bl_kernel_few(int kernel);

/* Whether calls of the collective may be in a launch of several collectives; whether a kernel is for such launches. */
bool bl_mixed_has(int collective);
bool bl_kernel_mixed(int kernel);

/* Counts a launch's calls, of such collectives, of `bytes` as counted in the call; root is 0 where there is none. */
void bl_mixed_begin(struct bl_mixed *mixed, int nranks);
void bl_mixed_count(struct bl_mixed *mixed, int collective, unsigned root, uint64_t bytes);

/* Lines that it takes of each ring. */
uint64_t bl_mixed_span(const struct bl_mixed *mixed);

/* Fills in all but args->common, whose rank is there; then the calls that were counted, in any order.  At most BL_BATCH_MAX messages. */
void bl_mixed_fill_begin(struct bl_mixed_fill *fill, struct bl_batch_args *args, const struct bl_mixed *all);
void bl_mixed_fill_add(struct bl_mixed_fill *fill, int collective, unsigned root, const void *sendbuff, void *recvbuff,
                       uint64_t bytes);

/* A batch of at most BL_BATCH_FEW messages, for a kernel that is for few. */
void bl_batch_few(struct bl_batch_few_args *few, const struct bl_batch_args *batch);

/* Bytes of the largest call of which several end at who sends though nobody receives yet: BL_PAIR_AHEAD messages to a peer, two broadcasts
 * or reduces.  Of other kernels there is no such thing: UINT64_MAX. */
uint64_t bl_kernel_unreceived(int kernel, int nranks, const struct bl_staging_layout *layout);

/* Whether it carries messages between two ranks: struct bl_pairs_few_args, or struct bl_pairs_args if it is for a batch. */
bool bl_kernel_pairs(int kernel);

/* Whether it stands for another where bl_pairs_kernel says so, and is never asked for by itself. */
bool bl_kernel_short(int kernel);

/* The quads of a warp, at most: 1 or 2, which a short kernel can carry, by blocks of up to BL_PAIR_THREADS threads, or 3 for more. */
unsigned bl_pairs_per_warp(const struct bl_pairs_args *args);

/* The kernel that carries these messages: a short one, if it can; if `few`, one that takes few
 * arguments, where these are enough: not of short messages of which some are copied. */
enum bl_kernel bl_pairs_kernel(const struct bl_pairs_args *args, bool few);

/* The same launch for a kernel that takes few. */
void bl_pairs_few(struct bl_pairs_few_args *few, const struct bl_pairs_args *args);

/* Where the ring of what `sender` sends to `receiver` lies in the receiver's staging, and the words of its credit in the sender's. */
uint64_t bl_pair_ring(const struct bl_staging_layout *layout, unsigned sender, unsigned receiver);
uint64_t bl_pair_credit(const struct bl_staging_layout *layout, unsigned receiver);

/* Of each ring: its channels, a power of two; how many positions a lap is counted for, four thirds of its places, as a power of two. */
unsigned bl_pair_channels(const struct bl_staging_layout *layout);
unsigned bl_pair_lap_log2(const struct bl_staging_layout *layout);

/* Warps that so many quads of a stream are worth: one each, while no two quads are of one channel; else, as whenever there are fewer warps
 * than quads, a power of two, here one for each channel. */
unsigned bl_pair_warps(const struct bl_staging_layout *layout, uint64_t quads);

/* Whether it needs a multicast object.  Then its grid is the same on all ranks, of as many blocks as bl_kernel_blocks() says. */
bool bl_kernel_multicast(int kernel);

/* Whether blocks send the lines of a round only when they have those of the round before.  Where grids differ between ranks,
 * each is one round then, or is resident as a whole; of those for several collectives, which wait for lines of two rounds at once, each is resident.
 * Of others the first blocks send everything. */
bool bl_kernel_in_rounds(int kernel);

/* Operations, 1u << enum bl_redop each, that the switch can reduce this datatype with, on GPUs of this architecture (90 for
 * sm_90), in twoshot_nvls and reducescatter_nvls. */
uint32_t bl_multimem_redops(int datatype, int arch);

/* Writes the symbol of the kernel for this datatype and rank count to `symbol`; returns 0, or -1 if there is none. */
int bl_kernel_symbol(int kernel, int datatype, int nranks, char *symbol, size_t size);

/* Most bytes of user data that one launch may carry with this layout, of a rank's block where there are blocks: a multiple
 * of 128, 0 if there is no room for it at all.  In a batch each message counts in whole lines; of broadcasts and reduces those of the root that has
 * most. */
uint64_t bl_kernel_capacity(int kernel, int nranks, const struct bl_staging_layout *layout);

/* Whether a message above the capacity goes in several launches.  Where not, another algorithm sends fewer bytes. */
bool bl_kernel_in_pieces(int kernel, int nranks);

/* Threads of a block, if so many are wished for: as many as the kernel needs at least for this number of ranks, or takes at
 * most. */
unsigned bl_kernel_threads(int kernel, int nranks, unsigned threads);

/* Whether it carries pieces by bulk copies (bulk.cuh): by few blocks, of which each is given memory of its own. */
bool bl_kernel_bulk(int kernel);
/* Bytes of a place of a ring: Piece of bulk_roles.cuh. */
uint64_t bl_bulk_piece(int nranks);

/* Bytes of memory that each block of so many threads is to be given by the launch; and threads for which a GPU has them where it gives a block
 * `most` bytes, up to `threads`; 0: it cannot launch the kernel. */
uint64_t bl_kernel_memory(int kernel, unsigned threads);
unsigned bl_kernel_threads_in(int kernel, unsigned threads, uint64_t most);

/* Blocks to launch for `bytes` of user data, of as many threads as bl_kernel_threads() says: as many as have work, at most
 * max_blocks. */
unsigned bl_kernel_blocks(int kernel, int nranks, uint64_t bytes, unsigned threads, unsigned max_blocks);

/* Slots that a peer's copy engine fills in turn here: while it fills one, another is emptied, of this peer or the next. */
static inline unsigned bl_copy_slots(int nranks) {
    return nranks == 2 ? 2 : 1;
}

/* Lays out staging of at most `bytes` for nranks ranks; less, where more would not be of use.  `with` says what there is, too: slots for the copy
 * engines; rings of pieces, for which a quarter more may be taken; with `multicast`, memory behind a multicast object; each only if there is room.
 * Returns 0, or -1 if `bytes` is too small to serve (bl_staging_minimum tells how many are needed). */
enum bl_staging_with { BL_WITH_SLOTS = 1, BL_WITH_PIECES = 2 };
int bl_staging_plan(struct bl_staging_layout *layout, int nranks, uint64_t bytes, unsigned with, bool multicast);
uint64_t bl_staging_minimum(int nranks);

/* Takes off what no call will use: bytes[kernel] is the most that it will carry in a launch, 0 if it is never launched. */
void bl_staging_trim(struct bl_staging_layout *layout, int nranks, const uint64_t bytes[BL_KERNELS]);

#ifdef __cplusplus
}
#endif
#endif
