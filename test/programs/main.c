/* main.c - runs one program by name; see programs.h. */
#include "programs.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct program *const listed[] = {
    stream_programs, many_programs,     crowded_programs, value_programs, late_programs,       one_way_programs,
    end_programs,    exchange_programs, gather_programs,  ahead_programs, order_programs,      mixed_programs,
    update_programs, both_programs,     refused_programs, drawn_programs, registered_programs, meanwhile_programs};
static const struct program *const unlisted[] = {unlisted_many_programs, unlisted_end_programs, unlisted_order_programs,
                                                 unlisted_ahead_programs, unlisted_wide_programs};
enum { LISTED = sizeof listed / sizeof *listed, UNLISTED = sizeof unlisted / sizeof *unlisted };
static const struct program *chosen; /* the one that runs */

static const struct program *find(const char *name) {
    for (int i = 0; i < LISTED + UNLISTED; i++)
        for (const struct program *p = i < LISTED ? listed[i] : unlisted[i - LISTED]; p->name; p++)
            if (strcmp(p->name, name) == 0) return p;
    fprintf(stderr, "no program %s; without a name they are listed\n", name);
    exit(2);
}

static int list(void) {
    for (int i = 0; i < LISTED; i++)
        for (const struct program *p = listed[i]; p->name; p++) puts(p->name);
    return 0;
}

static size_t number(const char *what, const char *text) {
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (end != text && *end == 'K') value <<= 10, end++;
    if (end != text && *end == 'M') value <<= 20, end++;
    if (*end || end == text) {
        fprintf(stderr, "%s %s: not a number\n", what, text);
        exit(2);
    }
    return value;
}

static const struct option accepted[] = {{"ranks", required_argument, NULL, 'n'},
                                         {"processes", no_argument, NULL, 'p'},
                                         {"seed", required_argument, NULL, 's'},
                                         {"repeat", required_argument, NULL, 'r'},
                                         {"small", required_argument, NULL, '1'},
                                         {"middle", required_argument, NULL, '2'},
                                         {"large", required_argument, NULL, '3'},
                                         {"late", required_argument, NULL, 'l'},
                                         {"may-fail", no_argument, NULL, 'f'},
                                         {"limit", required_argument, NULL, 'w'},
                                         {0}};

static void read_settings(struct settings *s, int argc, char **argv) {
    *s = (struct settings){.box = {.mode = MODE_THREADS, .nranks = 2, .no_communicators = true},
                           .seed = 1,
                           .repeat = 1,
                           .late = 8,
                           .limit = 60,
                           .small = 4 << 10,
                           .middle = 4 << 20,
                           .large = 64 << 20};
    for (int c; (c = getopt_long(argc, argv, "", accepted, NULL)) != -1;) {
        switch (c) {
        case 'n': s->box.nranks = (int)number("--ranks", optarg); break;
        case 'p': s->box.mode = MODE_PROCESSES; break;
        case 's': s->seed = number("--seed", optarg); break;
        case 'r': s->repeat = (long)number("--repeat", optarg); break;
        case '1': s->small = number("--small", optarg); break;
        case '2': s->middle = number("--middle", optarg); break;
        case '3': s->large = number("--large", optarg); break;
        case 'l': s->late = atof(optarg); break;
        case 'f': s->may_fail = true; break;
        case 'w': s->limit = (long)number("--limit", optarg); break;
        default: exit(2);
        }
    }
    s->box.argument = s;
}

static void body(struct part *part) {
    chosen->run(part, part->box->argument);
    doing(part, "leaving");
}

int main(int argc, char **argv) {
    static struct settings settings;
    read_settings(&settings, argc, argv);
    if (optind == argc) return list();
    for (int i = optind; i < argc; i++) find(argv[i]);
    for (int i = optind; i < argc; i++) {
        chosen = find(argv[i]);
        watch(chosen->name, settings.limit);
        box_run(&settings.box, body);
        say_ok("");
    }
    return 0;
}
