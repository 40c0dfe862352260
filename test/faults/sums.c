#include "sums.h"

#include <time.h>

void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

void sums_open(struct part *part, struct sums *sums) {
    each_rank (part, i) CU_OK(cuMemAlloc(&sums->buffer[i], ELEMENTS * 4));
}

void sums_close(struct part *part, struct sums *sums) {
    each_rank (part, i) CU_OK(cuMemFree(sums->buffer[i]));
}

ncclResult_t sums_call(struct part *part, struct sums *sums, int i, ncclComm_t comm) {
    int r;
    uint32_t image[ELEMENTS];
    struct rank *rank = part_enter(part, i);
    NCCL_OK(ncclCommUserRank(comm, &r));
    for (int k = 0; k < ELEMENTS; k++) image[k] = (uint32_t)(r + 1);
    box_upload(sums->buffer[i], image, sizeof image);
    return ncclAllReduce((void *)sums->buffer[i], (void *)sums->buffer[i], ELEMENTS, ncclUint32, ncclSum, comm,
                         rank->stream[0]);
}

void sums_check(struct part *part, struct sums *sums, int i, int n) {
    uint32_t image[ELEMENTS];
    struct rank *rank = part_enter(part, i);
    CU_OK(cuStreamSynchronize(rank->stream[0]));
    CU_OK(cuMemcpyDtoH(image, sums->buffer[i], sizeof image));
    for (int k = 0; k < ELEMENTS; k++)
        CHECK(image[k] == (uint32_t)(n * (n + 1) / 2), "element %d is %u for %d ranks", k, image[k], n);
}

void works(struct part *part, ncclComm_t *comms, int n) {
    struct sums sums;
    sums_open(part, &sums);
    part_group_start(part);
    for (int i = 0; i < part->count; i++)
        if (comms[i]) NCCL_OK(sums_call(part, &sums, i, comms[i]));
    part_group_end(part);
    for (int i = 0; i < part->count; i++)
        if (comms[i]) sums_check(part, &sums, i, n);
    sums_close(part, &sums);
}

void destroy(struct part *part, ncclComm_t *comms) {
    each_rank_in_group (part, i) {
        if (comms[i]) NCCL_OK(ncclCommDestroy(comms[i]));
    }
}

void abort_all(struct part *part, ncclComm_t *comms) {
    each_rank (part, i) NCCL_OK(ncclCommAbort(comms[i]));
}

int index_of(const struct part *part, int rank) {
    for (int i = 0; i < part->count; i++)
        if (part->rank[i].rank == rank) return i;
    return -1;
}

int sums_alone(struct part *part, struct sums *sums, ncclComm_t *comms) {
    const int zero = index_of(part, 0);
    part_make_communicators(part, 1, comms);
    sums_open(part, sums);
    if (zero >= 0) NCCL_OK(sums_call(part, sums, zero, comms[zero]));
    part_barrier(part);
    return zero;
}
