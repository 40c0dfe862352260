/* call.c - what happens around every exported call: injected faults and the trace.
 *
 * BEELINE_EMU_NCCL_FAULT=function[@rank][#nth]=RESULT[,...]: the call of that function (on that rank; the nth of this
 * process, from 1) fails with RESULT, a name such as ncclSystemError; "async:RESULT" lets the call succeed and makes
 * RESULT the communicator's asynchronous error.  Functions without a rank of their own take the process's RANK.
 * BEELINE_EMU_NCCL_TRACE=FILE appends a line a call: pid rank function count datatype op capturing result.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "emu_nccl.h"

enum { MAX_FAULTS = 32 };

static struct fault {
    char function[64];
    int rank; /* -1: any */
    int nth;  /* 0: every */
    bool async;
    ncclResult_t result;
    _Atomic int seen;
} faults[MAX_FAULTS];
static int nfaults, process_rank = -1;
static int trace_fd = -1;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool parse_fault(const char *text, struct fault *fault) {
    char result[64], *end;
    const char *equals = strchr(text, '=');
    size_t name = strcspn(text, "@#=");
    if (!equals || name == 0 || name >= sizeof fault->function) return false;
    memcpy(fault->function, text, name);
    fault->rank = -1;
    for (text += name; *text != '=';) {
        char what = *text++;
        long value = strtol(text, &end, 10);
        if (end == text || value < 0) return false;
        if (what == '@')
            fault->rank = (int)value;
        else if (what == '#')
            fault->nth = (int)value;
        else
            return false;
        text = end;
    }
    fault->async = strncmp(++text, "async:", 6) == 0;
    if (fault->async) text += 6;
    snprintf(result, sizeof result, "%s", text);
    return emu_result_parse(result, &fault->result);
}

static void read_environment(void) {
    const char *rank = getenv("RANK"), *path = getenv("BEELINE_EMU_NCCL_TRACE"),
               *text = getenv("BEELINE_EMU_NCCL_FAULT");
    if (rank) process_rank = atoi(rank);
    if (path) trace_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (!text) return;
    char *copy = strdup(text), *rest = copy;
    for (char *item; (item = strsep(&rest, ","));) {
        if (!*item) continue;
        if (nfaults < MAX_FAULTS && parse_fault(item, &faults[nfaults]))
            nfaults++;
        else
            fprintf(stderr, "BEELINE_EMU_NCCL_FAULT: \"%s\" is not function[@rank][#nth]=ncclResultName\n", item);
    }
    free(copy);
}

ncclResult_t emu_call_enter(const struct emu_call *call, ncclComm_t comm) {
    pthread_once(&once, read_environment);
    int rank = call->rank >= 0 ? call->rank : process_rank;
    for (int i = 0; i < nfaults; i++) {
        struct fault *fault = &faults[i];
        if (strcmp(fault->function, call->function) || (fault->rank >= 0 && fault->rank != rank)) continue;
        int nth = atomic_fetch_add(&fault->seen, 1) + 1;
        if (fault->nth && fault->nth != nth) continue;
        if (!fault->async)
            return emu_fail(fault->result, "%s: injected %s", call->function, emu_result_name(fault->result));
        if (comm) emu_comm_set_async(comm, fault->result);
    }
    return ncclSuccess;
}

ncclResult_t emu_call_leave(const struct emu_call *call, ncclResult_t result) {
    if (trace_fd < 0) return result;
    char line[256], count[24] = "-";
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (call->count >= 0) snprintf(count, sizeof count, "%lld", call->count);
    if (call->has_stream) cuStreamIsCapturing(call->stream, &status);
    int length = snprintf(line, sizeof line, "%d %d %s %s %s %s %s %s\n", (int)getpid(), call->rank, call->function,
                          count, call->datatype < 0 ? "-" : emu_datatype_name(call->datatype),
                          call->op < 0 ? "-" : emu_redop_name(call->op),
                          !call->has_stream                         ? "-"
                          : status == CU_STREAM_CAPTURE_STATUS_NONE ? "0"
                                                                    : "1",
                          emu_result_name(result));
    if (write(trace_fd, line, (size_t)length) < 0) trace_fd = -1;
    return result;
}
