/* children.c - what hangs on variables that are read once: each case is a run of this program with its own environment.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "selftest.h"

/* BEELINE_EMU_NCCL_FAULT=ncclAllReduce@1#2=ncclSystemError,ncclCommSplit@0=ncclUnhandledCudaError,
 * ncclBroadcast@1=async:ncclRemoteError */
static void case_faults(void) {
    struct buffer b[MAX];
    ncclComm_t children[MAX];
    open_box();
    foreach (l) b[l] = make(ncclFloat, 10);
    for (int call = 1; call <= 3; call++) {
        OK(ncclGroupStart());
        foreach (l) {
            ncclResult_t result =
                ncclAllReduce(at(&b[l], 0), at(&b[l], 0), 10, ncclFloat, ncclSum, comms[l], streams[l]);
            check(result == (call == 2 && l == 1 ? ncclSystemError : ncclSuccess), "call %d rank %d: %d", call, l,
                  result);
        }
        IS(ncclGroupEnd(), call == 2 ? ncclSystemError : ncclSuccess);
    }
    OK(ncclGroupStart());
    foreach (l) OK(ncclCommSplit(comms[l], 0, 0, &children[l], NULL));
    IS(ncclGroupEnd() == ncclSuccess ? ncclSuccess : ncclRemoteError, ncclRemoteError);
    foreach (l) check(!children[l], "handle of a failed split");
    OK(ncclGroupStart());
    foreach (l) OK(ncclBroadcast(at(&b[l], 0), at(&b[l], 0), 0, ncclFloat, 0, comms[0], streams[l]));
    OK(ncclGroupEnd());
    synchronize();
    foreach (l) OK(ncclCommDestroy(comms[l]));
}

/* BEELINE_EMU_NCCL_FAULT=ncclCommInitRankConfig@1=ncclSystemError: the others fail rather than wait. */
static void case_init_fault(void) {
    ncclComm_t made[MAX];
    ncclUniqueId id;
    int devices;
    CU(cuInit(0));
    CU(cuDeviceGetCount(&devices));
    OK(ncclGetUniqueId(&id));
    OK(ncclGroupStart());
    for (int r = 0; r < devices; r++) {
        CUcontext context;
        CU(cuDevicePrimaryCtxRetain(&context, r));
        CU(cuCtxSetCurrent(context));
        OK(ncclCommInitRankConfig(&made[r], devices, id, r, NULL));
    }
    ncclResult_t result = ncclGroupEnd();
    check(result == ncclSystemError || result == ncclRemoteError, "init with a fault: %d", result);
    for (int r = 0; r < devices; r++) check(!made[r], "handle of a failed init");
}

/* BEELINE_EMU_NCCL_TRACE=FILE BEELINE_EMU_NCCL_VERSION=21234 */
static void case_trace(void) {
    const char *path = getenv("BEELINE_EMU_NCCL_TRACE");
    char line[512], wanted[3][128];
    int version, found[3] = {0};
    open_box();
    OK(ncclGetVersion(&version));
    check(version == 21234, "version %d", version);
    OK(ncclGroupStart());
    foreach (l) OK(ncclBcast(NULL, 0, ncclBfloat16, 1, comms[l], streams[l]));
    foreach (l) OK(ncclAllReduce(NULL, NULL, 0, ncclFloat8e4m3, ncclAvg, comms[l], streams[l]));
    OK(ncclGroupEnd());
    snprintf(wanted[0], sizeof wanted[0], "%d 1 ncclBroadcast 0 bfloat16 - 0 ncclSuccess\n", (int)getpid());
    snprintf(wanted[1], sizeof wanted[1], "%d 1 ncclBcast 0 bfloat16 - 0 ncclSuccess\n", (int)getpid());
    snprintf(wanted[2], sizeof wanted[2], "%d 0 ncclAllReduce 0 float8_e4m3 avg 0 ncclSuccess\n", (int)getpid());
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        for (int i = 0; i < 3; i++) found[i] += strcmp(line, wanted[i]) == 0;
    if (file) fclose(file);
    for (int i = 0; i < 3; i++) check(found[i] == 1, "%d times in the trace: %s", found[i], wanted[i]);
}

