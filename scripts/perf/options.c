/* options.c - the command line, and the rank of this process where a launcher gave one. */
#include <ctype.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "build_id.h"
#include "perf.h"

const char perf_version[] = BEELINE_VERSION "-" BL_BUILD_ID;

static const char usage[] =
    "usage: beeline-perf [options]\n"
    "Times collectives through Beeline (ncclX) and through the real NCCL (pncclX) alternately, and checks every "
    "element.\n"
    "Run it with beeline run, or LD_PRELOAD=/path/to/libbeeline.so; without Beeline both sides are NCCL.\n"
    "\n"
    "what\n"
    "  -c, --collectives LIST  "
#define PERF_CALL(CALL, name, ROUTES, traits) #name ", "
#include "calls.def"
    "or all\n"
    "                                                                                     [all_reduce]\n"
    "  -d, --datatypes LIST    bfloat16 (or bf16), half (fp16), float (fp32), int8, ..., or all  [bfloat16]\n"
    "  -o, --ops LIST          sum, prod, max, min, avg, or all                           [sum]\n"
    "      --root N            of broadcast, reduce, gather, and scatter                  [0]\n"
    "  -b, --minbytes SIZE     -e, --maxbytes SIZE                                        [256, 64M]\n"
    "  -f, --factor N          from size to size, a whole number; or -i, --step SIZE      [4]\n"
    "      --odd               each size once more with an odd count\n"
    "      --offset LIST       buffers so many bytes past a 256-byte boundary, rounded up to an element  [0]\n"
    "      --group K           a call is a group of K collectives of the size, one behind the other in memory  [1]\n"
    "      --place LIST        out, in, or both                                           [both]\n"
    "      --mode LIST         eager, graph, or both                                      [both]\n"
    "      --served            only rows that Beeline serves: those of NCCL alone are left out\n"
    "      --expect-beeline    fails at once where Beeline is not loaded, or leaves the ranks to NCCL\n"
    "      --check             results only: nothing is timed\n"
    "      --tunings FILE,...  all of this with each tuning file of Beeline in turn, on new communicators; the "
    "environment's\n"
    "                          BEELINE_TUNING_FILE names a place, empty or not there, that they are copied to\n"
    "how\n"
    "  -n, --iters N           samples a row, 1 to 1000; a sample is one batch of calls   [20]\n"
    "  -G, --calls N           calls a batch: captured in one graph, or back to back      [20]\n"
    "  -w, --warmup N          calls before the first sample                              [5]\n"
    "      --seconds S         about the most time for one row: fewer samples, then calls; a size of which one\n"
    "                          call takes longer ends its series                          [4]\n"
    "ranks\n"
    "  -g, --gpus N            GPUs a thread, their calls in a group                      [1]\n"
    "  -t, --threads N         threads a process                                          [all GPUs]\n"
    "      --spawn N           N processes; a launcher (torchrun, mpirun, srun) is another way: its variables are "
    "read\n"
    "      --id-file PATH      where launched processes meet, in a file system they share [BEELINE_ID_FILE, or in "
    "/tmp]\n"
    "      --timeout S         seconds without progress after which the run fails         [300]\n"
    "libraries\n"
    "      --library PATH      NCCL, or Beeline named as the library                      [libnccl.so.2]\n"
    "      --baseline PATH     another NCCL for the baseline: its pncclX                  [the same]\n"
    "output\n"
    "      --wide              also count, algbw, p99, event and host time\n"
    "      --json FILE         the same as JSON lines; -: on stdout, and the table on stderr\n"
    "      --version\n"
    "Exit status: 0, or 1 if a value was wrong or something failed.\n";

static int bad(const char *option, const char *value, const char *accepted) {
    fprintf(stderr, "beeline-perf: %s '%s' is not accepted: %s\n", option, value, accepted);
    return -1;
}

