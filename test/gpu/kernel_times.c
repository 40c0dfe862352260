/* kernel_times.c - the kernels alone, timed in graphs with any number of ranks on a GPU, without NCCL and the library.
 *
 *   kernel-times -n RANKS [-g GPUS] ...      one process; rank r on GPU r * GPUS / RANKS
 *
 *   -n N        ranks (2)
 *   -g N        GPUs that they share (one each)
 *   -k A,B      kernels, as tuning files name their algorithms (all but those for a multicast object)
 *   -t N,M      threads of a block (256), where the kernel does not need more for so many ranks
 *   -b, -e N    from and to so many bytes (8, 1M): of a rank's block where a buffer holds one of each rank, as tuning files
 *               have it;  -f N  times so much from one size to the next (4)
 *   -o N        bytes by which both buffers are off a multiple of 16 (0), even
 *   -m N        instead of -k's kernels one launch of N messages of so many bytes: broadcasts, reduces and all-reduces in turn,
 *               roots in turn; with -E it says nothing
 *   -B N        most blocks of a rank (the multiprocessors of a GPU divided among its ranks)
 *   -G N        launches in a graph (20);  -r N  replays (9)
 *   -w N        seconds that a wait may last (1)
 *   -E          no times, but errors: of sums and averages of random bfloat16 and half, against the exact ones
 *   --json FILE a record for each time, or error
 *
 * Times are of bfloat16 sums.  Every result is checked on all ranks, before it is timed and after.  Exit status: 1 if one was
 * wrong, or if a wait ran out.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rounding.h"
#include "stopwatch.h"

enum { MOST_THREADS = 8, MOST_SIZES = 32, STAGING = 100 << 20 };

struct config {
    bool kernel[BL_KERNELS];
    unsigned threads[MOST_THREADS];
    uint64_t size[MOST_SIZES];
    int threads_count, sizes;
    bool errors;
    int messages;         /* of several collectives; 0: each collective's kernels */
    unsigned most_blocks; /* 0: as many as there is room for */
    unsigned offset;
    int launches, replays;
    uint64_t wait; /* s */
    FILE *json;
    size_t wrong; /* elements: what comes out */
};

/* The runs of one kernel with one number of threads. */
struct row {
    int kernel;
    unsigned threads;
    int messages;
    bool timed[MOST_SIZES]; /* else the staging is too small for the size */
    double us[MOST_SIZES];
    size_t wrong; /* elements, of all sizes, ranks and checks */
};

struct session {
    struct config *config;
    struct rig *rig;
    struct stopwatch watch;
    char gpu[128];
    unsigned most_blocks;
};

/* --- the command line --- */

static void bad(const char *option, const char *value, const char *accepted) __attribute__((noreturn));
static void bad(const char *option, const char *value, const char *accepted) {
    fprintf(stderr, "%s: \"%s\"; accepted: %s\n", option, value, accepted);
    exit(2);
}

/* A number from `least` to `most`, which K or M may follow. */
static uint64_t number(const char *option, const char *text, uint64_t least, uint64_t most) {
    char *end, accepted[64];
    unsigned long long value = strtoull(text, &end, 10);
    const int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : 0;
    snprintf(accepted, sizeof accepted, "%llu to %llu", (unsigned long long)least, (unsigned long long)most);
    if (end == text || end[shift != 0] || value > most >> shift || value << shift < least) bad(option, text, accepted);
    return value << shift;
}

static bool timeable(int kernel) {
    return rig_launches(kernel) && !bl_kernel_batch(kernel) && !bl_kernel_multicast(kernel);
}

static void read_kernels(struct config *config, char *list) {
    memset(config->kernel, 0, sizeof config->kernel);
    for (char *word; (word = strsep(&list, ","));) {
        int kernel = 0;
        while (kernel < BL_KERNELS && !(timeable(kernel) && !strcmp(word, bl_kernel_name(kernel)))) kernel++;
        if (kernel == BL_KERNELS) bad("-k", word, "names as INFO says them, but none that needs a multicast object");
        config->kernel[kernel] = true;
    }
}

static void read_threads(struct config *config, char *list) {
    config->threads_count = 0;
    for (char *word; (word = strsep(&list, ","));) {
        const unsigned threads = (unsigned)number("-t", word, 32, BL_MAX_THREADS);
        if (threads % 32 || config->threads_count == MOST_THREADS) bad("-t", word, "at most 8 multiples of 32");
        config->threads[config->threads_count++] = threads;
    }
}

