/* refused.c - calls and groups that NCCL refuses, or fails at the group's end. */
#include <string.h>

#include "sums.h"

enum { REFUSED = 100000 };

/* A group of which NCCL refuses its part; Beeline's is a receive of what nobody sends. */
static void post_refused(const struct rank *rank, CUdeviceptr buffer, ncclComm_t comm) {
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclRecv((void *)buffer, 100, ncclInt8, 1, comm, rank->stream[0]));
    NCCL_OK(ncclSend((void *)buffer, REFUSED, ncclInt8, 0, comm, rank->stream[0])); /* which nobody receives */
    ncclResult_t result = ncclGroupEnd();
    for (; result == ncclInProgress; nap()) NCCL_OK(ncclCommGetAsyncError(comm, &result));
    CHECK(result == ncclInvalidUsage, "the group ended with %s", ncclGetErrorString(result));
    CU_OK(cuStreamSynchronize(rank->stream[0]));
}

/* Rank 0 has such a group when Beeline's part is launched: the error can be read, and nothing waits. */
static void group_refused_by(struct part *part, ncclComm_t *comms) {
    CUdeviceptr buffer;
    struct rank *rank = part_enter(part, 0);
    CHECK(part->count == 1, "one rank a thread");
    CU_OK(cuMemAlloc(&buffer, REFUSED));
    if (rank->rank == 0) {
        ncclResult_t result;
        post_refused(rank, buffer, comms[0]);
        NCCL_OK(ncclCommGetAsyncError(comms[0], &result));
        CHECK(result == ncclInvalidUsage, "the error is %s", ncclGetErrorString(result));
        CHECK(strstr(ncclGetLastError(comms[0]), "ended a group"), "it says: %s", ncclGetLastError(comms[0]));
        CHECK(ncclRecv((void *)buffer, 100, ncclInt8, 1, comms[0], rank->stream[0]) == ncclInvalidUsage);
    }
    part_barrier(part);
    abort_all(part, comms);
    CU_OK(cuMemFree(buffer));
}
/* Where NCCL's messages would be the first, Beeline's part is launched behind them, so never, and nothing has happened. */
static void group_refused_first(struct part *part, ncclComm_t comm) {
    CUdeviceptr buffer;
    ncclResult_t state;
    struct rank *rank = part_enter(part, 0);
    CU_OK(cuMemAlloc(&buffer, REFUSED));
    if (rank->rank == 0) post_refused(rank, buffer, comm);
    NCCL_OK(ncclCommGetAsyncError(comm, &state));
    CHECK(state == ncclSuccess, "the error is %s", ncclGetErrorString(state));
    if (rank->rank == 0) NCCL_OK(ncclSend((void *)buffer, REFUSED, ncclInt8, 1, comm, rank->stream[0]));
    if (rank->rank == 1) NCCL_OK(ncclRecv((void *)buffer, REFUSED, ncclInt8, 0, comm, rank->stream[0]));
    CU_OK(cuStreamSynchronize(rank->stream[0]));
    CU_OK(cuMemFree(buffer));
}
void group_refused(struct part *part) {
    ncclComm_t comms[BOX_RANKS];
    part_make_communicators(part, 1, comms);
    group_refused_first(part, comms[0]);
    group_refused_by(part, comms);
}
void group_refused_nonblocking(struct part *part) {
    ncclComm_t comms[BOX_RANKS];
    part_make_nonblocking(part, 1, comms);
    group_refused_by(part, comms);
}

/* Flags that NCCL does not know: it refuses, and neither a call that waits for its peers, nor a group with it in its midst, is disturbed. */
void revoke_refused(struct part *part) {
    ncclComm_t comms[BOX_RANKS];
    struct sums sums;
    const int zero = sums_alone(part, &sums, comms);
    if (zero >= 0)
        CHECK(ncclCommRevoke(comms[zero], 7) == ncclInvalidArgument, "revoked by flags that it does not know");
    nap();
    part_barrier(part);
    each_rank (part, i)
        if (i != zero) NCCL_OK(sums_call(part, &sums, i, comms[i]));
    each_rank (part, i) sums_check(part, &sums, i, part->box->nranks);
    part_barrier(part);
    NCCL_OK(ncclGroupStart());
    each_rank (part, i) NCCL_OK(sums_call(part, &sums, i, comms[i]));
    if (zero >= 0) CHECK(ncclCommRevoke(comms[zero], 7) == ncclInvalidArgument, "revoked in a group");
    NCCL_OK(ncclGroupEnd());
    each_rank (part, i) sums_check(part, &sums, i, part->box->nranks);
    destroy(part, comms);
    sums_close(part, &sums);
}

/* A window that NCCL cannot register fails the group that it is in, of which nothing is launched; the next one is. */
void window_fails(struct part *part) {
    ncclComm_t comms[BOX_RANKS];
    struct sums sums;
    part_make_communicators(part, 1, comms);
    sums_open(part, &sums);
    for (int after = 0; after < 2; after++) { /* the sum, or the window */
        NCCL_OK(ncclGroupStart());
        each_rank (part, i) {
            ncclWindow_t window;
            if (after) NCCL_OK(sums_call(part, &sums, i, comms[i]));
            (void)ncclCommWindowRegister(comms[i], (void *)sums.buffer[i], ELEMENTS * 4, &window, 0);
            if (!after) NCCL_OK(sums_call(part, &sums, i, comms[i]));
        }
        CHECK(ncclGroupEnd() != ncclSuccess, "a group whose window cannot be had");
        each_rank (part, i) {
            uint32_t first;
            CU_OK(cuStreamSynchronize(part_enter(part, i)->stream[0]));
            CU_OK(cuMemcpyDtoH(&first, sums.buffer[i], sizeof first));
            CHECK(first == (uint32_t)part->rank[i].rank + 1, "a sum was made in a group that failed");
        }
        part_barrier(part);
    }
    works(part, comms, part->box->nranks);
    destroy(part, comms);
    sums_close(part, &sums);
}
