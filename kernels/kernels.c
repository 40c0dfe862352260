/* kernels.c - the host's side of kernels.h: names, capacities, the layout of the staging. */
#include "kernels.h"

#include <stdio.h>
#include <string.h>

enum { PACKET_BYTES = 16, PACKET_DATA = 8, LINE_BYTES = 128, LINE_LANES = 8, UNIT_BYTES = 16 };
enum { MOST_PACKETS = 8192, FEWEST_PACKETS = 256 };
enum { LINES_STEP = 64, LINES_GRAIN = 16 };   /* so many lines hold a multiple of 128 bytes */
enum { BARRIER_BYTES = BL_MAX_BLOCKS * 128 }; /* as nvls.cuh has it */

/* Bytes that a launch sends, or has sent to it, at most, if the staging may be large enough; and of up to 4 ranks, whose messages were measured, if
 * there are longer rings of pairs for the rest: a second launch takes 3 us of more than 60, and what rings do not hold is NCCL's. */
static const uint64_t LARGE = 24 << 20, LARGE_ENOUGH = 18 << 20;

/* What staging of 100 MiB holds beside two halves of them: packets, rings, messages.  More staging is for longer launches. */
static const uint64_t BESIDE_LARGE = 52 << 20, MORE_THAN_ANY_STAGING = 1 << 30;

/* Of all rings of one-way launches, the lines of one at least, and what stays of all so that a root can be calls ahead. */
static const uint64_t RINGS_BYTES = (16 << 20) + BL_MAX_RANKS * sizeof(uint64_t), LEAST_RING = 64,
                      KEPT_RINGS_BYTES = 1 << 20;

/* Of messages between two ranks: places of a pair's ring, at most, where the rings may take an eighth, and what the others leave; what a
 * ring keeps, however short its messages are, which is for a quarter of the channels (half would cost each peer 1.5 MB more); the capacity of
 * what takes bytes of any size. */
static const uint64_t MOST_PAIR_QUADS = 3 << 13, KEPT_PAIR_QUADS = BL_PAIR_CHANNELS / 4 * BL_PAIR_DEPTH,
                      ANY_SIZE = UINT64_C(1) << 40;

/* Of rings of pieces: the most of one, and of those of a stream from all peers; the least that is worth one; what a block is worth while for, and how many
 * are enough for the links. */
static const uint64_t BULK_RING = 8 << 20, BULK_RINGS = 16 << 20, LEAST_BULK_RING = 64 << 10,
                      FOR_A_BULK_BLOCK = 64 << 10, MOST_BULK_BLOCKS = 48;

/* Of each of the two halves behind a multicast object, and the least that is worth one. */
static const uint64_t MULTICAST_HALF = 8 << 20, LEAST_MULTICAST_HALF = 64 << 10;

static const struct {
    const char *name, *symbol;
    size_t size;
} datatypes[BL_DATATYPES] = {
    [BL_INT8] = {"int8", "i8", 1},           [BL_UINT8] = {"uint8", "u8", 1},
    [BL_INT32] = {"int32", "i32", 4},        [BL_UINT32] = {"uint32", "u32", 4},
    [BL_INT64] = {"int64", "i64", 8},        [BL_UINT64] = {"uint64", "u64", 8},
    [BL_FLOAT16] = {"half", "f16", 2},       [BL_FLOAT32] = {"float", "f32", 4},
    [BL_FLOAT64] = {"double", "f64", 8},     [BL_BFLOAT16] = {"bfloat16", "bf16", 2},
    [BL_FLOAT8E4M3] = {"f8e4m3", "e4m3", 1}, [BL_FLOAT8E5M2] = {"f8e5m2", "e5m2", 1},
};

static const char *const redops[BL_REDOPS] = {"sum", "prod", "max", "min", "avg"};

static const struct {
    const char *name;
    unsigned traits; /* enum bl_collective_trait */
} collectives[BL_COLLECTIVES] = {
#define BL_COLLECTIVE(COLLECTIVE, name, words, traits) {#name, traits},
#include "collectives.def"
};