static void read_options(struct config *config, struct box *box, int argc, char **argv) {
    static const struct option names[] = {{"json", required_argument, NULL, 'j'}, {0}};
    const uint64_t most = 1u << 30;
    uint64_t from = 8, to = 1 << 20, factor = 4;
    *config = (struct config){.threads = {BL_MAX_THREADS}, .threads_count = 1, .launches = 20, .replays = 9, .wait = 1};
    *box = (struct box){.mode = MODE_GROUPS, .nranks = 2, .seed = 1, .argument = config};
    for (int k = 0; k < BL_KERNELS; k++) config->kernel[k] = timeable(k);
    for (int c; (c = getopt_long(argc, argv, "n:g:k:t:b:e:f:o:m:B:G:r:w:E", names, NULL)) != -1;) {
        switch (c) {
        case 'n': box->nranks = (int)number("-n", optarg, 2, BL_MAX_RANKS); break;
        case 'g': box->gpus = (int)number("-g", optarg, 1, BL_MAX_RANKS); break;
        case 'k': read_kernels(config, optarg); break;
        case 't': read_threads(config, optarg); break;
        case 'b': from = number("-b", optarg, 2, most); break;
        case 'e': to = number("-e", optarg, 2, most); break;
        case 'f': factor = number("-f", optarg, 2, most); break;
        case 'o':
            config->offset = (unsigned)number("-o", optarg, 0, 14);
            if (config->offset % 2) bad("-o", optarg, "even numbers to 14");
            break;
        case 'm': config->messages = (int)number("-m", optarg, 1, BL_BATCH_MAX); break;
        case 'B': config->most_blocks = (unsigned)number("-B", optarg, 1, BL_MAX_BLOCKS); break;
        case 'G': config->launches = (int)number("-G", optarg, 1, MOST_LAUNCHES); break;
        case 'r': config->replays = (int)number("-r", optarg, 1, MOST_REPLAYS); break;
        case 'w': config->wait = number("-w", optarg, 1, 3600); break;
        case 'E': config->errors = true; break;
        case 'j':
            if (!(config->json = fopen(optarg, "w"))) bad("--json", optarg, "a file that can be written");
            setvbuf(config->json, NULL, _IOLBF, 0); /* a failure ends the program at once */
            break;
        default: exit(2);
        }
    }
    if (argv[optind]) bad("after the options", argv[optind], "nothing");
    for (uint64_t size = from; size <= to && config->sizes < MOST_SIZES; size *= factor)
        config->size[config->sizes++] = size;
    if (!config->sizes) bad("-e", "", "at least what -b says");
}

/* --- one time --- */

static void fail_wait(const struct rig *rig, const struct shape *shape, uint64_t bytes) __attribute__((noreturn));
static void fail_wait(const struct rig *rig, const struct shape *shape, uint64_t bytes) {
    const int i = rig_failed(rig);
    FAIL("%s, %u threads, %llu bytes: rank %d waited for rank %u for too long, in its launch %llu",
         bl_kernel_name(shape->kernel), shape->threads, (unsigned long long)bytes, i, rig->control[i]->waiting_peer,
         (unsigned long long)rig->control[i]->waiting_launch);
}

/* So that a result that nobody writes is seen. */
static void poison_results(struct rig *rig, const struct call *calls, int messages) {
    for (int i = 0; i < rig->part->count; i++) {
        struct rank *rank = part_enter(rig->part, i);
        for (int m = 0; m < messages; m++)
            CU_OK(cuMemsetD8Async(calls[m].recv[i], 0xa5, calls[m].room, rank->stream[0]));
    }
    part_drain(rig->part);
}

static size_t count_wrong(struct session *s, struct call *calls, const struct shape *shape, const char *when) {
    size_t wrong = 0;
    for (int m = 0; m < shape->messages; m++) wrong += call_count_wrong(s->rig->part, &calls[m]);
    if (wrong)
        fprintf(stderr, "%s, %u threads, %zu elements: %zu wrong %s\n", bl_kernel_name(shape->kernel), shape->threads,
                calls->count, wrong, when);
    return wrong;
}

