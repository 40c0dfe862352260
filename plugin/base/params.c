/* params.c - reads the environment, strictly, once; the only file that reads it. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "log.h"
#include "params.h"

/* Where a row's value comes from: NULL is the default. */
struct source {
    const char *variable;
    bool refused; /* the default holds, since what `variable` says is not accepted */
};

/* Categories of which every rank must have the same: they decide routes and the layout of the staging. */
static const char *const shared_categories[] = {"routes", "memory"};

/* Variables in BEELINE_ that are not the library's: of the emulated box, of the command beeline, of test programs and of the
 * rendezvous of programs that are started once a rank. */
static const char *const foreign[] = {"BEELINE_EMU_", "BEELINE_ID_FILE", "BEELINE_LIBRARY", "BEELINE_TEST_",
                                      "BEELINE_PERF_"};

/* Set by users of NCCL, PyTorch and NVSHMEM where multicast must not be used.  Each of these reads values in its own way (NCCL
 * takes 0x0, "no" and "true" for 0), so whatever does not plainly allow it forbids it. */
static const struct {
    const char *variable, *allowing;
} multicast[] = {{"NCCL_NVLS_ENABLE", "1|2"}, {"TORCH_SYMM_MEM_DISABLE_MULTICAST", "0"}, {"NVSHMEM_DISABLE_NVLS", "0"}};

enum {
    ROWS = 0
#define BL_PARAM(...) +1
#include "params.def"
};
enum { COMPLAINTS = 16, COMPLAINT = 400 };

static struct bl_params params;
static struct source sources[ROWS];
static char complaints[COMPLAINTS][COMPLAINT]; /* logged when the level is known */
static int complaint_count;
static char multicast_at_first[96]; /* what forbade multicast when the environment was read; "" if nothing did */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_bool ready, logged;

static void *member_of(const struct bl_param_row *row) {
    return (char *)&params + row->offset;
}

/* The next free line for a complaint. Beyond the last they share one: sixteen are enough to act on. */
static char *complaint(void) {
    return complaints[complaint_count < COMPLAINTS ? complaint_count++ : COMPLAINTS - 1];
}

/* NULL if unset or empty. */
static const char *value_of(const char *variable) {
    const char *text = getenv(variable);
    return text && *text ? text : NULL;
}

static bool is_nccls(const struct bl_param_row *row) {
    return strcmp(row->category, "nccl") == 0;
}

/* What a variable of NCCL may say is NCCL's affair. */
static void refuse(const struct bl_param_row *row, const char *text) {
    char accepted[192], used[48];
    if (is_nccls(row)) return;
    row->kind->accepted(row, accepted, sizeof(accepted));
    row->kind->format(row, member_of(row), used, sizeof(used));
    snprintf(complaint(), COMPLAINT, "%s=%.64s is not accepted: want %s; using the default, %s", row->variable, text,
             accepted, *used ? used : "unset");
}

/* As Python's int() takes it, and its bool(). */
static bool is_whole_but_0(const char *text) {
    char *end;
    const long long number = strtoll(text, &end, 10);
    return end > text && !end[strspn(end, " \t\n")] && number != 0;
}

static void read_row(int index) {
    const struct bl_param_row *row = &bl_param_rows[index];
    const char *text = value_of(row->variable);
    row->kind->set_default(row, member_of(row));
    sources[index] = (struct source){0};
    if (text) {
        sources[index].variable = row->variable;
        sources[index].refused = !row->kind->parse(row, text, member_of(row));
        if (sources[index].refused) refuse(row, text);
        return;
    }
    for (int i = 0; i < bl_param_also_count; i++) {
        const char *other = bl_param_alsos[i].other;
        if (strcmp(bl_param_alsos[i].variable, row->variable) != 0 || !(text = value_of(other))) continue;
        if (is_whole_but_0(text) && row->kind->parse(row, "1", member_of(row))) sources[index].variable = other;
    }
}

enum { LONGEST_NAME = 64 };

/* What stands behind BEELINE, or NCCL. */
static const char *stem(const char *name) {
    return name + strcspn(name, "_");
}

/* Single-character edits that make stem `b` of `a`; 0 if one goes on where the other ends; long ones count as far. */
static int edit_distance(const char *a, const char *b) {
    int line[LONGEST_NAME + 1];
    size_t m = strlen(a), n = strlen(b);
    if (m > LONGEST_NAME || n > LONGEST_NAME) return LONGEST_NAME;
    if (strncmp(a, b, m < n ? m : n) == 0) return 0;
    for (size_t j = 0; j <= n; j++) line[j] = (int)j;
    for (size_t i = 1; i <= m; i++) {
        int diagonal = line[0];
        line[0] = (int)i;
        for (size_t j = 1; j <= n; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            if (line[j] + 1 < best) best = line[j] + 1;
            if (line[j - 1] + 1 < best) best = line[j - 1] + 1;
            diagonal = line[j];
            line[j] = best;
        }
    }
    return line[n];
}

