/* turn.h - calls that the real NCCL makes take their turn among Beeline's.
 *
 * A nonblocking communicator's call may still be in progress when it returns: its turn ends when NCCL says that it is on its
 * stream, which whoever asks NCCL hears.  What Beeline launched beside it (beside.h) is joined then: earlier, and NCCL's part would
 * be behind it.  Beeline waits for nothing there, so the caller can poll, and abort.
 */
#ifndef BEELINE_TURN_H
#define BEELINE_TURN_H

#include "fuse.h"

struct bl_turn {
    struct bl_comm *comm;
    CUstream stream;
    struct bl_order_turn order; /* bl_turn_begin fills it */
    struct bl_request request;
    bool counted;       /* the statistics have it: Beeline could have served such a request */
    enum bl_reason why; /* and did not */
    bool follows;       /* another of its group, on its stream, has the turn of both: this one is but counted */
    bool beside;        /* Beeline's messages of its group go on beside it, and it ends with them: beside.h */
};

/* Whether NCCL's kernel is one for messages, as for all we know that of what we know nothing of. */
static inline bool bl_turn_by_messages(const struct bl_turn *turn) {
    return !turn->counted || bl_call_by_messages(&turn->request);
}

/* That kernel, a bit: that of messages, or of a collective, which has another one where messages of its group share it than alone. */
static inline unsigned bl_turn_kernel(const struct bl_turn *turn) {
    if (bl_turn_by_messages(turn)) return 1u << BL_SENDRECV;
    const unsigned alone = 1u << turn->request.collective;
    return turn->comm->group_messages ? alone << BL_COLLECTIVES : alone;
}

/* Of a call that has no turn, for it is on no stream (bl_call_is_nothing): the statistics have it all the same. */
void bl_turn_count(struct bl_comm *comm, const struct bl_request *request, enum bl_reason why);

/* Before the real call; an error is the caller's. */
ncclResult_t bl_turn_begin(struct bl_turn *turn);

/* Once more, where others' calls have been launched since and all are to be in order (in_order). */
ncclResult_t bl_turn_again(const struct bl_turn *turn);

/* Behind it; `result` is what the real call, or the end of its group, returned: ncclSuccess, or ncclInProgress, and then the turn
 * ends once NCCL says that the call is on its stream.  Any other: the call was not made, and if Beeline's calls of its group are under
 * way beside it, the communicator fails from then on, and their kernels end. */
ncclResult_t bl_turn_end(const struct bl_turn *turn, ncclResult_t result);

/* The same where only Beeline has calls of the communicator in a group, beside those that NCCL has of others. */
ncclResult_t bl_turn_end_beside(struct bl_comm *comm);

/* A call of Beeline's, of a group in which such a call is, before the turn of that is ended: true if it is kept, to be launched
 * behind that. */
bool bl_turn_keep(const struct bl_collected *call);

/* Ends such a turn, and launches what was kept; to be called when NCCL has said so, or that it failed.  Any thread. */
void bl_turn_settle(struct bl_comm *comm, ncclResult_t state);

/* ncclInvalidArgument, as from NCCL, if the communicator's last call is still in progress. */
ncclResult_t bl_turn_settled(struct bl_comm *comm);

#endif
