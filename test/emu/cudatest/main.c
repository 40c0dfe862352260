/* main.c - runs the tests of the emulated driver, each in a process of its own with its own environment; some under
 * many seeds.  Prints a line for each that fails, and `N passed, N failed`.
 *
 *   cudatest [NAME...]    KERNELS is the library of kernels.cu, beside the program if unset
 */
#define _GNU_SOURCE
#include "cudatest.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int test_failures;

/* A litmus test that is wrong by design must fail under some seed, up to so many; all others pass under each. */
enum verdict { ALWAYS, NOT_ALWAYS };

struct test {
    const char *name;
    void (*run)(void);
    const char *gpus, *setting; /* other variables, NAME=VALUE, or NULL */
    int seeds;
    enum verdict verdict;
};

static const struct test tests[] = {
    {"streams", test_streams, "2", NULL, 3, ALWAYS},
    {"legacy-stream", test_legacy_stream, "1", NULL, 1, ALWAYS},
    {"unsettled", test_unsettled, "1", NULL, 3, ALWAYS},
    {"events", test_events, "2", NULL, 3, ALWAYS},
    {"event-again", test_event_again, "1", NULL, 3, ALWAYS},
    {"contexts", test_contexts, "2", NULL, 1, ALWAYS},
    {"handles", test_handles, "2", NULL, 1, ALWAYS},
    {"handles-again", test_handles_again, "1", NULL, 3, ALWAYS},
    {"handles-gone", test_handles_gone, "1", NULL, 1, ALWAYS},
    {"capture", test_capture, "1", NULL, 3, ALWAYS},
    {"capture-fork", test_capture_fork, "1", NULL, 3, ALWAYS},
    {"capture-forbidden", test_capture_forbidden, "1", NULL, 1, ALWAYS},
    {"capture-events", test_capture_events, "1", NULL, 1, ALWAYS},
    {"capture-ranks", test_capture_ranks, "4", NULL, 5, ALWAYS},
    {"memory", test_memory, "2", NULL, 1, ALWAYS},
    {"mapping", test_mapping, "2", NULL, 1, ALWAYS},
    {"processes", test_processes, "2", NULL, 3, ALWAYS},
    {"guard", test_guard, "1", NULL, 1, ALWAYS},
    {"no-peer", test_no_peer, "2", "BEELINE_EMU_TOPOLOGY=none", 1, ALWAYS},
    {"fork", test_fork, "1", NULL, 1, ALWAYS},
    {"proc-address", test_proc_address, "1", NULL, 1, ALWAYS},
    {"lacks", test_lacks, "1", "BEELINE_EMU_LACKS=cuStreamBatchMemOp,cuStreamWriteValue32", 1, ALWAYS},
    {"fault", test_fault, "1", "BEELINE_EMU_FAULT=cuMemAlloc#2=CUDA_ERROR_OUT_OF_MEMORY", 1, ALWAYS},
    {"identity", test_identity, "4", "CUDA_VISIBLE_DEVICES=2,0", 1, ALWAYS},
    {"quiet", test_quiet, "1", NULL, 1, ALWAYS},
    {"waits", test_waits, "1", NULL, 1, ALWAYS},
    {"writers", test_writers, "2", NULL, 3, ALWAYS},
    {"waits-alone", test_waits_alone, "2", NULL, 1, ALWAYS},
    {"memop-errors", test_memop_errors, "2", NULL, 1, ALWAYS},
    {"memop-release", test_memop_release, "1", NULL, 3, ALWAYS},
    {"memop-exit", test_memop_exit, "1", NULL, 1, ALWAYS},
    {"memop-destroy", test_memop_destroy, "1", NULL, 1, ALWAYS},
    {"memop-unmap", test_memop_unmap, "1", NULL, 1, ALWAYS},
    {"memop-graph", test_memop_graph, "2", NULL, 3, ALWAYS},
    {"peer-copies", test_peer_copies, "2", NULL, 3, ALWAYS},
    {"peer-copies-captured", test_peer_copies_captured, "2", NULL, 3, ALWAYS},
    {"peer-copy-order", test_peer_copy_order, "2", NULL, 10, ALWAYS},
    {"peer-copy-access", test_peer_copy_access, "2", NULL, 1, ALWAYS},
    {"priority", test_priority, "1", NULL, 1, ALWAYS},
    {"gather-graph", test_gather_graph, "3", NULL, 10, ALWAYS},
    {"queues", test_queues, "1", "CUDA_DEVICE_MAX_CONNECTIONS=2", 1, ALWAYS},
    {"queue-edge", test_queue_edge, "1", "CUDA_DEVICE_MAX_CONNECTIONS=4", 3, ALWAYS},
    {"queue-no-edge", test_queue_no_edge, "1", "CUDA_DEVICE_MAX_CONNECTIONS=4", 5, NOT_ALWAYS},
    {"branches", test_queue_no_edge, "1", NULL, 3, ALWAYS},
    {"told-by-write", test_told_by_write, "2", NULL, 10, ALWAYS},
    {"told-by-barrier", test_told_by_barrier, "2", NULL, 10, ALWAYS},
    {"told-by-kernel", test_told_by_kernel, "2", NULL, 10, ALWAYS},
    {"told-by-event", test_told_by_event, "2", NULL, 10, ALWAYS},
    {"told-by-edge", test_told_by_edge, "2", NULL, 10, ALWAYS},
    {"told-batch", test_told_batch, "2", NULL, 10, ALWAYS},
    {"told-by-process", test_told_by_process, "2", NULL, 10, ALWAYS},
    {"pulled-by-process", test_pulled_by_process, "2", NULL, 10, ALWAYS},
    {"untold-no-barrier", test_untold_no_barrier, "2", NULL, 5, NOT_ALWAYS},
    {"untold-gpu-barrier", test_untold_gpu_barrier, "2", NULL, 5, NOT_ALWAYS},
    {"untold-memset", test_untold_memset, "2", NULL, 5, NOT_ALWAYS},
    {"untold-copy", test_untold_copy, "2", NULL, 5, NOT_ALWAYS},
    {"untold-no-event", test_untold_no_event, "2", NULL, 5, NOT_ALWAYS},
    {"untold-no-edge", test_untold_no_edge, "2", NULL, 5, NOT_ALWAYS},
    {"untold-no-wait", test_untold_no_wait, "2", NULL, 5, NOT_ALWAYS},
    {"untold-by-process", test_untold_by_process, "2", NULL, 5, NOT_ALWAYS},
    {"copies", test_copies, "1", NULL, 3, ALWAYS},
    {"fault-address", test_fault_address, "1", NULL, 1, ALWAYS},
    {"residency", test_residency, "1", NULL, 3, ALWAYS},
    {"too-many-blocks", test_too_many_blocks, "1", NULL, 1, ALWAYS},
    {"grid-keeps-out", test_grid_keeps_out, "1", NULL, 3, ALWAYS},
    {"holder-keeps-out", test_holder_keeps_out, "1", NULL, 3, ALWAYS},
    {"dispatch-order", test_dispatch_order, "1", NULL, 3, ALWAYS},
    {"holder-captured", test_holder_captured, "1", NULL, 1, ALWAYS},
    {"sync-always", test_sync_always, "1", "BEELINE_EMU_IMPLICIT_SYNC=always", 1, ALWAYS},
    {"sync-never", test_sync_never, "1", "BEELINE_EMU_IMPLICIT_SYNC=never", 1, ALWAYS},
    {"sync-drawn", test_sync_drawn, "1", NULL, 3, ALWAYS},
    {"green-room", test_green_room, "1", "BEELINE_EMU_SMS=8", 3, ALWAYS},
    {"green-current", test_green_current, "1", "BEELINE_EMU_SMS=8", 1, ALWAYS},
    {"counting", test_counting, "1", NULL, 3, ALWAYS},
    {"packets", test_packets_arrive, "4", NULL, 10, ALWAYS},
    {"lines", test_lines_arrive, "4", NULL, 10, ALWAYS},
    {"lines-flood", test_lines_flood, "2", NULL, 5, ALWAYS},
    {"lines-unwaited", test_lines_unwaited, "4", NULL, 3, NOT_ALWAYS},
    {"broken", test_broken, "2", "BEELINE_EMU_TOPOLOGY=broken", 1, NOT_ALWAYS},
    {"message-fence", test_message_fence, "2", NULL, 20, ALWAYS},
    {"message-release", test_message_release, "2", NULL, 20, ALWAYS},
    {"message-nothing", test_message_nothing, "2", NULL, 5, NOT_ALWAYS},
    {"message-no-acquire", test_message_no_acquire, "2", NULL, 5, NOT_ALWAYS},
    {"block-fence", test_block_fence, "2", NULL, 20, ALWAYS},
    {"block-nothing", test_block_nothing, "2", NULL, 5, NOT_ALWAYS},
    {"block-no-barrier", test_block_no_barrier, "2", NULL, 5, NOT_ALWAYS},
    {"multicast-rules", test_multicast_rules, "3", "BEELINE_EMU_TOPOLOGY=nvls", 1, ALWAYS},
    {"multicast-wait", test_multicast_wait, "2", "BEELINE_EMU_TOPOLOGY=nvls BEELINE_EMU_MULTICAST_WAIT=1500", 1,
     ALWAYS},
    {"multicast-slots", test_multicast_slots, "1", "BEELINE_EMU_TOPOLOGY=nvls BEELINE_EMU_MULTICAST_SLOTS=2", 1,
     ALWAYS},
    {"multicast-fault", test_multicast_fault, "1",
     "BEELINE_EMU_TOPOLOGY=nvls BEELINE_EMU_FAULT="
     "cuMulticastGetGranularity#1=CUDA_ERROR_UNKNOWN,cuMulticastCreate#1=CUDA_ERROR_OUT_OF_MEMORY,"
     "cuMulticastAddDevice#1=CUDA_ERROR_ILLEGAL_STATE,cuMulticastBindMem#1=CUDA_ERROR_SYSTEM_NOT_READY,"
     "cuMulticastBindAddr#1=CUDA_ERROR_OUT_OF_MEMORY,cuMulticastUnbind#1=CUDA_ERROR_NOT_PERMITTED",
     1, ALWAYS},
    {"multicast-unsupported", test_multicast_unsupported, "2", "BEELINE_EMU_LACKS=cuMulticastBindMem", 1, ALWAYS},
    {"multicast-old", test_multicast_unsupported, "2",
     "BEELINE_EMU_TOPOLOGY=nvls BEELINE_EMU_ARCH=80 BEELINE_EMU_LACKS=cuMulticastBindMem", 1, ALWAYS},
    {"multicast-processes", test_multicast_processes, "2", "BEELINE_EMU_TOPOLOGY=nvls", 3, ALWAYS},
    {"multicast-lost", test_multicast_lost, "2", "BEELINE_EMU_TOPOLOGY=nvls", 1, ALWAYS},
    {"fabric", test_fabric, "2", "BEELINE_EMU_TOPOLOGY=nvls BEELINE_EMU_FABRIC=on", 1, ALWAYS},
    {"fabric-denied", test_fabric_denied, "1", "BEELINE_EMU_TOPOLOGY=nvls BEELINE_EMU_FABRIC=denied", 1, ALWAYS},
    {"fabric-off", test_fabric_off, "1", "BEELINE_EMU_TOPOLOGY=nvls", 1, ALWAYS},
    {"multimem-gather-2", test_multimem_gather, "2", "BEELINE_EMU_TOPOLOGY=nvls", 5, ALWAYS},
    {"multimem-gather-5", test_multimem_gather, "5", "BEELINE_EMU_TOPOLOGY=nvls", 5, ALWAYS},
    {"multimem-gather-16", test_multimem_gather, "16", "BEELINE_EMU_TOPOLOGY=nvls", 1, ALWAYS},
    {"multimem-reduce-2", test_multimem_reduce, "2", "BEELINE_EMU_TOPOLOGY=nvls", 5, ALWAYS},
    {"multimem-reduce-5", test_multimem_reduce, "5", "BEELINE_EMU_TOPOLOGY=nvls", 5, ALWAYS},
    {"multimem-reduce-16", test_multimem_reduce, "16", "BEELINE_EMU_TOPOLOGY=nvls", 1, ALWAYS},
    {"multimem-packets-2", test_multimem_packets, "2", "BEELINE_EMU_TOPOLOGY=nvls", 5, ALWAYS},
    {"multimem-packets-5", test_multimem_packets, "5", "BEELINE_EMU_TOPOLOGY=nvls", 5, ALWAYS},
    {"multimem-packets-16", test_multimem_packets, "16", "BEELINE_EMU_TOPOLOGY=nvls", 1, ALWAYS},
    {"multimem-types", test_multimem_types, "4", "BEELINE_EMU_TOPOLOGY=nvls BEELINE_EMU_ARCH=100", 2, ALWAYS},
    {"multimem-order", test_multimem_order, "4", "BEELINE_EMU_TOPOLOGY=nvls BEELINE_EMU_ARCH=100", 2, ALWAYS},
    {"multimem-forbidden", test_multimem_forbidden, "13", "BEELINE_EMU_TOPOLOGY=nvls", 1, ALWAYS},
    {"multimem-unbound", test_multimem_unbound, "4", "BEELINE_EMU_TOPOLOGY=nvls", 1, ALWAYS},
    {"gather-no-release", test_gather_no_release, "3", "BEELINE_EMU_TOPOLOGY=nvls", 4, NOT_ALWAYS},
    {"gather-no-acquire", test_gather_no_acquire, "3", "BEELINE_EMU_TOPOLOGY=nvls", 4, NOT_ALWAYS},
    {"gather-no-barrier", test_gather_no_barrier, "3", "BEELINE_EMU_TOPOLOGY=nvls", 4, NOT_ALWAYS},
    {"reduce-no-release", test_reduce_no_release, "3", "BEELINE_EMU_TOPOLOGY=nvls", 4, NOT_ALWAYS},
    {"reduce-no-acquire", test_reduce_no_acquire, "3", "BEELINE_EMU_TOPOLOGY=nvls", 4, NOT_ALWAYS},
    {"reduce-no-barrier", test_reduce_no_barrier, "3", "BEELINE_EMU_TOPOLOGY=nvls", 4, NOT_ALWAYS},
    {"gather-processes-2", test_gather_processes, "2", "BEELINE_EMU_TOPOLOGY=nvls", 3, ALWAYS},
    {"gather-processes-5", test_gather_processes, "5", "BEELINE_EMU_TOPOLOGY=nvls", 2, ALWAYS},
    {"gather-processes-16", test_gather_processes, "16", "BEELINE_EMU_TOPOLOGY=nvls", 1, ALWAYS},
    {"reduce-processes-2", test_reduce_processes, "2", "BEELINE_EMU_TOPOLOGY=nvls", 3, ALWAYS},
    {"reduce-processes-5", test_reduce_processes, "5", "BEELINE_EMU_TOPOLOGY=nvls", 2, ALWAYS},
    {"reduce-processes-16", test_reduce_processes, "16", "BEELINE_EMU_TOPOLOGY=nvls", 1, ALWAYS},
    {"packets-processes-2", test_packets_processes, "2", "BEELINE_EMU_TOPOLOGY=nvls", 3, ALWAYS},
    {"packets-processes-5", test_packets_processes, "5", "BEELINE_EMU_TOPOLOGY=nvls", 2, ALWAYS},
    {"packets-processes-16", test_packets_processes, "16", "BEELINE_EMU_TOPOLOGY=nvls", 1, ALWAYS},
    {"processes-no-release", test_processes_no_release, "4", "BEELINE_EMU_TOPOLOGY=nvls", 60, NOT_ALWAYS},
    {"processes-no-barrier", test_processes_no_barrier, "4", "BEELINE_EMU_TOPOLOGY=nvls", 60, NOT_ALWAYS},
    {"throughput", test_throughput, "16", NULL, 1, ALWAYS},
};
enum { COUNT = sizeof tests / sizeof *tests };

