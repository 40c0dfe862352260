/* pairs.c - launches of messages between two ranks: channels and warps of a stream, and which kernel carries them; pairs.cuh. */
#include <string.h>

#include "kernels.h"

unsigned bl_pair_channels(const struct bl_staging_layout *layout) {
    const uint64_t channels = layout->pair_quads / BL_PAIR_DEPTH; /* DEPTH is three times a power of two, too */
    return channels < BL_PAIR_CHANNELS ? (unsigned)channels : BL_PAIR_CHANNELS;
}

unsigned bl_pair_lap_log2(const struct bl_staging_layout *layout) {
    return (unsigned)__builtin_ctzll(layout->pair_quads) + 2; /* a third of the places, and a quarter of the lap */
}

unsigned bl_pair_warps(const struct bl_staging_layout *layout, uint64_t quads) {
    const unsigned channels = bl_pair_channels(layout);
    return quads <= channels ? (unsigned)quads : channels;
}

unsigned bl_pairs_per_warp(const struct bl_pairs_args *args) {
    unsigned quads = 1;
    for (uint32_t i = 0; i < args->streams; i++)
        while (quads < 3 && args->stream[i].quads > quads * (uint64_t)args->stream[i].warps) quads++;
    return quads;
}

enum bl_kernel bl_pairs_kernel(const struct bl_pairs_args *args, bool few) {
    /* For a warp with one quad, two, or more: with all arguments, with few. */
    static const enum bl_kernel kernel[3][2] = {
        {BL_KERNEL_SENDRECV_LL128_SHORT_BATCH, BL_KERNEL_SENDRECV_LL128_SHORT},
        {BL_KERNEL_SENDRECV_LL128_TWO_BATCH, BL_KERNEL_SENDRECV_LL128_TWO},
        {BL_KERNEL_SENDRECV_LL128_BATCH, BL_KERNEL_SENDRECV_LL128},
    };
    const struct bl_pairs_stream *last = &args->stream[args->streams - 1];
    const unsigned per_warp = bl_pairs_per_warp(args);
    const bool copies = args->pairs < args->streams;
    few =
        few && args->streams <= BL_PAIR_FEW && last->first + last->messages <= BL_PAIR_FEW && !(per_warp < 3 && copies);
    return kernel[per_warp - 1][few];
}

void bl_pairs_few(struct bl_pairs_few_args *few, const struct bl_pairs_args *args) {
    few->common = args->common;
    few->streams = args->streams;
    few->pairs = args->pairs;
    few->pairs_log2 = args->pairs_log2;
    few->channels = args->channels;
    few->lap_log2 = args->lap_log2;
    memcpy(few->stream, args->stream, sizeof(few->stream));
    memcpy(few->message, args->message, sizeof(few->message));
}
