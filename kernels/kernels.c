/* kernels.c - the host's side of kernels.h: names, capacities, the layout of the staging. */
#include "kernels.h"

#include <stdio.h>

enum { PACKET_BYTES = 16, PACKET_DATA = 8, LINE_BYTES = 128, LINE_LANES = 8 };
enum { MOST_PACKETS = 8192, FEWEST_PACKETS = 256, LINES_STEP = 64 }; /* a step of lines holds a multiple of 128 bytes */

/* Bytes of the messages that go in one launch, if the staging may be large enough; of small one-shot ones times the
 * peers, who all get the whole message.  Between two ranks the one-shot moves no more bytes than the two-shot: there it is
 * used for large messages. */
static const uint64_t LARGE_ONESHOT = 8 << 20, SMALL_ONESHOT = 3 << 20, LARGE_TWOSHOT = 16 << 20;

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
    bool packets, twoshot, batch;
} kernels[BL_KERNELS] = {
    [BL_KERNEL_ALLREDUCE_ONESHOT_PACKET] = {"oneshot_packet", .packets = true},
    [BL_KERNEL_ALLREDUCE_ONESHOT_LINE] = {"oneshot_line"},
    [BL_KERNEL_ALLREDUCE_TWOSHOT_LINE] = {"twoshot_line", .twoshot = true},
    [BL_KERNEL_ALLREDUCE_ONESHOT_LINE_BATCH] = {"oneshot_line_batch", .batch = true},
    [BL_KERNEL_ALLREDUCE_TWOSHOT_LINE_BATCH] = {"twoshot_line_batch", .twoshot = true, .batch = true},
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

int bl_kernel_symbol(int kernel, int datatype, int nranks, char *symbol, size_t size) {
    if (!is_kernel(kernel) || datatype < 0 || datatype >= BL_DATATYPES) return -1;
    if (nranks < 2 || nranks > BL_MAX_RANKS) return -1;
    int unrolled = nranks <= 2 ? 2 : nranks <= 4 ? 4 : nranks <= 8 ? 8 : 16; /* as instantiate.cuh has them */
    if (kernels[kernel].batch) unrolled = nranks <= 4 ? 4 : 16;
    int n = snprintf(symbol, size, "bl_allreduce_%s_%s_%d", kernels[kernel].name, datatypes[datatype].symbol, unrolled);
    return n > 0 && (size_t)n < size ? 0 : -1;
}

uint64_t bl_kernel_capacity(int kernel, int nranks, const struct bl_staging_layout *layout) {
    if (!is_kernel(kernel)) return 0;
    if (kernels[kernel].packets) return layout->packets * PACKET_DATA;
    return BL_LINE_DATA * (kernels[kernel].twoshot ? layout->twoshot_lines * (uint64_t)nranks : layout->oneshot_lines);
}

bool bl_kernel_in_pieces(int kernel, int nranks) {
    if (!is_kernel(kernel) || kernels[kernel].packets || kernels[kernel].batch) return false;
    return kernels[kernel].twoshot || nranks == 2;
}

static uint64_t divide_up(uint64_t a, uint64_t b) {
    return (a + b - 1) / b;
}

unsigned bl_kernel_blocks(int kernel, int nranks, uint64_t bytes, unsigned threads, unsigned max_blocks) {
    const uint64_t most = max_blocks < BL_MAX_BLOCKS ? max_blocks : BL_MAX_BLOCKS;
    const uint64_t lines = bl_lines_of(bytes), groups = threads / LINE_LANES;
    uint64_t need;
    if (kernels[kernel].packets)
        need = divide_up(divide_up(bytes, PACKET_DATA), threads);
    else if (kernels[kernel].twoshot) /* it has three crews, and reducing a line takes longest */
        need = 4 * divide_up(divide_up(lines, (uint64_t)nranks), groups);
    else
        need = divide_up(lines, groups);
    if (need > most) need = most;
    return need ? (unsigned)need : 1;
}

static uint64_t packet_bytes(int nranks, uint64_t packets) {
    return 2 * (uint64_t)(nranks - 1) * packets * PACKET_BYTES;
}
static uint64_t oneshot_bytes(int nranks, uint64_t lines) {
    return 2 * (uint64_t)nranks * lines * LINE_BYTES;
}
static uint64_t twoshot_bytes(int nranks, uint64_t lines) {
    return 2 * (uint64_t)(nranks - 1) * lines * LINE_BYTES;
}
static uint64_t fewest_lines_bytes(int nranks) {
    return oneshot_bytes(nranks, LINES_STEP) + twoshot_bytes(nranks, LINES_STEP);
}

uint64_t bl_staging_minimum(int nranks) {
    return packet_bytes(nranks, FEWEST_PACKETS) + fewest_lines_bytes(nranks);
}

/* Lines for `bytes` of data, or their share if only `given` of `wanted` bytes of staging are there; whole steps, and one
 * more, so that there is one at least. */
static uint64_t lines_for(uint64_t bytes, uint64_t given, uint64_t wanted) {
    uint64_t lines = bl_lines_of(bytes);
    if (given < wanted) lines = (uint64_t)((double)lines * (double)given / (double)wanted);
    return lines / LINES_STEP * LINES_STEP + LINES_STEP;
}

int bl_staging_plan(struct bl_staging_layout *layout, int nranks, uint64_t bytes) {
    if (nranks < 2 || nranks > BL_MAX_RANKS || bytes < bl_staging_minimum(nranks)) return -1;
    const uint64_t spare = bytes - fewest_lines_bytes(nranks), most = spare < bytes / 4 ? spare : bytes / 4;
    uint64_t packets = MOST_PACKETS;
    while (packets > FEWEST_PACKETS && packet_bytes(nranks, packets) > most) packets /= 2;

    const uint64_t offset = packet_bytes(nranks, packets), given = spare - offset;
    const uint64_t oneshot_data = nranks == 2 ? LARGE_ONESHOT : SMALL_ONESHOT / (uint64_t)(nranks - 1);
    const uint64_t twoshot_data = LARGE_TWOSHOT / (uint64_t)nranks;
    const uint64_t wanted =
        oneshot_bytes(nranks, bl_lines_of(oneshot_data)) + twoshot_bytes(nranks, bl_lines_of(twoshot_data));
    const uint64_t oneshot = lines_for(oneshot_data, given, wanted), twoshot = lines_for(twoshot_data, given, wanted);
    *layout = (struct bl_staging_layout){
        .bytes = offset + oneshot_bytes(nranks, oneshot) + twoshot_bytes(nranks, twoshot),
        .packet_offset = 0,
        .packets = packets,
        .oneshot_offset = offset,
        .oneshot_lines = oneshot,
        .twoshot_offset = offset + oneshot_bytes(nranks, oneshot),
        .twoshot_lines = twoshot,
    };
    return 0;
}
