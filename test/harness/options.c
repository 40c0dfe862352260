/* options.c - see options.h. */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "reference.h"

static void bad(const char *what, const char *value, const char *accepted) __attribute__((noreturn));
static void bad(const char *what, const char *value, const char *accepted) {
    fprintf(stderr, "%s: \"%s\"; accepted: %s\n", what, value, accepted);
    exit(2);
}

static void read_set(const char *what, const char *text, bool *set, int size, int (*find)(const char *)) {
    memset(set, 0, (size_t)size * sizeof *set);
    if (strcmp(text, "all") == 0) {
        for (int i = 0; i < size; i++) set[i] = true;
        return;
    }
    char *copy = strdup(text), *rest = copy;
    for (char *word; (word = strsep(&rest, ","));) {
        int i = find(word);
        if (i < 0) bad(what, word, "all, or names as tuning files and nccl-tests have them");
        set[i] = true;
    }
    free(copy);
}

static void read_counts(struct options *o, const char *text) {
    o->counts = 0;
    char *copy = strdup(text), *rest = copy;
    for (char *word; (word = strsep(&rest, ","));) {
        char *end;
        unsigned long long from = strtoull(word, &end, 10), to = from;
        if (*end == '-') to = strtoull(end + 1, &end, 10);
        if (*end || end == word || to < from) bad("counts", word, "N or N-N, with commas between");
        for (; from <= to; from++) {
            if (o->counts == MOST_COUNTS) bad("counts", text, "fewer counts");
            o->count[o->counts++] = from;
        }
    }
    free(copy);
}

static void read_offsets(struct options *o, const char *text) {
    o->offsets = 0;
    o->offsets_in_elements = strcmp(text, "elements") == 0;
    if (o->offsets_in_elements) text = "0,1,2,3,5,7";
    if (strcmp(text, "odd") == 0) text = "0,1,2,3,4,5,6,7,8,9,12,13,16,24,31";
    char *copy = strdup(text), *rest = copy;
    for (char *word; (word = strsep(&rest, ","));) {
        char *end;
        unsigned long value = strtoul(word, &end, 10);
        if (*end || end == word || value >= 64 || o->offsets == MOST_OFFSETS)
            bad("offsets", word, "0 to 63, odd, elements");
        o->offset[o->offsets++] = (unsigned)value;
    }
    free(copy);
}

static long number(const char *what, const char *text) {
    char *end;
    long value = strtol(text, &end, 10);
    if (*end || end == text || value < 0) bad(what, text, "a number");
    return value;
}

void options_read(struct options *o, int argc, char **argv) {
    *o = (struct options){.box = {.mode = MODE_GROUPS, .nranks = 2, .seed = 1}, .batch = 4};
    o->collectives[BL_ALLREDUCE] = o->datatypes[ref_datatype("float")] = o->redops[ref_redop("sum")] = true;
    read_counts(o, "17");
    read_offsets(o, "0");
    for (int c; (c = getopt(argc, argv, "m:n:C:t:o:c:x:s:a:g:b:k:w:e")) != -1;) {
        switch (c) {
        case 'm':
            if (box_mode(optarg) < 0) bad("-m", optarg, "groups, threads, processes");
            o->box.mode = (enum mode)box_mode(optarg);
            break;
        case 'n': o->box.nranks = (int)number("-n", optarg); break;
        case 'C': read_set("-C", optarg, o->collectives, BL_COLLECTIVES, collective_find); break;
        case 't': read_set("-t", optarg, o->datatypes, REF_DATATYPES, ref_datatype); break;
        case 'o': read_set("-o", optarg, o->redops, REF_REDOPS, ref_redop); break;
        case 'c': read_counts(o, optarg); break;
        case 'x': read_offsets(o, optarg); break;
        case 's': o->box.seed = (uint64_t)number("-s", optarg); break;
        case 'a': o->route = optarg; break;
        case 'g': o->replays = (int)number("-g", optarg); break;
        case 'b': o->batch = (int)number("-b", optarg); break;
        case 'e': o->box.whole = true; break;
        case 'w': o->wait = number("-w", optarg); break;
        case 'k': o->calls = number("-k", optarg); break;
        default: exit(2);
        }
    }
    if (o->batch < 1 || o->batch > 64) bad("-b", "", "1 to 64");
    o->name = argv[optind];
    o->box.argument = o;
}