/* What of the staging a kernel uses: a half of the lines divided among the peers or all ranks, or among the peers for inputs and results; packets,
 * slots, rings, rings of pairs, rings of pieces; or of the memory behind the multicast object: packets, a half, a half divided among the ranks. */
enum share {
    PACKETS,
    PEERS,
    RANKS,
    TWOSHOT,
    SLOTS,
    RINGS,
    PAIRS,
    BULK,
    MULTICAST_PACKETS,
    MULTICAST_WHOLE,
    MULTICAST_BLOCKS
};

/* For how many ranks kernels are there: up to 2, 4, 8, 16; or these and 3; or fewer; or one for all. */
enum instances { ALL, ALL_AND_3, ALL_BUT_2, BATCHED, ONE };

static const struct {
    const char *name, *symbol;
    enum bl_collective collective;
    enum share share;
    enum instances instances; /* instantiate.cuh, nvls.cuh */
    unsigned traits;          /* enum bl_trait */
    bool warps, batch, few, brief;
} kernels[BL_KERNELS] = {
#define BL_ALGORITHM(KERNEL, symbol, name, collective, share, instances, with_warps, with_batch, traits)               \
    [BL_KERNEL_##KERNEL] = {#name, #symbol, BL_##collective, share, instances, traits, false, false, false, false},    \
    BL_IF_##with_warps(,                                                                                               \
                       [BL_KERNEL_##KERNEL##_WARPS] = {#name ":warps", #symbol "_warps", BL_##collective, share, ONE,  \
                                                       traits, true, false, false, false}, )                           \
        BL_IF_##with_batch(,                                                                                           \
                           [BL_KERNEL_##KERNEL##_BATCH] = {#name "_batch", #symbol "_batch", BL_##collective, share,   \
                                                           BATCHED, traits, false, true, false, false}, )              \
            BL_FEW_##with_batch(,                                                                                      \
                                [BL_KERNEL_##KERNEL##_FEW] = {#name "_few", #symbol "_few", BL_##collective, share,    \
                                                              BATCHED, traits, false, true, true, false}, )            \
                BL_SHORT_##with_batch(                                                                                 \
                    ,                                                                                                  \
                    [BL_KERNEL_##KERNEL##_SHORT] = {#name "_short", #symbol "_short", BL_##collective, share,          \
                                                    instances, traits, false, false, false, true},                     \
                    [BL_KERNEL_##KERNEL##_SHORT_BATCH] = {#name "_short_batch", #symbol "_short_batch",                \
                                                          BL_##collective, share, BATCHED, traits, false, true, false, \
                                                          true},                                                       \
                    [BL_KERNEL_##KERNEL##_TWO] = {#name "_two", #symbol "_two", BL_##collective, share, instances,     \
                                                  traits, false, false, false, true},                                  \
                    [BL_KERNEL_##KERNEL##_TWO_BATCH] = {#name "_two_batch", #symbol "_two_batch", BL_##collective,     \
                                                        share, BATCHED, traits, false, true, false, true}, )
#include "algorithms.def"
    [BL_KERNEL_MIXED_LL128_BATCH] = {"mixed_ll128_batch", "mixed_ll128_batch", BL_REDUCE, RINGS, BATCHED, 0, false,
                                     true, false, false},
    [BL_KERNEL_MIXED_LL128_FEW] = {"mixed_ll128_few", "mixed_ll128_few", BL_REDUCE, RINGS, BATCHED, 0, false, true,
                                   true, false},
};

static bool is_kernel(int kernel) {
    return kernel >= 0 && kernel < BL_KERNELS;
}

size_t bl_datatype_size(int datatype) {
    return datatype >= 0 && datatype < BL_DATATYPES ? datatypes[datatype].size : 0;
}

const char *bl_datatype_name(int datatype) {
    return datatype >= 0 && datatype < BL_DATATYPES ? datatypes[datatype].name : "?";
}

const char *bl_redop_name(int redop) {
    return redop >= 0 && redop < BL_REDOPS ? redops[redop] : "?";
}

const char *bl_kernel_name(int kernel) {
    return is_kernel(kernel) ? kernels[kernel].name : "?";
}

static bool has(int kernel, enum bl_trait trait) {
    return is_kernel(kernel) && (kernels[kernel].traits & trait) != 0;
}

