/* tune.c - beeline-perf --tune FILE: times every algorithm of all-reduce against NCCL and writes a tuning file.
 *
 * Each algorithm is a run of its own with BEELINE_ALLREDUCE_ALGO set, because a communicator's routes are fixed when it
 * is made; what compares between runs is the ratio to NCCL, which is timed in turn in each.  Bytes where the algorithm
 * does not serve show by the route.  Of a size, the best ratio wins, and only if it beats NCCL.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "perf.h"

enum { MAX_SIZES = 128, MAX_ALGORITHMS = 16 };

struct table {
    int sizes;
    uint64_t bytes[MAX_SIZES];
    double ratio[MAX_SIZES][MAX_ALGORITHMS]; /* NCCL's time through the algorithm's; 0: not served */
    int ranks, driver, nccl, arch;
    char gpu[64];
};

/* The value after "name": in a line that report.c wrote. */
static const char *field(const char *line, const char *name) {
    char key[48];
    snprintf(key, sizeof key, "\"%s\": ", name);
    const char *at = strstr(line, key);
    return at ? at + strlen(key) : "";
}

static int size_index(struct table *table, uint64_t bytes) {
    for (int i = 0; i < table->sizes; i++)
        if (table->bytes[i] == bytes) return i;
    if (table->sizes == MAX_SIZES) return -1;
    table->bytes[table->sizes] = bytes;
    return table->sizes++;
}

static int read_run(struct table *table, const char *path, int algorithm) {
    char line[65536];
    FILE *f = fopen(path, "r");
    int rows = 0;

    if (!f) return -1;
    while (fgets(line, sizeof line, f)) {
        if (!strncmp(field(line, "record"), "\"run\"", 5)) {
            table->ranks = atoi(field(line, "ranks"));
            table->driver = atoi(field(line, "driver"));
            table->nccl = atoi(field(line, "nccl"));
            table->arch = atoi(field(line, "arch"));
            sscanf(field(line, "name"), "\"%63[^\"]", table->gpu);
            continue;
        }
        int i = size_index(table, strtoull(field(line, "bytes"), NULL, 10));
        const char *route = field(line, "route"), *name = bl_algorithms[algorithm].name;
        rows++;
        if (i < 0 || strncmp(route + 1, name, strlen(name))) continue;
        table->ratio[i][algorithm] = atof(field(line, "ratio"));
    }
    fclose(f);
    return rows ? 0 : -1;
}

/* The same command with one algorithm forced; later options override the caller's. */
static int run_forced(const struct options *options, int algorithm, const char *json) {
    char **argv = calloc(options->argc + 16, sizeof *argv);
    int n = 0, status = 0;

    if (!argv) return -1;
    for (int i = 0; i < options->argc; i++) {
        bool tune = !strncmp(options->argv[i], "--tune", 6);
        if (tune && !strchr(options->argv[i], '=')) i++;
        if (!tune) argv[n++] = options->argv[i];
    }
    const char *forced[] = {"-c",      "all_reduce", "-d",     "bfloat16", "-o",     "sum",
                            "--place", "out",        "--mode", "graph",    "--json", json};
    for (size_t i = 0; i < sizeof forced / sizeof *forced; i++) argv[n++] = (char *)forced[i];

    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        setenv("BEELINE_ALLREDUCE_ALGO", bl_algorithms[algorithm].name, 1);
        execv("/proc/self/exe", argv);
        _exit(127);
    }
    free(argv);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status)) {
        fprintf(stderr, "beeline-perf: the run with %s failed\n", bl_algorithms[algorithm].name);
        return -1;
    }
    return 0;
}

static int best(const struct table *table, int size) {
    int winner = BL_ROUTE_NCCL;
    double most = 1;
    for (int a = 0; a < bl_algorithm_count; a++) {
        if (table->ratio[size][a] <= most) continue;
        most = table->ratio[size][a];
        winner = a;
    }
    return winner;
}

static const char *name_of(int algorithm) {
    return algorithm == BL_ROUTE_NCCL ? "nccl" : bl_algorithms[algorithm].name;
}

/* One row where the winner changes.  The last size up to which an algorithm won is its threshold: between it and the
 * next size nothing was measured, and the next one's winner is the one for more. */
static void write_rows(FILE *f, const struct table *table) {
    static const char units[] = "\0KMG";

    for (int i = 0; i < table->sizes; i++) {
        int winner = best(table, i);
        if (i + 1 < table->sizes && best(table, i + 1) == winner) continue;
        if (i + 1 == table->sizes && winner == BL_ROUTE_NCCL) break;
        uint64_t bytes = table->bytes[i];
        int unit = 0;
        while (unit < 3 && bytes % 1024 == 0 && bytes) {
            bytes /= 1024;
            unit++;
        }
        fprintf(f, "all_reduce %d %llu%.1s %s\n", table->ranks, (unsigned long long)bytes, &units[unit],
                name_of(winner));
    }
    fprintf(f, "all_reduce %d max nccl\n", table->ranks);
}

static int write_file(const struct options *options, const struct table *table) {
    struct utsname host;
    char date[32];
    time_t t = time(NULL);
    FILE *f = fopen(options->tune, "w");

    if (!f) {
        perror(options->tune);
        return -1;
    }
    uname(&host);
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&t));
    fprintf(f,
            "# Machine:  %s, %s, %d ranks on %s\n# Driver:   CUDA driver API %d.%d\n# NCCL:     %d\n# Date:     %s\n# "
            "Command: ",
            host.nodename, host.machine, table->ranks, table->gpu, table->driver / 1000, table->driver % 1000 / 10,
            table->nccl, date);
    for (int i = 0; i < options->argc; i++) fprintf(f, " %s", i ? options->argv[i] : "beeline-perf");
    fprintf(f,
            "\n# NCCL's time through the algorithm's, bf16 sum, out of place, in CUDA graphs; 0: does not serve the "
            "size\n#   %10s",
            "bytes");
    for (int a = 0; a < bl_algorithm_count; a++) fprintf(f, " %14s", bl_algorithms[a].name);
    for (int i = 0; i < table->sizes; i++) {
        fprintf(f, "\n#   %10llu", (unsigned long long)table->bytes[i]);
        for (int a = 0; a < bl_algorithm_count; a++) fprintf(f, " %14.3f", table->ratio[i][a]);
    }
    fprintf(f, "\ngpu \"%s\" arch %d\n\n", table->gpu, table->arch);
    write_rows(f, table);
    if (!fclose(f)) return 0;
    perror(options->tune);
    return -1;
}

int tune_run(const struct options *options) {
    static struct table table;
    char json[] = "/tmp/beeline-perf.XXXXXX";
    int fd = mkstemp(json), error = fd < 0 ? -1 : 0;

    if (options->processes > 1 && !options->spawn) {
        fprintf(stderr, "beeline-perf: --tune starts its own runs: not under a launcher; --spawn N makes processes\n");
        return 1;
    }
    for (int a = 0; a < bl_algorithm_count && !error; a++) {
        if (bl_algorithms[a].collective != BL_ALLREDUCE) continue;
        error = run_forced(options, a, json) || read_run(&table, json, a);
    }
    if (fd >= 0) {
        close(fd);
        unlink(json);
    }
    if (!error) error = write_file(options, &table);
    if (!error) printf("# wrote %s; use it with BEELINE_TUNING_FILE=%s\n", options->tune, options->tune);
    return error ? 1 : 0;
}
