/* kernels.c - the host's side of kernels.h: names, capacities, the layout of the staging. */
#include "kernels.h"

#include <stdio.h>

enum { PACKET_BYTES = 16, PACKET_DATA = 8, LINE_BYTES = 128, LINE_DATA = 120, LINE_LANES = 8 };
enum { MOST_PACKETS = 8192, FEWEST_PACKETS = 256, FEWEST_LINES = 64 };

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

static const char *const kernels[BL_KERNELS] = {
    [BL_KERNEL_ALLREDUCE_ONESHOT_PACKET] = "oneshot_packet",
    [BL_KERNEL_ALLREDUCE_ONESHOT_LINE] = "oneshot_line",
    [BL_KERNEL_ALLREDUCE_TWOSHOT_LINE] = "twoshot_line",
};

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
    return kernel >= 0 && kernel < BL_KERNELS ? kernels[kernel] : "?";
}

int bl_kernel_symbol(int kernel, int datatype, int nranks, char *symbol, size_t size) {
    if (kernel < 0 || kernel >= BL_KERNELS || datatype < 0 || datatype >= BL_DATATYPES) return -1;
    if (nranks < 2 || nranks > BL_MAX_RANKS) return -1;
    int unrolled = nranks <= 2 ? 2 : nranks <= 4 ? 4 : nranks <= 8 ? 8 : 16; /* as instantiate.cuh has them */
    int n = snprintf(symbol, size, "bl_allreduce_%s_%s_%d", kernels[kernel], datatypes[datatype].symbol, unrolled);
    return n > 0 && (size_t)n < size ? 0 : -1;
}

uint64_t bl_kernel_capacity(int kernel, int nranks, const struct bl_staging_layout *layout) {
    switch (kernel) {
    case BL_KERNEL_ALLREDUCE_ONESHOT_PACKET: return layout->packets * PACKET_DATA;
    case BL_KERNEL_ALLREDUCE_ONESHOT_LINE: return 2 * layout->lines * LINE_DATA;
    case BL_KERNEL_ALLREDUCE_TWOSHOT_LINE: return (uint64_t)1 << 40; /* passes go round in the staging */
    default: return 0;
    }
}

unsigned bl_kernel_blocks(int kernel, int nranks, const struct bl_staging_layout *layout, uint64_t bytes,
                          unsigned threads, unsigned max_blocks) {
    uint64_t most = BL_MAX_WARPS * 32ull / threads, need; /* blocks that the epoch words allow, that have work */
    if (kernel == BL_KERNEL_ALLREDUCE_ONESHOT_PACKET) {
        need = (bytes + (uint64_t)PACKET_DATA * threads - 1) / ((uint64_t)PACKET_DATA * threads);
    } else {
        uint64_t share = kernel == BL_KERNEL_ALLREDUCE_TWOSHOT_LINE ? (bytes + nranks - 1) / nranks : bytes;
        uint64_t per_block = (uint64_t)LINE_DATA * (threads / LINE_LANES);
        need = (share + per_block - 1) / per_block;
        if (kernel == BL_KERNEL_ALLREDUCE_TWOSHOT_LINE) { /* a slot for each line of a pass */
            uint64_t fit = layout->lines / (threads / LINE_LANES);
            if (fit < most) most = fit;
        }
    }
    if (max_blocks < most) most = max_blocks;
    if (need > most) need = most;
    return need ? (unsigned)need : 1;
}

static uint64_t line_bytes_per_unit(int nranks) {
    return 4ull * nranks * LINE_BYTES; /* halves * phases * sources */
}

uint64_t bl_staging_minimum(int nranks) {
    return 2ull * nranks * FEWEST_PACKETS * PACKET_BYTES + line_bytes_per_unit(nranks) * FEWEST_LINES;
}

int bl_staging_plan(struct bl_staging_layout *layout, int nranks, uint64_t bytes, uint64_t max_threads) {
    if (nranks < 2 || nranks > BL_MAX_RANKS || bytes < bl_staging_minimum(nranks)) return -1;
    /* Packets: for a few rounds of the largest grid, and so that the fewest lines have room beside them. */
    const uint64_t spare = bytes - line_bytes_per_unit(nranks) * FEWEST_LINES;
    const uint64_t most = spare < bytes / 4 ? spare : bytes / 4;
    uint64_t packets = MOST_PACKETS;
    while (packets > FEWEST_PACKETS && (packets > 4 * max_threads || 2ull * nranks * packets * PACKET_BYTES > most))
        packets /= 2;
    uint64_t packet_bytes = 2ull * nranks * packets * PACKET_BYTES;
    uint64_t lines = (bytes - packet_bytes) / line_bytes_per_unit(nranks);
    /* A pass of the two-shot needs a line for each group.  Between two ranks the one-shot moves no more bytes than the
     * two-shot, so it serves larger messages: it gets room for them. */
    const uint64_t useful = max_threads / LINE_LANES * (nranks == 2 ? 2 : 1);
    if (lines > useful) lines = useful;
    if (lines < FEWEST_LINES) lines = FEWEST_LINES;
    lines -= lines % FEWEST_LINES; /* whole blocks of 512 threads */
    *layout = (struct bl_staging_layout){
        .bytes = packet_bytes + lines * line_bytes_per_unit(nranks),
        .packet_offset = 0,
        .packets = packets,
        .line_offset = packet_bytes,
        .lines = lines,
    };
    return 0;
}