const char *bl_collective_name(int collective) {
    return collective >= 0 && collective < BL_COLLECTIVES ? collectives[collective].name : "?";
}

bool bl_collective_has(int collective, enum bl_collective_trait trait) {
    return collective >= 0 && collective < BL_COLLECTIVES && (collectives[collective].traits & trait) != 0;
}

enum bl_collective bl_kernel_collective(int kernel) {
    return is_kernel(kernel) ? kernels[kernel].collective : BL_COLLECTIVES;
}

bool bl_kernel_reduces(int kernel) {
    return bl_collective_has(bl_kernel_collective(kernel), BL_REDUCES);
}

static bool by_warps(int kernel) {
    return is_kernel(kernel) && kernels[kernel].warps;
}

bool bl_kernel_batch(int kernel) {
    return is_kernel(kernel) && kernels[kernel].batch;
}

bool bl_kernel_few(int kernel) {
    return is_kernel(kernel) && kernels[kernel].few;
}

bool bl_kernel_mixed(int kernel) {
    return kernel == BL_KERNEL_MIXED_LL128_BATCH || kernel == BL_KERNEL_MIXED_LL128_FEW;
}

void bl_batch_few(struct bl_batch_few_args *few, const struct bl_batch_args *batch) {
    few->common = batch->common;
    memcpy(few->first_line, batch->first_line, sizeof(few->first_line));
    memcpy(few->root, batch->root, sizeof(few->root));
    few->roots = batch->roots;
    few->lines = batch->lines;
    few->span = batch->span;
    few->in_place = batch->in_place;
    few->shared = batch->shared;
    memcpy(few->message, batch->message, sizeof(few->message));
}

bool bl_kernel_pairs(int kernel) {
    return is_kernel(kernel) && kernels[kernel].share == PAIRS;
}

bool bl_kernel_short(int kernel) {
    return is_kernel(kernel) && kernels[kernel].brief;
}

bool bl_kernel_multicast(int kernel) {
    return has(kernel, BL_NVLS);
}

bool bl_kernel_bulk(int kernel) {
    return is_kernel(kernel) && kernels[kernel].share == BULK;
}

bool bl_kernel_in_rounds(int kernel) {
    return is_kernel(kernel) && (by_warps(kernel) || kernels[kernel].share == PACKETS ||
                                 (kernels[kernel].batch && kernels[kernel].share == RINGS));
}

uint32_t bl_multimem_redops(int datatype, int arch) {
    enum { ADD = 1 << BL_SUM, ORDER = 1 << BL_MIN | 1 << BL_MAX };
    if (arch < 90) return 0;
    switch (datatype) {
    case BL_FLOAT32:
    case BL_FLOAT64: return ADD;
    case BL_INT32:
    case BL_UINT32:
    case BL_INT64:
    case BL_UINT64:
    case BL_FLOAT16:
    case BL_BFLOAT16: return ADD | ORDER;
    case BL_FLOAT8E4M3:
    case BL_FLOAT8E5M2: return arch / 10 == 10 ? ADD | ORDER : 0; /* the family that has machine code of its own */
    default: return 0;
    }
}

/* Whether there is a kernel of this kind for the datatype, whatever the architecture. */
static bool has_datatype(int kernel, int datatype) {
    return !has(kernel, BL_BY_SWITCH) || bl_multimem_redops(datatype, 100) != 0;
}

int bl_kernel_symbol(int kernel, int datatype, int nranks, char *symbol, size_t size) {
    static const int up_to[][5] = {[ALL] = {2, 4, 4, 8, 16},
                                   [ALL_AND_3] = {2, 3, 4, 8, 16},
                                   [ALL_BUT_2] = {4, 4, 4, 8, 16},
                                   [BATCHED] = {2, 4, 4, 16, 16}};
    if (!is_kernel(kernel) || datatype < 0 || datatype >= BL_DATATYPES) return -1;
    if (nranks < 2 || nranks > BL_MAX_RANKS || !has_datatype(kernel, datatype)) return -1;
    const enum instances instances = kernels[kernel].share == PAIRS ? ONE : kernels[kernel].instances;
    const char *type = bl_kernel_reduces(kernel) ? datatypes[datatype].symbol : "bytes";
    int n;
    if (instances == ONE)
        n = snprintf(symbol, size, "bl_%s_%s", kernels[kernel].symbol, type);
    else
        n = snprintf(symbol, size, "bl_%s_%s_%d", kernels[kernel].symbol, type,
                     up_to[instances][(nranks > 2) + (nranks > 3) + (nranks > 4) + (nranks > 8)]);
    return n > 0 && (size_t)n < size ? 0 : -1;
}

