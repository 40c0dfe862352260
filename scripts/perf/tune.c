/* tune.c - beeline-perf --tune FILE: times every algorithm of the collectives against NCCL and writes a tuning file.
 *
 * Each algorithm, with each spread, is a run of its own with BEELINE_<COLLECTIVE> set, because a communicator's routes are
 * fixed when it is made; what compares between runs is the ratio to NCCL, which is timed in turn in each.  Bytes where the algorithm
 * does not serve show by the route.  Of a size, the best ratio wins, and only if it beats NCCL by enough (least_ratio).  The file says
 * nothing of sizes above the largest: there the built-in rows hold.
 *
 * Where an algorithm that needs a multicast object served, there is a second section for communicators that have one; the
 * first does without.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "perf.h"

enum { MAX_SIZES = 128, MAX_CANDIDATES = 48 };

static const char *const variables[BL_COLLECTIVES] = {
#define BL_COLLECTIVE(COLLECTIVE, name, words, traits) "BEELINE_" #COLLECTIVE,
#include "collectives.def"
};

struct table {
    struct sizes {
        int count;
        uint64_t bytes[MAX_SIZES];               /* of the call's count of elements */
        double ratio[MAX_SIZES][MAX_CANDIDATES]; /* NCCL's time through the candidate's; 0: not served */
    } sizes[BL_COLLECTIVES];
    int ranks, driver, nccl;
    char gpu[64], section[BL_SECTION];
};

/* By which a file of its own is known. */
static const char mark[] = "# Written by beeline-perf --tune";

/* A candidate is an algorithm with a spread, if there is such a kernel. */
static int candidates(void) {
    return bl_algorithm_count * BL_SPREADS;
}
static const struct bl_algorithm *algorithm_of(int candidate) {
    return &bl_algorithms[candidate / BL_SPREADS];
}
static enum bl_kernel kernel_of(int candidate) {
    return algorithm_of(candidate)->kernel[candidate % BL_SPREADS];
}
static bool by_warps(int candidate) {
    return candidate % BL_SPREADS == BL_BY_WARPS;
}
static bool by_multicast(int candidate) {
    return algorithm_of(candidate)->traits & BL_NVLS;
}

/* Whether it is run here.  Copy engines serve where they are asked for, whatever a file says. */
static bool is_tried(const struct options *options, int candidate) {
    const char *multicast = getenv("BEELINE_MULTICAST");
    const enum bl_kernel kernel = kernel_of(candidate);
    if (!(options->collectives >> algorithm_of(candidate)->collective & 1)) return false;
    if (kernel == BL_KERNEL_NONE || kernel == BL_KERNEL_ALLGATHER_CE) return false;
    return !by_multicast(candidate) || (multicast && strcmp(multicast, "0") != 0);
}

/* The value after "name": in a line that json.c wrote. */
static const char *field(const char *line, const char *name) {
    char key[48];
    snprintf(key, sizeof key, "\"%s\": ", name);
    const char *at = strstr(line, key);
    return at ? at + strlen(key) : "";
}

/* A string of JSON without line breaks. */
static void unquote(char text[BL_SECTION], const char *from) {
    size_t used = 0;
    for (from += *from == '"'; *from && *from != '"' && used < BL_SECTION - 1; from++) {
        from += *from == '\\';
        text[used++] = *from;
    }
    text[used] = 0;
}

static int size_index(struct sizes *sizes, uint64_t bytes) {
    for (int i = 0; i < sizes->count; i++)
        if (sizes->bytes[i] == bytes) return i;
    if (sizes->count == MAX_SIZES) return -1;
    sizes->bytes[sizes->count] = bytes;
    return sizes->count++;
}

static int read_run(struct table *table, const char *path, int candidate) {
    struct sizes *sizes = &table->sizes[algorithm_of(candidate)->collective];
    char line[65536];
    FILE *f = fopen(path, "r");
    int rows = 0;

    if (!f) return -1;
    while (fgets(line, sizeof line, f)) {
        if (!strncmp(field(line, "record"), "\"run\"", 5)) {
            table->ranks = atoi(field(line, "ranks"));
            table->driver = atoi(field(line, "driver"));
            table->nccl = atoi(field(line, "nccl"));
            sscanf(field(line, "name"), "\"%63[^\"]", table->gpu);
            continue;
        }
        if (!strncmp(field(line, "record"), "\"box\"", 5)) {
            unquote(table->section, field(line, "section"));
            continue;
        }
        int i = size_index(sizes, strtoull(field(line, "count"), NULL, 10) * bl_datatype_size(BL_BFLOAT16));
        const char *route = field(line, "route"), *name = bl_kernel_name(kernel_of(candidate));
        rows++;
        if (i < 0 || strncmp(route + 1, name, strlen(name)) || route[1 + strlen(name)] != '"') continue;
        sizes->ratio[i][candidate] = atof(field(line, "ratio"));
    }
    fclose(f);
    return rows ? 0 : -1;
}