/* LD_LIBRARY_PATH of the variants */
static void case_variant(bool newer) {
    static const char *const later[] = {"ncclCommWindowRegister",
                                        "ncclCommWindowDeregister",
                                        "ncclCommShrink",
                                        "ncclCommRevoke",
                                        "ncclAlltoAll",
                                        "ncclGather",
                                        "ncclScatter",
                                        "ncclCommInitRankScalable"};
    int version;
    OK(ncclGetVersion(&version));
    check(version == (newer ? 29900 : 22005), "version %d", version);
    for (size_t i = 0; i < sizeof later / sizeof later[0]; i++)
        check(!dlsym(RTLD_DEFAULT, later[i]) == !newer, "%s", later[i]);
    ncclResult_t (*future)(int);
    *(void **)&future = dlsym(RTLD_DEFAULT, "ncclFutureFunction");
    check(!future == !newer && (!future || future(1) == ncclSuccess), "ncclFutureFunction");
}

/* BEELINE_EMU_NCCL_MULTICAST=3 BEELINE_EMU_MULTICAST_SLOTS=4: where one communicator has taken its own, there are none for
 * another, until it is destroyed. */
static void case_multicast(void) {
    ncclComm_t more[MAX];
    ncclUniqueId id;
    open_box();
    for (int turn = 0; turn < 3; turn++) {
        share_id(&id);
        OK(ncclGroupStart());
        foreach (l) OK(ncclCommInitRank(&more[l], nranks, id, first + l));
        ncclResult_t result = ncclGroupEnd();
        check(turn == 2 ? result == ncclSuccess : result == ncclUnhandledCudaError || result == ncclRemoteError,
              "init, turn %d: %d", turn, result);
        foreach (l) check(!more[l] == (turn < 2), "handle, turn %d", turn);
        if (turn == 1)
            foreach (l) OK(ncclCommDestroy(comms[l]));
    }
    foreach (l) OK(ncclCommDestroy(more[l]));
}

void child_case(const char *name) {
    if (!strcmp(name, "faults"))
        case_faults();
    else if (!strcmp(name, "init_fault"))
        case_init_fault();
    else if (!strcmp(name, "multicast"))
        case_multicast();
    else if (!strcmp(name, "trace"))
        case_trace();
    else if (!strcmp(name, "conversions"))
        test_convert();
    else if (!strcmp(name, "old") || !strcmp(name, "new"))
        case_variant(!strcmp(name, "new"));
    else
        check(false, "%s: no such case", name);
    exit(summary());
}

static void child(const char *self, const char *name, const char *environment) {
    char command[4096];
    snprintf(command, sizeof command, "env %s '%s' %s >&2", environment, self, name);
    fflush(stdout);
    check(system(command) == 0, "%s", command);
}

/* The variants lie beside the library in use. */
static void variant(const char *self, const char *name) {
    Dl_info info;
    char environment[2048], *slash;
    if (!check(dladdr((void *)(size_t)ncclGetVersion, &info) && (slash = strrchr(info.dli_fname, '/')), "dladdr"))
        return;
    snprintf(environment, sizeof environment, "LD_LIBRARY_PATH='%.*s/%s':\"$LD_LIBRARY_PATH\"",
             (int)(slash - info.dli_fname), info.dli_fname, name);
    child(self, name, environment);
}

void test_children(const char *self) {
    char environment[256], path[] = "/tmp/nccl_selftest.XXXXXX";
    int fd = mkstemp(path);
    if (fd >= 0) close(fd);
    snprintf(environment, sizeof environment, "BEELINE_EMU_NCCL_TRACE=%s BEELINE_EMU_NCCL_VERSION=21234", path);
    child(self, "trace", environment);
    unlink(path);
    child(self, "faults",
          "BEELINE_EMU_NCCL_FAULT=ncclAllReduce@1#2=ncclSystemError,ncclCommSplit@0=ncclUnhandledCudaError");
    child(self, "init_fault", "BEELINE_EMU_NCCL_FAULT=ncclCommInitRankConfig@1=ncclSystemError");
    child(self, "multicast", "BEELINE_EMU_TOPOLOGY=nvls BEELINE_EMU_NCCL_MULTICAST=3 BEELINE_EMU_MULTICAST_SLOTS=4");
    variant(self, "old");
    variant(self, "new");
}