static int parse_bytes(const char *option, const char *text, uint64_t *value) {
    static const char units[] = "KMG";
    char *end;
    unsigned long long v = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;

    if (end == text || *text == '-' || (*end && (!unit || end[1])))
        return bad(option, text, "a size, K, M or G may follow");
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    if (v > (1ull << 40) >> shift) return bad(option, text, "a size up to 1024G");
    *value = v << shift;
    return 0;
}

static int parse_int(const char *option, const char *text, int low, int high, int *value) {
    char *end, accepted[64];
    long v = strtol(text, &end, 10);

    snprintf(accepted, sizeof accepted, "a number from %d to %d", low, high);
    if (end == text || *end || v < low || v > high) return bad(option, text, accepted);
    *value = v;
    return 0;
}

static int parse_factor(const char *option, const char *text, uint64_t *value) {
    char *end;
    unsigned long v = strtoul(text, &end, 10);
    if (end == text || *end || *text == '-' || v < 2 || v > 1 << 20) return bad(option, text, "a whole number from 2");
    *value = v;
    return 0;
}

/* Offsets, separated by commas. */
static int parse_offsets(const char *option, const char *text, struct options *o) {
    o->offsets = 0;
    for (const char *word = text;; word++) {
        char *end;
        unsigned long v = strtoul(word, &end, 10);
        if (end == word || *word == '-' || (*end && *end != ',') || v > 255 || o->offsets == MAX_OFFSETS)
            return bad(option, text, "up to 16 of 0 to 255, separated by commas");
        o->offset[o->offsets++] = v;
        word = end;
        if (!*word) return 0;
    }
}

/* Paths, separated by commas. */
static int parse_files(const char *option, const char *text, struct options *o) {
    for (const char *word = text;; word++) {
        size_t length = strcspn(word, ",");
        if (!length || o->tunings == MAX_TUNINGS) return bad(option, text, "up to 64 paths, separated by commas");
        if (!(o->tuning[o->tunings++] = strndup(word, length))) return bad(option, text, "what fits in memory");
        word += length;
        if (!*word) return 0;
    }
}

static int parse_seconds(const char *option, const char *text, double *value) {
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !(v > 0 && v <= 1e6)) return bad(option, text, "seconds above 0");
    *value = v;
    return 0;
}

static const char *mode_name(int i) {
    return i == EAGER ? "eager" : "graph";
}
static const char *place_name(int i) {
    return i == OUT_OF_PLACE ? "out" : "in";
}

/* Other words for datatypes. */
static const char *const synonyms[][2] = {
    {"bf16", "bfloat16"},     {"fp16", "half"},      {"f16", "half"},       {"float16", "half"},
    {"fp32", "float"},        {"f32", "float"},      {"float32", "float"},  {"fp64", "double"},
    {"f64", "double"},        {"float64", "double"}, {"e4m3", "f8e4m3"},    {"fp8e4m3", "f8e4m3"},
    {"float8e4m3", "f8e4m3"}, {"e5m2", "f8e5m2"},    {"fp8e5m2", "f8e5m2"}, {"float8e5m2", "f8e5m2"},
};

/* As words are compared: without - and _, in lower case. */
static void loosen(char *to, size_t size, const char *word, size_t length) {
    size_t n = 0;
    for (size_t i = 0; i < length && n + 1 < size; i++)
        if (word[i] != '-' && word[i] != '_') to[n++] = (char)tolower((unsigned char)word[i]);
    to[n] = 0;
}

static bool means(const char *word, size_t length, const char *name) {
    char said[32], meant[32];
    loosen(said, sizeof said, word, length);
    loosen(meant, sizeof meant, name, strlen(name));
    for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++)
        if (!strcmp(said, synonyms[i][0]) && !strcmp(name, synonyms[i][1])) return true;
    return !strcmp(said, meant);
}

