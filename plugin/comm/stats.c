/* stats.c - counts, and what is said of them. */
#include "stats.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/params.h"

static pid_t armed_by;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void end_of(struct bl_comm *comm, void *arg) {
    bl_stats_end(comm);
}

static void at_exit(void) {
    if (getpid() == armed_by) bl_comm_each(end_of, NULL); /* a forked child has made none of these calls */
}

static void arm(void) {
    armed_by = getpid();
    atexit(at_exit);
}

struct bl_stats *bl_stats_new(void) {
    if (!bl_params()->stats && !bl_params()->stats_file) return NULL;
    pthread_once(&once, arm);
    return calloc(1, sizeof(struct bl_stats));
}

/* The largest of a size's calls; 0 has no largest. */
static uint64_t size_limit(int size) {
    return size < BL_STATS_SIZES - 1 ? UINT64_C(256) << 2 * size : 0;
}

void bl_stats_add(struct bl_stats *stats, const struct bl_request *request, int where) {
    const uint64_t bytes = request->count * bl_datatype_size(request->datatype);
    int size = 0;
    while (size < BL_STATS_SIZES - 1 && bytes > size_limit(size)) size++;
    struct bl_stats_count *count = &stats->count[request->collective][size][where];
    count->calls++;
    count->bytes += bytes;
}

/* --- the log --- */

/* Those of a kernel, or of NCCL's whatever the reason. */
static struct bl_stats_count sum_of(const struct bl_stats *stats, int kernel) {
    struct bl_stats_count sum = {0, 0};
    for (int c = 0; c < BL_COLLECTIVES; c++)
        for (int size = 0; size < BL_STATS_SIZES; size++)
            for (int where = kernel; where < (kernel < BL_KERNELS ? kernel + 1 : BL_STATS_WHERE); where++) {
                sum.calls += stats->count[c][size][where].calls;
                sum.bytes += stats->count[c][size][where].bytes;
            }
    return sum;
}

static void log_line(const struct bl_comm *comm) {
    char text[1800] = "no calls";
    size_t used = 0;
    for (int kernel = 0; kernel <= BL_KERNELS; kernel++) {
        const struct bl_stats_count sum = sum_of(comm->stats, kernel);
        if (!sum.calls) continue;
        int n = snprintf(text + used, sizeof(text) - used, "%s%s %llu calls %llu bytes", used ? ", " : "",
                         kernel < BL_KERNELS ? bl_kernel_name(kernel) : "nccl", (unsigned long long)sum.calls,
                         (unsigned long long)sum.bytes);
        if (n < 0 || (size_t)n >= sizeof(text) - used) break;
        used += (size_t)n;
    }
    if (comm->stats->batches)
        snprintf(text + used, sizeof(text) - used, "; batches launched: %llu",
                 (unsigned long long)comm->stats->batches);
    bl_log(BL_LOG_NONE, "stats: communicator %016llx rank %d of %d: %s", (unsigned long long)comm->id, comm->rank,
           comm->nranks, text);
}

/* --- the file: a record is one write --- */
struct record {
    FILE *stream;
    char *text;
    size_t length;
};

static bool record_open(struct record *record, const char *what, const struct bl_comm *comm) {
    record->stream = open_memstream(&record->text, &record->length);
    if (!record->stream) return false;
    fprintf(record->stream,
            "{\"record\": \"%s\", \"pid\": %d, \"communicator\": \"%016llx\", \"rank\": %d, \"ranks\": %d", what,
            (int)getpid(), (unsigned long long)comm->id, comm->rank, comm->nranks);
    return true;
}

static void record_close(struct record *record) {
    const char *why;
    fputs("}\n", record->stream);
    if (fclose(record->stream) == 0) {
        const int fd = bl_file_open(bl_params()->stats_file, &why);
        ssize_t written = 0;
        if (fd >= 0) {
            do written = write(fd, record->text, record->length);
            while (written < 0 && errno == EINTR);
            close(fd);
        } else {
            bl_warn("BEELINE_STATS_FILE=%.256s cannot be opened: %s", bl_params()->stats_file, why);
        }
    }
    free(record->text);
}

/* NULL is null. */
static void put_string(FILE *stream, const char *name, const char *text) {
    fprintf(stream, ", \"%s\": ", name);
    if (text)
        bl_json_string(stream, text);
    else
        fputs("null", stream);
}

void bl_stats_begin(const struct bl_comm *comm, const char *left, bool failed) {
    struct record record;
    if (!comm->stats || !bl_params()->stats_file || !record_open(&record, "communicator", comm)) return;
    put_string(record.stream, "left", left);
    put_string(record.stream, "section", left ? NULL : comm->table.section);
    fprintf(record.stream, ", \"failed\": %s", failed ? "true" : "false");
    record_close(&record);
}

static void put_count(FILE *stream, int collective, int size, int where, const struct bl_stats_count *count) {
    fprintf(stream, "{\"collective\": \"%s\", \"up_to\": ", bl_collective_name((enum bl_collective)collective));
    if (size_limit(size))
        fprintf(stream, "%llu", (unsigned long long)size_limit(size));
    else
        fputs("null", stream);
    fprintf(stream, ", \"route\": \"%s\"", where < BL_KERNELS ? bl_kernel_name(where) : "nccl");
    put_string(stream, "why",
               where < BL_KERNELS       ? NULL
               : where == BL_STATS_LEFT ? "the communicator is left to NCCL"
                                        : bl_reason_text((enum bl_reason)(where - BL_KERNELS)));
    fprintf(stream, ", \"calls\": %llu, \"bytes\": %llu}", (unsigned long long)count->calls,
            (unsigned long long)count->bytes);
}

static void write_counts(const struct bl_comm *comm) {
    struct record record;
    const char *comma = "";
    if (!record_open(&record, "calls", comm)) return;
    fprintf(record.stream, ", \"batches\": %llu, \"calls\": [", (unsigned long long)comm->stats->batches);
    for (int c = 0; c < BL_COLLECTIVES; c++)
        for (int size = 0; size < BL_STATS_SIZES; size++)
            for (int where = 0; where < BL_STATS_WHERE; where++) {
                const struct bl_stats_count *count = &comm->stats->count[c][size][where];
                if (!count->calls) continue;
                fputs(comma, record.stream);
                put_count(record.stream, c, size, where, count);
                comma = ", ";
            }
    fputs("]", record.stream);
    record_close(&record);
}

void bl_stats_end(struct bl_comm *comm) {
    if (!comm->stats || atomic_exchange(&comm->stats->said, true)) return;
    if (bl_params()->stats) log_line(comm);
    if (bl_params()->stats_file) write_counts(comm);
}
