/* report.c - what a run prints, in the manner of nccl-tests; json.c has the same figures as JSON lines. */
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "perf.h"

/* A line, and the line of progress goes. */
static void say(struct report *report, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct report *report, const char *format, ...) {
    va_list args;
    if (report->progress) fputs("\r\033[K", stderr);
    va_start(args, format);
    vfprintf(report->text, format, args);
    va_end(args);
    fputc('\n', report->text);
    fflush(report->text);
}

/* --- the machine --- */

/* How rank a's GPU reaches rank b's, in two characters. */
static const char *link_of(CUdevice a, CUdevice b) {
    int access = 0, atomics = 0;
    if (a == b) return "X";
    cuda.cuDeviceGetP2PAttribute(&access, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, a, b);
    cuda.cuDeviceGetP2PAttribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, a, b);
    return !access ? "-" : atomics ? "NA" : "P";
}

static void find_devices(struct machine *m) {
    int devices = 0, major = 0, minor = 0;

    cuda.cuDeviceGetCount(&devices);
    m->devices = devices < MAX_DEVICES ? devices : MAX_DEVICES;
    for (int d = 0; d < m->devices; d++) {
        struct device *device = &m->device[d];
        CUdevice handle;
        cuda.cuDeviceGet(&handle, d);
        cuda.cuDeviceGetName(device->name, sizeof device->name, handle);
        cuda.cuDeviceGetPCIBusId(device->bus, sizeof device->bus, handle);
        cuda.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, handle);
        cuda.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, handle);
        cuda.cuDeviceGetAttribute(&device->sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, handle);
        device->arch = major * 10 + minor;
    }
}

/* Of the first word with a number and dots: "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release ...". */
static void find_kernel_driver(char *version, size_t size) {
    char line[256] = "", *next;
    FILE *f = fopen("/proc/driver/nvidia/version", "r");

    *version = 0;
    if (!f) return;
    if (fgets(line, sizeof line, f))
        for (char *word = strtok_r(line, " \t\n", &next); word && !*version; word = strtok_r(NULL, " \t\n", &next))
            if (isdigit((unsigned char)*word) && strchr(word, '.')) snprintf(version, size, "%s", word);
    fclose(f);
}

static void find_machine(struct machine *m, const struct options *o) {
    struct utsname host;
    time_t t = time(NULL);

    uname(&host);
    strftime(m->date, sizeof m->date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&t));
    snprintf(m->host, sizeof m->host, "%s", host.nodename);
    snprintf(m->arch, sizeof m->arch, "%s", host.machine);
    for (size_t i = 1, used = 0; i < (size_t)o->argc && used < sizeof m->arguments; i++)
        used += snprintf(m->arguments + used, sizeof m->arguments - used, "%s%s", i > 1 ? " " : "", o->argv[i]);
    cuda.cuDriverGetVersion(&m->driver);
    for (int side = 0; side < SIDES; side++) nccl[side].GetVersion(&m->nccl[side]);
    find_kernel_driver(m->kernel_driver, sizeof m->kernel_driver);
    find_devices(m);
}

static void say_side(struct report *report, const struct machine *m, enum side side) {
    const int v = m->nccl[side];
    const char *name = side == MEASURED ? "ncclX" : "pncclX";
    if (side == MEASURED && api_have_beeline())
        say(report, "# %-7s Beeline %s, %s", name, api_build(), api_origin(side));
    else
        say(report, "# %-7s NCCL %d.%d.%d, %s", name, v / 10000, v / 100 % 100, v % 100, api_origin(side));
}

static void say_machine(struct report *report, const struct machine *m) {
    const struct bench *bench = report->bench;
    const struct options *o = bench->options;

    say(report, "# beeline-perf %s", m->arguments);
    say(report, "# version %s, %s, host %s, %s", perf_version, m->date, m->host, m->arch);
    for (int side = 0; side < SIDES; side++) say_side(report, m, side);
    say(report, "# driver  %s%sCUDA %d.%d", m->kernel_driver, *m->kernel_driver ? ", " : "", m->driver / 1000,
        m->driver % 1000 / 10);
    for (int d = 0; d < m->devices; d++) {
        const struct device *device = &m->device[d];
        char links[4 * MAX_DEVICES] = "";
        size_t used = 0;
        for (int peer = 0; peer < m->devices && used < sizeof links; peer++)
            used += snprintf(links + used, sizeof links - used, " %s", link_of(d, peer));
        say(report, "# GPU %-3d %s, %s, sm_%d, %d SMs; to the others:%s", d, device->name, device->bus, device->arch,
            device->sms, links);
    }
    say(report, "#         (NA: peer access with native atomics, as over NVLink; P: peer access; -: none)");
    say(report, "# ranks   %d: %d processes x %d threads x %d GPUs", bench->nranks, o->processes, o->threads, o->gpus);
    if (o->group > 1) say(report, "# a call is a group of %d collectives of the size each", o->group);
}