/* A list of names, separated by commas, or `everything`. */
static int parse_list(const char *option, const char *text, const char *(*name)(int), int names, const char *everything,
                      unsigned *mask) {
    char accepted[256];
    int used = snprintf(accepted, sizeof accepted, "%s, or a list of", everything);

    for (int i = 0; i < names; i++) used += snprintf(accepted + used, sizeof accepted - used, " %s", name(i));
    *mask = 0;
    if (!strcmp(text, everything)) {
        *mask = (1u << names) - 1;
        return 0;
    }
    for (const char *word = text;; word++) {
        size_t length = strcspn(word, ",");
        int i = 0;
        while (i < names && !means(word, length, name(i))) i++;
        if (i == names) return bad(option, text, accepted);
        *mask |= 1u << i;
        word += length;
        if (!*word) return 0;
    }
}

/* How launchers tell a process its rank. */
static const struct {
    const char *rank, *size, *local;
} launchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
};

static int find_launcher(struct options *options) {
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const char *rank = getenv(launchers[i].rank), *size = getenv(launchers[i].size);
        const char *local = getenv(launchers[i].local);
        if (!rank || !size || !strcmp(size, "1")) continue;
        if (parse_int(launchers[i].size, size, 1, BL_MAX_RANKS, &options->processes)) return -1;
        if (parse_int(launchers[i].rank, rank, 0, options->processes - 1, &options->rank)) return -1;
        return parse_int(launchers[i].local, local ? local : rank, 0, BL_MAX_RANKS - 1, &options->local_rank);
    }
    return 0;
}

