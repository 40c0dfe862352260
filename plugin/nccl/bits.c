/* bits.c - see bits.h. */
#include "bits.h"

#include "base/log.h"
#include "base/params.h"
#include "comm/comm.h"
#include "setup/resources.h"

/* Bits of comm->warned: enum bl_reason, and behind them what no route has. */
enum { LEFT = BL_REASONS, REASONS };
_Static_assert(REASONS <= 64, "a bit a reason");

/* Of calls that have no result, or only an error. */
static const uint64_t WITHOUT_SUMS = UINT64_C(1) << BL_REASON_EMPTY | UINT64_C(1) << BL_REASON_NO_BUFFER |
                                     UINT64_C(1) << BL_REASON_STRANGE_BUFFER | UINT64_C(1) << BL_REASON_ROOT |
                                     UINT64_C(1) << BL_REASON_TOO_LARGE;

/* Integers wrap, and the least or largest is one of them: whatever the order, the bits are the same. */
static bool is_exact(const struct bl_request *request) {
    return (request->datatype >= BL_INT8 && request->datatype <= BL_UINT64) || request->redop == BL_MIN ||
           request->redop == BL_MAX;
}

/* Of a communicator without a table, which nobody has agreed on: as far as this rank knows. */
static bool is_left(const struct bl_comm *comm, enum bl_collective collective) {
    const struct bl_resources *resources = comm->resources;
    return bl_params()->batch_invariant && bl_collective_has(collective, BL_REDUCES) && comm->nranks > 1 &&
           atomic_load(&resources->stage) == BL_STAGE_DONE && *resources->left_why;
}

static bool is_wanted(const struct bl_comm *comm, enum bl_collective collective, bool left) {
    return left ? is_left(comm, collective) : comm->table.invariant >> collective & 1;
}

/* All ranks come to the same: rank 0 says it, unless it may be one that cannot. */
static bool speaks(const struct bl_comm *comm, bool left) {
    return comm->rank == 0 || (left && comm->resources->left_apart);
}

void bl_bits_tell(const struct bl_call *call) {
    struct bl_comm *comm = call->comm;
    const struct bl_request *request = &call->request;
    const bool left = !bl_comm_active(comm);
    const unsigned reason = left ? LEFT : (unsigned)call->route.why;
    if (is_exact(request) || !request->count || (!left && WITHOUT_SUMS >> reason & 1)) return;
    if (!is_wanted(comm, request->collective, left) || !speaks(comm, left) || comm->warned >> reason & 1) return;
    comm->warned |= UINT64_C(1) << reason;
    bl_warn("communicator %016llx: BEELINE_BATCH_INVARIANT=1, but %s of %llu %s %s goes to nccl, whose bits may depend "
            "on the size: %s",
            (unsigned long long)comm->id, bl_collective_name(request->collective), (unsigned long long)request->count,
            bl_datatype_name(request->datatype), bl_redop_name(request->redop),
            left ? comm->resources->left_why : call->route.reason);
}
