/* select.c - the pure selection: one call, one table, one route and the reason for it.
 *
 * On the path of every call: integers only, no strings, no division but that of bl_kernel_blocks. */
#include "dispatch.h"

static const char *const reasons[BL_REASONS] = {
#define BL_REASON(name, text) [BL_REASON_##name] = text,
#include "reason.def"
#undef BL_REASON
};

const char *bl_reason_text(enum bl_reason reason) {
    return (unsigned)reason < BL_REASONS ? reasons[reason] : "?";
}

static void to_nccl(struct bl_route *route, enum bl_reason reason) {
    *route = (struct bl_route){.algorithm = BL_ROUTE_NCCL, .why = reason, .reason = reasons[reason]};
}

void bl_range_route(const struct bl_table *table, const struct bl_range *range, enum bl_kernel kernel, uint64_t bytes,
                    struct bl_route *route) {
    route->algorithm = range->algorithm;
    route->kernel = kernel;
    route->threads = range->threads;
    route->blocks = bl_kernel_blocks(kernel, table->nranks, bytes, range->threads, range->max_blocks);
    route->why = (enum bl_reason)range->reason;
    route->reason = reasons[range->reason];
}

void bl_table_select(const struct bl_table *table, const struct bl_request *request, struct bl_route *route) {
    uint64_t size = bl_datatype_size(request->datatype), bytes;
    bool uncovered = false;

    if (!request->count && !bl_collective_has(request->collective, BL_PAIRED)) return to_nccl(route, BL_REASON_EMPTY);
    if (!size) return to_nccl(route, BL_REASON_DATATYPE);
    if ((unsigned)request->redop >= BL_REDOPS) return to_nccl(route, BL_REASON_CUSTOM_OP);
    if (request->root < 0 || request->root >= table->nranks) return to_nccl(route, BL_REASON_ROOT);
    if (__builtin_mul_overflow(request->count, size * (uint64_t)table->nranks, &bytes))
        return to_nccl(route, BL_REASON_TOO_LARGE);
    bytes = request->count * size;

    const struct bl_range *range = table->range[request->collective];
    for (const struct bl_range *end = range + table->ranges[request->collective]; range < end; range++) {
        if (bytes > range->max_bytes) continue;
        if (range->algorithm == BL_ROUTE_NCCL)
            return to_nccl(route, uncovered ? BL_REASON_UNCOVERED : (enum bl_reason)range->reason);
        const struct bl_algorithm *algorithm = &bl_algorithms[range->algorithm];
        if (!bl_algorithm_covers(algorithm, table->arch, request->datatype, request->redop)) {
            uncovered = true;
            continue;
        }
        return bl_range_route(table, range, bl_range_kernel(range), bytes, route);
    }
    to_nccl(route, uncovered ? BL_REASON_UNCOVERED : BL_REASON_UNTUNED);
}