static uint64_t lesser(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

uint64_t bl_kernel_line(int kernel) {
    const enum share share = is_kernel(kernel) ? kernels[kernel].share : PEERS;
    return share == RINGS || share == PAIRS ? BL_FLAGGED_DATA : BL_LINE_DATA;
}

uint64_t bl_collective_line(int collective) {
    return bl_collective_has(collective, BL_ROOTED | BL_PAIRED) ? BL_FLAGGED_DATA : BL_LINE_DATA;
}

uint64_t bl_kernel_capacity(int kernel, int nranks, const struct bl_staging_layout *layout) {
    if (!is_kernel(kernel)) return 0;
    switch (kernels[kernel].share) {
    case PACKETS: return layout->packets * PACKET_DATA;
    case PEERS: return layout->peer_lines * BL_LINE_DATA;
    case RANKS: return layout->rank_lines * BL_LINE_DATA;
    case TWOSHOT: return layout->peer_lines / 2 * BL_LINE_DATA * (uint64_t)nranks;
    case SLOTS: return layout->copy_bytes;
    case RINGS: return layout->oneway_lines / 3 / LINES_GRAIN * LINES_GRAIN * BL_FLAGGED_DATA; /* oneway.cuh */
    case PAIRS: return layout->pair_quads ? ANY_SIZE : 0; /* what the ring does not hold waits for room */
    case BULK: return layout->bulk_bytes ? ANY_SIZE : 0;  /* likewise */
    case MULTICAST_PACKETS: return layout->multicast_packets * PACKET_DATA;
    case MULTICAST_WHOLE: return layout->multicast_half;
    case MULTICAST_BLOCKS: return layout->multicast_half / (uint64_t)nranks / LINE_BYTES * LINE_BYTES;
    }
    return 0;
}

/* Three quarters of a ring are taken at once (pairs.cuh). */
static uint64_t unreceived(uint64_t quads) {
    return quads / 4 * 3 / BL_PAIR_AHEAD * BL_QUAD * BL_FLAGGED_DATA;
}

uint64_t bl_kernel_unreceived(int kernel, int nranks, const struct bl_staging_layout *layout) {
    if (bl_kernel_pairs(kernel)) return unreceived(layout->pair_quads);
    if (bl_collective_has(bl_kernel_collective(kernel), BL_ROOTED)) return bl_kernel_capacity(kernel, nranks, layout);
    return UINT64_MAX;
}

bool bl_kernel_in_pieces(int kernel, int nranks) {
    if (!is_kernel(kernel) || kernels[kernel].batch) return false;
    if (kernels[kernel].share == RANKS) return nranks == 2;
    return kernels[kernel].share != PACKETS && kernels[kernel].share != MULTICAST_PACKETS;
}

static uint64_t divide_up(uint64_t a, uint64_t b) {
    return (a + b - 1) / b;
}

uint64_t bl_pair_ring(const struct bl_staging_layout *layout, unsigned sender, unsigned receiver) {
    return layout->pair_offset + (sender - (sender > receiver)) * layout->pair_quads * BL_QUAD * LINE_BYTES;
}

uint64_t bl_pair_credit(const struct bl_staging_layout *layout, unsigned receiver) {
    return layout->credit_offset + receiver * BL_PAIR_CREDIT * sizeof(uint64_t);
}

unsigned bl_kernel_threads(int kernel, int nranks, unsigned threads) {
    if (has(kernel, BL_ONE_WARP)) return 32;
    if (bl_kernel_bulk(kernel))
        return threads < BL_BULK_LEAST_THREADS  ? BL_BULK_LEAST_THREADS
               : threads > BL_BULK_MOST_THREADS ? BL_BULK_MOST_THREADS
                                                : threads;
    const unsigned least = by_warps(kernel) ? 32 * (unsigned)divide_up((uint64_t)nranks, BL_WARP_RANKS) : 32;
    return threads > least ? threads : least;
}

/* Of all threads but a warp; behind the stages are words of each warp, and one of the block: bulk_roles.cuh. */
static uint64_t bulk_memory(unsigned warps) {
    return (warps - 1) * (uint64_t)(BL_BULK_WARP_BYTES + BL_BULK_WARP_WORDS * sizeof(uint64_t)) + sizeof(uint64_t);
}

uint64_t bl_kernel_memory(int kernel, unsigned threads) {
    return bl_kernel_bulk(kernel) && threads >= 32 ? bulk_memory(threads / 32) : 0;
}

unsigned bl_kernel_threads_in(int kernel, unsigned threads, uint64_t most) {
    if (!bl_kernel_bulk(kernel)) return threads;
    if (threads > BL_BULK_MOST_THREADS) threads = BL_BULK_MOST_THREADS;
    while (threads >= BL_BULK_LEAST_THREADS && bl_kernel_memory(kernel, threads) > most) threads -= 32;
    return threads >= BL_BULK_LEAST_THREADS ? threads : 0;
}

/* A quad of lines for each bundle, whose warps have a rank each if they are that many. */
static uint64_t blocks_by_warps(int nranks, uint64_t lines, unsigned threads) {
    const uint64_t warps = threads / 32, n = (uint64_t)nranks;
    return divide_up(divide_up(lines, BL_QUAD), warps >= n ? warps / n : warps / divide_up(n, BL_WARP_RANKS));
}

unsigned bl_kernel_blocks(int kernel, int nranks, uint64_t bytes, unsigned threads, unsigned max_blocks) {
    const uint64_t most = max_blocks < BL_MAX_BLOCKS ? max_blocks : BL_MAX_BLOCKS;
    const uint64_t lines = bl_lines_of(bytes, bl_kernel_line(kernel)), groups = threads / LINE_LANES;
    const bool runs = kernels[kernel].share == TWOSHOT;
    uint64_t need;
    if (by_warps(kernel)) {
        need = blocks_by_warps(nranks, runs ? divide_up(lines, (uint64_t)nranks) : lines, threads);
    } else
        switch (kernels[kernel].share) {
        case PACKETS:
        case MULTICAST_PACKETS: need = divide_up(divide_up(bytes, PACKET_DATA), threads); break;
        case TWOSHOT:
            need = 4 * divide_up(divide_up(lines, (uint64_t)nranks), groups);
            break; /* three crews; reducing takes longest */
        case MULTICAST_WHOLE:
        case MULTICAST_BLOCKS: need = divide_up(divide_up(bytes, UNIT_BYTES), threads); break;
        case BULK: need = lesser(divide_up(bytes, FOR_A_BULK_BLOCK), MOST_BULK_BLOCKS); break;
        case PAIRS:
            need = lesser(divide_up(max_blocks, 2), BL_PAIR_BLOCKS);
            break;                                              /* what a launch may have: pairs.c */
        case RANKS: need = divide_up(2 * lines, groups); break; /* two groups share a line, if there are enough */
        default: need = divide_up(lines, groups);
        }
    if (need > most) need = most;
    return need ? (unsigned)need : 1;
}

static uint64_t packet_bytes(int nranks, uint64_t packets) {
    return 2 * (uint64_t)(nranks - 1) * packets * PACKET_BYTES;
}

static uint64_t half_bytes(int nranks, uint64_t peer_lines) {
    return (uint64_t)(nranks - 1) * peer_lines * LINE_BYTES;
}
static uint64_t whole_steps(uint64_t lines) {
    return lines / LINES_STEP * LINES_STEP;
}
/* From each peer, where so many bytes come from all. */
static uint64_t peer_lines_of(int nranks, uint64_t bytes) {
    return whole_steps(bl_lines_of(bytes / (uint64_t)(nranks - 1), BL_LINE_DATA)) + LINES_STEP;
}

static uint64_t ring_bytes(int nranks, uint64_t lines) {
    return BL_MAX_RANKS * sizeof(uint64_t) + (uint64_t)(nranks - 1) * lines * LINE_BYTES;
}

static uint64_t pair_ring_bytes(int nranks, uint64_t quads) {
    return (uint64_t)(nranks - 1) * quads * BL_QUAD * LINE_BYTES;
}

/* Whole lines, of the rings and the words of credit. */
static uint64_t pair_bytes(int nranks, uint64_t quads) {
    const uint64_t credit = (uint64_t)nranks * BL_PAIR_CREDIT * sizeof(uint64_t);
    return quads ? pair_ring_bytes(nranks, quads) + divide_up(credit, LINE_BYTES) * LINE_BYTES : 0;
}

/* The least of lines and one-way rings.  Two steps for a peer are one for a rank. */
static uint64_t least_lines(int nranks) {
    return 2 * half_bytes(nranks, 2 * LINES_STEP) + ring_bytes(nranks, LEAST_RING);
}

uint64_t bl_staging_minimum(int nranks) {
    return packet_bytes(nranks, FEWEST_PACKETS) + least_lines(nranks) + pair_bytes(nranks, BL_PAIR_DEPTH);
}

/* The most packets whose bytes are at most a quarter, and leave the others their least. */
static uint64_t plan_packets(int nranks, uint64_t *left) {
    const uint64_t others = least_lines(nranks) + pair_bytes(nranks, BL_PAIR_DEPTH);
    const uint64_t most = lesser(*left / 4, *left - others);
    uint64_t packets = MOST_PACKETS;
    while (packets > FEWEST_PACKETS && packet_bytes(nranks, packets) > most) packets /= 2;
    *left -= packet_bytes(nranks, packets);
    return packets;
}

/* Returns the places of a pair's ring. */
static uint64_t plan_pairs(int nranks, uint64_t *left) {
    const uint64_t most = lesser(*left / 8, *left - least_lines(nranks));
    uint64_t quads = MOST_PAIR_QUADS;
    while (quads > BL_PAIR_DEPTH && pair_bytes(nranks, quads) > most) quads /= 2;
    *left -= pair_bytes(nranks, quads);
    return quads;
}

/* More of them, out of what so many lines leave. */
static uint64_t grow_pairs(int nranks, uint64_t quads, uint64_t peer_lines, uint64_t *left) {
    const uint64_t lines = 2 * half_bytes(nranks, peer_lines), all = *left + pair_bytes(nranks, quads);
    while (quads < MOST_PAIR_QUADS && pair_bytes(nranks, 2 * quads) + lines <= all) quads *= 2;
    *left = all - pair_bytes(nranks, quads);
    return quads;
}

/* Of what packets leave: what the other lines do not need, or an eighth.  Takes it off *left; returns the lines of a ring. */
static uint64_t plan_rings(int nranks, uint64_t wanted, uint64_t *left) {
    const uint64_t others = 2 * half_bytes(nranks, wanted), least = 2 * half_bytes(nranks, 2 * LINES_STEP);
    const uint64_t spare = *left > others ? *left - others : 0;
    const uint64_t most = lesser(lesser(spare > *left / 8 ? spare : *left / 8, *left - least), RINGS_BYTES);
    uint64_t lines = LEAST_RING;
    while (ring_bytes(nranks, 2 * lines) <= most) lines *= 2;
    *left -= ring_bytes(nranks, lines);
    return lines;
}

/* Takes what it plans off *left; nothing at all rather than little.  At most a third: lines serve every call. */
static void plan_multicast(struct bl_staging_layout *layout, int nranks, uint64_t *left) {
    const uint64_t a_packet_each = 2 * (uint64_t)nranks * PACKET_BYTES;
    const uint64_t least = BARRIER_BYTES + FEWEST_PACKETS * a_packet_each + 2 * LEAST_MULTICAST_HALF;
    if (*left < least + bl_staging_minimum(nranks)) return;
    const uint64_t most = lesser(*left / 3, *left - bl_staging_minimum(nranks));
    if (most < least) return;
    uint64_t packets = MOST_PACKETS;
    while (packets > FEWEST_PACKETS && BARRIER_BYTES + packets * a_packet_each > most / 4) packets /= 2;
    const uint64_t fixed = BARRIER_BYTES + packets * a_packet_each;
    layout->multicast_packets = packets;
    layout->multicast_half = lesser((most - fixed) / 2 / LINE_BYTES * LINE_BYTES, MULTICAST_HALF);
    layout->multicast_bytes = fixed + 2 * layout->multicast_half;
    *left -= layout->multicast_bytes;
}

uint64_t bl_bulk_piece(int nranks) {
    return BL_BULK_WARP_PIECES / (nranks <= 4 ? 4 : nranks <= 8 ? 8 : 16);
}
static uint64_t bulk_bytes(int nranks, uint64_t ring) {
    const uint64_t rings = BL_BULK_STREAMS * (uint64_t)(nranks - 1);
    return rings * (ring + 2 * ring / bl_bulk_piece(nranks) * sizeof(uint64_t));
}

/* Nothing rather than little.  A place is another piece's some 17 us after its turn has come, and so long the links go on (docs/notebook.md).  Returns
 * the bytes of a ring. */
static uint64_t plan_bulk(int nranks, uint64_t most) {
    uint64_t ring = BULK_RING;
    while (ring * (uint64_t)(nranks - 1) > BULK_RINGS) ring /= 2;
    while (ring >= LEAST_BULK_RING && bulk_bytes(nranks, ring) > most) ring /= 2;
    return ring < LEAST_BULK_RING ? 0 : ring;
}

static uint64_t slots_bytes(int nranks, uint64_t slot) {
    return slot ? bl_copy_slots(nranks) * (uint64_t)(nranks - 1) * slot + sizeof(struct bl_copy_words) : 0;
}

/* Up to three quarters, since large pieces are what makes copy engines fast; nothing rather than less than half.  Returns the
 * bytes of a slot. */
static uint64_t plan_slots(int nranks, uint64_t *left) {
    const uint64_t least = bl_staging_minimum(nranks) + sizeof(struct bl_copy_words);
    const uint64_t most = *left > least ? lesser(*left / 4 * 3, *left - least) : 0;
    if (most < *left / 2) return 0;
    const uint64_t slot = most / (bl_copy_slots(nranks) * (uint64_t)(nranks - 1)) / LINE_BYTES * LINE_BYTES;
    *left -= slots_bytes(nranks, slot);
    return slot;
}

/* What follows from the number of packets, lines and slots. */
static void arrange(struct bl_staging_layout *layout, int nranks) {
    layout->line_offset = packet_bytes(nranks, layout->packets);
    layout->half_lines = (uint64_t)(nranks - 1) * layout->peer_lines;
    layout->rank_lines = whole_steps(layout->half_lines / (uint64_t)nranks);
    layout->oneway_offset = layout->line_offset + 2 * layout->half_lines * LINE_BYTES;
    layout->pair_offset = layout->oneway_offset + ring_bytes(nranks, layout->oneway_lines);
    layout->credit_offset = layout->pair_offset + pair_ring_bytes(nranks, layout->pair_quads);
    layout->bulk_offset = layout->pair_offset + pair_bytes(nranks, layout->pair_quads);
    layout->copy_offset = layout->bulk_offset + bulk_bytes(nranks, layout->bulk_bytes);
    layout->bytes = layout->copy_offset + slots_bytes(nranks, layout->copy_bytes);
}

/* Lines of each peer that so many bytes hold, for both halves; not more than are wanted. */
static uint64_t peer_lines_in(int nranks, uint64_t bytes, uint64_t wanted) {
    return lesser(whole_steps(bytes / (2 * half_bytes(nranks, 1))), wanted);
}

/* LARGE, where there is so much for kernels without multicast. */
static uint64_t large_of(uint64_t left) {
    return left > BESIDE_LARGE + 2 * LARGE ? (left - BESIDE_LARGE) / 2 : LARGE;
}

int bl_staging_plan(struct bl_staging_layout *layout, int nranks, uint64_t bytes, unsigned with, bool multicast) {
    if (nranks < 2 || nranks > BL_MAX_RANKS || bytes < bl_staging_minimum(nranks)) return -1;
    uint64_t left = bytes;
    *layout = (struct bl_staging_layout){0};
    if (multicast) plan_multicast(layout, nranks, &left);
    const uint64_t slot = with & BL_WITH_SLOTS ? plan_slots(nranks, &left) : 0;
    if (with & BL_WITH_PIECES) layout->bulk_bytes = plan_bulk(nranks, bytes / 4);
    const uint64_t wanted = peer_lines_of(nranks, large_of(left));
    layout->packets = plan_packets(nranks, &left);
    layout->pair_quads = plan_pairs(nranks, &left);
    layout->oneway_lines = plan_rings(nranks, wanted, &left);
    const uint64_t enough = peer_lines_of(nranks, nranks <= 4 ? LARGE_ENOUGH : LARGE);
    layout->pair_quads = grow_pairs(nranks, layout->pair_quads, enough, &left);
    layout->peer_lines = peer_lines_in(nranks, left, wanted);
    layout->copy_bytes = slot;
    arrange(layout, nranks);
    return 0;
}

/* Lines from each peer, and of a ring, with which `kernel` carries so many bytes in one launch. */
static uint64_t peer_lines_for(int kernel, int nranks, uint64_t bytes) {
    const uint64_t lines = bl_lines_of(bytes, BL_LINE_DATA), n = (uint64_t)nranks;
    switch (kernels[kernel].share) {
    case PEERS: return lines;
    case RANKS: return divide_up((lines + LINES_STEP - 1) * n, n - 1);
    case TWOSHOT: return 2 * divide_up(lines, n);
    default: return 0;
    }
}
static uint64_t ring_lines_for(int kernel, uint64_t bytes) {
    return kernels[kernel].share == RINGS ? 3 * (bl_lines_of(bytes, BL_FLAGGED_DATA) + LINES_GRAIN) : 0;
}

void bl_staging_trim(struct bl_staging_layout *layout, int nranks, const uint64_t bytes[BL_KERNELS]) {
    uint64_t peer_lines = 2 * LINES_STEP, ring = LEAST_RING;
    uint64_t ring_lines = KEPT_RINGS_BYTES / ((uint64_t)(nranks - 1) * LINE_BYTES);
    uint64_t message = 0; /* the longest; 0: no route has any */
    bool any_bulk = false;
    const uint64_t all = layout->bytes - bulk_bytes(nranks, layout->bulk_bytes);
    for (int kernel = 0; kernel < BL_KERNELS; kernel++) {
        if (!bytes[kernel]) continue;
        const uint64_t most = lesser(bytes[kernel], MORE_THAN_ANY_STAGING);
        const uint64_t peers = peer_lines_for(kernel, nranks, most), rings = ring_lines_for(kernel, most);
        if (peers > peer_lines) peer_lines = peers;
        if (rings > ring_lines) ring_lines = rings;
        if (bl_kernel_pairs(kernel) && bytes[kernel] > message) message = bytes[kernel];
        any_bulk = any_bulk || bl_kernel_bulk(kernel);
    }
    while (layout->pair_quads > KEPT_PAIR_QUADS && unreceived(layout->pair_quads / 2) >= message)
        layout->pair_quads /= 2;
    if (!message) layout->pair_quads = 0;
    if (!any_bulk) layout->bulk_bytes = 0;
    while (ring < ring_lines) ring *= 2;
    layout->oneway_lines = lesser(layout->oneway_lines, ring);
    /* Lines that were given up for rings which are not used are there again. */
    const uint64_t lines = all - packet_bytes(nranks, layout->packets) - ring_bytes(nranks, layout->oneway_lines) -
                           pair_bytes(nranks, layout->pair_quads) - slots_bytes(nranks, layout->copy_bytes);
    const uint64_t large = peer_lines_of(nranks, LARGE);
    const uint64_t most = layout->peer_lines > large ? layout->peer_lines : large;
    layout->peer_lines = lesser(peer_lines_in(nranks, lines, most), whole_steps(peer_lines + LINES_STEP - 1));
    arrange(layout, nranks);
}