int options_parse(struct options *o, int argc, char **argv) {
    enum {
        ODD = 256,
        OFFSET,
        GROUP,
        ROOT,
        PLACE,
        MODE,
        SECONDS,
        SPAWN,
        ID_FILE,
        TIMEOUT,
        LIBRARY,
        BASELINE_PATH,
        JSON,
        TUNINGS,
        SERVED,
        EXPECT,
        CHECK,
        WIDE,
        VERSION
    };
    static const struct option names[] = {
        {"collectives", 1, NULL, 'c'},
        {"datatypes", 1, NULL, 'd'},
        {"ops", 1, NULL, 'o'},
        {"minbytes", 1, NULL, 'b'},
        {"maxbytes", 1, NULL, 'e'},
        {"factor", 1, NULL, 'f'},
        {"step", 1, NULL, 'i'},
        {"iters", 1, NULL, 'n'},
        {"calls", 1, NULL, 'G'},
        {"warmup", 1, NULL, 'w'},
        {"gpus", 1, NULL, 'g'},
        {"threads", 1, NULL, 't'},
        {"odd", 0, NULL, ODD},
        {"offset", 1, NULL, OFFSET},
        {"place", 1, NULL, PLACE},
        {"mode", 1, NULL, MODE},
        {"seconds", 1, NULL, SECONDS},
        {"spawn", 1, NULL, SPAWN},
        {"id-file", 1, NULL, ID_FILE},
        {"timeout", 1, NULL, TIMEOUT},
        {"library", 1, NULL, LIBRARY},
        {"baseline", 1, NULL, BASELINE_PATH},
        {"json", 1, NULL, JSON},
        {"group", 1, NULL, GROUP},
        {"root", 1, NULL, ROOT},
        {"served", 0, NULL, SERVED},
        {"tunings", 1, NULL, TUNINGS},
        {"expect-beeline", 0, NULL, EXPECT},
        {"check", 0, NULL, CHECK},
        {"wide", 0, NULL, WIDE},
        {"version", 0, NULL, VERSION},
        {"help", 0, NULL, 'h'},
        {0},
    };
    const char *smallest = "256", *largest = "64M"; /* as they were said */
    int c, error = 0;

    *o = (struct options){
        .collectives = 1u << PERF_ALLREDUCE,
        .datatypes = 1u << BL_BFLOAT16,
        .redops = 1u << BL_SUM,
        .modes = 3,
        .places = 3,
        .min_bytes = 256,
        .max_bytes = 64 << 20,
        .factor = 4,
        .samples = 20,
        .calls = 20,
        .warmup = 5,
        .offsets = 1,
        .group = 1,
        .seconds = 4,
        .processes = 1,
        .timeout = 300,
        .library = "libnccl.so.2",
        .id_file = getenv("BEELINE_ID_FILE"),
        .argc = argc,
        .argv = argv,
    };
    while (!error && (c = getopt_long(argc, argv, "c:d:o:b:e:f:i:n:G:w:g:t:h", names, NULL)) != -1) {
        switch (c) {
        case 'c': error = parse_list("-c", optarg, collective_name, PERF_CALLS, "all", &o->collectives); break;
        case 'd': error = parse_list("-d", optarg, bl_datatype_name, BL_DATATYPES, "all", &o->datatypes); break;
        case 'o': error = parse_list("-o", optarg, bl_redop_name, BL_REDOPS, "all", &o->redops); break;
        case 'b': error = parse_bytes("-b", smallest = optarg, &o->min_bytes); break;
        case 'e': error = parse_bytes("-e", largest = optarg, &o->max_bytes); break;
        case 'f': error = parse_factor("-f", optarg, &o->factor); break;
        case 'i':
            error = parse_bytes("-i", optarg, &o->step);
            if (!error && !o->step) error = bad("-i", optarg, "a step above 0");
            break;
        case 'n': error = parse_int("-n", optarg, 1, MAX_SAMPLES, &o->samples); break;
        case 'G': error = parse_int("-G", optarg, 1, MAX_CALLS, &o->calls); break;
        case 'w': error = parse_int("-w", optarg, 0, 1000, &o->warmup); break;
        case 'g': error = parse_int("-g", optarg, 1, BL_MAX_RANKS, &o->gpus); break;
        case 't': error = parse_int("-t", optarg, 1, BL_MAX_RANKS, &o->threads); break;
        case ODD: o->odd = true; break;
        case OFFSET: error = parse_offsets("--offset", optarg, o); break;
        case GROUP: error = parse_int("--group", optarg, 1, MAX_GROUP, &o->group); break;
        case ROOT: error = parse_int("--root", optarg, 0, BL_MAX_RANKS - 1, &o->root); break;
        case PLACE: error = parse_list("--place", optarg, place_name, PLACES, "both", &o->places); break;
        case MODE: error = parse_list("--mode", optarg, mode_name, MODES, "both", &o->modes); break;
        case SECONDS: error = parse_seconds("--seconds", optarg, &o->seconds); break;
        case SPAWN:
            error = parse_int("--spawn", optarg, 1, BL_MAX_RANKS, &o->processes);
            o->spawn = true;
            break;
        case ID_FILE: o->id_file = optarg; break;
        case TIMEOUT: error = parse_seconds("--timeout", optarg, &o->timeout); break;
        case LIBRARY: o->library = optarg; break;
        case BASELINE_PATH: o->baseline = optarg; break;
        case JSON: o->json = optarg; break;
        case TUNINGS: error = parse_files("--tunings", optarg, o); break;
        case SERVED: o->served = true; break;
        case EXPECT: o->expect = true; break;
        case CHECK: o->check = true; break;
        case WIDE: o->wide = true; break;
        case VERSION: printf("beeline-perf %s\n", perf_version); return 1;
        case 'h': fputs(usage, stdout); return 1;
        default: error = -1; break;
        }
    }
    if (!error && optind < argc) error = bad("argument", argv[optind], "options only; beeline-perf --help lists them");
    if (!error && !o->min_bytes && !o->step) error = bad("-b", "0", "above 0 with a factor; 0 with a step");
    if (!error && o->min_bytes > o->max_bytes) {
        char accepted[64];
        snprintf(accepted, sizeof accepted, "at most the largest size, -e %.24s", largest);
        error = bad("-b", smallest, accepted);
    }
    if (!error && !o->spawn) error = find_launcher(o);
    return error;
}
