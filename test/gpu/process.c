#include "process.h"

#include <unistd.h>

static int number_of(const char *name) {
    const char *text = getenv(name);
    if (text) return atoi(text);
    printf("%s is not set\n", name);
    exit(1);
}

static void connect_ranks(struct process *process) {
    const char *path = getenv("BEELINE_ID_FILE");
    ncclUniqueId id;
    char part[4096];
    if (!path) exit((printf("BEELINE_ID_FILE is not set\n"), 1));
    snprintf(part, sizeof part, "%s.part", path);
    if (process->rank == 0) {
        CHECK(ncclGetUniqueId(&id));
        FILE *file = fopen(part, "w");
        CHECK(!file || fwrite(&id, sizeof id, 1, file) != 1 || fclose(file) || rename(part, path));
    } else {
        while (access(path, R_OK)) usleep(1000);
        FILE *file = fopen(path, "r");
        CHECK(!file || fread(&id, sizeof id, 1, file) != 1 || fclose(file));
    }
    CHECK(ncclCommInitRank(&process->comm, process->nranks, id, process->rank));
}

void process_open(struct process *process) {
    int devices;
    CUcontext context;
    process->rank = number_of("RANK");
    process->nranks = number_of("WORLD_SIZE");
    if (process->nranks > MOST_RANKS) exit((printf("at most %d ranks\n", MOST_RANKS), 1));
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&devices));
    CHECK(cuDeviceGet(&process->device, number_of("LOCAL_RANK") % devices));
    CHECK(cuDevicePrimaryCtxRetain(&context, process->device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&process->stream, CU_STREAM_NON_BLOCKING));
    connect_ranks(process);
}

void process_close(struct process *process) {
    CHECK(ncclCommDestroy(process->comm));
    CHECK(cuStreamDestroy(process->stream));
    CHECK(cuDevicePrimaryCtxRelease(process->device));
}

static int compare(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

struct timed {
    CUgraphExec exec; /* NULL: without a graph */
    void (*call)(void *);
    void *arg;
    int calls;
};

static void issue(const struct timed *timed, CUstream stream) {
    if (timed->exec)
        CHECK(cuGraphLaunch(timed->exec, stream));
    else
        for (int i = 0; i < timed->calls; i++) timed->call(timed->arg);
}

static CUgraphExec capture(const struct timed *timed, CUstream stream) {
    CUgraph graph;
    CUgraphExec exec;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < timed->calls; i++) timed->call(timed->arg);
    CHECK(cuStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiate(&exec, graph, 0));
    CHECK(cuGraphDestroy(graph));
    return exec;
}

float process_time(const struct process *process, void (*call)(void *), void (*poison)(void *), void *arg,
                   bool captured, int calls, int replays) {
    struct timed timed = {.call = call, .arg = arg, .calls = calls};
    CUevent event[2];
    float us[MOST_REPLAYS];
    if (calls < 1 || replays < 1 || replays > MOST_REPLAYS)
        exit((printf("%d calls, %d replays; accepted: 1 and more, 1 to %d\n", calls, replays, MOST_REPLAYS), 1));
    call(arg); /* makes connections, which a capture forbids */
    CHECK(cuStreamSynchronize(process->stream));
    poison(arg);
    CHECK(cuCtxSynchronize());
    if (captured) timed.exec = capture(&timed, process->stream);
    for (int i = 0; i < 2; i++) CHECK(cuEventCreate(&event[i], CU_EVENT_DEFAULT));
    for (int i = 0; i < replays; i++) {
        issue(&timed, process->stream); /* the ranks begin together behind it */
        CHECK(cuEventRecord(event[0], process->stream));
        issue(&timed, process->stream);
        CHECK(cuEventRecord(event[1], process->stream));
        CHECK(cuStreamSynchronize(process->stream));
        CHECK(cuEventElapsedTime(&us[i], event[0], event[1]));
    }
    for (int i = 0; i < 2; i++) CHECK(cuEventDestroy(event[i]));
    if (timed.exec) CHECK(cuGraphExecDestroy(timed.exec));
    qsort(us, (size_t)replays, sizeof *us, compare);
    return us[replays / 2] * 1000 / (float)calls;
}

size_t process_bytes(const char *name, const char *text, size_t least, size_t most) {
    char *end;
    const unsigned long long bytes = strtoull(text, &end, 10);
    const int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : 0;
    if (end == text || end[shift != 0] || bytes > most >> shift || bytes << shift < least)
        exit((printf("%s: \"%s\"; accepted: %zu to %zu bytes, or as many K or M\n", name, text, least, most), 1));
    return (size_t)bytes << shift;
}