/* The same command with one candidate forced; later options override the caller's. */
static int run_forced(const struct options *options, int candidate, const char *json) {
    const struct bl_algorithm *a = algorithm_of(candidate);
    const bool spreads = a->kernel[BL_BY_WARPS] != BL_KERNEL_NONE;
    char **argv = calloc(options->argc + 16, sizeof *argv), name[64];
    int n = 0, status = 0;

    if (!argv) return -1;
    for (int i = 0; i < options->argc; i++) {
        bool tune = !strncmp(options->argv[i], "--tune", 6);
        if (tune && !strchr(options->argv[i], '=')) i++;
        if (!tune) argv[n++] = options->argv[i];
    }
    const char *forced[] = {"-c",
                            bl_collective_name(a->collective),
                            "-d",
                            "bfloat16",
                            "-o",
                            "sum",
                            "--place",
                            "out",
                            "--mode",
                            "graph",
                            "--json",
                            json,
                            "--expect-beeline"};
    for (size_t i = 0; i < sizeof forced / sizeof *forced; i++) argv[n++] = (char *)forced[i];
    snprintf(name, sizeof name, "%s%s", a->name, !spreads ? "" : by_warps(candidate) ? ":warps" : ":lines");

    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        setenv(variables[a->collective], name, 1);
        execv("/proc/self/exe", argv);
        _exit(127);
    }
    free(argv);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status)) {
        fprintf(stderr, "beeline-perf: the run with %s failed\n", name);
        return -1;
    }
    return 0;
}

/* What takes a size from NCCL: more than noise is; and of long all-gathers and reduce-scatters, which run beside compute more often
 * than not and take all multiprocessors, so much that what runs beside them loses less (the rules of scripts/beeline/tuning/thresholds.py). */
static double least_ratio(int collective, uint64_t bytes) {
    const bool beside_compute = collective == BL_ALLGATHER || collective == BL_REDUCESCATTER;
    return 1 / (1 - (beside_compute && bytes >= 8 << 20 ? 0.2 : 0.03));
}

/* A candidate, or BL_ROUTE_NCCL; in the section for multicast that stands for what the other section says, too. */
static int best(const struct sizes *sizes, int collective, int size, bool multicast) {
    int winner = BL_ROUTE_NCCL;
    double most = least_ratio(collective, sizes->bytes[size]);
    for (int a = 0; a < candidates(); a++) {
        if (sizes->ratio[size][a] <= most || (by_multicast(a) && !multicast)) continue;
        most = sizes->ratio[size][a];
        winner = a;
    }
    return winner == BL_ROUTE_NCCL || (multicast && !by_multicast(winner)) ? BL_ROUTE_NCCL : winner;
}

/* One row where the winner changes, and the last.  The last size up to which an algorithm won is its threshold: between it and the
 * next size nothing was measured, and the next one's winner is the one for more. */
static void write_rows(FILE *f, const struct table *table, int collective, bool multicast) {
    const struct sizes *sizes = &table->sizes[collective];
    const char *const other = multicast ? "plain" : "nccl", *name = bl_collective_name(collective);

    for (int i = 0; i < sizes->count; i++) {
        const int winner = best(sizes, collective, i, multicast);
        const bool last = i + 1 == sizes->count, served = winner != BL_ROUTE_NCCL;
        if (!last && best(sizes, collective, i + 1, multicast) == winner) continue;
        char bytes[32];
        bl_size_format(sizes->bytes[i], bytes, sizeof bytes);
        fprintf(f, "%s %d %s %s%s\n", name, table->ranks, bytes, served ? algorithm_of(winner)->name : other,
                served && by_warps(winner) ? " spread=warps" : "");
    }
}

/* Comment lines: what was measured. */
static void write_ratios(FILE *f, const struct options *options, const struct sizes *sizes, int collective) {
    fprintf(
        f,
        "# %s: NCCL's time through the algorithm's, by bytes of the call's count; 0: does not serve the size\n#   %10s",
        bl_collective_name(collective), "bytes");
    for (int a = 0; a < candidates(); a++)
        if ((int)algorithm_of(a)->collective == collective && is_tried(options, a))
            fprintf(f, " %25s", bl_kernel_name(kernel_of(a)));
    for (int i = 0; i < sizes->count; i++) {
        fprintf(f, "\n#   %10llu", (unsigned long long)sizes->bytes[i]);
        for (int a = 0; a < candidates(); a++)
            if ((int)algorithm_of(a)->collective == collective && is_tried(options, a))
                fprintf(f, " %25.3f", sizes->ratio[i][a]);
    }
    fprintf(f, "\n");
}

