/* box.c - the ranks that this process drives, and what has passed. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous.h"
#include "selftest.h"

int nranks, nlocal, first;
CUcontext contexts[MAX];
CUstream streams[MAX], side_streams[MAX];
ncclComm_t comms[MAX];

static int npassed, nfailed;

bool check(bool good, const char *format, ...) {
    va_list arguments;
    (good ? npassed++ : nfailed++);
    if (good) return true;
    va_start(arguments, format);
    printf("rank %d: FAILED: ", first);
    vprintf(format, arguments);
    printf(" (last error: %s)\n", ncclGetLastError(NULL));
    va_end(arguments);
    fflush(stdout);
    return false;
}

int summary(void) {
    printf("%d passed, %d failed\n", npassed, nfailed);
    return nfailed != 0;
}

void check_cuda(CUresult result, const char *call, const char *file, int line) {
    if (!check(result == CUDA_SUCCESS, "%s:%d: %s: %d", file, line, call, result)) exit(1);
}

void share_id(ncclUniqueId *id) {
    if (first == 0) OK(ncclGetUniqueId(id));
    if (nlocal < nranks && bl_rendezvous_id(id, first, nranks)) exit(1);
}

void make_comms(ncclComm_t *made, ncclConfig_t *config) {
    ncclUniqueId id;
    share_id(&id);
    OK(ncclGroupStart());
    foreach (l) OK(ncclCommInitRankConfig(&made[l], nranks, id, first + l, config));
    OK(ncclGroupEnd());
}

void synchronize(void) {
    foreach (l) {
        CU(cuStreamSynchronize(streams[l]));
        CU(cuStreamSynchronize(side_streams[l]));
    }
}

void open_box(void) {
    const char *rank = getenv("RANK"), *size = getenv("WORLD_SIZE");
    int devices;
    CU(cuInit(0));
    CU(cuDeviceGetCount(&devices));
    first = rank ? atoi(rank) : 0;
    nranks = size ? atoi(size) : devices;
    nlocal = size ? 1 : nranks;
    if (nranks < 2 || nranks > MAX) {
        printf("%d ranks; accepted: 2 to %d\n", nranks, MAX);
        exit(1);
    }
    for (int l = 0; l < nlocal; l++) {
        CUdevice device;
        CU(cuDeviceGet(&device, first + l));
        CU(cuDevicePrimaryCtxRetain(&contexts[l], device));
        CU(cuCtxSetCurrent(contexts[l]));
        CU(cuStreamCreate(&streams[l], CU_STREAM_NON_BLOCKING));
        CU(cuStreamCreate(&side_streams[l], CU_STREAM_NON_BLOCKING));
    }
    make_comms(comms, NULL);
}

int main(int argc, char **argv) {
    if (argc > 1) child_case(argv[1]);
    open_box();
    test_collectives();
    test_calls();
    test_comms();
    if (nlocal == nranks) test_children(argv[0]);
    return summary();
}