int report_open(struct report *report, const struct bench *bench) {
    const struct options *o = bench->options;
    const bool to_stdout = o->json && !strcmp(o->json, "-");
    static struct machine machine;

    *report = (struct report){.bench = bench, .text = to_stdout ? stderr : stdout, .progress = isatty(STDERR_FILENO)};
    report->json = to_stdout ? stdout : o->json ? fopen(o->json, "w") : NULL;
    if (o->json && !report->json) {
        perror(o->json);
        return -1;
    }
    find_machine(&machine, o);
    say_machine(report, &machine);
    if (report->json) json_run(report->json, bench, &machine);
    return 0;
}

/* --- before rows --- */

void report_left(struct report *report, const char *why, const char *section) {
    report->serves = !why;
    if (section && report->json) json_box(report->json, section, report->bench->nranks);
    if (why) say(report, "# BEELINE SERVES NOTHING HERE, both sides are NCCL: %s", why);
}

void report_launch(struct report *report) {
    const struct shared *shared = report->bench->shared;
    const char *what = shared->launch_is_memset ? "memset of one byte" : "empty kernel";
    double slowest = 0;

    for (int part = 0; part < report->bench->parts; part++) slowest = fmax(slowest, shared->launch[part]);
    report_note(report, "one launch of a kernel (%s): %.2f us on the host, the median of the slowest rank", what,
                slowest * 1e6);
    if (report->json) json_launch(report->json, what, report->bench->nranks, slowest);
}

void report_columns(struct report *report) {
    const struct options *o = report->bench->options;
    const char *mine = report->serves ? "Beeline" : "ncclX", *base = report->serves ? "NCCL" : "pncclX";

    if (o->check) {
        say(report, "# results only, nothing is timed\n#\n# %8s %8s %4s %5s %5s | %-25s %6s", "size", "type", "op",
            "mode", "place", "route", "#wrong");
        return;
    }
    say(report, "# us per call: the median of the slowest rank, of %d samples of %d calls", o->samples, o->calls);
    say(report, "# ratio: %s / %s%s; busbw: GB/s of %s", base, mine,
        report->serves ? ", so many times as fast is Beeline" : "", mine);
    if (o->wide) say(report, "# algbw: GB/s; p99, event (by the device's clock) and host: us per call; of %s", mine);
    say(report, "#");
    if (o->wide)
        say(report, "# %10s %12s %8s %4s %5s %5s | %9s %9s %7s %8s %8s %9s %9s %8s | %-25s %6s", "size", "count",
            "type", "op", "mode", "place", mine, base, "ratio", "algbw", "busbw", "p99", "event", "host", "route",
            "#wrong");
    else
        say(report, "# %8s %8s %4s %5s %5s | %9s %9s %6s %7s | %-25s %6s", "size", "type", "op", "mode", "place", mine,
            base, "ratio", "busbw", "route", "#wrong");
}

void report_note(struct report *report, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    say(report, "# %s", text);
}

void report_tuning(struct report *report, const char *tuning) {
    report->tuning = tuning;
    report_note(report, "with the tuning file %s", tuning);
}

/* Where a library lacks its function there are no rows, and the others of the run are unharmed. */
void report_collective(struct report *report, int collective, const char *lacking) {
    const struct options *o = report->bench->options;
    const char *name = collective_name(collective);

    if (lacking) {
        report->lacking = true;
        fprintf(stderr, "beeline-perf: %s cannot be run: %s is not in %s; NCCL 2.28 and later have it\n", name, lacking,
                api_origin(*lacking == 'p' ? BASELINE : MEASURED));
    } else if (!collectives[collective].in_place && o->places == 1u << IN_PLACE) {
        report_note(report, "%s is left out: it cannot be in place", name);
    } else if (collective_has(collective, BL_ROOTED)) {
        report_note(report, "%s, root %d", name, o->root);
    } else {
        report_note(report, "%s", name);
    }
}

/* --- rows --- */

static const char *mode_name(const struct row *row) {
    return row->mode == EAGER ? "eager" : "graph";
}
static const char *place_name(const struct row *row) {
    return row->place == IN_PLACE ? "in" : "out";
}

/* On a terminal: a row may take seconds. */
void report_progress(struct report *report, const struct row *row) {
    char size[32];
    if (!report->progress) return;
    bl_size_format(row->bytes, size, sizeof size);
    fprintf(stderr, "\r\033[Krow %llu: %s of %s, %s %s, %s, %s ...", (unsigned long long)report->rows + 1,
            collective_name(row->collective), size, bl_datatype_name(row->datatype), row_redop_name(row),
            mode_name(row), place_name(row));
    fflush(stderr);
}

static struct figures figures_of(const struct bench *bench, const struct row *row, enum side side) {
    const struct shared *s = bench->shared;
    double slowest[MAX_SAMPLES] = {0};
    struct figures f = {.host_min = INFINITY};

