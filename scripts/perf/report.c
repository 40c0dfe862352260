/* report.c - text in the manner of nccl-tests, and JSON lines, from the same figures. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "perf.h"

static void json_string(FILE *f, const char *name, const char *text) {
    fprintf(f, "\"%s\": \"", name);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fprintf(f, "\\%c", *text);
        else if ((unsigned char)*text < 0x20)
            fprintf(f, "\\u%04x", *text);
        else
            fputc(*text, f);
    }
    fputs("\", ", f);
}

/* How rank a's GPU reaches rank b's, in two characters. */
static const char *link_of(CUdevice a, CUdevice b) {
    int access = 0, atomics = 0;
    if (a == b) return "X";
    cuda.cuDeviceGetP2PAttribute(&access, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, a, b);
    cuda.cuDeviceGetP2PAttribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, a, b);
    return !access ? "-" : atomics ? "NA" : "P";
}

static void show_devices(FILE *json) {
    int devices = 0;

    cuda.cuDeviceGetCount(&devices);
    if (json) fprintf(json, "\"devices\": [");
    for (int d = 0; d < devices; d++) {
        char name[128] = "?", bus[32] = "?";
        int major = 0, minor = 0, sms = 0;
        CUdevice device;
        cuda.cuDeviceGet(&device, d);
        cuda.cuDeviceGetName(name, sizeof name, device);
        cuda.cuDeviceGetPCIBusId(bus, sizeof bus, device);
        cuda.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
        cuda.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
        cuda.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
        printf("#   device %d  [%s]  %s, sm_%d%d, %d multiprocessors; to the others:", d, bus, name, major, minor, sms);
        for (int peer = 0; peer < devices; peer++) printf(" %s", link_of(d, peer));
        printf("\n");
        if (!json) continue;
        fprintf(json, "%s{", d ? ", " : "");
        json_string(json, "name", name);
        json_string(json, "bus", bus);
        fprintf(json, "\"arch\": %d, \"sms\": %d}", major * 10 + minor, sms);
    }
    if (json) fprintf(json, "], ");
    printf("#   (NA: peer access with native atomics, as over NVLink; P: peer access; -: none)\n");
}

int report_open(struct report *report, const struct bench *bench) {
    const struct options *o = bench->options;
    struct utsname host;
    char date[64], arguments[1024] = "";
    time_t t = time(NULL);
    int driver = 0, version[SIDES] = {0};

    *report = (struct report){.bench = bench};
    if (o->json && !(report->json = fopen(o->json, "w"))) {
        perror(o->json);
        return -1;
    }
    uname(&host);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&t));
    for (size_t i = 1, used = 0; i < (size_t)o->argc && used < sizeof arguments; i++)
        used += snprintf(arguments + used, sizeof arguments - used, "%s%s", i > 1 ? " " : "", o->argv[i]);
    cuda.cuDriverGetVersion(&driver);
    for (int side = 0; side < SIDES; side++) nccl[side].GetVersion(&version[side]);

    printf("# beeline-perf %s\n# %s, host %s, %s\n", arguments, date, host.nodename, host.machine);
    printf("# CUDA driver API %d.%d; measured: ncclX of %s; baseline: pncclX of %s, NCCL %d\n", driver / 1000,
           driver % 1000 / 10, api_origin(MEASURED), api_origin(BASELINE), version[BASELINE]);
    if (!api_have_beeline())
        printf("# Beeline is not loaded: both sides are NCCL. Start with LD_PRELOAD=libbeeline.so\n");
    printf("# %d ranks: %d processes x %d threads x %d GPUs; %d samples of %d calls\n", bench->nranks, o->processes,
           o->threads, o->gpus, o->samples, o->calls);
    if (report->json) {
        fprintf(report->json, "{\"record\": \"run\", ");
        json_string(report->json, "date", date);
        json_string(report->json, "host", host.nodename);
        json_string(report->json, "machine", host.machine);
        json_string(report->json, "arguments", arguments);
        json_string(report->json, "measured", api_origin(MEASURED));
        json_string(report->json, "baseline", api_origin(BASELINE));
        fprintf(report->json, "\"beeline\": %s, ", api_have_beeline() ? "true" : "false");
    }
    show_devices(report->json);
    if (report->json)
        fprintf(report->json,
                "\"driver\": %d, \"nccl\": %d, \"ranks\": %d, \"processes\": %d, \"threads\": %d, \"gpus\": %d}\n",
                driver, version[BASELINE], bench->nranks, o->processes, o->threads, o->gpus);
    if (o->group > 1) printf("# a call is a group of %d collectives of the size each\n", o->group);
    printf("# times in us per call, median of the slowest rank; GB/s and host us per call of the measured side; event: "
           "by the\n"
           "# device's clock\n#\n"
           "# %10s %12s %8s %6s %5s %5s | %9s %9s %7s %8s %8s %9s %9s %8s | %-25s %s\n",
           "size(B)", "count", "type", "redop", "mode", "place", "beeline", "nccl", "nccl/bl", "algbw", "busbw", "p99",
           "event", "host", "route", "#wrong");
    fflush(stdout);
    return 0;
}

void report_launch(struct report *report) {
    const struct shared *shared = report->bench->shared;
    const char *what = shared->launch_is_memset ? "memset of one byte" : "empty kernel";
    double slowest = 0;

    for (int part = 0; part < report->bench->parts; part++) slowest = fmax(slowest, shared->launch[part]);
    report_note(report, "one launch of a kernel (%s): %.2f us on the host, the median of the slowest rank", what,
                slowest * 1e6);
    if (!report->json) return;
    fprintf(report->json, "{\"record\": \"launch\", ");
    json_string(report->json, "what", what);
    fprintf(report->json, "\"ranks\": %d, \"host_us\": %.3f}\n", report->bench->nranks, slowest * 1e6);
}

