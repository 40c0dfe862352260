/* p2p.c - the sends and receives of one group. */
#include <stdlib.h>

#include "area.h"

ncclResult_t emu_run_p2p(ncclComm_t comm, const struct emu_op *ops, int nops) {
    struct emu_transfer *transfers = calloc((size_t)nops, sizeof *transfers);
    if (!transfers) return emu_fail(ncclSystemError, "out of memory");
    for (int i = 0; i < nops; i++) {
        const bool sends = ops[i].collective == EMU_SEND;
        const uint64_t bytes = ops[i].count * emu_datatype_size(ops[i].datatype);
        transfers[i] = (struct emu_transfer){
            .note = {.key = {.count = bytes, .collective = EMU_SEND}}, /* bytes are what has to agree */
            .ring = sends ? emu_area_ring(comm, EMU_P2P, comm->rank, ops[i].peer)
                          : emu_area_ring(comm, EMU_P2P, ops[i].peer, comm->rank),
            .room = EMU_RING,
            .sends = sends,
            .peer = ops[i].peer,
            .data = sends ? (unsigned char *)ops[i].sendbuff : ops[i].recvbuff,
            .bytes = bytes,
        };
    }
    ncclResult_t result = emu_transfer_all(comm, transfers, nops);
    free(transfers);
    return result;
}