/* The variable that may be meant: of whose stem not more than a third differs.  NULL: none is that near. */
static const char *nearest(const char *name) {
    const char *found = NULL;
    int least = LONGEST_NAME;
    for (int i = 0; i < ROWS; i++) {
        const char *variable = bl_param_rows[i].variable;
        const int distance = edit_distance(stem(name), stem(variable));
        if (distance >= least) continue;
        least = distance;
        found = variable;
    }
    return 3 * (size_t)least <= strlen(stem(name)) ? found : NULL;
}

static bool is_known(const char *name) {
    for (int i = 0; i < ROWS; i++)
        if (strcmp(bl_param_rows[i].variable, name) == 0) return true;
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
        if (strncmp(foreign[i], name, strlen(foreign[i])) == 0) return true;
    return false;
}

static void complain_of_unknown(void) {
    for (char **entry = environ; entry && *entry; entry++) {
        char name[80];
        if (strncmp(*entry, "BEELINE_", 8) != 0) continue;
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(*entry, "="), *entry);
        if (is_known(name)) continue;
        const char *meant = nearest(name);
        snprintf(complaint(), COMPLAINT, "%s is not a variable of Beeline and does nothing%s%s", name,
                 meant ? "; the nearest is " : "", meant ? meant : "");
    }
}

/* What forbids multicast in the environment as it is now; "" if nothing does. */
static void read_multicast(char *why, size_t size) {
    *why = 0;
    for (size_t i = 0; i < sizeof(multicast) / sizeof(multicast[0]); i++) {
        const char *text = value_of(multicast[i].variable);
        if (!text || bl_param_is_one_of(text, multicast[i].allowing)) continue;
        snprintf(why, size, "%s=%.32s", multicast[i].variable, text);
        return;
    }
}

static void read_all(void) {
    for (int i = 0; i < ROWS; i++) read_row(i);
    complain_of_unknown();
    read_multicast(multicast_at_first, sizeof(multicast_at_first));
    bl_log_open((enum bl_log_level)params.debug, params.debug_file);
    atomic_store_explicit(&ready, true, memory_order_release);
}

const struct bl_params *bl_params(void) {
    if (__builtin_expect(atomic_load_explicit(&ready, memory_order_acquire), 1)) return &params;
    pthread_once(&once, read_all);
    if (!atomic_exchange(&logged, true))
        for (int i = 0; i < complaint_count; i++) bl_log_at(NULL, BL_LOG_WARN, "%s", complaints[i]);
    return &params;
}

static void read_nccls(void) {
    for (int i = 0; i < ROWS; i++)
        if (is_nccls(&bl_param_rows[i])) read_row(i);
}

const struct bl_params *bl_params_of_nccl(void) {
    static pthread_once_t behind_init = PTHREAD_ONCE_INIT;
    bl_params();
    pthread_once(&behind_init, read_nccls);
    return &params;
}

static bool is_shared(const struct bl_param_row *row) {
    for (size_t i = 0; i < sizeof(shared_categories) / sizeof(shared_categories[0]); i++)
        if (strcmp(row->category, shared_categories[i]) == 0) return true;
    return false;
}

void bl_params_shared(char *text, size_t size) {
    size_t used = 0;
    bl_params();
    if (size) *text = 0;
    for (int i = 0; i < ROWS && used < size; i++) {
        const struct bl_param_row *row = &bl_param_rows[i];
        char value[256];
        if (!is_shared(row)) continue;
        row->kind->format(row, member_of(row), value, sizeof(value));
        used += (size_t)snprintf(text + used, size - used, "%s%s=%s", used ? " " : "", row->variable, value);
    }
}

void bl_params_log(void) {
    bl_params();
    for (int i = 0; i < ROWS; i++) {
        const struct bl_param_row *row = &bl_param_rows[i];
        char value[256];
        if (!sources[i].variable) continue;
        row->kind->format(row, member_of(row), value, sizeof(value));
        if (sources[i].refused)
            bl_info("%s=%s (default: the environment's value is not accepted)", row->variable, value);
        else if (strcmp(sources[i].variable, row->variable) == 0)
            bl_info("%s=%s (environment)", row->variable, value);
        else
            bl_info("%s=%s (environment: %s)", row->variable, value, sources[i].variable);
    }
}