void report_note(struct report *report, const char *format, ...) {
    va_list args;
    printf("# ");
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    fflush(stdout);
}

void report_tuning(struct report *report, const char *tuning) {
    report->tuning = tuning;
    report_note(report, "with the tuning file %s", tuning);
}

/* Where a library lacks its function there are no rows, and the others of the run are unharmed. */
void report_collective(struct report *report, int collective, const char *lacking) {
    const struct options *o = report->bench->options;
    const char *name = bl_collective_name(collective);

    if (lacking) {
        report->lacking = true;
        fprintf(stderr, "beeline-perf: %s cannot be run: %s is not in %s; NCCL 2.28 and later have it\n", name, lacking,
                api_origin(*lacking == 'p' ? BASELINE : MEASURED));
    } else if (!collectives[collective].in_place && o->places == 1u << IN_PLACE) {
        report_note(report, "%s is left out: it cannot be in place", name);
    } else if (bl_collective_has(collective, BL_ROOTED)) {
        report_note(report, "%s, root %d", name, o->root);
    } else {
        report_note(report, "%s", name);
    }
}

struct figures {
    double median, p99, event, host_min, host_median;
    uint64_t wrong;
};

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
    sort_seconds(slowest, row->samples);
    f.median =
        row->samples % 2 ? slowest[row->samples / 2] : (slowest[row->samples / 2 - 1] + slowest[row->samples / 2]) / 2;
    f.p99 = slowest[(row->samples * 99 + 99) / 100 - 1];
    return f;
}

static void json_side(FILE *f, const char *name, const struct figures *g, enum mode mode) {
    fprintf(f, "\"%s\": {\"us\": %.3f, \"p99_us\": %.3f, ", name, g->median * 1e6, g->p99 * 1e6);
    if (mode == EAGER)
        fprintf(f, "\"event_us\": %.3f, \"host_min_us\": %.3f, \"host_us\": %.3f, ", g->event * 1e6, g->host_min * 1e6,
                g->host_median * 1e6);
    fprintf(f, "\"wrong\": %llu}, ", (unsigned long long)g->wrong);
}

void report_row(struct report *report, const struct row *row) {
    const struct bench *bench = report->bench;
    struct figures mine = figures_of(bench, row, MEASURED), base = figures_of(bench, row, BASELINE);
    double algbw = row->bytes * row->group / mine.median / 1e9, ratio = base.median / mine.median;
    double bus = collective_bus_factor(row->collective, bench->nranks);
    const char *redop = row_redop_name(row);
    const char *mode = row->mode == EAGER ? "eager" : "graph", *place = row->place == IN_PLACE ? "in" : "out";
    char event[32] = "-", host[32] = "-";

    if (row->mode == EAGER) {
        if (row->calls > 1) snprintf(event, sizeof event, "%.2f", mine.event * 1e6);
        snprintf(host, sizeof host, "%.2f", mine.host_median * 1e6);
    }
    printf("  %10llu %12llu %8s %6s %5s %5s | %9.2f %9.2f %7.3f %8.2f %8.2f %9.2f %9s %8s | %-25s %llu\n",
           (unsigned long long)row->bytes, (unsigned long long)row->count, bl_datatype_name(row->datatype), redop, mode,
           place, mine.median * 1e6, base.median * 1e6, ratio, algbw, algbw * bus, mine.p99 * 1e6, event, host,
           row->route, (unsigned long long)mine.wrong);
    if (base.wrong)
        report_note(report, "the row above: %llu values were wrong through the baseline",
                    (unsigned long long)base.wrong);
    fflush(stdout);
    report->wrong += mine.wrong + base.wrong;
    report->rows++;
    report->log_ratio += log(ratio);

    if (!report->json) return;
    fprintf(report->json, "{\"record\": \"row\", ");
    json_string(report->json, "collective", bl_collective_name(row->collective));
    json_string(report->json, "datatype", bl_datatype_name(row->datatype));
    json_string(report->json, "redop", redop);
    json_string(report->json, "mode", mode);
    json_string(report->json, "place", place);
    json_string(report->json, "route", row->route);
    if (report->tuning) json_string(report->json, "tuning", report->tuning);
    fprintf(report->json,
            "\"bytes\": %llu, \"count\": %llu, \"offset\": %llu, \"group\": %d, \"ranks\": %d, "
            "\"root\": %d, \"samples\": %d, \"calls\": %d, ",
            (unsigned long long)row->bytes, (unsigned long long)row->count, (unsigned long long)row->offset, row->group,
            bench->nranks, row->root, row->samples, row->calls);
    json_side(report->json, "beeline", &mine, row->mode);
    json_side(report->json, "nccl", &base, row->mode);
    fprintf(report->json, "\"ratio\": %.4f, \"algbw\": %.3f, \"busbw\": %.3f}\n", ratio, algbw, algbw * bus);
    fflush(report->json);
}

int report_close(struct report *report, bool failed) {
    if (failed)
        printf("# failed after %llu rows\n", (unsigned long long)report->rows);
    else
        printf("# %llu rows, nccl/beeline %.3f on average (geometric), %llu wrong values\n",
               (unsigned long long)report->rows, report->rows ? exp(report->log_ratio / report->rows) : 1.0,
               (unsigned long long)report->wrong);
    fflush(stdout);
    if (report->json && fclose(report->json)) {
        perror(report->bench->options->json);
        failed = true;
    }
    return failed || report->lacking || report->wrong ? 1 : 0;
}
