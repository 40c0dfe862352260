/* kernels.c - the host's side of kernels.h: names, capacities, the layout of the staging. */
#include "kernels.h"

#include <stdio.h>

enum { PACKET_BYTES = 16, PACKET_DATA = 8, LINE_BYTES = 128, LINE_LANES = 8 };
enum { MOST_PACKETS = 8192, FEWEST_PACKETS = 256, LINES_STEP = 64 }; /* a step of lines holds a multiple of 128 bytes */

/* Bytes that a launch sends, or has sent to it, at most, if the staging may be large enough. */
static const uint64_t LARGE = 16 << 20;

/* Of each of the two slots for the copy engines: a piece costs about 20 us beside its copies (docs/algorithms.md). */
static const uint64_t COPY_SLOT = 16 << 20;

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

/* What of the staging a kernel uses: a half of the lines divided among the peers or all ranks, packets, slots. */
enum shares { PACKETS, PEERS, RANKS, TWOSHOT, SLOTS };

static const struct {
    const char *name, *symbol;
    enum shares shares;
    bool reduces, batch;
} kernels[BL_KERNELS] = {
    [BL_KERNEL_ALLREDUCE_ONESHOT_PACKET] = {"oneshot_packet", "allreduce_oneshot_packet", PACKETS, .reduces = true},
    [BL_KERNEL_ALLREDUCE_ONESHOT_LINE] = {"oneshot_line", "allreduce_oneshot_line", RANKS, .reduces = true},
    [BL_KERNEL_ALLREDUCE_TWOSHOT_LINE] = {"twoshot_line", "allreduce_twoshot_line", TWOSHOT, .reduces = true},
    [BL_KERNEL_ALLREDUCE_ONESHOT_LINE_BATCH] = {"oneshot_line_batch", "allreduce_oneshot_line_batch", RANKS,
                                                .reduces = true, .batch = true},
    [BL_KERNEL_ALLREDUCE_TWOSHOT_LINE_BATCH] = {"twoshot_line_batch", "allreduce_twoshot_line_batch", TWOSHOT,
                                                .reduces = true, .batch = true},
    [BL_KERNEL_ALLGATHER_LINE] = {"gather_line", "allgather_line", PEERS},
    [BL_KERNEL_ALLGATHER_LINE_BATCH] = {"gather_line_batch", "allgather_line_batch", PEERS, .batch = true},
    [BL_KERNEL_REDUCESCATTER_LINE] = {"scatter_line", "reducescatter_line", PEERS, .reduces = true},
    [BL_KERNEL_REDUCESCATTER_LINE_BATCH] = {"scatter_line_batch", "reducescatter_line_batch", PEERS, .reduces = true,
                                            .batch = true},
    [BL_KERNEL_ALLTOALL_LINE] = {"exchange_line", "alltoall_line", PEERS},
    [BL_KERNEL_BROADCAST_LINE] = {"broadcast_line", "broadcast_line", PEERS},
    [BL_KERNEL_REDUCE_LINE] = {"reduce_line", "reduce_line", PEERS, .reduces = true},
    [BL_KERNEL_ALLGATHER_COPY] = {"gather_copy", NULL, SLOTS},
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

bool bl_kernel_reduces(int kernel) {
    return is_kernel(kernel) && kernels[kernel].reduces;
}

int bl_kernel_symbol(int kernel, int datatype, int nranks, char *symbol, size_t size) {
    if (!is_kernel(kernel) || !kernels[kernel].symbol || datatype < 0 || datatype >= BL_DATATYPES) return -1;
    if (nranks < 2 || nranks > BL_MAX_RANKS) return -1;
    int unrolled = nranks <= 2 ? 2 : nranks <= 4 ? 4 : nranks <= 8 ? 8 : 16; /* as instantiate.cuh has them */
    if (kernels[kernel].batch) unrolled = nranks <= 4 ? 4 : 16;
    int n = snprintf(symbol, size, "bl_%s_%s_%d", kernels[kernel].symbol,
                     kernels[kernel].reduces ? datatypes[datatype].symbol : "bytes", unrolled);
    return n > 0 && (size_t)n < size ? 0 : -1;
}

static uint64_t lesser(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

uint64_t bl_kernel_capacity(int kernel, int nranks, const struct bl_staging_layout *layout) {
    if (!is_kernel(kernel)) return 0;
    switch (kernels[kernel].shares) {
    case PACKETS: return layout->packets * PACKET_DATA;
    case PEERS: return layout->peer_lines * BL_LINE_DATA;
    case RANKS: return layout->rank_lines * BL_LINE_DATA;
    case TWOSHOT: return layout->peer_lines * BL_LINE_DATA * (uint64_t)nranks;
    case SLOTS: return layout->copy_bytes;
    }
    return 0;
}

bool bl_kernel_in_pieces(int kernel, int nranks) {
    if (!is_kernel(kernel) || kernels[kernel].batch) return false;
    return kernels[kernel].shares == RANKS ? nranks == 2 : kernels[kernel].shares != PACKETS;
}

static uint64_t divide_up(uint64_t a, uint64_t b) {
    return (a + b - 1) / b;
}

unsigned bl_kernel_blocks(int kernel, int nranks, uint64_t bytes, unsigned threads, unsigned max_blocks) {
    const uint64_t most = max_blocks < BL_MAX_BLOCKS ? max_blocks : BL_MAX_BLOCKS;
    const uint64_t lines = bl_lines_of(bytes), groups = threads / LINE_LANES;
    uint64_t need;
    if (kernels[kernel].shares == PACKETS)
        need = divide_up(divide_up(bytes, PACKET_DATA), threads);
    else if (kernels[kernel].shares == TWOSHOT) /* it has three crews, and reducing a line takes longest */
        need = 4 * divide_up(divide_up(lines, (uint64_t)nranks), groups);
    else
        need = divide_up(lines, groups);
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

/* Two steps for a peer are one for a rank. */
uint64_t bl_staging_minimum(int nranks) {
    return packet_bytes(nranks, FEWEST_PACKETS) + 2 * half_bytes(nranks, 2 * LINES_STEP);
}

int bl_staging_plan(struct bl_staging_layout *layout, int nranks, uint64_t bytes, bool copy) {
    if (nranks < 2 || nranks > BL_MAX_RANKS || bytes < bl_staging_minimum(nranks)) return -1;
    uint64_t left = bytes, slot = 0;
    if (copy) { /* half of it at most, and nothing rather than little */
        const uint64_t most = (bytes - BL_COPY_WORDS_BYTES) / 4 / LINE_BYTES * LINE_BYTES;
        slot = lesser(most, COPY_SLOT);
        left -= 2 * slot + BL_COPY_WORDS_BYTES;
        if (left < bl_staging_minimum(nranks)) left = bytes, slot = 0;
    }
    uint64_t packets = MOST_PACKETS;
    while (packets > FEWEST_PACKETS && packet_bytes(nranks, packets) > left / 4) packets /= 2;
    const uint64_t line_offset = packet_bytes(nranks, packets);
    const uint64_t fit = whole_steps((left - line_offset) / (2 * half_bytes(nranks, 1)));
    const uint64_t wanted = whole_steps(bl_lines_of(LARGE / (uint64_t)(nranks - 1))) + LINES_STEP;
    const uint64_t peer_lines = lesser(fit, wanted), half_lines = (uint64_t)(nranks - 1) * peer_lines;
    const uint64_t copy_offset = line_offset + 2 * half_lines * LINE_BYTES;
    *layout = (struct bl_staging_layout){
        .bytes = copy_offset + 2 * slot + (slot ? BL_COPY_WORDS_BYTES : 0),
        .packet_offset = 0,
        .packets = packets,
        .line_offset = line_offset,
        .half_lines = half_lines,
        .peer_lines = peer_lines,
        .rank_lines = whole_steps(half_lines / (uint64_t)nranks),
        .copy_offset = copy_offset,
        .copy_bytes = slot,
    };
    return 0;
}
