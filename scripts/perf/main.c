/* main.c - beeline-perf: times collectives through Beeline and through NCCL in turn, and checks every element. */
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "perf.h"

enum { GRACE = 10 }; /* seconds that the other parts have to end after one failed */

static struct report report; /* of part 0 */

static unsigned places_of(int collective) {
    return 1u << OUT_OF_PLACE | (unsigned)collectives[collective].in_place << IN_PLACE;
}

/* Runs the modes and places of one size; *slow is set if one call takes longer than a row may. */
static int run_size(struct part *part, struct row row, bool *slow) {
    const struct options *o = part->bench->options;
    unsigned places = o->places & places_of(row.collective);

    for (row.mode = 0; row.mode < MODES; row.mode++) {
        for (row.place = 0; row.place < PLACES; row.place++) {
            if (!(o->modes >> row.mode & 1) || !(places >> row.place & 1)) continue;
            if (part->index == 0) report_progress(&report, &row);
            if (row_run(part, &row)) return -1;
            *slow = *slow || part->bench->shared->call_seconds > o->seconds;
            if (part->index == 0) report_row(&report, &row);
            if (part_barrier(part)) return -1; /* part 0 has read the figures */
        }
    }
    return 0;
}

/* All sizes of one collective, datatype, operation and offset. */
static int run_series(struct part *part, int collective, int datatype, int redop, uint64_t offset) {
    struct bench *bench = part->bench;
    const struct options *o = bench->options;
    uint64_t size = bl_datatype_size(datatype),
             blocks = collective_has(collective, BL_GATHERS | BL_SCATTERS) ? bench->nranks : 1;
    struct row row = {.collective = collective, .datatype = datatype, .redop = redop, .group = o->group};
    bool slow = false;

    row.offset = offset;
    row.root = collective_has(collective, BL_ROOTED) ? o->root : -1;
    for (uint64_t bytes = o->min_bytes; bytes <= o->max_bytes; bytes = o->step ? bytes + o->step : bytes * o->factor) {
        if (bytes * row.group > part->rank[0].room || slow) {
            char text[32];
            bl_size_format(bytes, text, sizeof text);
            if (part->index == 0)
                report_note(&report, "sizes from %s on left out: %s", text,
                            slow ? "one call takes longer than --seconds" : "device memory is too small");
            break;
        }
        uint64_t counts[] = {bytes / size / blocks, bytes / size / blocks - 1};
        int variants = o->odd && counts[0] % 2 == 0 ? 2 : 1;
        for (int i = 0; i < variants; i++) {
            row.count = counts[i];
            row.bytes = row.count * size * blocks;
            if (!counts[0] || (i && !row.count)) continue;
            const char *route = api_route(part->rank[0].comm[MEASURED], collective, row.count, datatype, redop);
            if (o->served && !api_serves(route)) continue; /* as on every rank */
            if (run_size(part, row, &slow)) return -1;
        }
    }
    return 0;
}

/* The offsets of one collective, datatype and operation. */
static int run_offsets(struct part *part, int collective, int datatype, int redop) {
    struct bench *bench = part->bench;
    const struct options *o = bench->options;
    uint64_t size = bl_datatype_size(datatype), last = UINT64_MAX;

    if (part_barrier(part)) return -1;
    if (part->index % o->threads == 0 && pattern_make(&bench->pattern, datatype, redop, bench->nranks))
        return part_fail(part, "out of memory");
    if (part_barrier(part)) return -1;
    for (int i = 0; i < o->offsets; i++) {
        uint64_t offset = (o->offset[i] + size - 1) / size * size; /* NCCL wants elements aligned to their size */
        if (offset == last) continue;
        last = offset;
        if (run_series(part, collective, datatype, redop, offset)) return -1;
    }
    return 0;
}