bool test_expect(CUresult result, CUresult expected, const char *call, const char *file, int line) {
    const char *name = "?", *wanted = "?";
    if (result == expected) return true;
    cuGetErrorName(result, &name);
    cuGetErrorName(expected, &wanted);
    fprintf(stderr, "%s:%d: %s returned %s, not %s\n", file, line, call, name, wanted);
    test_failures++;
    return false;
}

static void in_child(const struct test *test, int seed, bool loud) {
    char text[16], self[PATH_MAX], kernels[PATH_MAX + 32];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    snprintf(kernels, sizeof kernels, "%.*s/libcudatest-kernels.so", (int)(strrchr(self, '/') - self), self);
    snprintf(text, sizeof text, "%d", seed);
    setenv("BEELINE_EMU_SEED", text, 1);
    setenv("BEELINE_EMU_GPUS", test->gpus, 1);
    setenv("BEELINE_EMU_KERNELS", kernels, 0);
    unsetenv("BEELINE_EMU_TRACE");
    if (test->setting) {
        char *save = NULL, *settings = strdup(test->setting);
        for (char *one = strtok_r(settings, " ", &save); one; one = strtok_r(NULL, " ", &save)) putenv(one);
    }
    if (!loud && !freopen("/dev/null", "w", stderr)) _exit(2);
    alarm(60);
    execl(self, self, "--one", test->name, (char *)NULL);
    _exit(2);
}