/* Bytes that the grid is made for; and, of several collectives, those of the rings that the launch takes, else the same. */
static uint64_t launched_bytes(const struct part *part, const struct call *calls, const struct shape *shape,
                               uint64_t *taken) {
    struct bl_mixed mixed;
    if (!bl_kernel_mixed(shape->kernel)) return *taken = calls->count * bl_datatype_size(calls->datatype);
    bl_mixed_begin(&mixed, part->count);
    for (int m = 0; m < shape->messages; m++)
        bl_mixed_count(&mixed, calls[m].collective, (unsigned)calls[m].root,
                       calls[m].count * bl_datatype_size(calls[m].datatype));
    *taken = bl_mixed_span(&mixed) * BL_FLAGGED_DATA;
    return mixed.lines * BL_FLAGGED_DATA;
}

static void write_record(const struct session *s, const struct call *call, const struct shape *shape, uint64_t launched,
                         const struct times *times, size_t wrong) {
    const struct config *config = s->config;
    const struct part *part = s->rig->part;
    const uint64_t bytes = call->count * bl_datatype_size(call->datatype);
    if (!config->json) return;
    fprintf(config->json,
            "{\"record\": \"time\", \"gpu\": \"%s\", \"ranks\": %d, \"gpus\": %d, \"collective\": \"%s\", "
            "\"kernel\": \"%s\", \"messages\": %d, \"threads\": %u, \"blocks\": %u, \"bytes\": %llu, \"count\": %zu, "
            "\"datatype\": \"%s\", \"redop\": \"%s\", \"offset\": %u, \"launches\": %d, \"replays\": %d, \"us\": %.3f, "
            "\"us_least\": %.3f, \"us_most\": %.3f, \"wrong\": %zu}\n",
            s->gpu, part->count, part->box->gpus, shape->messages > 1 ? "several" : collective_name(call->collective),
            bl_kernel_name(shape->kernel), shape->messages, rig_threads(s->rig, shape),
            rig_blocks(s->rig, shape, launched), (unsigned long long)bytes, call->count,
            bl_datatype_name(call->datatype), bl_kernel_reduces(shape->kernel) ? bl_redop_name(call->redop) : "none",
            config->offset, config->launches, config->replays, times->median, times->least, times->most, wrong);
}

static void time_one(struct session *s, struct call *calls, struct row *row, int size) {
    const struct shape shape = {
        .kernel = row->kernel, .threads = row->threads, .most_blocks = s->most_blocks, .messages = row->messages};
    struct part *part = s->rig->part;
    const uint64_t bytes = calls->count * bl_datatype_size(calls->datatype);
    struct times times;
    uint64_t taken;
    const uint64_t launched = launched_bytes(part, calls, &shape, &taken);
    row->timed[size] = taken <= bl_kernel_capacity(row->kernel, part->count, &s->rig->layout);
    if (!row->timed[size]) return;
    poison_results(s->rig, calls, row->messages);
    for (int i = 0; i < part->count; i++) rig_launch(s->rig, calls, &shape, i);
    rig_drain(s->rig);
    if (rig_failed(s->rig) >= 0) fail_wait(s->rig, &shape, bytes);
    size_t wrong = count_wrong(s, calls, &shape, "before it was timed");
    poison_results(s->rig, calls, row->messages);
    if (!stopwatch_time(&s->watch, calls, &shape, s->config->launches, s->config->replays, &times))
        fail_wait(s->rig, &shape, bytes);
    wrong += count_wrong(s, calls, &shape, "when it was timed");
    row->us[size] = times.median;
    row->wrong += wrong;
    write_record(s, calls, &shape, launched, &times, wrong);
}

/* --- all of them --- */

static void print_rows(const struct session *s, const char *title, const struct row *rows, int count) {
    const struct config *config = s->config;
    printf("\n%-30s", title);
    for (int k = 0; k < config->sizes; k++) printf(" %8llu", (unsigned long long)config->size[k]);
    printf("    wrong\n");
    for (int r = 0; r < count; r++) {
        char label[64];
        snprintf(label, sizeof label, "%s/%u", bl_kernel_name(rows[r].kernel), rows[r].threads);
        printf("%-30s", label);
        for (int k = 0; k < config->sizes; k++)
            if (rows[r].timed[k])
                printf(" %8.2f", rows[r].us[k]);
            else
                printf(" %8s", "-");
        printf(" %8zu\n", rows[r].wrong);
    }
    fflush(stdout);
}