    for (int rank = 0; rank < bench->nranks; rank++) {
        for (int i = 0; i < row->samples; i++) slowest[i] = fmax(slowest[i], s->sample[side][rank][i]);
        f.event = fmax(f.event, s->event[side][rank]);
        f.host_median = fmax(f.host_median, s->host_median[side][rank]);
        f.host_min = fmin(f.host_min, s->host_min[side][rank]);
        f.wrong += s->wrong[side][rank];
    }
    if (!row->samples) return f;
    sort_seconds(slowest, row->samples);
    f.median =
        row->samples % 2 ? slowest[row->samples / 2] : (slowest[row->samples / 2 - 1] + slowest[row->samples / 2]) / 2;
    f.p99 = slowest[(row->samples * 99 + 99) / 100 - 1];
    return f;
}

static void say_wide(struct report *report, const struct row *row, const struct figures figures[SIDES]) {
    const struct figures *mine = &figures[MEASURED], *base = &figures[BASELINE];
    const double algbw = row->bytes * row->group / mine->median / 1e9;
    char event[32] = "-", host[32] = "-", size[32];

    if (row->mode == EAGER) {
        if (row->calls > 1) snprintf(event, sizeof event, "%.2f", mine->event * 1e6);
        snprintf(host, sizeof host, "%.2f", mine->host_median * 1e6);
    }
    bl_size_format(row->bytes, size, sizeof size);
    say(report, "  %10s %12llu %8s %4s %5s %5s | %9.2f %9.2f %7.3f %8.2f %8.2f %9.2f %9s %8s | %-25s %6llu", size,
        (unsigned long long)row->count, bl_datatype_name(row->datatype), row_redop_name(row), mode_name(row),
        place_name(row), mine->median * 1e6, base->median * 1e6, base->median / mine->median, algbw,
        algbw * collective_bus_factor(row->collective, report->bench->nranks), mine->p99 * 1e6, event, host, row->route,
        (unsigned long long)mine->wrong);
}

static void say_row(struct report *report, const struct row *row, const struct figures figures[SIDES]) {
    const struct figures *mine = &figures[MEASURED], *base = &figures[BASELINE];
    char size[32], times[64] = "";

    bl_size_format(row->bytes, size, sizeof size);
    if (!report->bench->options->check)
        snprintf(times, sizeof times, " | %9.2f %9.2f %6.2f %7.2f", mine->median * 1e6, base->median * 1e6,
                 base->median / mine->median,
                 row->bytes * row->group / mine->median / 1e9 *
                     collective_bus_factor(row->collective, report->bench->nranks));
    say(report, "  %8s %8s %4s %5s %5s%s | %-25s %6llu", size, bl_datatype_name(row->datatype), row_redop_name(row),
        mode_name(row), place_name(row), times, row->route, (unsigned long long)mine->wrong);
}

static void count_route(struct report *report, const char *route) {
    int i = 0;
    while (i < report->routes && strcmp(report->route[i], route)) i++;
    if (i == report->routes && i < MAX_ROUTES && api_serves(route)) report->route[report->routes++] = route;
}

void report_row(struct report *report, const struct row *row) {
    const struct bench *bench = report->bench;
    const struct figures figures[SIDES] = {figures_of(bench, row, MEASURED), figures_of(bench, row, BASELINE)};
    const uint64_t wrong = figures[MEASURED].wrong + figures[BASELINE].wrong;

    (bench->options->wide && !bench->options->check ? say_wide : say_row)(report, row, figures);
    if (figures[BASELINE].wrong)
        report_note(report, "the row above: %llu values were wrong through the baseline",
                    (unsigned long long)figures[BASELINE].wrong);
    report->wrong += wrong;
    report->wrong_rows += wrong != 0;
    report->rows++;
    report->tolerant = report->tolerant || pattern_nccl_tolerance(&bench->pattern) != 0;
    if (!bench->options->check) report->log_ratio += log(figures[BASELINE].median / figures[MEASURED].median);
    count_route(report, row->route);
    if (report->json) json_row(report, row, figures);
}

/* --- the end --- */

static void say_verdict(struct report *report) {
    const unsigned long long rows = report->rows, wrong = report->wrong;
    char routes[64] = "", speed[96] = "";

    say(report, "# %llu rows, %llu wrong values", rows, wrong);
    if (!rows) return;
    if (wrong) {
        say(report, "# WRONG RESULTS in %llu of %llu rows", (unsigned long long)report->wrong_rows, rows);
        return;
    }
    if (report->serves)
        snprintf(routes, sizeof routes, ", %d route%s tried", report->routes, report->routes == 1 ? "" : "s");
    if (report->serves && !report->bench->options->check)
        snprintf(speed, sizeof speed, "; Beeline is %.2f times as fast as NCCL, on average (geometric)",
                 exp(report->log_ratio / rows));
    say(report, "# all %llu results %s%s%s%s", rows, report->tolerant ? "right" : "exact", routes, speed,
        report->serves ? "" : "; none of them is Beeline's");
}

int report_close(struct report *report, bool failed) {
    if (failed)
        say(report, "# failed after %llu rows", (unsigned long long)report->rows);
    else
        say_verdict(report);
    if (report->json && fclose(report->json)) {
        perror(report->bench->options->json);
        failed = true;
    }
    return failed || report->lacking || report->wrong ? 1 : 0;
}