/* What a process sets later is obeyed, too; what it unsets later is not. */
const char *bl_params_multicast_forbidden(void) {
    static _Thread_local char now[sizeof(multicast_at_first)];
    const char *text = value_of("BEELINE_MULTICAST");
    bool on = true;
    if (!bl_params()->multicast || (text && (!bl_param_parse_flag(text, &on) || !on))) return "BEELINE_MULTICAST=0";
    if (multicast_at_first[0]) return multicast_at_first;
    read_multicast(now, sizeof(now));
    return now[0] ? now : NULL;
}

/* The rules are NCCL's (ncclTopoCheckP2p); what its file of settings says is in the environment once it has read that. */
const char *bl_params_p2p_forbidden(void) {
    const char *disable = value_of("NCCL_P2P_DISABLE"), *level = value_of("NCCL_P2P_LEVEL");
    if (disable && strtol(disable, NULL, 0) == 1) return "NCCL_P2P_DISABLE=1";
    if (level && !strcasecmp(level, "LOC")) return "NCCL_P2P_LEVEL=LOC";
    return level && level[0] >= '0' && level[0] <= '9' && strtol(level, NULL, 10) == 0 ? "NCCL_P2P_LEVEL=0" : NULL;
}

bool bl_params_nccl_nvls(void) {
    const char *enable = value_of("NCCL_NVLS_ENABLE");
    if (!enable) return true;
    errno = 0;
    const bool enabled = strtoll(enable, NULL, 0) != 0; /* of what is no number, too, as in NCCL */
    return enabled || errno;
}

bool bl_params_tuning_built_in(void) {
    return bl_params()->tuning_file && !strcmp(bl_params()->tuning_file, "built-in");
}

void bl_params_tuning_path(enum bl_tuning_place place, char *path, size_t size) {
    const bool cache = place == BL_TUNING_CACHE;
    const char *folder = value_of(cache ? "XDG_CACHE_HOME" : "XDG_CONFIG_HOME"), *home = value_of("HOME");
    path[0] = 0;
    if (place == BL_TUNING_ASKED)
        snprintf(path, size, "%s", bl_params()->tuning_file ? bl_params()->tuning_file : "");
    else if (place == BL_TUNING_SYSTEM)
        snprintf(path, size, "/etc/beeline/beeline.tune");
    else if (folder && folder[0] == '/')
        snprintf(path, size, "%s/beeline/beeline.tune", folder);
    else if (home && home[0] == '/')
        snprintf(path, size, "%s/%s/beeline/beeline.tune", home, cache ? ".cache" : ".config");
}

const char *bl_params_nccl_bent(void) {
    static const char *const names[] = {"NCCL_ALGO",
                                        "NCCL_PROTO",
                                        "NCCL_NTHREADS",
                                        "NCCL_MIN_CTAS",
                                        "NCCL_MAX_CTAS",
                                        "NCCL_CTA_POLICY",
                                        "NCCL_MIN_NCHANNELS",
                                        "NCCL_MAX_NCHANNELS",
                                        "NCCL_MIN_NRINGS",
                                        "NCCL_MAX_NRINGS",
                                        "NCCL_BUFFSIZE",
                                        "NCCL_P2P_DISABLE",
                                        "NCCL_P2P_LEVEL",
                                        "NCCL_P2P_USE_CUDA_MEMCPY",
                                        "NCCL_TUNER_PLUGIN",
                                        "NCCL_TOPO_FILE",
                                        "NCCL_GRAPH_FILE",
                                        "NCCL_COMM_ID",
                                        "NCCL_COMM_BLOCKING",
                                        "NCCL_CGA_CLUSTER_SIZE",
                                        "NCCL_NVLS_NCHANNELS",
                                        "NCCL_P2P_DIRECT_DISABLE",
                                        "NCCL_MIN_P2P_NCHANNELS",
                                        "NCCL_MAX_P2P_NCHANNELS",
                                        "CUDA_LAUNCH_BLOCKING",
                                        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"};
    static _Thread_local char found[96];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *text = value_of(names[i]);
        if (!text) continue;
        snprintf(found, sizeof(found), "%s=%.48s", names[i], text);
        return found;
    }
    return NULL;
}

int bl_params_connections(void) {
    const char *text = value_of("CUDA_DEVICE_MAX_CONNECTIONS");
    const long connections = text ? strtol(text, NULL, 10) : 0;
    return connections >= 1 && connections <= 32 ? (int)connections : 0;
}