/* --- errors --- */

static void error_of(struct session *s, struct call *call, const struct shape *shape) {
    const uint64_t bytes = call->count * bl_datatype_size(call->datatype);
    struct rounding found;
    if (bytes > bl_kernel_capacity(shape->kernel, s->rig->part->count, &s->rig->layout)) return;
    poison_results(s->rig, call, 1);
    if (!rounding_measure(s->rig, call, shape, &found)) fail_wait(s->rig, shape, bytes);
    printf("%-30s %-9s %-4s %9llu %8.3f %8.2f %7.2f%% %8.3f %8.2f %7.2f%%\n", bl_kernel_name(shape->kernel),
           bl_datatype_name(call->datatype), bl_redop_name(call->redop), (unsigned long long)bytes, found.kernel.mean,
           found.kernel.most, found.kernel.right * 100, found.chain.mean, found.chain.most, found.chain.right * 100);
    fflush(stdout);
    if (!s->config->json) return;
    fprintf(s->config->json,
            "{\"record\": \"error\", \"gpu\": \"%s\", \"ranks\": %d, \"collective\": \"%s\", \"kernel\": \"%s\", "
            "\"bytes\": %llu, \"count\": %zu, \"datatype\": \"%s\", \"redop\": \"%s\", \"mean_ulp\": %.6g, "
            "\"max_ulp\": %.6g, \"right\": %.6g, \"chain_mean_ulp\": %.6g, \"chain_max_ulp\": %.6g, \"chain_right\": "
            "%.6g}\n",
            s->gpu, s->rig->part->count, collective_name(call->collective), bl_kernel_name(shape->kernel),
            (unsigned long long)bytes, call->count, bl_datatype_name(call->datatype), bl_redop_name(call->redop),
            found.kernel.mean, found.kernel.most, found.kernel.right, found.chain.mean, found.chain.most,
            found.chain.right);
}

static void errors_of(struct session *s, enum bl_collective collective) {
    static const int datatypes[] = {BL_BFLOAT16, BL_FLOAT16}, redops[] = {BL_SUM, BL_AVG};
    const struct config *config = s->config;
    for (int d = 0; d < 2; d++)
        for (int o = 0; o < 2; o++) {
            struct call call = {.collective = collective, .datatype = datatypes[d], .redop = redops[o], .seed = 1};
            for (int k = 0; k < config->sizes; k++) {
                call.count = config->size[k] / bl_datatype_size(call.datatype);
                call_prepare(s->rig->part, &call);
                rig_settle(s->rig);
                for (int kernel = 0; kernel < BL_KERNELS; kernel++)
                    if (config->kernel[kernel] && bl_kernel_collective(kernel) == collective)
                        error_of(s, &call,
                                 &(struct shape){.kernel = kernel,
                                                 .threads = config->threads[0],
                                                 .most_blocks = s->most_blocks,
                                                 .messages = 1});
            }
            call_free(s->rig->part, &call);
        }
}

/* --- times --- */

/* The kernels of a collective take turns at each size, so that what is compared was measured in the same seconds. */
static void time_collective(struct session *s, enum bl_collective collective) {
    static struct row rows[BL_KERNELS * MOST_THREADS];
    const struct config *config = s->config;
    struct call call = {.collective = collective,
                        .datatype = BL_BFLOAT16,
                        .redop = BL_SUM,
                        .send_offset = config->offset,
                        .recv_offset = config->offset,
                        .seed = 1};
    int count = 0;
    for (int k = 0; k < BL_KERNELS; k++)
        for (int t = 0; t < config->threads_count; t++) {
            const unsigned threads = rig_threads(s->rig, &(struct shape){.kernel = k, .threads = config->threads[t]});
            const bool again = count && rows[count - 1].kernel == k && rows[count - 1].threads == threads;
            if (config->kernel[k] && bl_kernel_collective(k) == collective && !again)
                rows[count++] = (struct row){.kernel = k, .threads = threads, .messages = 1};
        }
    if (!count) return;
    for (int k = 0; k < config->sizes; k++) {
        call.count = config->size[k] / bl_datatype_size(call.datatype);
        call_prepare(s->rig->part, &call);
        rig_settle(s->rig);
        for (int r = 0; r < count; r++) time_one(s, &call, &rows[r], k);
    }
    call_free(s->rig->part, &call);
    print_rows(s, collective_name(collective), rows, count);
    for (int r = 0; r < count; r++) s->config->wrong += rows[r].wrong;
}