static bool passes(const struct test *test, int seed, bool loud) {
    int status;
    pid_t child = fork();
    if (child == 0) in_child(test, seed, loud);
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool run(const struct test *test) {
    int failed = 0;
    const char *base = getenv("SEED");
    for (int i = 0; i < test->seeds; i++) {
        int seed = (base ? atoi(base) : 1) * 100 + i;
        if (passes(test, seed, test->verdict == ALWAYS)) continue;
        failed++;
        if (test->verdict == NOT_ALWAYS) break;
        printf("%s: failed with seed %d\n", test->name, seed);
    }
    if (test->verdict == NOT_ALWAYS && !failed) printf("%s: what is missing was not noticed\n", test->name);
    return (test->verdict == ALWAYS) == !failed;
}

static int run_one(const char *name) {
    for (int i = 0; i < COUNT; i++) {
        if (strcmp(tests[i].name, name)) continue;
        tests[i].run();
        return test_failures != 0;
    }
    return 2;
}

int main(int argc, char **argv) {
    int passed = 0, failed = 0;
    if (argc == 3 && !strcmp(argv[1], "--one")) return run_one(argv[2]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < COUNT; i++) {
        bool wanted = argc == 1;
        for (int j = 1; j < argc; j++) wanted |= !strcmp(argv[j], tests[i].name);
        if (!wanted) continue;
        if (run(&tests[i]))
            passed++;
        else
            failed++;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