static bool multicast_served(const struct table *table) {
    for (int c = 0; c < BL_COLLECTIVES; c++)
        for (int i = 0; i < table->sizes[c].count; i++)
            for (int a = 0; a < candidates(); a++)
                if (by_multicast(a) && table->sizes[c].ratio[i][a] > 0) return true;
    return false;
}

/* The file, before anything is measured: one that can be written, and that holds nothing of somebody else's. */
static FILE *open_file(const struct options *options, bool *made) {
    char start[sizeof mark] = "";
    struct stat status;
    int fd = open(options->tune, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

    *made = fd >= 0;
    if (fd < 0 && errno == EEXIST) fd = open(options->tune, O_RDWR | O_CLOEXEC);
    FILE *f = fd >= 0 && !fstat(fd, &status) ? fdopen(fd, "r+") : NULL;
    if (!f) {
        fprintf(stderr, "beeline-perf: --tune '%s' cannot be written: %s\n", options->tune, strerror(errno));
        if (fd >= 0) close(fd);
        return NULL;
    }
    const size_t got =
        S_ISREG(status.st_mode) ? fread(start, 1, sizeof mark - 1, f) : 0; /* a pipe would wait for itself */
    if (!options->force && got && strcmp(start, mark)) {
        fprintf(stderr,
                "beeline-perf: --tune '%s' is there already, and was not written by beeline-perf --tune: name "
                "another file, or overwrite it with --force\n",
                options->tune);
        fclose(f);
        return NULL;
    }
    return f;
}

static int write_file(FILE *f, const struct options *options, const struct table *table) {
    struct utsname host;
    char date[32];
    time_t t = time(NULL);

    rewind(f);
    uname(&host);
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&t));
    fprintf(f,
            "%s, version %s\n# Machine:  %s, %s, %d ranks on %s\n# Driver:   CUDA driver API %d.%d\n# NCCL:     "
            "%d.%d.%d\n# Date:     %s\n# Command: ",
            mark, perf_version, host.nodename, host.machine, table->ranks, table->gpu, table->driver / 1000,
            table->driver % 1000 / 10, table->nccl / 10000, table->nccl / 100 % 100, table->nccl % 100, date);
    for (int i = 0; i < options->argc; i++) fprintf(f, " %s", i ? options->argv[i] : "beeline-perf");
    fprintf(f, "\n# bf16 sum, out of place, in CUDA graphs; above the largest size the built-in rows hold\n");
    for (int c = 0; c < BL_COLLECTIVES; c++)
        if (table->sizes[c].count) write_ratios(f, options, &table->sizes[c], c);
    const int sections = multicast_served(table) ? 2 : 1;
    for (int multicast = 0; multicast < sections; multicast++) {
        fprintf(f, "\n%s%s\n", table->section, multicast ? " multicast" : "");
        for (int c = 0; c < BL_COLLECTIVES; c++) {
            if (!table->sizes[c].count) continue;
            fprintf(f, "\n");
            write_rows(f, table, c, multicast);
        }
    }
    /* What was there may have been longer. */
    const bool cut = !fflush(f) && (ftruncate(fileno(f), ftell(f)) == 0 || errno == EINVAL);
    if (cut && !ferror(f)) return 0;
    perror(options->tune);
    return -1;
}

static int run_candidates(const struct options *options, struct table *table, const char *json) {
    int count = 0, done = 0;
    for (int a = 0; a < candidates(); a++) count += is_tried(options, a);
    for (int a = 0; a < candidates(); a++) {
        if (!is_tried(options, a)) continue;
        printf("# run %d of %d: %s\n", ++done, count, bl_kernel_name(kernel_of(a)));
        if (run_forced(options, a, json) || read_run(table, json, a)) return -1;
    }
    return 0;
}

int tune_run(const struct options *options) {
    static struct table table;
    char json[] = "/tmp/beeline-perf.XXXXXX";
    bool made;

    if (options->processes > 1 && !options->spawn) {
        fprintf(stderr, "beeline-perf: --tune starts its own runs: not under a launcher; --spawn N makes processes\n");
        return 1;
    }
    if (!api_find_beeline(options)) {
        fprintf(stderr,
                "beeline-perf: --tune '%s': Beeline is not loaded; start with beeline run, or "
                "LD_PRELOAD=/path/to/libbeeline.so\n",
                options->tune);
        return 1;
    }
    FILE *file = open_file(options, &made);
    if (!file) return 1;
    int fd = mkstemp(json), error = fd < 0 || candidates() > MAX_CANDIDATES ? -1 : 0;
    if (!error) error = run_candidates(options, &table, json);
    if (fd >= 0) {
        close(fd);
        unlink(json);
    }
    if (!error) error = write_file(file, options, &table);
    fclose(file);
    if (error && made) unlink(options->tune);
    if (!error) printf("# wrote %s; use it with BEELINE_TUNING_FILE=%s\n", options->tune, options->tune);
    return error ? 1 : 0;
}
