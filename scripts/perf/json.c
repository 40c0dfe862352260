/* json.c - the figures of a run as JSON lines: a record of the run, one of what a launch takes, one a row. */
#include "perf.h"

static void string(FILE *f, const char *name, const char *text) {
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

void json_run(FILE *json, const struct bench *bench, const struct machine *m) {
    const struct options *o = bench->options;

    fprintf(json, "{\"record\": \"run\", ");
    string(json, "date", m->date);
    string(json, "host", m->host);
    string(json, "machine", m->arch);
    string(json, "arguments", m->arguments);
    string(json, "version", perf_version);
    string(json, "measured", api_origin(MEASURED));
    string(json, "baseline", api_origin(BASELINE));
    fprintf(json, "\"beeline\": %s, ", api_have_beeline() ? "true" : "false");
    if (api_have_beeline()) string(json, "build", api_build());
    fprintf(json, "\"devices\": [");
    for (const struct device *d = m->device; d < m->device + m->devices; d++) {
        fprintf(json, "%s{", d > m->device ? ", " : "");
        string(json, "name", d->name);
        string(json, "bus", d->bus);
        fprintf(json, "\"arch\": %d, \"sms\": %d}", d->arch, d->sms);
    }
    fprintf(json, "], ");
    if (*m->kernel_driver) string(json, "kernel_driver", m->kernel_driver);
    fprintf(json, "\"driver\": %d, \"nccl\": %d, \"ranks\": %d, \"processes\": %d, \"threads\": %d, \"gpus\": %d}\n",
            m->driver, m->nccl[BASELINE], bench->nranks, o->processes, o->threads, o->gpus);
    fflush(json);
}

void json_box(FILE *json, const char *section, int nranks) {
    fprintf(json, "{\"record\": \"box\", ");
    string(json, "section", section);
    fprintf(json, "\"ranks\": %d}\n", nranks);
}

void json_launch(FILE *json, const char *what, int nranks, double seconds) {
    fprintf(json, "{\"record\": \"launch\", ");
    string(json, "what", what);
    fprintf(json, "\"ranks\": %d, \"host_us\": %.3f}\n", nranks, seconds * 1e6);
}

static void side(FILE *f, const char *name, const struct figures *g, const struct row *row, bool timed) {
    fprintf(f, "\"%s\": {", name);
    if (timed) fprintf(f, "\"us\": %.3f, \"p99_us\": %.3f, ", g->median * 1e6, g->p99 * 1e6);
    if (timed && row->mode == EAGER)
        fprintf(f, "\"event_us\": %.3f, \"host_min_us\": %.3f, \"host_us\": %.3f, ", g->event * 1e6, g->host_min * 1e6,
                g->host_median * 1e6);
    fprintf(f, "\"wrong\": %llu}", (unsigned long long)g->wrong);
}

void json_row(const struct report *report, const struct row *row, const struct figures figures[SIDES]) {
    const struct bench *bench = report->bench;
    const bool timed = !bench->options->check;
    FILE *json = report->json;

    fprintf(json, "{\"record\": \"row\", ");
    string(json, "collective", collective_name(row->collective));
    string(json, "datatype", bl_datatype_name(row->datatype));
    string(json, "redop", row_redop_name(row));
    string(json, "mode", row->mode == EAGER ? "eager" : "graph");
    string(json, "place", row->place == IN_PLACE ? "in" : "out");
    string(json, "route", row->route);
    if (report->tuning) string(json, "tuning", report->tuning);
    fprintf(json,
            "\"bytes\": %llu, \"count\": %llu, \"offset\": %llu, \"group\": %d, \"ranks\": %d, "
            "\"root\": %d, \"samples\": %d, \"calls\": %d, ",
            (unsigned long long)row->bytes, (unsigned long long)row->count, (unsigned long long)row->offset, row->group,
            bench->nranks, row->root, row->samples, row->calls);
    side(json, "beeline", &figures[MEASURED], row, timed);
    fputs(", ", json);
    side(json, "nccl", &figures[BASELINE], row, timed);
    if (timed) {
        const double algbw = row->bytes * row->group / figures[MEASURED].median / 1e9;
        fprintf(json, ", \"ratio\": %.4f, \"algbw\": %.3f, \"busbw\": %.3f",
                figures[BASELINE].median / figures[MEASURED].median, algbw,
                algbw * collective_bus_factor(row->collective, bench->nranks));
    }
    fputs("}\n", json);
    fflush(json);
}