/* Likewise each number of threads. */
static void time_group(struct session *s) {
    static const enum bl_collective collectives[] = {BL_BROADCAST, BL_REDUCE, BL_ALLREDUCE};
    static struct call calls[BL_BATCH_MAX];
    struct row rows[MOST_THREADS] = {0};
    const struct config *config = s->config;
    const int messages = config->messages, count = config->threads_count;
    char title[64];
    for (int t = 0; t < count; t++)
        rows[t] =
            (struct row){.kernel = messages > BL_BATCH_FEW ? BL_KERNEL_MIXED_LL128_BATCH : BL_KERNEL_MIXED_LL128_FEW,
                         .threads = config->threads[t],
                         .messages = messages};
    for (int k = 0; k < config->sizes; k++) {
        for (int m = 0; m < messages; m++) {
            calls[m] = (struct call){.collective = collectives[m % 3],
                                     .datatype = BL_BFLOAT16,
                                     .redop = BL_SUM,
                                     .root = m / 3 % s->rig->part->count,
                                     .count = config->size[k] / bl_datatype_size(BL_BFLOAT16),
                                     .send_offset = config->offset,
                                     .recv_offset = config->offset,
                                     .seed = (uint64_t)m + 1};
            call_prepare(s->rig->part, &calls[m]);
        }
        rig_settle(s->rig);
        for (int t = 0; t < count; t++) time_one(s, calls, &rows[t], k);
        for (int m = 0; m < messages; m++) call_free(s->rig->part, &calls[m]);
    }
    snprintf(title, sizeof title, "several, %d messages", messages);
    print_rows(s, title, rows, count);
    for (int t = 0; t < count; t++) s->config->wrong += rows[t].wrong;
}

static void body(struct part *part) {
    struct config *config = part->box->argument;
    static struct rig rig;
    struct session s = {.config = config, .rig = &rig};
    int multiprocessors;
    if (!part->box->gpus) part->box->gpus = part->count;
    const int gpus = part->box->gpus, ranks_there = (part->count + gpus - 1) / gpus;
    CU_OK(cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, part->rank[0].device));
    CU_OK(cuDeviceGetName(s.gpu, sizeof s.gpu, part->rank[0].device));
    s.most_blocks = config->most_blocks ? config->most_blocks : (unsigned)(multiprocessors / ranks_there);
    if (!s.most_blocks) FAIL("%d ranks on a GPU of %d multiprocessors: give -B", ranks_there, multiprocessors);
    rig_open(&rig, part, STAGING, false, 1000000000u * config->wait);
    stopwatch_open(&s.watch, &rig);
    printf("# %d ranks on %d GPUs (%s, %d multiprocessors), %s, at most %u blocks a rank\n", part->count, gpus, s.gpu,
           multiprocessors, config->errors ? "random values" : "bfloat16 sums", s.most_blocks);
    if (config->offset && !config->errors) printf("# buffers %u bytes off a multiple of 16\n", config->offset);
    if (config->errors) {
        printf("# units of the last place of the exact result; then what each addition rounded to the type would do\n");
        printf("%-30s %-9s %-4s %9s %8s %8s %8s %8s %8s %8s\n", "", "", "", "bytes", "mean", "most", "right", "mean",
               "most", "right");
        errors_of(&s, BL_ALLREDUCE);
        errors_of(&s, BL_REDUCESCATTER);
    } else {
        printf("# us a launch: %d launches a graph, the slowest rank, the median of %d replays\n", config->launches,
               config->replays);
        if (config->messages) time_group(&s);
        for (int c = 0; c < BL_COLLECTIVES && !config->messages; c++) time_collective(&s, (enum bl_collective)c);
    }
    stopwatch_close(&s.watch);
    rig_close(&rig);
}

int main(int argc, char **argv) {
    static struct config config;
    static struct box box;
    read_options(&config, &box, argc, argv);
    /* Streams that shared a hardware queue would wait for each other, and so would kernels that are loaded when first launched. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    box_run_bare(&box, body);
    if (config.json && fclose(config.json)) FAIL("the records could not be written");
    if (config.wrong) fprintf(stderr, "%zu wrong elements\n", config.wrong);
    return config.wrong != 0;
}