static int run_collective(struct part *part, int collective) {
    const struct options *o = part->bench->options;
    unsigned redops = collective_has(collective, BL_REDUCES) ? o->redops : 1u << BL_SUM;
    const char *lacking = api_lacks(collective);

    if (part->index == 0) report_collective(&report, collective, lacking);
    if (lacking) return 0;
    for (int d = 0; d < BL_DATATYPES; d++)
        for (int r = 0; r < BL_REDOPS; r++)
            if (o->datatypes >> d & 1 && redops >> r & 1 && run_offsets(part, collective, d, r)) return -1;
    return 0;
}

/* Says whether Beeline serves; with several tuning files each says it for itself, by its routes. */
static int expect_beeline(struct part *part) {
    const struct options *o = part->bench->options;
    const char *why = o->tunings ? NULL : api_left_why(part->rank[0].comm[MEASURED]);

    if (why && o->expect) return part_fail(part, "Beeline does not serve here: %s (--expect-beeline)", why);
    report_left(&report, why, api_section(part->rank[0].comm[MEASURED]));
    return 0;
}

static int run_all(struct part *part) {
    const struct options *o = part->bench->options;

    if (part->index == 0 && expect_beeline(part)) return -1;
    if (o->modes >> EAGER & 1 && !o->check) {
        if (launch_time(part)) return -1;
        if (part->index == 0) report_launch(&report);
    }
    if (part->index == 0) report_columns(&report);
    for (int i = 0; i == 0 || i < o->tunings; i++) {
        if (i && (tunings_take(part, i) || part_reconnect(part))) return -1;
        if (part->index == 0 && o->tunings) report_tuning(&report, o->tuning[i]);
        for (int c = 0; c < PERF_CALLS; c++)
            if (o->collectives >> c & 1 && run_collective(part, c)) return -1;
    }
    return 0;
}

static _Atomic int running;

static void *part_main(void *arg) {
    struct part *part = arg;

    part->scratch = malloc((1 << 20) + 2 * GUARD);
    if (!part->scratch)
        part_fail(part, "out of memory");
    else if (!tunings_take(part, 0) && !part_open(part) && !run_all(part) && !part_barrier(part))
        part_close(part);
    free(part->scratch);
    atomic_fetch_sub(&running, 1);
    return NULL;
}

/* Waits for the parts.  Where one failed, another may be stuck in a call that waits for it: then the process has to go.
 */
static void await_parts(struct shared *shared) {
    double failed = 0;
    while (atomic_load(&running)) {
        nanosleep(&(struct timespec){0, 2000000}, NULL);
        if (atomic_load(&shared->failed) && !failed) failed = now();
        if (!failed || now() - failed < GRACE) continue;
        fflush(NULL);
        _exit(1);
    }
}

/* What each process would say is said by the first. */
static int refuse(struct shared *shared, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int refuse(struct shared *shared, const char *format, ...) {
    va_list args;
    if (atomic_exchange(&shared->failed, 1)) return -1;
    va_start(args, format);
    fputs("beeline-perf: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return -1;
}

static int default_ranks(struct options *o, struct shared *shared) {
    int devices = 0;

    if (cuda.cuDeviceGetCount(&devices) != CUDA_SUCCESS || devices < 1)
        return refuse(shared, "the CUDA driver shows no GPU");
    if (!o->gpus && !o->threads && o->processes == 1) o->threads = devices < BL_MAX_RANKS ? devices : BL_MAX_RANKS;
    o->gpus = o->gpus ? o->gpus : 1;
    o->threads = o->threads ? o->threads : 1;
    const int ranks = o->processes * o->threads * o->gpus;
    if (ranks < 2 || ranks > BL_MAX_RANKS)
        return refuse(shared, "%d processes x %d threads x %d GPUs are %d ranks: 2 to 16 are accepted", o->processes,
                      o->threads, o->gpus, ranks);
    /* A launcher may show each process GPUs of its own. */
    const int sharing = o->spawn ? ranks : ranks / o->processes;
    if (sharing > devices)
        return refuse(shared, "%d ranks (-t, -g, --spawn) need a GPU each, and the CUDA driver shows %d", sharing,
                      devices);
    if (o->root >= ranks)
        return refuse(shared, "--root '%d' is not accepted: of %d ranks, 0 to %d", o->root, ranks, ranks - 1);
    return 0;
}

/* One process of a run. */
static int run_process(struct options *o, struct shared *shared) {
    static struct part parts[BL_MAX_RANKS];
    pthread_t thread;

    CUresult result = api_load(o) ? CUDA_ERROR_UNKNOWN : cuda.cuInit(0);
    if (result != CUDA_SUCCESS) {
        if (cuda.cuInit) fprintf(stderr, "beeline-perf: cuInit: %s\n", api_cuda_error(result));
        atomic_store(&shared->failed, 1);
        return 1;
    }
    if (default_ranks(o, shared)) return 1;
    struct bench bench = {.options = o, .shared = shared, .parts = o->processes * o->threads};
    bench.nranks = bench.parts * o->gpus;
    if (o->rank == 0 && (tunings_check(o) || report_open(&report, &bench))) {
        atomic_store(&shared->failed, 1);
        return 1;
    }
    atomic_store(&running, o->threads);
    for (int t = 0; t < o->threads; t++) {
        parts[t] = (struct part){.bench = &bench, .index = o->rank * o->threads + t, .count = o->gpus};
        if (pthread_create(&thread, NULL, part_main, &parts[t])) {
            shared_fail(shared, "cannot start a thread");
            fflush(NULL);
            _exit(1);
        }
        pthread_detach(thread);
    }
    await_parts(shared);
    pattern_free(&bench.pattern);
    if (o->rank == 0) tunings_clear(o);
    bool failed = atomic_load(&shared->failed);
    return o->rank == 0 ? report_close(&report, failed) : failed;
}

/* Forks before anything of CUDA is touched: a driver does not survive a fork. */
static int spawn(struct options *o, struct shared *shared) {
    pid_t pids[BL_MAX_RANKS];
    int status, left = 0, result = 0;
    double failed = 0;

    for (; left < o->processes; left++) {
        pid_t parent = getpid();
        fflush(NULL);
        pids[left] = fork();
        if (pids[left] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent) _exit(1);
            o->rank = o->local_rank = left;
            exit(run_process(o, shared));
        }
        if (pids[left] < 0) {
            shared_fail(shared, "cannot fork");
            result = 1;
            break;
        }
    }
    for (int n = left; left;) {
        for (int i = 0; i < n; i++) {
            if (pids[i] <= 0 || waitpid(pids[i], &status, WNOHANG) != pids[i]) continue;
            pids[i] = 0;
            left--;
            if (WIFEXITED(status) && !WEXITSTATUS(status)) continue;
            /* Rank 0 ends with 1 for wrong values; any other end that nobody has told of leaves the rest waiting. */
            if (WIFSIGNALED(status))
                shared_fail(shared, "process %d ended by signal %d", i, WTERMSIG(status));
            else if (!atomic_load(&shared->failed) && (i || WEXITSTATUS(status) != 1))
                shared_fail(shared, "process %d ended with status %d", i, WEXITSTATUS(status));
            result = 1;
        }
        if (atomic_load(&shared->failed) && !failed) failed = now();
        for (int i = 0; i < n && failed && now() - failed > 2 * GRACE; i++)
            if (pids[i] > 0) kill(pids[i], SIGKILL);
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    }
    return result;
}

int main(int argc, char **argv) {
    struct options options;

    int stop = options_parse(&options, argc, argv);
    if (stop) return stop > 0 ? 0 : 1;
    bool launched = options.processes > 1 && !options.spawn;
    struct shared *shared = launched ? shared_attach(&options) : shared_make();
    if (!shared) return 1;
    if (options.spawn && options.processes > 1) return spawn(&options, shared);
    return run_process(&options, shared);
}
